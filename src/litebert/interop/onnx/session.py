"""ONNX Runtime sessions, which need no torch."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from litebert.errors import MissingExtraError


def session(file: Path, threads: int | None = None) -> Any:
    """An ONNX Runtime session on the CPU, with as many threads as torch would take where that is
    not given.

    A process that is given its threads is a service, which shares the cores with others. Threads
    without work then sleep: by default they wait in a loop, which took 23 instead of 14 ms of the
    processor for a text (MiniLM's shape, AVX2, two threads, other programs beside).

    Raises:
        MissingExtraError: onnxruntime is not installed.
    """
    os.environ.setdefault(
        "ORT_DISABLE_TELEMETRY", "1"
    )  # which 1.32 has on Linux too; read when it is imported
    try:
        import onnxruntime
    except ImportError:
        raise MissingExtraError("onnxruntime", "onnx") from None
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors alone
    if threads is None:
        import torch

        threads = torch.get_num_threads()
    else:
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
