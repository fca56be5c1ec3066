"""Where in the raw text each token lies, so that answers and entities are cut from it and never put
together again.

The `tokenizers` library follows every character through lower-casing, stripped accents and NFKC;
SentencePiece models are run in it for that, a few times slower. Two things are corrected here: the
library counts the space before a word as part of it, and leaves out what was dropped or composed
away inside a word (a stripped accent).

Shapes: n tokens of a text, c characters.
"""

from __future__ import annotations

import unicodedata
from functools import cache

import numpy as np
from numpy.typing import NDArray

from litebert.tokenizer.engines import TokenizersEngine
from litebert.tokenizer.words import WORD_MARK


def encode_offsets(
    engine: TokenizersEngine, text: str
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Ids (n,) and spans (n, 2); see `Tokenizer.encode_offsets`."""
    ids, offsets = engine.encode_offsets(text)
    begin = 0
    if text and unicodedata.category(text[0]) in _CONTROLS:
        # What a SentencePiece table drops at the very beginning, the library forgets to count.
        begin = next((i for i, char in enumerate(text) if engine.encode_offsets(char)[0]), 0)
        rest, their_offsets = engine.encode_offsets(text[begin:])
        offsets, begin = (their_offsets, begin) if rest == ids else (offsets, 0)
    spans = np.array(offsets, np.int32).reshape(-1, 2) + np.int32(begin)
    if (
        ids and engine.pieces[ids[0]] in _MARKS
    ):  # put before the text, it stands for none of its characters
        spans[0, 1] = spans[0, 0]
    return np.array(ids, np.int32), _mend(spans, text)


def _mend(spans: NDArray[np.int32], text: str) -> NDArray[np.int32]:
    """Take spaces off both ends of each span, and let a span reach over what follows it unread in
    the same word.
    """
    c = len(text)
    kinds = np.fromiter(map(_kind, text), np.int8, c)
    # For each of the c + 1 places between characters: the nearest ones with no space after and
    # before, and the first after which the word does not go on.
    places = np.arange(c, dtype=np.int32)
    ahead = np.minimum.accumulate(
        np.append(np.where(kinds == _SPACE, c, places), np.int32(c))[::-1]
    )[::-1]
    behind = np.maximum.accumulate(np.append(np.int32(0), np.where(kinds == _SPACE, 0, places + 1)))
    reach = np.minimum.accumulate(
        np.append(np.where(kinds == _WORD, c, places), np.int32(c))[::-1]
    )[::-1]
    starts, ends = spans[:, 0], spans[:, 1]
    starts = np.minimum(ahead[starts], ends)
    ends = np.maximum(behind[ends], starts)
    limit = np.append(starts[1:], np.int32(c))
    ends = np.maximum(ends, np.minimum(reach[ends], limit))
    return np.stack((starts, ends), axis=1)


_WORD, _SPACE, _CONTROL = 0, 1, 2
_CONTROLS = ("Cc", "Cf")
_MARKS = (WORD_MARK, "Ġ")


@cache
def _kind(char: str) -> int:
    if char.isspace() or char == WORD_MARK:
        return _SPACE
    return _CONTROL if unicodedata.category(char) in _CONTROLS else _WORD
