"""What the pieces of a tokenizer spell, so that those of one can be found in another of any kind.

A spelling is the bytes of a piece and whether it begins a word. WordPiece marks what goes on, the
others mark what begins; byte-level pieces may hold parts of a character, which no other kind can
spell.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import NamedTuple

import tokenizers

from litebert.errors import DataError
from litebert.tokenizer.engines import SPECIAL_NAMES
from litebert.tokenizer.tokenizer import Tokenizer
from litebert.tokenizer.words import BYTES, WORD_MARK, continues_word

_PRINTED = {byte: char for char, byte in BYTES.items()}
_BYTE_PIECE = re.compile("<0x([0-9A-F]{2})>")
_BEFORE_MARK = re.compile(f"(?<=[^{WORD_MARK}])(?={WORD_MARK})")


class Spelling(NamedTuple):
    """What a piece stands for in a text."""

    data: bytes
    begins: bool
    """Whether it begins a word."""


class Source(NamedTuple):
    """The pieces of an old tokenizer that a piece of a new one is made of."""

    ids: list[int]
    """None where the old tokenizer cannot spell it."""
    same: bool
    """Whether it is one piece of the same text."""


class Speller:
    """A tokenizer that cuts words into pieces, not ids, and knows what they spell."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        if tokenizer.kind == "wordlevel":
            raise DataError(
                "a WordLevel tokenizer has whole words only, so its words cannot be cut "
                "into pieces; train "
                "a tokenizer of another kind with litebert tokenizer train"
            )
        self.tokenizer, self.kind = tokenizer, tokenizer.kind
        spec = tokenizer.engine.portable()
        self._library = tokenizers.Tokenizer.from_str(
            json.dumps({**spec, "truncation": None, "padding": None})
        )
        self._prefix = (
            str(spec["model"].get("continuing_subword_prefix") or "")
            if self.kind == "wordpiece"
            else ""
        )
        self._longest = (
            spec["model"].get("max_input_chars_per_word", 100)
            if self.kind == "wordpiece"
            else 1 << 30
        )
        self.ids = {tokenizer.piece(i): i for i in reversed(range(tokenizer.vocab_size))}
        text = [i for i in range(tokenizer.vocab_size) if i not in set(tokenizer.special_ids)]
        self._spelled = {self.spelling(tokenizer.piece(i)): i for i in reversed(text)}

    def words(self, line: str) -> list[str]:
        """The words of a line as the pieces write them, normalised; no piece reaches over the end
        of one.
        """
        normalizer, splitter = self._library.normalizer, self._library.pre_tokenizer
        text = normalizer.normalize_str(line) if normalizer else line
        words = [word for word, _ in splitter.pre_tokenize_str(text)] if splitter else [text]
        if self.kind == "unigram":
            words = [part for word in words for part in _BEFORE_MARK.split(word)]
        return [word for word in words if 0 < len(word) <= self._longest]

    def cut(self, word: str) -> list[str]:
        """The pieces of such a word; what is unknown is cut into characters, written as pieces
        would be.
        """
        if self.kind == "wordpiece":
            return self._longest_matches(word)
        pieces: list[str] = []
        for token in self._library.model.tokenize(word):
            unknown = self.kind == "unigram" and token.id == self.tokenizer.unk_id
            pieces += list(token.value) if unknown else [token.value]
        return pieces

    def _longest_matches(self, text: str, prefix: str = "") -> list[str]:
        """What WordPiece does, but that a word with an unknown character keeps its other pieces."""
        pieces, start = [], 0
        while start < len(text):
            stops = range(len(text), start, -1)
            stop = next(
                (stop for stop in stops if prefix + text[start:stop] in self.ids), start + 1
            )
            pieces.append(prefix + text[start:stop])
            start, prefix = stop, self._prefix
        return pieces

    def joined(self, pieces: Sequence[str]) -> str:
        """Adjacent pieces of a word as one piece."""
        return pieces[0] + "".join(map(self.continued, pieces[1:]))

    def continued(self, piece: str) -> str:
        """What a piece adds to those before it in a word."""
        return (
            piece[len(self._prefix) :] if self._prefix and piece.startswith(self._prefix) else piece
        )

    def body(self, piece: str) -> str:
        """The piece without the mark of a word."""
        return piece.removeprefix(self._prefix if self.kind == "wordpiece" else WORD_MARK)

    def spelling(self, piece: str) -> Spelling:
        """What a piece that is text stands for."""
        if self.kind == "bpe":
            if all(char in BYTES for char in piece):
                data = bytes(BYTES[char] for char in piece)
                return Spelling(data.removeprefix(b" "), data.startswith(b" "))
            return Spelling(piece.encode(), False)
        if self.kind == "wordpiece":
            inside = bool(self._prefix) and piece.startswith(self._prefix) and piece != self._prefix
            return Spelling(self.body(piece).encode() if inside else piece.encode(), not inside)
        if byte := _BYTE_PIECE.fullmatch(piece):
            return Spelling(bytes([int(byte[1], 16)]), False)
        return Spelling(self.body(piece).encode(), piece.startswith(WORD_MARK))

    def find(self, spelling: Spelling) -> list[int]:
        """The ids of the pieces that spell this together, without unknown ones; none where it
        cannot be spelled.
        """
        if (found := self._spelled.get(spelling)) is not None:
            return [found]
        try:
            text = spelling.data.decode()
        except UnicodeDecodeError:
            text = None
        if text and not continues_word(
            text
        ):  # punctuation: kinds differ in whether it begins a word
            other = self._spelled.get(Spelling(spelling.data, not spelling.begins))
            if other is not None:
                return [other]
        if self.kind == "bpe":
            word = "".join(_PRINTED[byte] for byte in b" " * spelling.begins + spelling.data)
            return self._known(self.cut(word))
        text = text and self.tokenizer.normalize(text)
        if not text:
            return []
        same = self._spelled.get(Spelling(text.encode(), spelling.begins))
        if same is not None:
            return [same]
        if self.kind == "unigram":
            return self._known(self.cut(WORD_MARK * spelling.begins + text.replace(" ", WORD_MARK)))
        if spelling.begins or not continues_word(text):
            return self._known([piece for word in self.words(text) for piece in self.cut(word)])
        return self._known(self._longest_matches(text, self._prefix))

    def _known(self, pieces: Sequence[str]) -> list[int]:
        return [
            self.ids[piece]
            for piece in pieces
            if piece in self.ids and self.ids[piece] != self.tokenizer.unk_id
        ]


def sources(old: Tokenizer, new: Tokenizer) -> list[Source]:
    """For each id of `new`, what it is in `old`: the piece that spells the same, else the pieces
    that it is cut into there. Special pieces are matched by what they are for, else by name."""
    speller, theirs = Speller(old), Speller(new)
    roles = {getattr(new, f"{role}_id"): getattr(old, f"{role}_id") for role in SPECIAL_NAMES}
    special = {*new.special_ids}
    found = []
    for i in range(new.vocab_size):
        piece = new.piece(i)
        if i in roles:
            found.append(Source([roles[i]], True))
        elif i < old.vocab_size and old.kind == new.kind and old.piece(i) == piece:
            found.append(Source([i], True))
        elif i in special:
            found.append(
                Source([speller.ids[piece]], True) if piece in speller.ids else Source([], False)
            )
        else:
            spelling = theirs.spelling(piece)
            ids = speller.find(spelling)
            # One piece may also be all that is left after normalising, or without what the old
            # tokenizer cannot spell.
            same = len(ids) == 1 and speller.spelling(old.piece(ids[0])).data == spelling.data
            found.append(Source(ids, same))
    return found
