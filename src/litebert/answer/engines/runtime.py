"""Runtimes, which compute the numbers of a model, and engines, which make them. This module needs
no torch.

A runtime of your own is a subclass of `Runtime`. Register it under a name:
ENGINES.add("mine", Mine).
"""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from litebert.base.errors import ConfigError
from litebert.config import Pooling
from litebert.kernels.packing import Dtype
from litebert.tasks.rows import PaddedRows
from litebert.tasks.scoring import EVALUATION_TOKENS
from litebert.tasks.similarity import pool_states

if TYPE_CHECKING:
    from litebert.interop.loaded import LoadedModel, VectorMap

T = TypeVar("T")


@dataclass(frozen=True)
class Capabilities:
    """The limits of a runtime, and its abilities beside `logits`."""

    tokens: int = EVALUATION_TOKENS
    """Most tokens of a pass, padding included."""
    padding: int | None = None
    """Most tokens that a row is padded with; any number by default."""
    early_exit: bool = False
    """True if it has `walk`, so that rows can leave early (answer/engines/exits.py)."""
    takes_threads: bool = False
    """True if its engine takes `threads`, the threads of a service, which shares its cores."""
    dtypes: tuple[Dtype, ...] = ()
    """The types of matrix products that its engine takes as `dtype`, float32 first; none where the
    model alone decides."""


class Walk(Protocol):
    """A batch on its way through a network."""

    def step(self) -> NDArray[np.float32]:
        """Apply the next layer, and return the logits that the head reads after it, (R, C)."""

    def keep(self, rows: NDArray[np.int64], length: int) -> None:
        """Go on with these rows only, and with so many of their tokens; the others are padding."""


class Runtime:
    """Computes the numbers of a model for rows. A subclass needs `logits` alone.

    For sentence vectors, a runtime gets the encoder as a model without classes, whose logits are
    the last states.

    Shapes: R rows of S tokens, C numbers of the head, H hidden size.
    """

    capabilities = Capabilities()

    def renew_in_forks(self, *names: str) -> None:
        """Have a forked process, which has no threads of its parent, make cached properties anew;
        old values are never freed there, for that would wait for their threads.
        """
        owner = weakref.ref(self)

        def forget() -> None:
            for name in names:
                if (value := getattr(owner(), "__dict__", {}).pop(name, None)) is not None:
                    ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))

        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=forget)

    def logits(self, rows: PaddedRows) -> NDArray[np.float32]:
        """Compute logits: (R, C) where the head reads [CLS], else (R, S, C)."""
        raise NotImplementedError

    def vectors(
        self, rows: PaddedRows, pooling: Pooling, vector_map: VectorMap | None = None
    ) -> NDArray[np.float32]:
        """Pool last states, the logits (R, H), by their mean or [CLS]; and map them, (R, D)."""
        pooled = pool_states(self.logits(rows), rows.mask, pooling)
        return pooled if vector_map is None else vector_map.of(pooled)

    def walk(self, rows: PaddedRows) -> Walk:
        """Begin a batch layer by layer, where `capabilities.early_exit` is true."""
        raise NotImplementedError

    def map_passes(
        self, compute: Callable[[PaddedRows], T], passes: Sequence[PaddedRows]
    ) -> Iterable[T]:
        """Yield what `compute` makes of each pass with this runtime, in order."""
        return map(compute, passes)


class Engine(Protocol):
    """Makes the runtime of a model. A subclass of `Runtime` is an engine itself, if it is made from
    the same arguments.

    `load(folder, engine="mine")` calls a registered engine with the opened model and the name of a
    device. Of a fine-tuned litebert folder, the weights are read when the engine asks for
    `loaded.model`, so they may be absent.
    """

    @property
    def capabilities(self) -> Capabilities:
        """What is known before a runtime is made: `early_exit`, `dtypes` and `takes_threads`."""

    def __call__(self, loaded: LoadedModel, device: str) -> Runtime:
        """Make the runtime. With `takes_threads` there is an argument `threads`, and with `dtypes`
        an argument `dtype`, by their names."""


def check_device(engine: str, device: str) -> None:
    """Refuse a device that an engine for CPUs does not have."""
    if device not in ("auto", "cpu"):
        raise ConfigError(
            f"the engine {engine} computes on the CPU; leave --device {device} out, or "
            "take another engine"
        )
