"""The engine `onnx`: ONNX Runtime computes the logits, in the types of the graph."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from litebert.answer.graphs import check_device, graph_of, inputs_of, logits_from
from litebert.errors import MissingExtraError, ModelError
from litebert.finetuning.batches import PaddedRows
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
        try:
            import onnxruntime
        except ImportError:
            raise MissingExtraError("onnxruntime", "onnx") from None
        check_device("onnx", device)
        file = graph_of(loaded)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.log_severity_level = 3
        try:
            self._session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # the library's own kinds share no base
            raise ModelError(f"{file} cannot be run ({str(error).splitlines()[0]}); export the model again") from None
        self._ranks = {one.name: len(one.shape) for one in self._session.get_inputs()}

    def logits(self, rows: PaddedRows) -> NDArray[np.float32]:
        return logits_from(self._session.run(None, inputs_of(rows, self._ranks)))
