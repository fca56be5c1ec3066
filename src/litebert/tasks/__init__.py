"""Fine-tuning tasks behind one small protocol (`task.py`), and the work that trains them."""
