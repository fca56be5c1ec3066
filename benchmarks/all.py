"""All benchmarks on a CPU, one after the other, each with a JSON file: what `make bench` runs.

    python benchmarks/all.py [--out bench] [--only NAME ...] [--full] [--glue FOLDER]

Each benchmark runs with small options, so that it ends within minutes. Its numbers say whether
everything runs, and roughly how fast it is. --full gives each benchmark its own defaults, which
takes hours. --glue is the folder with SST-2/ and CoLA/, for `finetune`. OUT gets NAME.json of each
benchmark, with the machine, the date, the versions, the command, the seconds and the results, and
NAME.txt with what it printed.

A benchmark that fails, or whose law does not hold, does not stop the others. The status is 1 then.
`benchmarks/gpu.sh` is for a GPU and apart.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
SMALL: dict[str, list[str]] = {
    "batches": ["--repeats", "10"],
    "prepare": ["--repeats", "1"],
    "loading": ["--shards", "2000"],
    "pretraining": ["--shapes", "h128", "h256", "--quick"],
    "scaling": ["--shapes", "h128", "--rounds", "3"],
    "memory": ["--shapes", "base-128"],
    "lengths": ["--lengths", "512", "2048", "--layers", "3", "--rounds", "1"],
    "finetune": ["--tasks", "sst2", "--rows", "1000", "--repeats", "1"],
    "peak": ["--rounds", "5"],
    "answering": ["--networks", "minilm", "--rows", "200", "--rounds", "2", "--latency", "20"],
    "exits": ["--rounds", "2"],
    "serving": ["--shapes", "minilm", "--quick"],
    "speedrun": [
        "--minutes",
        "2",
        "--seeds",
        "1",
        "--recipes",
        "albert-tiny",
        "--baselines",
        "albert",
        "--rates",
        "1e-3",
    ],
}
"""Options with which each benchmark ends within minutes."""
APART = {
    "gpu": "needs a GPU",
    "defaults": "is a campaign of hours, over models and files that have to be named",
    "worth": "is a campaign of hours, over models and files that have to be named",
    "finetune_peers": "is a campaign of hours, over an encoder and files that have to be named",
    "near_duplicates": "needs datasketch and rensa, which are no dependencies",
    "lora": "needs peft, and takes minutes",
    "token_weights": "needs a pretrained model and STS-B, which have to be named",
    "retrieval": "needs an encoder and SQuAD, which have to be named",
    "vector_teacher": "needs a teacher and task files, which have to be named",
    "wrong_labels": "needs SST-2, which has to be named",
}
"""Benchmarks that are run by themselves, and why."""


def main() -> int:
    """Run the benchmarks that are asked for, and print how long each took."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("bench"))
    parser.add_argument("--only", nargs="+", choices=SMALL, default=list(SMALL), metavar="NAME")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--glue", type=Path)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    failed, began = [], time.monotonic()
    for name in options.only:
        command = command_of(name, options.out, options.full, options.glue)
        print(f"== {name}", flush=True)
        start = time.monotonic()
        status = run(command, options.out / f"{name}.txt")
        failed += [name] * (status != 0)
        print(f"== {name}: status {status}, {time.monotonic() - start:.0f} s", flush=True)
    print(
        f"== {len(options.only)} benchmarks in {time.monotonic() - began:.0f} s, results "
        f"in {options.out}"
    )
    if failed:
        print(f"these ended with a status other than 0: {', '.join(failed)}", file=sys.stderr)
    return int(bool(failed))


def command_of(name: str, out: Path, full: bool, glue: Path | None) -> list[str]:
    """The command that runs a benchmark and writes its results to a file."""
    script = HERE / name if (HERE / name).is_dir() else HERE / f"{name}.py"
    words = [
        sys.executable,
        str(script),
        *([] if full else SMALL[name]),
        "--json",
        str(out / f"{name}.json"),
    ]
    if name == "speedrun":
        words += ["--out", str(out / name)]
    return [*words, str(glue)] if name == "finetune" and glue is not None else words


def run(command: list[str], log: Path) -> int:
    """Run a command whose output goes to the terminal and to a file; its status."""
    with open(log, "w", encoding="utf-8") as file:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert process.stdout is not None
        for line in process.stdout:
            file.write(line)
            print(line, end="", flush=True)
        return process.wait()


if __name__ == "__main__":
    sys.exit(main())
