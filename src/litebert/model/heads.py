"""Heads: vocabulary logits, classes, span boundaries. Each reads states, and none knows the model
that it belongs to.

Facts of the official code: the vocabulary projection is tied to the word table and has its own
bias; the heads of pretraining read without dropout, those of fine-tuning with 0.1.

Shapes: H hidden, E embedding, V vocabulary, C classes, K predicted positions.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from litebert.config import EncoderConfig, HeadActivation, Pooling, SpanBoundaryConfig
from litebert.model.encoder import make_initializer
from litebert.model.operations import Dropout, layer_norm, linear_activation, pad_rows


class VocabularyHead(nn.Module):
    """dense H -> E, activation, layer norm, then the word table and a bias (BERT's and ALBERT's
    code).

    With `prediction=hidden`: dense H -> H, activation, layer norm, the map E -> H of the embeddings
    the other way, then the word table and a bias (ModernBERT's code, whose table has the width H).
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.hidden = config.prediction == "hidden"
        width, bias = (
            (config.hidden_size, config.bias) if self.hidden else (config.embedding_size, True)
        )
        self.activation = config.activation
        self.dense = nn.Linear(config.hidden_size, width, bias=bias)
        self.norm = nn.LayerNorm(width, eps=config.norm_eps, bias=bias)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))
        self.word = (
            nn.Embedding(config.vocab_size, config.embedding_size) if config.untied else None
        )
        maps = config.untied and self.hidden and config.projects
        self.project = (
            nn.Linear(config.embedding_size, config.hidden_size, bias=False) if maps else None
        )
        self.apply(make_initializer(config))
        if self.project is not None:
            # As that of the embeddings.
            nn.init.normal_(self.project.weight, std=config.embedding_size**-0.5)

    def forward(self, x_KH: Tensor, word_VE: Tensor, map_HE: Tensor | None = None) -> Tensor:
        """Logits over the vocabulary, (..., H) with the tied table (V, E) -> (..., V).

        With `prediction=hidden`, `map_HE` is `Embedding.map`, where there is one; `untied` reads
        neither.
        """
        if self.word is not None:
            word_VE = self.word.weight
            map_HE = None if self.project is None else self.project.weight
        y_K = layer_norm(linear_activation(pad_rows(x_KH), self.dense, self.activation), self.norm)
        if self.hidden and map_HE is not None:
            y_K = y_K @ map_HE
        return F.linear(y_K, word_VE, self.bias)[: len(x_KH)]


def pool(states_BSH: Tensor, real_BS: Tensor, pooling: Pooling) -> Tensor:
    """(B, H): the state of [CLS], or the mean over the real tokens, or that scaled to length 1; or
    (B / 2, 4H) of pairs whose texts are rows after each other."""
    if pooling == "cls":
        return states_BSH[:, 0]
    mean_BH = (states_BSH * real_BS[..., None]).sum(1) / real_BS.sum(1, keepdim=True)
    if pooling == "mean":
        return mean_BH
    unit_BH = F.normalize(mean_BH, dim=-1)
    if pooling == "unit":
        return unit_BH
    u_PH, v_PH = unit_BH[::2], unit_BH[1::2]
    return torch.cat((u_PH, v_PH, (u_PH - v_PH).abs(), u_PH * v_PH), dim=-1)


class ClassifierHead(nn.Module):
    """Dropout and one linear map, H -> C; with `dense`, dropout and a map H -> H with that
    activation come before.

    RTD's is that of ELECTRA's code; its paper (section 3.1) has the last map alone, of the token
    being original. With `predicts`, what comes before is what `VocabularyHead` with
    `prediction=hidden` begins with: a map H -> H, the encoder's activation and a layer norm
    (ModernBERT's code).
    """

    def __init__(
        self,
        config: EncoderConfig,
        classes: int,
        dense: HeadActivation | None = None,
        dropout: float = 0.0,
        predicts: bool = False,
        inputs: int | None = None,
    ) -> None:
        """`inputs` are the numbers that it reads, H by default."""
        super().__init__()
        self.dropout = Dropout(dropout)
        self.dense, self.norm = None, None
        if predicts:
            self.activation: HeadActivation = config.activation
            self.dense = nn.Linear(config.hidden_size, config.hidden_size, bias=config.bias)
            self.norm = nn.LayerNorm(config.hidden_size, eps=config.norm_eps, bias=config.bias)
        elif dense is not None:
            self.activation = dense
            self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.classifier = nn.Linear(inputs or config.hidden_size, classes)
        self.apply(make_initializer(config))

    def forward(self, x: Tensor) -> Tensor:
        if self.dense is None:
            x = self.dropout(x)
        elif self.norm is None:
            x = self.dropout(linear_activation(self.dropout(x), self.dense, self.activation))
        else:
            x = self.dropout(
                layer_norm(linear_activation(x, self.dense, self.activation), self.norm)
            )
        logits: Tensor = self.classifier(x)
        return logits


class StateHead(ClassifierHead):
    """No map at all: it gives the states that it reads, as models of sentence vectors do."""

    def __init__(self) -> None:
        nn.Module.__init__(self)
        self.dropout = Dropout(0.0)

    def forward(self, x: Tensor) -> Tensor:
        return x


class SpanBoundaryHead(nn.Module):
    """Two layers over the tokens around a span and a position in it, then the word table (SpanBERT
    section 3.2).

    h0 = [x_left; x_right; p_position], h1 = norm(act(W1 h0)), y = norm(act(W2 h1)), logits = y tied
    + bias.
    """

    def __init__(self, config: EncoderConfig, sbo: SpanBoundaryConfig) -> None:
        super().__init__()
        hidden, embedding = config.hidden_size, config.embedding_size
        self.activation = config.activation
        self.position = nn.Embedding(sbo.positions, sbo.position_size)
        self.first = nn.Linear(2 * hidden + sbo.position_size, hidden)
        self.first_norm = nn.LayerNorm(hidden, eps=config.norm_eps)
        self.second = nn.Linear(hidden, embedding)
        self.second_norm = nn.LayerNorm(embedding, eps=config.norm_eps)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))
        self.apply(make_initializer(config))

    def forward(
        self, left_KH: Tensor, right_KH: Tensor, position_K: Tensor, word_VE: Tensor
    ) -> Tensor:
        """(K, V) logits; `position_K` counts from 0 at the first token of the span."""
        h_K = torch.cat(
            (pad_rows(left_KH), pad_rows(right_KH), self.position(pad_rows(position_K))), dim=-1
        )
        h_KH = layer_norm(linear_activation(h_K, self.first, self.activation), self.first_norm)
        y_KE = layer_norm(linear_activation(h_KH, self.second, self.activation), self.second_norm)
        return F.linear(y_KE, word_VE, self.bias)[: len(position_K)]
