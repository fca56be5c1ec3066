"""TensorBoard: event files in the run folder, read by `tensorboard --logdir RUN/tensorboard`."""

from __future__ import annotations

from collections.abc import Mapping

from litebert.base.storage import json_text
from litebert.train.trackers.tracker import TrackedRun, Tracker


class TensorBoard(Tracker):
    """Writes event files, which hold numbers and texts alone."""

    package, extra = "tensorboard", "tensorboard"
    repeats = True  # rows after the checkpoint are purged when a run continues

    def __init__(self, run: TrackedRun) -> None:
        from torch.utils.tensorboard import SummaryWriter

        purged = None if run.resume is None else run.resume + 1
        self._writer = SummaryWriter(str(run.folder / "tensorboard"), purge_step=purged)
        if not run.memory:
            self._writer.add_text("config", f"```json\n{json_text(dict(run.config))}\n```")
        run.memory["folder"] = "tensorboard"

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, step)

    def note(self, step: int, message: str) -> None:
        self._writer.add_text("event", message, step)

    def close(self) -> None:
        self._writer.close()
