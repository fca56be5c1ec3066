"""A tag for each word of a text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from litebert.data.passages import IGNORED
from litebert.finetune.outputs.output import Answer, Output, rounded, shares

if TYPE_CHECKING:
    from torch import Tensor

    from litebert.finetune.batches import TaskBatch


class Tags(Output):
    """One of C tags for some of the tokens. A target is int64 (n,), `IGNORED` for a token that no word answers by."""

    name, head, reads_cls = "tokens", "tokens", False
    task = "tagging"
    scores = ("f1", "precision", "recall")
    separator = " "

    def collate(self, targets: Sequence[NDArray[np.int64]], size: int) -> Tensor:
        """int64 (B, S)."""
        import torch

        padded = np.full((len(targets), size), IGNORED, np.int64)
        for i, target in enumerate(targets):
            padded[i, : len(target)] = target
        return torch.from_numpy(padded)

    def count(self, batch: TaskBatch) -> int:
        """Tokens that have a tag."""
        assert batch.targets is not None
        return int((batch.targets != IGNORED).sum())

    def answers(self, logits: Sequence[NDArray[np.float32]]) -> list[Answer]:
        """The likeliest tag of each token, and its probability."""
        answers = []
        for found in logits:
            likely = softmax(found.astype(np.float64), axis=-1)
            answers.append(Answer(tuple(self.labels[i] for i in found.argmax(-1).tolist()), likely.max(-1)))
        return answers

    def record(self, answer: Answer) -> dict[str, Any]:
        """The tags and their probabilities."""
        return {"prediction": list(answer.value), "probabilities": rounded(answer)}

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
