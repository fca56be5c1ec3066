"""A kind of positions of one's own, and an engine in numpy that computes them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import erf
from torch import Tensor, nn

from litebert.answer.engines.runtime import Runtime
from litebert.base.errors import require
from litebert.config import EncoderConfig
from litebert.interop import LoadedModel
from litebert.model.attention_positions import AttentionPositions
from litebert.model.positions import Positions
from litebert.tasks.rows import PaddedRows


class NearbyBias(AttentionPositions):
    """A number for each head and distance is added to the score; beyond `reach` all distances count
    as that one.
    """

    reach = 8

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.zeros(config.heads, 2 * self.reach + 1))

    def bias(self, length: int) -> Tensor:
        place_S = torch.arange(length, device=self.table.device)
        return self.table[
            :, (place_S - place_S[:, None]).clamp(-self.reach, self.reach) + self.reach
        ]


class Nearby(Positions):
    """Relative positions as a learned bias of the scores (Raffel et al. 2020, section 2.1), without
    their buckets.
    """

    def attention_parameters(self) -> int:
        return self.config.heads * (2 * NearbyBias.reach + 1)

    def attention(self) -> AttentionPositions:
        return NearbyBias(self.config)


class ByNumpy(Runtime):
    """The same network in numpy and float64: what is normalized after the sum, with one's own
    positions.
    """

    used = 0

    def __init__(self, loaded: LoadedModel, device: str) -> None:
        self.config = loaded.model.encoder.config
        shape = (
            self.config.norm,
            self.config.feedforward,
            self.config.activation,
            self.config.positions,
        )
        require(
            shape == ("post", "plain", "gelu", "nearby"),
            f"{loaded.path} has {shape}; numpy cannot compute it",
        )
        self.weights = {
            name: weight.double().cpu().numpy()
            for name, weight in loaded.model.state_dict().items()
        }

    def linear(self, name: str, x: NDArray[Any]) -> Any:
        return x @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]

    def norm(self, name: str, x: NDArray[Any]) -> Any:
        x = (x - x.mean(-1, keepdims=True)) / np.sqrt(
            x.var(-1, keepdims=True) + self.config.norm_eps
        )
        return x * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    def attend(self, name: str, x_BSH: NDArray[Any], bias: NDArray[Any]) -> Any:
        split = self.linear(f"{name}.qkv", x_BSH).reshape(
            *x_BSH.shape[:2], 3, self.config.heads, -1
        )
        q_BASD, k_BASD, v_BASD = np.moveaxis(split, (2, 3), (0, 2))
        scores_BASS = q_BASD @ np.swapaxes(k_BASD, -1, -2) / math.sqrt(q_BASD.shape[-1]) + bias
        weights_BASS = np.exp(scores_BASS - scores_BASS.max(-1, keepdims=True))
        read_BASD = weights_BASS / weights_BASS.sum(-1, keepdims=True) @ v_BASD
        read_BSH = np.moveaxis(read_BASD, 1, 2).reshape(x_BSH.shape)
        return self.norm(f"{name}.norm", x_BSH + self.linear(f"{name}.output", read_BSH))

    def feed(self, name: str, x_BSH: NDArray[Any]) -> Any:
        inner = self.linear(f"{name}.input", x_BSH)
        active = inner * (1 + erf(inner / math.sqrt(2))) / 2
        return self.norm(f"{name}.norm", x_BSH + self.linear(f"{name}.output", active))

    def logits(self, rows: PaddedRows) -> NDArray[np.float32]:
        ByNumpy.used += 1
        reach, place = NearbyBias.reach, np.arange(rows.ids.shape[1])
        bias = self.weights["encoder.positions.table"][
            :, np.clip(place - place[:, None], -reach, reach) + reach
        ]
        bias = bias + np.where(rows.mask, 0.0, -1e30)[:, None, None, :]
        embedded = [
            self.weights[f"encoder.embedding.{name}.weight"] for name in ("word", "token_type")
        ]
        x_BSH = self.norm("encoder.embedding.norm", embedded[0][rows.ids] + embedded[1][rows.types])
        x_BSH = self.linear("encoder.embedding.project", x_BSH)
        for a, f in zip(self.config.attention_of(), self.config.feedforward_of(), strict=True):
            x_BSH = self.feed(
                f"encoder.feedforward.{f}", self.attend(f"encoder.attention.{a}", x_BSH, bias)
            )
        pooled = np.tanh(self.linear("encoder.pooler", x_BSH[:, 0]))
        numbers: NDArray[np.float32] = self.linear("head.classifier", pooled).astype(np.float32)
        return numbers
