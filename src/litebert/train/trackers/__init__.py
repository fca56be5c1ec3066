"""Trackers: where a team looks at its runs, beside the run folder.

A tracker of your own is a subclass of `Tracker` with a registered name: TRACKERS.add("mine", Mine).
It gets the rows of `metrics.jsonl`, and at the end the config, scores, report and model.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

from litebert.base.errors import MissingExtraError, RunError
from litebert.base.json_reader import read_json
from litebert.base.registry import TRACKERS
from litebert.base.storage import write_json

log = logging.getLogger("litebert")

MEMORY = "trackers.json"
TRACKED = (MEMORY, "tensorboard", "wandb")
_CONFIGS = ("recipe.json", "finetune.json")
_ARTIFACTS = (
    ("config", "config", _CONFIGS),
    ("scores", "scores", ("scores.json", "reliability.json")),
    ("curves", "curves", ("metrics.jsonl", "speed.jsonl")),
    ("report", "report", ("report.html",)),
)


@dataclass(frozen=True)
class TrackedRun:
    """A run as a tracker opens it."""

    folder: Path
    name: str
    """A short name, for people."""
    config: Mapping[str, Any]
    resume: int | None
    """The step from which the run continues; None for a new record."""
    memory: dict[str, Any] = field(default_factory=dict)
    """What the tracker finds again in the next process, as its record's id; in trackers.json."""


class Tracker(ABC):
    """Records a run elsewhere. Whatever it raises ends the record and not the run."""

    package: ClassVar[str]
    """The module that it needs."""
    extra: ClassVar[str]
    """The extra of litebert that installs it."""
    repeats: ClassVar[bool] = False
    """True if the equal rows that a continued run writes again are logged again."""

    @abstractmethod
    def __init__(self, run: TrackedRun) -> None:
        """Begin the record of a run, or go on with the record that `run.memory` names."""

    @abstractmethod
    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        """Record numbers by name, such as train/loss."""

    def note(self, step: int, message: str) -> None:  # noqa: B027 - most record numbers alone
        """Record an event, such as a warning."""

    def keep(self, name: str, kind: str, path: Path) -> None:  # noqa: B027 - not all hold files
        """Keep a file or a folder of the run as an artifact: `name` is for people (config, report,
        model), `kind` what it is (config, scores, report or model).
        """

    @abstractmethod
    def close(self) -> None:
        """Write what is left; the record may be opened again."""


def require_trackers(names: Sequence[str]) -> None:
    """See to it that trackers exist and that their libraries are installed."""
    for name in names:
        tracker = TRACKERS[name]
        package = getattr(tracker, "package", "")
        if package and find_spec(package) is None:
            raise MissingExtraError(package, tracker.extra)


class TrackerGroup:
    def __init__(
        self,
        folder: Path,
        names: Sequence[str],
        resume: int | None = None,
        rows: Iterable[Mapping[str, Any]] = (),
        written: int = -1,
    ) -> None:
        """Open the record of each tracker; one that fails is left out, and a warning says so.

        A new record gets the `rows` so far of a run that continues from step `resume`; rows up to
        `written` were logged by an earlier process.
        """
        self._folder, self._written = folder, written
        self._trackers: dict[str, Tracker] = {}
        if not names:
            return
        file, saved = folder / MEMORY, dict[str, Any]()
        with contextlib.suppress(RunError):  # where the file is damaged, a record begins anew
            found = read_json(file, RunError) if file.is_file() else {}
            saved = {key: value for key, value in found.items() if isinstance(value, dict)}
        continued = {} if resume is None else saved
        memory: dict[str, dict[str, Any]] = {name: dict(continued.get(name, {})) for name in names}
        fresh = [name for name in names if not memory[name]]
        config = next((folder / name for name in _CONFIGS if (folder / name).is_file()), None)
        fields = {} if config is None else read_json(config, RunError)
        whole = folder.resolve()
        title = (
            f"{whole.parent.name}-{whole.name}" if whole.name.startswith("seed-") else whole.name
        )
        for name in dict.fromkeys(names):
            run = TrackedRun(folder, title, fields, resume if memory[name] else None, memory[name])
            with self._guard(name):
                tracker = TRACKERS[name](run)
                json.dumps(memory[name])  # a tracker of one's own may remember what JSON lacks
                self._trackers[name] = tracker
        try:
            write_json(file, {**saved, **{name: memory[name] for name in self._trackers}})
        except OSError as error:
            log.warning(
                f"{file} cannot be written ({error.strerror}), so the trackers begin "
                "new records if this run is continued"
            )
        for row in rows if resume is not None else ():
            self._log(row, [name for name in fresh if name in self._trackers])

    def log(self, row: Mapping[str, Any]) -> None:
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
    """Give the artifacts of a run to its trackers, whose records go on at its last step."""
    group = TrackerGroup(folder, names, resume=step)
    group.keep()
    group.close()
