"""One of several choices, each a row of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from litebert.finetune.items import Item
from litebert.finetune.outputs.output import Answer, Output

if TYPE_CHECKING:
    from torch import Tensor

    from litebert.finetune.batches import TaskBatch


class OneChoice(Output):
    """One of some choices, of which the head scores each. A target is the place of the right one, an int."""

    name, head, reads_cls = "choice", "choice", True
    labelled = False
    task = "choices"
    scores = ("accuracy",)

    @property
    def width(self) -> int:
        """One number for each choice."""
        return 1

    def arrange(self, logits: Tensor, batch: TaskBatch) -> Tensor:
        """(R, 1) -> (B, most choices)."""
        import torch

        scores = torch.split(logits.float().squeeze(-1), list(batch.choices))
        return torch.nn.utils.rnn.pad_sequence(list(scores), batch_first=True, padding_value=-torch.inf)

    def of_item(self, logits: NDArray[np.float32], item: Item) -> NDArray[np.float32]:
        """(choices,)."""
        return logits[:, 0]

    def answers(self, logits: Sequence[NDArray[np.float32]]) -> list[Answer]:
        """The place of the likeliest choice, the first of equals, and the probabilities of all."""
        return [Answer(int(found.argmax()), softmax(found.astype(np.float64))) for found in logits]
