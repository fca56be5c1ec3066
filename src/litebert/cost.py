"""Parameters, floating point operations and memory of a config, from the config alone (no torch).

Symbols: V vocabulary, E embedding, H hidden, I intermediate, L layers, A heads, S sequence length, B sequences.
Exact counts follow the official code: biases and both norms belong to their block, the vocabulary projection is tied
to the word table, and the E -> H map exists where E differs from H.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from litebert.config import Config, EncoderConfig
from litebert.registry import POSITIONS


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
    positions = POSITIONS[config.positions](config)
    rows = config.vocab_size + config.segment_types
    return {
        "embeddings": rows * embedding + positions.table_parameters() + _norm(embedding, bias),
        "positions": positions.attention_parameters(),
        "projection": _linear(embedding, hidden, bias) if config.projects else 0,
        "attention": len(set(config.attention_of())) * attention_parameters(config),
        "feedforward": len(set(config.feedforward_of())) * feedforward_parameters(config),
        "final norm": _norm(hidden, bias) if config.norm == "pre" else 0,
        "pooler": _linear(hidden, hidden) if config.pooler else 0,
    }


def head_parameters(config: EncoderConfig, head: str, classes: int = 2) -> int:
    """Parameters a head adds: `mlm`, `rtd`, or any other name for a linear map to `classes`."""
    hidden, embedding = config.hidden_size, config.embedding_size
    if head == "mlm":
        return _linear(hidden, embedding) + _norm(embedding) + config.vocab_size
    if head == "rtd":
        return _linear(hidden, hidden) + _linear(hidden, 1)
    return _linear(hidden, classes)  # sop, nsp and every fine-tuning classifier are one linear map


def generator_parameters(config: Config) -> int:
    """Parameters of the generator beside the tables it borrows and its vocabulary head; 0 without one."""
    shape = config.generator
    if shape is None:
        return 0
    parts = encoder_parameters(shape)
    own = shape.segment_types * shape.embedding_size + _norm(shape.embedding_size, shape.bias)
    parts["embeddings"] = own if config.rtd.generator_embeddings == "tables" else 0
    return sum(parts.values())


def span_boundary_parameters(config: Config) -> int:
    """Parameters of the span boundary head."""
    hidden, embedding, size = config.encoder.hidden_size, config.encoder.embedding_size, config.sbo.position_size
    layers = _linear(2 * hidden + size, hidden) + _norm(hidden) + _linear(hidden, embedding) + _norm(embedding)
    return config.sbo.positions * size + layers + config.encoder.vocab_size


def parameters(config: EncoderConfig, heads: Sequence[str] = ()) -> dict[str, int]:
    """Parameters of an encoder with plain heads by part; their sum is the model's exact count."""
    parts = encoder_parameters(config)
    parts.update({f"{head} head": head_parameters(config, head) for head in heads})
    return {name: count for name, count in parts.items() if count}


def model_parameters(config: Config) -> dict[str, int]:
    """Parameters of all that pretraining trains, by part; their sum is the exact count."""
    parts = encoder_parameters(config.encoder)
    for name in config.objectives:
        if name == "sbo":
            parts["sbo head"] = span_boundary_parameters(config)
        elif name == "mlm":
            parts["generator"] = generator_parameters(config)
            parts["mlm head"] = head_parameters(config.generator or config.encoder, "mlm")
        else:
            parts[f"{name} head"] = head_parameters(config.encoder, name)
    return {name: count for name, count in parts.items() if count}


def forward_flops(config: Config, length: int | None = None) -> float:
    """Floating point operations of a forward pass per token, two per multiplication and addition.

    Matrix products and attention scores are counted; norms, activations and lookups (well under 2 %) are not. The
    vocabulary projection runs on the masked share of the positions. A generator's pass is counted in; of the span
    boundary objective, every masked token, a little more than have both neighbours.
    """
    shape, length = config.encoder, length or config.sequences.length
    hidden, embedding = shape.hidden_size, shape.embedding_size
    total = _layer_flops(shape, length)
    if shape.pooler:
        total += 2 * (hidden * hidden + 2 * hidden) / length
    if "mlm" in config.objectives:
        reader = config.generator or shape
        total += config.masking.rate * 2 * (reader.hidden_size * embedding + embedding * shape.vocab_size)
    if config.generator is not None:
        total += _layer_flops(config.generator, length)
    if "rtd" in config.objectives:
        total += 2 * (hidden * hidden + hidden)
    if "sbo" in config.objectives:
        boundary = (2 * hidden + config.sbo.position_size) * hidden + hidden * embedding
        total += config.masking.rate * 2 * (boundary + embedding * shape.vocab_size)
    return total


def _layer_flops(shape: EncoderConfig, length: int) -> float:
    """Of the map E -> H and all layers, per token."""
    hidden, branches = shape.hidden_size, 3 if shape.feedforward == "gated" else 2
    layer = 2 * (4 * hidden * hidden + branches * hidden * shape.intermediate_size) + 4 * length * hidden
    return float(shape.layers * layer + (2 * shape.embedding_size * hidden if shape.projects else 0))


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
    before and after the activation; the fused attention keeps no S x S weights. Under autocast all of it but the
    norms' inputs takes half, and the weights have a bfloat16 copy. There a CPU keeps the weights of attention too
    (`attention_weights`), which are counted; a GPU does not.
    """
    shape = config.encoder
    weights = sum(model_parameters(config).values())
    matrices = _matrices(shape)
    width = 4 if config.train.precision == "float32" else 2
    sequences = micro_batch or config.micro_sequences
    tokens = sequences * config.sequences.length
    per_token = _kept_bytes(shape, width) + 12 * shape.embedding_size
    if config.generator is not None:
        matrices += _matrices(config.generator)
        per_token += _kept_bytes(config.generator, width) + 12 * shape.embedding_size
    if "rtd" in config.objectives:  # the dense map of its head, before and after the activation
        per_token += 2 * width * shape.hidden_size
    vocabularies = sum(name in config.objectives for name in ("mlm", "sbo"))
    logits = vocabularies * config.masking.rate * (4 + 4 + width) * shape.vocab_size
    moments = 2 * weights if config.train.optimizer.name != "muon" else 2 * weights - matrices
    activations = int(tokens * (per_token + logits)) + sequences * attention_weights(config)
    return Memory((4 if width == 4 else 6) * weights, 4 * weights, 4 * moments, activations)


def attention_weights(config: Config) -> int:
    """Bytes of the A x S x S weights that a CPU keeps of one sequence in bfloat16, in all layers (model/kernels.py).

    With dropout they are kept before and after it, and so is what was dropped. In float32 nothing is.
    """
    if config.train.precision == "float32":
        return 0
    shapes = [config.encoder] if config.generator is None else [config.encoder, config.generator]
    each = sum((5 if shape.attention_dropout else 2) * shape.layers * shape.heads for shape in shapes)
    return each * config.sequences.length**2


def _matrices(shape: EncoderConfig) -> int:
    """Parameters of the attention and feed-forward blocks."""
    parts = encoder_parameters(shape)
    return parts["attention"] + parts["feedforward"]


def _kept_bytes(shape: EncoderConfig, width: int) -> int:
    """Activations of all layers per token, `width` bytes a number under autocast."""
    branches = 2 if shape.feedforward == "gated" else 1
    inner = width * 2 * branches * shape.intermediate_size
    if width == 2:
        attention = 5 * width
    else:
        attention = width * (8 if POSITIONS[shape.positions].rotates else 6)
    return shape.layers * ((attention + 8) * shape.hidden_size + inner)
