"""The same graph with 8-bit weights: quantized once, per output channel, and read by every pass.

Activations are quantized while the graph runs, so they need no calibration: each token by its own
largest one, so that an answer depends neither on the other rows of its batch nor on padding. The
matrix multiplications are MatMulInteger of unsigned activations around 128 and signed weights, for
which ONNX Runtime has fast kernels. Weights of matrix multiplications use 7 of the 8 bits: on
processors that have AVX2 but no VNNI, this kernel adds two products in 16 bits, which would
saturate with the full range. Norms, biases, positions and the last map of a classifier stay in
float32: they are small.
"""

from __future__ import annotations

import numpy as np
from torch import Tensor

from litebert.interop.onnx.operators import WORDS, Graph

LARGEST = 63
"""The largest entry of a weight that is multiplied; the same below zero."""
_LARGEST_ROW = 127
"""The largest entry of a table that is only looked up."""
KEPT = ("head.classifier",)
"""Maps that stay in float32."""
_FLOAT = 1
"""ONNX's number of float32."""


class Int8Graph(Graph):
    """A graph whose large weights are int8, each with a scale per output channel or per row."""

    def __init__(self, multiplies_words: bool) -> None:
        """`multiplies_words`: whether the token table is also the last map, as in a masked
        language model.
        """
        super().__init__()
        self._largest_word = LARGEST if multiplies_words else _LARGEST_ROW
        self._inputs: dict[str, tuple[str, str]] = {}

    def words(self, name: str, table_VE: Tensor, ids: str) -> str:
        scale_V1 = self._quantize(name, table_VE, 1, self._largest_word)
        rows = self("Cast", self("Gather", name, ids), to=_FLOAT)
        return str(self("Mul", rows, self("Gather", scale_V1, ids)))

    def linear(self, name: str, x: str, weight: Tensor, bias: Tensor | None) -> str:
        if name in KEPT:
            return super().linear(name, x, weight, bias)
        stored = f"{name}.weight"
        return self._plus(
            name, self._product(x, stored, self._quantize(stored, weight.T, 0, LARGEST)), bias
        )

    def linear_transposed(
        self, name: str, x: str, stored: Tensor, bias: Tensor | None, bias_name: str = ""
    ) -> str:
        if name == WORDS:  # whose rows are the channels of this product
            scale_V = self("Reshape", f"{name}.scale", self.numbers(-1))
            return self._plus(
                bias_name, self._product(x, self("Transpose", name, perm=[1, 0]), scale_V), bias
            )
        weights = self("Mul", self("Cast", name, to=_FLOAT), f"{name}.scale")
        return self._plus(
            bias_name, self("MatMul", x, self("Transpose", weights, perm=[1, 0])), bias
        )

    def _quantize(self, name: str, matrix: Tensor, axis: int, largest: int) -> str:
        """Store a matrix as int8 under its name; the name of its scales, of which each serves all
        of an axis.
        """
        whole = matrix.detach().cpu().numpy()
        scale = np.maximum(np.abs(whole).max(axis, keepdims=True), 1e-12) / largest
        self.weight(name, np.round(whole / scale).astype(np.int8))
        return self.weight(f"{name}.scale", (scale if axis else scale[0]).astype(np.float32))

    def _product(self, x: str, stored: str, scale: str) -> str:
        """x W of a stored matrix, with x quantized to 8 bits for all products that read it."""
        zero = self.weight("uint8(128)", np.array(128, np.uint8))
        if x not in self._inputs:
            largest = self(
                "ReduceMax", self("Abs", x), self.numbers(-1), keepdims=1
            )  # of each token
            step = self("Mul", self("Max", largest, self.scalar(1e-12)), self.scalar(1 / 127))
            self._inputs[x] = (
                self("QuantizeLinear", self("Div", x, step), self.scalar(1.0), zero),
                step,
            )
        values, step = self._inputs[x]
        summed = self("Cast", self("MatMulInteger", values, stored, zero), to=_FLOAT)
        return str(self("Mul", self("Mul", summed, scale), step))
