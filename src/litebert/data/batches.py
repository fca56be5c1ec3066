"""A batch of step N is a pure function of (split, tokenizer, config, seed, N).

Nothing is drawn in sequence, so a run resumes at any step at no cost, and ranks or micro batches
get exactly the sequences that one process would. The random key of an example is (seed, example,
epoch) for fresh masks every epoch, or (seed, example, epoch modulo copies) for static ones; cut
points go with it. Only here does data become tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from litebert.config import MaskingConfig, SequenceConfig
from litebert.data import IGNORED
from litebert.data.masking import Masker
from litebert.data.passages import Segments, SentenceTask
from litebert.data.random_keys import Keys, derive, permute
from litebert.data.segments import SEQUENCE_FORMATS

if TYPE_CHECKING:
    from litebert.data.shards import Split
    from litebert.tokenizer import Tokenizer

_PLACE, _EXAMPLE, _ROW = 21, 22, 23  # what a key is for
_MULTIPLE = 8


@dataclass(frozen=True, eq=False)
class Batch:
    """B sequences of S tokens, K of which are predicted. S is the longest sequence, rounded up to a
    multiple of 8.
    """

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
    """int64 (B,): 0 in order or next, 1 swapped or random, -100 not labelled."""
    masked_boundaries: Tensor | None = None
    """int64 (K, 2), flattened positions of the tokens just outside the run of masked tokens that
    each lies in; -1 where there is none, or a special token or padding. None where no objective
    reads them."""
    row_keys: Tensor | None = None
    """int64 (B,), for what an objective draws at random: of the step and the row in its whole
    batch, whichever process or micro-batch has it. None in a made-up batch."""
    added: Mapping[str, Tensor] = field(default_factory=dict)
    """What objectives put there before the forward pass, for losses to read; each under a name of
    its own.
    """

    @property
    def tokens(self) -> int:
        """Tokens, padding aside."""
        return (
            self.input_ids.numel()
            if self.attention_mask is None
            else int(self.attention_mask.sum())
        )

    def to(self, device: torch.device | str) -> Batch:
        """The same batch on a device."""
        return self._each(lambda tensor: on_device(tensor, device))

    def pin(self) -> Batch:
        """The same batch in page-locked memory."""
        return self._each(Tensor.pin_memory)

    def _each(self, change: Callable[[Tensor], Tensor]) -> Batch:
        changed: Any = {
            name: change(item) for name, item in vars(self).items() if isinstance(item, Tensor)
        }
        return replace(
            self, **changed, added={name: change(item) for name, item in self.added.items()}
        )


def on_device(tensor: Tensor, device: torch.device | str) -> Tensor:
    """The tensor on a device. CUDA fetches it from pinned memory when it gets there; nothing waits
    for that.
    """
    if torch.device(device).type != "cuda" or tensor.is_cuda:
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


class Batches:
    """The batches of a split, by step. Every example comes once per epoch, in an order of its own
    each epoch.
    """

    def __init__(
        self,
        split: Split,
        tokenizer: Tokenizer,
        sequences: SequenceConfig,
        masking: MaskingConfig,
        sentence: SentenceTask | None,
        batch_sequences: int,
        seed: int,
        boundaries: bool = False,
    ) -> None:
        """Raises DataError where the split or the tokenizer cannot serve what is asked.

        Args:
            boundaries: whether batches have `masked_boundaries`.
        """
        self._tokenizer = tokenizer
        self._length = sequences.length
        layout = SEQUENCE_FORMATS[sequences.format]
        self._segments = layout(split, sequences, sentence, tokenizer.pair_separators)
        self._masker = Masker(masking, tokenizer)
        self._copies = masking.copies
        self._batch = batch_sequences
        self._seed = seed
        self._boundaries = boundaries
        self.examples = self._segments.examples  # sequences per epoch

    def __call__(self, step: int, rows: slice = slice(None)) -> Batch:
        """Some rows, all by default, of the step's global batch: a micro batch, or the share of a
        rank.
        """
        place = step * self._batch + np.arange(self._batch, dtype=np.int64)[rows]
        segments, keys = self._segments_at(place)
        ids, types, lengths = self._lay_out(segments)
        masked = self._masker(ids, keys)
        padded = bool((lengths < ids.shape[1]).any())
        return Batch(
            torch.from_numpy(masked.ids),
            torch.from_numpy(types),
            torch.from_numpy(np.arange(ids.shape[1]) < lengths[:, None]) if padded else None,
            torch.from_numpy(masked.positions),
            torch.from_numpy(ids.ravel()[masked.positions]),
            torch.tensor([item.label for item in segments]),
            torch.from_numpy(masked.boundaries()) if self._boundaries else None,
            torch.from_numpy(derive(self._seed, _ROW, place).view(np.int64)),
        )

    def unlabelled_share(self, sequences: int) -> float:
        """The share, from 0 to 1, of the first `sequences` of the run that have no label of the
        sentence task.
        """
        segments, _ = self._segments_at(np.arange(min(sequences, self.examples), dtype=np.int64))
        return sum(item.label == IGNORED for item in segments) / len(segments)

    def _segments_at(self, place: NDArray[np.int64]) -> tuple[list[Segments], Keys]:
        """The segments at these places of the run, and the key of each."""
        epoch, number = np.divmod(place, self.examples)
        example = permute(number, self.examples, derive(self._seed, _PLACE, epoch))
        version = epoch % self._copies if self._copies else epoch
        keys = derive(self._seed, _EXAMPLE, example, version)
        return self._segments(example, keys), keys

    def _lay_out(
        self, segments: list[Segments]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """[CLS] part [SEP] part [SEP] and padding (B, S), the token types (B, S), and the lengths
        (B,).
        """
        begin, end = np.array([self._tokenizer.cls_id]), np.array([self._tokenizer.sep_id])
        between = end.repeat(self._tokenizer.pair_separators)
        rows: list[NDArray[np.integer]] = []
        found = []
        for item in segments:
            gap = between if item.paired else end
            rows += (begin, item.parts[0])
            for part in item.parts[1:]:
                rows += (gap, part)
            rows.append(end)
            sizes = [len(part) for part in item.parts]
            found.append(
                (
                    2 + sum(sizes) + (len(sizes) - 1) * len(gap),
                    1 + sizes[0] + len(gap) if item.paired else self._length,
                )
            )
        lengths, seconds = np.array(found).T[:, :, None]
        size = min(self._length, -(-int(lengths.max()) // _MULTIPLE) * _MULTIPLE)
        places = np.arange(size)
        ids = np.full((len(segments), size), self._tokenizer.pad_id, np.int64)
        ids[places < lengths] = np.concatenate(rows)
        types = ((places >= seconds) & (places < lengths)).astype(np.int64)
        return ids, types, lengths[:, 0]
