"""A model's logits for the items of a task, with hardly any padding, and their scores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from litebert.base.errors import NonFiniteError
from litebert.base.progress import track
from litebert.tasks.outputs import Output
from litebert.tasks.rows import PaddedRows, group_by_length
from litebert.tasks.task import Task
from litebert.tasks.values import EncodedPart, Item, Logits
from litebert.train.ranks import Ranks

if TYPE_CHECKING:  # who answers without PyTorch has no network
    from litebert.model.task_model import TaskModel
    from litebert.train import device as devices

_ALONE = Ranks()
Compute = Callable[[PaddedRows], NDArray[np.float32]]
MapPasses = Callable[[Compute, Sequence[PaddedRows]], Iterable[NDArray[np.float32]]]
EVALUATION_TOKENS = 8192
"""Tokens per forward pass without gradients, padding included."""


def name_metric(task: Task[Any]) -> str:
    return task.metric if len(task.dev) == 1 else f"{task.dev[0]}_{task.metric}"


def score_parts(
    task: Task[Any], parts: Sequence[EncodedPart], logits: Mapping[str, Logits]
) -> dict[str, float]:
    """Compute the scores of the labeled parts from logits by part; names begin with the part's, as
    in test_f1, but those of the only development part.
    """

    def answer(part: EncodedPart) -> list[Any]:
        if not are_finite(logits[part.name]):
            raise NonFiniteError(
                f"the logits of {part.name} are not finite, so the run stopped; start another "
                "--out with a lower --train.optimizer.learning-rate"
            )
        return task.answers(part.examples, part.items, logits[part.name])

    return score_answers(task, parts, answer)


def score_answers(
    task: Task[Any], parts: Sequence[EncodedPart], answer: Callable[[EncodedPart], list[Any]]
) -> dict[str, float]:
    """Compute the scores of `score_parts` of the answers that `answer` gives to a part."""
    scores: dict[str, float] = {}
    tuned = task
    for part in parts:
        if part.name in task.dev or any(item.target is not None for item in part.items):
            answers = answer(part)
            scorer = task if part.name in task.dev else tuned
            part_scores = scorer.score(part.examples, answers)
            if part.name in task.dev[:1]:
                tuned = task.tune(part.examples, answers)
            prefix = "" if task.dev == (part.name,) else f"{part.name}_"
            scores.update({prefix + name: value for name, value in part_scores.items()})
    return scores


def are_finite(logits: Logits) -> bool:
    """Return True if no logit is a NaN or an infinity, from which answers would still be made."""
    if not logits:
        return True
    return bool(np.isfinite(np.concatenate([values.ravel() for values in logits])).all())


def has_one_answer(output: Output, part: EncodedPart, logits: Logits) -> bool:
    labeled = [i for i, item in enumerate(part.items) if item.target is not None]
    return bool(labeled) and output.one_answer(
        [part.items[i].target for i in labeled], [logits[i] for i in labeled]
    )


def compute_network_logits(
    model: TaskModel, device: devices.Device, rows: PaddedRows, every: bool = False
) -> NDArray[np.float32]:
    """Compute the logits of rows with a network in evaluation mode: (R, C), or (R, S, C) of every
    token; with `every`, those of [CLS] after each of L layers, (R, L, C).
    """
    import torch  # other engines need none of it

    with torch.no_grad(), device.autocast_context():
        inputs = [torch.from_numpy(array).to(device.device) for array in rows]
        logits = model(*inputs, every=True).transpose(0, 1) if every else model(*inputs)
    values: NDArray[np.float32] = logits.float().cpu().numpy()
    return values


def compute_logits(
    compute: Compute,
    items: Sequence[Item],
    output: Output,
    pad_id: int,
    positions: int | None = None,
    ranks: Ranks = _ALONE,
    *,
    most: int = EVALUATION_TOKENS,
    padding: int | None = None,
    together: int = 1,
    map_passes: MapPasses | None = None,
) -> Logits:
    """Compute the logits of each item, in order, with any engine: `compute` gives (R, C) or (R, S,
    C) for R rows of S tokens, or (R / 2, C) of pairs whose texts are read apart.

    It gets items of nearly the same length, as `group_by_length` groups them by `most` and
    `padding`, and pads none beyond `positions`. `together` is that of `PaddedRows`. The processes
    of `ranks` share the work, and all get the logits. `map_passes` computes passes side by side;
    all of them are in memory.
    """
    lengths, rows = [item.length for item in items], [len(item.rows) for item in items]
    out: Logits = [np.zeros(0, np.float32)] * len(items)
    chunks = list(group_by_length(lengths, most, rows, padding))
    assigned, computed = ranks.turns(len(chunks)), {}
    total = sum(len(chunks[turn]) for turn in assigned)
    reported = track(assigned, "scoring", total, "items", lambda turn: len(chunks[turn]))
    with nullcontext(assigned) if len(assigned) == 1 else reported as turns:
        padded = (
            PaddedRows(
                [row for i in chunks[turn] for row in items[i].rows], pad_id, positions, together
            )
            for turn in assigned
        )
        made = map(compute, padded) if map_passes is None else map_passes(compute, list(padded))
        for turn, values in zip(turns, made, strict=True):
            computed[turn] = values
    for chunk, chunk_logits in zip(chunks, ranks.union(computed), strict=True):
        end = 0
        joined = len(chunk_logits) == len(chunk)  # of pairs whose texts are read apart
        for i in chunk:
            begin, end = end, end + (1 if joined else rows[i])
            out[i] = output.of_item(chunk_logits[begin:end], items[i])
    return out
