"""The variables by which torchrun tells each process about the group it started, through the
environment; read without torch.
"""

from __future__ import annotations

import os

GROUPED = ("pretrain", "finetune")
"""The verbs that several processes can run together."""


def processes() -> int:
    """How many processes were started together, on all machines."""
    needed = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    return int(os.environ["WORLD_SIZE"]) if all(os.environ.get(name) for name in needed) else 1


def main_process() -> bool:
    """True where this is the only process, or the first of them."""
    return processes() == 1 or os.environ["RANK"] == "0"


def restarts() -> int:
    """How often the group was started again after a failure."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) if processes() > 1 else 0
