"""A teacher, which another network learns from, and how far that network is from it.

A teacher is no module: no state dict, parameter count or optimizer of its student has it, and no
gradient reaches it.

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
    """Rows that a teacher reads beside its student."""

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
    T, in float32.

    Minus infinity in both counts for nothing.
    """
    student, teacher = (
        (values.float() / temperature).log_softmax(-1) for values in (logits, taught)
    )
    p = teacher.exp()
    distance: Tensor = temperature**2 * (p * (teacher - student)).masked_fill(p == 0, 0.0).sum(-1)
    return distance


def state_distance(states_BSH: Tensor, taught_BSH: Tensor, map_: nn.Module) -> Tensor:
    """(B, S): the mean square of mapped states minus the teacher's, both normalized to mean 0 and
    standard deviation 1 before.

    Without that, states of pre-norm encoders, which grow from layer to layer, would count by their
    size.
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
    section 3).

    A relation is softmax(X X^T / sqrt(D)) of the projections X, which are regrouped into `heads`
    heads of size D; so widths and heads of the two may differ.

    Args:
        mask: (B, S), nonzero on real tokens.
    """
    total: Any = 0.0
    for student_part, teacher_part in zip(student, teacher, strict=True):
        scores = [
            _relation(_regroup(projection, heads), mask)
            for projection in (student_part, teacher_part)
        ]
        total = total + divergence(scores[0], scores[1]).mean(1)
    distance: Tensor = total
    return distance


def mean_over_pairs(
    pairs: Sequence[tuple[int, int]], distance: Callable[[int, int], Tensor], mask: Tensor | None
) -> Tensor:
    """The mean over pairs of layers of a distance (B, S), summed over the real tokens: (), of the
    mask (B, S).
    """
    distance_BS = torch.stack([distance(*pair) for pair in pairs]).mean(0)
    return (distance_BS if mask is None else distance_BS.masked_fill(~mask, 0.0)).sum()


def _regroup(x_BASD: Tensor, heads: int) -> Tensor:
    batch, _, length, _ = x_BASD.shape
    return x_BASD.float().transpose(1, 2).reshape(batch, length, heads, -1).transpose(1, 2)


def _relation(x_BASD: Tensor, mask: Tensor | None) -> Tensor:
    """Scores of every token with every other, minus infinity where that is padding."""
    scores: Tensor = x_BASD @ x_BASD.transpose(-1, -2) * x_BASD.shape[-1] ** -0.5
    return (
        scores if mask is None else scores.masked_fill(~mask.bool()[:, None, None, :], -torch.inf)
    )


class Teacher:
    """A pretrained network in evaluation mode."""

    def __init__(
        self,
        encoder: Encoder,
        head: nn.Module | None,
        fingerprint: str = "",
        alignment: Alignment | None = None,
    ) -> None:
        """Freeze a network.

        Args:
            head: the one before the vocabulary, as `VocabularyHead`.
            fingerprint: tells its weights from others.
            alignment: of the student's tokens with those of a teacher that has other ones.
        """
        self.encoder, self.head, self.fingerprint = encoder, head, fingerprint
        self.alignment = alignment
        for module in filter(None, (encoder, head)):
            module.eval().requires_grad_(False)

    def to(self, device: torch.device) -> Teacher:
        """The same, moved to a device."""
        for module in filter(None, (self.encoder, self.head)):
            module.to(device)
        return self

    def lesson(self, batch: Read) -> Lesson:
        """Its outputs for a batch."""
        if self.alignment is None:
            return Lesson(self, batch)
        return AlignedLesson(self, batch, self.alignment)


class Lesson:
    """A teacher's outputs for a batch. One forward pass, made at the first request, serves all
    objectives.
    """

    def __init__(self, teacher: Teacher, batch: Read) -> None:
        self._teacher, self._batch = teacher, batch

    @cached_property
    @torch.no_grad()
    def states(self) -> list[Tensor]:
        """The embedding and the state after each layer, (B, S, H) each."""
        batch = self._batch
        types = batch.token_type_ids if self._teacher.encoder.config.segment_types else None
        return list(self._teacher.encoder.states(batch.input_ids, types, batch.attention_mask))

    @torch.no_grad()
    def logits(self, vocab_size: int) -> Tensor:
        """(K, V): its guesses at the masked positions, of the first `vocab_size` tokens of its
        vocabulary.
        """
        encoder, head = self._teacher.encoder, self._teacher.head
        assert head is not None
        assert isinstance(self._batch, Batch)
        last = encoder.read_out(self.states[-1]).last.flatten(0, 1)[self._batch.masked_positions]
        guesses: Tensor = head(last, encoder.embedding.word.weight, encoder.embedding.map)
        return guesses[:, :vocab_size]

    @torch.no_grad()
    def projections(self, layer: int) -> Projections:
        """Queries, keys and values of a layer, counted from 1."""
        return self._teacher.encoder.projections(layer - 1, self.states[layer - 1])


class AlignedRead(NamedTuple):
    """A batch as a teacher with another tokenizer reads it: B rows of T tokens."""

    input_ids: Tensor
    """int64 (B, T)"""
    token_type_ids: Tensor
    attention_mask: Tensor
    """bool (B, T)"""
    weights: Tensor
    """float32 (B, S, T): takes the mean of the teacher's tokens that overlap a student's."""


class AlignedLesson(Lesson):
    """The outputs of a teacher with another tokenizer, for the student's tokens: the mean over the
    teacher's tokens that overlap each of them in characters. There are no guesses of tokens.
    """

    def __init__(self, teacher: Teacher, batch: Read, alignment: Alignment) -> None:
        super().__init__(teacher, batch)
        self._alignment = alignment

    @cached_property
    def states(self) -> list[Tensor]:
        """The embedding and the state after each layer, (B, S, H) each."""
        return [self._read.weights.to(state) @ state for state in self._read_states]

    @torch.no_grad()
    def projections(self, layer: int) -> Projections:
        """Queries, keys and values of a layer, counted from 1."""
        weights = self._read.weights[:, None]
        query, key, value = self._teacher.encoder.projections(
            layer - 1, self._read_states[layer - 1]
        )
        return weights.to(query) @ query, weights.to(key) @ key, weights.to(value) @ value

    @cached_property
    @torch.no_grad()
    def _read_states(self) -> list[Tensor]:
        read, encoder = self._read, self._teacher.encoder
        types = read.token_type_ids if encoder.config.segment_types else None
        return list(encoder.states(read.input_ids, types, read.attention_mask))

    @cached_property
    def _read(self) -> AlignedRead:
        batch, most = self._batch, self._teacher.encoder.config.max_positions
        ids, types = (tensor.cpu().numpy() for tensor in (batch.input_ids, batch.token_type_ids))
        mask = batch.attention_mask
        reals = np.ones(ids.shape, bool) if mask is None else mask.cpu().numpy().astype(bool)
        places = [np.flatnonzero(real) for real in reals]
        rows = [
            self._alignment.align(row[place].tolist(), most)
            for row, place in zip(ids, places, strict=True)
        ]
        width = max(len(row.ids) for row in rows)
        pad = self._alignment.other.pad_id
        read_ids, read_types = np.full((len(rows), width), pad), np.zeros((len(rows), width), int)
        weights = np.zeros((*ids.shape, width), np.float32)
        for number, (row, place) in enumerate(zip(rows, places, strict=True)):
            read_ids[number, : len(row.ids)] = row.ids
            read_types[number, : len(row.ids)] = types[number, place][row.sources]
            weights[number, place, : len(row.ids)] = row.make_weights()
        real = np.arange(width) < np.array([len(row.ids) for row in rows])[:, None]
        arrays = (read_ids, np.minimum(read_types, 1), real, weights)
        device = batch.input_ids.device
        return AlignedRead(*(torch.from_numpy(array).to(device) for array in arrays))
