"""A network that answers on a CPU, in one compiled call for a batch (answers.c): embedding, layers,
pooling and head. It needs no torch.

Rows lie end to end, so that nothing is computed for padding. In the last layer, of which a
classifier of texts reads [CLS] alone, queries and all that follows them are computed for [CLS]
alone. All is float32, but for the products of layers and the table of words where bfloat16 or 8
bits are asked for. They are held in the order in which they are read (packing.py). In 8 bits, each
row of a weight and each token have a scale of their own, so an answer does not depend on its
company. Working memory belongs to a thread of Python, so several may ask one network.

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
from litebert.kernels.packing import DTYPES, PANEL, TOGETHER, Dtype, Floats, Packed, pack

Weights = Mapping[str, Floats]
Stored = Mapping[str, Floats | Packed]
"""Weights of which some may be packed."""
Reads = Literal["first", "mean", "tokens", "chosen", "unit"]
_READS: tuple[Reads, ...] = ("first", "mean", "tokens", "chosen", "unit")
_ACTIVATIONS = ("gelu", "gelu_tanh", "silu", "relu", "tanh", "none")
"""In the order of answers.c."""


class Step(NamedTuple):
    """A step of a head: norm(activation(x W^T + b)), without what is None."""

    weight: Floats | Packed
    """(out, in); a table is read by its rows, and followed by nothing."""
    bias: Floats | None = None
    activation: str = "none"
    norm: tuple[Floats, Floats | None] | None = None
    """The weight and the bias of a layer norm."""


class Rows(NamedTuple):
    """Rows of tokens end to end, in contiguous arrays."""

    ids: NDArray[np.int32]
    """(T,)"""
    types: NDArray[np.int32] | None
    """(T,); None where all are 0."""
    starts: NDArray[np.int64]
    """(R + 1,): where each row begins, and T."""

    def select(self, rows_K: NDArray[np.int64]) -> tuple[Rows, NDArray[np.int64]]:
        """Some of the rows by their numbers (K,), and the numbers of their tokens."""
        lengths = np.diff(self.starts)
        stays = np.zeros(len(lengths), bool)
        stays[rows_K] = True
        tokens = np.flatnonzero(np.repeat(stays, lengths))
        starts = np.concatenate(([0], np.cumsum(lengths[rows_K])))
        types = None if self.types is None else self.types[tokens]
        return Rows(self.ids[tokens], types, starts), tokens


# The structures of answers.c, whose fields stand in its order.


class _Map(ctypes.Structure):
    _fields_ = [("panels", ctypes.c_void_p), ("bias", ctypes.c_void_p)]
    _fields_ += [("inputs", ctypes.c_int64), ("outputs", ctypes.c_int64)]


class _Norm(ctypes.Structure):
    _fields_ = [("weight", ctypes.c_void_p), ("shift", ctypes.c_void_p)]


class _Layer(ctypes.Structure):
    _fields_ = [(name, _Map) for name in ("q", "kv", "attended", "inner", "output")]
    _fields_ += [("attention", _Norm), ("feedforward", _Norm)]


class _Table(ctypes.Structure):
    _fields_ = [("rows", ctypes.c_void_p), ("type", ctypes.c_int64)]


class _Step(ctypes.Structure):
    _fields_ = [("map", _Map), ("table", _Table), ("norm", _Norm)]
    _fields_ += [("activation", ctypes.c_int64)]


_SIZES = "hidden heads inner layers embedding offset kind gated pre first_norm norm_after type "
_SIZES += "reach globals vocabulary kinds positions_of_row"


class _Network(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in _SIZES.split()]
    _fields_ += [("eps", ctypes.c_double)]
    _fields_ += [("words", _Table), ("positions", ctypes.c_void_p), ("types", ctypes.c_void_p)]
    _fields_ += [("project", _Map), ("embedded", _Norm), ("last", _Norm)]
    _fields_ += [("stack", ctypes.c_void_p), ("windowed", ctypes.c_void_p)]
    _fields_ += [("cosine", ctypes.c_void_p * 2), ("sine", ctypes.c_void_p * 2)]
    _fields_ += [("reads", ctypes.c_int64), ("steps", ctypes.c_int64), ("head", ctypes.c_void_p)]


class _Batch(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in ("net", "ids", "kinds", "starts", "chosen")]
    _fields_ += [(name, ctypes.c_int64) for name in ("tokens", "rows", "count", "first", "end")]
    _fields_ += [(name, ctypes.c_void_p) for name in ("state", "room", "result")]
    _fields_ += [("space", ctypes.c_int64), ("longest", ctypes.c_int64)]


class _Kept:
    """What C reads, in memory that lives as long as this."""

    def __init__(self) -> None:
        self._held: list[Any] = []

    def _hold(self, thing: Any) -> Any:
        self._held.append(thing)
        return thing

    def _keep(self, array: NDArray[Any]) -> int:
        return int(self._hold(np.ascontiguousarray(array)).ctypes.data)

    def _map(self, weight: Floats | Packed, bias: Floats | None, dtype: Dtype) -> _Map:
        outputs, inputs = weight.shape
        panels = self._keep(pack(weight, dtype).data)
        if bias is None:
            return _Map(panels, None, inputs, outputs)
        padded = np.pad(np.asarray(bias, np.float32), (0, -outputs % (2 * PANEL)))
        return _Map(panels, self._keep(padded), inputs, outputs)

    def _table(self, table: Packed) -> _Table:
        return _Table(self._keep(table.data), DTYPES.index(table.dtype))

    def _norm_of(self, weight: Floats, shift: Floats | None) -> _Norm:
        return _Norm(self._keep(weight), None if shift is None else self._keep(shift))


class Network(_Kept):
    """A point of the space (`config.encoder`) with weights, in the memory of compiled calls.

    Args:
        config: the encoder.
        weights: its weights by the names of `Encoder.state_dict`, float32 or packed. They are read
            where they lie, but for those that have to be packed.
        dtype: of the products of layers and of the table of words.

    Raises:
        ModelError: a weight is missing, or of another shape than the config says, or unknown.
    """

    def __init__(self, config: EncoderConfig, weights: Stored, dtype: Dtype = "float32") -> None:
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
        net.vocabulary, net.kinds = config.vocab_size, config.segment_types
        net.positions_of_row = config.max_positions
        words = self._take_stored("embedding.word.weight", (config.vocab_size, width))
        net.words = self._table(pack(words, dtype, is_table=True))
        if config.positions == "learned":
            rows = config.position_offset + config.max_positions
            net.positions = self._keep(self._take("embedding.position.weight", (rows, width)))
        else:
            bases = config.rotary_base, config.window_rotary_base
            even = np.arange(0, hidden // config.heads, 2, dtype=np.float32)
            rates = [np.float32(b) ** (-even / np.float32(hidden // config.heads)) for b in bases]
            places = np.arange(config.max_positions, dtype=np.float32)
            # (positions, head size): each angle turns two features.
            angles = [np.tile(np.outer(places, rate), 2) for rate in rates]
            net.cosine[:] = [self._keep(np.cos(angle)) for angle in angles]
            net.sine[:] = [self._keep(np.sin(angle)) for angle in angles]
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
        weight = self._take_stored(name, shape)
        return weight.unpack() if isinstance(weight, Packed) else weight

    def _take_stored(self, name: str, shape: tuple[int, ...]) -> Floats | Packed:
        """A weight of a shape, which then is no longer left."""
        weight = self._left.pop(name, None)
        if weight is None:
            raise ModelError(f"has no 'encoder.{name}'")
        if weight.shape != shape:
            raise ModelError(
                f"holds encoder.{name} of shape {weight.shape}, and its config asks for {shape}"
            )
        return weight

    def _linear(
        self, name: str, outputs: int, inputs: int
    ) -> tuple[Floats | Packed, Floats | None]:
        weight = self._take_stored(f"{name}.weight", (outputs, inputs))
        return weight, self._take(f"{name}.bias", (outputs,)) if self.config.bias else None

    def _norm(self, name: str, width: int) -> _Norm:
        weight = self._take(f"{name}.weight", (width,))
        shift = self._take(f"{name}.bias", (width,)) if self.config.bias else None
        return self._norm_of(weight, shift)

    def _attention(self, number: int, normed: bool) -> dict[str, Any]:
        name, hidden = f"attention.{number}", self.config.hidden_size
        weight, bias = self._linear(f"{name}.qkv", 3 * hidden, hidden)
        biases = (None, None) if bias is None else (bias[:hidden], bias[hidden:])
        whole = pack(weight, self.dtype)
        return {
            "q": self._map(whole.rows(0, hidden), biases[0], self.dtype),
            "kv": self._map(whole.rows(hidden, 3 * hidden), biases[1], self.dtype),
            "attended": self._map(*self._linear(f"{name}.output", hidden, hidden), self.dtype),
            "attention": self._norm(f"{name}.norm", hidden) if normed else _Norm(),
        }

    def _feedforward(self, number: int, wide: int) -> dict[str, Any]:
        name, hidden = f"feedforward.{number}", self.config.hidden_size
        inner = self.config.intermediate_size
        return {
            "inner": self._map(*self._linear(f"{name}.input", wide, hidden), self.dtype),
            "output": self._map(*self._linear(f"{name}.output", hidden, inner), self.dtype),
            "feedforward": self._norm(f"{name}.norm", hidden),
        }

    # ------------------------------------------------------------------------------- what answers

    @property
    def weights(self) -> int:
        """Multiplications of the layers for a token, without attention."""
        shape = self.config
        inner = (3 if shape.feedforward == "gated" else 2) * shape.intermediate_size
        return shape.layers * shape.hidden_size * (4 * shape.hidden_size + inner)

    def head(self, reads: Reads, steps: Sequence[Step] = ()) -> Head:
        """A head over this network."""
        return Head(self, reads, steps)

    def room(self, count: int = 0) -> Floats:
        """Memory of this thread that is kept from call to call, for the system clears what is
        new."""
        room: Floats | None = getattr(self._rooms, "room", None)
        if room is None or room.size < count:
            bytes_ = np.empty(4 * count + 64, np.uint8)
            room = self._rooms.room = bytes_[-bytes_.ctypes.data % 64 :][: 4 * count].view(
                np.float32
            )
        return room


class Head(_Kept):
    """What a network gives: rows of `steps` over what it `reads`, or of the states themselves."""

    def __init__(self, network: Network, reads: Reads, steps: Sequence[Step]) -> None:
        super().__init__()
        self.network, self.reads = network, reads
        self.width = steps[-1].weight.shape[0] if steps else network.config.hidden_size
        self._net = _Network.from_buffer_copy(network._net)
        self._net.reads, self._net.steps = _READS.index(reads), len(steps)
        made = (_Step * max(1, len(steps)))()
        for place, step in zip(made, steps, strict=False):
            outputs, inputs = step.weight.shape
            if isinstance(step.weight, Packed) and step.weight.is_table:
                bias = np.zeros(outputs, np.float32) if step.bias is None else step.bias
                place.table = self._table(step.weight)
                place.map = _Map(None, self._keep(bias), inputs, outputs)
            else:
                place.map = self._map(step.weight, step.bias, "float32")
            place.activation = _ACTIVATIONS.index(step.activation)
            if step.norm is not None:
                place.norm = self._norm_of(*step.norm)
        self._steps = made
        self._net.head = ctypes.addressof(made)

    def of(
        self,
        rows: Rows,
        threads: int,
        state: Floats | None = None,
        layers: tuple[int, int] | None = None,
        chosen: NDArray[np.int64] | None = None,
    ) -> Floats:
        """Apply some layers, and return what the head reads of their state.

        Args:
            state: (T * H,), what the first of these layers reads, if it is not the embedding, and
                what the last one gives.
            layers: from which to before which, all by default; from -1, the embedding before them.
            chosen: numbers of tokens (K,).

        Returns:
            (R, C), or of tokens (T, C), or of those that are `chosen` (K, C).
        """
        network = self.network
        tokens, types = len(rows.ids), rows.types if network.config.segment_types > 1 else None
        first, end = layers or (-1, network.config.layers)
        count = len(rows.starts) - 1
        if self.reads == "tokens":
            count = tokens
        elif chosen is not None:
            count = len(chosen)
        result, room = np.empty((count, self.width), np.float32), network.room()
        batch = _Batch(
            ctypes.addressof(self._net),
            rows.ids.ctypes.data,
            None if types is None else types.ctypes.data,
            rows.starts.ctypes.data,
            None if chosen is None else chosen.ctypes.data,
            tokens,
            len(rows.starts) - 1,
            count,
            first,
            end,
            None if state is None else state.ctypes.data,
            room.ctypes.data,
            result.ctypes.data,
            room.size,
        )
        compiled, address = _library(), ctypes.addressof(batch)
        status = compiled.answer(address, threads)
        if status > 0:
            room = network.room(status)
            batch.room, batch.space = room.ctypes.data, room.size
            status = compiled.answer(address, threads)
        if status:
            raise self._refuse(status, batch.longest)
        return result

    def _refuse(self, status: int, number: int) -> DataError:
        """The error for a batch that answers.c refuses."""
        config = self.network.config
        if status == -1:
            return DataError("a row has no tokens; give each one at least")
        if status == -2:
            return too_long(number, config.max_positions)
        kind, most = (
            ("token", config.vocab_size) if status == -3 else ("token type", config.segment_types)
        )
        return DataError(f"there is no {kind} {number}; the model has {most:,}")


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
    if dtype not in list_dtypes():
        return f"this processor does not multiply {dtype}"
    return find_odd_size(config, dtype)


def find_odd_size(config: EncoderConfig, dtype: Dtype) -> str:
    """Say in a sentence why weights of an encoder cannot be packed; empty where they can."""
    together = TOGETHER[dtype]
    if config.hidden_size % together or config.intermediate_size % together:
        return f"{dtype} needs a hidden size and an intermediate size that {together} divides"
    return ""


def list_dtypes() -> list[Dtype]:
    """What this processor multiplies in compiled answers: float32, bfloat16, int8."""
    if library("answers") is None:
        return []
    names: dict[Dtype, str] = {"bfloat16": "multiplies_narrow", "int8": "multiplies_bytes"}
    return ["float32", *(dtype for dtype, name in names.items() if _constant(name))]


def make_product(x: Floats, weight: Floats, dtype: Dtype, threads: int) -> Callable[[], Floats]:
    """A function that computes x W^T, (rows, out), as layers do; to measure and to test it."""
    outputs, inputs = weight.shape
    y, held = np.empty((len(x), outputs), np.float32), np.empty(len(x) * (2 * inputs + 8), np.uint8)
    panels = pack(weight, dtype).data
    map_ = _Map(panels.ctypes.data, None, inputs, outputs)
    arrays, kind = (x, y, held), DTYPES.index(dtype)

    def compute() -> Floats:
        places = [array.ctypes.data for array in arrays]
        _library().multiply_once(ctypes.addressof(map_), *places, len(x), kind, threads)
        return y

    compute.held = panels  # type: ignore[attr-defined]  # they live as long as this
    return compute


def _library() -> ctypes.CDLL:
    compiled = library("answers")
    assert compiled is not None
    return compiled


@cache
def _constant(name: str) -> int:
    return ctypes.c_long.in_dll(_library(), name).value
