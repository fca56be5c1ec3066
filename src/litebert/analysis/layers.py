"""What happens from layer to layer of an encoder (ALBERT, figure 1), from the states it passes
through.

All figures are means over the real tokens of held-out text. The paper does not say what it averaged
over; here every token of every sequence counts once, special tokens too. The state before the first
layer is the embedding, after the map E -> H where there is one.

Shapes: B sequences, S tokens, A heads, H hidden size, L layers, N tokens of all batches.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor

from litebert import cost
from litebert.config import SequenceConfig, replace
from litebert.data.batches import Batch, Batches
from litebert.data.shards import Shards
from litebert.errors import ConfigError
from litebert.interop import LoadedModel, read_folder
from litebert.interop.vocabulary import with_rows_of
from litebert.model.encoder import Encoder
from litebert.model.objectives.mlm import MaskedLanguageModeling
from litebert.model.pretrainer import Pretrainer
from litebert.progress import tracked
from litebert.train.device import choose
from litebert.train.evaluate import EVALUATION_BATCH, MASKING, SEED

COMPARED_TOKENS = 4096
"""Tokens whose states are compared between layers."""
CONTROL = "untrained"


@dataclass(frozen=True)
class Layer:
    """What one layer does to a state."""

    distance: float
    """L2 distance between a token's state before and after it."""
    distance_spread: float
    """Standard deviation of that over tokens."""
    angle: float
    """Between the two, in degrees."""
    angle_spread: float
    cosine: float
    """Cosine similarity of the two."""
    norm: float
    """L2 norm of the state after it."""
    entropy: tuple[float, ...]
    """Of the attention of each head, in nats: 0 where a token reads one other, ln S where it reads
    all S alike.
    """
    reach: tuple[float, ...]
    """Mean distance in tokens to what each head reads."""
    mlm_loss: float | None = None
    """Of the masked tokens, predicted from the state after it by the head of the last one; None
    without that head.
    """
    mlm_accuracy: float | None = None


@dataclass(frozen=True)
class Analysis:
    """A model, layer by layer."""

    name: str
    recipe: str
    layers: tuple[Layer, ...]
    similarity: tuple[tuple[float, ...], ...]
    """(L + 1, L + 1): linear centred kernel alignment of the states, the embedding first (Kornblith
    et al. 2019).
    """
    parameters: dict[str, int]
    """Of the encoder, by part."""
    tokens: int
    """Over which the means are taken."""


def analyze(
    models: Sequence[str | Path],
    data: str | Path,
    *,
    sequences: int = 128,
    length: int | None = None,
    control: bool = True,
    device: str = "auto",
) -> list[Analysis]:
    """Analyse models on the held-out part of token shards, each followed by the same network with
    random weights.

    Args:
        models: run folders, litebert model folders or Hugging Face folders.
        data: a folder written by `prepare` with the tokenizer of the models.
        sequences: how many are read.
        length: tokens of each; by default what the first model was trained with.
        control: whether an untrained network of each shape is analysed as well.

    Raises:
        DataError: the data cannot be used, or was prepared with another tokenizer.
        ModelError: a folder cannot be opened.
        ConfigError: a size that cannot be.
    """
    if not models:
        raise ConfigError("there is no model to analyze; name at least one folder")
    if sequences < 1:
        raise ConfigError(f"sequences is {sequences}; it must be at least 1")
    shards, found = Shards.open(data, verify=True), []
    for path in models:
        loaded = with_rows_of(data, shards.tokenizer, read_folder(path), path)
        shape = loaded.config.encoder
        length = length or min(loaded.config.sequences.length, shape.max_positions)
        if not 8 <= length <= shape.max_positions:
            raise ConfigError(
                f"length is {length}; {path} reads from 8 to {shape.max_positions} tokens"
            )
        batches = _batches(shards, length, sequences)
        name = Path(path).name or str(path)
        found.append(_analysed(name, loaded, batches, device))
        if control:
            found.append(_analysed(f"{name}, {CONTROL}", _random(loaded), batches, device))
    return found


def _batches(shards: Shards, length: int, sequences: int) -> list[Batch]:
    layout = SequenceConfig(format="full-sentences", length=length, short_probability=0.0)
    made = Batches(shards.heldout, shards.tokenizer, layout, MASKING, None, EVALUATION_BATCH, SEED)
    count = min(sequences, made.examples)
    return [
        made(first // EVALUATION_BATCH, slice(0, min(EVALUATION_BATCH, count - first)))
        for first in range(0, count, EVALUATION_BATCH)
    ]


def _random(loaded: LoadedModel) -> LoadedModel:
    """The same network before any training."""
    torch.manual_seed(0)
    return replace(
        loaded, network=Pretrainer(loaded.config), untrained=tuple(loaded.config.objectives)
    )


@torch.no_grad()
def _analysed(name: str, loaded: LoadedModel, batches: Sequence[Batch], device: str) -> Analysis:
    machine = choose("float32", device)
    model = loaded.model.to(machine.device).eval()
    encoder: Encoder = model.encoder
    sums = _Sums(encoder.config.layers, encoder.config.heads)
    kept: list[list[Tensor]] = []
    total = sum(len(batch.input_ids) for batch in batches)
    with tracked(
        batches, f"analyzing {name}", total, "sequences", lambda one: len(one.input_ids)
    ) as turns:
        for given in turns:
            batch = given.to(machine.device)
            sums.add_attention(encoder, batch)
            states = sums.add_states(encoder, batch)
            if sum(len(one[0]) for one in kept) < COMPARED_TOKENS:
                kept.append([state.cpu() for state in states])
            if isinstance(model, Pretrainer):
                sums.add_guesses(model, batch, loaded.untrained)
    stacked = [torch.cat(layer)[:COMPARED_TOKENS] for layer in zip(*kept, strict=True)]
    parameters = cost.encoder_parameters(encoder.config)
    return Analysis(
        name, loaded.config.name, sums.layers(), similarity(stacked), parameters, sums.tokens
    )


class _Sums:
    """Sums over tokens, layer by layer."""

    def __init__(self, layers: int, heads: int) -> None:
        self.tokens = 0
        self._moves = torch.zeros(
            layers, 6, dtype=torch.float64
        )  # distance, its square, angle, its square, cosine, norm
        self._attention = torch.zeros(2, layers, heads, dtype=torch.float64)  # entropy, reach
        self._guesses = torch.zeros(layers, 3, dtype=torch.float64)  # loss, right, masked tokens

    def add_states(self, encoder: Encoder, batch: Batch) -> list[Tensor]:
        """The states of the real tokens of unmasked text, (N, H) each, the embedding first."""
        real = _real(batch)
        walked = encoder.states(_whole(batch), None, batch.attention_mask)
        states = [state_BSH[real].float() for state_BSH in walked]
        self.tokens += len(states[0])
        for layer, (before, after) in enumerate(pairwise(states)):
            distance = (after - before).norm(dim=-1).double()
            cosine = torch.cosine_similarity(before, after, dim=-1).double()
            angle = cosine.clamp(-1, 1).arccos().rad2deg()
            parts = (distance, distance**2, angle, angle**2, cosine, after.norm(dim=-1).double())
            self._moves[layer] += torch.stack([part.sum() for part in parts]).cpu()
        return states

    def add_attention(self, encoder: Encoder, batch: Batch) -> None:
        """What every head of every layer reads, of unmasked text."""
        real_BS, length = _real(batch), batch.input_ids.shape[1]
        place = torch.arange(length, device=batch.input_ids.device)
        apart = (place - place[:, None]).abs().float()
        for layer, state in enumerate(encoder.states(_whole(batch), None, batch.attention_mask)):
            if layer == encoder.config.layers:
                break
            weights = encoder.attention_weights(layer, state, batch.attention_mask).float()
            entropy_BAS = torch.special.entr(weights).sum(-1)
            reach_BAS = (weights * apart).sum(-1)
            for kind, one in enumerate((entropy_BAS, reach_BAS)):
                self._attention[kind, layer] += one.transpose(1, 2)[real_BS].double().sum(0).cpu()

    def add_guesses(self, model: Pretrainer, batch: Batch, untrained: Sequence[str]) -> None:
        """How well the state after each layer already predicts the masked tokens of masked text."""
        trained = [
            (name, one) for name, one in model.named_objectives.items() if name not in untrained
        ]
        found = next(
            ((name, one) for name, one in trained if isinstance(one, MaskedLanguageModeling)), None
        )
        if found is None or model.config.generator is not None:  # whose head reads the generator
            return
        name, head = found
        context = model.context(name)
        walked = model.encoder.states(batch.input_ids, None, batch.attention_mask)
        next(walked)
        for layer, state in enumerate(walked):
            logits = head.guesses(
                model.encoder.read_out(state).last, batch.masked_positions, context
            )
            labels = batch.masked_labels
            loss = torch.nn.functional.cross_entropy(logits.float(), labels, reduction="sum")
            right = (logits.argmax(-1) == labels).sum()
            self._guesses[layer] += torch.tensor(
                [float(loss), float(right), len(labels)], dtype=torch.float64
            )

    def layers(self) -> tuple[Layer, ...]:
        """The means."""
        found = []
        for moves, entropy, reach, (loss, right, count) in zip(
            (self._moves / self.tokens).tolist(),
            *(self._attention / self.tokens).tolist(),
            self._guesses.tolist(),
            strict=True,
        ):
            distance, distance2, angle, angle2, cosine, norm = moves
            found.append(
                Layer(
                    distance,
                    _spread(distance, distance2),
                    angle,
                    _spread(angle, angle2),
                    cosine,
                    norm,
                    tuple(entropy),
                    tuple(reach),
                    loss / count if count else None,
                    right / count if count else None,
                )
            )
        return tuple(found)


def _spread(mean: float, mean_square: float) -> float:
    return math.sqrt(max(0.0, mean_square - mean**2))


def _real(batch: Batch) -> Tensor:
    """(B, S): where no padding stands."""
    mask = batch.attention_mask
    return torch.ones_like(batch.input_ids, dtype=torch.bool) if mask is None else mask.bool()


def _whole(batch: Batch) -> Tensor:
    """The ids with what is masked put back."""
    ids = batch.input_ids.flatten().clone()
    ids[batch.masked_positions] = batch.masked_labels
    return ids.view_as(batch.input_ids)


def similarity(states: Sequence[Tensor]) -> tuple[tuple[float, ...], ...]:
    """Linear centred kernel alignment between all of several sets of states (N, H) (Kornblith et
    al. 2019).

    The measure is ||Y^T X||^2 / (||X^T X|| ||Y^T Y||) with Frobenius norms, after the mean of each
    set is taken off. It is 1 where a rotation and a factor make one set the other.
    """
    centred = [(one - one.mean(0)).double() for one in states]
    own = [float((one.T @ one).norm()) for one in centred]
    rows = []
    for i, one in enumerate(centred):
        row = [
            float((other.T @ one).norm() ** 2) / max(own[i] * own[j], 1e-300)
            for j, other in enumerate(centred)
        ]
        rows.append(tuple(row))
    return tuple(rows)
