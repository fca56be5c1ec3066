"""The runtime of the engine `onnx`: ONNX Runtime computes, in the types of the graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from litebert.answer.engines.graphs import (
    graph_of,
    inputs_of,
    logits_from,
    require_numbers,
    unreadable,
)
from litebert.answer.engines.runtime import Capabilities, Runtime, check_device
from litebert.base.errors import LitebertError
from litebert.interop.onnx.session import session
from litebert.tasks.rows import PaddedRows

if TYPE_CHECKING:
    from litebert.interop import LoadedModel

T = TypeVar("T")


class OnnxRuntime(Runtime):
    """A session on the CPU, with as many threads as torch would take."""

    # More tokens of padding take longer than a pass of its own (MiniLM's shape, AVX2).
    capabilities = Capabilities(tokens=1024, padding=4, takes_threads=True)

    def __init__(self, loaded: LoadedModel, device: str, threads: int | None = None) -> None:
        check_device("onnx", device)
        self._open(graph_of(loaded), threads)

    @classmethod
    def of_file(cls, file: Path) -> OnnxRuntime:
        """Make the runtime of a graph that `litebert export` wrote."""
        runtime = cls.__new__(cls)
        runtime._open(file)
        return runtime

    def _open(self, file: Path, threads: int | None = None) -> None:
        self._file, self._threads = file, threads
        self._ranks = {node.name: len(node.shape) for node in self._session.get_inputs()}
        self.renew_in_forks("_session", "_side_by_side")

    @cached_property
    def _session(self) -> Any:
        try:
            return session(self._file, self._threads)
        except LitebertError:
            raise
        except Exception as error:  # the library's own kinds share no base
            raise unreadable(self._file, error) from None

    def logits(self, rows: PaddedRows) -> NDArray[np.float32]:
        try:
            outputs = self._session.run(None, inputs_of(rows, self._ranks))
            require_numbers(outputs, self._file)
            return logits_from(outputs)
        except LitebertError:
            raise
        except Exception as error:  # of a graph that some other program wrote
            raise unreadable(self._file, error) from None

    def map_passes(
        self, compute: Callable[[PaddedRows], T], passes: Sequence[PaddedRows]
    ) -> Iterable[T]:
        # Passes side by side keep all threads busy, while the threads of a single pass wait for
        # each other.
        return map(compute, passes) if len(passes) == 1 else self._side_by_side.map(compute, passes)

    @cached_property
    def _side_by_side(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self._session.get_session_options().intra_op_num_threads)
