"""A fine-tuned network as it answers on a CPU: rows lie end to end, so that nothing is computed for
padding.

A layer is one call of a compiled function (`layer` in kernels.c), its matrix multiplications
included. In the last layer, of which a classifier of texts reads [CLS] alone, queries and all that
follows them are computed for [CLS] alone. Answers are those of the network to rounding.

All is float32, but for matrix multiplications where bfloat16 or 8 bits are asked for. Their weights
are kept a second time, in the order in which they are read. In 8 bits, each row of a weight and
each token have a scale of their own, so an answer does not depend on its company. Working memory
belongs to a thread, so several threads may ask one network.

Attention within a window computes scores near a token alone, a few tokens at a time, so it takes
memory and time that grow with the row.

`PackedNetwork.of` takes networks of the parts that it knows. Others compute their answers by the
network itself: those with parts of one's own, and all on machines without the compiled passes. So
do processors without the instructions for the type: AVX-512 bfloat16 for bfloat16, AVX2 for 8 bits,
which VNNI multiplies faster and with equal sums. AMX is not used.

Shapes: R rows, T tokens of all rows, H hidden size, I intermediate size.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Generator
from functools import cache
from typing import NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from litebert.base.errors import ModelError
from litebert.config import EncoderConfig, Pooling
from litebert.model.attention_positions import AttentionPositions, Rotary
from litebert.model.blocks import Attention, FeedForward
from litebert.model.cpu.functions import ACTIVATIONS, call
from litebert.model.cpu.loader import WIDEST, describe, library
from litebert.model.embedding import Embedding, PositionTable, too_long
from litebert.model.encoder import Encoder
from litebert.model.heads import ClassifierHead, StateHead
from litebert.model.task_model import TaskModel

_PARTS = (
    TaskModel,
    Encoder,
    Embedding,
    PositionTable,
    Attention,
    FeedForward,
    AttentionPositions,
    Rotary,
    ClassifierHead,
    StateHead,
    nn.Embedding,
    nn.Linear,
    nn.LayerNorm,
    nn.Dropout,
    nn.Identity,
    nn.ModuleList,
)


_TYPES = (None, torch.bfloat16, torch.int8)
"""The types of matrix multiplications, in the order of kernels.c."""


class Packed(NamedTuple):
    """Rows of tokens end to end."""

    ids: Tensor
    """(T,)"""
    types: Tensor | None
    """(T,); None where all are 0."""
    positions: Tensor
    """(T,): of each token in its row."""
    starts: Tensor
    """(R + 1,): where each row starts, and T."""
    longest: int

    @classmethod
    def of(
        cls, ids_RS: NDArray[np.int64], types_RS: NDArray[np.int64], mask_RS: NDArray[np.bool_]
    ) -> Packed:
        """Pack padded rows, whose padding stands at the end."""
        starts = np.concatenate(([0], np.cumsum(mask_RS.sum(1))))
        positions = np.nonzero(mask_RS)[1]
        types = torch.from_numpy(types_RS[mask_RS]) if types_RS.any() else None
        return cls(
            torch.from_numpy(ids_RS[mask_RS]),
            types,
            torch.from_numpy(positions),
            torch.from_numpy(starts),
            int(np.diff(starts).max(initial=0)),
        )

    def select(self, rows_K: Tensor) -> tuple[Packed, Tensor]:
        """Select rows by their numbers (K,); returns them and the numbers of their tokens."""
        lengths = self.starts.diff()
        stays = torch.zeros(len(lengths), dtype=torch.bool).index_fill_(0, rows_K, True)
        tokens = torch.repeat_interleave(stays, lengths).nonzero().squeeze(1)
        types = None if self.types is None else self.types[tokens]
        starts = torch.cat((self.starts[:1], lengths[rows_K].cumsum(0)))
        return Packed(
            self.ids[tokens], types, self.positions[tokens], starts, int(lengths[rows_K].max())
        ), tokens


class _Table(NamedTuple):
    """The addresses that `layer` reads of the blocks of a layer."""

    addresses: Tensor
    """The addresses of panels, biases and norms."""
    eps: Tensor
    """The epsilon of each norm."""
    held: list[Tensor | nn.Module | None]
    """The tensors and modules whose addresses are in `addresses`, kept alive by the table."""
    state: list[object]
    """The state of the modules that it was made of."""


class _Workspace(threading.local):
    """The working memory of a thread."""

    def __init__(self) -> None:
        self.rooms: dict[str, Tensor] = {}
        self.walk: object = None
        """The pass that the rooms hold the state of."""


class PackedNetwork:
    """A network that answers as its `TaskModel` does, whose weights it reads and does not change.

    Changes of weights through `.data` or `.numpy()` are not noticed, for PyTorch counts none there.

    Args:
        matmul_dtype: the type of matrix multiplications, bfloat16 or int8; None for float32.
    """

    def __init__(self, model: TaskModel, matmul_dtype: torch.dtype | None = None) -> None:
        self._matmul_dtype = matmul_dtype
        self._model, self._encoder, config = model, model.encoder, model.encoder.config
        self._heads, self._hidden = config.heads, config.hidden_size
        window_positions = self._encoder.window_positions
        self._angles = {
            False: self._read_angles(self._encoder.positions),
            True: self._read_angles(window_positions or self._encoder.positions),
        }
        """The cosines and sines of layers that attend to all tokens, and of those within a
        window."""
        self._windowed = config.window_map()
        self._reads_cls = model.reads_cls and model.pooling == "cls"
        attention, feedforward = self._encoder.attention, self._encoder.feedforward
        blocks = zip(config.attention_of(), config.feedforward_of(), strict=True)
        self._layers = [
            (cast(Attention, attention[a]), cast(FeedForward, feedforward[f])) for a, f in blocks
        ]
        self._panels: dict[Tensor, tuple[tuple[int, int], Tensor]] = {}
        """The packed copy of each weight, with the address and version that it was made from."""
        self._tables: dict[tuple[nn.Module, nn.Module], _Table] = {}
        self._workspace = _Workspace()

    def _read_angles(self, positions: nn.Module) -> tuple[Tensor | None, Tensor | None]:
        """Read the cosines and sines of positions, None where they rotate nothing."""
        tables = cast(AttentionPositions, positions).tables()
        if tables is None:
            return None, None
        # The first half of the sines is negated.
        return tables[0], tables[1].flatten()[self._hidden // self._heads // 2 :]

    @classmethod
    def of(cls, model: TaskModel, matmul_dtype: torch.dtype | None = None) -> PackedNetwork | None:
        """The network that answers for a model; None where `find_refusal` has a reason."""
        return None if find_refusal(model, matmul_dtype) else cls(model, matmul_dtype)

    @torch.inference_mode()
    def logits(
        self, ids_RS: NDArray[np.int64], types_RS: NDArray[np.int64], mask_RS: NDArray[np.bool_]
    ) -> NDArray[np.float32]:
        """(R, C), or (R, S, C) with zeros in place of padding."""
        rows = Packed.of(ids_RS, types_RS, mask_RS)
        self._workspace.walk = None
        *_, state = self.states(rows)
        logits: NDArray[np.float32] = self.read(state, rows).numpy()
        if self._model.reads_cls:
            return logits
        padded = np.zeros((*ids_RS.shape, logits.shape[-1]), np.float32)
        padded[mask_RS] = logits
        return padded

    @torch.inference_mode()
    def vectors(
        self,
        ids_RS: NDArray[np.int64],
        types_RS: NDArray[np.int64],
        mask_RS: NDArray[np.bool_],
        pooling: Pooling,
    ) -> NDArray[np.float32]:
        """(R, H): the mean of the last states of each row, or that of [CLS]."""
        rows = Packed.of(ids_RS, types_RS, mask_RS)
        self._workspace.walk = None
        *_, state = self.states(rows)
        state = self._encoder.norm(state)
        if pooling == "cls":
            first: NDArray[np.float32] = state[rows.starts[:-1]].numpy()
            return first
        starts = rows.starts.numpy()
        total: NDArray[np.float32] = np.add.reduceat(state.numpy(), starts[:-1], axis=0)
        total /= np.diff(starts)[:, None].astype(np.float32)
        return total

    def walk(
        self, ids_RS: NDArray[np.int64], types_RS: NDArray[np.int64], mask_RS: NDArray[np.bool_]
    ) -> PackedWalk:
        """The batch layer by layer."""
        return PackedWalk(self, Packed.of(ids_RS, types_RS, mask_RS))

    def states(self, rows: Packed) -> Generator[Tensor, tuple[Packed, Tensor] | None, None]:
        """The embedding, then the state after each layer, (T, H); of the last layer (R, H) where
        [CLS] is all that is read. Each is overwritten when the next one is asked for. `send` of
        what `Packed.select` gives goes on with some of the rows.
        """
        state = self._embed(rows)
        selection = yield state
        for i in range(len(self._layers)):
            if selection is not None:
                rows, tokens = selection
                stays = torch.index_select(
                    state, 0, tokens, out=self._room("kept", len(tokens), self._hidden)
                )
                state = self._room("state", *stays.shape).copy_(stays)
            only_cls = self._reads_cls and i == len(self._layers) - 1
            state = self._layer(i, state, rows, only_cls)
            selection = yield state

    def read(self, state: Tensor, rows: Packed) -> Tensor:
        """Logits of a state: (R, C), or (T, C)."""
        state = self._encoder.norm(state)
        if self._reads_cls:
            first = state if len(state) == len(rows.starts) - 1 else state[rows.starts[:-1]]
            pooler = self._encoder.pooler
            state = first if pooler is None else torch.tanh(pooler(first))
        elif self._model.reads_cls:
            lengths = rows.starts.diff()
            row = torch.repeat_interleave(torch.arange(len(lengths)), lengths)
            state = (
                state.new_zeros(len(lengths), self._hidden).index_add_(0, row, state)
                / lengths[:, None]
            )
        logits: Tensor = self._model.head(state)
        return logits

    def _embed(self, rows: Packed) -> Tensor:
        embedding = self._encoder.embedding
        if rows.longest > embedding.max_positions:
            raise too_long(rows.longest, embedding.max_positions)
        x = embedding.word(rows.ids)
        if isinstance(embedding.position, PositionTable):
            x += embedding.position.weight[embedding.position.offset + rows.positions]
        if embedding.token_type is not None:
            x += (
                embedding.token_type.weight[0]
                if rows.types is None
                else embedding.token_type(rows.types)
            )
        x = (
            embedding.norm(embedding.project(x))
            if embedding.norm_after
            else embedding.project(embedding.norm(x))
        )
        return self._room("state", *x.shape).copy_(x)

    def _layer(self, i: int, x: Tensor, rows: Packed, only_cls: bool) -> Tensor:
        """Run layer i in place; with `only_cls`, for the rows of [CLS] only."""
        (attention, feedforward), config = self._layers[i], self._encoder.config
        table, within = self._table(attention, feedforward), self._windowed[i]
        tokens, hidden, inner = len(x), self._hidden, feedforward.output.in_features
        wide, kind = feedforward.input.out_features, ACTIVATIONS.index(feedforward.activation)
        (cosine, sine), each = self._angles[within], self._for_heads(rows)
        numbers = tokens * (6 * hidden + wide + inner)
        if self._matmul_dtype is not None:
            numbers += (tokens * max(hidden, inner) + 1) // 2 + 2 * tokens
        room = self._room("layer", 1, torch.get_num_threads() * each + numbers)
        call(
            "layer",
            x,
            table.addresses,
            table.eps,
            rows.starts,
            cosine,
            sine,
            room,
            each,
            tokens,
            len(rows.starts) - 1,
            self._heads,
            hidden // self._heads,
            inner,
            config.window // 2 if within else -1,
            config.global_tokens,
            kind,
            int(feedforward.gated),
            int(feedforward.pre_norm),
            int(i > 0 or config.first_norm),
            int(only_cls),
            _TYPES.index(self._matmul_dtype),
            elements=tokens * wide * hidden,
        )
        return x[: len(rows.starts) - 1] if only_cls else x

    def _table(self, attention: Attention, feedforward: FeedForward) -> _Table:
        """The table of a layer; it is built again where a module or a parameter has changed."""
        linear = (attention.qkv, attention.output, feedforward.input, feedforward.output)
        norms = (attention.norm, feedforward.norm)
        modules: tuple[nn.Module, ...] = (*linear, *norms)
        eps = [getattr(norm, "eps", 0.0) for norm in norms]
        state: list[object] = [*map(id, modules), *eps]
        state += [
            _state(parameter) for module in modules for parameter in module._parameters.values()
        ]
        table = self._tables.get((attention, feedforward))
        if table is not None and table.state == state:
            return table
        plain = [layer.bias for layer in linear] + [
            getattr(norm, name, None) for norm in norms for name in ("weight", "bias")
        ]
        for weight in (*(layer.weight for layer in linear), *plain):
            if weight is not None and (weight.dtype, weight.device.type) != (torch.float32, "cpu"):
                changed = f"in {str(weight.dtype).removeprefix('torch.')} on {weight.device}"
                raise ModelError(
                    f"a weight of a loaded model is now {changed}; load the model again to "
                    "answer with it"
                )
        qkv, *others = panels = [self._once(layer.weight) for layer in linear]
        queries = -(
            -self._hidden // _constant("panel_columns")
        )  # panels of them, before those of keys and values
        operands = [qkv[0], qkv[queries], *others, *plain]
        self._tables[attention, feedforward] = table = _Table(
            torch.tensor([0 if operand is None else operand.data_ptr() for operand in operands]),
            torch.tensor(eps, dtype=torch.float32),
            [*panels, *plain, *modules, *(layer.weight for layer in linear)],
            state,
        )
        current = set(map(id, self._model.parameters()))
        self._panels = {
            weight: panels for weight, panels in self._panels.items() if id(weight) in current
        }
        return table

    def _for_heads(self, rows: Packed) -> int:
        """The floats that a thread needs for attention in a row."""
        size = self._hidden // self._heads
        wide, longest = (
            -(-n // _constant("panel_columns")) * _constant("panel_columns")
            for n in (size, rows.longest)
        )
        return _constant("most_rows") * (size + longest + wide) + longest * (size + wide)

    def _once(self, weight: Tensor) -> Tensor:
        """The panels that matrix multiplications read in place of a weight; they are built again
        only where it has changed.
        """
        state, panels = self._panels.get(weight, (None, weight))
        if state != _state(weight):
            parts = [weight.shape[0] // 3, 2 * weight.shape[0] // 3]
            qkv = any(weight is attention.qkv.weight for attention, _ in self._layers)
            split = torch.split(weight, parts if qkv else [len(weight)])
            panels = torch.cat([_panels(part, self._matmul_dtype) for part in split])
            self._panels[weight] = _state(weight), panels
        return panels

    def _room(self, name: str, rows: int, width: int) -> Tensor:
        """Memory that is kept from call to call, for the system clears what is new."""
        rooms = self._workspace.rooms
        room = rooms.get(name)
        if room is None or room.numel() < rows * width:
            room = rooms[name] = torch.empty(rows * width, dtype=torch.float32, device="cpu")
        return room[: rows * width].view(rows, width)


def find_refusal(model: TaskModel, matmul_dtype: torch.dtype | None = None) -> str:
    """Say in a sentence why a model cannot be packed; empty where it can.

    Args:
        matmul_dtype: the type of matrix multiplications, as for `PackedNetwork`.
    """
    config = model.encoder.config
    if matmul_dtype not in _TYPES:
        return f"a packed network has no matrix multiplications in {matmul_dtype}"
    for module in model.modules():
        if type(module) not in _PARTS:
            return f"a packed network has no part like {type(module).__name__}"
        if module._forward_hooks or module._forward_pre_hooks:
            return f"a packed network calls no hooks, and {type(module).__name__} has one"
    for parameter in model.parameters():
        if parameter.dtype != torch.float32 or parameter.device.type != "cpu":
            kind = f"{parameter.dtype} on {parameter.device}"
            return f"a packed network reads float32 on the CPU, and a parameter is {kind}"
        if parameter.is_inference():
            return "a packed network sees changes of weights, which inference tensors do not count"
    if config.activation not in ACTIVATIONS:
        return f"a packed network does not compute encoder.activation={config.activation}"
    if 3 * max(config.hidden_size, config.intermediate_size) > WIDEST:
        return f"a packed network holds rows of {WIDEST} numbers at most"
    if library() is None:
        return f"a packed network is compiled C, which is {describe()}"
    if not _can_multiply(matmul_dtype, config):
        return f"this processor does not multiply {matmul_dtype} of these sizes"
    return ""


def list_matmul_dtypes() -> list[str]:
    """The types that this processor multiplies in compiled answers: float32, bfloat16, int8."""
    if library() is None:
        return []
    names = {"float32": None, "bfloat16": "multiplies_narrow", "int8": "multiplies_bytes"}
    return [dtype for dtype, name in names.items() if name is None or _constant(name)]


def _can_multiply(matmul_dtype: torch.dtype | None, config: EncoderConfig) -> bool:
    """True where this processor multiplies the type in kernels.c, and the sizes of the layers
    fit.
    """
    if matmul_dtype is None:
        return True
    together, name = (
        (4, "multiplies_bytes") if matmul_dtype is torch.int8 else (2, "multiplies_narrow")
    )
    even = config.hidden_size % together == config.intermediate_size % together == 0
    return even and bool(_constant(name))


def _panels(weight: Tensor, matmul_dtype: torch.dtype | None) -> Tensor:
    """A weight (out, in) in the order in which `multiply` (kernels.c) reads it."""
    columns, wide, together = _constant("panel_columns"), weight.shape[1], 1
    scale = None
    if matmul_dtype is torch.int8:
        together, scale = _constant("multiplies_bytes"), weight.abs().amax(1) / 127
        weight = (
            (weight / scale.clamp_min(torch.finfo(scale.dtype).tiny)[:, None])
            .round()
            .to(matmul_dtype)
        )
    elif matmul_dtype is not None:
        together, weight = 2, weight.to(matmul_dtype)
    full = nn.functional.pad(weight, (0, 0, 0, -len(weight) % columns))
    panels = full.reshape(-1, columns, wide // together, together).transpose(1, 2).contiguous()
    if scale is None:
        return panels
    scales = nn.functional.pad(scale, (0, len(full) - len(scale)))
    behind = torch.stack((scales.view(torch.int32), full.sum(1, dtype=torch.int32)), 1)
    behind = behind.reshape(-1, columns, 2).transpose(1, 2).flatten(1)
    return torch.cat((panels.flatten(1).view(torch.int32), behind), 1)


def _state(weight: Tensor | None) -> tuple[int, int]:
    """Changes where the weight does."""
    return (0, 0) if weight is None else (weight.data_ptr(), weight._version)


@cache
def _constant(name: str) -> int:
    compiled_library = library()
    assert compiled_library is not None
    return ctypes.c_long.in_dll(compiled_library, name).value


class PackedWalk:
    """A batch on its way through the network, some of whose rows may leave after each layer. In a
    thread, it ends where the network begins with another batch."""

    @torch.inference_mode()
    def __init__(self, network: PackedNetwork, rows: Packed) -> None:
        self._network, self._rows, self._states = network, rows, network.states(rows)
        self._selection: tuple[Packed, Tensor] | None = None
        network._workspace.walk = self
        next(self._states)

    @torch.inference_mode()
    def step(self) -> NDArray[np.float32]:
        """Apply the next layer; the logits that the head reads after it, (R, C)."""
        assert self._network._workspace.walk is self, (
            "another batch has taken the memory of this one"
        )
        state, self._selection = self._states.send(self._selection), None
        logits: NDArray[np.float32] = self._network.read(state, self._rows).numpy()
        return logits

    def keep(self, rows: NDArray[np.int64], length: int) -> None:
        """Go on with these rows only; padding, which `length` tells others of, there is none."""
        self._selection = self._rows.select(torch.from_numpy(rows))
        self._rows = self._selection[0]
