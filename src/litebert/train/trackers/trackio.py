"""Trackio: a database in the folder that TRACKIO_DIR names, read by `trackio show`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

from litebert.train.trackers.tracker import TrackedRun, Tracker


class Trackio(Tracker):
    """A run of the project litebert."""

    package, extra = "trackio", "trackio"

    def __init__(self, run: TrackedRun) -> None:
        import trackio

        self._library: Any = trackio
        # Trackio knows runs by their names, and folders may have the same name.
        name = run.memory.setdefault("name", f"{run.name}-{uuid4().hex[:6]}")
        self._name = name
        self._run: Any = trackio.init(
            project="litebert",
            name=name,
            config=dict(run.config),
            resume="allow",
            embed=False,
            auto_log_gpu=False,
            auto_log_cpu=False,
        )

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        self._run.log(dict(numbers), step=step)

    def keep(self, name: str, kind: str, path: Path) -> None:
        artifact = self._library.Artifact(f"{self._name}-{name}", type=kind)
        (artifact.add_dir if path.is_dir() else artifact.add_file)(str(path))
        self._run.log_artifact(artifact)

    def close(self) -> None:
        self._run.finish()
