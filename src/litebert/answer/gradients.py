"""Integrated gradients: the words that decided an answer, by the gradients of the network in
PyTorch.

The tokens of a text move in steps from the mask token to themselves, and the gradients of the
log-odds are summed (Sundararajan et al. 2017, "Axiomatic Attribution for Deep Networks"). All
weights add up to the difference between the text and masks alone, but for the error of the steps.

Shapes: n tokens of a row, E embedding, C numbers of the head.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from litebert.base.errors import ConfigError
from litebert.judge.words import (
    WordWeight,
    list_words,
    require_words,
    weigh_words,
)
from litebert.tasks.values import EncodedRow
from litebert.text.records import Notes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from litebert.model.task_model import TaskModel
    from litebert.tasks.outputs import Output
    from litebert.tasks.task import Task
    from litebert.tokenizer import Tokenizer

STEPS = 64
"""Steps from the masks to the text, of equal length."""
_PASS = 16


def explain_by_gradients(
    task: Task[Any], tokenizer: Tokenizer, length: int, example: Any, network: TaskModel
) -> list[WordWeight]:
    """Compute the weight of each word of an example, in the order of the text: the sum over its
    tokens. `network` is in evaluation mode.
    """
    require_words(task)
    if task.apart:
        raise ConfigError(
            "explain is gradients, which know one row, and this model reads the texts of a pair "
            "apart; give explain occlusion"
        )
    row = task.encode([example], tokenizer, length, Notes())[0].rows[0]
    weights = integrate_gradients(task.output, tokenizer, row, network)
    spans = list_words(tokenizer, example, length)
    sums = [0.0] * len(spans)
    for field, begin in _find_segments(tokenizer, row, example):
        _, offsets = tokenizer.encode_offsets([getattr(example, field)])[0]
        for place, (start, end) in enumerate(offsets.tolist()):
            token = begin + place
            if token >= len(row.ids) or int(row.ids[token]) == tokenizer.sep_id:
                break  # the text was cut here
            for number, span in enumerate(spans):
                if span.field == field and span.start <= start and end <= span.end:
                    sums[number] += float(weights[token])
                    break
    return weigh_words(example, spans, sums)


def integrate_gradients(
    output: Output, tokenizer: Tokenizer, row: EncodedRow, network: TaskModel
) -> NDArray[np.float64]:
    """Compute the weight of each token of a row for its likeliest answer, (n,)."""
    device = next(network.parameters()).device
    ids = torch.from_numpy(row.ids.astype(np.int64))[None].to(device)
    types = torch.from_numpy(row.types.astype(np.int64))[None].to(device)
    table: nn.Embedding = network.encoder.embedding.word
    special = torch.isin(ids, torch.tensor(tokenizer.special_ids, device=device))
    blank = tokenizer.pad_id if tokenizer.mask_id is None else tokenizer.mask_id
    masks = torch.where(special, ids, torch.full_like(ids, blank))
    with torch.no_grad():
        text, nothing = table(ids), table(masks)
        decision = int(network(ids, types)[0].float().argmax())
    total = torch.zeros_like(text)
    shares = (torch.arange(STEPS, device=device) + 0.5) / STEPS
    for part in torch.split(shares, _PASS):
        points = (nothing + part[:, None, None] * (text - nothing)).requires_grad_()
        handle = table.register_forward_hook(lambda *_, points=points: points)
        try:
            logits = network(ids.expand(len(part), -1), types.expand(len(part), -1)).float()
        finally:
            handle.remove()
        odds = _compute_log_odds(output, logits, decision)
        total += torch.autograd.grad(odds.sum(), points)[0].sum(0, keepdim=True)
    sums = ((text - nothing) * total / STEPS).sum(-1)[0]
    weights: NDArray[np.float64] = sums.detach().double().cpu().numpy()
    return weights


def _compute_log_odds(output: Output, logits: Tensor, decision: int) -> Tensor:
    """Compute the log-odds of a class or a label, or the number, of each row, (B,)."""
    if not output.exclusive:
        return logits[:, decision]
    others = torch.cat((logits[:, :decision], logits[:, decision + 1 :]), dim=1)
    return logits[:, decision] - others.logsumexp(1)


def _find_segments(tokenizer: Tokenizer, row: EncodedRow, example: Any) -> list[tuple[str, int]]:
    """Find the first token of each text of a row, [CLS] first [SEP] or [CLS] first [SEP] second
    [SEP].
    """
    segments = [("text", 1)]
    if example.pair is not None:
        end = np.flatnonzero(row.ids == tokenizer.sep_id)[0]
        segments.append(("pair", int(end) + tokenizer.pair_separators))
    return segments
