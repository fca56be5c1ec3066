"""The effect of a tokenizer on a text: tokens per word, unknown rate, and changed characters.

Letters and accents that the normalizer drops are lost to the model too. `inspect` shows them
beforehand, in one pass and in constant memory: one count for each distinct character.
"""

from __future__ import annotations

import logging
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from litebert.base.progress import track
from litebert.text.sentences import split_lines
from litebert.tokenizer.coverage import describe_poor_coverage

if TYPE_CHECKING:
    from litebert.tokenizer.tokenizer import Tokenizer

log = logging.getLogger("litebert")

_EXAMPLES = 20


@dataclass(frozen=True)
class CharacterChange:
    """A character that the normalizer changes, or drops where `becomes` is empty."""

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
    tokens: int = 0
    unknown_tokens: int = 0
    dropped_characters: int = 0
    changed_characters: int = 0
    lower_cased_characters: int = 0
    changed: tuple[CharacterChange, ...] = ()
    unknown: tuple[CharacterChange, ...] = ()

    @property
    def tokens_per_word(self) -> float:
        """Tokens for each word between spaces (fertility). It means little where words have no
        spaces.
        """
        return self.tokens / max(self.words, 1)

    @property
    def characters_per_token(self) -> float:
        return self.characters / max(self.tokens, 1)

    @property
    def unknown_rate(self) -> float:
        return self.unknown_tokens / max(self.tokens, 1)

    def to_dict(self) -> dict[str, Any]:
        rates = {
            name: getattr(self, name)
            for name in ("tokens_per_word", "characters_per_token", "unknown_rate")
        }
        return {**asdict(self), **rates}

    def rows(self) -> list[tuple[str, str]]:
        rows = [
            ("texts", f"{self.texts:,}"),
            ("words", f"{self.words:,}"),
            ("tokens", f"{self.tokens:,}"),
            ("tokens per word", f"{self.tokens_per_word:.3f}"),
            ("characters per token", f"{self.characters_per_token:.2f}"),
            ("unknown tokens", f"{self.unknown_tokens:,} ({self.unknown_rate:.4%})"),
            ("characters lower-cased", f"{self.lower_cased_characters:,}"),
            ("characters changed otherwise", f"{self.changed_characters:,}"),
            ("characters dropped", f"{self.dropped_characters:,}"),
        ]
        for change in self.changed:
            rows.append(
                (
                    _format_char(change.char),
                    f"{'-> ' + change.becomes if change.becomes else 'dropped'}, {change.count:,}",
                )
            )
        for change in self.unknown:
            rows.append((_format_char(change.char), f"unknown, {change.count:,}"))
        return rows


def inspect(tokenizer: Tokenizer, texts: Iterable[str], warns: bool = True) -> Inspection:
    """Run the tokenizer over `texts`, which are read once, and count what happens.

    With `warns`, a warning is logged where the tokenizer does not cover the texts (coverage.py).
    """
    inspection = Inspection()
    characters: Counter[str] = Counter()
    unknown_parts: Counter[str] = Counter()
    with track(texts, "inspecting", unit="documents") as read:
        for text in read:
            lines = list(split_lines(text))
            ids, _ = tokenizer.encode_flat(lines)
            inspection.texts += 1
            inspection.tokens += len(ids)
            if count := int((ids == tokenizer.unk_id).sum()):
                inspection.unknown_tokens += count
                unknown_parts.update(_find_unknown(tokenizer, lines))
            for line in lines:
                inspection.words += len(line.split())
                characters.update(line)

    inspection.characters = characters.total()
    changed, unknown = [], []
    for char, count in characters.most_common():
        if char.isspace():
            continue
        becomes = tokenizer.normalize(char)
        if not becomes and " " in tokenizer.normalize(f"a{char}a"):
            becomes = " "  # it parts two words
        if becomes == char.lower() != char:
            inspection.lower_cased_characters += count
        elif becomes != char:
            changed.append(CharacterChange(char, becomes, count))
            inspection.changed_characters += count if becomes else 0
            inspection.dropped_characters += 0 if becomes else count
    for char, count in unknown_parts.most_common():
        unknown.append(CharacterChange(char, tokenizer.normalize(char), count))
    inspection.changed, inspection.unknown = tuple(changed[:_EXAMPLES]), tuple(unknown[:_EXAMPLES])
    if warns and (fault := describe_poor_coverage(inspection.unknown_rate)):
        log.warning(f"{fault}; train one on text like this with litebert tokenizer train")
    return inspection


def _find_unknown(tokenizer: Tokenizer, lines: Sequence[str]) -> Iterator[str]:
    for line, (ids, spans) in zip(lines, tokenizer.encode_offsets(lines), strict=True):
        for start, end in spans[ids == tokenizer.unk_id]:
            for char in line[start:end]:
                if tokenizer.unk_id in tokenizer.encode([char])[0]:
                    yield char


def _format_char(char: str) -> str:
    return (
        f"{char if char.isprintable() else ' '} U+{ord(char):04X} "
        f"{unicodedata.name(char, '')}".strip()
    )
