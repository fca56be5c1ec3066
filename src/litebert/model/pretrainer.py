"""An encoder with its objectives: what a pretraining step runs and a checkpoint holds."""

from __future__ import annotations

from typing import cast

from torch import nn

from litebert.config import Config
from litebert.data.batches import Batch
from litebert.model.encoder import Encoder
from litebert.model.objectives import OBJECTIVES, Loss, Objective


class Pretrainer(nn.Module):
    """The encoder and one module per objective, named as in `config.objectives`."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.encoder = Encoder(config.encoder)
        self.objectives = nn.ModuleDict({name: OBJECTIVES[name](config) for name in config.objectives})

    def each_objective(self) -> list[tuple[str, Objective]]:
        """Names and objectives, typed."""
        return [(name, cast(Objective, module)) for name, module in self.objectives.items()]

    def forward(self, batch: Batch, layers: int | None = None) -> dict[str, Loss]:
        """One `Loss` per objective; `layers` applies a shallower encoder (and generator)."""
        for _, objective in self.each_objective():
            batch = objective.corrupt(batch, self.encoder, layers)
        output = self.encoder(batch.input_ids, batch.token_type_ids, batch.attention_mask, layers)
        return {name: objective.loss(output, batch, self.encoder) for name, objective in self.each_objective()}
