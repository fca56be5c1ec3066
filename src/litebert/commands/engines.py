"""The options of the verbs that open a model to compute its answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from litebert.commands.console import DeviceName

if TYPE_CHECKING:
    from litebert.answer.model import Model


@dataclass(kw_only=True)
class EngineOptions:
    """How a model is computed."""

    engine: str | None = None
    """compiled, torch or onnx; by default what suits machine and model."""
    dtype: Literal["float32", "bfloat16", "int8"] | None = None
    """Type of the products; see litebert doctor --engines."""
    device: DeviceName = "auto"

    def load(self, model: str, **options: Any) -> Model:
        from litebert.answer.model import load

        return load(model, engine=self.engine, dtype=self.dtype, device=self.device, **options)


@dataclass(kw_only=True)
class AnswerOptions(EngineOptions):
    """How a model is computed, and when texts leave it early."""

    exit_confidence: Literal["auto", "off"] | float = "auto"
    """Confidence at which texts leave early, such as 0.95; auto is as calibrated."""

    def load(self, model: str, **options: Any) -> Model:
        return super().load(model, exit_confidence=self.exit_confidence, **options)
