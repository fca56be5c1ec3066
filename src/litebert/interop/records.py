"""Files beside the weights of a litebert folder: its config, its task and its tokenizer, without
torch.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

from litebert.base.errors import ConfigError, ModelError, nearest
from litebert.base.json_reader import read_json
from litebert.config import Config, HeadActivation, Pooling
from litebert.config.serialization import from_dict
from litebert.interop.hf.families import TASK_HEADS
from litebert.interop.loaded import outputs_of
from litebert.tokenizer import Tokenizer

MOST = 10_000_000
"""No task has more classes or tokens; checked before anything is counted up to it."""
_TOKENIZER_FILES = ("tokenizer.json", "spiece.model", "sentencepiece.bpe.model", "vocab.txt")


def read_recipe(path: Path) -> Config:
    try:
        return from_dict(Config, read_json(path, ModelError))
    except ConfigError as error:
        raise ModelError(f"{path}: {error}") from None


def read_tokenizer(folder: Path) -> Tokenizer | None:
    return (
        Tokenizer.load(folder)
        if any((folder / name).is_file() for name in _TOKENIZER_FILES)
        else None
    )


def read_own_tokenizer(folder: Path) -> Tokenizer | None:
    """The tokenizer of a litebert folder, which an export holds beside its graph."""
    return read_tokenizer(folder / "tokenizer") or read_tokenizer(folder)


def read_task(path: Path) -> dict[str, Any]:
    task = read_json(path, ModelError)
    outputs, classes = outputs_of(task.get("kind")), task.get("classes")
    labels = task.get("labels", [])
    allowed = {
        "kind": (*TASK_HEADS, "backbone"),
        "dense": (None, *get_args(HeadActivation)),
        "problem": (None, *outputs),
        "pooling": (None, *get_args(Pooling)),
    }
    for key, names in allowed.items():
        if (name := task.get(key)) not in names:
            raise ModelError(
                f"{path} has {key} {name!r}; {nearest(str(name), filter(None, names))}"
            )
    for key in ("classes", "length"):
        number = task.get(key, 1 if key == "length" else None)
        least = 0 if key == "classes" and task["kind"] == "backbone" else 1
        if not isinstance(number, int) or isinstance(number, bool) or not least <= number <= MOST:
            raise ModelError(
                f"{path} has {key} {number!r}; it must be a whole number from {least} to {MOST:,}"
            )
    exits = task.get("exits", {"patience": 1, "threshold": 1.0})
    patience, threshold = (
        exits.get(name) if isinstance(exits, dict) else None for name in ("patience", "threshold")
    )
    if not (isinstance(patience, int) and patience > 0) or not (
        isinstance(threshold, (int, float)) and threshold >= 0
    ):
        raise ModelError(
            f"{path} has exits {exits!r}; it must hold a patience of 1 or more and a "
            "threshold of 0 or more"
        )
    if (
        not isinstance(labels, list)
        or len(set(map(str, labels))) < len(labels)
        or any("\ud800" <= char <= "\udfff" for char in "".join(map(str, labels)))
    ):
        raise ModelError(
            f"{path} has labels {labels!r}; list the names of all classes, each once, or none"
        )
    try:
        next(
            output for name, output in outputs.items() if task.get("problem") in (None, name)
        ).from_saved(classes, labels)
    except ModelError as error:
        raise ModelError(
            f"{path} has classes {classes} and {len(labels)} labels: {error}"
        ) from None
    return task
