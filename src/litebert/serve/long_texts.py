"""Texts far longer than a model reads: tokenized in parts, once each, and shorten to what the
model can read.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

from litebert.tokenizer import Tokenizer

PART = 4096
"""Characters of a part, about: the next space between two words ends it, for tokens do not reach
over spaces.
"""
CACHED = 4
"""Long texts whose tokens are cached, because a query comes back with every batch of its request.
"""
_END = re.compile(r"(?<=\w)(?= \w)")
"""Matches where a text is cut: the tokens of the two sides are those of the whole. At a line break,
a mark or a sign they need not be. Tokenizers may join these with the text before them, and
byte-level BPE puts a space before a part that begins with anything else.
"""


class LongTexts:
    """Reads long texts.

    Args:
        aside: a context around the tokenizing of each part.
    """

    def __init__(
        self, tokenizer: Tokenizer, aside: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._tokenizer, self._aside = tokenizer, aside
        self._cache: OrderedDict[str, list[list[int]]] = OrderedDict()

    @staticmethod
    def is_long(text: str) -> bool:
        """Return True if a text has several parts."""
        return len(text) > PART

    @staticmethod
    def parts(text: str) -> Iterator[tuple[int, str]]:
        """Yield the parts of a text, each with the position of its first character."""
        begin = 0
        while begin < len(text):
            match = _END.search(text, begin + PART) if len(text) - begin > PART else None
            end = len(text) if match is None else match.start()
            yield begin, text[begin:end]
            begin = end
        if not text:
            yield 0, ""

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text, without special tokens."""
        return [token for part in self._encode_parts(text) for token in part]

    def shorten(self, value: Any, most: int) -> tuple[Any, int]:
        """Cut the long texts of an input where `most` tokens are full.

        The rows of the input stay the same, because a row holds fewer than `most` tokens of a text.

        Returns:
            The input, and how many tokens were left out.
        """
        if isinstance(value, str):
            return self._shorten_text(value, most)
        if not isinstance(value, Sequence):
            return value, 0
        pairs = [self.shorten(part, most) for part in value]
        return [part for part, _ in pairs], sum(cut for _, cut in pairs)

    def _shorten_text(self, text: str, most: int) -> tuple[str, int]:
        if not self.is_long(text):
            return text, 0
        tokens, end, encoded = 0, 0, self._encode_parts(text)
        for ids, (begin, part) in zip(encoded, self.parts(text), strict=True):
            if tokens > most:
                break
            tokens, end = tokens + len(ids), begin + len(part)
        return text[:end], sum(map(len, encoded)) - tokens

    def _encode_parts(self, text: str) -> list[list[int]]:
        """Return the tokens of each part of a text."""
        encoded = self._cache.pop(text, None)
        if encoded is None:
            encoded = []
            for _, part in self.parts(text):
                with self._aside():
                    encoded.append(self._tokenizer.encode([part])[0])
        self._cache[text] = encoded
        if len(self._cache) > CACHED:
            self._cache.popitem(last=False)
        return encoded
