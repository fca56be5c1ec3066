"""The one encoder: embeddings, then L layers, each an attention block and a feed-forward block.

The index maps `EncoderConfig.attention_of` and `feedforward_of` say which two blocks a layer uses;
sharing is nothing else (ALBERT sections 3.1 and 4.5). `states` walks an encoder, and its reader may
stop early, read any state out (`read_out`), or go on with some of the sequences.

Shapes: B sequences, S tokens, H hidden size.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from litebert.base.registry import POSITIONS
from litebert.config import EncoderConfig, cost
from litebert.model.blocks import Attention, FeedForward
from litebert.model.embedding import Borrows, Embedding
from litebert.model.operations import Rotation, additive, computing_dtype, layer_norm
from litebert.model.unpadded import PackedPositions, Unpadded, make_packing
from litebert.model.windows import Blocks, block_mask, window_mask


@dataclass(frozen=True)
class EncoderOutput:
    last: Tensor
    """(B, S, H): the last state, normalized once more in a pre-norm encoder."""
    pooled: Tensor | None
    """(B, H): tanh(W h_[CLS] + b); None without a pooler."""
    states: tuple[Tensor, ...] = ()
    """The embedding and the state after each layer, (B, S, H) each, if an objective reads them."""


AttentionInputs = tuple[Tensor | None, Rotation, Blocks | Unpadded | None]
"""Attention's inputs besides a state: mask, positions, blocks of a window or packed sequences."""
Selection = tuple[Tensor, int]
"""The sequences to go on with, row numbers int64 (K,), and the length in tokens that they are cut
to, behind which is padding only.
"""


def apply_layer(
    attention: nn.Module,
    feedforward: nn.Module,
    x_BSH: Tensor,
    attention_inputs: AttentionInputs,
    normalizes_input: bool,
) -> Tensor:
    """Compute the state after a layer from the one before it; both (B, S, H)."""
    x_BSH = attention(x_BSH, *attention_inputs, norm=normalizes_input)
    state: Tensor = feedforward(x_BSH)
    return state


class Encoder(nn.Module):
    """A point of the space (`config.encoder`) as a network.

    With `borrows` it is the generator of replaced token detection, which uses the tables of another
    encoder.
    """

    def __init__(self, config: EncoderConfig, borrows: Borrows | None = None) -> None:
        super().__init__()
        self.config = config
        self.recompute = False
        """True if only the state before each layer is kept, and the rest is computed again."""
        self.unpadded = False
        """True where a pass computes no padding (model/unpadded.py says when)."""
        self.apply_layer: Callable[..., Tensor] = apply_layer
        """`apply_layer`, or the same compiled (model/pretrainer.py)."""
        self.embedding = Embedding(config, borrows)
        positions = POSITIONS[config.positions](config)
        self.positions = positions.attention()
        self.window_positions = positions.window_attention() if any(config.window_map()) else None
        normed = config.attention_norms()
        self.attention = nn.ModuleList(
            Attention(config, i in normed) for i in range(max(config.attention_of()) + 1)
        )
        self.feedforward = nn.ModuleList(
            FeedForward(config) for _ in range(max(config.feedforward_of()) + 1)
        )
        pre_norm = config.norm == "pre"
        self.norm = (
            nn.LayerNorm(config.hidden_size, config.norm_eps, bias=config.bias)
            if pre_norm
            else nn.Identity()
        )
        self.pooler = nn.Linear(config.hidden_size, config.hidden_size) if config.pooler else None
        self.apply(make_initializer(config))
        if config.embedding_norm == "after" and self.embedding.map is not None:
            # A table times this map has the spread of one V x H table; with `init_std` twice,
            # learning is slow.
            nn.init.normal_(self.embedding.map, std=config.embedding_size**-0.5)

    def states(
        self,
        input_ids: Tensor,
        token_type_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        layers: int | None = None,
        lender: Embedding | None = None,
    ) -> Generator[Tensor, Selection | None, None]:
        """Yield the embedding of a batch, then the state after each layer, (B, S, H) each, computed
        on demand.

        To continue with some of the sequences, `send` a `Selection` instead of calling `next`.

        Shapes:
            input_ids, token_type_ids: (B, S) int64; no token types means all zeros
            attention_mask: (B, S), nonzero on real tokens; None where nothing is padded
            layers: apply so many layers instead of the configured depth
            lender: the embedding whose tables an encoder with `borrows` uses

        Raises:
            DataError: a sequence is longer than `max_positions`.
        """
        x_BSH = self._embed(input_ids, token_type_ids, attention_mask, lender)
        selection = yield x_BSH
        real_BS = None if attention_mask is None else attention_mask.bool()
        windowed = self.config.window_map(layers)
        # Two entries at most, for layers within the window and for the others.
        attention_inputs: dict[bool, AttentionInputs] = {}
        layer_blocks = zip(
            self.config.attention_of(layers),
            self.config.feedforward_of(layers),
            windowed,
            strict=True,
        )
        for i, (a, f, within) in enumerate(layer_blocks):
            if selection is not None:
                rows_K, length = selection
                x_BSH = x_BSH[:, :length].index_select(0, rows_K)
                real_BS = None if real_BS is None else real_BS[:, :length].index_select(0, rows_K)
            # They depend on the shape of the state, not on its numbers.
            if selection is not None or not attention_inputs:
                attention_inputs = {
                    kind: self._build_attention_inputs(kind, x_BSH, real_BS)
                    for kind in set(windowed)
                }
            normalizes_input = i > 0 or self.config.first_norm
            x_BSH = self._compute_layer(a, f, x_BSH, attention_inputs[within], normalizes_input)
            selection = yield x_BSH

    def _embed(self, *inputs: Any) -> Tensor:
        x_BSH: Tensor = self.embedding(*inputs)
        if x_BSH.is_cuda and self.config.norm == "post":
            # Every state is normalized, so none needs more digits than the products that read it.
            x_BSH = x_BSH.to(computing_dtype(x_BSH))
        return x_BSH

    def _compute_layer(self, a: int, f: int, *arguments: Any) -> Tensor:
        arguments = (self.attention[a], self.feedforward[f], *arguments)
        if self.recompute and torch.is_grad_enabled():
            # `checkpoint` restores the random state, so dropout is the same the second time.
            state: Tensor = checkpoint(self.apply_layer, *arguments, use_reentrant=False)
            return state
        return self.apply_layer(*arguments)

    def _build_attention_inputs(
        self, within: bool, x_BSH: Tensor, real_BS: Tensor | None
    ) -> AttentionInputs:
        """Build the inputs of attention besides a state, for layers `within` the window or others;
        `x_BSH` gives its shape, dtype and device alone.
        """
        (batch, length), device = x_BSH.shape[:2], x_BSH.device
        positions = self._choose_positions(within)
        bias = positions.bias(length)
        reach = self.config.window // 2  # tokens on each side
        first = min(self.config.global_tokens, length)  # G
        blocks = None
        mask = None if real_BS is None else real_BS[:, None, None, :]
        if within:
            is_traced = torch.compiler.is_compiling() or torch._C._get_tracing_state()
            can_cut = bias is None and not is_traced  # model/windows.py says why
            block_size = cost.window_block(self.config, length) if can_cut else 0
            if block_size:
                mask = block_mask(reach, block_size, batch, length, real_BS, device, first)
                blocks = Blocks(block_size, first)
            else:
                mask = window_mask(reach, length, real_BS, device, first)
            if bias is None:  # numbers, once for all layers
                mask = additive(mask, computing_dtype(x_BSH))
            if blocks and first and real_BS is not None:
                first_mask = window_mask(reach, length, real_BS, device, first, queries=first)
                blocks = blocks._replace(first_mask=additive(first_mask, computing_dtype(x_BSH)))
        if bias is not None:
            # The sum may be computed in float32 or, under autocast, in bfloat16. The lowest number
            # of bfloat16 is finite in both.
            mask = bias if mask is None else bias + additive(mask, torch.bfloat16)
        return mask, positions, blocks

    def attention_weights(
        self, layer: int, state_BSH: Tensor, attention_mask: Tensor | None = None
    ) -> Tensor:
        """Compute how much each token reads of every other in a layer (from 0), given the state
        before it: (B, A, S, S), rows summing to 1.

        For analysis: training and answers never hold all weights.
        """
        config, length = self.config, state_BSH.shape[1]
        within, positions = config.window_map()[layer], self._positions_of(layer)
        q_BASD, k_BASD, _ = self.projections(layer, state_BSH)
        scores_BASS = q_BASD @ k_BASD.transpose(-1, -2) * q_BASD.shape[-1] ** -0.5
        if (bias := positions.bias(length)) is not None:
            scores_BASS = scores_BASS + bias
        real_BS = None if attention_mask is None else attention_mask.bool()
        device, first = state_BSH.device, config.global_tokens
        mask = window_mask(config.window // 2, length, real_BS, device, first) if within else None
        if mask is None and real_BS is not None:
            mask = real_BS[:, None, None, :]
        weights: Tensor = (
            scores_BASS if mask is None else scores_BASS + additive(mask, scores_BASS.dtype)
        ).softmax(-1)
        return weights

    def projections(self, layer: int, state_BSH: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of a layer (from 0), (B, A, S, D) each, after the rotation of
        positions, from the state before the layer.
        """
        block = self.attention[self.config.attention_of()[layer]]
        assert isinstance(block, Attention)
        normed = block.pre_norm and (layer > 0 or self.config.first_norm)
        x_BSH = layer_norm(state_BSH, block.norm) if normed else state_BSH
        qkv = block.qkv(x_BSH).view(*x_BSH.shape[:2], 3, block.heads, -1)
        q_BASD, k_BASD, v_BASD = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        positions = self._positions_of(layer)
        return positions.rotate(q_BASD), positions.rotate(k_BASD), v_BASD

    def _positions_of(self, layer: int) -> Any:
        return self._choose_positions(self.config.window_map()[layer])

    def _choose_positions(self, within: bool) -> Any:
        if within and self.window_positions is not None:
            return self.window_positions
        return self.positions

    def read_out(self, state_BSH: Tensor) -> EncoderOutput:
        last = layer_norm(state_BSH, self.norm)
        return EncoderOutput(
            last, None if self.pooler is None else torch.tanh(self.pooler(last[:, 0]))
        )

    def forward(
        self,
        input_ids: Tensor,
        token_type_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        layers: int | None = None,
        lender: Embedding | None = None,
    ) -> EncoderOutput:
        drops = self.training and self.config.attention_dropout > 0
        if self.unpadded and attention_mask is not None and not drops:
            return self.read_out(
                self._compute_unpadded(input_ids, token_type_ids, attention_mask, layers, lender)
            )
        states = self.states(input_ids, token_type_ids, attention_mask, layers, lender)
        return self.read_out(deque(states, maxlen=1).pop())

    def _compute_unpadded(
        self,
        input_ids: Tensor,
        token_type_ids: Tensor | None,
        attention_mask: Tensor,
        layers: int | None,
        lender: Embedding | None,
    ) -> Tensor:
        """Compute the last state of a batch, (B, S, H), zero on the padding."""
        x_BSH = self._embed(input_ids, token_type_ids, attention_mask, lender)
        packing = make_packing(attention_mask.bool())
        inputs: dict[bool, AttentionInputs] = {}
        for within in (False, True):
            positions = self._choose_positions(within)
            reach = self.config.window // 2 if within else -1
            packed = PackedPositions(positions, packing.place_T)
            inputs[within] = (None, packed, Unpadded(packing, reach))
        x_1TH = packing.pack(x_BSH)
        numbers = zip(
            self.config.attention_of(layers),
            self.config.feedforward_of(layers),
            self.config.window_map(layers),
            strict=True,
        )
        for i, (a, f, within) in enumerate(numbers):
            normalizes_input = i > 0 or self.config.first_norm
            x_1TH = self._compute_layer(a, f, x_1TH, inputs[within], normalizes_input)
        return packing.unpack(x_1TH, *input_ids.shape)

    def depths(self) -> dict[nn.Parameter, int]:
        """The highest layer that uses each parameter; 0 for the embedding, L + 1 on top."""
        depths = dict.fromkeys(self.parameters(), self.config.layers + 1)
        depths.update(dict.fromkeys(self.embedding.parameters(), 0))
        for positions in filter(None, (self.positions, self.window_positions)):
            depths.update(dict.fromkeys(positions.parameters(), self.config.layers))
        for layer, (a, f) in enumerate(
            zip(self.config.attention_of(), self.config.feedforward_of(), strict=True)
        ):
            for block in (self.attention[a], self.feedforward[f]):
                depths.update(dict.fromkeys(block.parameters(), layer + 1))
        return depths


def make_initializer(config: EncoderConfig) -> Callable[[nn.Module], None]:
    """A function for `Module.apply`: weights by `config.init`, biases 0, norms 1."""
    std = config.init_std

    def initialize(module: nn.Module) -> None:
        if isinstance(module, (nn.Linear, nn.Embedding)):
            if config.init == "truncated_normal":
                nn.init.trunc_normal_(module.weight, std=std, a=-2 * std, b=2 * std)
            else:
                nn.init.normal_(module.weight, std=std)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    return initialize
