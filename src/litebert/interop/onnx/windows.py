"""Attention within a window as ONNX operators, whose scores grow with the length and not with its
square.

Queries are cut into N blocks of C tokens, and a block reads its own keys and C / 2 on each side, as
in model/windows.py. Sequences of up to 4 C tokens are one block that reads all keys under a mask,
which is cheaper there. Which of both it is, is known when the graph runs.

Shapes: B sequences, S tokens, H hidden size, A heads, D head size, K keys of a block.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from litebert.config import EncoderConfig, cost
from litebert.interop.onnx.operators import LOWEST, Graph
from litebert.model.encoder import Encoder


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
    """The blocks of one batch, which all windowed layers share."""

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
