"""What is said of a model: baselines, calibration, reliability, the words that decide, exits."""
