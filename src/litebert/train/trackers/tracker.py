"""The base of trackers, and the run that they record."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar


@dataclass(frozen=True)
class TrackedRun:
    """A run as a tracker opens it."""

    folder: Path
    name: str
    """A short name, for people."""
    config: Mapping[str, Any]
    """The content of recipe.json or finetune.json."""
    resume: int | None
    """The step from which the run continues; None for a new record."""
    memory: dict[str, Any] = field(default_factory=dict)
    """Facts that the tracker finds again in the next process, such as the id of its record; empty
    at first, and stored in trackers.json.
    """


class Tracker(ABC):
    """Records a run elsewhere. Whatever it raises ends the record and not the run."""

    package: ClassVar[str]
    """The module that it needs."""
    extra: ClassVar[str]
    """The extra of litebert that installs it."""
    repeats: ClassVar[bool] = False
    """True if rows that a continued run writes again must be logged again; by default they are left
    out, because they are equal.
    """

    @abstractmethod
    def __init__(self, run: TrackedRun) -> None:
        """Begin the record of a run, or go on with the record that `run.memory` names."""

    @abstractmethod
    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        """Record numbers by name, such as train/loss."""

    def note(self, step: int, message: str) -> None:  # noqa: B027 - most record numbers alone
        """Record an event, such as a warning."""

    def keep(self, name: str, kind: str, path: Path) -> None:  # noqa: B027 - not all hold files
        """Keep a file or a folder of the run as an artifact.

        Args:
            name: a name for people: config, report, model.
            kind: what it is: config, scores, report or model.
        """

    @abstractmethod
    def close(self) -> None:
        """Write what is left; the record may be opened again."""
