"""The position of each token in the raw text, so that answers and entities are cut from the text.

The `tokenizers` library follows every character through lower-casing, stripped accents and NFKC.
SentencePiece models run in it for that, a few times slower. Two things are corrected here. The
library counts the space before a word as part of it. And it leaves out what was dropped or composed
inside a word, such as a stripped accent.

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
    """Return the ids (n,) and spans (n, 2) of a text; see `Tokenizer.encode_offsets`."""
    ids, offsets = engine.encode_offsets(text)
    begin = 0
    if text and unicodedata.category(text[0]) in _CONTROLS:
        # The library does not count characters that a SentencePiece table drops at the beginning.
        begin = next((i for i, char in enumerate(text) if engine.encode_offsets(char)[0]), 0)
        rest, rest_offsets = engine.encode_offsets(text[begin:])
        offsets, begin = (rest_offsets, begin) if rest == ids else (offsets, 0)
    spans = np.array(offsets, np.int32).reshape(-1, 2) + np.int32(begin)
    if (
        ids and engine.tokens[ids[0]] in _MARKS
    ):  # put before the text, it stands for none of its characters
        spans[0, 1] = spans[0, 0]
    return np.array(ids, np.int32), _trim_and_extend(spans, text)


def _trim_and_extend(spans: NDArray[np.int32], text: str) -> NDArray[np.int32]:
    """Trim spaces at both ends of each span, and extend it over characters of its word without a
    token.
    """
    c = len(text)
    classes = np.fromiter(map(_classify, text), np.int8, c)
    # For each of the c + 1 positions between characters: the start of the next character that is no
    # space, the end of the last one, and the end of the word.
    positions = np.arange(c, dtype=np.int32)
    ahead = np.minimum.accumulate(
        np.append(np.where(classes == _SPACE, c, positions), np.int32(c))[::-1]
    )[::-1]
    behind = np.maximum.accumulate(
        np.append(np.int32(0), np.where(classes == _SPACE, 0, positions + 1))
    )
    reach = np.minimum.accumulate(
        np.append(np.where(classes == _WORD, c, positions), np.int32(c))[::-1]
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
def _classify(char: str) -> int:
    if char.isspace() or char == WORD_MARK:
        return _SPACE
    return _CONTROL if unicodedata.category(char) in _CONTROLS else _WORD
