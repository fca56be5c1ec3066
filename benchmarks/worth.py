"""Is a model worth training? Its score beside a baseline that costs seconds, its speed, its size.

    python benchmarks/worth.py --data TEXTS --encoder MODEL [--text FILES] [--tasks sst2-1000 rte]
        [--ways frozen encoder student] [--seeds 1] [--jobs 1] [--device auto] [--minutes 180]
        [--out DIR] [--print] [--measure] [--json FILE]

TEXTS has the folders glue, squad and wnut17 in their official layouts; MODEL is a published
encoder, such as all-MiniLM-L6-v2; FILES are raw text for models from scratch.

A cell is a task, a way and a seed. It is a list of litebert commands, all of which continue after a
stop. The campaign ends when --minutes are over, in the middle of a cell too, and the same command
goes on. A cell that is whole writes a line of DIR/cells.jsonl and is not run again. The tables come
from that file, with --print alone.

The scored rows choose nothing. A tenth of the training rows is held out to choose the weights, as
`litebert finetune` does by default, and the public development part is scored at the end. WNUT-17
has a test part of its own.

Ways: the baseline of litebert (words counted, fitted on the same rows) costs no cell of its own,
because every run shows it. `frozen` is a linear model of scikit-learn on the sentence vectors of
the encoder, fitted on all training rows. `encoder` is the encoder fine-tuned, and `student` what
`litebert distill` makes of that with at most 2M parameters (8 bits). `scratch-10` and `scratch-60`
are albert-next-tiny after so many minutes of --text.

Tasks: sst2-1000, sst2-8000, sst2 (67,349 rows), topics (the article that a question of SQuAD is
about), rte, stsb, wnut17 and docstrings. With one job, a short measurement of the speed of each
model ends its cell, alone on one set of texts; run it on a machine that does nothing else, or
measure all models again with --measure when it does nothing else. With several jobs nothing is
measured. A device other than the CPU trains in float32 too.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
import results

import litebert
from litebert.base.machine import count_cores, read_processor_name
from litebert.base.storage import atomic_text
from litebert.interop.files import weights_file
from litebert.interop.names import find_exported_graph
from litebert.studies.packages import LABEL, TEXT, write_table
from litebert.text.records import Notes

TASKS = ("sst2-1000", "docstrings", "rte", "stsb", "topics", "sst2-8000", "wnut17", "sst2")
"""The cheapest first."""
WAYS = ("frozen", "encoder", "student", "scratch-10", "scratch-60")
"""Ways that have cells; `baseline` is shown by the cells of `encoder`."""
COLUMNS = ("baseline", *WAYS)
PAIR = {"text_column": "sentence1", "pair_column": "sentence2"}
GLUE = {
    "sst2": ("SST-2", {"text_column": "sentence", "label_column": "label"}),
    "rte": ("RTE", {**PAIR, "label_column": "label"}),
    "stsb": ("STS-B", {**PAIR, "label_column": "score", "metric": "pearson"}),
}
"""The folder and the options of each task that is read as a table."""
STUDENT = ("--size", "2M", "--epochs", "3")
"""Options of litebert distill."""
ROUNDS, TEXTS = 5, 256
"""Rounds and texts of the measurement of speed."""


SHARED = threading.Lock()
"""Held while a cell makes files that other cells read."""


class OutOfTimeError(Exception):
    """The minutes of the campaign are over."""


@dataclass(frozen=True)
class Campaign:
    """What the cells share."""

    data: Path
    encoder: str
    text: tuple[str, ...]
    out: Path
    ends: float
    """Seconds of `time.monotonic` at which the campaign ends."""
    device: str = "auto"
    jobs: int = 1
    """Cells that run at a time."""

    def run(self, *words: object) -> float:
        """Run a litebert command; return its seconds.

        Raises:
            OutOfTimeError: it was stopped, and the same command continues it.
            RuntimeError: it failed.
        """
        command = [sys.executable, "-m", "litebert", *map(str, words)]
        log = self.out / "log.txt"
        began = time.monotonic()
        threads = {"OMP_NUM_THREADS": str(max(1, count_cores() // self.jobs))}
        environment = {**os.environ, **threads} if self.jobs > 1 else None
        with open(log, "ab") as file:
            process = subprocess.Popen(command, stdout=file, stderr=file, env=environment)
            try:
                process.wait(max(0.0, self.ends - began))
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGINT)
                process.wait()
                raise OutOfTimeError from None
            except KeyboardInterrupt:
                process.wait()
                raise
        if process.returncode:
            raise RuntimeError(f"{' '.join(command)} failed; {log} says why")
        return time.monotonic() - began


# ---------------------------------------------------------------------------------------- the tasks


@dataclass(frozen=True)
class TaskSource:
    """A task as `litebert finetune` and `litebert.open_task` take it."""

    name: str
    data: Path
    options: Mapping[str, str]

    @property
    def words(self) -> list[str]:
        """The options of the command line."""
        more = ((f"--{name.replace('_', '-')}", value) for name, value in self.options.items())
        return ["--task", self.name, "--data", str(self.data), *(w for pair in more for w in pair)]

    def read(self, split: str) -> tuple[Any, list[Any]]:
        """Open the task; return it and the examples of a split, `train` or `test`."""
        files = litebert.open_task(self.name, str(self.data), **self.options)
        return files.task, files.read(split)


def find_task(task: str, campaign: Campaign) -> TaskSource:
    """Find the files of a task, or make them."""
    data, out = campaign.data, campaign.out / "tasks" / task
    if task == "wnut17":
        files = data / "wnut17"
        parts = {"dev": "emerging.dev.conll", "test": "emerging.test.annotated"}
        named = {part: str(files / name) for part, name in parts.items()}
        return TaskSource("tagging", files / "wnut17train.conll", named)
    if task == "docstrings":
        train, test = write_table(out)
        columns = {"text_column": TEXT, "label_column": LABEL}
        return TaskSource("table", train, {"test": str(test), **columns})
    if task == "topics":
        train, test = write_topics(data / "squad" / "dev-v1.1.json", out)
        return TaskSource("table", train, {"test": str(test)})
    folder, columns = GLUE[task.partition("-")[0]]
    train, test = (data / "glue" / folder / f"{part}.tsv" for part in ("train", "dev"))
    if "-" in task:
        train, test = write_sample(data / "glue" / folder, int(task.partition("-")[2]), out)
    return TaskSource("table", train, {"test": str(test), **columns})


def write_sample(source: Path, rows: int, out: Path) -> tuple[Path, Path]:
    """Write evenly spread rows of the training part of SST-2, and the other sentences without
    labels.
    """
    train, dev = out / "train.tsv", source / "dev.tsv"
    if not (out / "rest.txt").exists():
        out.mkdir(parents=True, exist_ok=True)
        head, *lines = (source / "train.tsv").read_text("utf-8").splitlines()
        step = len(lines) // rows
        sample = lines[: rows * step : step]
        train.write_text("\n".join([head, *sample]) + "\n", encoding="utf-8")
        labeled = set(sample)
        rest = [line.split("\t")[0] for line in lines if line not in labeled]
        (out / "rest.txt").write_text("\n".join(rest) + "\n", encoding="utf-8")
    return train, dev


def write_topics(source: Path, out: Path) -> tuple[Path, Path]:
    """Write questions with the titles of their articles; every fifth passage of an article is
    development.
    """
    files = out / "train.jsonl", out / "dev.jsonl"
    if all(file.exists() for file in files):
        return files
    out.mkdir(parents=True, exist_ok=True)
    rows: tuple[list[str], list[str]] = [], []
    for article in json.loads(source.read_text(encoding="utf-8"))["data"]:
        for i, passage in enumerate(article["paragraphs"]):
            for question in passage["qas"]:
                row = {"text": question["question"], "label": article["title"]}
                rows[i % 5 == 4].append(json.dumps(row, ensure_ascii=False) + "\n")
    for file, lines in zip(files, rows, strict=True):
        file.write_text("".join(lines), encoding="utf-8")
    return files


# ---------------------------------------------------------------------------------------- the cells


def run_cell(task: str, way: str, seed: int, campaign: Campaign) -> dict[str, Any]:
    """Run the commands of a cell, and return what is known of it then."""
    folder = campaign.out / "runs" / f"{task}-{way}-{seed}"
    with SHARED:
        source = find_task(task, campaign)
    began = time.monotonic()
    seeded = ("--fp32", "--train.seed", seed, "--device", campaign.device, "--out", folder)
    if way == "student":
        teacher = campaign.out / "runs" / f"{task}-encoder-{seed}"
        rest = campaign.out / "tasks" / task / "rest.txt"
        more = ("--unlabeled", rest) if rest.exists() else ()
        campaign.run("distill", teacher, *source.words, *more, *STUDENT, *seeded)
        cell = read_student(folder, source, campaign.jobs == 1)
    elif way == "frozen":
        cell = score_frozen(campaign.encoder, source, campaign.device)
    else:
        with SHARED:
            start = campaign.encoder if way == "encoder" else pretrain(way, seed, campaign)
        campaign.run("finetune", start, *source.words, *seeded)
        cell = {**read_scores(folder), **(measure(folder, source) if campaign.jobs == 1 else {})}
    minutes = round((time.monotonic() - began) / 60, 2)
    return {"task": task, "way": way, "seed": seed, **cell, "minutes_of_last_call": minutes}


def read_student(folder: Path, source: TaskSource, quiet: bool) -> dict[str, Any]:
    """Read the scores of a distillation; the main one is that of the smallest file."""
    metric = json.loads((folder / "distill.json").read_text())["results"]["metric"]
    models = {"float32": folder / "student", "int8": folder / "int8"}
    cells: dict[str, dict[str, Any]] = {}
    for name, model in models.items():
        if model.is_dir():
            scores = litebert.evaluate(model, data=source.options["test"]).scores
            cells[name] = {"metric": metric, "score": scores[metric]}
            cells[name] |= measure(model, source) if quiet else {}
    last = list(cells.values())[-1]
    first = {f"{name}_float32": value for name, value in cells["float32"].items()}
    return last if len(cells) == 1 else {**last, **first}


def score_frozen(encoder: str, source: TaskSource, device: str) -> dict[str, Any]:
    """Score a linear model on sentence vectors that nothing trained."""
    from sklearn.linear_model import LogisticRegression, RidgeCV
    from sklearn.model_selection import GridSearchCV

    if source.name != "table":
        raise RuntimeError("a linear model on sentence vectors does not tag words")
    model = litebert.load(encoder, device=device)
    columns = [source.options.get(f"{name}_column") for name in ("text", "pair")]
    texts, labels = {}, {}
    for part, file in (("train", str(source.data)), ("test", source.options["test"])):
        rows = read_rows(Path(file))
        names = [name or ("text" if not i else None) for i, name in enumerate(columns)]
        vectors = [model.encode([row[name] for row in rows]) for name in names if name]
        texts[part] = pair_features(*vectors) if len(vectors) > 1 else vectors[0]
        labels[part] = [row[source.options.get("label_column", "label")] for row in rows]
    metric = source.options.get("metric", "accuracy")
    if metric == "pearson":
        ridge = RidgeCV(np.logspace(-3, 3, 13))
        ridge.fit(texts["train"], [float(y) for y in labels["train"]])
        answers = ridge.predict(texts["test"])
        score = float(np.corrcoef(answers, [float(y) for y in labels["test"]])[0, 1])
    else:
        grid = {"C": np.logspace(-1, 3, 5)}
        linear = GridSearchCV(LogisticRegression(max_iter=2000), grid, cv=3)
        score = linear.fit(texts["train"], labels["train"]).score(texts["test"], labels["test"])
    return {"metric": metric, "score": score}


def read_rows(file: Path) -> list[dict[str, str]]:
    """Read the rows of a table by the names of its columns; GLUE quotes nothing."""
    if file.suffix == ".jsonl":
        return [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    with open(file, encoding="utf-8", newline="") as lines:
        if file.suffix == ".csv":
            return list(csv.DictReader(lines))
        return list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))


def pair_features(first: Any, second: Any) -> Any:
    """Join two vectors of a pair, (N, H) each, with their difference and their product."""
    return np.concatenate([first, second, abs(first - second), first * second], axis=1)


def pretrain(way: str, seed: int, campaign: Campaign) -> Path:
    """Pretrain the model from scratch that the tasks of a way share."""
    text, minutes = campaign.out / "text", way.partition("-")[2]
    if not campaign.text:
        raise RuntimeError(f"{way} needs raw text; name it with --text")
    tokenizer, data = text / "tokenizer", text / "data"
    if not tokenizer.exists():
        size = ("--vocab-size", "8192")
        campaign.run("tokenizer", "train", *campaign.text, *size, "--out", tokenizer)
    if not data.exists():
        campaign.run("prepare", *campaign.text, "--tokenizer", tokenizer, "--out", data)
    run = campaign.out / "runs" / f"pretrained-{minutes}-{seed}"
    budget = ("--budget", f"{minutes}m", "--train.seed", seed, "--device", campaign.device)
    campaign.run("pretrain", "albert-next-tiny", "--shards", data, *budget, "--out", run)
    return run


def read_scores(folder: Path) -> dict[str, Any]:
    """Read the score of a fine-tuned run on the test part, on the held-out rows, and the
    baseline's on the test part.
    """
    metric = json.loads((folder / "finetune.json").read_text())["metric"]
    scores = json.loads((folder / "scores.json").read_text())
    baseline = scores.get("baseline", {}).get("scores", {})
    return {
        "metric": metric,
        "score": scores[f"test_{metric}"],
        "heldout": scores[metric],
        "baseline": baseline.get(f"test_{metric}"),
    }


def measure(model: Path, source: TaskSource) -> dict[str, float]:
    """Measure the megabytes of a model and the texts it answers a second, from text to answer."""
    folder = model / "model" if (model / "model").is_dir() else model
    size = (find_exported_graph(folder) or weights_file(folder)).stat().st_size
    predictor = litebert.load(model, device="cpu").predictor
    _, examples = source.read("test")
    examples = examples[:TEXTS]
    seconds = []
    for _ in range(ROUNDS + 1):
        start = time.perf_counter()
        items = predictor.task.encode(examples, predictor.tokenizer, predictor.length, Notes())
        list(predictor.answer_items(examples, items))
        seconds.append(time.perf_counter() - start)
    speed = len(examples) / statistics.median(seconds[1:])  # the first also reads and compiles
    return {"megabytes": round(size / 1e6, 2), "texts_per_second": round(speed, 1)}


# -------------------------------------------------------------------------------- the table


def collect(cells: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, list[float]]]:
    """Collect the scores of each task and column, in hundredths, over the seeds."""
    scores: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for cell in cells:
        if cell["way"] == "encoder" and cell.get("baseline") is not None:
            scores[cell["task"]]["baseline"].append(100 * cell["baseline"])
        if "score" in cell:
            scores[cell["task"]][cell["way"]].append(100 * cell["score"])
    return scores


def make_table(cells: Sequence[Mapping[str, Any]]) -> str:
    """Make the table of scores, with the median and the range of the seeds, and the table of
    sizes and speeds.
    """
    scores = collect(cells)
    metrics = {cell["task"]: cell["metric"] for cell in cells if "metric" in cell}
    lines = [f"| task (score) | {' | '.join(COLUMNS)} |", "|---|" + "---|" * len(COLUMNS)]
    for task in (task for task in TASKS if task in scores):
        shown = [format_scores(scores[task][column]) for column in COLUMNS]
        lines.append(f"| {task} ({metrics.get(task, '?')}) | {' | '.join(shown)} |")
    lines += ["", "| way | MB | texts a second |", "|---|---|---|"]
    for way in WAYS:
        measured = [cell for cell in cells if cell["way"] == way and "megabytes" in cell]
        if measured:
            size, speed = (
                statistics.median(cell[name] for cell in measured)
                for name in ("megabytes", "texts_per_second")
            )
            lines.append(f"| {way} | {size:.1f} | {speed:,.0f} |")
    return "\n".join(lines)


def format_scores(scores: Sequence[float]) -> str:
    """Write the median, and the range if the seeds differ."""
    if not scores:
        return "-"
    low, high = (f"{bound:.1f}" for bound in (min(scores), max(scores)))
    spread = f" ({low} to {high})" if low != high else ""
    return f"{statistics.median(scores):.1f}{spread}"


# ---------------------------------------------------------------------------------------------- all


def parse_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="the folder of glue, squad and wnut17")
    parser.add_argument("--encoder", help="a published encoder: a folder, or hf:OWNER/NAME")
    parser.add_argument("--text", nargs="+", default=[], help="raw text for models from scratch")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="cells at a time; each has a process")
    parser.add_argument("--device", default="cpu", help="where models train: auto, cpu or cuda")
    parser.add_argument("--minutes", type=float, default=180.0, help="of this call")
    parser.add_argument("--out", type=Path, default=Path("worth"))
    parser.add_argument("--print", action="store_true", dest="only_print")
    parser.add_argument(
        "--measure", action="store_true", help="run no cell; measure sizes and speeds again"
    )
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def run_cells(options: argparse.Namespace, cells: list[dict[str, Any]]) -> None:
    """Run the cells that are not whole, until the time is over, and add them to the file.

    A way waits for all cells of the way before it, because a student needs its teacher.
    """
    ends = time.monotonic() + 60 * options.minutes
    shared = (options.data, options.encoder, tuple(options.text), options.out, ends)
    campaign = Campaign(*shared, options.device, options.jobs)
    whole = {(cell["task"], cell["way"], cell["seed"]) for cell in cells}
    lock = threading.Lock()

    def run(task: str, way: str, seed: int) -> None:
        print(f"{task}, {way}, seed {seed}", file=sys.stderr)
        try:
            cell = run_cell(task, way, seed, campaign)
        except OutOfTimeError:
            print("the time is over; the same command goes on", file=sys.stderr)
            return
        except RuntimeError as error:  # one cell that cannot be does not end the others
            print(error, file=sys.stderr)
            return
        with lock, open(options.out / "cells.jsonl", "a", encoding="utf-8") as file:
            machine = {"machine": read_processor_name(), "cores": count_cores()}
            cells.append({**cell, **machine, "device": options.device, "jobs": options.jobs})
            file.write(json.dumps(cells[-1]) + "\n")

    with ThreadPoolExecutor(options.jobs) as pool:
        for way in (way for way in WAYS if way in options.ways):
            seeds = range(1 if way == "frozen" else options.seeds)  # it draws nothing
            wanted = [(task, way, s) for s in seeds for task in TASKS if task in options.tasks]
            list(pool.map(lambda cell: run(*cell), [c for c in wanted if c not in whole]))


def measure_again(options: argparse.Namespace, cells: list[dict[str, Any]]) -> None:
    """Measure the models of all cells again, and write their file anew."""
    campaign = Campaign(options.data, options.encoder, tuple(options.text), options.out, 0.0)
    for cell in (cell for cell in cells if cell["way"] != "frozen"):
        folder = options.out / "runs" / f"{cell['task']}-{cell['way']}-{cell['seed']}"
        source = find_task(cell["task"], campaign)
        if cell["way"] != "student":
            cell.update(measure(folder, source))
            continue
        float32 = measure(folder / "student", source)
        cell.update(float32)
        if "score_float32" in cell:
            cell |= {f"{name}_float32": value for name, value in float32.items()}
            cell.update(measure(folder / "int8", source))
    with atomic_text(options.out / "cells.jsonl") as file:
        file.writelines(f"{json.dumps(cell)}\n" for cell in cells)


def main() -> int:
    """Run what is left of the campaign, and print its tables."""
    options = parse_options()
    options.out.mkdir(parents=True, exist_ok=True)
    file = options.out / "cells.jsonl"
    cells = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    if not options.only_print:
        if options.data is None or options.encoder is None:
            print("--data and --encoder are needed for new cells", file=sys.stderr)
            return 2
        if options.measure:
            measure_again(options, cells)
        else:
            run_cells(options, cells)
    print(make_table(cells))
    results.write(options.json, {"cells": cells})
    return 0


if __name__ == "__main__":
    sys.exit(main())
