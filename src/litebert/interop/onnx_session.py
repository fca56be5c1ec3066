"""ONNX Runtime sessions, which need no torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from litebert.errors import MissingExtraError


def session(file: Path, threads: int | None = None) -> Any:
    """An ONNX Runtime session on the CPU, with as many threads as torch would take where that is not given.

    Raises:
        MissingExtraError: onnxruntime is not installed.
    """
    try:
        import onnxruntime
    except ImportError:
        raise MissingExtraError("onnxruntime", "onnx") from None
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors alone
    if threads is None:
        import torch

        threads = torch.get_num_threads()
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
