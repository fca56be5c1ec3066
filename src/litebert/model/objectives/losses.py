"""What the losses of several objectives share; it needs torch, so they import it inside their functions.

Shapes: N labels, C classes (or pieces of the vocabulary).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from litebert.model.objectives.objective import IGNORED, Loss


def cross_entropy(logits_NC: Tensor, labels_N: Tensor, training: bool) -> Loss:
    """Sums in float32, whatever the autocast precision; in evaluation mode with the labels."""
    logits_NC = logits_NC.float()
    total = F.cross_entropy(logits_NC, labels_N, ignore_index=IGNORED, reduction="sum")
    with torch.no_grad():
        correct = (logits_NC.argmax(-1) == labels_N).sum()
        count = (labels_N != IGNORED).sum()
    return Loss(total, count, correct, eval_tensors={} if training else {"labels": labels_N})


def joined(losses: Sequence[Loss], name: str) -> Tensor:
    """One of the evaluation tensors of all losses."""
    return torch.cat([loss.eval_tensors[name] for loss in losses])
