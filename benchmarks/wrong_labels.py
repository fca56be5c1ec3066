"""Planted wrong labels: how many of the rows that `finetune --mislabeled` lists first are wrong.

    python benchmarks/wrong_labels.py GLUE [--rows 2000 8000 20000] [--share 0.05]

GLUE is the folder that holds SST-2. Of the first rows of its training file, a share gets the other
label. The table has the precision of the rows that are listed first: a quarter as many as are
wrong, half as many, and as many. A random order would have the share.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

from litebert import open_task
from litebert.judge.reliability import rank_mislabeled


def measure(glue: Path, rows: int, share: float) -> str:
    """Plant wrong labels, rank the rows, and return a line of the table."""
    files = open_task("sst2", str(glue))
    examples = files.read("train")[:rows]
    count = int(share * rows)
    wrong = set(np.random.default_rng(0).choice(rows, count, replace=False).tolist())
    noisy = [
        example._replace(label=1 - example.label) if place in wrong else example
        for place, example in enumerate(examples)
    ]
    began = time.monotonic()
    suspects = rank_mislabeled(files.task, noisy)
    seconds = time.monotonic() - began
    shares = [
        f"{np.mean([suspect.place in wrong for suspect in suspects[:most]]):.2f}"
        for most in (count // 4, count // 2, count)
    ]
    return f"| {rows:,} | {count:,} | {' | '.join(shares)} | {seconds:.0f} |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("glue", type=Path)
    parser.add_argument("--rows", type=int, nargs="+", default=[2000, 8000, 20000])
    parser.add_argument("--share", type=float, default=0.05)
    options = parser.parse_args()
    print("| rows | wrong labels | first quarter | first half | as many | seconds |")
    print("|---|---|---|---|---|---|")
    for rows in options.rows:
        print(measure(options.glue, rows, options.share), flush=True)


if __name__ == "__main__":
    main()
