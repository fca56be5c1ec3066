"""The runtimes that compute with PyTorch, and the engines that choose between them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from litebert.answer.engines.runtime import Capabilities, Runtime
from litebert.base.errors import ConfigError
from litebert.config import Pooling
from litebert.finetuning.rows import PaddedRows
from litebert.finetuning.scoring import compute_network_logits
from litebert.interop import LoadedModel
from litebert.model.cpu.packed import PackedNetwork, PackedWalk
from litebert.model.encoder import Selection
from litebert.model.heads import mean_over
from litebert.model.task_model import TaskModel
from litebert.model.unpadded import is_faster_unpadded
from litebert.train import device as devices


class TorchRuntime(Runtime):
    """A network on a device, by PyTorch's own operations."""

    capabilities = Capabilities(early_exit=True)

    def __init__(self, network: TaskModel, device: devices.Device) -> None:
        self._network, self._device = network, device
        network.encoder.unpadded = is_faster_unpadded(
            network.encoder.config, device.device, device.autocast
        )

    def logits(self, rows: PaddedRows) -> NDArray[np.float32]:
        return compute_network_logits(self._network, self._device, rows)

    @torch.no_grad()
    def vectors(self, rows: PaddedRows, pooling: Pooling) -> NDArray[np.float32]:
        ids, types, mask = (torch.from_numpy(array).to(self._device.device) for array in rows)
        with self._device.autocast_context():
            states = self._network(ids, types, mask).float()
        vectors: NDArray[np.float32] = (
            (states[:, 0] if pooling == "cls" else mean_over(states, mask)).cpu().numpy()
        )
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


class PackedRuntime(Runtime):
    """A network on a CPU without padding, in compiled passes (model/cpu/packed.py)."""

    # What lies between two products should stay in the cache.
    capabilities = Capabilities(tokens=2048, early_exit=True)

    def __init__(self, network: PackedNetwork) -> None:
        self._network = network

    def logits(self, rows: PaddedRows) -> NDArray[np.float32]:
        return self._network.logits(*rows)

    def vectors(self, rows: PaddedRows, pooling: Pooling) -> NDArray[np.float32]:
        return self._network.vectors(*rows, pooling)

    def walk(self, rows: PaddedRows) -> PackedWalk:
        return self._network.walk(*rows)


@dataclass(frozen=True)
class TorchEngine:
    """Makes the runtime of a network with PyTorch, as `runtime.Engine` describes it."""

    make: Callable[[LoadedModel, str], Runtime]
    capabilities: Capabilities

    def __call__(self, loaded: LoadedModel, device: str) -> Runtime:
        return self.make(loaded, device)


def _make_float32(loaded: LoadedModel, device: str) -> Runtime:
    return choose_runtime(*_place_network(loaded, "float32", device))


def _make_exact(loaded: LoadedModel, device: str) -> Runtime:
    return TorchRuntime(*_place_network(loaded, "float32", device))


def _make_bfloat16(loaded: LoadedModel, device: str) -> Runtime:
    network, place = _place_network(loaded, "auto", device)
    devices.require_bfloat16(place, "torch-bfloat16", "torch")
    return choose_runtime(network, place)


def _make_int8(loaded: LoadedModel, device: str) -> Runtime:
    network, place = _place_network(loaded, "float32", device)
    needs = "a CPU with a C compiler, and a network without parts of your own"
    # A network that cannot be packed at all lacks something else than one that lacks only 8 bits.
    packed = PackedNetwork.of(network, place.autocast)
    if packed is not None:
        packed = PackedNetwork.of(network, torch.int8)
        needs = "a CPU with AVX2, and hidden sizes that 4 divides"
    if packed is None:
        raise ConfigError(
            f"the engine torch-int8 cannot answer on {place.name}: it needs {needs}; "
            "give --engine torch"
        )
    return PackedRuntime(packed)


def choose_runtime(network: TaskModel, place: devices.Device) -> Runtime:
    """Make the packed runtime of a network on a device, and PyTorch's where passes cannot be
    compiled.
    """
    packed = PackedNetwork.of(network, place.autocast)
    return TorchRuntime(network, place) if packed is None else PackedRuntime(packed)


def _place_network(
    loaded: LoadedModel, precision: Literal["auto", "float32"], device: str
) -> tuple[TaskModel, devices.Device]:
    """Move a network to a device of this machine."""
    assert isinstance(loaded.model, TaskModel)
    place = devices.choose(precision, device)
    return loaded.model.to(place.device).eval(), place


TORCH = TorchEngine(_make_float32, Capabilities(early_exit=True))
"""Computes in float32, so that other programs give the same answers; in compiled passes where the
network can be packed.
"""
EXACT = TorchEngine(_make_exact, Capabilities(early_exit=True))
"""Computes in float32, always by PyTorch's own operations and never in compiled passes."""
BFLOAT16 = TorchEngine(_make_bfloat16, Capabilities(early_exit=True, reference="torch"))
"""Computes products in bfloat16. A device that does not multiply it natively is refused."""
INT8 = TorchEngine(_make_int8, Capabilities(early_exit=True, reference="torch"))
"""Computes products in 8 bits. A CPU that does not multiply them natively is refused. Each row of a
weight has a scale of its own, and each token; scores, softmax, norms and activations are in
float32.
"""
