"""A batch of step N is a pure function of (split, tokenizer, config, seed, N).

Nothing is drawn in sequence, so a run resumes at any step at no cost, and ranks or micro batches that ask for their
rows of a step get the very sequences that one process would. The random key of an example is (seed, example, epoch)
for fresh masks every epoch, or (seed, example, epoch modulo copies) for static ones; the text's cut points go with it.
Only here does data become tensors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from litebert.config import MaskingConfig, SequenceConfig
from litebert.data.draws import derive, permute
from litebert.data.masking import Masker
from litebert.data.segments import Pairs, Segments

if TYPE_CHECKING:
    from litebert.data.shards import Split
    from litebert.data.tokenizer import Tokenizer

_PLACE, _EXAMPLE = 21, 22  # what a key is for
_MULTIPLE = 8


@dataclass(frozen=True, eq=False)
class Batch:
    """B sequences of S tokens, K of which are predicted. S is the longest sequence, rounded up to a multiple of 8."""

    input_ids: Tensor
    """int64 (B, S), corrupted."""
    token_type_ids: Tensor
    """int64 (B, S): 0 in the first segment with its [CLS] and [SEP], 1 in the second with its [SEP]."""
    attention_mask: Tensor | None
    """bool (B, S), True on tokens; None where nothing is padded."""
    masked_positions: Tensor
    """int64 (K,), indices into the flattened (B * S) tokens, ascending."""
    masked_labels: Tensor
    """int64 (K,), the original ids."""
    sentence_labels: Tensor
    """int64 (B,): 0 in order or next, 1 swapped or random, -100 not labelled."""

    @property
    def tokens(self) -> int:
        """Tokens, padding aside."""
        return self.input_ids.numel() if self.attention_mask is None else int(self.attention_mask.sum())

    def to(self, device: torch.device | str) -> Batch:
        """The same batch on a device."""
        return Batch(
            self.input_ids.to(device),
            self.token_type_ids.to(device),
            None if self.attention_mask is None else self.attention_mask.to(device),
            self.masked_positions.to(device),
            self.masked_labels.to(device),
            self.sentence_labels.to(device),
        )


class Batches:
    """The batches of a split, by step. Every example comes once per epoch, in an order of its own each epoch."""

    examples: int
    """Sequences per epoch."""

    def __init__(
        self,
        split: Split,
        tokenizer: Tokenizer,
        sequences: SequenceConfig,
        masking: MaskingConfig,
        sentence: Literal["sop", "nsp"] | None,
        batch_sequences: int,
        seed: int,
    ) -> None:
        """Raises DataError where the split or the tokenizer cannot serve what is asked."""
        self._tokenizer = tokenizer
        self._length = sequences.length
        self._segments = Pairs(split, sequences, sentence)
        self._masker = Masker(masking, tokenizer)
        self._copies = masking.copies
        self._batch = batch_sequences
        self._seed = seed
        self.examples = self._segments.examples

    def epoch(self, step: int) -> float:
        """Passes over the split before `step`."""
        return step * self._batch / self.examples

    def __call__(self, step: int, rows: slice = slice(None)) -> Batch:
        """Some rows, all by default, of the step's global batch: a micro batch, or the share of a rank."""
        place = step * self._batch + np.arange(self._batch, dtype=np.int64)[rows]
        epoch, place = np.divmod(place, self.examples)
        example = permute(place, self.examples, derive(self._seed, _PLACE, epoch))
        version = epoch % self._copies if self._copies else epoch
        keys = derive(self._seed, _EXAMPLE, example, version)

        segments = self._segments(example, keys)
        ids, types, lengths = self._lay_out(segments)
        corrupted, positions = self._masker(ids, keys)
        padded = bool((lengths < ids.shape[1]).any())
        return Batch(
            torch.from_numpy(corrupted),
            torch.from_numpy(types),
            torch.from_numpy(np.arange(ids.shape[1]) < lengths[:, None]) if padded else None,
            torch.from_numpy(positions),
            torch.from_numpy(ids.ravel()[positions]),
            torch.tensor([item.label for item in segments]),
        )

    def _lay_out(self, segments: list[Segments]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """[CLS] A [SEP] B [SEP] and padding (B, S), the token types (B, S), and the lengths (B,)."""
        tokenizer = self._tokenizer
        lengths = np.array([len(a) + (2 if b is None else len(b) + 3) for a, b, _ in segments])
        size = min(self._length, -(-int(lengths.max()) // _MULTIPLE) * _MULTIPLE)
        ids = np.full((len(segments), size), tokenizer.pad_id, np.int64)
        types = np.zeros_like(ids)
        ids[:, 0] = tokenizer.cls_id
        for row, (first, second, _) in enumerate(segments):
            end = len(first) + 1
            ids[row, 1:end] = first
            ids[row, end] = tokenizer.sep_id
            if second is not None:
                start, end = end + 1, end + 1 + len(second)
                ids[row, start:end] = second
                ids[row, end] = tokenizer.sep_id
                types[row, start : end + 1] = 1
        return ids, types, lengths
