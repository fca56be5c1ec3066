"""Batches of pretraining: the batch of step N is a pure function of (split, tokenizer, config,
seed, N), so a run resumes at any step, and ranks get the sequences that one process would.

The random key of an example is (seed, example, epoch) for fresh masks every epoch, or (seed,
example, epoch modulo copies) for static ones. The key decides cut points too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from litebert.config import MaskingConfig, SequenceConfig
from litebert.data import IGNORED
from litebert.data.masking import Masker
from litebert.data.random_keys import Keys, derive, permute
from litebert.data.segments import (
    SEQUENCE_FORMATS,
    AnySplit,
    Numbers,
    Segments,
    SentenceTask,
    list_splits,
)

if TYPE_CHECKING:
    from litebert.tokenizer import Tokenizer

_ORDER, _EXAMPLE, _ROW, _SPLIT = 21, 22, 23, 24  # uses of keys
_MULTIPLE = 8


@dataclass(frozen=True, eq=False)
class Batch:
    """B sequences of S tokens, a multiple of 8 or the length; K of them are predicted."""

    input_ids: Tensor
    """int64 (B, S), corrupted."""
    token_type_ids: Tensor
    """int64 (B, S): 1 in the second of two segments with its last [SEP], 0 elsewhere."""
    attention_mask: Tensor | None
    """bool (B, S), True on tokens; None where nothing is padded."""
    masked_positions: Tensor
    """int64 (K,), indices into the flattened (B * S) tokens, ascending."""
    masked_labels: Tensor
    """int64 (K,), the original ids."""
    sentence_labels: Tensor
    """int64 (B,): 0 in order or next, 1 swapped or random, -100 not labeled."""
    masked_boundaries: Tensor | None = None
    """int64 (K, 2): flattened positions of the tokens just outside each token's run of masked
    tokens; -1 where there is none, or a special token or padding. None where no objective reads
    them.
    """
    row_keys: Tensor | None = None
    """int64 (B,): keys for the random draws of an objective. They depend on the step and the row in
    the whole batch, not on the process or micro-batch. None in a made-up batch.
    """
    added: Mapping[str, Tensor] = field(default_factory=dict)

    @property
    def tokens(self) -> int:
        return (
            self.input_ids.numel()
            if self.attention_mask is None
            else int(self.attention_mask.sum())
        )

    def to(self, device: torch.device | str) -> Batch:
        return self._map_tensors(lambda tensor: move_to_device(tensor, device))

    def pin(self) -> Batch:
        return self._map_tensors(Tensor.pin_memory)

    def _map_tensors(self, change: Callable[[Tensor], Tensor]) -> Batch:
        changed: Any = {
            name: change(tensor)
            for name, tensor in vars(self).items()
            if isinstance(tensor, Tensor)
        }
        return replace(
            self, **changed, added={name: change(tensor) for name, tensor in self.added.items()}
        )


def move_to_device(tensor: Tensor, device: torch.device | str) -> Tensor:
    """Return the tensor on a device. CUDA copies it from pinned memory without blocking."""
    if torch.device(device).type != "cuda" or tensor.is_cuda:
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


class Turns:
    """The turns of several splits that are read by weight: whose turn each sequence is.

        weights   2 books, 1 web
        number    0      1    2      | 3      4    5      | ...
        split     books  web  books  | books  web  books  | ...
        of it     0      0    1      | 2      1    3      | ...

    The turns repeat after as many sequences as the weights add up to. Sequence k of a split with
    weight w stands at (k + 1/2) / w of a round. So a split is never far from its share: after n
    sequences of m splits, it has its share s of them, n s, give or take (1 + s (m - 2)) / 2. Any
    turn is found alone.
    """

    def __init__(self, weights: Sequence[int]) -> None:
        self._weights = np.array(weights, np.int64)
        splits = np.arange(len(weights)).repeat(self._weights)
        numbers = np.arange(len(splits)) - (self._weights.cumsum() - self._weights)[splits]
        # Quotients of whole numbers this small are equal only where the fractions are.
        order = np.lexsort((splits, (2 * numbers + 1) / self._weights[splits]))
        self._splits, self._numbers = splits[order], numbers[order]

    def locate(self, sequences: Numbers) -> tuple[Numbers, Numbers]:
        """Return the split of each sequence (B,), and the number of the sequence in that split."""
        rounds, places = np.divmod(sequences, len(self._splits))
        splits = self._splits[places]
        return splits, rounds * self._weights[splits] + self._numbers[places]

    def count(self, sequences: int) -> list[int]:
        rounds, places = divmod(sequences, len(self._splits))
        rest = np.bincount(self._splits[:places], minlength=len(self._weights))
        counts: list[int] = (rounds * self._weights + rest).tolist()
        return counts


class Batches:
    """The batches of a split, by step. An epoch has every example once, in its own order; splits of
    a mixture take turns and have epochs of their own.
    """

    def __init__(
        self,
        split: AnySplit,
        tokenizer: Tokenizer,
        sequences: SequenceConfig,
        masking: MaskingConfig,
        sentence: SentenceTask | None,
        batch_sequences: int,
        seed: int,
        *,
        boundaries: bool = False,
    ) -> None:
        self._tokenizer = tokenizer
        self._length = sequences.length
        layout = SEQUENCE_FORMATS[sequences.format]
        splits, weights = zip(*list_splits(split), strict=True)
        self._turns = Turns(weights)
        self._segments = [
            layout(split, sequences, sentence, tokenizer.pair_separators) for split in splits
        ]
        self._masker = Masker(masking, tokenizer)
        self._copies = masking.copies
        self._batch = batch_sequences
        self._seed = seed
        self._boundaries = boundaries
        self.examples = sum(segments.examples for segments in self._segments)

    def __call__(self, step: int, rows: slice = slice(None)) -> Batch:
        """Return some rows of the step's global batch: a micro-batch, or the share of a rank."""
        number = step * self._batch + np.arange(self._batch, dtype=np.int64)[rows]
        segments, keys = self._read_segments(number)
        ids, types, lengths = self._lay_out(segments)
        masked = self._masker(ids, keys)
        is_padded = bool((lengths < ids.shape[1]).any())
        return Batch(
            torch.from_numpy(masked.ids),
            torch.from_numpy(types),
            torch.from_numpy(np.arange(ids.shape[1]) < lengths[:, None]) if is_padded else None,
            torch.from_numpy(masked.positions),
            torch.from_numpy(ids.ravel()[masked.positions]),
            torch.tensor([row.label for row in segments]),
            torch.from_numpy(masked.boundaries()) if self._boundaries else None,
            torch.from_numpy(derive(self._seed, _ROW, number).view(np.int64)),
        )

    def compute_unlabeled_share(self, sequences: int) -> float:
        """Return the share, 0 to 1, of the run's first `sequences` without a sentence label."""
        segments, _ = self._read_segments(np.arange(min(sequences, self.examples), dtype=np.int64))
        return sum(row.label == IGNORED for row in segments) / len(segments)

    def count_epochs(self, sequences: int) -> list[float]:
        counts = self._turns.count(sequences)
        return [
            count / segments.examples
            for count, segments in zip(counts, self._segments, strict=True)
        ]

    def _read_segments(self, numbers: NDArray[np.int64]) -> tuple[list[Segments], Keys]:
        splits, numbers_in_split = self._turns.locate(numbers)
        keys = np.empty(len(numbers), np.uint64)
        segments_of_row: dict[int, Segments] = {}
        for split in np.unique(splits).tolist():
            rows, segments = np.flatnonzero(splits == split), self._segments[split]
            # The first split has the keys that it has alone.
            seed = self._seed if split == 0 else int(derive(self._seed, _SPLIT, split)[0])
            epoch, number_in_epoch = np.divmod(numbers_in_split[rows], segments.examples)
            example = permute(number_in_epoch, segments.examples, derive(seed, _ORDER, epoch))
            version = epoch % self._copies if self._copies else epoch
            keys[rows] = derive(seed, _EXAMPLE, example, version)
            segments_of_row |= zip(rows.tolist(), segments(example, keys[rows]), strict=True)
        return [segments_of_row[row] for row in range(len(numbers))], keys

    def _lay_out(
        self, segments: list[Segments]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return padded [CLS] part [SEP] part [SEP] and the token types, (B, S), and lengths."""
        begin, end = np.array([self._tokenizer.cls_id]), np.array([self._tokenizer.sep_id])
        separators = end.repeat(self._tokenizer.pair_separators)
        tokens: list[NDArray[np.integer]] = []
        # For each sequence its length, and the position where its second segment starts.
        layout = []
        for row in segments:
            separator = separators if row.paired else end
            tokens += (begin, row.parts[0])
            for part in row.parts[1:]:
                tokens += (separator, part)
            tokens.append(end)
            sizes = [len(part) for part in row.parts]
            length = 2 + sum(sizes) + (len(sizes) - 1) * len(separator)
            layout.append((length, 1 + sizes[0] + len(separator) if row.paired else self._length))
        lengths, second_starts = np.array(layout).T[:, :, None]
        width = min(self._length, -(-int(lengths.max()) // _MULTIPLE) * _MULTIPLE)
        positions = np.arange(width)
        ids = np.full((len(segments), width), self._tokenizer.pad_id, np.int64)
        ids[positions < lengths] = np.concatenate(tokens)
        types = ((positions >= second_starts) & (positions < lengths)).astype(np.int64)
        return ids, types, lengths[:, 0]
