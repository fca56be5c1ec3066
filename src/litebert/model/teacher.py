"""A teacher, which another network learns from, and how far that network is from it. It is no
module, so that no state dict, count or optimizer of its student has it.

Shapes: B sequences, S tokens, H hidden size, A heads, K predicted positions, V vocabulary, C
classes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from litebert.data.batches import Batch
from litebert.model.encoder import Encoder
from litebert.tokenizer.alignment import Alignment


class Read(Protocol):
    @property
    def input_ids(self) -> Tensor: ...
    @property
    def token_type_ids(self) -> Tensor: ...
    @property
    def attention_mask(self) -> Tensor | None: ...


Projections = tuple[Tensor, Tensor, Tensor]
"""Queries, keys and values of a layer, (B, A, S, H / A) each."""


def divergence(logits: Tensor, taught: Tensor, temperature: float = 1.0) -> Tensor:
    """T^2 KL(p || q) over the last dimension, for p and q the softmax of taught / T and of logits /
    T, in float32. Minus infinity in both counts for nothing.
    """
    student, teacher = (
        (values.float() / temperature).log_softmax(-1) for values in (logits, taught)
    )
    p = teacher.exp()
    distance: Tensor = temperature**2 * (p * (teacher - student)).masked_fill(p == 0, 0.0).sum(-1)
    return distance


def state_distance(states_BSH: Tensor, taught_BSH: Tensor, map_: nn.Module) -> Tensor:
    """(B, S): the mean square of mapped states minus the teacher's, both normalized, because states
    of pre-norm encoders grow from layer to layer.
    """
    student, teacher = (
        F.layer_norm(states.float(), states.shape[-1:]) for states in (states_BSH, taught_BSH)
    )
    distance: Tensor = (map_(student) - teacher).square().mean(-1)
    return distance


def relation_distance(
    student: Projections, teacher: Projections, heads: int, mask: Tensor | None
) -> Tensor:
    """(B, S): KL of the teacher's relations between queries, between keys and between values from
    the student's, summed over the three and averaged over the heads (MiniLMv2, Wang et al. 2021,
    section 3), with a mask (B, S) of real tokens.

    A relation is softmax(X X^T / sqrt(D)) of the projections X, which are regrouped into `heads`
    heads of size D; so widths and heads of the two may differ.
    """

    def relate(projection: Tensor) -> Tensor:
        """Scores of every token with every other, minus infinity where that is padding."""
        batch, _, length, _ = projection.shape
        flat = projection.float().transpose(1, 2).reshape(batch, length, heads, -1)
        x = flat.transpose(1, 2)
        scores: Tensor = x @ x.transpose(-1, -2) * x.shape[-1] ** -0.5
        if mask is None:
            return scores
        return scores.masked_fill(~mask.bool()[:, None, None, :], -torch.inf)

    total: Any = 0.0
    for learned, taught in zip(student, teacher, strict=True):
        total = total + divergence(relate(learned), relate(taught)).mean(1)
    distance: Tensor = total
    return distance


def mean_over_pairs(
    pairs: Sequence[tuple[int, int]], distance: Callable[[int, int], Tensor], mask: Tensor | None
) -> Tensor:
    """The mean over pairs of layers of a distance (B, S), summed over the mask's tokens."""
    distance_BS = torch.stack([distance(*pair) for pair in pairs]).mean(0)
    return (distance_BS if mask is None else distance_BS.masked_fill(~mask, 0.0)).sum()


class Teacher:
    def __init__(
        self,
        encoder: Encoder,
        head: nn.Module | None,
        fingerprint: str = "",
        alignment: Alignment | None = None,
    ) -> None:
        """Freeze a network, with its vocabulary head; `alignment` joins the student's tokens with
        others.
        """
        self.encoder, self.head, self.fingerprint = encoder, head, fingerprint
        self.alignment = alignment
        for module in filter(None, (encoder, head)):
            module.eval().requires_grad_(False)

    def to(self, device: torch.device) -> None:
        for module in filter(None, (self.encoder, self.head)):
            module.to(device)


class Lesson:
    """A teacher's outputs for a batch, by one forward pass at the first request.

    With another tokenizer, a token's outputs are the mean of those of the teacher's tokens that
    overlap it in characters, and there are no guesses of tokens.
    """

    def __init__(self, teacher: Teacher, batch: Read) -> None:
        self._teacher, self._batch = teacher, batch

    @cached_property
    def states(self) -> list[Tensor]:
        """The embedding and the state after each layer, (B, S, H) each."""
        return [self._mean(state) for state in self._own_states]

    @torch.no_grad()
    def logits(self, vocab_size: int) -> Tensor:
        """(K, V): its guesses at the masked positions, of its first `vocab_size` tokens."""
        encoder, head = self._teacher.encoder, self._teacher.head
        assert head is not None
        assert isinstance(self._batch, Batch)
        last = encoder.read_out(self.states[-1]).last.flatten(0, 1)[self._batch.masked_positions]
        guesses: Tensor = head(last, encoder.embedding.word.weight, encoder.embedding.map)
        return guesses[:, :vocab_size]

    @torch.no_grad()
    def projections(self, layer: int) -> Projections:
        """Queries, keys and values of a layer, counted from 1."""
        query, key, value = self._teacher.encoder.projections(
            layer - 1, self._own_states[layer - 1]
        )
        return self._mean(query), self._mean(key), self._mean(value)

    def _mean(self, values: Tensor) -> Tensor:
        """Values (B, ..., T, D) of the teacher's tokens for the student's, (B, ..., S, D)."""
        if self._teacher.alignment is None:
            return values
        weights = self._read.weights.to(values)
        return (weights if values.ndim == 3 else weights[:, None]) @ values

    @cached_property
    @torch.no_grad()
    def _own_states(self) -> list[Tensor]:
        read = self._batch if self._teacher.alignment is None else self._read
        types = read.token_type_ids if self._teacher.encoder.config.segment_types else None
        return list(self._teacher.encoder.states(read.input_ids, types, read.attention_mask))

    @cached_property
    def _read(self) -> AlignedRead:
        alignment, most = self._teacher.alignment, self._teacher.encoder.config.max_positions
        assert alignment is not None
        batch, mask = self._batch, self._batch.attention_mask
        ids, types = (tensor.cpu().numpy() for tensor in (batch.input_ids, batch.token_type_ids))
        reals = np.ones(ids.shape, bool) if mask is None else mask.cpu().numpy().astype(bool)
        places = [np.flatnonzero(real) for real in reals]
        rows = [
            alignment.align(row[place].tolist(), most)
            for row, place in zip(ids, places, strict=True)
        ]
        width = max(len(row.ids) for row in rows)
        read_ids = np.full((len(rows), width), alignment.other.pad_id)
        read_types = np.zeros((len(rows), width), int)
        weights = np.zeros((*ids.shape, width), np.float32)
        for number, (row, place) in enumerate(zip(rows, places, strict=True)):
            read_ids[number, : len(row.ids)] = row.ids
            read_types[number, : len(row.ids)] = types[number, place][row.sources]
            weights[number, place, : len(row.ids)] = row.make_weights()
        real = np.arange(width) < np.array([len(row.ids) for row in rows])[:, None]
        arrays = (read_ids, np.minimum(read_types, 1), real, weights)
        device = batch.input_ids.device
        return AlignedRead(*(torch.from_numpy(array).to(device) for array in arrays))


class AlignedRead(NamedTuple):
    """A batch as a teacher with another tokenizer reads it: B rows of T tokens."""

    input_ids: Tensor
    """int64 (B, T)"""
    token_type_ids: Tensor
    attention_mask: Tensor
    """bool (B, T)"""
    weights: Tensor
    """float32 (B, S, T): takes the mean of the teacher's tokens that overlap a student's."""
