"""The most float32 operations a second that one core can do: multiply-adds on registers alone.
Beside it, how near the multiplications of a layer come, and in which type.

    python benchmarks/peak.py [--shapes minilm albert modernbert] [--rounds 15] [--json FILE]

No program exceeds the peak, and a matrix multiplication that reaches 85% of it is a good one. It
needs a C compiler. Libraries are no bound: MKL takes the instructions of AVX2 on a processor of
AMD.

The multiplications are those of 32, 128 and 512 rows, on one thread: of PyTorch in float32, and of
litebert in each type that the processor for which `CC` compiles multiplies. Each speed is the best
of the rounds, in which all take turns, by the time of the processor.
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

SHAPES = {"minilm": (384, 1536), "albert": (768, 3072), "modernbert": (768, 1152)}
"""Hidden and intermediate size."""
ACCUMULATORS = 12
"""Independent sums: two units, each with a latency of four to five cycles, and 16 registers."""
ITERATIONS = 20_000_000
SOURCE = """
#ifdef __AVX512F__
typedef float vector __attribute__((vector_size(64)));
#else
typedef float vector __attribute__((vector_size(32)));
#endif
int lanes(void) {{ return sizeof(vector) / sizeof(float); }}
float multiply_add(long iterations, float start) {{
    vector x = start + (vector){{0}}, y = 1e-9f + (vector){{0}}, {declared};
    for (long k = 0; k < iterations; k++) {{ {body} }}
    vector total = {total};
    return total[0];
}}
"""


def measure_peak() -> float:
    """Operations a second of one core, a multiplication and an addition counted as two; the best
    of three."""
    names = [f"a{i}" for i in range(ACCUMULATORS)]
    source = SOURCE.format(
        declared=", ".join(f"{name} = x * {i + 1}.0f" for i, name in enumerate(names)),
        body=" ".join(f"{name} = {name} * x + y;" for name in names),
        total=" + ".join(names),
    )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "peak.c")
        file.write_text(source, "utf-8")
        command = [os.environ.get("CC", "cc"), "-O2", "-march=native", "-ffp-contract=fast"]
        subprocess.run(
            [*command, "-shared", "-fPIC", str(file), "-o", f"{folder}/peak.so"], check=True
        )
        library = ctypes.CDLL(f"{folder}/peak.so")
    library.multiply_add.argtypes = (ctypes.c_long, ctypes.c_float)
    library.multiply_add.restype = ctypes.c_float
    operations = float(2 * ACCUMULATORS * int(library.lanes()) * ITERATIONS)
    seconds = []
    for _ in range(3):
        start = time.process_time()
        library.multiply_add(ITERATIONS, 1.0000001)
        seconds.append(time.process_time() - start)
    return operations / min(seconds)


def measure_products(hidden: int, inner: int, rounds: int) -> dict[str, dict[str, float]]:
    """Operations a second of each kind of multiplication, by its sizes."""
    import torch

    from litebert.kernels import network

    speeds: dict[str, dict[str, float]] = {}
    for rows, (wide, out) in itertools.product(
        (32, 128, 512), ((hidden, hidden), (hidden, inner), (inner, hidden))
    ):
        x, weight = torch.randn(rows, wide), torch.randn(out, wide)
        sides: dict[str, Callable[[], Any]] = {
            "PyTorch float32": partial(torch.nn.functional.linear, x, weight)
        }
        for dtype in network.list_dtypes():
            sides[f"litebert {dtype}"] = network.make_product(
                x.numpy(), weight.numpy(), dtype, torch.get_num_threads()
            )
        operations = 2 * rows * wide * out
        calls = max(1, int(4e8 / operations))
        seconds = dict.fromkeys(sides, float("inf"))
        with torch.inference_mode():
            for _ in range(rounds):
                for name, compute in sides.items():
                    start = time.process_time()
                    for _ in range(calls):
                        compute()
                    seconds[name] = min(seconds[name], (time.process_time() - start) / calls)
        size = f"{rows} x {wide} x {out}"
        speeds[size] = {name: operations / seconds[name] for name in sides}
        print(
            f"{size:20}"
            + ", ".join(f"{name} {speed / 1e9:.0f} G" for name, speed in speeds[size].items()),
            flush=True,
        )
    return speeds


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shapes", nargs="*", choices=SHAPES, default=list(SHAPES)[:2])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path, help="write the results to a file too")
    arguments = parser.parse_args()
    peak = measure_peak()
    print(f"{peak / 1e9:.0f} * 10^9 operations a second of one core")
    import torch
    from results import write as write_results

    torch.set_num_threads(1)
    speeds = {name: measure_products(*SHAPES[name], arguments.rounds) for name in arguments.shapes}
    write_results(arguments.json, {"peak": peak, "multiplications": speeds})
    return 0


if __name__ == "__main__":
    sys.exit(main())
