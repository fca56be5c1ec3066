"""The functions of kernels.c, compiled once for this processor where a C compiler is at hand.

The library is kept in the user's cache folder under a name made from the source, the flags and the
processor, so that a change of any of them compiles it again. OpenMP is not linked: its functions
are those of the library that torch has loaded, so both share one pool of threads. Without a
compiler, or with LITEBERT_KERNELS=off, `library` is None, and model/operations.py computes the same
with PyTorch.
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
from functools import cache
from pathlib import Path

from litebert.base.machine import read_processor_facts
from litebert.base.storage import cache_folder

log = logging.getLogger("litebert")

SOURCE = Path(__file__).with_name("kernels.c")
FLAGS: tuple[str, ...] = (
    "-O3",
    "-march=native",
    "-fopenmp",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fPIC",
    "-std=gnu11",
)
"""None of them lets the compiler assume that numbers are finite or reorder sums."""
if platform.machine() in ("x86_64", "AMD64"):
    FLAGS += ("-mprefer-vector-width=512",)  # where there are such vectors; compilers prefer 256
BLOCK = 64
"""Rows to a block, over which sums are taken together (kernels.c)."""
STRETCH = 16384
"""Elements of a tensor whose squares are summed together (kernels.c)."""
WIDEST = 16384
"""The longest row, in elements, that the functions hold at once (kernels.c)."""

_NUMBER, _POINTER, _REAL, _INTEGER = ctypes.c_long, ctypes.c_void_p, ctypes.c_float, ctypes.c_int
_KINDS = {"p": _POINTER, "n": _NUMBER, "f": _REAL, "i": _INTEGER, "l": ctypes.c_int64}
SIGNATURES = {
    "activate": "pppnniiii",
    "activate_backward": "pppppnniii",
    "add_norm": "pippipppp" + "ipnnfi",
    "add_norm_backward": "ppippppi" + "ppnni",
    "split_heads": "pppppnnnnii",
    "split_heads_backward": "ppppp" + "pppp" + "nnnnii",
    "softmax": "pppifnnnnii",
    "softmax_backward": "pppfnnii",
    "cross_entropy": "pppppnnlii",
    "cross_entropy_backward": "pppppnnlii",
    "moments": "ppppppnfffffi",
    "adapted": "pppnfi",
    "multiply": "pppnnnipi",
    "layer": "ppppppp" + "nnnnnnnn" + "iiiiiii",
}
"""The arguments of each function: p a pointer, n a count, f a float, i an int, l an int64."""


def library() -> ctypes.CDLL | None:
    """The compiled functions; None where they cannot be had."""
    return _load_library()[0]


def describe() -> str:
    """Say in a sentence for people that the functions are in use, or why not."""
    return _load_library()[1]


@cache
def _load_library() -> tuple[ctypes.CDLL | None, str]:
    if os.environ.get("LITEBERT_KERNELS", "").lower() in ("off", "0", "no"):
        return None, "not used: LITEBERT_KERNELS is off"
    if not sys.platform.startswith("linux"):
        return None, "not used: they are compiled on Linux only"
    import torch  # whose OpenMP library must be loaded before

    if "ATen parallel backend: OpenMP" not in torch.__config__.parallel_info():
        return None, "not used: this build of torch has no OpenMP threads"
    try:
        return _compile_library()
    except _Unavailable as reason:
        log.info(f"computing without compiled CPU kernels, which is slower: {reason}")
        return None, f"not used: {reason}"


class _Unavailable(Exception):
    """Why the functions cannot be compiled or loaded."""


def _compile_library() -> tuple[ctypes.CDLL, str]:
    file = cache_folder() / f"kernels-{_key()}.so"
    if file.exists():
        try:
            return _open(file), f"in use ({file})"
        except _Unavailable as damage:
            log.debug(f"{file} is compiled again: {damage}")
    compiler = next(filter(None, map(shutil.which, (os.environ.get("CC") or "cc", "gcc"))), None)
    if compiler is None:
        raise _Unavailable("there is no C compiler (install gcc)")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".tmp-", dir=file.parent) as folder:
            object_file, made = Path(folder, "kernels.o"), Path(folder, "kernels.so")
            for command in (
                (*FLAGS, "-c", SOURCE, "-o", object_file),
                ("-shared", object_file, "-o", made, "-lm"),
            ):
                done = subprocess.run(
                    [compiler, *map(str, command)], capture_output=True, text=True, timeout=120
                )
                if done.returncode:
                    first = next(iter(done.stderr.splitlines()), f"status {done.returncode}")
                    raise _Unavailable(f"{compiler} failed ({first})")
            content = made.read_bytes()
            made.write_bytes(
                content + hashlib.sha256(content).digest()
            )  # ELF allows bytes behind its own
            opened = _open(made)
            os.replace(
                made, file
            )  # other processes may do the same meanwhile, with the same result
            return opened, f"in use ({file})"
    except (OSError, subprocess.SubprocessError) as error:
        raise _Unavailable(f"they cannot be compiled into {file.parent} ({error})") from None


def _key() -> str:
    facts = read_processor_facts()
    kinds = [
        value
        for key in ("model name", "flags", "Features", "CPU part")
        for value in facts.get(key, ())
    ]
    text = "\n".join((" ".join(FLAGS), platform.machine(), *kinds))
    return hashlib.sha256(SOURCE.read_bytes() + text.encode()).hexdigest()[:20]


def _open(file: Path) -> ctypes.CDLL:
    """A library with its checksum behind it; one that was cut short would end the process."""
    try:
        content = file.read_bytes()
        if hashlib.sha256(content[:-32]).digest() != content[-32:]:
            raise _Unavailable(f"{file.name} is damaged")
        opened = ctypes.CDLL(str(file))
        for name, arguments in SIGNATURES.items():
            function = getattr(opened, name)
            function.restype, function.argtypes = None, [_KINDS[kind] for kind in arguments]
    except (OSError, AttributeError) as error:
        raise _Unavailable(f"{file.name} cannot be loaded ({error})") from None
    return opened
