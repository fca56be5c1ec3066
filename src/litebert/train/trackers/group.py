"""All trackers of a run: they get the same stream, and none of them can stop the run."""

from __future__ import annotations

import contextlib
import json
import logging
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from litebert.base.errors import MissingExtraError, RunError
from litebert.base.json_reader import read_json
from litebert.base.registry import TRACKERS
from litebert.base.storage import write_json
from litebert.train.trackers.tracker import TrackedRun, Tracker

log = logging.getLogger("litebert")

MEMORY = "trackers.json"
"""The file of a run folder that holds what trackers remember."""
TRACKED = (MEMORY, "tensorboard", "wandb")
"""The files and folders that trackers leave in a run folder."""
_CONFIGS = ("recipe.json", "finetune.json")
_ARTIFACTS = (
    ("config", "config", _CONFIGS),
    ("scores", "scores", ("scores.json", "reliability.json")),
    ("curves", "curves", ("metrics.jsonl", "speed.jsonl")),
    ("report", "report", ("report.html",)),
)


def require_trackers(names: Sequence[str]) -> None:
    """See to it that trackers exist and that their libraries are installed."""
    for name in names:
        tracker = TRACKERS[name]
        package = getattr(tracker, "package", "")
        if package and find_spec(package) is None:
            raise MissingExtraError(package, tracker.extra)


class TrackerGroup:
    """The trackers of a run folder, open."""

    def __init__(
        self,
        folder: Path,
        names: Sequence[str],
        resume: int | None = None,
        rows: Iterable[Mapping[str, Any]] = (),
        written: int = -1,
    ) -> None:
        """Open the record of each tracker; one that fails is left out, and a warning says so.

        Args:
            resume: the step from which the run continues; None where it begins.
            rows: the rows so far, which a new record gets.
            written: the last step that an earlier process logged; such rows are not logged again.
        """
        self._folder, self._written = folder, written
        self._trackers: dict[str, Tracker] = {}
        if not names:
            return
        saved = _read_memory(folder)
        memory: dict[str, dict[str, Any]] = {name: dict(saved.get(name, {})) for name in names}
        if resume is None:
            memory = {name: {} for name in names}
        fresh = [name for name in names if not memory[name]]
        for name in dict.fromkeys(names):
            run = _describe_run(folder, resume if memory[name] else None, memory[name])
            with self._guard(name):
                tracker = TRACKERS[name](run)
                json.dumps(memory[name])  # a tracker of one's own may remember what JSON lacks
                self._trackers[name] = tracker
        try:
            write_json(
                folder / MEMORY, {**saved, **{name: memory[name] for name in self._trackers}}
            )
        except OSError as error:
            log.warning(
                f"{folder / MEMORY} cannot be written ({error.strerror}), so the trackers begin "
                "new records if this run is continued"
            )
        for row in rows if resume is not None else ():
            self._log(row, [name for name in fresh if name in self._trackers])

    def log(self, row: Mapping[str, Any]) -> None:
        """Log a row of metrics."""
        repeated = row["step"] <= self._written
        names = [
            name for name, tracker in self._trackers.items() if tracker.repeats or not repeated
        ]
        self._log(row, names)

    def _log(self, row: Mapping[str, Any], names: Sequence[str]) -> None:
        kind, step = row["kind"], row["step"]
        numbers = {
            f"{kind}/{key}": float(value)
            for key, value in row.items()
            if key != "step" and isinstance(value, (int, float)) and not isinstance(value, bool)
        }
        message = row.get("message")
        for name in names:
            tracker = self._trackers[name]
            with self._guard(name):
                if isinstance(message, str):
                    tracker.note(step, message)
                elif numbers:
                    tracker.log(step, numbers)

    def keep(self) -> None:
        """Keep the config, the scores, the curves, the report and the model of a run."""
        for name, tracker in list(self._trackers.items()):
            with self._guard(name):
                for artifact, kind, path in list_artifacts(self._folder):
                    tracker.keep(artifact, kind, path)

    def close(self) -> None:
        """Close all records."""
        for name, tracker in list(self._trackers.items()):
            with self._guard(name):
                tracker.close()
        self._trackers.clear()

    @contextlib.contextmanager
    def _guard(self, name: str) -> Iterator[None]:
        """Drop a tracker that fails in this block, and keep its words off standard output."""
        try:
            with contextlib.redirect_stdout(sys.stderr):
                yield
        except (Exception, SystemExit) as error:  # whatever others' code does, training goes on
            self._trackers.pop(name, None)
            log.warning(
                f"the tracker {name} failed and records no more of this run, which goes on: "
                f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
            )


def list_artifacts(folder: Path) -> Iterator[tuple[str, str, Path]]:
    """List what a run leaves for trackers: name, kind and path."""
    for name, kind, files in _ARTIFACTS:
        for file in files:
            if (folder / file).is_file():
                yield name if len(files) == 1 else Path(file).stem, kind, folder / file
    model = folder / "model"
    if model.is_dir():
        yield "model", "model", model
        return
    checkpoints = sorted((folder / "checkpoints").glob("*"))  # of a pretraining run
    if checkpoints:
        yield "model", "model", checkpoints[-1]


def keep_artifacts(folder: Path, names: Sequence[str], step: int) -> None:
    """Give the artifacts of a run to its trackers.

    Args:
        step: the last step of the run, whose record goes on.
    """
    group = TrackerGroup(folder, names, resume=step)
    group.keep()
    group.close()


def _describe_run(folder: Path, resume: int | None, memory: dict[str, Any]) -> TrackedRun:
    config = next((folder / name for name in _CONFIGS if (folder / name).is_file()), None)
    whole = folder.resolve()
    name = f"{whole.parent.name}-{whole.name}" if whole.name.startswith("seed-") else whole.name
    fields = {} if config is None else read_json(config, RunError)
    return TrackedRun(folder, name, fields, resume, memory)


def _read_memory(folder: Path) -> dict[str, Any]:
    """What each tracker remembers; where the file is damaged, a record begins anew."""
    file = folder / MEMORY
    try:
        saved = read_json(file, RunError) if file.is_file() else {}
    except RunError:
        return {}
    return {name: memory for name, memory in saved.items() if isinstance(memory, dict)}
