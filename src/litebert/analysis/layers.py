"""Analyze how hidden states change from layer to layer of an encoder (ALBERT, figure 1).

All numbers are means over the tokens of held-out text, special tokens too, without padding (the
paper does not say). The state before the first layer is the embedding, after the map E -> H if the
encoder has it.

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

from litebert.base.errors import ConfigError
from litebert.base.progress import track
from litebert.change.vocabulary import with_rows_of
from litebert.config import SequenceConfig, cost, replace
from litebert.data.batches import Batch, Batches
from litebert.data.shards import Shards
from litebert.interop import LoadedModel, read_folder
from litebert.model.encoder import Encoder
from litebert.model.objectives.mlm import MaskedLanguageModeling
from litebert.model.pretrainer import Pretrainer
from litebert.train.device import choose
from litebert.train.evaluate import EVALUATION_BATCH, MASKING, SEED

COMPARED_TOKENS = 4096
CONTROL = "from scratch"


@dataclass(frozen=True)
class Layer:
    """The effect of a layer on hidden states, as means over tokens."""

    distance: float
    """L2 distance between the states before and after the layer."""
    distance_std: float
    angle: float
    """Angle between the two states, in degrees."""
    angle_std: float
    """Standard deviation of the angle over tokens."""
    cosine: float
    norm: float
    entropy: tuple[float, ...]
    """Entropy of the attention of each head, in nats. It is 0 if a token reads a single token, and
    ln S if it reads all S tokens alike.
    """
    reach: tuple[float, ...]
    """Mean distance between a token and the tokens that each head reads, in tokens."""
    mlm_loss: float | None = None
    """Loss of the masked tokens, if the head of the last layer reads the state after this one."""
    mlm_accuracy: float | None = None


@dataclass(frozen=True)
class Analysis:
    name: str
    recipe: str
    layers: tuple[Layer, ...]
    similarity: tuple[tuple[float, ...], ...]
    """(L + 1, L + 1): `compute_similarity` of the states, the embedding first."""
    parameters: dict[str, int]
    tokens: int


def analyze(
    models: Sequence[str | Path],
    shards: str | Path,
    *,
    sequences: int = 128,
    length: int | None = None,
    control: bool = True,
    device: str = "auto",
) -> list[Analysis]:
    """Analyze models on the held-out documents of token shards.

    Args:
        models: run folders, litebert model folders or Hugging Face folders.
        shards: a folder written by `prepare` with the tokenizer of the models.
        sequences: the number of sequences to read.
        length: tokens of each; by default as the first model was trained.
        control: True to analyze the same network from scratch after each model.

    Raises:
        DataError: the data cannot be used, or was prepared with another tokenizer.
        ModelError: a folder cannot be opened.
        ConfigError: a size is out of range.
    """
    if not models:
        raise ConfigError("there is no model to analyze; name at least one folder")
    if sequences < 1:
        raise ConfigError(f"sequences is {sequences}; it must be at least 1")
    opened = Shards.open(shards, verify=True)
    analyses = []
    for path in models:
        loaded = with_rows_of(shards, opened.tokenizer, read_folder(path), path)
        shape = loaded.config.encoder
        length = length or min(loaded.config.sequences.length, shape.max_positions)
        if not 8 <= length <= shape.max_positions:
            raise ConfigError(
                f"length is {length}; {path} reads from 8 to {shape.max_positions} tokens"
            )
        batches = _make_batches(opened, length, sequences)
        name = Path(path).name or str(path)
        analyses.append(_analyze_model(name, loaded, batches, device))
        if control:
            torch.manual_seed(0)
            network, untrained = Pretrainer(loaded.config), tuple(loaded.config.objectives)
            scratch = replace(loaded, network=network, untrained=untrained)
            analyses.append(_analyze_model(f"{name}, {CONTROL}", scratch, batches, device))
    return analyses


def _make_batches(shards: Shards, length: int, sequences: int) -> list[Batch]:
    layout = SequenceConfig(format="full-sentences", length=length, short_probability=0.0)
    laws = (layout, MASKING, None, EVALUATION_BATCH, SEED)
    make_batch = Batches(shards.heldout, shards.tokenizer, *laws)
    count = min(sequences, make_batch.examples)
    return [
        make_batch(first // EVALUATION_BATCH, slice(0, min(EVALUATION_BATCH, count - first)))
        for first in range(0, count, EVALUATION_BATCH)
    ]


@torch.no_grad()
def _analyze_model(
    name: str, loaded: LoadedModel, batches: Sequence[Batch], device: str
) -> Analysis:
    machine = choose("float32", device)
    model = loaded.model.to(machine.device).eval()
    encoder: Encoder = model.encoder
    sums = _Sums(encoder.config.layers, encoder.config.heads)
    compared: list[list[Tensor]] = []  # the states of each batch, by layer
    compared_tokens = 0
    total = sum(len(batch.input_ids) for batch in batches)
    with track(
        batches, f"analyzing {name}", total, "sequences", lambda batch: len(batch.input_ids)
    ) as tracked_batches:
        for cpu_batch in tracked_batches:
            batch = cpu_batch.to(machine.device)
            sums.add_attention(encoder, batch)
            states = sums.add_states(encoder, batch)
            if compared_tokens < COMPARED_TOKENS:
                compared.append([state.cpu() for state in states])
                compared_tokens += len(states[0])
            if isinstance(model, Pretrainer):
                sums.add_predictions(model, batch, loaded.untrained)
    layers = [torch.cat(layer)[:COMPARED_TOKENS] for layer in zip(*compared, strict=True)]
    similarity, parameters = compute_similarity(layers), cost.encoder_parameters(encoder.config)
    recipe, averages = loaded.config.name, sums.average()
    return Analysis(name, recipe, averages, similarity, parameters, sums.tokens)


class _Sums:
    def __init__(self, layers: int, heads: int) -> None:
        self.tokens = 0
        # Distance, its square, angle, its square, cosine, norm.
        self._changes = torch.zeros(layers, 6, dtype=torch.float64)
        # Entropy, reach.
        self._attention = torch.zeros(2, layers, heads, dtype=torch.float64)
        # Loss, right predictions, masked tokens.
        self._predictions = torch.zeros(layers, 3, dtype=torch.float64)

    def add_states(self, encoder: Encoder, batch: Batch) -> list[Tensor]:
        """Add the changes of states of unmasked text; return the states of all tokens but padding,
        (N, H) for each layer, the embedding first.
        """
        is_token = _find_tokens(batch)
        all_states = encoder.states(_unmask(batch), None, batch.attention_mask)
        states = [state_BSH[is_token].float() for state_BSH in all_states]
        self.tokens += len(states[0])
        for layer, (before, after) in enumerate(pairwise(states)):
            distance = (after - before).norm(dim=-1).double()
            cosine = torch.cosine_similarity(before, after, dim=-1).double()
            angle = cosine.clamp(-1, 1).arccos().rad2deg()
            norm = after.norm(dim=-1).double()
            values = (distance, distance**2, angle, angle**2, cosine, norm)
            self._changes[layer] += torch.stack([value.sum() for value in values]).cpu()
        return states

    def add_attention(self, encoder: Encoder, batch: Batch) -> None:
        is_token_BS, length = _find_tokens(batch), batch.input_ids.shape[1]
        position = torch.arange(length, device=batch.input_ids.device)
        distance = (position - position[:, None]).abs().float()
        states = encoder.states(_unmask(batch), None, batch.attention_mask)
        for layer, state in enumerate(states):
            if layer == encoder.config.layers:  # no layer reads the last state
                break
            weights = encoder.attention_weights(layer, state, batch.attention_mask).float()
            entropy_BAS = torch.special.entr(weights).sum(-1)
            reach_BAS = (weights * distance).sum(-1)
            for i, values_BAS in enumerate((entropy_BAS, reach_BAS)):
                values = values_BAS.transpose(1, 2)[is_token_BS].double()
                self._attention[i, layer] += values.sum(0).cpu()

    def add_predictions(self, model: Pretrainer, batch: Batch, untrained: Sequence[str]) -> None:
        heads = [
            (name, objective)
            for name, objective in model.named_objectives.items()
            if name not in untrained and isinstance(objective, MaskedLanguageModeling)
        ]
        # With a generator, the head reads the generator's states rather than the encoder's.
        if not heads or model.config.generator is not None:
            return
        name, head = heads[0]
        context = model.context(name)
        states = model.encoder.states(batch.input_ids, None, batch.attention_mask)
        next(states)  # the embedding
        for layer, state in enumerate(states):
            last = model.encoder.read_out(state).last
            logits = head.guesses(last, batch.masked_positions, context)
            labels = batch.masked_labels
            loss = torch.nn.functional.cross_entropy(logits.float(), labels, reduction="sum")
            right = (logits.argmax(-1) == labels).sum()
            self._predictions[layer] += torch.tensor(
                [float(loss), float(right), len(labels)], dtype=torch.float64
            )

    def average(self) -> tuple[Layer, ...]:
        layers = []
        for changes, entropy, reach, (loss, right, count) in zip(
            (self._changes / self.tokens).tolist(),
            *(self._attention / self.tokens).tolist(),
            self._predictions.tolist(),
            strict=True,
        ):
            distance, distance_square, angle, angle_square, cosine, norm = changes
            stds = _compute_std(distance, distance_square), _compute_std(angle, angle_square)
            moves = (distance, stds[0], angle, stds[1], cosine, norm)
            scores = (loss / count, right / count) if count else (None, None)
            layers.append(Layer(*moves, tuple(entropy), tuple(reach), *scores))
        return tuple(layers)


def _compute_std(mean: float, mean_square: float) -> float:
    return math.sqrt(max(0.0, mean_square - mean**2))


def _find_tokens(batch: Batch) -> Tensor:
    """Return (B, S): True for a token, False for padding."""
    mask = batch.attention_mask
    return torch.ones_like(batch.input_ids, dtype=torch.bool) if mask is None else mask.bool()


def _unmask(batch: Batch) -> Tensor:
    ids = batch.input_ids.flatten().clone()
    ids[batch.masked_positions] = batch.masked_labels
    return ids.view_as(batch.input_ids)


def compute_similarity(layers: Sequence[Tensor]) -> tuple[tuple[float, ...], ...]:
    """Compute the linear centered kernel alignment of layers with states (N, H), less their mean:

        ||Y^T X||^2 / (||X^T X|| ||Y^T Y||), with Frobenius norms (Kornblith et al. 2019)

    It is 1 if a rotation and a factor make one layer the other.
    """
    centered = [(states - states.mean(0)).double() for states in layers]
    norms = [float((states.T @ states).norm()) for states in centered]
    return tuple(
        tuple(
            float((other.T @ states).norm() ** 2) / max(norms[i] * norms[j], 1e-300)
            for j, other in enumerate(centered)
        )
        for i, states in enumerate(centered)
    )
