"""What a tokenizer does to a text: pieces per word, unknown rate, and what its normaliser drops or
changes.

Letters and accents that a normaliser drops are lost to the model too. This shows them beforehand,
in one pass and in constant memory: one count for each distinct character.
"""

from __future__ import annotations

import logging
import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from litebert.progress import tracked
from litebert.text.sentences import split_lines
from litebert.tokenizer.coverage import unfit

if TYPE_CHECKING:
    from litebert.tokenizer.tokenizer import Tokenizer

log = logging.getLogger("litebert")

_EXAMPLES = 20


@dataclass(frozen=True)
class Changed:
    """A character that the normaliser turns into something else, or (`becomes` empty) drops."""

    char: str
    becomes: str
    count: int


@dataclass
class Inspection:
    """Counts over all texts. `changed` and `unknown` hold the most frequent characters, at most 20
    each.
    """

    texts: int = 0
    characters: int = 0
    words: int = 0
    pieces: int = 0
    unknown_pieces: int = 0
    dropped_characters: int = 0
    changed_characters: int = 0
    lower_cased_characters: int = 0
    changed: tuple[Changed, ...] = ()
    unknown: tuple[Changed, ...] = ()

    @property
    def pieces_per_word(self) -> float:
        """Pieces for each word between spaces (fertility); of little use where words are not
        spaced.
        """
        return self.pieces / max(self.words, 1)

    @property
    def characters_per_piece(self) -> float:
        return self.characters / max(self.pieces, 1)

    @property
    def unknown_rate(self) -> float:
        """Share of the pieces that are unknown, 0 to 1."""
        return self.unknown_pieces / max(self.pieces, 1)

    def to_dict(self) -> dict[str, Any]:
        rates = {
            name: getattr(self, name)
            for name in ("pieces_per_word", "characters_per_piece", "unknown_rate")
        }
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
            rows.append(
                (
                    _shown(item.char),
                    f"{'-> ' + item.becomes if item.becomes else 'dropped'}, {item.count:,}",
                )
            )
        for item in self.unknown:
            rows.append((_shown(item.char), f"unknown, {item.count:,}"))
        return rows


def inspect(tokenizer: Tokenizer, texts: Iterable[str], warns: bool = True) -> Inspection:
    """Run the tokenizer over `texts` (any number, read once) and count what happens.

    With `warns`, a tokenizer that does not cover the texts is warned of (coverage.py).
    """
    found = Inspection()
    characters: Counter[str] = Counter()
    with tracked(texts, "inspecting", unit="documents") as read:
        for text in read:
            lines = list(split_lines(text))
            ids, _ = tokenizer.encode_flat(lines)
            found.texts += 1
            found.pieces += len(ids)
            found.unknown_pieces += int((ids == tokenizer.unk_id).sum())
            for line in lines:
                found.words += len(line.split())
                characters.update(line)

    found.characters = characters.total()
    changed, unknown = [], []
    for char, count in characters.most_common():
        if char.isspace():
            continue
        becomes = tokenizer.normalize(char)
        if becomes == char.lower() != char:
            found.lower_cased_characters += count
        elif becomes != char:
            changed.append(Changed(char, becomes, count))
            found.changed_characters += count if becomes else 0
            found.dropped_characters += 0 if becomes else count
        if becomes and tokenizer.unk_id in tokenizer.encode([char])[0]:
            unknown.append(Changed(char, becomes, count))
    found.changed, found.unknown = tuple(changed[:_EXAMPLES]), tuple(unknown[:_EXAMPLES])
    if warns and (fault := unfit(found.unknown_rate)):
        log.warning(f"{fault}; train one on text like this with litebert tokenizer train")
    return found


def _shown(char: str) -> str:
    return (
        f"{char if char.isprintable() else ' '} U+{ord(char):04X} "
        f"{unicodedata.name(char, '')}".strip()
    )
