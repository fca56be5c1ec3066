"""Documents filtered before they are encoded, and the counts of what the filters dropped.

A part keeps a row for each document, so that a copy of it in another part counts as a duplicate. A
dropped document has no tokens, and a note in JSON: the rule, and for the documents with the
smallest hashes an example, so that examples do not depend on how the documents were divided. The
module loads neither torch nor Arrow, for worker processes import it.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from litebert.data.encoding import Encoded, describe_texts, encode_sentences
from litebert.text.filters import FEWEST_SENTENCES, LINE_RULES, RULES, Verdict, apply_filters
from litebert.text.languages import detect_languages
from litebert.text.sentences import split_sentences
from litebert.tokenizer import Tokenizer

EXAMPLES = 3
_STAYING, _OTHER = "staying-", "language-"
"""Prefixes of the code of a language that stays, or is dropped."""
EXCERPT = 80


@dataclass(frozen=True)
class FilteredEncoding:
    """Filters documents and encodes those that stay; `encode` goes to other processes."""

    filters: tuple[str, ...] = ()
    languages: tuple[str, ...] = ()
    """ISO 639-1 codes of the languages that stay; none for all."""

    def encode(self, texts: Sequence[str], tokenizer: Tokenizer, language: str) -> Encoded:
        """Return the ids of documents with facts of their texts. Dropped ones have no sentences."""
        verdicts = apply_filters(texts, self.filters, language)
        sentences = [split_sentences(verdict.text, language) for verdict in verdicts]
        if "c4" in self.filters:
            for number, verdict in enumerate(verdicts):
                if not verdict.rule and len(sentences[number]) < FEWEST_SENTENCES:
                    verdict.rule = "c4-sentences"
                    sentences[number] = []
        codes = [""] * len(verdicts)  # of the documents that stay
        if self.languages:
            staying = [number for number, verdict in enumerate(verdicts) if not verdict.rule]
            detected = detect_languages([verdicts[number].text for number in staying])
            for number, code in zip(staying, detected, strict=True):
                if code in self.languages:
                    codes[number] = code
                else:
                    verdicts[number].rule, verdicts[number].text = f"language-{code}", ""
        sentences = [
            [] if verdict.rule else split
            for verdict, split in zip(verdicts, sentences, strict=True)
        ]
        finals = [
            text if verdict.rule else verdict.text
            for text, verdict in zip(texts, verdicts, strict=True)
        ]
        facts = describe_texts(finals)
        digests = [bytes(digest) for digest in facts.digests]
        notes = tuple(_write_notes(finals, verdicts, codes, digests))
        return encode_sentences(sentences, tokenizer, replace(facts, notes=notes))


def _write_notes(
    texts: Sequence[str],
    verdicts: Sequence[Verdict],
    codes: Sequence[str],
    digests: Sequence[bytes],
) -> Iterator[str]:
    members: dict[str, list[int]] = {}
    for number, verdict in enumerate(verdicts):
        for rule in (verdict.rule,) if verdict.rule else verdict.lines:
            members.setdefault(rule, []).append(number)
    shown = {
        (rule, number)
        for rule, numbers in members.items()
        for number in heapq.nsmallest(EXAMPLES, numbers, key=digests.__getitem__)
    }
    for number, verdict in enumerate(verdicts):
        lines = {verdict.rule: [texts[number]]} if verdict.rule else verdict.lines
        entries = [
            (rule, len(some), _shorten(some[0]) if (rule, number) in shown else "")
            for rule, some in lines.items()
        ]
        if codes[number] and not verdict.rule:
            entries.append((f"{_STAYING}{codes[number]}", 1, ""))
        yield json.dumps(entries, ensure_ascii=False) if entries else ""


def _shorten(text: str) -> str:
    line = " ".join(text[: 2 * EXCERPT].split())
    return line if len(line) <= EXCERPT else f"{line[:EXCERPT]}…"


# ----------------------------------------------------------------------------------------- counting


def is_dropped_by(note: str) -> bool:
    if not note:
        return False
    rule = json.loads(note)[0][0]
    return not rule.startswith(_STAYING) and not _is_line_rule(rule)


def _is_line_rule(rule: str) -> bool:
    name, _, rest = rule.partition("-")
    return name in RULES and rest in LINE_RULES.get(name, {}) and rest not in RULES[name]


@dataclass
class _Count:
    documents: int = 0
    words: int = 0
    lines: int = 0
    examples: list[tuple[bytes, str]] = field(default_factory=list)


class FilterCounts:
    def __init__(self, filters: Sequence[str]) -> None:
        self._counts = {
            f"{name}-{rule}": _Count()
            for name in RULES
            if name in filters
            for rule in (*RULES[name], *LINE_RULES.get(name, {}))
        }

    def add(self, note: str, digest: bytes, words: int) -> None:
        for rule, lines, example in json.loads(note):
            count = self._counts.setdefault(rule, _Count())
            count.documents += 1
            if _is_line_rule(rule):
                count.lines += lines
            else:
                count.words += words
            if example:
                count.examples = sorted([*count.examples, (digest, example)])[:EXAMPLES]

    def list_rules(self) -> dict[str, Any]:
        return {
            rule: {
                "documents": count.documents,
                **({"lines": count.lines} if _is_line_rule(rule) else {"words": count.words}),
                "examples": [example for _, example in count.examples],
            }
            for rule, count in self._counts.items()
            if not rule.startswith((_STAYING, _OTHER))
        }

    def list_languages(self) -> dict[str, Any]:
        counts = [
            (rule, count)
            for rule, count in self._counts.items()
            if rule.startswith((_STAYING, _OTHER))
        ]
        return {
            rule.partition("-")[2]: {
                "documents": count.documents,
                "words": count.words,
                "stays": rule.startswith(_STAYING),
                "examples": [example for _, example in count.examples],
            }
            for rule, count in sorted(counts, key=lambda entry: (-entry[1].documents, entry[0]))
        }
