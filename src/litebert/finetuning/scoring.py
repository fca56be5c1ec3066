"""What a model says about the items of a task: logits without padding to speak of, answers, scores.

Items are sorted by length and taken as many at a time as fit a number of tokens, so nothing is padded to the longest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from litebert.finetuning.batches import PaddedRows, pad_rows
from litebert.finetuning.items import Item
from litebert.finetuning.outputs import Output
from litebert.finetuning.task import Task
from litebert.model.task_model import TaskModel
from litebert.train import device as devices

EVALUATION_TOKENS = 8192
"""Tokens per forward pass without gradients, padding included."""


Logits = list[NDArray[np.float32]]
"""Of each item, as `Output.of_item` gives them."""


@dataclass(frozen=True)
class EncodedPart:
    """A part of a task, read and encoded once."""

    name: str
    examples: list[Any]
    items: list[Item]

    @property
    def known(self) -> list[int]:
        """Which items have targets."""
        return [i for i, item in enumerate(self.items) if item.target is not None]


def metric_name(task: Task[Any]) -> str:
    """The score that chooses the weights, as `score_parts` names it."""
    return task.metric if len(task.dev) == 1 else f"{task.dev[0]}_{task.metric}"


def score_parts(task: Task[Any], parts: Sequence[EncodedPart], logits: Mapping[str, Logits]) -> dict[str, float]:
    """Scores of parts from their logits by name, with the part's name in front where there are several."""
    scores: dict[str, float] = {}
    for part in parts:
        found = task.score(part.examples, task.answers(part.examples, part.items, logits[part.name]))
        prefix = "" if len(parts) == 1 else f"{part.name}_"
        scores.update({prefix + name: value for name, value in found.items()})
    return scores


def score_tests(task: Task[Any], parts: Sequence[EncodedPart], logits: Mapping[str, Logits]) -> dict[str, float]:
    """Scores of the test parts whose answers are known, under names that begin with the part's, as in test_f1."""
    scores: dict[str, float] = {}
    for part in parts:
        if part.known:
            found = task.score(part.examples, task.answers(part.examples, part.items, logits[part.name]))
            scores.update({f"{part.name}_{name}": value for name, value in found.items()})
    return scores


@torch.no_grad()
def network_logits(model: TaskModel, device: devices.Device, rows: PaddedRows) -> NDArray[np.float32]:
    """Logits of rows from a network on a device: (R, C), or (R, S, C) of every token. It is in evaluation mode."""
    with device.autocast_context():
        logits = model(*(torch.from_numpy(array).to(device.device) for array in rows))
    found: NDArray[np.float32] = logits.float().cpu().numpy()
    return found


def logits_of(
    compute: Callable[[PaddedRows], NDArray[np.float32]], items: Sequence[Item], output: Output, pad_id: int
) -> Logits:
    """Logits of each item, in order, by any engine: `compute` gives (R, C) or (R, S, C) for R rows of S tokens."""
    order = sorted(range(len(items)), key=lambda i: -items[i].length)
    out: Logits = [np.zeros(0, np.float32)] * len(items)
    start = 0
    while start < len(order):
        width = items[order[start]].length
        rows = 0
        end = start
        while end < len(order) and (end == start or (rows + len(items[order[end]].rows)) * width <= EVALUATION_TOKENS):
            rows += len(items[order[end]].rows)
            end += 1
        here = [items[i] for i in order[start:end]]
        found = compute(pad_rows([row for item in here for row in item.rows], pad_id))
        ends = np.cumsum([len(item.rows) for item in here])
        for i, item, own in zip(order[start:end], here, np.split(found, ends[:-1]), strict=True):
            out[i] = output.of_item(own, item)
        start = end
    return out


def one_answer(output: Output, part: EncodedPart, logits: Logits) -> bool:
    """Whether everything in a part is answered alike, where the right answers differ."""
    known = part.known
    return bool(known) and output.one_answer([part.items[i].target for i in known], [logits[i] for i in known])
