"""A run, of pretraining or of fine-tuning: the request, and the phases that it goes through. Each
line says what is true when a phase has ended.

    check         the folder may hold this run; nothing has been read yet
    open          data, task, model and teacher are read
    settle sizes  the batch fits in memory, in one process or split over those of the group
    build         the network is built, with the weights of the model that it starts from, if any
    claim         the folder is this run from now on, or was this run already and continues
    train         the loop has come to its end, or a signal has stopped it
    finish        the last scores and files are written

Checking and opening are functions of the two kinds of run, because several seeds open a task once.
A `Run` begins after them. Each of its phases takes what the phase before it returned, so that none
can come too early. A network is built before its folder is claimed, so that a request which cannot
be served leaves no run.

Pretraining (`train.pretrain`) says what its phases do.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

Sized = TypeVar("Sized")
Built = TypeVar("Built")
Claimed = TypeVar("Claimed")
Trained = TypeVar("Trained")
Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """The part of a request that both kinds of run have; a verb makes it once."""

    out: Path
    """The folder of the run."""
    overwrite: bool = False
    """Delete the run in `out`, if there is one, and start again."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:N, or mps on a Mac."""
    trackers: tuple[str, ...] = ()
    """Names of trackers that get the metrics."""


class Run(ABC, Generic[Sized, Built, Claimed, Trained, Result]):
    """One training in one folder, from opened inputs to its result."""

    @abstractmethod
    def settle_sizes(self) -> Sized:
        """Choose the sizes that are left to choose, and check that they fit in memory."""

    @abstractmethod
    def build(self, sized: Sized) -> Built:
        """Build the network."""

    @abstractmethod
    def claim(self, built: Built) -> Claimed:
        """Make the folder this run, or check that it is this run already."""

    @abstractmethod
    def train(self, claimed: Claimed) -> Trained:
        """Run the loop to its end, or until a signal."""

    @abstractmethod
    def finish(self, trained: Trained) -> Result:
        """Write and report what a run leaves when its training has ended."""

    def execute(self, sized: Sized) -> Result:
        """Go through the phases after `settle_sizes`, in the folder whose lock the caller holds."""
        return self.finish(self.train(self.claim(self.build(sized))))
