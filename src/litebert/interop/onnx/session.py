"""ONNX Runtime sessions, which need no torch."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from litebert.base.errors import MissingExtraError
from litebert.base.machine import count_threads

SPIN = 50
"""Microseconds for which a thread of a service waits for work before it sleeps. The pauses between
the parts of a pass are shorter."""


def session(file: Path, threads: int | None = None) -> Any:
    """An ONNX Runtime session on the CPU, with as many threads as torch would take where that is
    not given.

    A process that is given its threads is a service, which shares the cores with others. By default
    a thread without work waits in a loop, which took 8.6 instead of 5.4 ms of the processor for a
    text (MiniLM's shape, AVX-512, two threads, other programs beside). A thread that sleeps at once
    was woken 9 to 34 times for a text. So it waits for `SPIN` microseconds: then it was woken 3
    times, and a text took 5.6 ms of the processor.
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
        threads = count_threads()
    else:
        bounds = _bounds_spinning(onnxruntime.__version__)
        name, value = ("spin_duration_us", str(SPIN)) if bounds else ("allow_spinning", "0")
        options.add_session_config_entry(f"session.intra_op.{name}", value)
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])


def _bounds_spinning(version: str) -> bool:
    """Return True if this version of ONNX Runtime knows `spin_duration_us`; others ignore it."""
    numbers = re.match(r"(\d+)\.(\d+)", version)
    return numbers is not None and tuple(map(int, numbers.groups())) >= (1, 26)
