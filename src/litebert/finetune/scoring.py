"""What a model says about the items of a task: logits without padding to speak of, answers, scores.

Items are sorted by length and taken as many at a time as fit a number of tokens, so nothing is padded to the longest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from litebert.config import replace
from litebert.finetune import losses
from litebert.finetune.batches import IGNORED, collate, item_length
from litebert.finetune.task import Item, Task
from litebert.model.task_model import TaskModel
from litebert.train import device as devices

EVALUATION_TOKENS = 8192
"""Tokens per forward pass without gradients, padding included."""


Logits = list[NDArray[np.float32]]
"""Of each item: (C,), (n, C), (n, 2) or (choices,)."""


@dataclass(frozen=True)
class Part:
    """A part of a task, read and encoded once."""

    name: str
    examples: list[Any]
    items: list[Item]


def metric_name(task: Task[Any]) -> str:
    """The score that chooses the weights, as `score_parts` names it."""
    return task.metric if len(task.dev) == 1 else f"{task.dev[0]}_{task.metric}"


def score_parts(task: Task[Any], parts: Sequence[Part], logits: Mapping[str, Logits]) -> dict[str, float]:
    """Scores of parts from their logits by name, with the part's name in front where there are several."""
    scores: dict[str, float] = {}
    for part in parts:
        found = task.score(part.examples, task.answers(part.examples, part.items, logits[part.name]))
        prefix = "" if len(parts) == 1 else f"{part.name}_"
        scores.update({prefix + name: value for name, value in found.items()})
    return scores


def score_tests(task: Task[Any], parts: Sequence[Part], logits: Mapping[str, Logits]) -> dict[str, float]:
    """Scores of the test parts whose answers are known, under names that begin with the part's, as in test_f1."""
    scores: dict[str, float] = {}
    for part in parts:
        if any(item.target is not None for item in part.items):
            found = task.score(part.examples, task.answers(part.examples, part.items, logits[part.name]))
            scores.update({f"{part.name}_{name}": value for name, value in found.items()})
    return scores


@torch.no_grad()
def logits_of(
    model: TaskModel,
    items: Sequence[Item],
    task: Task[Any],
    pad_id: int,
    device: devices.Device,
    scale: tuple[float, float] = (0.0, 1.0),
) -> Logits:
    """Logits of each item, in order, without those of padding; numbers as mean + deviation x what the head gives."""
    was_training = model.training
    model.eval()
    order = sorted(range(len(items)), key=lambda i: -item_length(items[i]))
    out: list[NDArray[np.float32]] = [np.zeros(0, np.float32)] * len(items)
    start = 0
    while start < len(order):
        width = item_length(items[order[start]])
        rows = 0
        end = start
        while end < len(order) and (end == start or (rows + len(items[order[end]].rows)) * width <= EVALUATION_TOKENS):
            rows += len(items[order[end]].rows)
            end += 1
        here = order[start:end]
        batch = collate([replace(items[i], target=None) for i in here], task.problem, pad_id).to(device.device)
        with device.autocast_context():
            logits = model(batch.input_ids, batch.token_type_ids, batch.attention_mask)
        arranged = losses.arrange(logits, batch, task.problem).cpu()
        for i, found in zip(here, arranged, strict=True):
            if task.problem == "number":
                found = found.reshape(1) * scale[1] + scale[0]
            elif task.problem == "choice":
                found = found[: len(items[i].rows)]
            elif task.problem in ("tokens", "span"):
                found = found[: len(items[i].rows[0].ids)]
            out[i] = found.numpy()
        start = end
    model.train(was_training)
    return out


def one_answer(task: Task[Any], part: Part, logits: Logits) -> bool:
    """Whether everything in a part is answered alike, where the right answers differ. Spans are not looked at."""
    known = [(item.target, found) for item, found in zip(part.items, logits, strict=True) if item.target is not None]
    if task.problem == "span" or not known:
        return False
    targets, found = zip(*known, strict=True)
    if task.problem == "number":
        return bool(np.std(targets) > 0 and np.std(np.concatenate(found)) < 1e-3 * np.std(targets))
    if task.problem == "labels":
        return len(set(targets)) > 1 and len({tuple((one > 0).tolist()) for one in found}) == 1
    if task.problem == "tokens":
        truth = np.concatenate(targets)
        guess = np.concatenate([one.argmax(-1) for one in found])[truth != IGNORED]
        return len(set(truth[truth != IGNORED].tolist())) > 1 and len(set(guess.tolist())) == 1
    return len(set(targets)) > 1 and len({int(one.argmax()) for one in found}) == 1
