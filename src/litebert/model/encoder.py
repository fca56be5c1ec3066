"""The one encoder: embeddings, then layer i = attention[a_of[i]] followed by feedforward[f_of[i]].

Sharing is nothing but the two index maps `EncoderConfig.attention_of` and `feedforward_of` (ALBERT sections 3.1 and
4.5): none, all, attention only, feed-forward only and groups are five maps over the same code.

Shapes: B sequences, S tokens, H hidden size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from litebert.config import EncoderConfig
from litebert.model.attention import Attention
from litebert.model.embedding import BorrowedEmbedding, Embedding, Rotary
from litebert.model.feedforward import FeedForward


@dataclass(frozen=True)
class EncoderOutput:
    """Everything a forward pass computed; the analyses are readers of it.

    Shapes:
        embeddings: (B, S, H), the input of the first layer
        layers: one (B, S, H) per applied layer
        last: (B, S, H), the last layer's state, normalised once more in a pre-norm encoder
        pooled: (B, H), tanh(W h_[CLS] + b); None without a pooler
    """

    embeddings: Tensor
    layers: tuple[Tensor, ...]
    last: Tensor
    pooled: Tensor | None


class Layers(nn.Module):
    """An embedding and the layers over it: what the encoder and a generator have in common."""

    def __init__(self, config: EncoderConfig, embedding: nn.Module) -> None:
        super().__init__()
        self.config = config
        self.embedding = embedding
        self.rotary = Rotary(config) if config.positions == "rotary" else None
        self.attention = nn.ModuleList(Attention(config) for _ in range(max(config.attention_of()) + 1))
        self.feedforward = nn.ModuleList(FeedForward(config) for _ in range(max(config.feedforward_of()) + 1))
        pre_norm = config.norm == "pre"
        self.norm = nn.LayerNorm(config.hidden_size, config.norm_eps, bias=config.bias) if pre_norm else nn.Identity()
        self.pooler = nn.Linear(config.hidden_size, config.hidden_size) if config.pooler else None
        self.apply(initialiser(config))

    def run(self, embedded_BSH: Tensor, attention_mask: Tensor | None, layers: int | None) -> EncoderOutput:
        """The layers over what is embedded."""
        mask = None if attention_mask is None else attention_mask.bool()[:, None, None, :]
        x_BSH = embedded_BSH
        states = []
        maps = zip(self.config.attention_of(layers), self.config.feedforward_of(layers), strict=True)
        for a, f in maps:
            x_BSH = self.feedforward[f](self.attention[a](x_BSH, mask, self.rotary))
            states.append(x_BSH)
        last = self.norm(x_BSH)
        pooled = None if self.pooler is None else torch.tanh(self.pooler(last[:, 0]))
        return EncoderOutput(embedded_BSH, tuple(states), last, pooled)


class Encoder(Layers):
    """A point of the space as a network."""

    embedding: Embedding

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config, Embedding(config))

    def forward(
        self,
        input_ids: Tensor,
        token_type_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        layers: int | None = None,
    ) -> EncoderOutput:
        """Encode a batch.

        Shapes:
            input_ids, token_type_ids: (B, S) int64; no token types means all zeros
            attention_mask: (B, S), nonzero on real tokens; None where nothing is padded
            layers: apply so many layers instead of the configured depth

        Raises:
            DataError: a sequence is longer than `max_positions`.
        """
        return self.run(self.embedding(input_ids, token_type_ids, attention_mask), attention_mask, layers)


class Generator(Layers):
    """Another point of the space, over the tables of an encoder (ELECTRA section 3.2)."""

    embedding: BorrowedEmbedding

    def __init__(self, config: EncoderConfig, borrows: Literal["tables", "all"]) -> None:
        super().__init__(config, BorrowedEmbedding(config, borrows))

    def forward(
        self,
        input_ids: Tensor,
        token_type_ids: Tensor | None,
        attention_mask: Tensor | None,
        layers: int | None,
        lender: Embedding,
    ) -> EncoderOutput:
        """As `Encoder.forward`, with the embedding that lends its tables."""
        return self.run(self.embedding(input_ids, token_type_ids, attention_mask, lender), attention_mask, layers)


def initialiser(config: EncoderConfig) -> Callable[[nn.Module], None]:
    """A function for `Module.apply`: weights by `config.init`, biases 0, norms 1."""

    def initialise(module: nn.Module) -> None:
        if isinstance(module, (nn.Linear, nn.Embedding)):
            if config.init == "truncated_normal":
                bound = 2 * config.init_std
                nn.init.trunc_normal_(module.weight, std=config.init_std, a=-bound, b=bound)
            else:
                nn.init.normal_(module.weight, std=config.init_std)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    return initialise
