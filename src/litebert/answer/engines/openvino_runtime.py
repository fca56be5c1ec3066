"""The runtimes of the engines `openvino` and `openvino-bfloat16`: OpenVINO computes a graph."""

from __future__ import annotations

import sys
from functools import cache, cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from litebert.answer.engines.graphs import (
    check_device,
    graph_of,
    inputs_of,
    logits_from,
    require_numbers,
    unreadable,
)
from litebert.answer.engines.runtime import Capabilities, Runtime
from litebert.base.errors import MissingExtraError
from litebert.finetuning.rows import PaddedRows
from litebert.interop.loaded import LoadedModel
from litebert.interop.onnx.session import count_threads


def _openvino() -> Any:
    """The library without its telemetry, which writes a client id into the user's home as soon as
    it is imported.
    """
    name = "openvino_telemetry"
    hidden = name not in sys.modules
    if hidden:
        sys.modules[name] = None  # type: ignore[assignment]  # so that it cannot be imported
    try:
        import openvino
    finally:
        if hidden:
            del sys.modules[name]
    return openvino


@cache
def _core() -> Any:
    """The one of this process. On AVX-512 each gives the thread an alternate stack for signals, and
    the end of one may leave the thread with that of another which is gone (2026.4): the next Ctrl-C
    would then end it by SIGSEGV."""
    return _openvino().Core()


class OpenVinoRuntime(Runtime):
    """A compiled graph on the CPU, with as many threads as torch would take."""

    capabilities = Capabilities(tokens=1024)
    precision = "f32"

    def __init__(self, loaded: LoadedModel, device: str) -> None:
        self._require(device)
        self._file = graph_of(loaded)
        self._ranks = {source.any_name: len(source.partial_shape) for source in self._graph.inputs}
        self.renew_in_forks("_graph")

    @classmethod
    def _require(cls, device: str) -> None:
        try:
            _openvino()
        except ImportError:
            raise MissingExtraError("openvino", "openvino") from None
        check_device("openvino", device)

    @cached_property
    def _graph(self) -> Any:
        settings = {
            "INFERENCE_NUM_THREADS": count_threads(),
            "INFERENCE_PRECISION_HINT": self.precision,
            "PERFORMANCE_HINT": "LATENCY",
        }
        try:
            return _core().compile_model(str(self._file), "CPU", settings)
        except RuntimeError as error:
            raise unreadable(self._file, error) from None

    def logits(self, rows: PaddedRows) -> NDArray[np.float32]:
        result = self._graph(inputs_of(rows, self._ranks))
        outputs = [result[i].copy() for i in range(len(result))]
        require_numbers(outputs, self._file)
        return logits_from(outputs)


class OpenVinoBfloat16Runtime(OpenVinoRuntime):
    """The same in bfloat16, on a processor that multiplies it natively."""

    capabilities = Capabilities(tokens=1024, reference="openvino")
    precision = "bf16"

    @classmethod
    def _require(cls, device: str) -> None:
        from litebert.train import device as devices  # which needs torch

        devices.require_bfloat16(devices.choose("auto", "cpu"), "openvino-bfloat16", "openvino")
        super()._require(device)
