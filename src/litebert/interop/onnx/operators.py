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
