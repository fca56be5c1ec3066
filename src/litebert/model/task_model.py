"""An encoder with a fine-tuning head.

Fact of the official code: fine-tuning heads put dropout 0.1 before their linear map.

Shapes: B sequences, S tokens, H hidden size, C classes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from litebert.config import Activation, EncoderConfig
from litebert.errors import ModelError
from litebert.model.encoder import Encoder, EncoderOutput, initialiser
from litebert.model.feedforward import ACTIVATIONS

HeadActivation = Literal[Activation, "tanh"]
HEAD_ACTIVATIONS: dict[HeadActivation, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    **{name: function for name, function in ACTIVATIONS.items()},  # noqa: C416 (a copy with the wider kind of key)
}
"""What may follow the dense map of a fine-tuning head."""


class TaskHead(nn.Module):
    """Dropout and one linear map, H -> C; with `dense`, dropout and a map H -> H with that activation come before."""

    def __init__(
        self, config: EncoderConfig, classes: int, dense: HeadActivation | None = None, dropout: float = 0.1
    ) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.dense = None
        if dense is not None:
            self.activation = HEAD_ACTIVATIONS[dense]
            self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.classifier = nn.Linear(config.hidden_size, classes)
        self.apply(initialiser(config))

    def forward(self, x: Tensor) -> Tensor:
        """(..., H) -> (..., C)."""
        x = self.dropout(x)
        if self.dense is not None:
            x = self.dropout(self.activation(self.dense(x)))
        logits: Tensor = self.classifier(x)
        return logits


class TaskModel(nn.Module):
    """An encoder with a fine-tuning head.

    `kind` says what the head returns: `sequence` (B, C); `tokens` (B, S, C); `span` (B, S, 2), start and end; `choice`
    (B, 1), one score per choice. `tokens` and `span` read every token, the others [CLS]: the pooled state, or without
    a pooler the last state through a dense map of the head's own with the activation `dense`. RoBERTa's code has tanh
    there, which makes that map a pooler, and ELECTRA's has gelu.

    Raises:
        ModelError: `dense` where the head has no place for it, or neither `dense` nor a pooler where it needs one.
    """

    READS_CLS = ("sequence", "choice")

    def __init__(self, config: EncoderConfig, kind: str, classes: int, dense: HeadActivation | None = None) -> None:
        super().__init__()
        assert kind in ("sequence", "tokens", "span", "choice"), kind
        if kind in self.READS_CLS and config.pooler == (dense is not None):
            raise ModelError(
                f"a {kind} head reads the pooled [CLS] state or has a dense map of its own; set encoder.pooler=True, "
                "or give dense an activation, and not both"
            )
        if kind not in self.READS_CLS and dense is not None:
            raise ModelError(f"a {kind} head reads every token without a dense map; leave dense={dense} out")
        self.kind, self.classes, self.dense = kind, classes, dense
        self.encoder = Encoder(config)
        self.head = TaskHead(config, classes, dense)

    def forward(
        self, input_ids: Tensor, token_type_ids: Tensor | None = None, attention_mask: Tensor | None = None
    ) -> Tensor:
        """Logits, by `kind`; inputs as in `Encoder.forward`."""
        output: EncoderOutput = self.encoder(input_ids, token_type_ids, attention_mask)
        read = output.last
        if self.kind in self.READS_CLS:
            read = output.last[:, 0] if output.pooled is None else output.pooled
        logits: Tensor = self.head(read)
        return logits
