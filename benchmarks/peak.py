"""The most float32 operations a second that one core can do: multiply-adds on registers alone.

    python benchmarks/peak.py

No program exceeds it, and a matrix multiplication that reaches 85 % of it is a good one. It needs a
C compiler. Libraries are no bound: MKL takes the instructions of AVX2 on a processor of AMD.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import tempfile
import time
from pathlib import Path

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


if __name__ == "__main__":
    print(f"{measure_peak() / 1e9:.0f} * 10^9 operations a second of one core")
