"""A network that answers on a CPU, in one compiled call for a batch (answers.c): embedding, layers,
pooling and head. It needs no torch.

Rows lie end to end, so that nothing is computed for padding. In the last layer, of which a
classifier of texts reads [CLS] alone, queries and all that follows them are computed for [CLS]
alone. All is float32, but for the products of layers where bfloat16 or 8 bits are asked for. Their
weights are held in the order in which they are read. In 8 bits, each row of a weight and each
token have a scale of their own, so an answer does not depend on its company. Working memory belongs
to a thread of Python, so several may ask one network.

Shapes: R rows, T tokens of all rows, H hidden size, C numbers that the head gives.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from litebert.base.errors import DataError, ModelError
from litebert.config import EncoderConfig
from litebert.kernels.loader import describe, library

Floats = NDArray[np.float32]
Weights = Mapping[str, Floats]
Dtype = Literal["float32", "bfloat16", "int8"]
DTYPES: tuple[Dtype, ...] = ("float32", "bfloat16", "int8")
"""What products of layers multiply, in the order of answers.c."""
Reads = Literal["first", "mean", "tokens", "chosen", "unit"]
_READS: tuple[Reads, ...] = ("first", "mean", "tokens", "chosen", "unit")
_ACTIVATIONS = ("gelu", "gelu_tanh", "silu", "relu", "tanh", "none")
"""In the order of answers.c."""


class Step(NamedTuple):
    """A step of a head: norm(activation(x W^T + b)), without what is None."""

    weight: Floats
    """(out, in)"""
    bias: Floats | None = None
    activation: str = "none"
    norm: tuple[Floats, Floats | None] | None = None
    """The weight and the bias of a layer norm."""
    plain: bool = False
    """True: the weight is read where it lies, as a table of words is, and followed by nothing."""


class Rows(NamedTuple):
    """Rows of tokens end to end."""

    ids: NDArray[np.int32]
    """(T,)"""
    types: NDArray[np.int32] | None
    """(T,); None where all are 0."""
    starts: NDArray[np.int64]
    """(R + 1,): where each row begins, and T."""

    @classmethod
    def of(
        cls, ids_RS: NDArray[np.int64], types_RS: NDArray[np.int64], mask_RS: NDArray[np.bool_]
    ) -> Rows:
        """Take padded rows, whose padding stands at the end."""
        starts = np.zeros(len(ids_RS) + 1, np.int64)
        np.cumsum(mask_RS.sum(1), out=starts[1:])
        types = types_RS[mask_RS].astype(np.int32) if types_RS.any() else None
        return cls(ids_RS[mask_RS].astype(np.int32), types, starts)

    def select(self, rows_K: NDArray[np.int64]) -> tuple[Rows, NDArray[np.int64]]:
        """Some of the rows by their numbers (K,), and the numbers of their tokens."""
        lengths = np.diff(self.starts)
        stays = np.zeros(len(lengths), bool)
        stays[rows_K] = True
        tokens = np.flatnonzero(np.repeat(stays, lengths))
        starts = np.concatenate(([0], np.cumsum(lengths[rows_K])))
        types = None if self.types is None else self.types[tokens]
        return Rows(self.ids[tokens], types, starts), tokens


class _Struct(ctypes.Structure):
    """A structure of answers.c, whose fields stand in its order."""


class _Map(_Struct):
    _fields_ = [("panels", ctypes.c_void_p), ("bias", ctypes.c_void_p)]
    _fields_ += [("inputs", ctypes.c_int64), ("outputs", ctypes.c_int64)]


class _Norm(_Struct):
    _fields_ = [("weight", ctypes.c_void_p), ("shift", ctypes.c_void_p)]


class _Layer(_Struct):
    _fields_ = [(name, _Map) for name in ("q", "kv", "attended", "inner", "output")]
    _fields_ += [("attention", _Norm), ("feedforward", _Norm)]


class _Step(_Struct):
    _fields_ = [("map", _Map), ("rows", ctypes.c_void_p), ("norm", _Norm)]
    _fields_ += [("activation", ctypes.c_int64)]


_SIZES = "hidden heads inner layers embedding offset kind gated pre first_norm norm_after type"


class _Network(_Struct):
    _fields_ = [(name, ctypes.c_int64) for name in f"{_SIZES} reach globals".split()]
    _fields_ += [("eps", ctypes.c_double)]
    _fields_ += [(name, ctypes.c_void_p) for name in ("words", "positions", "types")]
    _fields_ += [("project", _Map), ("embedded", _Norm), ("last", _Norm)]
    _fields_ += [("stack", ctypes.c_void_p), ("windowed", ctypes.c_void_p)]
    _fields_ += [("cosine", ctypes.c_void_p * 2), ("sine", ctypes.c_void_p * 2)]
    _fields_ += [("reads", ctypes.c_int64), ("steps", ctypes.c_int64), ("head", ctypes.c_void_p)]


class _Batch(_Struct):
    _fields_ = [(name, ctypes.c_void_p) for name in ("net", "ids", "kinds", "starts", "chosen")]
    _fields_ += [
        (name, ctypes.c_int64) for name in ("tokens", "rows", "longest", "count", "first", "end")
    ]
    _fields_ += [(name, ctypes.c_void_p) for name in ("state", "room", "result")]


class _Kept:
    """What C reads, in memory that lives as long as this."""

    def __init__(self) -> None:
        self._held: list[Any] = []

    def _hold(self, thing: Any) -> Any:
        self._held.append(thing)
        return thing

    def _keep(self, array: NDArray[Any]) -> int:
        """The address of an array, which is kept."""
        return int(self._hold(np.ascontiguousarray(array)).ctypes.data)

    def _map(self, weight: Floats, bias: Floats | None, dtype: Dtype) -> _Map:
        outputs, inputs = weight.shape
        padded = np.zeros(-(-outputs // columns()) * columns(), np.float32)
        if bias is not None:
            padded[:outputs] = bias
        panels = self._keep(pack(weight, dtype))
        return _Map(panels, self._keep(padded), inputs, outputs)

    def _norm_of(self, weight: Floats, shift: Floats | None) -> _Norm:
        return _Norm(self._keep(weight), None if shift is None else self._keep(shift))


class Network(_Kept):
    """A point of the space (`config.encoder`) with weights, in the memory of compiled calls.

    Args:
        config: the encoder.
        weights: its weights by the names of `Encoder.state_dict`, float32. They are read where they
            lie, but for those of products, which are copied.
        dtype: of the products of layers.

    Raises:
        ModelError: a weight is missing, or of another shape than the config says, or unknown.
    """

    def __init__(self, config: EncoderConfig, weights: Weights, dtype: Dtype = "float32") -> None:
        if refusal := find_refusal(config, dtype):
            raise ModelError(refusal)
        super().__init__()
        self.config, self.dtype = config, dtype
        self._left = dict(weights)
        hidden, inner, width = config.hidden_size, config.intermediate_size, config.embedding_size
        wide = inner * (2 if config.feedforward == "gated" else 1)
        self._net = net = _Network()
        net.hidden, net.heads, net.inner, net.layers = hidden, config.heads, inner, config.layers
        net.embedding, net.offset, net.eps = width, config.position_offset, config.norm_eps
        net.kind, net.type = _ACTIVATIONS.index(config.activation), DTYPES.index(dtype)
        net.gated, net.pre = config.feedforward == "gated", config.norm == "pre"
        net.first_norm, net.norm_after = config.first_norm, config.embedding_norm == "after"
        net.reach, net.globals = config.window // 2, config.global_tokens
        net.words = self._keep(self._take("embedding.word.weight", (config.vocab_size, width)))
        if config.positions == "learned":
            rows = config.position_offset + config.max_positions
            net.positions = self._keep(self._take("embedding.position.weight", (rows, width)))
        else:
            bases = config.rotary_base, config.window_rotary_base
            turns = [_rotations(config, base) for base in bases]
            net.cosine[:] = [self._keep(cosine) for cosine, _ in turns]
            net.sine[:] = [self._keep(sine) for _, sine in turns]
        if config.segment_types:
            shape = config.segment_types, width
            net.types = self._keep(self._take("embedding.token_type.weight", shape))
        if config.projects:
            weight = self._take("embedding.project.weight", (hidden, width))
            biased = config.bias and not net.norm_after
            bias = self._take("embedding.project.bias", (hidden,)) if biased else None
            net.project = self._map(weight, bias, "float32")
        net.embedded = self._norm("embedding.norm", hidden if net.norm_after else width)
        if net.pre:
            net.last = self._norm("norm", hidden)
        normed = config.attention_norms()
        attention = [self._attention(a, a in normed) for a in sorted({*config.attention_of()})]
        feedforward = [self._feedforward(f, wide) for f in sorted({*config.feedforward_of()})]
        pairs = list(zip(config.attention_of(), config.feedforward_of(), strict=True))
        layers = {
            (a, f): self._hold(_Layer(**attention[a], **feedforward[f]))
            for a, f in dict.fromkeys(pairs)
        }
        stack = (ctypes.c_void_p * len(pairs))(*[ctypes.addressof(layers[pair]) for pair in pairs])
        net.stack = ctypes.addressof(self._hold(stack))
        net.windowed = self._keep(np.array(config.window_map(), np.uint8))
        self.pooler: Step | None = None
        if config.pooler:
            weight = self._take("pooler.weight", (hidden, hidden))
            self.pooler = Step(weight, self._take("pooler.bias", (hidden,)), "tanh")
        if self._left:
            raise ModelError(f"has an unknown 'encoder.{next(iter(self._left))}'")
        self._rooms = threading.local()

    # ------------------------------------------------------------------------------ what is read

    def _take(self, name: str, shape: tuple[int, ...]) -> Floats:
        """A weight of a shape, which then is no longer left."""
        weight = self._left.pop(name, None)
        if weight is None:
            raise ModelError(f"has no 'encoder.{name}'")
        if weight.shape != shape:
            raise ModelError(
                f"holds encoder.{name} of shape {weight.shape}, and its config asks for {shape}"
            )
        return weight

    def _linear(self, name: str, outputs: int, inputs: int) -> tuple[Floats, Floats | None]:
        weight = self._take(f"{name}.weight", (outputs, inputs))
        return weight, self._take(f"{name}.bias", (outputs,)) if self.config.bias else None

    def _norm(self, name: str, width: int) -> _Norm:
        weight = self._take(f"{name}.weight", (width,))
        shift = self._take(f"{name}.bias", (width,)) if self.config.bias else None
        return self._norm_of(weight, shift)

    def _attention(self, number: int, normed: bool) -> dict[str, Any]:
        name, hidden = f"attention.{number}", self.config.hidden_size
        weight, bias = self._linear(f"{name}.qkv", 3 * hidden, hidden)
        biases = (None, None) if bias is None else (bias[:hidden], bias[hidden:])
        return {
            "q": self._map(weight[:hidden], biases[0], self.dtype),
            "kv": self._map(weight[hidden:], biases[1], self.dtype),
            "attended": self._map(*self._linear(f"{name}.output", hidden, hidden), self.dtype),
            "attention": self._norm(f"{name}.norm", hidden) if normed else _Norm(),
        }

    def _feedforward(self, number: int, wide: int) -> dict[str, Any]:
        name, hidden, inner = (
            f"feedforward.{number}",
            self.config.hidden_size,
            self.config.intermediate_size,
        )
        return {
            "inner": self._map(*self._linear(f"{name}.input", wide, hidden), self.dtype),
            "output": self._map(*self._linear(f"{name}.output", hidden, inner), self.dtype),
            "feedforward": self._norm(f"{name}.norm", hidden),
        }

    # ------------------------------------------------------------------------------- what answers

    def head(self, reads: Reads, steps: Sequence[Step] = ()) -> Head:
        """A head over this network."""
        return Head(self, reads, steps)

    def room(self, name: str, count: int) -> Floats:
        """Memory of this thread that is kept from call to call, for the system clears what is
        new."""
        rooms = self._rooms.__dict__
        room = rooms.get(name)
        if room is None or room.size < count:
            bytes_ = np.empty(4 * count + 64, np.uint8)
            room = rooms[name] = bytes_[-bytes_.ctypes.data % 64 :][: 4 * count].view(np.float32)
        return room[:count]


class Head(_Kept):
    """What a network gives: rows of `steps` over what it `reads`, or of the states themselves."""

    def __init__(self, network: Network, reads: Reads, steps: Sequence[Step]) -> None:
        super().__init__()
        self.network, self.reads = network, reads
        self.width = len(steps[-1].weight) if steps else network.config.hidden_size
        self._net = _Network.from_buffer_copy(network._net)
        self._net.reads, self._net.steps = _READS.index(reads), len(steps)
        made = (_Step * max(1, len(steps)))()
        for place, step in zip(made, steps, strict=False):
            if step.plain:
                bias = np.zeros(len(step.weight), np.float32) if step.bias is None else step.bias
                place.rows = self._keep(step.weight)
                place.map = _Map(None, self._keep(bias), step.weight.shape[1], len(step.weight))
            else:
                place.map = self._map(step.weight, step.bias, "float32")
            place.activation = _ACTIVATIONS.index(step.activation)
            if step.norm is not None:
                place.norm = self._norm_of(*step.norm)
        self._steps = made
        self._net.head = ctypes.addressof(made)

    def of(self, rows: Rows, threads: int, chosen: NDArray[np.int64] | None = None) -> Floats:
        """(R, C), or of tokens (T, C), or of those that are `chosen` by their numbers (K,)."""
        return self.run(rows, threads, chosen=chosen)[1]

    def run(
        self,
        rows: Rows,
        threads: int,
        state: Floats | None = None,
        layers: tuple[int, int] | None = None,
        chosen: NDArray[np.int64] | None = None,
    ) -> tuple[Floats, Floats]:
        """Apply some layers, and give their state (T, H) and what the head reads of it.

        Args:
            state: what the first of these layers reads, which is overwritten; None before the
                embedding.
            layers: from which to before which, all by default.
        """
        net, config = self._net, self.network.config
        tokens, count = len(rows.ids), len(rows.starts) - 1
        lengths = np.diff(rows.starts)
        if not lengths.all():
            raise DataError("a row has no tokens; give each one at least")
        longest = int(lengths.max(initial=0))
        if longest > config.max_positions:
            raise too_long(longest, config.max_positions)
        if state is None:
            if config.segment_types < 2:  # every token has the one row, or none
                rows = rows._replace(types=None)
            for ids, most, kind in (
                (rows.ids, config.vocab_size, "token"),
                (rows.types, config.segment_types, "token type"),
            ):
                if ids is not None and tokens and not 0 <= ids.min() <= ids.max() < most:
                    wrong = int(ids.min() if ids.min() < 0 else ids.max())
                    raise DataError(f"there is no {kind} {wrong}; the model has {most:,}")
            state = self.network.room("state", tokens * config.hidden_size)
        first, end = layers or (-1, config.layers)
        count = {"tokens": tokens, "chosen": 0 if chosen is None else len(chosen)}.get(
            self.reads, count
        )
        result = np.empty((count, self.width), np.float32)
        batch = _Batch(
            ctypes.addressof(net),
            rows.ids.ctypes.data,
            None if rows.types is None else rows.types.ctypes.data,
            rows.starts.ctypes.data,
            None if chosen is None else chosen.ctypes.data,
            tokens,
            len(rows.starts) - 1,
            longest,
            count,
            first,
            end,
            state.ctypes.data,
            None,
            result.ctypes.data,
        )
        compiled, address = _library(), ctypes.addressof(batch)
        room = self.network.room("room", compiled.room_of(address, threads))
        batch.room = room.ctypes.data
        compiled.answer(address, threads)
        return state, result


def too_long(length: int, most: int) -> DataError:
    """The error for a sequence with more tokens than the model has positions."""
    return DataError(
        f"a sequence has {length} tokens and the model's encoder.max_positions is {most}; "
        "shorten or split the text"
    )


def find_refusal(config: EncoderConfig, dtype: Dtype = "float32") -> str:
    """Say in a sentence why an encoder cannot be computed in compiled calls; empty where it can."""
    if library("answers") is None:
        return f"compiled answers are {describe('answers')}"
    if config.positions not in ("learned", "rotary"):
        return f"compiled answers know no encoder.positions={config.positions}"
    if config.activation not in _ACTIVATIONS:
        return f"compiled answers do not compute encoder.activation={config.activation}"
    if dtype == "float32":
        return ""
    if dtype not in list_dtypes():
        return f"this processor does not multiply {dtype}"
    together = 4 if dtype == "int8" else 2
    if config.hidden_size % together or config.intermediate_size % together:
        return f"{dtype} needs a hidden size and an intermediate size that {together} divides"
    return ""


def list_dtypes() -> list[Dtype]:
    """What this processor multiplies in compiled answers: float32, bfloat16, int8."""
    if library("answers") is None:
        return []
    names: dict[Dtype, str] = {"bfloat16": "multiplies_narrow", "int8": "multiplies_bytes"}
    return ["float32", *(dtype for dtype, name in names.items() if _constant(name))]


def columns() -> int:
    """The rows of a weight that a panel has, which are columns of the product."""
    return _constant("panel_columns")


def pack(weight: Floats, dtype: Dtype) -> NDArray[Any]:
    """A weight (out, in) in the order in which answers.c reads it."""
    wide, together, scale = weight.shape[1], 1, None
    numbers: NDArray[Any] = weight
    if dtype == "int8":
        together, scale = _constant("multiplies_bytes"), np.abs(weight).max(1) / np.float32(127)
        tiny = np.finfo(np.float32).tiny
        with np.errstate(invalid="ignore"):  # a row that is no number keeps its scale
            numbers = np.rint(weight / np.maximum(scale, tiny)[:, None]).astype(np.int8)
    elif dtype == "bfloat16":
        bits = np.ascontiguousarray(weight).view(np.uint32)
        together, numbers = 2, ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    missing = -len(weight) % columns()
    full = np.pad(numbers, ((0, missing), (0, 0)))
    panels = np.ascontiguousarray(
        full.reshape(-1, columns(), wide // together, together).swapaxes(1, 2)
    )
    if scale is None:
        return panels
    scales = np.pad(scale, (0, missing)).astype(np.float32)
    sums = full.sum(1, dtype=np.int32).view(np.float32)
    behind = np.stack((scales, sums), 1).reshape(-1, columns(), 2).swapaxes(1, 2)
    blocks = panels.reshape(len(panels), -1).view(np.float32)
    return np.concatenate((blocks, behind.reshape(len(panels), -1)), 1)


def make_product(x: Floats, weight: Floats, dtype: Dtype, threads: int) -> Callable[[], Floats]:
    """A function that computes x W^T, (rows, out), as layers do; to measure and to test it."""
    outputs, inputs = weight.shape
    bias = np.zeros(-(-outputs // columns()) * columns(), np.float32)
    y, held = np.empty((len(x), outputs), np.float32), np.empty(len(x) * (2 * inputs + 8), np.uint8)
    panels = pack(weight, dtype)
    map_ = _Map(panels.ctypes.data, bias.ctypes.data, inputs, outputs)
    arrays, kind = (x, y, held), DTYPES.index(dtype)

    def compute() -> Floats:
        places = [array.ctypes.data for array in arrays]
        _library().multiply_once(ctypes.addressof(map_), *places, len(x), kind, threads)
        return y

    compute.held = panels, bias  # type: ignore[attr-defined]  # they live as long as this
    return compute


def _rotations(config: EncoderConfig, base: float) -> tuple[Floats, Floats]:
    """The cosines and sines of the angle of each position and feature, (positions, head size)."""
    size = config.hidden_size // config.heads
    rate = np.float32(base) ** (-np.arange(0, size, 2, dtype=np.float32) / np.float32(size))
    angle = np.outer(np.arange(config.max_positions, dtype=np.float32), rate)
    twice = np.concatenate((angle, angle), 1)
    return np.cos(twice), np.sin(twice)


def _library() -> ctypes.CDLL:
    compiled = library("answers")
    assert compiled is not None
    return compiled


@cache
def _constant(name: str) -> int:
    return ctypes.c_long.in_dll(_library(), name).value
