"""The compiled functions of training.c and answers.c.

A wheel has them for several processors. A source tree compiles them once, where a C compiler is at
hand, and keeps the library in the user's cache folder. LITEBERT_KERNELS=off does without.
training.c takes the OpenMP that torch has loaded, so that both share one pool of threads; answers.c
has its own.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Literal

from litebert.base.machine import read_instructions, read_processor_facts
from litebert.base.storage import cache_folder

log = logging.getLogger("litebert")

Source = Literal["training", "answers"]
FOLDER = Path(__file__).parent
FLAGS: tuple[str, ...] = ("-O3", "-fno-math-errno", "-fno-trapping-math", "-fPIC", "-std=gnu11")
"""None of them lets the compiler assume that numbers are finite or reorder sums."""
PROCESSOR = "native"
"""What a source tree is compiled for."""
THREADS = {"training": "-fopenmp", "answers": "-fopenmp-simd"}
X86 = platform.machine() in ("x86_64", "AMD64")
WIDE = "-mprefer-vector-width=512"
"""Where there are such vectors; compilers prefer 256."""
BLOCK = 64
"""Rows to a block, over which sums are taken together (training.c)."""
STRETCH = 16384
"""Elements of a tensor that are computed together (training.c)."""
WIDEST = 16384
"""The longest row, in elements, that the functions of training.c hold at once."""

VARIANTS: dict[str, tuple[str, frozenset[str]]] = {
    "x86_64-vnni": (
        "sapphirerapids",
        frozenset(
            [
                "avx512f",
                "avx512bw",
                "avx512dq",
                "avx512vl",
                "avx512_vnni",
                "avx512_bf16",
                "bmi2",
                "fma",
                "f16c",
            ]
        ),
    ),
    "x86_64-avx512": (
        "x86-64-v4",
        frozenset(["avx512f", "avx512bw", "avx512dq", "avx512vl", "bmi2", "fma"]),
    ),
    "x86_64-avx2": ("x86-64-v3", frozenset(["avx2", "bmi2", "fma"])),
    "x86_64": ("x86-64", frozenset()),
    "aarch64-dotprod": ("armv8.2-a+dotprod", frozenset({"asimddp"})),
    "aarch64": ("armv8-a", frozenset()),
}
"""What a wheel is compiled for: the name of a processor for the compiler, and the instructions that
Linux must report, the best one first."""

_NUMBER, _POINTER, _REAL, _INTEGER = ctypes.c_long, ctypes.c_void_p, ctypes.c_float, ctypes.c_int
_KINDS = {"p": _POINTER, "n": _NUMBER, "f": _REAL, "i": _INTEGER, "l": ctypes.c_int64}
SIGNATURES: dict[Source, dict[str, str]] = {
    "training": {
        "activate": "pppnniiii",
        "activate_backward": "pppppnniii",
        "add_norm": "pip" + "llf" + "pipppp" + "ipnnfi",
        "add_norm_backward": "ppipp" + "llf" + "ppi" + "ppnni",
        "split_heads": "pppppnnnnii",
        "split_heads_backward": "ppppp" + "pppp" + "nnnnii",
        "drop": "ppllfnii",
        "softmax": "pppifnnnnii",
        "softmax_backward": "pppfnnii",
        "cross_entropy": "pppppnnlii",
        "cross_entropy_backward": "pppppnnlii",
        "moments": "ppppppnffffffffi",
        "moments_of_rows": "ppnpppnnffffffffi",
        "adapted": "pppnfi",
    },
    "answers": {"answer": "pn", "multiply_once": "ppppnnn"},
}
"""The arguments of each function: p a pointer, n a count, f a float, i an int, l an int64."""


def library(source: Source = "training") -> ctypes.CDLL | None:
    """The compiled functions; None where they cannot be had."""
    return _load_library(source)[0]


def describe(source: Source = "training") -> str:
    """Say in a sentence for people that the functions are in use, or why not."""
    return _load_library(source)[1]


@cache
def _load_library(source: Source) -> tuple[ctypes.CDLL | None, str]:
    if os.environ.get("LITEBERT_KERNELS", "").lower() in ("off", "0", "no"):
        return None, "not used: LITEBERT_KERNELS is off"
    if sys.platform == "win32":
        return None, "not used: they are compiled on Linux and macOS only"
    if source == "training":
        if not sys.platform.startswith("linux"):
            return None, "not used: they are compiled on Linux only"
        import torch  # whose OpenMP library must be loaded before

        if "ATen parallel backend: OpenMP" not in torch.__config__.parallel_info():
            return None, "not used: this build of torch has no OpenMP threads"
    try:
        file = find_compiled(source)
        if file is not None:
            return _open(source, file), f"in use ({file.name})"
        return _compile_library(source)
    except Unavailable as reason:
        log.info(f"computing without compiled CPU kernels, which is slower: {reason}")
        return None, f"not used: {reason}"


class Unavailable(Exception):
    """Why the functions cannot be compiled or loaded."""


def find_compiled(source: Source) -> Path | None:
    """The library of a wheel for this processor; None in a source tree."""
    instructions = read_instructions()
    for name, (_, needed) in VARIANTS.items():
        machine = name.partition("-")[0]
        file = FOLDER / f"{source}-{name}.so"
        if platform.machine() == machine and needed <= instructions and file.exists():
            return file
    return None


def compile_source(source: Source, compiler: Sequence[str], processor: str, made: Path) -> None:
    """Compile a library, for a processor of `-march`, with its checksum behind it."""
    # Vectors of 512 bits are wanted where they exist; compilers for other machines refuse the flag.
    wide = (WIDE,) if X86 and not processor.startswith("arm") else ()
    object_file = made.with_suffix(".o")
    # Not every clang for ARM knows -march=native.
    named = "-mcpu" if processor == "native" and not X86 else "-march"
    flags = (f"{named}={processor}", *wide, *FLAGS, THREADS[source])
    for command in (
        (*flags, "-c", FOLDER / f"{source}.c", "-o", object_file),
        ("-shared", object_file, "-o", made, "-lm", "-lpthread"),
    ):
        done = subprocess.run(
            [*compiler, *map(str, command)], capture_output=True, text=True, timeout=120
        )
        if done.returncode:
            first = next(iter(done.stderr.splitlines()), f"status {done.returncode}")
            raise Unavailable(f"{compiler[0]} failed ({first})")
    object_file.unlink()
    content = made.read_bytes()
    # ELF and Mach-O allow bytes behind their own.
    made.write_bytes(content + hashlib.sha256(content).digest())


def _compile_library(source: Source) -> tuple[ctypes.CDLL, str]:
    file = cache_folder() / f"{source}-{_key(source)}.so"
    if file.exists():
        try:
            return _open(source, file), f"in use ({file})"
        except Unavailable as damage:
            log.debug(f"{file} is compiled again: {damage}")
    compiler = next(filter(None, map(shutil.which, (os.environ.get("CC") or "cc", "gcc"))), None)
    if compiler is None:
        raise Unavailable("there is no C compiler (install gcc)")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".tmp-", dir=file.parent) as folder:
            made = Path(folder, "made.so")
            compile_source(source, [compiler], PROCESSOR, made)
            opened = _open(source, made)
            # Other processes may do the same meanwhile, with the same result.
            os.replace(made, file)
            return opened, f"in use ({file})"
    except (OSError, subprocess.SubprocessError) as error:
        raise Unavailable(f"they cannot be compiled into {file.parent} ({error})") from None


def _key(source: Source) -> str:
    facts = read_processor_facts()
    kinds = [
        value
        for key in ("model name", "flags", "Features", "CPU part")
        for value in facts.get(key, ())
    ]
    digest = hashlib.sha256(
        "\n".join((*FLAGS, WIDE, THREADS[source], PROCESSOR, platform.machine(), *kinds)).encode()
    )
    for name in (f"{source}.c", "functions.h"):
        digest.update((FOLDER / name).read_bytes())
    return digest.hexdigest()[:20]


def _open(source: Source, file: Path) -> ctypes.CDLL:
    """A library with its checksum behind it; one that was cut short would end the process."""
    try:
        content = file.read_bytes()
        if hashlib.sha256(content[:-32]).digest() != content[-32:]:
            raise Unavailable(f"{file.name} is damaged")
        opened = ctypes.CDLL(str(file))
        for name, arguments in SIGNATURES[source].items():
            function = getattr(opened, name)
            function.argtypes = [_KINDS[kind] for kind in arguments]
            function.restype = _NUMBER if name == "answer" else None
    except (OSError, AttributeError) as error:
        raise Unavailable(f"{file.name} cannot be loaded ({error})") from None
    return opened
