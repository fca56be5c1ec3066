"""The engine `onnx`: ONNX Runtime computes the logits, in the types of the graph."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from litebert.answer.graphs import (
    check_device,
    graph_of,
    inputs_of,
    logits_from,
    require_numbers,
    unreadable,
)
from litebert.errors import LitebertError
from litebert.finetuning.rows import PaddedRows
from litebert.interop.onnx.session import session

if TYPE_CHECKING:
    from litebert.interop import LoadedModel


class OnnxEngine:
    """A session on the CPU, with as many threads as torch would take.

    Raises:
        MissingExtraError: onnx or onnxruntime is not installed.
        ModelError: the graph is damaged, or one of another program.
        ConfigError: the device is not the CPU.
    """

    tokens = 1024
    padding = 4
    """Tokens that a row may be padded with: more of them take longer than a pass of its own
    (MiniLM's shape, AVX2).
    """

    def __init__(self, loaded: LoadedModel, device: str) -> None:
        check_device("onnx", device)
        self._read(graph_of(loaded))

    @classmethod
    def of_file(cls, file: Path, threads: int | None = None) -> OnnxEngine:
        """Make the engine of a graph that `litebert export` wrote; see `session`."""
        engine = cls.__new__(cls)
        engine._read(file, threads)
        return engine

    def _read(self, file: Path, threads: int | None = None) -> None:
        try:
            self._session = session(file, threads)
        except LitebertError:
            raise
        except Exception as error:  # the library's own kinds share no base
            raise unreadable(file, error) from None
        self._file = file
        self.ranks = {node.name: len(node.shape) for node in self._session.get_inputs()}
        self.outputs: tuple[str, ...] = tuple(node.name for node in self._session.get_outputs())

    def logits(self, rows: PaddedRows) -> NDArray[np.float32]:
        return logits_from(self.run(rows))

    def run(self, rows: PaddedRows) -> Sequence[NDArray[np.float32]]:
        """Compute all outputs of the graph, in the order of `outputs`."""
        outputs: Sequence[NDArray[np.float32]] = self._session.run(
            None, inputs_of(rows, self.ranks)
        )
        require_numbers(outputs, self._file)
        return outputs

    def run_all(self, passes: Sequence[PaddedRows]) -> Iterable[Sequence[NDArray[np.float32]]]:
        """Compute the outputs of each pass.

        Passes side by side keep all threads busy, while the threads of a single pass wait for each
        other.
        """
        return (
            map(self.run, passes) if len(passes) == 1 else self._side_by_side.map(self.run, passes)
        )

    @cached_property
    def _side_by_side(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self._session.get_session_options().intra_op_num_threads)
