"""The rows of one tokenizer read by another, and which of its tokens stand for the same characters.

A row is written as text, from the spellings of its tokens, and encoded anew. Special tokens are
replaced by those of the same role, so a masked token is masked for the other tokenizer too. Each
token of the row is aligned with the tokens of the other that overlap it in characters. A token
that none overlaps is aligned with the nearest one.

Shapes: S tokens of a row, T tokens of the same row for the other tokenizer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from litebert.tokenizer.engines import SPECIAL_NAMES
from litebert.tokenizer.kinds import Spelling
from litebert.tokenizer.tokenizer import Tokenizer


class AlignedRow(NamedTuple):
    ids: NDArray[np.int64]
    """(T,)"""
    sources: NDArray[np.int64]
    """(T,): the first token of the row that each stands for, a part of it, or is near."""
    first: NDArray[np.int64]
    """(S,): the first token of the other that each token of the row is aligned with."""
    last: NDArray[np.int64]
    """(S,): the last one, itself included."""

    def make_weights(self) -> NDArray[np.float32]:
        """Make the matrix (S, T) that takes the mean of the aligned tokens."""
        places = np.arange(len(self.ids))
        overlaps = (places >= self.first[:, None]) & (places <= self.last[:, None])
        weights: NDArray[np.float32] = (overlaps / overlaps.sum(1, keepdims=True)).astype(
            np.float32
        )
        return weights


class Alignment:
    def __init__(self, source: Tokenizer, other: Tokenizer) -> None:
        """Spell the tokens of `source`, whose rows are aligned with tokens of `other`."""
        self.other = other
        spell, special = source.engine.kind.spell, {*source.special_ids}
        self._roles = {
            getattr(source, f"{role}_id"): getattr(other, f"{role}_id") for role in SPECIAL_NAMES
        }
        self._roles |= {i: other.unk_id for i in special if i not in self._roles}
        self._spellings = [
            Spelling(b"", False) if i in special else spell(source.get_token(i))
            for i in range(source.vocab_size)
        ]

    def align(self, ids: Sequence[int], most: int) -> AlignedRow:
        """Align a row of tokens, special ones included, without padding.

        Args:
            most: the most tokens that the other model reads; further ones are cut.
        """
        other_ids: list[int] = []
        other_spans: list[tuple[int, int]] = []
        spans: list[tuple[int, int]] = []
        start = end = 0  # characters of the whole row; a special token counts as one
        place = 0
        while place < len(ids):
            if (role := self._roles.get(ids[place])) is not None:
                other_ids.append(role)
                other_spans.append((start, start + 1))
                spans.append((start, start + 1))
                place, end = place + 1, start + 1
            else:
                stop = place
                while stop < len(ids) and ids[stop] not in self._roles:
                    stop += 1
                text, places = self._write(ids[place:stop])
                spans += [(start + first, start + last) for first, last in places]
                encoded, offsets = self.other.encode_offsets([text])[0]
                other_ids += encoded.tolist()
                other_spans += [(start + first, start + last) for first, last in offsets.tolist()]
                place, end = stop, start + len(text)
            start = end
        if not other_ids:  # a row of spaces alone
            other_ids, other_spans = [self.other.unk_id], [(0, 1)]
        return _overlap(np.array(spans), other_ids[:most], other_spans[:most])

    def _write(self, ids: Sequence[int]) -> tuple[str, list[tuple[int, int]]]:
        data = bytearray()
        ends = []
        for number, token in enumerate(ids):
            spelling = self._spellings[token]
            data += b" " if spelling.begins_word and number else b""
            ends.append((len(data), len(data) + len(spelling.data)))
            data += spelling.data
        try:
            text = data.decode()
        except UnicodeDecodeError:  # a part of a character, as byte-level tokens may be
            return self._write_parts(data, ends)
        if len(text) == len(data):
            return text, ends
        # The place among the characters of each byte, and of the end.
        heads = np.array([byte & 0xC0 != 0x80 for byte in data] + [True])
        characters = np.cumsum(heads) - 1
        return text, [
            (int(characters[first]), int(characters[max(first, last - 1)]) + (last > first))
            for first, last in ends
        ]

    @staticmethod
    def _write_parts(
        data: bytearray, ends: Sequence[tuple[int, int]]
    ) -> tuple[str, list[tuple[int, int]]]:
        counts = [len(data[:place].decode(errors="replace")) for place in range(len(data) + 1)]
        text = data.decode(errors="replace")
        return text, [(min(counts[a], counts[b]), counts[b]) for a, b in ends]


def _overlap(
    spans: NDArray[np.int64], other_ids: Sequence[int], other_spans: Sequence[tuple[int, int]]
) -> AlignedRow:
    """Find the tokens that overlap each span; both ascend."""
    starts, ends = np.array(other_spans, np.int64).reshape(-1, 2).T
    reached = np.maximum.accumulate(ends)
    first = np.searchsorted(reached, spans[:, 0], side="right")
    last = np.searchsorted(starts, spans[:, 1], side="left") - 1
    final = len(other_ids) - 1
    first = np.clip(first, 0, final)
    last = np.clip(np.maximum(last, first), 0, final)
    sources = np.clip(np.searchsorted(spans[:, 1], starts, side="right"), 0, len(spans) - 1)
    return AlignedRow(np.array(other_ids, np.int64), sources, first, last)
