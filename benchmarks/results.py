"""The JSON file that every benchmark writes with --json: what it measured, where, with what, and
how long it took.
"""

from __future__ import annotations

import platform
import shlex
import sys
import time
from collections.abc import Mapping
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from litebert.base.machine import read_instructions
from litebert.base.storage import write_json
from litebert.train import device as devices

_START = time.monotonic()
PACKAGES = (
    "litebert",
    "torch",
    "numpy",
    "transformers",
    "tokenizers",
    "datasets",
    "onnxruntime",
    "openvino",
    "peft",
)
"""Those whose versions are recorded, where they are installed."""


def machine() -> str:
    """The processor, its cores and its instruction set."""
    instructions = read_instructions()
    extra = [
        name
        for name in ("avx512_bf16", "amx_bf16", "amx_int8", "avx512_vnni")
        if name in instructions
    ]
    kinds = ", ".join([torch.backends.cpu.get_cpu_capability(), *extra])
    return f"{devices.choose('float32', 'cpu').describe()}{_family()}, instructions {kinds}"


def _family() -> str:
    """The family of a processor, where Linux says it: an AMD EPYC of family 26 is a Zen 5."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return ""
    values = [line.split(":")[1].strip() for line in lines if line.startswith("cpu family")]
    return f", processor family {values[0]}" if values else ""


def versions() -> dict[str, str]:
    """Versions of Python and of the installed packages that take part, by name."""
    installed = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            installed[package] = version(package)
        except PackageNotFoundError:
            continue
    return installed


def write(file: Path | None, results: Mapping[str, Any]) -> None:
    """Write the results of the running benchmark with its name, command, date, seconds, machine and
    versions.

    Args:
        file: where to; nothing is written if it is None.
        results: what was measured; `skipped` with a reason where nothing could be.
    """
    if file is None:
        return
    script = Path(sys.argv[0])
    file.parent.mkdir(parents=True, exist_ok=True)
    write_json(
        file,
        {
            "benchmark": script.parent.name if script.stem == "__main__" else script.stem,
            "command": shlex.join(["python", *sys.argv]),
            "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "seconds": round(time.monotonic() - _START, 1),
            "machine": machine(),
            "threads": torch.get_num_threads(),
            "versions": versions(),
            "results": results,
        },
    )
