"""A small model, and what it is asked when it is scored."""

from __future__ import annotations

from typing import Any

import torch

from litebert.data.batches import Batch
from litebert.data.shards import Shards
from litebert.model.objectives import Loss
from litebert.model.pretrainer import Pretrainer
from litebert.train.device import choose
from litebert.train.evaluate import evaluate_split
from toys.pretraining import config

CPU = choose("float32", "cpu")


def model_of(seed: int = 0, **fields: Any) -> Pretrainer:
    torch.manual_seed(seed)
    return Pretrainer(config(**fields))


def seen_by(
    model: Pretrainer, shards: Shards, **options: Any
) -> tuple[dict[str, list[Batch]], dict[str, float]]:
    """The batches that each objective of a model is scored on, and its scores."""
    batches: dict[str, list[Batch]] = {}
    read: list[tuple[Loss, Batch]] = []
    for name, objective in model.named_objectives.items():

        def loss(output: Any, batch: Batch, context: Any, compute: Any = objective.loss) -> Loss:
            read.append((compute(output, batch, context), batch))
            return read[-1][0]

        def scores_of(
            losses: Any, name: str = name, compute: Any = objective.scores
        ) -> dict[str, float]:
            batches.setdefault(name, []).extend(
                batch for loss in losses for other, batch in read if loss is other
            )
            return compute(losses)  # type: ignore[no-any-return]

        objective.loss, objective.scores = loss, scores_of  # type: ignore[method-assign]
    scores = evaluate_split(
        model, shards.heldout, shards.tokenizer, CPU, **{"length": 32, **options}
    )
    for objective in model.named_objectives.values():
        del objective.loss, objective.scores
    return batches, scores


def original(batch: Batch) -> torch.Tensor:
    """The text under masks or samples, flat."""
    ids = batch.input_ids.flatten().clone()
    ids[batch.masked_positions] = batch.masked_labels
    return ids


def assert_same_questions(first: list[Batch], second: list[Batch]) -> None:
    """The same tokens of the same text are to be predicted."""
    for a, b in zip(first, second, strict=True):
        assert torch.equal(a.masked_positions, b.masked_positions)
        assert torch.equal(original(a), original(b))
