"""Which pieces begin a word: read from the pieces alone, so that whole words can be masked in text
that is only ids.

The price of a table over the vocabulary: a piece without a mark cannot know what stands before it,
so letters right after punctuation ("(objects") count as part of its word.
"""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Sequence

import numpy as np

WORD_MARK = "▁"

# Names of letters in scripts that put no space between words: there a piece counts as a word.
_UNSPACED = (
    *(
        "CJK ",
        "IDEOGRAPHIC ",
        "HIRAGANA ",
        "KATAKANA",
        "HALFWIDTH KATAKANA",
        "BOPOMOFO ",
        "TANGUT ",
        "NUSHU ",
        "YI ",
    ),
    *(
        "THAI ",
        "LAO ",
        "KHMER ",
        "MYANMAR ",
        "TIBETAN ",
        "JAVANESE ",
        "BALINESE ",
        "TAI ",
        "NEW TAI ",
        "KHITAN ",
    ),
)


def continues_word(text: str) -> bool:
    """Whether a piece with this text, without a mark of its own, goes on with the word before it.

    It does if its first character is a letter, digit or combining mark of a script that is written
    with spaces.
    """
    if not text:
        return False
    return unicodedata.category(text[0])[0] in "LMN" and not unicodedata.name(
        text[0], ""
    ).startswith(_UNSPACED)


def marked_word_starts(pieces: Sequence[str]) -> np.ndarray | None:
    """bool (pieces,): which pieces begin a word, by the mark in front; None where no piece carries
    the mark.
    """
    if not any(piece.startswith(WORD_MARK) for piece in pieces):
        return None
    return np.array([piece.startswith(WORD_MARK) or not continues_word(piece) for piece in pieces])


def prefixed_word_starts(pieces: Sequence[str], prefix: str) -> np.ndarray:
    """bool (pieces,): which pieces begin a word, where those inside a word carry `prefix`."""
    return np.array(
        [not (p.startswith(prefix) and continues_word(p[len(prefix) :])) for p in pieces]
    )


def word_ends(ids: Sequence[int], starts: np.ndarray | None) -> list[int]:
    """How many tokens of a text stand before the end of the word of each; each is a word where
    `starts` is None.
    """
    ends = list(range(1, len(ids) + 1))
    if starts is not None:
        for place in range(len(ids) - 2, -1, -1):
            if not starts[ids[place + 1]]:
                ends[place] = ends[place + 1]
    return ends


# -------------------------------------------------------------------------------------------- bytes


_PRINTABLE = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
_OTHERS = (byte for byte in range(256) if byte not in _PRINTABLE)
BYTES = {chr(byte): byte for byte in _PRINTABLE} | {
    chr(256 + i): byte for i, byte in enumerate(_OTHERS)
}
"""The printable character that stands for each byte in a byte-level vocabulary (GPT-2's table), and
the byte.
"""
_SAMPLE = 64  # of the characters that a few bytes can begin


def byte_word_starts(pieces: Sequence[str]) -> np.ndarray:
    """bool (pieces,): which pieces of a byte-level vocabulary begin a word.

    A space begins one, and so does what `continues_word` does not know as one going on. The later
    bytes of a character continue. Where a piece holds only its first bytes, most of the characters
    that these can begin decide.
    """
    return np.array([_bytes_begin_word(piece) for piece in pieces])


def _bytes_begin_word(piece: str) -> bool:
    data = [BYTES[char] for char in piece if char in BYTES]
    if len(data) < len(piece) or not data:  # an added piece, written as it reads
        return not continues_word(piece)
    first = data[0]
    if 0x80 <= first < 0xC0:
        return False
    length = 1 + (first >= 0xC0) + (first >= 0xE0) + (first >= 0xF0)
    code = first & (0x7F if length == 1 else 0x7F >> length)
    for byte in data[1:length]:
        code = code << 6 | byte & 0x3F
    span = 1 << 6 * max(0, length - len(data))
    codes = range(code * span, min((code + 1) * span, sys.maxunicode + 1), max(1, span // _SAMPLE))
    # A sample holds unassigned and private characters too, which say nothing.
    known = [
        char for char in map(chr, codes) if unicodedata.category(char) not in ("Cn", "Co", "Cs")
    ]
    return 2 * sum(map(continues_word, known)) <= len(known)
