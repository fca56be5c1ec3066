"""What a tokenizer does to a text: pieces per word, unknown rate, and what its normaliser drops or changes.

Letters and accents that a normaliser loses are lost for the model too, without a word. This says so beforehand, in
one pass and constant memory: it holds one count for each distinct character.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from litebert.text.sentences import split_lines

if TYPE_CHECKING:
    from litebert.tokenizer.tokenizer import Tokenizer

_BATCH_LINES = 512
_EXAMPLES = 20


@dataclass(frozen=True)
class Changed:
    """A character that the normaliser turns into something else, or (`becomes` empty) drops."""

    char: str
    becomes: str
    count: int


@dataclass(frozen=True)
class Inspection:
    """Counts over all texts. `changed` and `unknown` hold the most frequent characters, at most 20 each."""

    texts: int
    characters: int
    words: int
    pieces: int
    unknown_pieces: int
    dropped_characters: int
    changed_characters: int
    lower_cased_characters: int
    changed: tuple[Changed, ...]
    unknown: tuple[Changed, ...]

    @property
    def pieces_per_word(self) -> float:
        """Pieces for each word between spaces (fertility); of little use where words are not spaced."""
        return self.pieces / max(self.words, 1)

    @property
    def characters_per_piece(self) -> float:
        return self.characters / max(self.pieces, 1)

    @property
    def unknown_rate(self) -> float:
        """Share of the pieces that are unknown, 0 to 1."""
        return self.unknown_pieces / max(self.pieces, 1)

    def to_dict(self) -> dict[str, Any]:
        rates = {name: getattr(self, name) for name in ("pieces_per_word", "characters_per_piece", "unknown_rate")}
        return {**asdict(self), **rates}

    def rows(self) -> list[tuple[str, str]]:
        """(name, value) pairs for a table."""
        rows = [
            ("texts", f"{self.texts:,}"),
            ("words", f"{self.words:,}"),
            ("pieces", f"{self.pieces:,}"),
            ("pieces per word", f"{self.pieces_per_word:.3f}"),
            ("characters per piece", f"{self.characters_per_piece:.2f}"),
            ("unknown pieces", f"{self.unknown_pieces:,} ({self.unknown_rate:.4%})"),
            ("characters lower-cased", f"{self.lower_cased_characters:,}"),
            ("characters changed otherwise", f"{self.changed_characters:,}"),
            ("characters dropped", f"{self.dropped_characters:,}"),
        ]
        for item in self.changed:
            rows.append((_shown(item.char), f"{'-> ' + item.becomes if item.becomes else 'dropped'}, {item.count:,}"))
        for item in self.unknown:
            rows.append((_shown(item.char), f"unknown, {item.count:,}"))
        return rows


def inspect(tokenizer: Tokenizer, texts: Iterable[str]) -> Inspection:
    """Run the tokenizer over `texts` (any number, read once) and count what happens."""
    seen = words = pieces = unknown_pieces = 0
    characters: Counter[str] = Counter()

    def lines() -> Iterator[str]:
        nonlocal seen
        for text in texts:
            seen += 1
            yield from split_lines(text)

    stream = lines()
    while batch := list(islice(stream, _BATCH_LINES)):
        ids, _ = tokenizer.encode_flat(batch)
        pieces += len(ids)
        unknown_pieces += int((ids == tokenizer.unk_id).sum())
        for line in batch:
            words += len(line.split())
            characters.update(line)

    dropped = altered = lower_cased = 0
    changed: list[Changed] = []
    unknown: list[Changed] = []
    for char, count in characters.most_common():
        if char.isspace():
            continue
        becomes = tokenizer.normalize(char)
        if becomes == char:
            pass
        elif becomes == char.lower():
            lower_cased += count
        else:
            changed.append(Changed(char, becomes, count))
            altered += count if becomes else 0
            dropped += 0 if becomes else count
        if becomes and tokenizer.unk_id in tokenizer.encode([char])[0]:
            unknown.append(Changed(char, becomes, count))
    return Inspection(
        texts=seen,
        characters=characters.total(),
        words=words,
        pieces=pieces,
        unknown_pieces=unknown_pieces,
        dropped_characters=dropped,
        changed_characters=altered,
        lower_cased_characters=lower_cased,
        changed=tuple(changed[:_EXAMPLES]),
        unknown=tuple(unknown[:_EXAMPLES]),
    )


def _shown(char: str) -> str:
    return f"{char if char.isprintable() else ' '} U+{ord(char):04X} {unicodedata.name(char, '')}".strip()
