"""Classify docstrings by their package, with a pretrained encoder beside its baseline: a task
without files of its own, with few examples, so that the effect of pretraining shows.
"""

from __future__ import annotations

import csv
import io
import random
from collections import defaultdict
from pathlib import Path

from litebert.base.errors import DataError
from litebert.base.storage import atomic_write
from litebert.config import replace
from litebert.config.finetuning import FinetuneConfig
from litebert.finetuning.results import Finetuned
from litebert.finetuning.run import finetune
from litebert.recipes.finetuning import finetune_preset
from litebert.tasks.splits import choose_held_out
from litebert.tasks.table import TableFiles
from litebert.text.python_docs import find_package, read_python_docs

CLASSES, TRAIN, DEV = 8, 100, 50
"""The number of packages, and of docstrings of each to learn from and to score on."""
_HELD_OUT_MODULES = 0.35
"""The share of a package's modules to score on; they stay whole, for their docstrings are alike."""
TEXT, LABEL = "docstring", "package"


def make_config() -> FinetuneConfig:
    """The hyper-parameters of the classifier, with the best of the rates that were tried
    (docs/decisions.md).
    """
    base = finetune_preset("small", "table")
    optimizer = replace(base.train.optimizer, learning_rate=2e-3)
    train = replace(base.train, save_every="1m", optimizer=optimizer)
    return replace(base, length=160, epochs=8, train=train)


def classify(pretrained: Path, folder: Path, device: str = "auto") -> tuple[Finetuned, int]:
    """Fine-tune a run in `folder`/classifier, or continue, beside the baseline that counts words
    and characters; return it and the number of packages. The table goes to `folder`/packages.
    """
    train, dev = write_table(folder / "packages")
    files = TableFiles.of({"train": train, "dev": dev}, text_column=TEXT, label_column=LABEL)
    run = finetune(pretrained, files, folder / "classifier", make_config(), device=device)
    return run, len(files.task.output.labels)


def write_table(folder: str | Path) -> tuple[Path, Path]:
    folder = Path(folder)
    files = folder / "train.csv", folder / "dev.csv"
    if all(file.exists() for file in files):
        return files
    splits = _split_docstrings()
    # The packages with the most docstrings.
    by_size = sorted(splits, key=lambda name: (-min(len(texts) for texts in splits[name]), name))
    packages = sorted(by_size[:CLASSES])
    if len(packages) < 2:
        raise DataError(
            "python-docs holds too few docstrings to tell packages by; install litebert "
            "with its packages"
        )
    folder.mkdir(parents=True, exist_ok=True)
    for file, split, count in zip(files, (0, 1), (TRAIN, DEV), strict=True):
        table = io.StringIO(newline="")
        rows = csv.writer(table)
        rows.writerow([TEXT, LABEL])
        for name in packages:
            rows.writerows([text, name] for text in splits[name][split][:count])
        with atomic_write(file) as handle:
            handle.write(table.getvalue().encode())
    return files


def _split_docstrings() -> dict[str, tuple[list[str], list[str]]]:
    """Split the docstrings of each package into those to learn from and those to score on, without
    packages that have too few.
    """
    modules: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for text, module in read_python_docs():
        modules[find_package(module)][module].append(" ".join(text.split("\n")))
    splits = {}
    for name, texts in sorted(modules.items()):
        held_out = (
            choose_held_out([1] * len(texts), _HELD_OUT_MODULES) if len(texts) > 1 else [False]
        )
        split: tuple[list[str], list[str]] = [], []
        for module_texts, is_held_out in zip(texts.values(), held_out, strict=True):
            split[bool(is_held_out)].extend(module_texts)
        for split_texts in split:
            random.Random(0).shuffle(split_texts)
        if len(split[0]) >= TRAIN and len(split[1]) >= DEV:
            splits[name] = split
    return splits
