"""The cells of `prepare.py --made`: ways to prepare made text, which have to write equal bytes.

A cell is one way over all the text, in a process of its own. It ends after some minutes, and the
next call of the benchmark continues it. What it took so far is in `cells/NAME.json`.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path

from made_text import write_text
from prepare import list_tree, prepare_by_datasets, read_resident

PARTS, KILLS = 4, 10
LIMIT = 1000.0
"""Megabytes that each way of litebert may hold, shared pages divided."""
TICK = os.sysconf("SC_CLK_TCK")


@dataclass
class Cell:
    """What a way took so far, over all sittings."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    resident_mb: float = 0.0
    """The most that was resident in the whole process tree, shared pages once per process."""
    proportional_mb: float = 0.0
    """The same, shared pages divided among the processes that map them."""
    sittings: int = 0
    kills: int = 0
    megabytes: float = 0.0
    digest: str = ""
    """Of the names and bytes of all files written, when the cell is done."""


# ----------------------------------------------------------- the ways, each in a process of its own


def prepare_by_process(text: Path, tokenizer: Path, out: Path, processes: int = 1) -> None:
    """Prepare by one process, or by one that reads and others that encode."""
    from litebert import prepare

    prepare([str(text)], out, tokenizer=tokenizer, processes=processes)


def prepare_by_two(text: Path, tokenizer: Path, out: Path) -> None:
    """Prepare by one process that reads and two that encode."""
    prepare_by_process(text, tokenizer, out, 2)


def prepare_by_parts(text: Path, tokenizer: Path, out: Path) -> None:
    """Prepare four parts one after the other, and merge them."""
    from litebert import merge, prepare_part

    for number in range(1, PARTS + 1):
        prepare_part(f"{number}/{PARTS}", [str(text)], out, tokenizer=tokenizer, processes=1)
    merge(out)


def _start_ray() -> None:
    import ray

    ray.init(num_cpus=2, include_dashboard=False, object_store_memory=80 << 20)


def wait_in_ray(text: Path, tokenizer: Path, out: Path) -> None:
    """Do nothing in two tasks of Ray, for the memory that Ray takes alone."""
    import ray

    _start_ray()

    def wait(seconds: float) -> None:
        time.sleep(seconds)

    task = ray.remote(num_cpus=1)(wait)
    ray.get([task.remote(5) for _ in range(2)])


def prepare_by_ray(text: Path, tokenizer: Path, out: Path) -> None:
    """Prepare four parts as tasks of Ray on two cores, and merge them."""
    import ray

    from litebert import merge, prepare_part

    _start_ray()
    task = ray.remote(num_cpus=1, max_retries=3)(prepare_part)
    parts = [f"{number}/{PARTS}" for number in range(1, PARTS + 1)]
    ray.get(
        [task.remote(part, [str(text)], out, tokenizer=tokenizer, processes=1) for part in parts]
    )
    ray.shutdown()  # its processes take memory that the merge does not need
    merge(out)


def tokenize_by_datatrove(text: Path, tokenizer: Path, out: Path) -> None:
    """Tokenize with datatrove's own block, which neither splits sentences nor drops duplicates."""
    from datatrove.executor import LocalPipelineExecutor
    from datatrove.pipeline.readers import JsonlReader
    from datatrove.pipeline.tokens import DocumentTokenizer

    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    writer = DocumentTokenizer(
        str(out / "tokens"),
        tokenizer_name_or_path=str(tokenizer / "tokenizer.json"),
        shuffle_documents=False,
    )
    reader = JsonlReader(str(text), doc_progress=False)
    LocalPipelineExecutor(
        [reader, writer], tasks=PARTS, workers=2, logging_dir=str(out / "logs")
    ).run()


def map_by_datasets(text: Path, tokenizer: Path, out: Path) -> None:
    """Encode with `datasets.map` in two processes."""
    prepare_by_datasets(text, tokenizer, out, 2)


WAYS: dict[str, Callable[[Path, Path, Path], object]] = {
    "one process": prepare_by_process,
    "two processes": prepare_by_two,
    "four parts": prepare_by_parts,
    "ray": prepare_by_ray,
    "ray without work": wait_in_ray,
    "killed ten times": prepare_by_two,
    "datasets.map": map_by_datasets,
    "datatrove tokens": tokenize_by_datatrove,
}
PEERS = ("ray without work", "datasets.map", "datatrove tokens")
NEEDS = {"ray": "ray", "ray without work": "ray", "datatrove tokens": "datatrove"}


# --------------------------------------------------------------------------------------- measuring


def measure_cells(
    folder: Path, sizes: tuple[int, int], file_megabytes: int, names: list[str], minutes: float
) -> dict[str, object]:
    """Continue the cells that are not done, and print all.

    Args:
        sizes: megabytes of text for litebert, and for the peers.
    """
    texts = {size: folder / f"text-{size}" for size in sizes}
    for size, text in texts.items():
        write_text(text, size, file_megabytes)
    tokenizer = _train_tokenizer(texts[sizes[0]], folder / "tokenizer")
    for name in names:
        library = NEEDS.get(name, "litebert")
        if find_spec(library) is None:
            print(f"{name}: skipped, for {library} is not installed")
            continue
        text = texts[sizes[name in PEERS]]
        _continue_cell(name, text, tokenizer, folder, minutes * 60)
    cells = {name: cell for name in WAYS if (cell := _read_cell(folder, name)).sittings}
    _print_cells(cells)
    digests = {cell.digest for name, cell in cells.items() if name not in PEERS}
    peaks = [cell.resident_mb for name, cell in cells.items() if name not in PEERS]
    return {
        "cells": {name: asdict(cell) for name, cell in cells.items()},
        "equal": len(digests) == 1 and "" not in digests,
        "within_memory": max(peaks, default=0) < LIMIT,
    }


def _train_tokenizer(text: Path, folder: Path) -> Path:
    from litebert import train_tokenizer

    if not folder.exists():
        with open(min(text.iterdir()), encoding="utf-8") as file:
            lines = file.readlines(3_000_000)
        texts = [json.loads(line)["text"] for line in lines]
        train_tokenizer(texts, kind="unigram", vocab_size=8192).save(folder)
    return folder


def _read_cell(folder: Path, name: str) -> Cell:
    path = folder / "cells" / f"{name}.json"
    return Cell(**json.loads(path.read_text())) if path.exists() else Cell()


def _write_cell(folder: Path, name: str, cell: Cell) -> None:
    path = folder / "cells" / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(asdict(cell), indent=1) + "\n")


def _continue_cell(name: str, text: Path, tokenizer: Path, folder: Path, seconds: float) -> None:
    """Work on a cell for some time. The peers begin again, for they do not continue."""
    cell, out, end = _read_cell(folder, name), folder / "out" / name, time.monotonic() + seconds
    if cell.digest:
        return
    if name in PEERS:
        cell = Cell()
        shutil.rmtree(out, ignore_errors=True)
    cell.megabytes = sum(path.stat().st_size for path in text.iterdir()) / 1e6
    draw = random.Random(f"{name} {cell.kills}")
    out.parent.mkdir(exist_ok=True)
    while not cell.digest and (rest := end - time.monotonic()) > 0:
        limit = rest
        if name.startswith("killed") and cell.kills < KILLS:
            whole = _read_cell(folder, "two processes").seconds or rest
            limit = min(rest, draw.uniform(1, max(2, 1.4 * whole / KILLS)))
        command = [sys.executable, __file__, name, str(text), str(tokenizer), str(out)]
        is_finished = _run_sitting(command, limit, cell)
        cell.kills += not is_finished and limit < rest
        if is_finished:
            cell.digest = _digest(out)
        _write_cell(folder, name, cell)
    if cell.digest:
        shutil.rmtree(out, ignore_errors=True)  # a way without work writes nothing
        shutil.rmtree(out.with_name(f"{out.name}.parts"), ignore_errors=True)


def _run_sitting(command: list[str], limit: float, cell: Cell) -> bool:
    """Run a way until it ends or its time is over, and add what it took; whether it ended."""
    start, cpu = time.monotonic(), dict[str, float]()
    process, is_finished = subprocess.Popen(command), False
    cell.sittings += 1
    while time.monotonic() < start + limit and not is_finished:
        is_finished = process.poll() is not None
        tree = list(list_tree(process.pid))
        cell.resident_mb = max(cell.resident_mb, sum(map(read_resident, tree)) / 1e6)
        cell.proportional_mb = max(cell.proportional_mb, sum(map(_read_proportional, tree)) / 1000)
        cpu |= dict(filter(None, map(_read_cpu, tree)))
        time.sleep(0.1)
    if not is_finished:
        for number in list_tree(process.pid):
            os.kill(number, signal.SIGKILL)
    if process.wait() and is_finished:
        sys.exit(f"{' '.join(command)} failed")
    cell.seconds += time.monotonic() - start
    cell.cpu_seconds += sum(cpu.values())
    return is_finished


def _read_proportional(process: int) -> int:
    """Return the kilobytes of a process, its share of shared pages included."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:  # it ended meanwhile
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)


def _read_cpu(process: int) -> tuple[str, float] | None:
    """Return a name of a process, and the processor seconds that it used so far."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # it ended meanwhile
        return None
    return f"{process} {fields[19]}", (int(fields[11]) + int(fields[12])) / TICK


def _digest(folder: Path) -> str:
    from litebert.base.storage import sha256_of

    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        digest.update(f"{path.relative_to(folder)}\0".encode())
        digest.update(sha256_of(path).encode())
    return digest.hexdigest()


def _print_cells(cells: dict[str, Cell]) -> None:
    heads = ("MB", "wall s", "CPU s", "MB/s", "MB/CPU s", "RSS MB", "PSS MB", "sittings", "kills")
    print(f"{'':17}" + "".join(f"{head:>9}" for head in heads) + "  digest")
    for name, cell in cells.items():
        values = (
            f"{cell.megabytes:.0f}",
            f"{cell.seconds:.1f}",
            f"{cell.cpu_seconds:.1f}",
            f"{cell.megabytes / cell.seconds:.2f}",
            f"{cell.megabytes / cell.cpu_seconds:.2f}",
            f"{cell.resident_mb:.0f}",
            f"{cell.proportional_mb:.0f}",
            f"{cell.sittings}",
            f"{cell.kills}",
        )
        state = cell.digest[:8] or "not done"
        print(f"{name:17}" + "".join(f"{value:>9}" for value in values) + f"  {state}")


if __name__ == "__main__":
    WAYS[sys.argv[1]](*map(Path, sys.argv[2:5]))
