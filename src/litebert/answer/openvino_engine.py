"""The engine `openvino`: OpenVINO computes the logits, in float32 or, as `openvino-bfloat16`, in bfloat16."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from litebert.answer.graphs import check_device, graph_of, inputs_of, logits_from
from litebert.errors import MissingExtraError, ModelError
from litebert.finetuning.rows import PaddedRows
from litebert.interop import LoadedModel
from litebert.train import device as devices


class OpenVinoEngine:
    """A compiled graph on the CPU, with as many threads as torch would take.

    Raises:
        MissingExtraError: openvino or onnx is not installed.
        ModelError: the graph is damaged, or one of another program.
        ConfigError: the device is not the CPU.
    """

    tokens = 1024
    precision = "f32"

    def __init__(self, loaded: LoadedModel, device: str) -> None:
        try:
            import openvino
        except ImportError:
            raise MissingExtraError("openvino", "openvino") from None
        check_device("openvino", device)
        file = graph_of(loaded)
        settings = {
            "INFERENCE_NUM_THREADS": torch.get_num_threads(), "INFERENCE_PRECISION_HINT": self.precision,
            "PERFORMANCE_HINT": "LATENCY",
        }  # fmt: skip
        try:
            self._graph = openvino.Core().compile_model(str(file), "CPU", settings)
        except RuntimeError as error:
            raise ModelError(f"{file} cannot be run ({str(error).splitlines()[0]}); export the model again") from None
        self._ranks = {one.any_name: len(one.partial_shape) for one in self._graph.inputs}

    def logits(self, rows: PaddedRows) -> NDArray[np.float32]:
        found = self._graph(inputs_of(rows, self._ranks))
        return logits_from([found[i].copy() for i in range(len(found))])


class OpenVinoBfloat16Engine(OpenVinoEngine):
    """The same in bfloat16, on a processor that multiplies it natively.

    Raises:
        ConfigError: this one does not.
    """

    precision = "bf16"

    def __init__(self, loaded: LoadedModel, device: str) -> None:
        devices.require_bfloat16(devices.choose("auto", "cpu"), "openvino-bfloat16", "openvino")
        super().__init__(loaded, device)
