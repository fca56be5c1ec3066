"""`litebert doctor`: what a bug report needs to know about a machine and an installation.

Nothing here needs torch or any other library to work, because a broken one is what a person wants
to find.
"""

from __future__ import annotations

import importlib
import os
import platform
import re
import shutil
import sys
from collections import defaultdict
from dataclasses import dataclass
from importlib import metadata
from typing import Annotated, Any

import tyro

from litebert import cost, machine
from litebert.commands.console import Json, loading, parse, print_json, table
from litebert.errors import ConfigError
from litebert.registry import list_extensions, load_extension

LIBRARIES = (
    "torch",
    "numpy",
    "pyarrow",
    "tokenizers",
    "sentencepiece",
    "safetensors",
    "transformers",
)
"""Packages whose versions matter most; each is imported to see that it works."""
INSTRUCTIONS = {
    "avx2": "AVX2",
    "avx_vnni": "AVX-VNNI",
    "avx512f": "AVX-512",
    "avx512_vnni": "AVX-512 VNNI",
    "avx512_bf16": "AVX-512 bfloat16",
    "amx_tile": "AMX",
    "amx_bf16": "AMX bfloat16",
    "asimd": "NEON",
    "sve": "SVE",
    "bf16": "bfloat16",
}
"""Instructions that make a difference: the name in Linux, and the common name."""


@dataclass
class DoctorArguments:
    """Show what litebert runs on, for bug reports: versions, device, memory, disk, extras and
    extensions.
    """

    engines: Annotated[str | None, tyro.conf.arg(metavar="MODEL")] = None
    """Also measure how fast each engine computes this model on this machine."""
    device: str = "auto"
    """Device of --engines: auto, cpu, cuda, cuda:N, or mps on a Mac."""
    json: Json = False


def doctor(words: list[str]) -> int:
    """litebert doctor"""
    arguments = parse(DoctorArguments, words, "doctor")
    checks = examine()
    if arguments.engines is not None:
        checks["engines"] = _engines(arguments.engines, arguments.device)
    if arguments.json:
        print_json(checks)
        return 0
    rows = [("litebert", checks["litebert"]), ("python", checks["python"])]
    rows += [(name, version or "not installed") for name, version in checks["libraries"].items()]
    rows += [(f"{name} is broken", fault) for name, fault in checks["broken"].items()]
    rows += [
        ("system", checks["system"]),
        ("processor", f"{checks['processor']}, {checks['cores']} cores"),
        ("instructions", ", ".join(checks["instructions"]) or "unknown"),
        ("accelerators", ", ".join(checks["accelerators"]) or "none"),
        ("threads", str(checks["threads"] or "unknown")),
        ("CPU kernels", checks["kernels"] or "unknown"),
        ("multiplied types", ", ".join(checks["multiplied_types"]) or "none by the kernels"),
        ("free memory", cost.format_bytes(checks["free_memory"])),
        ("free disk", f"{cost.format_bytes(checks['free_disk'])} in {checks['folder']}"),
    ]
    rows += [
        (f"extra {name}", extra["install"] or "installed")
        for name, extra in checks["extras"].items()
    ]
    rows += [
        (f"extension {file}", fault or "works") for file, fault in checks["extensions"].items()
    ]
    table(("", "found"), rows)
    if arguments.engines is not None:
        table(("engine", "texts/s", "differs by at most", ""), _engine_rows(checks["engines"]))
    return 0


def examine() -> dict[str, Any]:
    """All of it, as `--json` prints it; sizes in bytes."""
    faults = {name: _fault(name) for name in LIBRARIES if _version(name)}
    torch = importlib.import_module("torch") if faults.get("torch", "absent") is None else None
    return {
        "litebert": _version("litebert") or "not installed",
        "python": f"{platform.python_version()} ({sys.executable})",
        "libraries": {name: _version(name) for name in LIBRARIES},
        "broken": {name: fault for name, fault in faults.items() if fault},
        "system": platform.platform(),
        "processor": machine.read_processor_name(),
        "cores": machine.count_cores(),
        "instructions": _instructions(),
        "accelerators": _accelerators(torch) if torch else [],
        "threads": torch.get_num_threads() if torch else None,
        "kernels": _kernels() if torch else None,
        "multiplied_types": _list_multiplied_types() if torch else [],
        "free_memory": machine.read_free_memory(),
        "folder": os.getcwd(),
        "free_disk": shutil.disk_usage(".").free,
        "extras": _extras(),
        "extensions": _extensions(),
    }


def _engines(folder: str, device: str) -> list[dict[str, Any]]:
    """The speed of each engine with a model."""
    with loading():
        from litebert.answer.engines.speed import measure_engines
        from litebert.answer.model import load

    return [vars(speed) for speed in measure_engines(load(folder, device=device))]


def _engine_rows(speeds: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """A table of them, the fastest first."""
    ordered = sorted(speeds, key=lambda speed: -(speed["texts_per_second"] or 0))
    return [
        (speed["engine"], "", "", speed["fault"])
        if speed["fault"]
        else (
            speed["engine"],
            f"{speed['texts_per_second']:,.1f}",
            f"{speed['difference']:.1g}",
            "",
        )
        for speed in ordered
    ]


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _fault(module: str) -> str | None:
    """Why a module cannot be imported; None where it can."""
    try:
        importlib.import_module(module)
    except Exception as error:  # a library that does not fit the machine fails in any way
        return f"{type(error).__name__}: {' '.join(str(error).split())}"
    return None


def _accelerators(torch: Any) -> list[str]:
    gpus = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
    apple = ["mps"] if torch.backends.mps.is_available() else []
    return [
        f"cuda:{i} {gpu.name}, {cost.format_bytes(gpu.total_memory)}" for i, gpu in enumerate(gpus)
    ] + apple


def _kernels() -> str:
    """Tell if the compiled kernels for training on a CPU are in use, and if not, why."""
    from litebert.model.cpu import loader

    return loader.describe()


def _list_multiplied_types() -> list[str]:
    """The types that the compiled kernels multiply when a model answers on this processor."""
    from litebert.model.cpu import packed

    return packed.list_matmul_dtypes()


def _instructions() -> list[str]:
    instructions = machine.read_instructions()
    return [name for flag, name in INSTRUCTIONS.items() if flag in instructions]


def _extras() -> dict[str, dict[str, Any]]:
    """Each extra: the packages of it that are missing, and the command that installs them."""
    packages: dict[str, list[str]] = defaultdict(list)
    for requirement in (metadata.requires("litebert") or ()) if _version("litebert") else ():
        extra = re.search(r"extra == ['\"]([\w-]+)['\"]", requirement)
        if extra and extra[1] != "dev":
            packages[extra[1]].append(re.split(r"[^\w.-]", requirement, maxsplit=1)[0])
    missing = {
        extra: [name for name in names if not _version(name)] for extra, names in packages.items()
    }
    return {
        extra: {"missing": names, "install": f"pip install 'litebert[{extra}]'" if names else None}
        for extra, names in missing.items()
    }


def _extensions() -> dict[str, str | None]:
    """The files that LITEBERT_EXTENSIONS names, and what is wrong with each."""
    faults: dict[str, str | None] = {}
    for file in list_extensions():
        try:
            load_extension(file)
            faults[file] = None
        except ConfigError as error:
            faults[file] = str(error)
    return faults
