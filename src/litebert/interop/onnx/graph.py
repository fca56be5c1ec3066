"""A network as an ONNX graph: every shared weight is stored once, and each pass over it reads the
same initializer.

The graph is built from the modules, in the operators of a plain export (opset 18), which ONNX
Runtime and OpenVINO fuse when they load it. The batch and the length are free. Names of inputs and
outputs are those of Hugging Face's exports.

Shapes: B sequences, S tokens, H hidden size, A heads, D = H / A head size, N choices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from litebert.base.errors import ModelError
from litebert.config import EncoderConfig, cost
from litebert.config.finetuning import HeadName
from litebert.interop.loaded import LoadedModel
from litebert.interop.onnx.operators import LOWEST, WORDS, Graph
from litebert.model.attention_positions import AttentionPositions
from litebert.model.blocks import Attention, FeedForward
from litebert.model.encoder import Encoder
from litebert.model.heads import ClassifierHead, VocabularyHead
from litebert.model.objectives.mlm import MaskedLanguageModeling
from litebert.model.pretrainer import Pretrainer
from litebert.model.task_model import TaskModel

if TYPE_CHECKING:
    import onnx

OPSET = 18
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
"""The inputs in their order, int64; the last one only where the model has more than one token
type.
"""


# -------------------------------------------------------------------------------------- the encoder


class EncoderGraph:
    """The encoder over one batch: what its layers share, made when the first of them needs it."""

    def __init__(self, graph: Graph, encoder: Encoder, inputs: dict[str, str]) -> None:
        """`inputs` are values by the names in `INPUTS`."""
        self.graph, self.encoder, self.config, self.inputs = graph, encoder, encoder.config, inputs
        self.length = graph("Shape", inputs["input_ids"], start=1, end=2)
        self._blocks: WindowBlocks | None = None
        self._masks: dict[bool, str] = {}
        self._tables: dict[str, str] = {}

    def last(self) -> str:
        """The last state, (B, S, H), after the final norm."""
        x = self.embedding()
        for i in range(self.config.layers):
            x = self.layer(i, x)
        return self.graph.norm("encoder.norm", x, self.encoder.norm)

    def layer(self, i: int, x: str) -> str:
        """The state after layer i, (B, S, H), of the one before it."""
        config = self.config
        a, f, within = config.attention_of()[i], config.feedforward_of()[i], config.window_map()[i]
        attention, feedforward = self.encoder.attention[a], self.encoder.feedforward[f]
        assert isinstance(attention, Attention)
        assert isinstance(feedforward, FeedForward)
        name = f"encoder.attention.{a}"
        norms = i > 0 or config.first_norm
        x = self._block(
            name, attention, x, lambda h: self._attend(name, attention, h, within), norms
        )
        inner = f"encoder.feedforward.{f}"
        return self._block(inner, feedforward, x, lambda h: self._transform(inner, feedforward, h))

    def pool(self, last: str) -> str:
        """(B, H), of an encoder with a pooler."""
        pooler = self.encoder.pooler
        assert pooler is not None
        first = self.graph(
            "Gather", last, self.graph.weight("first", np.array(0, np.int64)), axis=1
        )
        return self.graph.activation(
            "tanh", self.graph.linear("encoder.pooler", first, pooler.weight, pooler.bias)
        )

    def embedding(self) -> str:
        """The state that the first layer reads, (B, S, H)."""
        graph, embedding, ids = self.graph, self.encoder.embedding, self.inputs["input_ids"]
        x = graph.words(WORDS, embedding.word.weight, ids)
        if embedding.position is not None:
            x = graph("Add", x, self._position_rows(embedding.position))
        if embedding.token_type is not None:
            name, types = "encoder.embedding.token_type.weight", embedding.token_type.weight
            type_ids = self.inputs.get("token_type_ids")
            row = (
                graph.weight(name, types[0])
                if type_ids is None
                else graph("Gather", graph.weight(name, types), type_ids)
            )
            x = graph("Add", x, row)
        if not embedding.norm_after:
            x = graph.norm("encoder.embedding.norm", x, embedding.norm)
        if isinstance(embedding.project, nn.Linear):
            x = graph.linear(
                "encoder.embedding.project", x, embedding.project.weight, embedding.project.bias
            )
        return (
            graph.norm("encoder.embedding.norm", x, embedding.norm) if embedding.norm_after else x
        )

    def _position_rows(self, position: Any) -> str:
        graph, name = self.graph, "encoder.embedding.position.weight"
        offset = getattr(position, "offset", 0)
        if not offset:
            rows = position.rows(self.config.max_positions, None)
            return self._up_to_length(name, rows, 0)
        mask = self.inputs["attention_mask"]
        counted = graph(
            "Mul", graph("CumSum", mask, graph.weight("one", np.array(1, np.int64))), mask
        )
        position_ids = graph("Add", counted, graph.numbers(offset - 1))
        return str(graph("Gather", graph.weight(name, position.weight), position_ids))

    def _up_to_length(self, name: str, table: Tensor, *axes: int) -> str:
        """The first S rows of a table of all positions; made once."""
        if name not in self._tables:
            graph, count = self.graph, len(axes)
            ends = graph("Concat", *[self.length] * count, axis=0) if count > 1 else self.length
            inputs = (
                graph.weight(name, table),
                graph.numbers(*[0] * count),
                ends,
                graph.numbers(*axes),
            )
            self._tables[name] = graph("Slice", *inputs)
        return self._tables[name]

    # --------------------------------------------------------------------------------------- blocks

    def _block(self, name: str, block: Any, x: str, inner: Any, norms: bool = True) -> str:
        graph = self.graph
        read = graph.norm(f"{name}.norm", x, block.norm) if block.pre_norm and norms else x
        added = graph("Add", self._linear(name, "output", inner(read), block.output), x)
        return added if block.pre_norm else graph.norm(f"{name}.norm", added, block.norm)

    def _linear(
        self, name: str, key: str, x: str, linear: nn.Linear, scale: Tensor | None = None
    ) -> str:
        weight, bias = (
            (linear.weight, linear.bias)
            if scale is None
            else (
                linear.weight * scale[:, None],
                None if linear.bias is None else linear.bias * scale,
            )
        )
        return self.graph.linear(f"{name}.{key}", x, weight, bias)

    def _transform(self, name: str, block: FeedForward, x: str) -> str:
        graph = self.graph
        y = self._linear(name, "input", x, block.input)
        if not block.gated:
            return graph.activation(block.activation, y)
        gate, value = graph("Split", y, outputs=2, axis=-1, num_outputs=2)
        return str(graph("Mul", graph.activation(block.activation, gate), value))

    def _attend(self, name: str, block: Attention, x: str, within: bool) -> str:
        graph, heads, hidden = self.graph, block.heads, self.config.hidden_size
        size = hidden // heads
        scale = torch.ones(3 * hidden)
        scale[:hidden] = size**-0.5  # of the scores, which no pass then computes
        qkv = self._linear(name, "qkv", x, block.qkv, scale)
        split = graph("Split", qkv, outputs=3, axis=-1, num_outputs=3)
        positions = self.encoder.window_positions if within else None
        kind = positions if isinstance(positions, AttentionPositions) else self.encoder.positions
        shape = graph.numbers(0, 0, heads, size)
        q, k, v = (
            graph("Transpose", graph("Reshape", part, shape), perm=[0, 2, 1, 3]) for part in split
        )
        q, k = self._rotate(kind, q, within), self._rotate(kind, k, within)
        blocks = None
        if within and has_blocks(self.encoder):
            ids, real = self.inputs["input_ids"], self.inputs["attention_mask"]
            blocks = self._blocks = self._blocks or WindowBlocks(graph, self.config, ids, real)
            q, k, v = blocks.queries(q, size), blocks.keys(k, size), blocks.keys(v, size)
        mask = self._mask(within, kind) if blocks is None else blocks.mask
        scores = graph("MatMul", q, graph("Transpose", k, perm=[0, 1, 3, 2]))
        weights = graph("Softmax", graph("Add", scores, mask), axis=-1)
        read = graph("Transpose", graph("MatMul", weights, v), perm=[0, 2, 1, 3])
        if blocks is not None:
            return blocks.join(read, hidden)
        return str(graph("Reshape", read, graph.numbers(0, 0, hidden)))

    def _rotate(self, kind: AttentionPositions, x: str, within: bool) -> str:
        tables, graph = kind.tables(), self.graph
        if tables is None:
            if type(kind).rotate is not AttentionPositions.rotate:
                raise ModelError(
                    f"positions {self.config.positions} rotate queries and keys in a way that is "
                    "not exported; give its AttentionPositions the method `tables`, or train with "
                    "encoder.positions=rotary"
                )
            return x
        which = "window" if within and kind is self.encoder.window_positions else "all"
        cos, sin = (
            self._up_to_length(f"{name}.{which}", table[: self.config.max_positions], 0)
            for name, table in zip(("cosine", "sine"), tables, strict=True)
        )
        first, second = graph("Split", x, outputs=2, axis=-1, num_outputs=2)
        swapped = graph("Concat", second, first, axis=-1)
        return str(graph("Add", graph("Mul", x, cos), graph("Mul", swapped, sin)))

    def _mask(self, within: bool, kind: AttentionPositions) -> str:
        """The mask that is added to the scores; it broadcasts to (B, A, S, S)."""
        if within in self._masks:
            return self._masks[within]
        graph, config = self.graph, self.config
        read = graph("Unsqueeze", self.inputs["attention_mask"], graph.numbers(1, 2))
        read = graph("Cast", read, to=9)  # bool
        if within:
            near, itself = self._window()
            read = graph("And", near, graph("Or", read, itself))
        mask = graph("Where", read, graph.scalar(0.0), graph.scalar(LOWEST))
        bias = kind.bias(config.max_positions)
        if bias is not None:
            axes = [
                i for i in (bias.ndim - 2, bias.ndim - 1) if bias.shape[i] == config.max_positions
            ]
            mask = graph("Add", mask, self._up_to_length(f"bias.{within}", bias, *axes))
        self._masks[within] = mask
        return str(mask)

    def _window(self) -> tuple[str, str]:
        """The keys near each query, and each query's position, bool (S, S)."""
        graph = self.graph
        end = graph("Squeeze", self.length, graph.numbers(0))
        key = graph(
            "Range",
            graph.weight("zero", np.array(0, np.int64)),
            end,
            graph.weight("one", np.array(1, np.int64)),
        )
        query = graph("Unsqueeze", key, graph.numbers(1))
        distance = graph("Abs", graph("Sub", key, query))
        near = graph("LessOrEqual", distance, graph.numbers(self.config.window // 2))
        if self.config.global_tokens:
            first = graph("Less", key, graph.numbers(self.config.global_tokens))
            near = graph(
                "Or", graph("Or", near, first), graph("Unsqueeze", first, graph.numbers(1))
            )
        return near, graph("Equal", key, query)


# ------------------------------------------------------------------------------------- whole models


def choose_head(loaded: LoadedModel, head: HeadName | None = None) -> HeadName:
    """The head that an export holds: of a fine-tuned model its own, else mlm where it is trained,
    else backbone.
    """
    model = loaded.model
    if isinstance(model, TaskModel):
        possible: list[HeadName] = list(dict.fromkeys((loaded.head, "backbone")))
    else:
        trained = _vocabulary_objective(model)
        possible = (
            ["mlm", "backbone"] if trained and trained not in loaded.untrained else ["backbone"]
        )
    if head is not None and head not in possible:
        raise ModelError(
            f"{loaded.path} has no {head} head to export; choose {' or '.join(possible)}"
        )
    return head or possible[0]


def _vocabulary_objective(model: Pretrainer) -> str:
    """The objective whose head guesses masked tokens from the encoder's own states; empty for
    none."""
    named = model.named_objectives
    names = [
        name for name, objective in named.items() if isinstance(objective, MaskedLanguageModeling)
    ]
    return names[0] if names and model.config.generator is None else ""


def onnx_model(
    loaded: LoadedModel, head: HeadName | None = None, graph: Graph | None = None
) -> onnx.ModelProto:
    """The ONNX model of an opened folder.

    Inputs, int64: `input_ids` and `attention_mask` (B, S), and `token_type_ids` where the model has
    several types. With the head `choice` all of them are (B, N, S).

    Outputs, float32, by head: `logits` (B, C) of sequence, (B, S, C) of tokens, (B, N) of choice,
    (B, S, V) of mlm; `start_logits` and `end_logits` (B, S) of span; `last_hidden_state` (B, S, H)
    of backbone.

    Args:
        head: what it computes, as `choose_head` chooses by default.
        graph: where to put operators and weights.
    """
    head, graph = choose_head(loaded, head), graph or Graph()
    encoder = loaded.model.encoder
    names = INPUTS[: 3 if encoder.config.segment_types > 1 else 2]
    axes = ["batch_size", *["num_choices"] * (head == "choice"), "sequence_length"]
    read = {name: name for name in names}
    if head == "choice":  # the rows of all choices side by side
        rows = graph(
            "Concat", graph.numbers(-1), graph("Shape", "input_ids", start=2, end=3), axis=0
        )
        read = {name: graph("Reshape", name, rows) for name in names}
    forward = EncoderGraph(graph, encoder, read)
    outputs = _outputs(graph, loaded, forward, head)
    import onnx

    ints, floats = onnx.TensorProto.INT64, onnx.TensorProto.FLOAT
    describe = onnx.helper.make_tensor_value_info
    made = onnx.helper.make_graph(
        graph.nodes,
        "litebert",
        [describe(name, ints, axes) for name in names],
        [describe(name, floats, shape) for name, shape in outputs.items()],
        list(graph.weights.values()),
    )
    opsets = [onnx.helper.make_opsetid("", OPSET)]
    return onnx.helper.make_model(
        made, opset_imports=opsets, producer_name="litebert", ir_version=8
    )


@torch.no_grad()
def compute_outputs(
    loaded: LoadedModel, head: HeadName, inputs: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Compute with PyTorch what an export gives, under the names of its outputs."""
    model, shape = loaded.model, inputs["input_ids"].shape
    rows = {name: tensor.reshape(-1, shape[-1]) for name, tensor in inputs.items()}
    order = (rows["input_ids"], rows.get("token_type_ids"), rows["attention_mask"])
    if head == "backbone":
        return {"last_hidden_state": model.encoder(*order).last}
    if isinstance(model, Pretrainer):
        tables, guess = model.encoder.embedding, model.objectives[_vocabulary_objective(model)].head
        assert isinstance(guess, VocabularyHead)
        last = model.encoder(*order).last
        return {"logits": torch.stack([guess(row, tables.word.weight, tables.map) for row in last])}
    logits = model(*order)
    if head == "span":
        return {"start_logits": logits[..., 0], "end_logits": logits[..., 1]}
    return {"logits": logits.reshape(shape[:-1]) if head == "choice" else logits}


def _outputs(
    graph: Graph, loaded: LoadedModel, forward: EncoderGraph, head: HeadName
) -> dict[str, Sequence[Any]]:
    model, last = loaded.model, forward.last()
    batch, tokens = "batch_size", "sequence_length"
    if head == "backbone":
        graph("Identity", last, name="last_hidden_state")
        return {"last_hidden_state": (batch, tokens, forward.config.hidden_size)}
    if isinstance(model, Pretrainer):
        network = model.objectives[_vocabulary_objective(model)].head
        assert isinstance(network, VocabularyHead)
        graph("Identity", _vocabulary(graph, network, last, forward.encoder), name="logits")
        return {"logits": (batch, tokens, forward.config.vocab_size)}
    read = _text_state(graph, model, forward, last) if model.reads_cls else last
    logits = _classifier(graph, model.head, read)
    if head == "span":
        starts, ends = graph("Split", logits, outputs=2, axis=-1, num_outputs=2)
        for name, value in (("start_logits", starts), ("end_logits", ends)):
            graph("Squeeze", value, graph.numbers(-1), name=name)
        return dict.fromkeys(("start_logits", "end_logits"), (batch, tokens))
    if head == "choice":
        graph("Reshape", logits, graph("Shape", "input_ids", start=0, end=2), name="logits")
        return {"logits": (batch, "num_choices")}
    graph("Identity", logits, name="logits")
    answers = "pairs" if model.pooling == "apart" else batch
    return {"logits": (answers, *[tokens] * (not model.reads_cls), model.classes)}


def _text_state(graph: Graph, model: TaskModel, forward: EncoderGraph, last: str) -> str:
    """The state that a classifier of whole texts reads, (B, H), or (B / 2, 4H) of pairs."""
    if model.pooling != "cls":
        real = graph(
            "Unsqueeze", graph("Cast", forward.inputs["attention_mask"], to=1), graph.numbers(-1)
        )
        total = graph("ReduceSum", graph("Mul", last, real), graph.numbers(1), keepdims=0)
        mean = graph("Div", total, graph("ReduceSum", real, graph.numbers(1), keepdims=0))
        if model.pooling in ("unit", "apart"):
            mean = graph("Div", mean, graph("ReduceL2", mean, graph.numbers(1), keepdims=1))
        if model.pooling == "apart":  # (B, H) as (B / 2, 2, H)
            pairs = graph("Reshape", mean, graph.numbers(-1, 2, forward.config.hidden_size))
            parts = graph("Split", pairs, outputs=2, axis=1, num_outputs=2)
            u, v = (graph("Squeeze", part, graph.numbers(1)) for part in parts)
            apart = graph("Abs", graph("Sub", u, v))
            return str(graph("Concat", u, v, apart, graph("Mul", u, v), axis=-1))
        return str(mean)
    if model.encoder.pooler is not None:
        return forward.pool(last)
    return str(graph("Gather", last, graph.weight("first", np.array(0, np.int64)), axis=1))


def _classifier(graph: Graph, head: ClassifierHead, x: str) -> str:
    if head.dense is not None:
        x = graph.activation(
            head.activation, graph.linear("head.dense", x, head.dense.weight, head.dense.bias)
        )
        x = x if head.norm is None else graph.norm("head.norm", x, head.norm)
    return graph.linear("head.classifier", x, head.classifier.weight, head.classifier.bias)


def _vocabulary(graph: Graph, head: VocabularyHead, x: str, encoder: Encoder) -> str:
    embedding = encoder.embedding
    x = graph.activation(
        head.activation, graph.linear("mlm.dense", x, head.dense.weight, head.dense.bias)
    )
    x = graph.norm("mlm.norm", x, head.norm)
    if head.word is not None:
        if head.project is not None:
            x = graph.linear_transposed("mlm.project.weight", x, head.project.weight.T, None)
        return graph.linear("mlm", x, head.word.weight, head.bias)
    if head.hidden and embedding.map is not None:
        x = graph.linear_transposed("encoder.embedding.project.weight", x, embedding.map.T, None)
    return graph.linear_transposed(WORDS, x, embedding.word.weight, head.bias, "mlm")


def has_blocks(encoder: Encoder) -> bool:
    """Return True if the windowed layers of an encoder can be cut. Global tokens and positions that
    bias the scores need all pairs of tokens.
    """
    config = encoder.config
    kind = encoder.window_positions or encoder.positions
    is_free: bool = kind.bias(config.max_positions) is None
    is_long = cost.window_block(config, config.max_positions) > 0
    return is_free and is_long and not config.global_tokens


class WindowBlocks:
    """The blocks of one batch, which all windowed layers share; their scores grow with the length
    and not with its square.

    Queries are cut into N blocks of C tokens, and a block reads its own keys and C / 2 on each
    side, as in model/windows.py. Sequences of up to 4 C tokens are one block that reads all keys
    under a mask, which is cheaper there. Which of both it is, is known when the graph runs.
    K are the keys of a block.
    """

    def __init__(self, graph: Graph, config: EncoderConfig, ids: str, real: str) -> None:
        """`ids` and `real` are the inputs `input_ids` and `attention_mask`, (B, S)."""
        self.graph, self._heads = graph, config.heads
        block = cost.window_block(config, config.max_positions)
        self._batch = graph("Shape", ids, start=0, end=1)
        self._length = graph("Shape", ids, start=1, end=2)
        is_long = graph("Greater", self._length, graph.numbers(4 * block))
        size = graph("Where", is_long, graph.numbers(block), self._length)  # C
        side = graph("Where", is_long, graph.numbers(block // 2), graph.numbers(0))
        behind = graph("Add", size, side)
        last = graph("Sub", self._length, graph.numbers(1))
        count = graph("Div", graph("Add", last, size), size)  # N
        starts = graph("Mul", self._range(graph.numbers(0), count), size)
        starts = graph("Unsqueeze", starts, graph.numbers(1))
        query = graph("Add", starts, self._range(graph.numbers(0), size))  # (N, C)
        key = graph("Add", starts, self._range(graph("Neg", side), behind))  # (N, K)
        self._size, self._keys = size, graph("Add", behind, side)
        self._query_of = graph("Min", query, last)
        self._key_of = graph("Max", graph("Min", key, last), graph.numbers(0))
        self.mask: str = self._make_mask(config.window // 2, query, key, real)
        """The mask that is added to the scores, (B N, 1, C, K)."""

    def _range(self, start: str, end: str) -> Any:
        graph, axis = self.graph, self.graph.numbers(0)
        step = graph.weight("one", np.array(1, np.int64))
        return graph("Range", graph("Squeeze", start, axis), graph("Squeeze", end, axis), step)

    def _make_mask(self, reach: int, query: str, key: str, real: str) -> str:
        graph = self.graph
        distance = graph(
            "Sub",
            graph("Unsqueeze", key, graph.numbers(1)),
            graph("Unsqueeze", query, graph.numbers(2)),
        )  # (N, C, K)
        near = graph("LessOrEqual", graph("Abs", distance), graph.numbers(reach))
        inside = graph("Equal", key, self._key_of)  # beside the sequence there is nothing
        near = graph("And", near, graph("Unsqueeze", inside, graph.numbers(1)))
        real = graph("Gather", graph("Cast", real, to=9), self._key_of, axis=1)  # (B, N, K)
        real = graph("Unsqueeze", real, graph.numbers(2))
        itself = graph("Equal", distance, graph.numbers(0))
        read = graph("And", near, graph("Or", real, itself))  # (B, N, C, K)
        mask = graph("Where", read, graph.scalar(0.0), graph.scalar(LOWEST))
        shape = graph("Concat", graph.numbers(-1, 1), self._size, self._keys, axis=0)
        return str(graph("Reshape", mask, shape))

    def queries(self, x: str, size: int) -> str:
        """The blocks of queries, (B N, A, C, D), of (B, A, S, D)."""
        return self._split(x, self._query_of, self._size, size)

    def keys(self, x: str, size: int) -> str:
        """The keys or values that each block reads, (B N, A, K, D), of (B, A, S, D)."""
        return self._split(x, self._key_of, self._keys, size)

    def _split(self, x: str, places: str, count: str, size: int) -> str:
        graph = self.graph
        cut = graph("Gather", x, places, axis=2)  # (B, A, N, .., D)
        cut = graph("Transpose", cut, perm=[0, 2, 1, 3, 4])
        shape = graph("Concat", graph.numbers(-1, self._heads), count, graph.numbers(size), axis=0)
        return str(graph("Reshape", cut, shape))

    def join(self, read: str, hidden: int) -> str:
        """(B, S, H), of (B N, C, A, D)."""
        graph = self.graph
        shape = graph("Concat", self._batch, graph.numbers(-1, hidden), axis=0)
        whole = graph("Reshape", read, shape)
        return str(graph("Slice", whole, graph.numbers(0), self._length, graph.numbers(1)))
