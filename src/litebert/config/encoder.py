"""THE SPACE of encoders: shape, sharing, norms, positions, dropout and initialization.

Symbols of the papers: H hidden size, E embedding size, V vocabulary size, L layers, A heads, I
intermediate size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from litebert.base.errors import nearest, require
from litebert.base.registry import POSITIONS
from litebert.config.ranges import require_range

Sharing = Literal["none", "all", "attention", "feedforward", "groups"]
Activation = Literal["gelu", "gelu_tanh", "relu", "silu"]
HeadActivation = Literal[Activation, "tanh"]
"""The activations that may follow the dense map of a classifier."""
Pooling = Literal["cls", "mean", "unit", "apart"]
"""The input of a classifier of a whole text: the last state of [CLS], the mean over the real
tokens, or that mean scaled to length 1. With `apart`, the two texts of a pair are rows of their
own, of which it reads the means u and v of length 1, their distances |u - v| and products u * v.
"""

SIZES = "vocab_size", "embedding_size", "hidden_size", "layers", "heads", "intermediate_size"
"""The fields that are at least 1."""
LARGEST_SIZES = {
    "vocab_size": 100_000_000,
    "embedding_size": 1_000_000,
    "hidden_size": 1_000_000,
    "layers": 10_000,
    "heads": 100_000,
    "intermediate_size": 10_000_000,
    "max_positions": 10_000_000,
    "position_offset": 1_000_000,
    "segment_types": 1_000_000,
    "window": 10_000_000,
    "global_every": 10_000,
    "global_tokens": 10_000,
}
"""Upper bounds that catch typing errors before anything is counted or built. Memory is checked
later (`cost.require_room`).
"""


@dataclass(frozen=True, kw_only=True)
class EncoderConfig:
    """The one encoder (ALBERT section 3.1; BERT section 3). Sizes are counts, dropouts are
    probabilities.
    """

    vocab_size: int = 30000
    """V: tokens in the vocabulary. A run takes it from the tokenizer of its data."""
    embedding_size: int = 128
    """E: width of the embeddings. If E differs from H, a linear map E -> H follows them."""
    hidden_size: int = 768
    """H: width of the hidden states."""
    layers: int = 12
    """L: how many layers are applied, each an attention and a feed-forward block."""
    heads: int = 12
    """A: attention heads; H must be a multiple of it."""
    intermediate_size: int = 3072
    """I: width of the feed-forward block (of each of its two branches when gated)."""
    sharing: Sharing = "all"
    """Blocks that layers share; groups are of adjacent layers."""
    groups: int = 1
    """Number of groups; used only with sharing=groups."""
    max_positions: int = 512
    """Longest sequence, in tokens."""
    position_offset: int = 0
    """Rows of the position table before that of the first token; two in RoBERTa."""
    segment_types: int = 2
    """Rows of the token type table; 0 for none. With 1, every token has that row."""
    positions: str = "learned"
    """How the encoder knows the order of tokens, by a name in `POSITIONS`."""
    rotary_base: float = 10000.0
    """Base of the angles of rotary positions."""
    window_rotary_base: float = 10000.0
    """The base of the angles in the layers that attend within a window."""
    window: int = 0
    """Tokens that a token of a windowed layer reads, half on each side; 0 for no windows."""
    global_every: int = 1
    """One layer in so many reads everything, from the first on; 0 where all are windowed."""
    global_tokens: int = 0
    """First tokens of a sequence that read all tokens, and are read by all (Beltagy et al. 2020,
    section 3.1)."""
    embedding_norm: Literal["before", "after"] = "before"
    """Place of the layer norm of the embeddings: before or after the map E -> H."""
    norm: Literal["post", "pre"] = "post"
    """Place of the layer norms: after each residual sum (post), or before each block (pre)."""
    first_norm: bool = True
    """Normalize the input of the first attention too, with norm=pre."""
    norm_eps: float = 1e-12
    """Epsilon of every layer norm."""
    feedforward: Literal["plain", "gated"] = "plain"
    """plain: act(xW)V. gated: (act(xW) * xU)V."""
    activation: Activation = "gelu_tanh"
    """gelu is the erf form, gelu_tanh the tanh form that the official ALBERT code uses."""
    bias: bool = True
    """Biases in the linear maps and norms of the encoder."""
    always_project: bool = False
    """Keep the E -> H map even if E = H, as `transformers` does for ALBERT."""
    prediction: Literal["embedding", "hidden"] = "embedding"
    """Maps between the last state and the vocabulary: dense to E (embedding), or to H and then E
    (hidden)."""
    untied: bool = False
    """Give the head before the vocabulary a table and a map of its own."""
    pooler: bool = True
    """tanh(W h_[CLS] + b), which sentence objectives and classifiers read."""
    hidden_dropout: float = 0.0
    """Dropout after the embeddings and after each attention and feed-forward block."""
    attention_dropout: float = 0.0
    """Dropout of the attention probabilities."""
    init: Literal["truncated_normal", "normal"] = "truncated_normal"
    """How weights are drawn; truncated at two standard deviations in the TensorFlow releases."""
    init_std: float = 0.02
    """Standard deviation of the initial weights."""

    def __post_init__(self) -> None:
        require_range(self, "encoder.", *SIZES, "groups", least=1)
        for name, most in LARGEST_SIZES.items():
            require_range(self, "encoder.", name, most=most)
        require_range(self, "encoder.", "max_positions", least=8)
        others = "segment_types", "position_offset", "global_every", "global_tokens"
        require_range(self, "encoder.", *others, least=0)
        require_range(self, "encoder.", "hidden_dropout", "attention_dropout", least=0, below=1)
        require_range(self, "encoder.", "rotary_base", "window_rotary_base", least=1, most=1e12)
        require_range(self, "encoder.", "norm_eps", "init_std", above=0)
        require(
            self.hidden_size % self.heads == 0,
            f"encoder.hidden_size {self.hidden_size} is not a multiple of encoder.heads "
            f"{self.heads}",
        )
        require(
            self.positions in POSITIONS,
            f"encoder.positions is '{self.positions}'; {nearest(self.positions, POSITIONS)}",
        )
        positions = POSITIONS[self.positions](self)
        positions.check()
        require(
            self.sharing == "groups" or self.groups == 1,
            f"encoder.groups is {self.groups}, which only encoder.sharing=groups reads",
        )
        require(
            self.groups <= self.layers,
            f"encoder.groups {self.groups} exceeds encoder.layers {self.layers}",
        )
        require(
            self.first_norm or self.norm == "pre",
            "encoder.first_norm=False leaves out a norm that only encoder.norm=pre has, "
            f"and encoder.norm={self.norm}; set encoder.first_norm=True too",
        )

        window, every, first = self.window, self.global_every, self.global_tokens
        for name, is_right, what in (
            ("window", window == 0 or window >= 2, "; it must be 0 for none, or at least 2"),
            (
                "global_every",
                window > 0 or every == 1,
                ", which only a window reads; set it to 1, or set encoder.window",
            ),
            (
                "window",
                window == 0 or every != 1,
                ", and with encoder.global_every=1 no layer attends within it; set "
                "encoder.global_every to 2 or more, or to 0",
            ),
            (
                "global_tokens",
                window > 0 or first == 0,
                ", and without a window every token reads everything; set it to 0, or set "
                "encoder.window",
            ),
        ):
            require(is_right, f"encoder.{name} is {getattr(self, name)}{what}")
        for name in ("rotary_base", "window_rotary_base"):
            base = getattr(self, name)
            require(
                positions.rotates or base == getattr(EncoderConfig, name),
                f"encoder.{name} is {base}, which only rotary positions read; set "
                "encoder.positions=rotary",
            )
        require(
            window > 0 or self.window_rotary_base == EncoderConfig.window_rotary_base,
            f"encoder.window_rotary_base is {self.window_rotary_base}, which only a window "
            "reads; set encoder.window as well",
        )

    def attention_of(self, layers: int | None = None) -> tuple[int, ...]:
        """The index map of attention blocks: layer i uses block `attention_of()[i]`; `layers`
        overrides the depth.
        """
        return self._map_blocks(layers, shared=self.sharing in ("all", "attention"))

    def feedforward_of(self, layers: int | None = None) -> tuple[int, ...]:
        """The index map of feed-forward blocks, like `attention_of`."""
        return self._map_blocks(layers, shared=self.sharing in ("all", "feedforward"))

    def _map_blocks(self, layers: int | None, shared: bool) -> tuple[int, ...]:
        """Map each layer to a block: one block of its own, or one for each group of layers."""
        depth = self.layers if layers is None else layers
        if not shared and self.sharing != "groups":
            return tuple(range(depth))
        # Without sharing=groups there is one group, so every layer has block 0.
        return tuple(i * self.groups // depth for i in range(depth))

    def window_map(self, layers: int | None = None) -> tuple[bool, ...]:
        """The layers that attend within the window: True or False for each layer."""
        depth = self.layers if layers is None else layers
        every = self.global_every
        return tuple(self.window > 0 and (every == 0 or i % every > 0) for i in range(depth))

    def attention_norms(self) -> frozenset[int]:
        """The attention blocks that have a norm. Without `first_norm`, a block that only the first
        layer uses has none.
        """
        return frozenset(self.attention_of()[0 if self.first_norm else 1 :])

    @property
    def projects(self) -> bool:
        """True where a map E -> H exists."""
        return self.always_project or self.embedding_size != self.hidden_size
