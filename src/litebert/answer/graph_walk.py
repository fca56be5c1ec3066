"""Early exits in the engines that run graphs: a network in parts, applied one after another from
numpy.

The parts (interop/onnx_layers.py) are kept beside the model as its whole graph is, which is neither
made nor read then.

Shapes: R rows, S tokens, H hidden size, C numbers of the head.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from litebert.answer.graphs import inputs_of, kept
from litebert.config import EncoderConfig
from litebert.errors import ModelError
from litebert.finetuning.rows import PaddedRows

if TYPE_CHECKING:
    from litebert.interop import LoadedModel


class Part(Protocol):
    """A graph that an engine has opened."""

    ranks: dict[str, int]
    """The number of axes of each input by name."""

    def compute(self, given: Mapping[str, NDArray[Any]]) -> Sequence[NDArray[np.float32]]:
        """The outputs."""


class GraphLayers:
    """An engine over the parts of a network in a folder, which computes as many layers as it is
    asked for.
    """

    tokens = 1024

    def __init__(self, config: EncoderConfig, folder: Path, opened: Callable[[Path], Part]) -> None:
        from litebert.interop.onnx_layers import passes_of

        passes = passes_of(config)
        distinct = [opened(folder / f"pass-{number}.onnx") for number in range(max(passes) + 1)]
        self.embedding, self.head = (
            opened(folder / f"{name}.onnx") for name in ("embedding", "head")
        )
        self.layers = [distinct[number] for number in passes]
        """Of each layer the part that computes it."""

    def logits(self, rows: PaddedRows) -> NDArray[np.float32]:
        """Those of all layers."""
        walk = self.walk(rows)
        return [walk.step() for _ in self.layers][-1]

    def walk(self, rows: PaddedRows) -> GraphWalk:
        """The batch layer by layer."""
        return GraphWalk(self, rows)


class GraphWalk:
    """A batch on its way through the network, as `answer.exits.Walk` describes it."""

    def __init__(self, engine: GraphLayers, rows: PaddedRows) -> None:
        self._head, self._layers = engine.head, iter(enumerate(engine.layers))
        (self._states_RSH,) = engine.embedding.compute(inputs_of(rows, engine.embedding.ranks))
        self._mask_RS = rows.mask[:, : self._states_RSH.shape[1]].astype(np.int64)

    def step(self) -> NDArray[np.float32]:
        depth, part = next(self._layers)
        (self._states_RSH,) = self._given(part, depth)
        (logits_RC,) = self._given(self._head, depth)
        return logits_RC

    def keep(self, rows: NDArray[np.int64], length: int) -> None:
        self._states_RSH, self._mask_RS = (
            self._states_RSH[rows, :length],
            self._mask_RS[rows, :length],
        )

    def _given(self, part: Part, depth: int) -> Sequence[NDArray[np.float32]]:
        given: dict[str, NDArray[Any]] = {
            "states": self._states_RSH,
            "attention_mask": self._mask_RS,
            "normed": np.array(depth > 0),
        }
        return part.compute({name: given[name] for name in part.ranks})


def layers_of(loaded: LoadedModel) -> Path:
    """The folder of the parts of a fine-tuned model, exported if need be.

    Raises:
        ModelError: a part cannot be exported, or nothing can be written.
        MissingExtraError: onnx is not installed.
    """
    return kept(loaded, "-layers", lambda folder: _write(loaded, folder))


def _write(loaded: LoadedModel, folder: Path) -> None:
    """Write the parts, and compare the logits after each layer with PyTorch where ONNX Runtime is
    installed.
    """
    import torch

    from litebert.interop.onnx_layers import layer_models

    folder.mkdir()
    for name, part in layer_models(loaded):
        (folder / f"{name}.onnx").write_bytes(part.SerializeToString())
    if find_spec("onnxruntime") is None:
        return
    from litebert.answer.onnx_engine import OnnxEngine
    from litebert.interop.onnx_folder import ALLOWED, random_rows

    engine, model = (
        GraphLayers(loaded.config.encoder, folder, OnnxEngine.of_part),
        loaded.model.to("cpu").eval(),
    )
    for given in random_rows(loaded, "sequence"):
        rows = PaddedRows(
            given["input_ids"], given["token_type_ids"], given["attention_mask"].astype(bool)
        )
        walk = engine.walk(rows)
        with torch.no_grad():
            expected_LRC = model(*map(torch.from_numpy, rows), every=True).numpy()
        difference = float(
            np.abs(np.stack([walk.step() for _ in expected_LRC]) - expected_LRC).max()
        )
        if not difference <= ALLOWED * max(1.0, float(np.abs(expected_LRC).max())):
            raise ModelError(
                f"the graphs of the layers of {loaded.path} differ from PyTorch by "
                f"{difference:.2g}; take "
                "the engine torch"
            )
