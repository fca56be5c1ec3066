"""What a model says about the items of a task: logits without padding to speak of, answers, scores.

Items are sorted by length and taken as many at a time as fit a number of tokens, so nothing is padded to the longest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from litebert.config import replace
from litebert.model.heads import TaskModel
from litebert.tasks import losses
from litebert.tasks.batches import collate, item_length
from litebert.tasks.task import Item, Task
from litebert.train import device as devices

EVALUATION_TOKENS = 8192
"""Tokens per forward pass without gradients, padding included."""


@dataclass(frozen=True)
class Part:
    """A part of a task, read and encoded once."""

    name: str
    examples: list[Any]
    items: list[Item]


def metric_name(task: Task[Any]) -> str:
    """The score that chooses the weights, as `score_parts` names it."""
    return task.metric if len(task.dev) == 1 else f"{task.dev[0]}_{task.metric}"


def score_parts(
    model: TaskModel, task: Task[Any], parts: Sequence[Part], pad_id: int, scale: tuple[float, float],
    device: devices.Device,
) -> dict[str, float]:  # fmt: skip
    """Scores of all parts, with the part's name in front where there are several."""
    scores: dict[str, float] = {}
    for part in parts:
        logits = logits_of(model, part.items, task, pad_id, device, scale)
        found = task.score(part.examples, task.answers(part.examples, part.items, logits))
        prefix = "" if len(parts) == 1 else f"{part.name}_"
        scores.update({prefix + name: value for name, value in found.items()})
    return scores


@torch.no_grad()
def logits_of(
    model: TaskModel,
    items: Sequence[Item],
    task: Task[Any],
    pad_id: int,
    device: devices.Device,
    scale: tuple[float, float] = (0.0, 1.0),
) -> list[NDArray[np.float32]]:
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


def one_answer(model: TaskModel, task: Task[Any], part: Part, pad_id: int, machine: devices.Device) -> bool:
    """Whether the model answers every example of a part alike, where the right answers differ."""
    known = [item for item in part.items if item.target is not None]
    if task.problem not in ("classes", "choice") or len({item.target for item in known}) < 2:
        return False
    return len({int(found.argmax()) for found in logits_of(model, known, task, pad_id, machine)}) == 1
