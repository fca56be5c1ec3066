"""The words of a text; and the tokens that begin a word, read from the tokens alone, so that whole
words can be masked in text that is only ids.

A table over the vocabulary has a price. A token without a mark cannot know what precedes it, so
letters right after punctuation ("(objects") count as part of its word.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Sequence
from functools import cache

import numpy as np

WORD_MARK = "▁"

# Names of letters in scripts that put no space between words. Each of their tokens is a word.
_UNSPACED = re.compile(
    "CJK |IDEOGRAPHIC |HIRAGANA |KATAKANA|HALFWIDTH KATAKANA|BOPOMOFO |TANGUT |NUSHU |YI |THAI "
    "|LAO |KHMER |MYANMAR |TIBETAN |JAVANESE |BALINESE |TAI |NEW TAI |KHITAN "
)


def is_continuation(text: str) -> bool:
    """Return whether a token with this text, without a mark, continues the word before it.

    It does if its first character is a letter, digit or combining mark of a script that is written
    with spaces.
    """
    if not text or unicodedata.category(text[0])[0] not in "LMN":
        return False
    return _UNSPACED.match(unicodedata.name(text[0], "")) is None


def find_words(text: str) -> list[tuple[int, int]]:
    """Return the first and last character of each word, as BERT's splitter finds them: between
    spaces, each punctuation character apart. Of scripts without spaces, each letter is a word.
    """
    return [match.span() for match in _WORDS.finditer("".join(map(_classify, text)))]


_WORDS = re.compile("p|u(?:[mc]*m)?|[wm](?:[wmc]*[wm])?")


@cache
def _classify(char: str) -> str:
    """Tell a space, a control, a punctuation character, a mark on a letter, a letter of a script
    without spaces, and what else a word is made of.
    """
    category = unicodedata.category(char)
    if char.isspace() or category[0] in "ZC":
        return "s" if char.isspace() or category[0] == "Z" else "c"
    if category[0] == "P" or (char.isascii() and not char.isalnum()):  # ASCII signs: $, + and more
        return "p"
    if category[0] == "M":
        return "m"
    return "w" if category[0] != "L" or is_continuation(char) else "u"


def find_starts_by_mark(tokens: Sequence[str]) -> np.ndarray | None:
    """Return which tokens begin a word by the mark before them, bool (tokens,); None without any
    mark.
    """
    if not any(token.startswith(WORD_MARK) for token in tokens):
        return None
    return np.array([token.startswith(WORD_MARK) or not is_continuation(token) for token in tokens])


def find_starts_by_prefix(tokens: Sequence[str], prefix: str) -> np.ndarray:
    return np.array(
        [
            not (token.startswith(prefix) and is_continuation(token[len(prefix) :]))
            for token in tokens
        ]
    )


def find_word_ends(ids: Sequence[int], starts: np.ndarray | None) -> list[int]:
    """Return, for each token of a text, the number of tokens up to the end of its word.

    Each token is a word where `starts` is None.
    """
    ends = list(range(1, len(ids) + 1))
    if starts is not None:
        for position in range(len(ids) - 2, -1, -1):
            if not starts[ids[position + 1]]:
                ends[position] = ends[position + 1]
    return ends


# -------------------------------------------------------------------------------------------- bytes


_PRINTABLE = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
_OTHERS = (byte for byte in range(256) if byte not in _PRINTABLE)
BYTES = {chr(byte): byte for byte in _PRINTABLE} | {
    chr(256 + i): byte for i, byte in enumerate(_OTHERS)
}
"""The byte for each printable character that stands for one in a byte-level vocabulary (GPT-2's
table).
"""
_SAMPLE = 64
"""Characters that are examined where a token holds only the first bytes of one."""


def find_starts_by_bytes(tokens: Sequence[str]) -> np.ndarray:
    """Return which tokens of a byte-level vocabulary begin a word, bool (tokens,).

    A space begins a word, and so does what `is_continuation` refuses. The later bytes of a
    character continue. Where a token holds only the first bytes of a character, the majority of the
    characters that those can begin decides.
    """
    return np.array([_is_word_start(token) for token in tokens])


def _is_word_start(token: str) -> bool:
    data = [BYTES[char] for char in token if char in BYTES]
    if len(data) < len(token) or not data:  # an added token is written as plain text
        return not is_continuation(token)
    first = data[0]
    if 0x80 <= first < 0xC0:
        return False
    length = 1 + (first >= 0xC0) + (first >= 0xE0) + (first >= 0xF0)
    code = first & (0x7F if length == 1 else 0x7F >> length)
    for byte in data[1:length]:
        code = code << 6 | byte & 0x3F
    span = 1 << 6 * max(0, length - len(data))
    codes = range(code * span, min((code + 1) * span, sys.maxunicode + 1), max(1, span // _SAMPLE))
    # The bytes can also begin unassigned and private characters, which have no category.
    assigned = [
        char for char in map(chr, codes) if unicodedata.category(char) not in ("Cn", "Co", "Cs")
    ]
    return 2 * sum(map(is_continuation, assigned)) <= len(assigned)
