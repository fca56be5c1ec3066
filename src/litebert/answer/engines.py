"""Engines, which compute the logits of answers. Register one of your own under a name:
ENGINES.add("mine", Mine).
"""

from __future__ import annotations

from typing import Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from litebert.errors import ConfigError
from litebert.finetuning.rows import PaddedRows
from litebert.finetuning.scoring import compute_network_logits
from litebert.interop import LoadedModel
from litebert.model.cpu.packed import PackedNetwork, PackedWalk
from litebert.model.encoder import Selection
from litebert.model.heads import Pooling, mean_over
from litebert.model.task_model import TaskModel
from litebert.train import device as devices

PACKED_TOKENS = 2048
"""Tokens per pass of a network without padding: what lies between two products should stay in the
cache.
"""


class Engine(Protocol):
    """Computes the logits of a fine-tuned model; this method is all that a `Predictor` uses.

    `load(folder, engine="mine")` calls a registered engine with the opened model and the name of a
    device. Of a fine-tuned litebert folder, the weights are read when the engine asks for
    `loaded.model`, so they may be absent. For sentence vectors the engine gets the encoder as a
    model without classes, whose logits are the last states.

    An engine may have more: `tokens`, most tokens of a pass, and `padding`, most tokens that a row
    is padded with; `walk`, for early exits (answer/exits.py); `vectors(rows, pooling)`, vectors (R,
    H) instead of the states; and `reference`, the name of the engine in float32 that it is compared
    with (answer/precision.py).
    """

    def logits(self, rows: PaddedRows) -> NDArray[np.float32]:
        """Compute the logits of R rows of S tokens: (R, C) where the head reads [CLS], else
        (R, S, C).
        """
        ...


class TorchEngine:
    """The network in float32, so that other programs give the same answers; on a CPU without
    padding (model/cpu/packed.py).

    Raises:
        ConfigError: there is no such device on this machine.
    """

    packs = True
    precision: Literal["auto", "float32"] = "float32"

    def __init__(self, loaded: LoadedModel, device: str) -> None:
        assert isinstance(loaded.model, TaskModel)
        self._device = devices.choose(self.precision, device)
        self._network = loaded.model.to(self._device.device).eval()
        self._packed = (
            PackedNetwork.of(self._network, self._device.autocast) if self.packs else None
        )
        if self._packed is not None:
            self.tokens = PACKED_TOKENS

    def logits(self, rows: PaddedRows) -> NDArray[np.float32]:
        if self._packed is not None:
            return self._packed.logits(*rows)
        return compute_network_logits(self._network, self._device, rows)

    @torch.no_grad()
    def vectors(self, rows: PaddedRows, pooling: Pooling) -> NDArray[np.float32]:
        """Pool the states of a model whose logits are its last states, (R, H): their mean over
        each row, or the state of [CLS].
        """
        if self._packed is not None:
            return self._packed.vectors(*rows, pooling)
        ids, types, mask = (torch.from_numpy(array).to(self._device.device) for array in rows)
        with self._device.autocast_context():
            states = self._network(ids, types, mask).float()
        vectors: NDArray[np.float32] = (
            (states[:, 0] if pooling == "cls" else mean_over(states, mask)).cpu().numpy()
        )
        return vectors

    def walk(self, rows: PaddedRows) -> TorchWalk | PackedWalk:
        """Begin a batch layer by layer, for early exits (answer/exits.py)."""
        if self._packed is not None:
            return self._packed.walk(*rows)
        return TorchWalk(self._network, self._device, rows)


class TorchWalk:
    """A batch on its way through the network, as `answer.exits.Walk` describes it."""

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


class ExactEngine(TorchEngine):
    """The same by the network itself, whose operations are PyTorch's."""

    packs = False


class Bfloat16Engine(TorchEngine):
    """The network with its products in bfloat16, on a device that multiplies it natively.

    Raises:
        ConfigError: this device does not.
    """

    precision, reference = "auto", "torch"

    def __init__(self, loaded: LoadedModel, device: str) -> None:
        super().__init__(loaded, device)
        devices.require_bfloat16(self._device, "torch-bfloat16", "torch")


class Int8Engine(TorchEngine):
    """The network with its products in 8 bits, on a CPU that multiplies them natively. Each row of
    a weight has a scale of its own, and each token; scores, softmax, norms and activations are in
    float32.

    Raises:
        ConfigError: this CPU does not, or the compiled layers do not have a part of the network.
    """

    reference = "torch"

    def __init__(self, loaded: LoadedModel, device: str) -> None:
        super().__init__(loaded, device)
        needs = "a CPU with a C compiler, and a network without windows and parts of your own"
        if self._packed is not None:
            self._packed = PackedNetwork.of(self._network, torch.int8)
            needs = "a CPU with AVX-512 VNNI, and hidden sizes that 4 divides"
        if self._packed is None:
            raise ConfigError(
                f"the engine torch-int8 cannot answer on {self._device.name}: it needs "
                f"{needs}; give --engine torch"
            )
