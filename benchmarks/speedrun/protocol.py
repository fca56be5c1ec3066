"""The protocol of the speedrun, the same for every run: text, tokenizer, clock and scores.

Every result is a file, so that a campaign which was interrupted continues with what is missing.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from litebert import PrepareConfig, evaluate, prepare, train_tokenizer
from litebert.base.storage import write_json
from litebert.text.sources import read_documents

VOCABULARY = 8192
HELDOUT = 0.02
"""Share of the documents, chosen by their text: the same ones on every machine."""
POINTS = 10
"""Points of a curve of the held-out loss."""
SEQUENCES, FINAL_SEQUENCES = 512, 4096
"""Held-out sequences that a point of a baseline's curve, and every last score, are taken from."""
OUR_SEQUENCES = 64
"""The same of a point of our curve, which our clock counts: theirs are scored when the run is
over."""
TASKS = {"sst2": "accuracy", "cola": "matthews", "rte": "accuracy"}
"""Tasks of GLUE, and the score of each."""
TASK_STEPS = 1000


class Shape(NamedTuple):
    """Sizes of a baseline, and of the sequences that it and the last scores have."""

    hidden: int
    embedding: int
    layers: int
    heads: int
    length: int
    batch: int


SHAPES = {"tiny": Shape(128, 64, 6, 4, 64, 64), "mini": Shape(256, 128, 8, 8, 128, 32)}
"""The sizes of albert-tiny and albert-mini, with 4,096 tokens in a batch."""


@dataclass
class Result:
    """One run: who trained, from which seed, for how long, and what came of it."""

    system: str
    seed: int
    minutes: float
    seconds: float
    """Seconds of wall clock, from the start of the command to its end."""
    tokens: int
    """That it trained on."""
    parameters: int
    loss: float
    accuracy: float
    """On masked pieces of held-out text; masks at 15%, the same for all."""
    curve: list[tuple[float, float]] = field(default_factory=list)
    """Minutes since the start of the command, and the held-out loss then."""
    blimp: dict[str, dict[str, float]] = field(default_factory=dict)
    """Accuracy and standard error of both forms of pseudo-log-likelihood."""
    tasks: dict[str, float] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)


def data(sources: Sequence[str], folder: Path, language: str) -> Path:
    """The shards of the text, with a tokenizer trained on it."""
    if not (folder / "tokenizer").exists():
        texts = (document.text for document in read_documents(sources))
        train_tokenizer(texts, kind="unigram", vocab_size=VOCABULARY, shrink=True).write(
            folder / "tokenizer"
        )
    shards = folder / "data"
    prepare(
        sources,
        shards,
        tokenizer=folder / "tokenizer",
        config=PrepareConfig(language=language, heldout=HELDOUT),
    )
    return shards


def time_command(words: Sequence[str | Path], log: Path) -> float:
    """Seconds that a command takes; what it says goes to a file.

    Raises:
        SystemExit: it failed.
    """
    began = time.monotonic()
    with open(log, "wb") as file:
        status = subprocess.run(
            [str(word) for word in words], stdout=file, stderr=subprocess.STDOUT
        ).returncode
    if status:
        raise SystemExit(f"{' '.join(map(str, words))}\nended with status {status}; see {log}")
    return time.monotonic() - began


def litebert(*words: str | Path) -> list[str]:
    """A command line of litebert, as this interpreter runs it."""
    return [sys.executable, "-m", "litebert", *map(str, words)]


def ask_litebert(*words: str | Path) -> Any:
    """The answer of a command of litebert to --json."""
    done = subprocess.run(litebert(*words, "--json", "--quiet"), stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


def heldout_loss(model: Path, shards: Path, sequences: int, length: int) -> tuple[float, float]:
    """Loss and accuracy on masked pieces."""
    scores = evaluate(model, shards=shards, sequences=sequences, length=length).scores
    return scores["mlm_loss"], scores["mlm_accuracy"]


def add_scores(
    result: Result, model: Path, blimp: Path | None, glue: Path | None, folder: Path, seeds: int
) -> None:
    """Grammar without labels, and tasks with them, where their files are given and the result lacks
    the score.
    """
    if blimp is not None and not result.blimp:
        accuracies = ask_litebert("evaluate", model, "--blimp", blimp)["blimp"]["overall"]
        result.blimp = {form: accuracies[form] for form in ("plain", "within_word")}
        save(folder / "result.json", result)
    for task, metric in TASKS.items():
        if glue is not None and task not in result.tasks:
            words = (
                "--task",
                task,
                "--data",
                glue,
                "--out",
                folder / task,
                "--steps",
                str(TASK_STEPS),
            )
            record = ask_litebert("finetune", model, *words, "--seeds", str(seeds))
            result.tasks[task] = (
                record["seeds"][metric]["median"] if seeds > 1 else record["scores"][metric]
            )
            save(folder / "result.json", result)


def load_result(file: Path) -> Result | None:
    """A result that is there already."""
    return Result(**json.loads(file.read_text(encoding="utf-8"))) if file.exists() else None


def save(file: Path, result: Result) -> None:
    """Write a result whole."""
    write_json(file, asdict(result))
