"""The variables of torchrun, and of schedulers such as Kubeflow, about a process's group."""

from __future__ import annotations

import os

from litebert.base.errors import ConfigError

GROUPED = ("pretrain", "finetune")


def processes() -> int:
    """How many processes were started together, on all machines."""
    needed = ("RANK", "WORLD_SIZE", "MASTER_PORT", "MASTER_ADDR")
    if not all(os.environ.get(name) for name in needed):
        return 1
    for name in (*needed[:3], "LOCAL_RANK", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT"):
        if not (value := os.environ.get(name, "0")).isdecimal():
            raise ConfigError(f"{name} is '{value}' in the environment; give a whole number")
    return int(os.environ["WORLD_SIZE"])


def work_alone() -> bool:
    """Forget the group that a scheduler named; whether it did, as torchrun starts no lone verb."""
    if any(name.startswith("TORCHELASTIC_") for name in os.environ):
        return False
    os.environ.pop("WORLD_SIZE", None)
    return True


def main_process() -> bool:
    return processes() == 1 or os.environ["RANK"] == "0"


def restarts() -> int:
    """How often the group was started again after a failure."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) if processes() > 1 else 0
