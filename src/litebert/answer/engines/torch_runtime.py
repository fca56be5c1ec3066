"""The engine of GPUs, and of networks with parts of one's own: PyTorch's own operations."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from litebert.answer.engines.runtime import Capabilities, Runtime
from litebert.base.errors import ConfigError
from litebert.config import Pooling
from litebert.interop.loaded import LoadedModel, VectorMap
from litebert.kernels.network import Dtype
from litebert.model.encoder import Selection
from litebert.model.heads import pool
from litebert.model.objectives.mlm import MaskedLanguageModeling
from litebert.model.pretrainer import Pretrainer
from litebert.model.task_model import TaskModel
from litebert.model.unpadded import is_faster_unpadded
from litebert.tasks.rows import PaddedRows
from litebert.tasks.scoring import compute_network_logits
from litebert.train import device as devices


class TorchRuntime(Runtime):
    """A network on a device."""

    capabilities = Capabilities(early_exit=True, dtypes=("float32", "bfloat16"))

    def __init__(self, loaded: LoadedModel, device: str, dtype: Dtype = "float32") -> None:
        place = devices.choose("float32" if dtype == "float32" else "auto", device)
        if dtype == "bfloat16" and place.autocast is None:
            raise ConfigError(
                f"{place.name} does not multiply bfloat16 natively; leave --dtype bfloat16 out"
            )
        assert isinstance(loaded.model, TaskModel)
        self._network, self._device = loaded.model.to(place.device).eval(), place
        self._network.encoder.unpadded = is_faster_unpadded(
            self._network.encoder.config, place.device, place.autocast
        )

    def logits(self, rows: PaddedRows) -> NDArray[np.float32]:
        return compute_network_logits(self._network, self._device, rows)

    @torch.no_grad()
    def vectors(
        self, rows: PaddedRows, pooling: Pooling, vector_map: VectorMap | None = None
    ) -> NDArray[np.float32]:
        ids, types, mask = (torch.from_numpy(array).to(self._device.device) for array in rows)
        with self._device.autocast_context():
            states = self._network(ids, types, mask).float()
        pooled = pool(states, mask, pooling).cpu()
        if vector_map is None:
            vectors: NDArray[np.float32] = pooled.numpy()
            return vectors
        vector_map.require(pooled.shape[1])
        # Not by numpy: its threads and those of torch would keep each other from the cores.
        mapped = pooled @ torch.from_numpy(vector_map.weight).T + torch.from_numpy(vector_map.bias)
        vectors = (mapped.tanh() if vector_map.tanh else mapped).numpy()
        return vectors

    def walk(self, rows: PaddedRows) -> TorchWalk:
        return TorchWalk(self._network, self._device, rows)


class TorchWalk:
    """A batch on its way through the network, as `runtime.Walk` describes it."""

    @torch.no_grad()
    def __init__(self, network: TaskModel, device: devices.Device, rows: PaddedRows) -> None:
        self._network, self._device = network, device
        ids, types, self._mask = (torch.from_numpy(array).to(device.device) for array in rows)
        self._states = network.encoder.states(ids, types, self._mask)
        self._selected: Selection | None = None
        with device.autocast_context():
            next(self._states)

    @torch.no_grad()
    def step(self) -> NDArray[np.float32]:
        with self._device.autocast_context():
            state_BSH, self._selected = self._states.send(self._selected), None
            logits: NDArray[np.float32] = (
                self._network.read(state_BSH, self._mask).float().cpu().numpy()
            )
        return logits

    def keep(self, rows: NDArray[np.int64], length: int) -> None:
        self._selected = torch.from_numpy(rows).to(self._mask.device), length
        self._mask = self._mask[:, :length].index_select(0, self._selected[0])


class TorchMasks:
    """A pretrained network on a device, and one of its heads for masked tokens, as `MaskNetwork`
    describes it."""

    def __init__(self, loaded: LoadedModel, head: str, device: str) -> None:
        self._device = devices.choose("float32", device).device
        network = loaded.model
        assert isinstance(network, Pretrainer)
        objective = network.named_objectives[head]
        assert isinstance(objective, MaskedLanguageModeling)
        self._network, self._head, self._objective = (
            network.to(self._device).eval(),
            head,
            objective,
        )

    @torch.no_grad()
    def states(self, ids: NDArray[np.int64], mask: NDArray[np.bool_] | None = None) -> Tensor:
        real = None if mask is None or mask.all() else torch.from_numpy(mask).to(self._device)
        context, inputs = self._network.context(self._head), torch.tensor(ids, device=self._device)
        return self._objective.read(context, inputs, None, real).last

    @torch.no_grad()
    def logits(self, states: Tensor, positions: NDArray[np.int64]) -> NDArray[np.float32]:
        chosen, context = torch.from_numpy(positions), self._network.context(self._head)
        guesses = self._objective.guesses(states, chosen.to(self._device), context)
        logits: NDArray[np.float32] = guesses.float().cpu().numpy()
        return logits
