"""ONNX Runtime sessions, which need no torch."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from litebert.errors import MissingExtraError
from litebert.machine import count_cores


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
        threads = _count_threads()
    else:
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])


def _count_threads() -> int:
    """Count the threads that torch would take; torch is asked only where it is loaded."""
    if (torch := sys.modules.get("torch")) is not None:
        return int(torch.get_num_threads())
    threads = os.environ.get("OMP_NUM_THREADS", "")
    return int(threads) if threads.isdigit() and int(threads) else count_cores()
