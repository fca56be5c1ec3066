"""Parameters, floating point operations and memory of a config, from the config alone (no torch);
and whether this machine has room for them.

Symbols: E embedding, H hidden, I intermediate, A heads, S sequence length. Exact counts follow the
official code: biases and both norms belong to their block, the vocabulary projection is tied to the
word table, and the E -> H map exists where E differs from H.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from litebert.base.errors import ModelError
from litebert.base.machine import read_free_memory
from litebert.base.registry import POSITIONS
from litebert.config import Config, EncoderConfig, replace


def linear(inputs: int, outputs: int, bias: bool = True) -> int:
    return inputs * outputs + (outputs if bias else 0)


def norm(width: int, bias: bool = True) -> int:
    return 2 * width if bias else width


def attention_parameters(config: EncoderConfig) -> int:
    """One attention block with its norm, 4(H^2 + H) + 2H with biases; `first_norm=False` may leave
    out one norm.
    """
    hidden, bias = config.hidden_size, config.bias
    return linear(hidden, 3 * hidden, bias) + linear(hidden, hidden, bias) + norm(hidden, bias)


def feedforward_parameters(config: EncoderConfig) -> int:
    """One feed-forward block with its norm: 2HI + I + H + 2H with biases, when plain."""
    hidden, inner, bias = config.hidden_size, config.intermediate_size, config.bias
    branches = 2 if config.feedforward == "gated" else 1
    return linear(hidden, branches * inner, bias) + linear(inner, hidden, bias) + norm(hidden, bias)


def encoder_parameters(config: EncoderConfig) -> dict[str, int]:
    """Parameters of an encoder by part; their sum is the exact count."""
    embedding, hidden, bias = config.embedding_size, config.hidden_size, config.bias
    positions = POSITIONS[config.positions](config)
    rows = config.vocab_size + config.segment_types
    after, blocks = config.embedding_norm == "after", len(set(config.attention_of()))
    without = blocks - len(config.attention_norms())
    return {
        "embeddings": rows * embedding
        + positions.table_parameters()
        + norm(hidden if after else embedding, bias),
        "positions": positions.attention_parameters(),
        "projection": linear(embedding, hidden, bias and not after) if config.projects else 0,
        "attention": blocks * attention_parameters(config) - without * norm(hidden, bias),
        "feedforward": len(set(config.feedforward_of())) * feedforward_parameters(config),
        "final norm": norm(hidden, bias) if config.norm == "pre" else 0,
        "pooler": linear(hidden, hidden) if config.pooler else 0,
    }


def model_parameters(config: Config) -> dict[str, int]:
    parts = encoder_parameters(config.encoder)
    for objective in config.build_objectives().values():
        for part, count in objective.parameters().items():
            parts[part] = parts.get(part, 0) + count
    return {name: count for name, count in parts.items() if count}


def _encoders(config: Config) -> list[EncoderConfig]:
    """All that runs in a forward pass: the encoder, and a generator where there is one."""
    return [config.encoder] if config.generator is None else [config.encoder, config.generator]


def forward_flops(config: Config, length: int | None = None) -> float:
    """Floating point operations of a forward pass per token, two per multiplication and addition.

    Matrix products and attention scores are counted, a generator's and objectives' too; norms,
    activations and lookups (well under 2%) are not.
    """
    length = length or config.sequences.length
    total = sum(_layer_flops(shape, length) for shape in _encoders(config))
    if config.encoder.pooler:
        total += 2 * config.encoder.hidden_size**2 / length
    for objective in config.build_objectives().values():
        total += objective.flops(length)
    return total


def training_flops(
    config: Config, steps: int, teacher: EncoderConfig | None = None
) -> Callable[[float], float]:
    """A function of a number of first steps: the floating point operations of both passes of each.

    Schedules extend over `steps`; any beyond are at full depth and length. A teacher's layers pass
    over every batch once more, without a gradient.
    """
    flat = replace(config, train=replace(config.train, depth_schedule=(), length_schedule=()))

    def of_step(layers: int, length: int) -> float:
        shape = replace(flat, encoder=replace(flat.encoder, layers=layers))
        taught = 0.0 if teacher is None else _layer_flops(teacher, length)
        return config.batch_sequences * length * (3 * forward_flops(shape, length) + taught)

    parts = [
        (round(end * steps), of_step(layers, length)) for end, layers, length in config.stages()
    ]
    return add_up(parts, of_step(config.encoder.layers, config.sequences.length))


def add_up(parts: Sequence[tuple[int, float]], beyond: float) -> Callable[[float], float]:
    """A function of a number of steps: what that many first ones take together, by parts of (first
    step, cost of a step), and `beyond` for a step after them.
    """

    def first(done: float) -> float:
        total, start = 0.0, 0
        for end, each in parts:
            total += each * max(0.0, min(done, end) - start)
            start = end
        return total + beyond * max(0.0, done - start)

    return first


def count_recomputed_flops(config: Config) -> float:
    """Count those of `forward_flops` that `train.recompute` spends once more: all of the layers."""
    length = config.sequences.length
    return sum(_layer_flops(shape, length, projection=False) for shape in _encoders(config))


def _layer_flops(shape: EncoderConfig, length: int, projection: bool = True) -> float:
    """Count all layers and the map E -> H, per token."""
    hidden, branches = shape.hidden_size, 3 if shape.feedforward == "gated" else 2
    layer = 2 * (4 * hidden * hidden + branches * hidden * shape.intermediate_size)
    scores = sum(4 * keys_read(shape, length, within) * hidden for within in shape.window_map())
    mapped = 2 * shape.embedding_size * hidden if projection and shape.projects else 0
    return float(shape.layers * layer + scores + mapped)


def window_block(shape: EncoderConfig, length: int) -> int:
    """Tokens of a block of queries in a windowed layer (model/windows.py); 0 where the sequence is
    so short that a mask over all keys is cheaper.
    """
    block = max(2 * (shape.window // 2), 64)  # products of fewer rows are slow
    return block if shape.window and length > 4 * block + 2 * shape.global_tokens else 0


def keys_read(shape: EncoderConfig, length: int, within: bool) -> float:
    """Keys that a query is compared with in a layer, `within` the window or not."""
    block, first = window_block(shape, length) if within else 0, shape.global_tokens
    return -(-length // block) * block * (2 * block + first) / length + first if block else length


@dataclass(frozen=True)
class Memory:
    weights: int
    gradients: int
    optimizer: int
    activations: int


def memory(config: Config, micro_batch: int | None = None) -> Memory:
    """Bytes for float32 weights and gradients, the optimizer's moments, and the activations kept
    for one backward pass.

    Activations are not shared, however few the weights: every layer keeps its own. Counted per
    token and layer: the inputs of both norms and of the four linear maps, q k v (again after a
    rotation), and the feed-forward branches before and after the activation; the fused attention
    keeps no S x S weights. Under autocast all of it but the norms' inputs takes half, and the
    weights have a bfloat16 copy. There a CPU keeps the weights of attention too
    (`attention_weights`), which are counted; a GPU does not. With `train.recompute` a layer keeps
    its input alone, and one layer at a time has the rest.
    """
    weights = sum(model_parameters(config).values())
    width = 4 if config.train.precision == "float32" else 2
    sequences = micro_batch or config.micro_sequences
    per_token = sum(_embedding_bytes(shape) for shape in _encoders(config))
    layers = [
        (shape.layers, _layer_bytes(shape, width), 4 * shape.hidden_size)
        for shape in _encoders(config)
    ]
    if config.train.recompute:
        per_token += sum(count * before for count, _, before in layers) + max(
            whole for _, whole, _ in layers
        )
    else:
        per_token += sum(count * whole for count, whole, _ in layers)
    per_token += sum(
        objective.backward_bytes(width) for objective in config.build_objectives().values()
    )
    moments = 2 * weights
    if config.train.optimizer.name == "muon":  # which has one for the matrices of the blocks
        parts = [encoder_parameters(shape) for shape in _encoders(config)]
        moments -= sum(part["attention"] + part["feedforward"] for part in parts)
    activations = int(
        sequences * config.sequences.length * per_token
    ) + sequences * attention_weights(config)
    held = 4 if width == 4 else 6
    return Memory(held * weights, 4 * weights, 4 * moments, activations)


def attention_weights(config: Config) -> int:
    """Bytes of the A x S x S weights that a CPU keeps of one sequence, in all layers
    (model/operations.py).

    With dropout they are kept before and after it; without, in bfloat16 only. Within a window there
    are fewer (`keys_read`).
    """
    length, width = config.sequences.length, 4 if config.train.precision == "float32" else 2
    kept = 0 if width == 4 else width
    each = [
        (2 * width if shape.attention_dropout else kept)
        * shape.heads
        * keys_read(shape, length, within)
        for shape in _encoders(config)
        for within in shape.window_map()
    ]
    return int((max(each) if config.train.recompute else sum(each)) * length)


def teacher_bytes(shape: EncoderConfig, length: int) -> int:
    """Bytes of a sequence that a teacher of this shape holds while its student takes a step: the
    states of all layers, in float32 and without gradients, and the work of one layer at a time
    (model/teacher.py)."""
    return length * (4 * (shape.layers + 1) * shape.hidden_size + _layer_bytes(shape, 4))


def _embedding_bytes(shape: EncoderConfig) -> int:
    """Activations of the embeddings per token, less what a first layer without a norm saves."""
    if shape.embedding_norm == "before":
        bytes_ = 12 * shape.embedding_size
    else:
        bytes_ = 8 * shape.hidden_size + (4 * shape.embedding_size if shape.projects else 0)
    return bytes_ - (0 if shape.first_norm else 4 * shape.hidden_size)


def _layer_bytes(shape: EncoderConfig, width: int) -> int:
    """Activations of a layer per token, `width` bytes a number under autocast."""
    inner = (4 if shape.feedforward == "gated" else 2) * shape.intermediate_size
    attention = 5 if width == 2 else 8 if POSITIONS[shape.positions].rotates else 6
    return (attention * width + 8) * shape.hidden_size + width * inner


def format_bytes(count: float) -> str:
    """Write bytes in the largest unit that fits: 512 B, 1.5 KiB, 20.0 MiB, 1,024.0 GiB."""
    unit = next((i for i in (3, 2, 1) if count >= 1024**i), 0)
    return f"{count / 1024**unit:,.{min(unit, 1)}f} {('B', 'KiB', 'MiB', 'GiB')[unit]}"


def require_room(parts: Mapping[str, int]) -> None:
    """Refuse a network, before it is built, whose float32 weights exceed the free memory."""
    needed, free = 4 * sum(parts.values()), read_free_memory()
    if needed > free:
        largest = max(parts, key=lambda name: parts[name])
        raise ModelError(
            f"a network of {needed // 4:,} parameters ({parts[largest]:,} of them in its "
            f"{largest}) takes {format_bytes(needed)}, and {format_bytes(free)} of memory are "
            "free; check the sizes in its config"
        )
