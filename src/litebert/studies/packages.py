"""Which package does a docstring come from? A pretrained classifier on the built-in corpus, beside
its baseline.

The question is easy to ask and has a right answer, and there are few examples: what pretraining
bought shows.
"""

from __future__ import annotations

import csv
import io
import random
from collections import defaultdict
from pathlib import Path

from litebert.config import replace
from litebert.config.finetuning import FinetuneConfig
from litebert.errors import DataError
from litebert.finetuning.run import Finetuned, finetune
from litebert.recipes.finetuning import finetune_recipe
from litebert.storage import atomic_write
from litebert.tasks.splits import choose_held_out
from litebert.tasks.table import Table
from litebert.text.python_docs import find_package, read_python_docs

CLASSES, TRAIN, DEV = 8, 100, 50
"""Packages, and docstrings of each to learn from and to score on."""
_MODULES_APART = 0.35
"""Share of a package's modules whose docstrings are scored on: those of one module resemble one
another.
"""
TEXT, LABEL = "docstring", "package"


def settings() -> FinetuneConfig:
    """The hyper-parameters of the classifier, with the best of the rates that were tried
    (docs/decisions.md).
    """
    base = finetune_recipe("small", "table")
    optimizer = replace(base.train.optimizer, learning_rate=2e-3)
    return replace(
        base, length=160, epochs=8, train=replace(base.train, save_every="1m", optimizer=optimizer)
    )


def classify(pretrained: Path, folder: Path) -> tuple[Finetuned, int]:
    """Fine-tune a run in `folder`/classifier, beside the baseline that counts words and characters.

    The table goes to `folder`/packages. The same call again continues.

    Returns:
        The run, and the number of packages.
    """
    train, dev = write_table(folder / "packages")
    task = Table(train, dev, text=TEXT, label=LABEL)
    return finetune(pretrained, task, folder / "classifier", settings()), len(task.output.labels)


def write_table(folder: Path) -> tuple[Path, Path]:
    """Write train.csv and dev.csv unless they are there; their paths.

    Raises:
        DataError: fewer than two packages have enough docstrings.
    """
    files = folder / "train.csv", folder / "dev.csv"
    if all(file.exists() for file in files):
        return files
    parts = _parts()
    chosen = sorted(parts, key=lambda name: (-min(len(part) for part in parts[name]), name))[
        :CLASSES
    ]
    if len(chosen) < 2:
        raise DataError(
            "python-docs holds too few docstrings to tell packages by; install litebert "
            "with its packages"
        )
    folder.mkdir(parents=True, exist_ok=True)
    for file, which, count in zip(files, (0, 1), (TRAIN, DEV), strict=True):
        table = io.StringIO(newline="")
        rows = csv.writer(table)
        rows.writerow([TEXT, LABEL])
        for name in sorted(chosen):
            rows.writerows([text, name] for text in parts[name][which][:count])
        with atomic_write(file) as handle:
            handle.write(table.getvalue().encode())
    return files


def _parts() -> dict[str, tuple[list[str], list[str]]]:
    """Docstrings to learn from and to score on, of each package with enough of both."""
    modules: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for text, where in read_python_docs():
        modules[find_package(where)][where].append(" ".join(text.split("\n")))
    parts = {}
    for name, texts in sorted(modules.items()):
        apart = choose_held_out(len(texts), _MODULES_APART) if len(texts) > 1 else [False]
        part: tuple[list[str], list[str]] = [], []
        for of_module, held in zip(texts.values(), apart, strict=True):
            part[bool(held)].extend(of_module)
        for chosen in part:
            random.Random(0).shuffle(chosen)
        if len(part[0]) >= TRAIN and len(part[1]) >= DEV:
            parts[name] = part
    return parts
