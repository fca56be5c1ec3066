"""The graphs of a fine-tuned network in parts, for texts that leave it early: the embedding, one
pass, and the head.

Layers that are the same share one pass, so a block that all layers share is stored once, and
applied until all texts have left. Windows and vectors of a layer's own make passes of their own,
each with the weights of its blocks.

Shapes: B sequences, S tokens, H hidden size, C numbers of the head.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from litebert.config import EncoderConfig
from litebert.interop.loaded import LoadedModel
from litebert.interop.onnx_graph import INPUTS, Pass, classifier, model_of, text_state
from litebert.interop.onnx_operators import Graph
from litebert.model.task_model import TaskModel

if TYPE_CHECKING:
    import onnx

_TOKENS = ("batch_size", "sequence_length")


def passes_of(config: EncoderConfig) -> list[int]:
    """The number of the pass that each layer applies; the same one where nothing differs."""
    own = range(config.layers) if config.own_vectors else [0] * config.layers
    kinds = list(
        zip(config.attention_of(), config.feedforward_of(), config.windowed(), own, strict=True)
    )
    distinct = list(dict.fromkeys(kinds))
    return [distinct.index(kind) for kind in kinds]


def layer_models(loaded: LoadedModel) -> Iterator[tuple[str, onnx.ModelProto]]:
    """The parts of a classifier of texts by name, one after the other.

    `embedding` has the inputs of the whole graph, as far as it reads them, and the output `states`
    (B, S, H). Each `pass-N`, N by `passes_of`, takes `states` and `attention_mask` to the next
    states, and where the first layer leaves out a norm that others apply, `normed` (), which is
    false for the first layer. `head` takes them to `logits` (B, C).

    Raises:
        ModelError: a part cannot be exported.
        MissingExtraError: onnx is not installed.
    """
    model = loaded.model
    assert isinstance(model, TaskModel)
    assert model.reads_cls
    encoder, states = model.encoder, (*_TOKENS, model.encoder.config.hidden_size)
    graph, names = Graph(), INPUTS[: 3 if encoder.config.segment_types > 1 else 2]
    found = Pass(graph, encoder, {name: name for name in names}).embedding()
    graph("Identity", found, name="states")
    read = {name for node in graph.nodes for name in node.input}
    yield (
        "embedding",
        model_of(graph, {name: _TOKENS for name in names if name in read}, {"states": states}),
    )
    both = {"states": states, "attention_mask": _TOKENS}
    given, passes = {name: name for name in both}, passes_of(encoder.config)
    for number in range(max(passes) + 1):
        graph, first = Graph(), passes.index(number)
        normed = (
            "normed"
            if not encoder.config.first_norm and first == 0 and passes.count(number) > 1
            else ""
        )
        found = Pass(graph, encoder, given, "states").layer(first, "states", normed)
        graph("Identity", found, name="next_states")
        inputs: dict[str, tuple[int | str, ...]] = both | ({normed: ()} if normed else {})
        yield f"pass-{number}", model_of(graph, inputs, {"next_states": states})
    graph, last = Graph(), "states"
    if model.pooling == "cls":  # the norm of the other tokens would be lost
        last = graph("Gather", last, graph.weight("cls", np.array([0], np.int64)), axis=1)
    one = Pass(graph, encoder, given, "states")
    last = graph.norm("encoder.norm", last, encoder.norm)
    graph(
        "Identity",
        classifier(graph, model.head, text_state(graph, model, one, last)),
        name="logits",
    )
    read_by = both if model.pooling == "mean" else {"states": states}
    yield "head", model_of(graph, read_by, {"logits": ("batch_size", model.classes)})
