"""Classifiers from the same labeled rows and the same published encoder: `litebert fit`, the
Trainer of `transformers`, SetFit, a linear model on frozen vectors, and TF-IDF.

    python benchmarks/finetune_peers --data TEXTS --encoder FOLDER [--setfit-python PYTHON]
        [--tasks sst2-8 topics-8] [--ways fit setfit] [--seeds 3] [--minutes 120] [--out DIR]
        [--measure] [--print] [--json FILE]

TEXTS has the folders glue and squad in their official layouts. FOLDER is a published encoder, such
as all-MiniLM-L6-v2. PYTHON is an interpreter that has setfit. Nothing is fetched.

A cell is a task, a way and a seed. The seed draws the labeled rows, and everything else that is
random. A whole cell writes a line of DIR/cells.jsonl and is not run again. The campaign ends when
--minutes are over, and the same command goes on. --measure runs whole cells again, and replaces
their times and their memory alone. --print makes the table from the file.

A task is a source of rows and how many of them have labels: none (then the names of the classes are
all that is known), 2, 8 or 64 a class, 1000 in all, or all (a name alone). Sources: sst2 (SST-2,
tested on its public dev file), topics (the article that a question of SQuAD is about, 48 classes),
tickets (support tickets that litebert makes), docstrings (the package that a docstring is of),
chapters (the chapter of TEXTS/rust-book/ko that a Korean paragraph is of), and three of pairs of
texts: rte (does one follow from the other), answers (does a sentence answer a question of SQuAD),
and stsb (how alike they are, a number, scored by Pearson's correlation and never tried by SetFit).
Five are kept aside, and chose nothing in `fit`: grammar (CoLA), authors (of paragraphs of novels),
centuries (of inaugural addresses), levels (of passages of RACE) and names (does a sentence of
WNUT-17 hold one). No test row chooses anything.

Ways: all learn from the same labeled rows. `trainer` keeps a tenth of them to choose among three
rates and two numbers of epochs, and keeps the best epoch. `fit` has a budget of an hour, because
one busy thread is slow. ways.py has the settings of the others.

The last table is of what `fit` promises: how often its estimate was within two of its standard
errors of the test score, and its difference from the best other way of each cell.

Each way is a process with one thread. Its minutes are those of the processor, which other programs
change little, and hold everything from the start of Python to the answers to the test rows.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import shutil
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import results

from finetune_peers.sources import ASIDE, Row, read_source
from finetune_peers.ways import WAYS as PEERS
from finetune_peers.ways import compute_score
from litebert.base.storage import atomic_text

TASKS = (
    *("sst2-0", "tickets-0", "topics-0", "docstrings-0"),
    *("sst2-2", "sst2-8", "tickets-2", "tickets-8", "docstrings-2", "docstrings-8", "sst2-64"),
    *("topics-2", "chapters-2", "topics-8", "chapters-8", "docstrings-64", "tickets-64"),
    *("rte-64", "sst2-1000", "rte-1000", "stsb-1000", "docstrings", "tickets", "chapters"),
    *("answers-64", "answers-1000", "topics-1000", "rte", "stsb", "topics", "sst2"),
    *(f"{source}-{amount}" for amount in ("8", "64", "1000") for source in ASIDE),
)
"""The cheapest first."""
WAYS = {
    "tfidf": "TF-IDF, logistic regression",
    "frozen": "frozen vectors, logistic regression",
    "fit": "`litebert fit`",
    "trainer-defaults": "Trainer, defaults",
    "trainer": "Trainer, 6 runs",
    "setfit": "SetFit",
}
"""The ways with their names in the table."""
THREADS = dict.fromkeys(
    ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS"), "1"
)
"""The environment of a process with one thread."""


class OutOfTimeError(Exception):
    """The minutes of the campaign are over."""


@dataclass(frozen=True)
class Campaign:
    """What the cells share."""

    data: Path
    encoder: Path
    setfit_python: str | None
    out: Path
    ends: float
    """Seconds of `time.monotonic` at which the campaign ends."""

    def run(self, words: Sequence[object]) -> tuple[str, dict[str, float]]:
        """Run a command with one thread.

        Returns:
            What it printed, and its seconds, seconds of the processor, and largest resident
            megabytes.

        Raises:
            OutOfTimeError: the campaign ended before it.
            RuntimeError: it failed.
        """
        command, began, log = list(map(str, words)), time.monotonic(), self.out / "log.txt"
        printed = self.out / "printed.txt"
        environment = {**os.environ, **THREADS, "TOKENIZERS_PARALLELISM": "false"}
        with open(log, "ab") as errors, open(printed, "wb") as output:
            process = subprocess.Popen(command, stdout=output, stderr=errors, env=environment)
            try:
                while not (ended := os.wait4(process.pid, os.WNOHANG))[0]:
                    if time.monotonic() > self.ends:
                        raise OutOfTimeError
                    time.sleep(0.05)
            except (OutOfTimeError, KeyboardInterrupt):
                process.kill()
                process.wait()
                raise
        _, status, usage = ended
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise RuntimeError(f"{' '.join(command)} failed; {log} says why")
        cost = {
            "seconds": round(time.monotonic() - began, 2),
            "processor_seconds": round(usage.ru_utime + usage.ru_stime, 2),
            "megabytes": round(usage.ru_maxrss / 1000, 1),
        }
        return printed.read_text(encoding="utf-8"), cost


# ---------------------------------------------------------------------------------------- the rows


def draw_rows(rows: Sequence[Row], amount: str, seed: int) -> list[Row]:
    """Draw labeled rows.

    Args:
        amount: rows of each class; 1000 for so many rows of all classes; "" for all rows; 0 for
            1000 whose labels nothing reads.
    """
    generator = random.Random(seed)
    if amount in ("", "0", "1000"):
        return generator.sample(rows, min(len(rows), int(amount or len(rows)) or 1000))
    classes = defaultdict(list)
    for row in rows:
        classes[row[-1]].append(row)
    drawn = [
        row
        for label, members in sorted(classes.items())
        for row in generator.sample(members, min(int(amount), len(members)))
    ]
    generator.shuffle(drawn)
    return drawn


def write_cell(task: str, seed: int, campaign: Campaign) -> Path:
    """Write the files of a cell, and the file that names them."""
    folder = campaign.out / "tasks" / f"{task}-{seed}"
    folder.mkdir(parents=True, exist_ok=True)
    pool, test = read_source(task.partition("-")[0], campaign.data, campaign.out / "tasks")
    labeled = draw_rows(pool, task.partition("-")[2], seed)
    files = {name: folder / f"{name}.jsonl" for name in ("labeled", "train", "dev", "test")}
    write_rows(files["labeled"], labeled)
    write_rows(files["test"], test)
    dev = max(1, len(labeled) // 10)
    write_rows(files["dev"], labeled[:dev])
    write_rows(files["train"], labeled[dev:])
    cell = {
        "model": str(campaign.encoder),
        "seed": seed,
        "number": task.startswith("stsb"),
        "names": sorted({row[-1] for row in pool}) if task.endswith("-0") else [],
        **{name: str(file) for name, file in files.items()},
    }
    with atomic_text(folder / "cell.json") as file:
        json.dump(cell, file)
    return folder / "cell.json"


def write_rows(path: Path, rows: Sequence[Row]) -> None:
    """Write rows as lines of JSON."""
    with atomic_text(path) as file:
        for *texts, label in rows:
            row = {**dict(zip(("text", "pair"), texts, strict=False)), "label": label}
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


# --------------------------------------------------------------------------------------- the cells


def run_cell(task: str, way: str, seed: int, campaign: Campaign) -> dict[str, Any]:
    """Run a way on the rows of a task, and return what is known of it then."""
    file = write_cell(task, seed, campaign)
    if way == "fit":
        outcome = run_fit(file, campaign)
    else:
        python = campaign.setfit_python if way == "setfit" else sys.executable
        assert python is not None
        printed, cost = campaign.run((python, Path(__file__).with_name("ways.py"), way, file))
        outcome = {**json.loads(printed.splitlines()[-1]), **cost}
    return {"task": task, "way": way, "seed": seed, **outcome}


def run_fit(file: Path, campaign: Campaign) -> dict[str, Any]:
    """Run the commands that a user types, and read what they say."""
    cell, run = json.loads(file.read_text(encoding="utf-8")), file.parent / "run"
    answers = file.parent / "answers.jsonl"
    litebert = (sys.executable, "-m", "litebert")
    test = [json.loads(line) for line in Path(cell["test"]).read_text("utf-8").splitlines()]
    texts = ["--text-column", "text", *(("--pair-column", "pair") if "pair" in test[0] else ())]
    options = ["--model", cell["model"], "--budget", "1h", "--seed", cell["seed"], "--out", run]
    options += ["--labels", ",".join(cell["names"])] if cell["names"] else []
    _, learned = campaign.run((*litebert, "fit", cell["labeled"], *texts, *options, "--overwrite"))
    words = ("--input", cell["test"], *texts, "--out", answers)
    _, answered = campaign.run((*litebert, "predict", run, *words))
    record = json.loads((run / "fit.json").read_text(encoding="utf-8"))
    guesses = [json.loads(line)["prediction"] for line in answers.read_text("utf-8").splitlines()]
    shutil.rmtree(run)
    return {
        "score": compute_score(guesses, test, cell["number"]),
        "chosen": record["method"],
        "judged": record["judged"],
        "tested": len(test),
        "megabytes": max(learned["megabytes"], answered["megabytes"]),
        **{name: learned[name] + answered[name] for name in ("seconds", "processor_seconds")},
    }


def run_cells(options: argparse.Namespace, cells: list[dict[str, Any]]) -> None:
    """Run the cells that are asked for, until the time is over, and keep their lines."""
    ends = time.monotonic() + 60 * options.minutes
    python = options.setfit_python
    campaign = Campaign(options.data, options.encoder.resolve(), python, options.out, ends)
    whole = {(cell["task"], cell["way"], cell["seed"]): cell for cell in cells}
    wanted = [
        (task, way, seed)
        for task in TASKS
        for seed in range(options.seeds)
        for way in WAYS
        if task in options.tasks and way in options.ways
        if way != "setfit" or (python and not task.startswith("stsb"))
        if way in ("frozen", "setfit", "fit") or not task.endswith("-0")
    ]
    for task, way, seed in wanted:
        earlier = whole.get((task, way, seed))
        if (earlier is not None) != options.measure:
            continue
        print(f"{task}, {way}, seed {seed}", file=sys.stderr)
        try:
            cell = run_cell(task, way, seed, campaign)
        except OutOfTimeError:
            print("the time is over; the same command goes on", file=sys.stderr)
            return
        except RuntimeError as error:  # one cell that cannot be does not end the others
            print(error, file=sys.stderr)
            continue
        if earlier is None:
            cells.append(cell)
        else:
            earlier |= {name: cell[name] for name in ("seconds", "processor_seconds", "megabytes")}
        with atomic_text(options.out / "cells.jsonl") as file:
            file.writelines(f"{json.dumps(line, ensure_ascii=False)}\n" for line in cells)


# --------------------------------------------------------------------------------------- the table


def make_table(cells: Sequence[Mapping[str, Any]]) -> str:
    """Make the tables: mean score with the lowest and the highest seed, minutes, and memory."""
    tasks = [task for task in TASKS if any(cell["task"] == task for cell in cells)]
    lines = [f"| test score | {' | '.join(tasks)} |", "|---|" + "---|" * len(tasks)]
    costs = [f"| minutes, GB | {' | '.join(tasks)} |", "|---|" + "---|" * len(tasks)]
    for way, name in WAYS.items():
        scores, spent = [], []
        for task in tasks:
            chosen = [cell for cell in cells if (cell["task"], cell["way"]) == (task, way)]
            scores.append(format_scores([100 * cell["score"] for cell in chosen]))
            spent.append(format_cost(chosen))
        lines.append(f"| {name} | {' | '.join(scores)} |")
        costs.append(f"| {name} | {' | '.join(spent)} |")
    return "\n".join([*lines, "", *costs, "", *judge_fit(cells)])


def judge_fit(cells: Sequence[Mapping[str, Any]]) -> list[str]:
    """Say what the estimates of accuracy by `fit` were worth, and how far it is from the best other
    way of each task in the mean of the seeds that both have."""
    fits = [cell for cell in cells if cell["way"] == "fit"]
    estimated = [cell for cell in fits if cell["judged"] and not cell["task"].startswith("stsb")]
    distances = []
    for cell in estimated:
        judged = next(judged for judged in cell["judged"] if judged["method"] == cell["chosen"])
        spread = cell["score"] * (1 - cell["score"]) / cell["tested"]
        error = math.sqrt(judged["error"] ** 2 + spread)
        distances.append(abs(judged["score"] - cell["score"]) / error)
    near = sum(distance <= 2 for distance in distances)
    lines = [
        f"Estimates within two standard errors of the test score: {near} of {len(estimated)}.",
        "",
    ]
    lines += ["| task | fit took | fit - best other way |", "|---|---|---|"]
    gains = defaultdict[str, list[float]](list)
    for task in TASKS:
        scores: dict[str, dict[int, float]] = defaultdict(dict)
        for cell in cells:
            if cell["task"] == task:
                scores[cell["way"]][cell["seed"]] = 100 * cell["score"]
        mine = scores.pop("fit", {})
        apart = {
            way: [mine[seed] - theirs[seed] for seed in theirs.keys() & mine.keys()]
            for way, theirs in scores.items()
        }
        apart = {way: values for way, values in apart.items() if values}
        if not apart:
            continue
        for way, values in apart.items():
            gains[way].append(statistics.fmean(values))
        best = min(apart, key=lambda way: statistics.fmean(apart[way]))
        took = ", ".join(sorted({cell["chosen"] for cell in fits if cell["task"] == task}))
        values = apart[best]
        shown = (
            f" ± {statistics.stdev(values) / math.sqrt(len(values)):.1f}" if len(values) > 1 else ""
        )
        lines.append(f"| {task} | {took} | {statistics.fmean(values):+.1f}{shown} ({best}) |")
    lines += [""]
    for way, values in gains.items():
        mean = statistics.fmean(values)
        lines.append(f"fit is {mean:+.1f} beside {way}, in the mean of {len(values)} tasks.")
    return lines


def format_scores(scores: Sequence[float]) -> str:
    """Format the mean of scores, with the lowest and the highest of several."""
    if not scores:
        return "-"
    spread = f" ({min(scores):.1f} to {max(scores):.1f})" if len(scores) > 1 else ""
    return f"{statistics.fmean(scores):.1f}{spread}"


def format_cost(cells: Sequence[Mapping[str, Any]]) -> str:
    """Format the median minutes of the processor and the largest gigabytes."""
    if not cells:
        return "-"
    minutes = statistics.median(cell["processor_seconds"] for cell in cells) / 60
    return f"{minutes:.1f}, {max(cell['megabytes'] for cell in cells) / 1000:.1f}"


def parse_options() -> argparse.Namespace:
    """Read the command line, and refuse a campaign that has no data or no encoder."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="the folder of glue and squad")
    parser.add_argument("--encoder", type=Path, help="the folder of a published encoder")
    parser.add_argument("--setfit-python", help="an interpreter with setfit, for that way")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=120.0, help="of this call")
    parser.add_argument("--out", type=Path, default=Path("finetune_peers"))
    parser.add_argument("--measure", action="store_true", help="measure whole cells again")
    parser.add_argument("--print", action="store_true", dest="only_print")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if not options.only_print and (options.data is None or options.encoder is None):
        parser.error("give --data and --encoder, which new cells need, or --print")
    return options


def main() -> int:
    """Run what is left of the campaign, and print its table."""
    assert PEERS.keys() | {"fit"} == WAYS.keys()
    options = parse_options()
    options.out.mkdir(parents=True, exist_ok=True)
    file = options.out / "cells.jsonl"
    cells = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    if not options.only_print:
        run_cells(options, cells)
    print(make_table(cells))
    results.write(options.json, {"cells": cells})
    return 0


if __name__ == "__main__":
    sys.exit(main())
