"""A small encoder and small tables for the tests of fine-tuning."""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from litebert.config import replace
from litebert.config.finetuning import FinetuneConfig
from litebert.recipes.finetuning import finetune_preset

if TYPE_CHECKING:
    from litebert.finetuning.results import Finetuned

RECIPE = """
[sequences]
length = 64

[encoder]
embedding_size = 8
hidden_size = 32
layers = 2
heads = 2
intermediate_size = 64
max_positions = 64
"""


def recipe_file(folder: Path, extra: str = "") -> Path:
    """An untrained encoder, as a file that `finetune` takes for a model."""
    path = folder / "small.toml"
    path.write_text(RECIPE + extra)
    return path


def config(
    *,
    epochs: float = 4,
    rate: float = 3e-3,
    seed: int = 0,
    choose: tuple[str, ...] = (),
    **changes: object,
) -> FinetuneConfig:
    """A quick run in float32; `choose` names what it leaves open."""
    base = finetune_preset("small", "table")
    optimizer = replace(base.train.optimizer, learning_rate=None if "rate" in choose else rate)
    train = replace(
        base.train,
        batch=None if "batch" in choose else "16 sequences",
        precision="float32",
        optimizer=optimizer,
        save_every="3 steps",
        seed=seed,
    )
    length = None if "length" in choose else 32
    if "head" in choose:
        changes = {"head_reads": None, "fit_head": None, **changes}
    return replace(base, length=length, epochs=epochs, train=train, **changes)  # type: ignore[arg-type]


def finetune_seeds(
    model: Any,
    data: Any,
    out: Path,
    config: Any = None,
    *,
    on_step: Callable[[Any], None] | None = None,
    unlabeled: Any = None,
    **options: Any,
) -> list[Finetuned]:
    """`litebert.finetuning.run.finetune_seeds` with fields of the config as keywords, and a
    function that is called after every step of the run.
    """
    from litebert.finetuning import run, trainable
    from litebert.train.loop import Loop

    fields = {
        name: options.pop(name) for name in ("seeds", "baseline", "mislabeled") if name in options
    }
    config = replace(config, **fields) if fields else config
    data = data if unlabeled is None else data.with_unlabeled(unlabeled)
    with patch.object(trainable, "Loop", partial(Loop, on_step=on_step)):
        return run.finetune_seeds(model, data, out, config, **options)


def finetune(*words: Any, **options: Any) -> Finetuned:
    """The first run of `finetune_seeds`."""
    return finetune_seeds(*words, **options)[0]


RESULTS = ("best.safetensors", "model/model.safetensors", "predictions/dev.csv", "scores.json")
"""Files that a finished run leaves."""


def same_files(first: Path, second: Path, *names: str) -> None:
    """The files of two runs are equal to the byte: `RESULTS`, and others."""
    for name in (*RESULTS, *names):
        assert (first / name).read_bytes() == (second / name).read_bytes(), name


def write_table(
    path: Path, rows: int, seed: int = 0, labels: tuple[str, ...] = ("no", "yes")
) -> Path:
    """Texts of made-up syllables; the label says which of some words the text begins with."""
    draw = random.Random(seed)
    syllables = [a + b for a in "bdfgklmnprst" for b in "aeiou"]
    signs = {label: syllables[7 * i] + syllables[11 * i + 3] for i, label in enumerate(labels)}
    with open(path, "w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["text", "label"])
        for _ in range(rows):
            label = draw.choice(labels)
            words = [
                "".join(draw.choices(syllables, k=draw.randint(1, 3)))
                for _ in range(draw.randint(2, 14))
            ]
            table.writerow([" ".join([signs[label], *words]), label])
    return path


def read_rows(path: Path) -> list[dict[str, str]]:
    """The rows of a table as CSV."""
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


LIMITS = {"ba": (0.0, 0.5), "de": (0.8, 1.6), "lu": (2.0, 4.0)}
"""The word that a text begins with, and the range of its number."""


def write_ranges(path: Path, rows: int, seed: int) -> Path:
    """Texts of some words, with the ranges that the first of them means."""
    draw, lines = random.Random(seed), []
    for word in draw.choices(list(LIMITS), k=rows):
        text = " ".join([word, *draw.choices(["ga", "ke", "mi", "no"], k=draw.randint(1, 6))])
        lines.append(json.dumps({"text": text, "low": LIMITS[word][0], "high": LIMITS[word][1]}))
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def finetune_on_other_labels(place: Path, folder: Path, tokenizer: Path) -> Path:
    """A model fine-tuned on the tables train.csv and dev.csv of a folder, whose `yes` is `si`."""
    from litebert import finetune, open_task

    for part in ("train", "dev"):
        text = (place / f"{part}.csv").read_text(encoding="utf-8").replace(",yes", ",si")
        (folder / f"{part}.csv").write_text(text, encoding="utf-8")
    finetune(
        recipe_file(folder),
        open_task("table", folder / "train.csv", dev=folder / "dev.csv"),
        folder / "other",
        config(epochs=1, restart=False),
        tokenizer=tokenizer,
    )
    return folder / "other"
