"""The spellings of tokens, by which the tokens of one tokenizer are found in another of any kind.

A spelling is the bytes of a token, and whether it begins a word. WordPiece marks the tokens that
continue a word. The other kinds mark those that begin one. Byte-level tokens may hold parts of a
character, which no other kind can spell.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

import tokenizers

from litebert.base.errors import DataError
from litebert.tokenizer.engines import SPECIAL_NAMES
from litebert.tokenizer.kinds import Spelling
from litebert.tokenizer.tokenizer import Tokenizer
from litebert.tokenizer.words import is_continuation


class Source(NamedTuple):
    ids: list[int]
    """Empty where the old tokenizer cannot spell the token."""
    same: bool
    """True for a single token with the same text."""


class Speller:
    """A tokenizer that splits words into tokens, not ids, and reads their spellings."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        if not tokenizer.engine.kind.is_divisible:
            raise DataError(
                "a WordLevel tokenizer has whole words only, so its words cannot be cut into "
                "tokens; train a tokenizer of another kind with litebert tokenizer train"
            )
        self.tokenizer, self.kind = tokenizer, tokenizer.engine.kind
        spec = tokenizer.engine.to_portable()
        self._library = tokenizers.Tokenizer.from_str(
            json.dumps({**spec, "truncation": None, "padding": None})
        )
        self.ids = {tokenizer.get_token(i): i for i in reversed(range(tokenizer.vocab_size))}
        text_ids = [i for i in range(tokenizer.vocab_size) if i not in set(tokenizer.special_ids)]
        self._ids_by_spelling = {
            self.kind.spell(tokenizer.get_token(i)): i for i in reversed(text_ids)
        }

    def split_words(self, line: str) -> list[str]:
        """Return the normalized words of a line. No token reaches over the end of one."""
        normalizer, splitter = self._library.normalizer, self._library.pre_tokenizer
        text = normalizer.normalize_str(line) if normalizer else line
        words = [word for word, _ in splitter.pre_tokenize_str(text)] if splitter else [text]
        words = [part for word in words for part in self.kind.split_marked(word)]
        return [word for word in words if 0 < len(word) <= self.kind.longest_word]

    def split_word(self, word: str) -> list[str]:
        """Return the tokens of a word. What is unknown is split into characters, written as tokens
        would be.
        """
        if self.kind.takes_longest:
            return self._match_longest(word)
        tokens: list[str] = []
        for token in self._library.model.tokenize(word):
            is_unknown = token.id == self.tokenizer.unk_id
            tokens += self.kind.split_unknown(token.value) if is_unknown else [token.value]
        return tokens

    def _match_longest(self, text: str, prefix: str = "") -> list[str]:
        """Split as WordPiece does, but keep other tokens where a character is unknown."""
        tokens, start = [], 0
        while start < len(text):
            stops = range(len(text), start, -1)
            stop = next(
                (stop for stop in stops if prefix + text[start:stop] in self.ids), start + 1
            )
            tokens.append(prefix + text[start:stop])
            start, prefix = stop, self.kind.prefix
        return tokens

    def join(self, tokens: Sequence[str]) -> str:
        return tokens[0] + "".join(map(self.kind.strip_continuation, tokens[1:]))

    def find(self, spelling: Spelling) -> list[int]:
        """Return the ids of the tokens that spell this together, without unknown tokens.

        The list is empty where the tokenizer cannot spell it.
        """
        if (token_id := self._ids_by_spelling.get(spelling)) is not None:
            return [token_id]
        try:
            text = spelling.data.decode()
        except UnicodeDecodeError:
            text = None
        # Kinds of tokenizers differ in whether punctuation begins a word.
        if text and not is_continuation(text):
            other = self._ids_by_spelling.get(Spelling(spelling.data, not spelling.begins_word))
            if other is not None:
                return [other]
        if (word := self.kind.write_bytes(spelling)) is not None:
            return self._find_ids(self.split_word(word))
        text = text and self.tokenizer.normalize(text)
        if not text:
            return []
        same = self._ids_by_spelling.get(Spelling(text.encode(), spelling.begins_word))
        if same is not None:
            return [same]
        if (word := self.kind.write_text(text, spelling.begins_word)) is not None:
            return self._find_ids(self.split_word(word))
        if spelling.begins_word or not is_continuation(text):
            words = self.split_words(text)
            return self._find_ids([token for word in words for token in self.split_word(word)])
        return self._find_ids(self._match_longest(text, self.kind.prefix))

    def _find_ids(self, tokens: Sequence[str]) -> list[int]:
        return [
            self.ids[token]
            for token in tokens
            if token in self.ids and self.ids[token] != self.tokenizer.unk_id
        ]


def find_sources(old: Tokenizer, new: Tokenizer) -> list[Source]:
    """Find each token of `new` in `old`.

    A token is the old one with the same spelling, else the old ones that it is split into. Special
    tokens are matched by their role, else by name.
    """
    old_speller, new_speller = Speller(old), Speller(new)
    roles = {getattr(new, f"{role}_id"): getattr(old, f"{role}_id") for role in SPECIAL_NAMES}
    special = {*new.special_ids}
    matches = []
    for i in range(new.vocab_size):
        token = new.get_token(i)
        if i in roles:
            matches.append(Source([roles[i]], True))
        elif i < old.vocab_size and old.kind == new.kind and old.get_token(i) == token:
            matches.append(Source([i], True))
        elif i in special:
            matches.append(
                Source([old_speller.ids[token]], True)
                if token in old_speller.ids
                else Source([], False)
            )
        else:
            spelling = new_speller.kind.spell(token)
            ids = old_speller.find(spelling)
            # A single token may spell less: normalization drops characters, and so does an old
            # tokenizer that cannot spell them.
            same = (
                len(ids) == 1
                and old_speller.kind.spell(old.get_token(ids[0])).data == spelling.data
            )
            matches.append(Source(ids, same))
    return matches
