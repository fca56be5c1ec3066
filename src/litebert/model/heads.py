"""Heads on top of the encoder: vocabulary logits, sentence classes, and the fine-tuning heads.

Each head reads an `EncoderOutput`; none knows the model it sits on. Facts of the official code: the vocabulary
projection is tied to the word table and has its own bias; sentence classes read the pooled state without dropout;
fine-tuning heads put dropout 0.1 before their linear map.

Shapes: B sequences, S tokens, H hidden, E embedding, V vocabulary, K predicted positions, C classes.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from litebert.config import EncoderConfig
from litebert.errors import ModelError
from litebert.model.encoder import Encoder, EncoderOutput, initialiser
from litebert.model.feedforward import ACTIVATIONS


class VocabularyHead(nn.Module):
    """dense H -> E, activation, layer norm, then the word table and a bias (facts of BERT's and ALBERT's MLM head)."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[config.activation]
        self.dense = nn.Linear(config.hidden_size, config.embedding_size)
        self.norm = nn.LayerNorm(config.embedding_size, eps=config.norm_eps)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))
        self.apply(initialiser(config))

    def forward(self, x_KH: Tensor, word_VE: Tensor) -> Tensor:
        """Logits over the vocabulary, (..., H) with the tied table (V, E) -> (..., V)."""
        return F.linear(self.norm(self.activation(self.dense(x_KH))), word_VE, self.bias)


class SentenceHead(nn.Module):
    """Pooled state to two classes: 0 in order (or next), 1 swapped (or random)."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.classifier = nn.Linear(config.hidden_size, 2)
        self.apply(initialiser(config))

    def forward(self, pooled_BH: Tensor) -> Tensor:
        """(B, H) -> (B, 2)."""
        logits: Tensor = self.classifier(pooled_BH)
        return logits


class TaskHead(nn.Module):
    """Dropout and one linear map: pooled (B, H) -> (B, C) for `sequence` and `choice`, every token for the others."""

    def __init__(self, config: EncoderConfig, classes: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.classifier = nn.Linear(config.hidden_size, classes)
        self.apply(initialiser(config))

    def forward(self, x: Tensor) -> Tensor:
        """(..., H) -> (..., C)."""
        logits: Tensor = self.classifier(self.dropout(x))
        return logits


class TaskModel(nn.Module):
    """An encoder with a fine-tuning head.

    `kind` says what the head reads and returns: `sequence` pooled -> (B, C); `tokens` every token -> (B, S, C);
    `span` every token -> (B, S, 2), start and end; `choice` pooled -> (B, 1), one score per choice.
    """

    READS_POOLED = ("sequence", "choice")

    def __init__(self, config: EncoderConfig, kind: str, classes: int) -> None:
        super().__init__()
        assert kind in ("sequence", "tokens", "span", "choice"), kind
        if kind in self.READS_POOLED and not config.pooler:
            raise ModelError(f"a {kind} head reads the pooled [CLS] state; set encoder.pooler=True")
        self.kind, self.classes = kind, classes
        self.encoder = Encoder(config)
        self.head = TaskHead(config, classes)

    def forward(
        self, input_ids: Tensor, token_type_ids: Tensor | None = None, attention_mask: Tensor | None = None
    ) -> Tensor:
        """Logits, by `kind`; inputs as in `Encoder.forward`."""
        output: EncoderOutput = self.encoder(input_ids, token_type_ids, attention_mask)
        if self.kind in self.READS_POOLED:
            assert output.pooled is not None
            logits: Tensor = self.head(output.pooled)
        else:
            logits = self.head(output.last)
        return logits
