"""An encoder with its objectives: what a pretraining step runs and a checkpoint holds."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from litebert.config import Config, cost, replace
from litebert.data.batches import Batch
from litebert.model.embedding import Embedding
from litebert.model.encoder import Encoder
from litebert.model.objectives import Context, Loss, Objective
from litebert.model.objectives.objective import TokenPrediction
from litebert.model.teacher import Lesson, Teacher


class Pretrainer(nn.Module):
    """The encoder and the network of each objective, under the names in `config.objectives`.

    Raises:
        ModelError: it has more parameters than the memory has room for.
    """

    def __init__(self, config: Config) -> None:
        cost.require_room(cost.model_parameters(config))
        super().__init__()
        self.config = config
        self.encoder = Encoder(config.encoder)
        self.named_objectives: dict[str, Objective] = config.build_objectives()
        self.objectives = nn.ModuleDict(
            {name: objective.build() for name, objective in self.named_objectives.items()}
        )
        for module in self.modules():
            if isinstance(module, Encoder):
                module.recompute = config.train.recompute

        self.teacher: Teacher | None = None
        """The teacher of the objectives that have one; it is no part of this module."""
        self._reads_states = any(
            objective.reads_states for objective in self.named_objectives.values()
        )

    def context(self, name: str, layers: int | None = None) -> Context:
        return Context(
            self.objectives[self.named_objectives[name].head_of or name], self.encoder, layers
        )

    def forward(self, batch: Batch, layers: int | None = None) -> dict[str, Loss]:
        """One `Loss` per objective; `layers` applies a shallower encoder (and generator)."""
        lesson = None if self.teacher is None else Lesson(self.teacher, batch)
        shared: dict[str, Tensor] = {}
        named = [
            (name, objective, replace(self.context(name, layers), teacher=lesson, shared=shared))
            for name, objective in self.named_objectives.items()
        ]
        for _, objective, context in named:
            batch = objective.corrupt(batch, context)
        inputs = (batch.input_ids, batch.token_type_ids, batch.attention_mask, layers)
        if self._reads_states:
            states = tuple(self.encoder.states(*inputs))
            output = replace(self.encoder.read_out(states[-1]), states=states)
        else:
            output = self.encoder(*inputs)
        return {name: objective.loss(output, batch, context) for name, objective, context in named}


def compile_parts(model: Pretrainer) -> None:
    """Compile a layer, once for all layers and depths so that depth costs nothing, the embedding,
    and the prediction of tokens with its cross-entropy.

    Torch runs a function as it is after eight versions of it. A cross-entropy over few classes is
    left out: one kernel for both would be tuned for either. CUDA graphs (`mode="reduce-overhead"`)
    are left out too: they keep one copy of all buffers for each call of a layer in a step, and
    gradients that accumulate over micro-batches would lie in memory which the next replay
    overwrites.
    """
    torch._dynamo.config.cache_size_limit = max(64, torch._dynamo.config.cache_size_limit)
    for module in model.modules():
        if isinstance(module, Encoder):
            module.apply_layer = torch.compile(module.apply_layer)
        elif isinstance(module, Embedding):
            module.compile()
    for name, objective in model.named_objectives.items():
        if isinstance(objective, TokenPrediction):
            model.context(name).network.head.compile()
            objective.cross_entropy = torch.compile(objective.cross_entropy)
