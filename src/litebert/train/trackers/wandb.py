"""Weights & Biases: online where there is a key, else offline in RUN/wandb, from where `wandb sync`
uploads.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from netrc import NetrcParseError, netrc
from pathlib import Path
from typing import Any
from uuid import uuid4

from litebert.train.trackers.tracker import TrackedRun, Tracker


class Wandb(Tracker):
    """A run of the project WANDB_PROJECT, or litebert."""

    package, extra = "wandb", "wandb"

    def __init__(self, run: TrackedRun) -> None:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        import wandb

        self._library: Any = wandb
        id_ = run.memory.setdefault("id", uuid4().hex[:12])
        self._id = id_
        settings = wandb.Settings(
            silent=True,
            console="off",
            disable_git=True,
            disable_code=True,
            x_disable_stats=True,
            x_disable_meta=True,
        )
        self._run: Any = wandb.init(
            project=os.environ.get("WANDB_PROJECT") or "litebert",
            id=id_,
            name=run.name,
            config=dict(run.config),
            dir=str(run.folder),
            resume="allow",
            mode=None if _has_key() else "offline",
            settings=settings,
        )

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        self._run.log(dict(numbers), step=step)

    def keep(self, name: str, kind: str, path: Path) -> None:
        artifact = self._library.Artifact(f"{name}-{self._id}", type=kind)
        (artifact.add_dir if path.is_dir() else artifact.add_file)(str(path))
        self._run.log_artifact(artifact)

    def close(self) -> None:
        self._run.finish()


def _has_key() -> bool:
    """Return True if the environment or the file of passwords has a key, or says the mode: without
    one, the library would ask on the terminal and wait.
    """
    if os.environ.get("WANDB_API_KEY") or os.environ.get("WANDB_MODE"):
        return True
    try:
        return any("wandb" in host for host in netrc().hosts)
    except (OSError, NetrcParseError):
        return False
