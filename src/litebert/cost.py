"""Parameters, floating point operations and memory of a config, from the config alone (no torch).

Symbols: V vocabulary, E embedding, H hidden, I intermediate, L layers, A heads, S sequence length, B sequences.
Exact counts follow the official code: biases and both norms belong to their block, the vocabulary projection is tied
to the word table, and the E -> H map exists where E differs from H.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from litebert.config import Config, EncoderConfig


def _linear(inputs: int, outputs: int, bias: bool = True) -> int:
    return inputs * outputs + (outputs if bias else 0)


def _norm(width: int, bias: bool = True) -> int:
    return 2 * width if bias else width


def attention_parameters(config: EncoderConfig) -> int:
    """One attention block with its norm: 4(H^2 + H) + 2H with biases."""
    hidden, bias = config.hidden_size, config.bias
    return _linear(hidden, 3 * hidden, bias) + _linear(hidden, hidden, bias) + _norm(hidden, bias)


def feedforward_parameters(config: EncoderConfig) -> int:
    """One feed-forward block with its norm: 2HI + I + H + 2H with biases, when plain."""
    hidden, inner, bias = config.hidden_size, config.intermediate_size, config.bias
    branches = 2 if config.feedforward == "gated" else 1
    return _linear(hidden, branches * inner, bias) + _linear(inner, hidden, bias) + _norm(hidden, bias)


def encoder_parameters(config: EncoderConfig) -> dict[str, int]:
    """Parameters of the encoder by part."""
    embedding, hidden, bias = config.embedding_size, config.hidden_size, config.bias
    rows = config.vocab_size + config.segment_types + (config.max_positions if config.positions == "learned" else 0)
    return {
        "embeddings": rows * embedding + _norm(embedding, bias),
        "projection": _linear(embedding, hidden, bias) if config.projects else 0,
        "attention": len(set(config.attention_of())) * attention_parameters(config),
        "feedforward": len(set(config.feedforward_of())) * feedforward_parameters(config),
        "final norm": _norm(hidden, bias) if config.norm == "pre" else 0,
        "pooler": _linear(hidden, hidden) if config.pooler else 0,
    }


def head_parameters(config: EncoderConfig, head: str, classes: int = 2) -> int:
    """Parameters a head adds: an objective's name, or `classifier` for a linear map to `classes`."""
    hidden, embedding = config.hidden_size, config.embedding_size
    if head == "mlm":
        return _linear(hidden, embedding) + _norm(embedding) + config.vocab_size
    return _linear(hidden, classes)  # sop, nsp and every fine-tuning classifier are one linear map


def parameters(config: EncoderConfig, heads: Sequence[str] = ()) -> dict[str, int]:
    """Parameters by part, heads included; their sum is the model's exact count."""
    parts = encoder_parameters(config)
    parts.update({f"{head} head": head_parameters(config, head) for head in heads})
    return {name: count for name, count in parts.items() if count}


def forward_flops(config: Config, length: int | None = None) -> float:
    """Floating point operations of a forward pass per token, two per multiplication and addition.

    Matrix products and attention scores are counted; norms, activations and lookups (well under 2 %) are not. The
    vocabulary projection runs on the masked share of the positions.
    """
    shape, length = config.encoder, length or config.sequences.length
    hidden, embedding = shape.hidden_size, shape.embedding_size
    branches = 3 if shape.feedforward == "gated" else 2
    layer = 2 * (4 * hidden * hidden + branches * hidden * shape.intermediate_size) + 4 * length * hidden
    total = float(shape.layers * layer)
    if shape.projects:
        total += 2 * embedding * hidden
    if "mlm" in config.objectives:
        total += config.masking.rate * 2 * (hidden * embedding + embedding * shape.vocab_size)
    if shape.pooler:
        total += 2 * (hidden * hidden + 2 * hidden) / length
    return total


@dataclass(frozen=True)
class Memory:
    """Bytes of one training process."""

    weights: int
    gradients: int
    optimizer: int
    activations: int

    @property
    def total(self) -> int:
        """All of it."""
        return self.weights + self.gradients + self.optimizer + self.activations


def memory(config: Config, micro_batch: int | None = None) -> Memory:
    """Bytes for float32 weights and gradients, the optimizer's moments, and the activations kept for one backward pass.

    Activations are not shared, however few the weights: every layer keeps its own. Counted per token and layer: the
    inputs of both norms and of the four linear maps, q k v (again after a rotation), and the feed-forward branches
    before and after the activation; the fused attention keeps no S x S scores. Under autocast all of it but the
    norms' inputs takes half, and the weights have a bfloat16 copy.
    """
    shape = config.encoder
    weights = sum(parameters(shape, config.objectives).values())
    blocks = encoder_parameters(shape)
    matrices = blocks["attention"] + blocks["feedforward"]
    moments = 2 * weights if config.train.optimizer.name != "muon" else 2 * weights - matrices
    width = 4 if config.train.precision == "float32" else 2
    hidden, inner = shape.hidden_size, shape.intermediate_size
    branches = 2 if shape.feedforward == "gated" else 1
    rotated = 2 * hidden if shape.positions == "rotary" else 0
    per_layer = width * (6 * hidden + rotated + 2 * branches * inner) + 4 * 2 * hidden
    sequences = micro_batch or config.micro_sequences
    tokens = sequences * config.sequences.length
    logits = config.masking.rate * (4 + 4 + width) * shape.vocab_size if "mlm" in config.objectives else 0.0
    activations = tokens * (shape.layers * per_layer + logits + 12 * shape.embedding_size)
    return Memory((4 if width == 4 else 6) * weights, 4 * weights, 4 * moments, int(activations))
