"""What fine-tuning reads before it begins, once for all seeds, and what of it makes a run this run."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from litebert.config import replace
from litebert.config.finetuning import FinetuneConfig
from litebert.config.serialization import to_dict
from litebert.errors import DataError
from litebert.finetuning.items import EncodedPart, Item
from litebert.finetuning.scoring import metric_name
from litebert.finetuning.start import InitialModel, load_initial
from litebert.finetuning.task import Task
from litebert.recipes.finetuning import default_recipe_for, finetune_recipe
from litebert.tokenizer import Tokenizer

log = logging.getLogger("litebert")

FREE = ("format", "model", "steps", "test_fingerprint", "config.train.save_every", "config.train.keep_checkpoints")
"""Fields of `identity` that may change between calls: they change no weight, follow from the rest, or are compared
apart."""


@dataclass(frozen=True)
class PreparedTask:
    """What does not differ between seeds: the encoder to begin with, and all parts of the task, read and encoded."""

    source: str
    """The model as it was named."""
    task: Task[Any]
    start: InitialModel
    config: FinetuneConfig
    train: EncodedPart
    dev: tuple[EncodedPart, ...]
    tests: tuple[EncodedPart, ...]


def prepare_task(
    model: str | Path,
    task: Task[Any],
    config: FinetuneConfig | None,
    tokenizer: str | Path | None,
    start: InitialModel | None,
) -> PreparedTask:
    """Read and encode; arguments and errors are those of `finetune_seeds`."""
    start = start or load_initial(model, tokenizer, task)
    config = config or finetune_recipe(default_recipe_for(start.encoder, start.dense), task.full_name)
    if config.length > start.encoder.max_positions:
        log.info(f"length {config.length} is cut to the {start.encoder.max_positions} positions of {model}")
        config = replace(config, length=start.encoder.max_positions)
    if not task.dev:
        raise DataError(f"{task.name} has no part to choose the best weights by; give a dev file")
    train, *others = (_part(task, name, start.tokenizer, config.length) for name in ("train", *task.dev, *task.tests))
    for note in (*start.notes, *filter(None, [task.output.balance([item.target for item in train.items])])):
        log.info(note)
    dev, tests = others[: len(task.dev)], others[len(task.dev) :]
    return PreparedTask(str(model), task, start, config, train, tuple(dev), tuple(tests))


def _part(task: Task[Any], name: str, tokenizer: Tokenizer, length: int) -> EncodedPart:
    examples = task.read(name)
    items = task.encode(examples, tokenizer, length)
    for note in task.notes:
        log.info(note)
    if name == "train":
        items = [item for item in items if item.target is not None]
    if not items:
        raise DataError(f"{task.name} has no example in its {name} part; give a file with some")
    return EncodedPart(name, examples, items)


# ---- which run it is -----------------------------------------------------------------------------------------------


def identity(prepared: PreparedTask, steps: int, train: Sequence[Item]) -> dict[str, Any]:
    """What makes a run this run, as finetune.json holds it; `train` has the targets as they are learned."""
    task, start = prepared.task, prepared.start
    dev = [item for part in prepared.dev for item in part.items]
    tests = [item for part in prepared.tests for item in part.items]
    return {
        "format": 1,
        "task": task.full_name,
        "metric": metric_name(task),
        "model": prepared.source,
        "steps": steps,
        "config": to_dict(prepared.config),
        "threshold": None,  # every finetune.json of this format has one
        **task.identity(),
        "model_fingerprint": _digest(_weights(start)),
        "data_fingerprint": _digest(_tokens([*train, *dev], task.output.labels)),
        "test_fingerprint": _digest(_tokens(tests, ())),
        # Of examples as their files have them: the same for every tokenizer.
        "dev_fingerprint": _digest(
            repr(example).encode("utf-8", "backslashreplace") for part in prepared.dev for example in part.examples
        ),
    }


def _digest(pieces: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()


def _weights(start: InitialModel) -> Iterator[bytes]:
    yield json.dumps(to_dict(start.encoder)).encode()
    for name, tensor in (start.state or {}).items():
        yield name.encode() + tensor.contiguous().numpy().tobytes()


def _tokens(items: Sequence[Item], labels: Sequence[str]) -> Iterator[bytes]:
    yield json.dumps(labels).encode()
    for item in items:
        for row in item.rows:
            yield row.ids.tobytes() + row.types.tobytes()
        yield item.target.tobytes() if isinstance(item.target, np.ndarray) else repr(item.target).encode()
