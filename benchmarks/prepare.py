"""Text to token ids on disk: `litebert prepare` beside `datasets.map(batched=True)`; the law is
four times as fast.

    python benchmarks/prepare.py [TEXT] [--tokenizer FOLDER] [--json FILE]
    python benchmarks/prepare.py [TEXT] --cleaning

TEXT is a text file or a folder of them (.gz too); without it python-docs is written to a temporary
file once. Both sides read the same files, unpacked beforehand, with the same sentence splitter, the
same tokenizer (`datasets` through the fast tokenizer that `AutoTokenizer` opens) and the same
number of processes, and write ids grouped by sentence and document (`datasets` to the Arrow files
of its cache; saving them once more is not asked of it). They take turns, each in a fresh process.
The clock starts after the imports of both and stops when the ids are on disk; starting worker
processes counts. Memory is what is resident in the whole process tree, sampled every 20 ms, shared
pages counted once per process; it needs Linux.

    python benchmarks/prepare.py --made 5000 --folder FOLDER [--peer-made 500] [--cells NAME ...]

Other than that it makes text, in files of JSON Lines, and prepares it by one process, two, four
parts that are merged, four parts as tasks of Ray, and two processes that are killed at ten random
instants. All have to write the same bytes, each with less than 1,000 MB resident in all its
processes. `datasets.map` and datatrove's own tokenizer encode --peer-made megabytes. Each cell
works for at most --minutes, and the same command continues what is not done. On a busy machine,
compare processor seconds.

`--cleaning` measures what each way to clean text costs beside `litebert prepare` without it: the
processor time of all processes, each run in a fresh one, in turns. Ten lines are a document there.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

LAW = 4.0


def main() -> int:
    """Interleave both, print the medians, the ratio and the memory; the exit status says whether
    the law holds.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("text", nargs="?", type=Path)
    parser.add_argument(
        "--tokenizer", type=Path, help="a folder that litebert saved; default: trained on the text"
    )
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--files", type=int, help="only the first so many files")
    parser.add_argument("--json", type=Path, help="write the results to a file too")
    parser.add_argument("--made", type=int, help="megabytes of made text, instead of TEXT")
    parser.add_argument("--peer-made", type=int, default=500, help="those for the other programs")
    parser.add_argument("--file-made", type=int, default=50, help="megabytes of a file")
    parser.add_argument("--folder", type=Path, default=Path("made"), help="for --made; it stays")
    parser.add_argument("--cells", nargs="+", metavar="NAME", help="all by default")
    parser.add_argument("--minutes", type=float, default=20, help="the longest time for a cell")
    parser.add_argument("--cleaning", action="store_true", help="what filters and the like cost")
    parser.add_argument("--side", choices=[*SIDES, *CLEANING], help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.side in CLEANING:
        print(_clean(arguments.text, arguments.tokenizer, arguments.out, arguments.side))
        return 0
    if arguments.side:
        print(
            SIDES[arguments.side](
                arguments.text, arguments.tokenizer, arguments.out, arguments.processes
            )
        )
        return 0
    if arguments.made:
        return _measure_made(arguments)
    with tempfile.TemporaryDirectory() as held:
        folder = Path(held)
        lines = 10 if arguments.cleaning else 0
        text = _text(arguments.text, folder / "text", arguments.files, lines)
        tokenizer = arguments.tokenizer or _tokenizer(text, folder / "tokenizer")
        if arguments.cleaning:
            _measure_cleaning(text, tokenizer, folder, arguments.repeats)
            return 0
        result = _measure(text, tokenizer, folder, arguments.processes, arguments.repeats)
    from results import (
        write as write_results,
    )  # which loads torch, so not in the processes that are measured

    write_results(arguments.json, result)
    return int(result["ratio"] < LAW)


def _measure_made(arguments: argparse.Namespace) -> int:
    """Return 0 if all that is done wrote the same bytes, within the memory."""
    from prepare_cells import WAYS, measure_cells

    sizes = arguments.made, min(arguments.made, arguments.peer_made)
    names = arguments.cells or list(WAYS)
    result = measure_cells(arguments.folder, sizes, arguments.file_made, names, arguments.minutes)
    from results import write as write_results

    write_results(arguments.json, result)
    return int(not (result["equal"] and result["within_memory"]))


def _text(source: Path | None, folder: Path, files: int | None, lines: int) -> Path:
    """Plain text files in `folder`, with what all sides shall read.

    `lines` are the lines of a document; 0 for documents as they are.
    """
    from litebert.text.files import expand
    from litebert.text.sources import read_documents

    folder.mkdir()
    for number, name in enumerate(expand([str(source or "python-docs")])[:files]):
        # One document a paragraph group, as both sides then find it: `datasets` splits at blank
        # lines too.
        with open(folder / f"{number:04d}.txt", "w", encoding="utf-8") as file:
            for document in read_documents([name]):
                every = document.text.split("\n")
                for first in range(0, len(every), lines or len(every)):
                    piece = every[first : first + (lines or len(every))]
                    file.write("\n".join(piece) + "\n\n")
    return folder


def _tokenizer(text: Path, folder: Path) -> Path:
    from litebert import train_tokenizer
    from litebert.text.sources import read_documents

    texts = (document.text for document in read_documents([str(text)]))
    train_tokenizer(texts, kind="unigram", vocab_size=8192).save(folder)
    return folder


# ------------------------------------------------------ the two sides, each in a process of its own


def _litebert(text: Path, tokenizer: Path, out: Path, processes: int) -> float:
    import pyarrow.ipc  # noqa: F401 - its imports are not the work either

    from litebert.data.prepare import prepare

    start = time.perf_counter()
    prepare([str(text)], out, tokenizer=tokenizer, processes=processes)
    return time.perf_counter() - start


def prepare_by_datasets(text: Path, tokenizer: Path, out: Path, processes: int) -> float:
    os.environ.update(
        HF_HUB_OFFLINE="1", HF_DATASETS_CACHE=str(out / "cache"), TOKENIZERS_PARALLELISM="false"
    )
    import datasets
    import sentencex
    from transformers import AutoTokenizer

    datasets.disable_progress_bars()
    start = time.perf_counter()
    pieces = AutoTokenizer.from_pretrained(tokenizer)

    def encode(batch: dict[str, list[str]]) -> dict[str, list[list[list[int]]]]:
        by_document = [
            [
                stripped
                for line in document.split("\n")
                for sentence in sentencex.segment("en", line)
                if (stripped := sentence.strip())
            ]
            for document in batch["text"]
        ]
        flat = [sentence for sentences in by_document for sentence in sentences]
        ids = iter(
            pieces(
                flat,
                add_special_tokens=False,
                return_attention_mask=False,
                return_token_type_ids=False,
            ).input_ids
        )
        return {"sentences": [[next(ids) for _ in sentences] for sentences in by_document]}

    files = [str(path) for path in sorted(text.iterdir())]
    if files[0].endswith(".jsonl"):
        data = datasets.load_dataset("json", data_files=files, split="train")
    else:
        data = datasets.load_dataset("text", data_files=files, sample_by="paragraph", split="train")
    data.map(
        encode, batched=True, num_proc=processes, remove_columns=["text"]
    )  # writes Arrow files to the cache
    return time.perf_counter() - start


CLEANING: dict[str, dict[str, Any]] = {
    "nothing": {},
    "filters": {"filters": ["gopher", "c4", "fineweb"]},
    "near-duplicates": {"near_duplicates": 0.8},
    "check against held-out": {"check_against": ["heldout"]},
    "all three": {
        "filters": ["gopher", "c4", "fineweb"],
        "near_duplicates": 0.8,
        "check_against": ["heldout"],
    },
    "languages": {"keep_languages": ["en"]},
}


def _clean(text: Path, tokenizer: Path, out: Path, side: str) -> float:
    """Seconds of processor time, of this process and its workers."""
    import pyarrow.ipc  # noqa: F401 - its imports are not the work

    from litebert.data.prepare import PrepareConfig, prepare

    start = sum(os.times()[:4])
    shards = prepare(
        [str(text)], out, tokenizer=tokenizer, processes=1, config=PrepareConfig(**CLEANING[side])
    )
    print(f"{side}: {shards.index['documents']['kept']:,} documents stay")
    return sum(os.times()[:4]) - start


def _measure_cleaning(text: Path, tokenizer: Path, folder: Path, repeats: int) -> None:
    """Print the processor time of each way to clean, and its ratio to none."""
    seconds: dict[str, list[float]] = {side: [] for side in CLEANING}
    for repeat in range(repeats):
        for number, side in enumerate(CLEANING):
            options = ["--side", side, "--tokenizer", str(tokenizer)]
            out = ["--out", str(folder / f"clean-{number}-{repeat}")]
            seconds[side].append(_run([sys.executable, __file__, str(text), *options, *out])[0])
    megabytes = sum(path.stat().st_size for path in text.iterdir()) / 1e6
    print(f"{megabytes:.1f} MB of text, processor time, median of {repeats}")
    for side, times in seconds.items():
        ratios = [time / none for time, none in zip(times, seconds["nothing"], strict=True)]
        print(
            f"{side:23} {statistics.median(times):7.2f} s, {statistics.median(ratios):5.2f} times"
        )


SIDES = {"litebert": _litebert, "datasets": prepare_by_datasets}


# ---------------------------------------------------------------------------------------- measuring


def _measure(
    text: Path, tokenizer: Path, folder: Path, processes: int, repeats: int
) -> dict[str, float]:
    megabytes = sum(path.stat().st_size for path in text.iterdir()) / 1e6
    rates: dict[str, list[float]] = {side: [] for side in SIDES}
    peaks: dict[str, list[float]] = {side: [] for side in SIDES}
    for repeat in range(repeats):
        for side in SIDES:
            out = folder / f"{side}-{repeat}"
            options = [
                "--side",
                side,
                "--tokenizer",
                tokenizer,
                "--out",
                out,
                "--processes",
                processes,
            ]
            seconds, peak = _run([sys.executable, __file__, str(text), *map(str, options)])
            rates[side].append(megabytes / seconds)
            peaks[side].append(peak / 1e6)
    print(f"{megabytes:.1f} MB of text, {processes} processes, median of {repeats}")
    for side in SIDES:
        print(
            f"{side:9} {statistics.median(rates[side]):6.2f} MB/s, at most "
            f"{max(peaks[side]):.0f} MB resident"
        )
    ratio = statistics.median(rates["litebert"]) / statistics.median(rates["datasets"])
    print(f"ratio {ratio:.2f} (law: at least {LAW:g})")
    sides = {f"{side}_mb_per_second": statistics.median(rates[side]) for side in SIDES}
    memory = {f"{side}_resident_mb": max(peaks[side]) for side in SIDES}
    return {"megabytes": megabytes, "ratio": ratio, "law": LAW, **sides, **memory}


def _run(command: list[str]) -> tuple[float, int]:
    """The seconds that the command prints last, and the most bytes that were resident."""
    peak = 0
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(command, stdout=output)
        while process.poll() is None:
            peak = max(peak, sum(read_resident(pid) for pid in list_tree(process.pid)))
            time.sleep(0.02)
        if process.returncode:
            sys.exit(f"{' '.join(command)} failed")
        output.seek(0)
        return float(output.read().split()[-1]), peak


def list_tree(process: int) -> Iterator[int]:
    """Yield the process and all below it."""
    yield process
    for task in Path(f"/proc/{process}/task").glob(
        "*/children"
    ):  # a thread may have started a child
        try:
            children = task.read_text().split()
        except OSError:  # it ended meanwhile
            continue
        for child in children:
            yield from list_tree(int(child))


def read_resident(process: int) -> int:
    """Return the bytes that are resident, 0 of a process that ended."""
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf(
            "SC_PAGE_SIZE"
        )
    except OSError:
        return 0


if __name__ == "__main__":
    sys.exit(main())
