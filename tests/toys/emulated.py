"""answers.c as it is compiled for ARM, whose calls an emulator runs on a copy of the memory that
they read. What they write is copied back.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from litebert.kernels import loader
from litebert.kernels import network as kernels

COMPILER, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"
PROGRAM = Path(__file__).parents[1] / "kernels" / "call.c"
CONSTANTS = {"multiplies_narrow": 2, "multiplies_bytes": 3}


@cache
def compile_program(variant: str) -> Path:
    """The program of a variant of ARM's, which needs no library of that system."""
    folder = Path(tempfile.mkdtemp(prefix="litebert-arm-"))
    processor, _ = loader.VARIANTS[variant]
    flags = [*loader.FLAGS, loader.THREADS["answers"], f"-march={processor}", "-static"]
    command = [COMPILER, *flags, f"-I{loader.FOLDER}", PROGRAM, "-o", folder / "call", "-lm"]
    subprocess.run([*map(str, command), "-lpthread"], check=True)
    return folder / "call"


class Emulated:
    """What `kernels._library` gives, on an emulated processor."""

    def __init__(self, variant: str, processor: str, monkeypatch: pytest.MonkeyPatch) -> None:
        missing = [name for name in (COMPILER, EMULATOR) if shutil.which(name) is None]
        if missing:
            pytest.skip(f"needs {' and '.join(missing)}")
        self._command = [EMULATOR, "-cpu", processor, str(compile_program(variant))]
        self._arrays: dict[int, np.ndarray] = {}
        self._structs: dict[int, int] = {}
        hold = kernels._Kept._hold

        def note(kept: kernels._Kept, thing: Any) -> Any:
            self._note(thing)
            return hold(kept, thing)

        monkeypatch.setattr(kernels._Kept, "_hold", note)
        monkeypatch.setattr(kernels, "_library", lambda: self)
        monkeypatch.setattr(kernels, "_constant", lambda name: self._call(CONSTANTS[name], [], {}))

    def _note(self, thing: Any) -> None:
        """Where something lies that calls read."""
        if isinstance(thing, np.ndarray):
            self._arrays[thing.ctypes.data] = thing
            self._structs.pop(thing.ctypes.data, None)  # which lay there before
        else:
            self._structs[ctypes.addressof(thing)] = ctypes.sizeof(thing)

    def answer(self, address: int, threads: int) -> int:
        batch = kernels._Batch.from_address(address)
        net = kernels._Network.from_address(batch.net)
        steps = (kernels._Step * net.steps).from_address(net.head)
        width = steps[-1].map.outputs if net.steps else net.hidden
        for struct in (batch, net, steps):
            self._note(struct)
        sizes = {
            batch.ids: 4 * batch.tokens,
            batch.kinds: 4 * batch.tokens,
            batch.starts: 8 * (batch.rows + 1),
            batch.chosen: 8 * batch.count,
            batch.state: 4 * batch.tokens * net.hidden,
            batch.room: 4 * batch.space,
            batch.result: 4 * batch.count * width,
        }
        return self._call(0, [address, threads], sizes)

    def multiply_once(self, map_: int, *arguments: int) -> None:
        shape, (x, y, held, rows, dtype, _) = kernels._Map.from_address(map_), arguments
        self._note(shape)
        columns = shape.outputs + -shape.outputs % 32
        row = (4 * shape.inputs, 2 * shape.inputs, shape.inputs + 8)[dtype]
        sizes = {
            shape.panels: columns * row,
            shape.bias: 4 * columns,
            x: 4 * rows * shape.inputs,
            y: 4 * rows * shape.outputs,
            held: rows * (2 * shape.inputs + 8),
        }
        self._call(1, [map_, *arguments], sizes)

    def _call(self, function: int, arguments: list[int], sizes: Mapping[int | None, int]) -> int:
        """Copy all that the arguments lead to, run a function on it, and copy it back."""
        places: dict[int, int] = {}
        pointers: list[tuple[int, int]] = []
        copied = bytearray()

        def copy(address: int) -> bool:
            """Copy what lies there, if it is known, with all that it points to."""
            size = sizes.get(address, self._structs.get(address))
            if size is None and address in self._arrays:
                size = self._arrays[address].nbytes
            if not address or size is None:
                return False
            if address not in places:
                copied.extend(bytes(-len(copied) % 64))
                place = places[address] = len(copied)
                copied.extend(ctypes.string_at(address, size))
                if address in self._structs and address not in sizes:
                    for at in range(place, place + size, 8):
                        value = int.from_bytes(copied[at : at + 8], "little")
                        if copy(value):
                            pointers.append((at, places[value]))
            return True

        for number, value in enumerate(arguments):
            if copy(value):
                pointers.append((-1 - number, places[value]))
        about = [function, len(pointers), len(copied), *arguments, *[0] * (7 - len(arguments))]
        sent = np.array(about).tobytes() + np.array(pointers, np.int64).tobytes() + bytes(copied)
        done = subprocess.run(self._command, input=sent, stdout=subprocess.PIPE, check=True)
        status, memory = int.from_bytes(done.stdout[:8], "little", signed=True), done.stdout[8:]
        for address, place in places.items():
            if address in sizes:
                ctypes.memmove(address, memory[place : place + sizes[address]], sizes[address])
        if function == 0:  # what is refused
            end = places[arguments[0]] + ctypes.sizeof(kernels._Batch)
            longest = int.from_bytes(memory[end - 8 : end], "little", signed=True)
            kernels._Batch.from_address(arguments[0]).longest = longest
        return status
