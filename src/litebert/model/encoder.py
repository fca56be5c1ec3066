"""The one encoder: embeddings, then layer i = attention[a_of[i]] followed by feedforward[f_of[i]].

Sharing is nothing but the two index maps `EncoderConfig.attention_of` and `feedforward_of` (ALBERT sections 3.1 and
4.5): none, all, attention only, feed-forward only and groups are five maps over the same code.

An encoder is a stack one can walk: `states` yields one state after another, and whoever reads them may look into each,
stop early, and apply the final norm and the pooler to any of them (`read_out`). Calling an encoder walks to the end
and keeps the last state alone, unless it is asked for all.

Shapes: B sequences, S tokens, H hidden size.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn

from litebert.config import EncoderConfig
from litebert.model.attention import Attention
from litebert.model.embedding import BorrowedEmbedding, Embedding
from litebert.model.feedforward import FeedForward
from litebert.model.kernels import additive
from litebert.registry import POSITIONS


@dataclass(frozen=True)
class EncoderOutput:
    """What a forward pass gives to heads and objectives.

    Shapes:
        last: (B, S, H), the last state, normalised once more in a pre-norm encoder
        pooled: (B, H), tanh(W h_[CLS] + b); None without a pooler
        states: (B, S, H) each, the embedding and the state after every layer; empty unless they were asked for
    """

    last: Tensor
    pooled: Tensor | None
    states: tuple[Tensor, ...] = ()


class EncoderStack(nn.Module):
    """An embedding and the layers over it: what the encoder and a generator have in common."""

    def __init__(self, config: EncoderConfig, embedding: nn.Module) -> None:
        super().__init__()
        self.config = config
        self.embedding = embedding
        self.positions = POSITIONS[config.positions](config).attention()
        self.attention = nn.ModuleList(Attention(config) for _ in range(max(config.attention_of()) + 1))
        self.feedforward = nn.ModuleList(FeedForward(config) for _ in range(max(config.feedforward_of()) + 1))
        pre_norm = config.norm == "pre"
        self.norm = nn.LayerNorm(config.hidden_size, config.norm_eps, bias=config.bias) if pre_norm else nn.Identity()
        self.pooler = nn.Linear(config.hidden_size, config.hidden_size) if config.pooler else None
        self.apply(initialiser(config))

    def walk(self, x_BSH: Tensor, attention_mask: Tensor | None, layers: int | None) -> Iterator[Tensor]:
        """What is embedded, then the state after each layer; nothing that was yielded is kept."""
        mask = None if attention_mask is None else attention_mask.bool()[:, None, None, :]
        bias = self.positions.bias(x_BSH.shape[1])
        if bias is not None:  # the lowest number of bfloat16 is finite in float32 too, and autocast may go either way
            mask = bias if mask is None else bias + additive(mask, torch.bfloat16)
        yield x_BSH
        for a, f in zip(self.config.attention_of(layers), self.config.feedforward_of(layers), strict=True):
            x_BSH = self.feedforward[f](self.attention[a](x_BSH, mask, self.positions))
            yield x_BSH

    def read_out(self, state_BSH: Tensor) -> EncoderOutput:
        """The final norm and the pooler over the state after any layer."""
        last = self.norm(state_BSH)
        return EncoderOutput(last, None if self.pooler is None else torch.tanh(self.pooler(last[:, 0])))

    def encode(self, states: Iterator[Tensor], all_states: bool) -> EncoderOutput:
        """The output over the last of the states, with all of them if they are asked for."""
        kept = deque(states, maxlen=None if all_states else 1)
        return replace(self.read_out(kept[-1]), states=tuple(kept) if all_states else ())

    def depths(self) -> dict[nn.Parameter, int]:
        """The highest layer that reads each parameter: 0 is the embedding, L + 1 the norm and the pooler on top."""
        depths = dict.fromkeys(self.parameters(), self.config.layers + 1)
        depths.update(dict.fromkeys(self.embedding.parameters(), 0))
        depths.update(dict.fromkeys(self.positions.parameters(), self.config.layers))
        for layer, (a, f) in enumerate(zip(self.config.attention_of(), self.config.feedforward_of(), strict=True)):
            for block in (self.attention[a], self.feedforward[f]):
                depths.update(dict.fromkeys(block.parameters(), layer + 1))
        return depths


class Encoder(EncoderStack):
    """A point of the space as a network."""

    embedding: Embedding

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config, Embedding(config))

    def states(
        self,
        input_ids: Tensor,
        token_type_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        layers: int | None = None,
    ) -> Iterator[Tensor]:
        """The embedding of a batch, then the state after each layer, (B, S, H) each, computed when it is asked for.

        Shapes:
            input_ids, token_type_ids: (B, S) int64; no token types means all zeros
            attention_mask: (B, S), nonzero on real tokens; None where nothing is padded
            layers: apply so many layers instead of the configured depth

        Raises:
            DataError: a sequence is longer than `max_positions`.
        """
        return self.walk(self.embedding(input_ids, token_type_ids, attention_mask), attention_mask, layers)

    def forward(
        self,
        input_ids: Tensor,
        token_type_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        layers: int | None = None,
        all_states: bool = False,
    ) -> EncoderOutput:
        """Encode a batch, given as to `states`, to the last layer."""
        return self.encode(self.states(input_ids, token_type_ids, attention_mask, layers), all_states)


class Generator(EncoderStack):
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
        all_states: bool = False,
    ) -> EncoderOutput:
        """As `Encoder.forward`, with the embedding that lends its tables."""
        states = self.walk(self.embedding(input_ids, token_type_ids, attention_mask, lender), attention_mask, layers)
        return self.encode(states, all_states)


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
