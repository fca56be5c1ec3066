"""Logits of a `TaskModel` against the targets of a batch, by problem; sums, as the loop wants them.

Shapes: B items, R rows, S tokens, C classes.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from litebert.finetune.batches import IGNORED, TaskBatch
from litebert.finetune.task import Problem
from litebert.model.objectives import Loss


def arrange(logits: Tensor, batch: TaskBatch, problem: Problem) -> Tensor:
    """Logits as the problem reads them, in float32, with minus infinity where there is nothing to choose.

    Shapes: span (B, S, 2); choice (B, most choices); else as the model gives them.
    """
    logits = logits.float()
    if problem == "span":
        return logits.masked_fill(~batch.attention_mask[..., None], -torch.inf)
    if problem == "choice":
        scores = torch.split(logits.squeeze(-1), list(batch.choices))
        return torch.nn.utils.rnn.pad_sequence(list(scores), batch_first=True, padding_value=-torch.inf)
    if problem == "number":
        return logits.squeeze(-1)
    return logits


def count(batch: TaskBatch, problem: Problem) -> int:
    """How many predictions `loss` sums."""
    assert batch.targets is not None
    if problem == "tokens":
        return int((batch.targets != IGNORED).sum())
    return len(batch.choices)


def loss(logits: Tensor, batch: TaskBatch, problem: Problem) -> Loss:
    """Summed loss over the items (over the judged tokens for `tokens`).

    Cross-entropy for classes, tokens and choices; its mean over start and end for spans (official BERT and ALBERT
    code); squared error for numbers; the mean over the labels of binary cross-entropy for several labels.
    """
    targets = batch.targets
    assert targets is not None
    logits = arrange(logits, batch, problem)
    if problem == "number":
        total = F.mse_loss(logits, targets, reduction="sum")
        correct = torch.zeros((), dtype=torch.int64, device=logits.device)
    elif problem == "labels":
        total = F.binary_cross_entropy_with_logits(logits, targets, reduction="none").mean(-1).sum()
        correct = ((logits > 0) == (targets > 0.5)).all(-1).sum()
    elif problem == "span":
        ends = [F.cross_entropy(logits[..., i], targets[:, i], reduction="sum") for i in (0, 1)]
        total = (ends[0] + ends[1]) / 2
        correct = (logits.argmax(1) == targets).all(-1).sum()
    else:
        flat, labels = logits.reshape(-1, logits.shape[-1]), targets.reshape(-1)
        total = F.cross_entropy(flat, labels, ignore_index=IGNORED, reduction="sum")
        correct = (flat.argmax(-1) == labels).sum()
    return Loss(total, torch.tensor(count(batch, problem), device=logits.device), correct)
