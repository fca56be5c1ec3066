"""The kinds of tokenizers: how each writes its tokens, marks words and separates two segments.

A kind is the one place that knows what distinguishes unigram models, WordPiece, byte-level BPE and
lists of whole words. `KINDS` finds it by its name, and nothing else compares that name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from litebert.tokenizer.words import (
    BYTES,
    WORD_MARK,
    find_starts_by_bytes,
    find_starts_by_mark,
    find_starts_by_prefix,
)

_PRINTED = {byte: char for char, byte in BYTES.items()}
_BYTE_TOKEN = re.compile("<0x([0-9A-F]{2})>")
_BEFORE_MARK = re.compile(f"(?<=[^{WORD_MARK}])(?={WORD_MARK})")


class Spelling(NamedTuple):
    """The text of a token, apart from the way in which a tokenizer writes it."""

    data: bytes
    begins_word: bool


class Kind:
    """Tokens that are whole words, without any mark; the base of the other kinds.

    `model` is the model of a tokenizer.json.
    """

    name: ClassVar[str] = "wordlevel"
    files: ClassVar[tuple[str, ...]] = ()
    """Files that hold such a tokenizer beside tokenizer.json."""
    pair_separators: ClassVar[int] = 1
    """Separators between two segments, where a tokenizer does not say it."""
    space: ClassVar[str] = ""
    """The text before a word inside a text, without which it is split as at the beginning."""
    is_divisible: ClassVar[bool] = False
    """True where words are cut into tokens."""
    is_bytes: ClassVar[bool] = False
    """True where tokens are bytes, so that every text is kept as it is."""
    names_unknown: ClassVar[bool] = True
    """True where the model names its unknown token."""
    finds_special: ClassVar[bool] = False
    """True where the model finds its special tokens in a text, so that they are hidden from it."""
    takes_longest: ClassVar[bool] = False
    """True where a word is split by the longest match at each position."""
    longest_word: int = 1 << 30
    """The most characters of a word that is split."""
    prefix: str = ""
    """The mark of tokens that continue a word."""

    def __init__(self, model: Mapping[str, Any]) -> None:
        pass

    def find_starts(self, tokens: Sequence[str]) -> np.ndarray | None:
        """Return which tokens begin a word, bool (tokens,); None where they do not tell it."""
        return np.ones(len(tokens), bool)

    def make_files(self, tokens: Sequence[str], model: Mapping[str, Any]) -> dict[str, bytes]:
        """Return the content of `files`, as older programs read them."""
        return {}

    def remove_marks(self, text: str) -> str:
        return text

    def split_marked(self, word: str) -> list[str]:
        """Return the words in what the splitter of a tokenizer.json gives as one."""
        return [word]

    def split_unknown(self, token: str) -> list[str]:
        """Return an unknown token as tokens."""
        return [token]

    def strip_mark(self, token: str) -> str:
        return token

    def strip_continuation(self, token: str) -> str:
        """Return what a token adds to those before it in a word."""
        return token

    def spell(self, token: str) -> Spelling:
        return Spelling(token.encode(), True)

    def write_bytes(self, spelling: Spelling) -> str | None:
        """Return the word of a spelling as bytes; None where the kind writes characters."""
        return None

    def write_text(self, text: str, begins_word: bool) -> str | None:
        """Return a normalized text as the model marks it; None where its place decides the mark."""
        return None


class Unigram(Kind):
    """A mark before the tokens that begin a word (SentencePiece)."""

    name = "unigram"
    files = ("spiece.model",)
    is_divisible, finds_special, names_unknown = True, True, False

    def find_starts(self, tokens: Sequence[str]) -> np.ndarray | None:
        return find_starts_by_mark(tokens)

    def remove_marks(self, text: str) -> str:
        return text.replace(WORD_MARK, " ")

    def split_marked(self, word: str) -> list[str]:
        return _BEFORE_MARK.split(word)

    def split_unknown(self, token: str) -> list[str]:
        return list(token)

    def strip_mark(self, token: str) -> str:
        return token.removeprefix(WORD_MARK)

    def spell(self, token: str) -> Spelling:
        if byte := _BYTE_TOKEN.fullmatch(token):
            return Spelling(bytes([int(byte[1], 16)]), False)
        return Spelling(self.strip_mark(token).encode(), token.startswith(WORD_MARK))

    def write_text(self, text: str, begins_word: bool) -> str | None:
        return WORD_MARK * begins_word + text.replace(" ", WORD_MARK)


class WordPiece(Kind):
    """A prefix before the tokens that continue a word (BERT's code)."""

    name = "wordpiece"
    files = ("vocab.txt",)
    is_divisible, takes_longest = True, True

    def __init__(self, model: Mapping[str, Any]) -> None:
        self.prefix = str(model.get("continuing_subword_prefix") or "")
        self.longest_word = int(model.get("max_input_chars_per_word", 100))

    def find_starts(self, tokens: Sequence[str]) -> np.ndarray | None:
        return find_starts_by_prefix(tokens, self.prefix) if self.prefix else None

    def make_files(self, tokens: Sequence[str], model: Mapping[str, Any]) -> dict[str, bytes]:
        return {"vocab.txt": "".join(f"{token}\n" for token in tokens).encode()}

    def strip_mark(self, token: str) -> str:
        return token.removeprefix(self.prefix)

    def strip_continuation(self, token: str) -> str:
        return token.removeprefix(self.prefix)

    def spell(self, token: str) -> Spelling:
        inside = bool(self.prefix) and token.startswith(self.prefix) and token != self.prefix
        return Spelling(self.strip_mark(token).encode() if inside else token.encode(), not inside)


class ByteBPE(Kind):
    """Bytes, each printed as a character, where a word begins with its space (GPT-2, RoBERTa)."""

    name = "bpe"
    files = ("vocab.json", "merges.txt")
    pair_separators = 2
    space = " "
    is_divisible, is_bytes, names_unknown = True, True, False

    def find_starts(self, tokens: Sequence[str]) -> np.ndarray | None:
        return find_starts_by_bytes(tokens)

    def make_files(self, tokens: Sequence[str], model: Mapping[str, Any]) -> dict[str, bytes]:
        merges = (pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"])
        vocabulary = {token: i for i, token in enumerate(tokens)}
        return {
            "vocab.json": json.dumps(vocabulary, ensure_ascii=False).encode(),
            "merges.txt": "".join(f"{line}\n" for line in ("#version: 0.2", *merges)).encode(),
        }

    def strip_mark(self, token: str) -> str:
        return token.removeprefix(WORD_MARK)

    def spell(self, token: str) -> Spelling:
        if all(char in BYTES for char in token):
            data = bytes(BYTES[char] for char in token)
            return Spelling(data.removeprefix(b" "), data.startswith(b" "))
        return Spelling(token.encode(), False)

    def write_bytes(self, spelling: Spelling) -> str | None:
        return "".join(_PRINTED[byte] for byte in b" " * spelling.begins_word + spelling.data)


KINDS: Mapping[str, type[Kind]] = {kind.name: kind for kind in (Unigram, WordPiece, ByteBPE, Kind)}
