"""Heads on top of the encoder: vocabulary logits, sentence classes, and the fine-tuning heads.

Each head reads an `EncoderOutput`; none knows the model it sits on. Facts of the official code: the vocabulary
projection is tied to the word table and has its own bias; sentence classes read the pooled state without dropout;
fine-tuning heads put dropout 0.1 before their linear map.

Shapes: B sequences, S tokens, H hidden, E embedding, V vocabulary, K predicted positions, C classes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from litebert.config import Activation, EncoderConfig
from litebert.errors import ModelError
from litebert.model.encoder import Encoder, EncoderOutput, initialiser
from litebert.model.feedforward import ACTIVATIONS
from litebert.model.kernels import pad_rows

HeadActivation = Literal[Activation, "tanh"]
HEAD_ACTIVATIONS: dict[HeadActivation, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    **{name: function for name, function in ACTIVATIONS.items()},  # noqa: C416 (a copy with the wider kind of key)
}
"""What may follow the dense map of a fine-tuning head."""


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
        y_KE = self.norm(self.activation(self.dense(pad_rows(x_KH))))
        return F.linear(y_KE, word_VE, self.bias)[: len(x_KH)]


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


class ReplacedTokenHead(nn.Module):
    """dense H -> H, activation, then one logit a token, of its being replaced.

    The form of the official ELECTRA code; its paper (section 3.1) has the last map alone, of the token being original.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[config.activation]
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.classifier = nn.Linear(config.hidden_size, 1)
        self.apply(initialiser(config))

    def forward(self, x_BSH: Tensor) -> Tensor:
        """(..., H) -> (...)."""
        logits: Tensor = self.classifier(self.activation(self.dense(x_BSH))).squeeze(-1)
        return logits


class SpanBoundaryHead(nn.Module):
    """Two layers over the tokens around a span and a place in it, then the word table (SpanBERT section 3.2).

    h0 = [x_left; x_right; p_place], h1 = norm(act(W1 h0)), y = norm(act(W2 h1)), logits = y tied + bias.
    """

    def __init__(self, config: EncoderConfig, positions: int, position_size: int) -> None:
        super().__init__()
        hidden, embedding = config.hidden_size, config.embedding_size
        self.activation = ACTIVATIONS[config.activation]
        self.position = nn.Embedding(positions, position_size)
        self.first = nn.Linear(2 * hidden + position_size, hidden)
        self.first_norm = nn.LayerNorm(hidden, eps=config.norm_eps)
        self.second = nn.Linear(hidden, embedding)
        self.second_norm = nn.LayerNorm(embedding, eps=config.norm_eps)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))
        self.apply(initialiser(config))

    def forward(self, left_KH: Tensor, right_KH: Tensor, place_K: Tensor, word_VE: Tensor) -> Tensor:
        """(K, V) logits; `place_K` counts from 0 at the first token of the span."""
        h_K = torch.cat((pad_rows(left_KH), pad_rows(right_KH), self.position(pad_rows(place_K))), dim=-1)
        h_KH = self.first_norm(self.activation(self.first(h_K)))
        y_KE = self.second_norm(self.activation(self.second(h_KH)))
        return F.linear(y_KE, word_VE, self.bias)[: len(place_K)]


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
