"""The engine `onnx`: ONNX Runtime computes the logits, in the types of the graph."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from litebert.answer.graphs import check_device, graph_of, inputs_of, logits_from
from litebert.errors import LitebertError, ModelError
from litebert.finetuning.rows import PaddedRows
from litebert.interop.onnx_session import session

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

    def __init__(self, loaded: LoadedModel, device: str) -> None:
        check_device("onnx", device)
        self._read(graph_of(loaded))

    @classmethod
    def of_file(cls, file: Path, threads: int | None = None) -> OnnxEngine:
        """Over a graph that `litebert export` writes; see `session`."""
        engine = cls.__new__(cls)
        engine._read(file, threads)
        return engine

    def _read(self, file: Path, threads: int | None = None) -> None:
        try:
            self._session = session(file, threads)
        except LitebertError:
            raise
        except Exception as error:  # the library's own kinds share no base
            raise ModelError(f"{file} cannot be run ({str(error).splitlines()[0]}); export the model again") from None
        self._ranks = {one.name: len(one.shape) for one in self._session.get_inputs()}
        self.outputs: tuple[str, ...] = tuple(one.name for one in self._session.get_outputs())

    def logits(self, rows: PaddedRows) -> NDArray[np.float32]:
        return logits_from(self.run(rows))

    def run(self, rows: PaddedRows) -> Sequence[NDArray[np.float32]]:
        """All outputs of the graph, in the order of `outputs`."""
        found: Sequence[NDArray[np.float32]] = self._session.run(None, inputs_of(rows, self._ranks))
        return found
