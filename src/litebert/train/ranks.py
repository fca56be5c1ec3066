"""The group of processes that train one model together, and share a run folder that the main one writes.

There is one process today, so `sum` and `agree` change nothing; a group of several overrides them and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from torch import Tensor

from litebert.errors import require

T = TypeVar("T")


@dataclass(frozen=True)
class Ranks:
    """The group as one of its processes sees it."""

    rank: int = 0
    size: int = 1

    @property
    def main(self) -> bool:
        """Whether this process writes the files of the run."""
        return self.rank == 0

    def share(self, count: int) -> range:
        """Which of the `count` sequences of a batch this process trains on.

        Raises:
            ConfigError: there are fewer sequences than processes.
        """
        fix = "raise train.batch or start fewer processes"
        require(count >= self.size, f"train.batch is {count} sequences for {self.size} processes; {fix}")
        return range(self.rank * count // self.size, (self.rank + 1) * count // self.size)

    def sum(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by its sum over the processes."""

    def agree(self, value: T) -> T:
        """The main process's value, in all of them."""
        return value
