"""The engine `onnx`: ONNX Runtime computes the logits, in the types of the graph."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from litebert.answer.graphs import check_device, graph_of, inputs_of, logits_from
from litebert.errors import LitebertError, ModelError
from litebert.finetuning.batches import PaddedRows
from litebert.interop import LoadedModel
from litebert.interop.onnx_folder import session


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
    def of_file(cls, file: Path) -> OnnxEngine:
        """Over a graph that `litebert export` writes."""
        engine = cls.__new__(cls)
        engine._read(file)
        return engine

    def _read(self, file: Path) -> None:
        try:
            self._session = session(file)
        except LitebertError:
            raise
        except Exception as error:  # the library's own kinds share no base
            raise ModelError(f"{file} cannot be run ({str(error).splitlines()[0]}); export the model again") from None
        self._ranks = {one.name: len(one.shape) for one in self._session.get_inputs()}

    def logits(self, rows: PaddedRows) -> NDArray[np.float32]:
        return logits_from(self._session.run(None, inputs_of(rows, self._ranks)))
