"""ONNX operators and weights, added one after the other: plain operators, and the modules that
networks are made of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from litebert.base.errors import MissingExtraError

if TYPE_CHECKING:
    import onnx

WORDS = "encoder.embedding.word.weight"
"""The name of the token table."""


LOWEST = float(np.finfo(np.float32).min)
"""The number that is added to the score of a key that may not be read."""


class Graph:
    """Operators and weights in the order in which they are added; every value has a name."""

    def __init__(self) -> None:
        try:
            import onnx  # noqa: F401
        except ImportError:
            raise MissingExtraError("onnx", "onnx") from None
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, onnx.TensorProto] = {}
        self._count = 0

    def __call__(
        self, operator: str, *inputs: str, outputs: int = 1, name: str = "", **attributes: Any
    ) -> Any:
        """The name of the value that an operator gives, or with `outputs` above 1 a list of
        names."""
        import onnx

        self._count += 1
        names = [name or f"{operator}_{self._count}_{i}" for i in range(outputs)]
        node = onnx.helper.make_node(
            operator, list(inputs), names, name=f"{operator}_{self._count}", **attributes
        )
        self.nodes.append(node)
        return names[0] if outputs == 1 else names

    def weight(self, name: str, value: Tensor | NDArray[Any]) -> str:
        """A stored array; the first under a name stays."""
        import onnx

        if name not in self.weights:
            array = value.detach().cpu().numpy() if isinstance(value, Tensor) else value
            self.weights[name] = onnx.numpy_helper.from_array(np.asarray(array, order="C"), name)
        return name

    def numbers(self, *values: int) -> str:
        """A constant list of whole numbers."""
        return self.weight(f"int64[{','.join(map(str, values))}]", np.array(values, np.int64))

    def scalar(self, value: float) -> str:
        """A constant number."""
        return self.weight(f"float32({value!r})", np.array(value, np.float32))

    # -------------------------------------------------------------------------------------- modules

    def words(self, name: str, table_VE: Tensor, ids: str) -> str:
        """Rows of the token table."""
        rows: str = self("Gather", self.weight(name, table_VE), ids)
        return rows

    def linear(self, name: str, x: str, weight: Tensor, bias: Tensor | None) -> str:
        """x W + b, of a weight (out, in) as PyTorch has it."""
        return self._plus(name, self("MatMul", x, self.weight(f"{name}.weight", weight.T)), bias)

    def linear_transposed(
        self, name: str, x: str, stored: Tensor, bias: Tensor | None, bias_name: str = ""
    ) -> str:
        """x T' + b, of a matrix (out, in) that is stored as it stands, for another reader."""
        return self._plus(
            bias_name,
            self("MatMul", x, self("Transpose", self.weight(name, stored), perm=[1, 0])),
            bias,
        )

    def _plus(self, name: str, y: str, bias: Tensor | None) -> str:
        return y if bias is None else str(self("Add", y, self.weight(f"{name}.bias", bias)))

    def norm(self, name: str, x: str, norm: nn.Module) -> str:
        """The layer norm of x; a norm that is none gives x."""
        if not isinstance(norm, nn.LayerNorm):
            return x
        inputs = [x, self.weight(f"{name}.weight", norm.weight)]
        if norm.bias is not None:
            inputs.append(self.weight(f"{name}.bias", norm.bias))
        normed: str = self("LayerNormalization", *inputs, axis=-1, epsilon=norm.eps)
        return normed

    def activation(self, name: str, x: str) -> str:
        """An activation of a config, or tanh, in the operators that engines recognize."""
        if name == "tanh":
            return str(self("Tanh", x))
        if name == "relu":
            return str(self("Relu", x))
        if name == "silu":
            return str(self("Mul", x, self("Sigmoid", x)))
        half = self.scalar(0.5)
        if name == "gelu":
            inner = self("Add", self("Erf", self("Div", x, self.scalar(2**0.5))), self.scalar(1.0))
            return str(self("Mul", self("Mul", x, inner), half))
        assert name == "gelu_tanh"
        cubic = self("Mul", self("Pow", x, self.scalar(3.0)), self.scalar(0.044715))
        inner = self("Tanh", self("Mul", self("Add", x, cubic), self.scalar((2 / np.pi) ** 0.5)))
        return str(self("Mul", self("Mul", x, half), self("Add", inner, self.scalar(1.0))))


LARGEST = 63
"""The largest entry of a weight that is multiplied; the same below zero."""
_LARGEST_ROW = 127
"""The largest entry of a table that is only looked up."""
KEPT = ("head.classifier",)
"""Maps that stay in float32."""
_FLOAT = 1
"""ONNX's number of float32."""


class Int8Graph(Graph):
    """A graph whose large weights are int8, each with a scale per output channel or per row,
    quantized once and read by every pass.

    Activations are quantized while the graph runs, so they need no calibration: each token by its
    own largest one, so that an answer depends neither on the other rows of its batch nor on
    padding. The matrix multiplications are MatMulInteger of unsigned activations around 128 and
    signed weights, for which ONNX Runtime has fast kernels. Weights of matrix multiplications use
    7 of the 8 bits: on processors that have AVX2 but no VNNI, this kernel adds two products in 16
    bits, which would saturate with the full range. Norms, biases, positions and the last map of a
    classifier stay in float32: they are small.
    """

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
