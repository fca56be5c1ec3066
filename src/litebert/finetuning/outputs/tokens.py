"""What is said of tokens: a tag for each word, or the span of an answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from scipy.special import softmax

from litebert.data import IGNORED
from litebert.finetuning.outputs.output import Answer, Output, shares

if TYPE_CHECKING:
    from torch import Tensor

    from litebert.finetuning.batches import TaskBatch

BEST = 20
"""How many spans are kept of each row."""


class Tags(Output):
    """One of C tags for some of the tokens. A target is int64 (n,), `IGNORED` for a token that no word answers by."""

    name, head, reads_cls = "tokens", "tokens", False
    task, separator = "tagging", " "
    scores = ("f1", "precision", "recall")

    def collate(self, targets: Sequence[NDArray[np.int64]], size: int) -> NDArray[np.int64]:
        """(B, S)."""
        return np.stack([np.pad(target, (0, size - len(target)), constant_values=IGNORED) for target in targets])

    def count(self, batch: TaskBatch) -> int:
        """Tokens that have a tag."""
        assert batch.targets is not None
        return int((batch.targets != IGNORED).sum())

    def answers(self, logits: Sequence[NDArray[np.float32]]) -> list[Answer]:
        """The likeliest tag of each token, and its probability."""
        likely = [softmax(found.astype(np.float64), axis=-1) for found in logits]
        return [Answer(tuple(self.labels[i] for i in p.argmax(-1).tolist()), p.max(-1)) for p in likely]

    def one_answer(self, targets: Sequence[Any], logits: Sequence[NDArray[np.float32]]) -> bool:
        """The same tag for every token that has one."""
        truth = np.concatenate(targets)
        guess = np.concatenate([one.argmax(-1) for one in logits])[truth != IGNORED]
        return len(set(truth[truth != IGNORED].tolist())) > 1 and len(set(guess.tolist())) == 1

    def counts(self, targets: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
        """Words of each tag."""
        told = np.concatenate(targets)
        return np.bincount(told[told != IGNORED], minlength=len(self.labels))

    def balance(self, targets: Sequence[NDArray[np.int64]]) -> str:
        """Of the words."""
        counts = self.counts(targets)
        return shares(self.labels, counts, int(counts.sum()), "training words")


@dataclass(frozen=True)
class OneSpan(Output):
    """The first and the last token of an answer. A target is the pair of their places; (0, 0), [CLS], is no answer.

    The head gives each token one number as the first and one as the last.
    """

    longest: int = 30
    """Most tokens of an answer that is found; training knows no limit."""

    name, head, reads_cls = "span", "span", False
    classes, task = 2, "squad"
    scores = ("f1",)

    def arrange(self, logits: Tensor, batch: TaskBatch) -> Tensor:
        """(B, S, 2); no answer begins or ends in padding."""
        return logits.float().masked_fill(~batch.attention_mask[..., None], -np.inf)

    def total(self, logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """The mean of the cross-entropies of first and last token (official BERT and ALBERT code)."""
        from torch.nn import functional as F

        ends = [F.cross_entropy(logits[..., i], targets[:, i], reduction="sum") for i in (0, 1)]
        return (ends[0] + ends[1]) / 2, (logits.argmax(1) == targets).all(-1).sum()

    def answers(self, logits: Sequence[NDArray[np.floating]]) -> list[list[tuple[int, int]]]:
        """First and last token of the `BEST` spans of each item, best first.

        A span is worth the sum of its start's and its end's logit; one of minus infinity allows none there.
        """
        return [self._best(one.astype(np.float64)) for one in logits]

    def _best(self, logits: NDArray[np.float64]) -> list[tuple[int, int]]:
        n = len(logits)
        if n == 0:
            return []
        longest = min(self.longest, n)
        ends = np.append(logits[:, 1], np.full(longest - 1, -np.inf))
        scores = (logits[:, 0, None] + sliding_window_view(ends, longest)).ravel()
        few = np.argpartition(scores, -BEST)[-BEST:] if len(scores) > BEST else np.arange(len(scores))
        few = few[np.lexsort((few, -scores[few]))]
        chosen = few[np.isfinite(scores[few])]
        return [(place // longest, place // longest + place % longest) for place in chosen.tolist()]

    def one_answer(self, targets: Sequence[Any], logits: Sequence[NDArray[np.float32]]) -> bool:
        """Spans are not looked at."""
        return False
