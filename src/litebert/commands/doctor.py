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
from typing import Annotated, Any, ClassVar

from litebert.base import machine
from litebert.base.errors import ConfigError
from litebert.base.registry import list_extensions, load_extension
from litebert.commands import console
from litebert.commands.console import Json
from litebert.commands.options import Arg
from litebert.config import cost
from litebert.kernels import loader
from litebert.kernels.network import list_dtypes

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
    "asimddp": "NEON dot products",
    "sve": "SVE",
    "bf16": "bfloat16",
}
"""Instructions that make a difference: the name in Linux, and the common name."""


@dataclass
class DoctorArguments:
    """Show what litebert runs on, for bug reports: versions, device, memory, extras, extensions."""

    examples: ClassVar[tuple[str, ...]] = (
        "litebert doctor",
        "litebert doctor --engines classifier",
    )

    engines: Annotated[str | None, Arg("MODEL")] = None
    """Also measure how fast each engine computes this model."""
    device: str = "auto"
    """Device of --engines, as in litebert predict."""
    json: Json = False


def doctor(words: list[str]) -> int:
    arguments = console.parse(DoctorArguments, words, "doctor")
    checks = examine()
    if arguments.engines is not None:
        with console.loading():
            from litebert.answer.engines.speed import measure_engines
            from litebert.answer.model import load

        model = load(arguments.engines, device=arguments.device)
        checks["engines"] = [vars(speed) for speed in measure_engines(model)]
    if arguments.json:
        console.print_json(checks)
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
        ("kernels of training", checks["kernels"] or "unknown"),
        ("kernels of answers", checks["answers"]),
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
    console.table(("", "found"), rows)
    if arguments.engines is not None:
        fastest_first = sorted(checks["engines"], key=lambda each: -(each["texts_per_second"] or 0))
        speeds = [
            (
                each["engine"],
                each["dtype"],
                "" if each["fault"] else f"{each['texts_per_second']:,.1f}",
                "" if each["fault"] else f"{each['difference']:.1g}",
                each["fault"] or "",
            )
            for each in fastest_first
        ]
        console.table(("engine", "dtype", "texts/s", "differs by at most", ""), speeds)
    return 0


def examine() -> dict[str, Any]:
    """All of it, as `--json` prints it; sizes in bytes."""
    faults = {name: _fault(name) for name in LIBRARIES if _version(name)}
    torch = importlib.import_module("torch") if faults.get("torch", "absent") is None else None
    instructions = machine.read_instructions()
    return {
        "litebert": _version("litebert") or "not installed",
        "python": f"{platform.python_version()} ({sys.executable})",
        "libraries": {name: _version(name) for name in LIBRARIES},
        "broken": {name: fault for name, fault in faults.items() if fault},
        "system": platform.platform(),
        "processor": machine.read_processor_name(),
        "cores": machine.count_cores(),
        "instructions": [name for flag, name in INSTRUCTIONS.items() if flag in instructions],
        "accelerators": _accelerators(torch) if torch else [],
        "threads": torch.get_num_threads() if torch else None,
        "kernels": loader.describe("training") if torch else None,
        "answers": loader.describe("answers"),
        "multiplied_types": list_dtypes(),
        "free_memory": machine.read_free_memory(),
        "folder": os.getcwd(),
        "free_disk": shutil.disk_usage(".").free,
        "extras": _extras(),
        "extensions": _extensions(),
    }


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
    faults: dict[str, str | None] = {}
    for file in list_extensions():
        try:
            load_extension(file)
            faults[file] = None
        except ConfigError as error:
            faults[file] = str(error)
    return faults
