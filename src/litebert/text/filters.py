"""Rules that drop documents of poor quality, as published for three corpora of web pages.

    gopher    Rae and others 2021, appendix A.1: the quality rules and table A1
    c4        Raffel and others 2020, section 2.2; it also removes lines
    fineweb   Penedo and others 2024, section 3.6: its three rules

They run in this order, and the first rule that a document breaks drops it. Words are what lies
between white space; blank lines do not count. C4's list of bad words, and its rule of spans that
occur twice in the whole corpus, are left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from litebert.text.repetition import (
    DUPLICATE_NGRAMS,
    TOP_NGRAMS,
    Ints,
    SpanHasher,
    find_repeated,
    measure_ngrams,
    mix,
    sum_by_document,
)

Mask = npt.NDArray[np.bool_]

RULES: dict[str, dict[str, str]] = {
    "gopher": {
        "word-count": "fewer than 50 or more than 100,000 words",
        "word-length": "a mean word length outside 3 to 10 characters",
        "hash-signs": "more than 1 hash sign in 10 words",
        "ellipses": "more than 1 ellipsis in 10 words",
        "bullets": "more than 90% of lines begin with a bullet",
        "ellipsis-lines": "more than 30% of lines end with an ellipsis",
        "letters": "fewer than 80% of words have a letter",
        "stop-words": "fewer than 2 of 8 English stop words",
        "duplicate-lines": "more than 30% of lines occurred before",
        "duplicate-line-characters": "more than 20% of characters in such lines",
        "duplicate-paragraphs": "more than 30% of paragraphs occurred before",
        "duplicate-paragraph-characters": "more than 20% of characters in such paragraphs",
        **{
            f"top-{n}-gram": f"more than {100 * most:.0f}% of characters in one run of {n} words"
            for n, most in TOP_NGRAMS.items()
        },
        **{
            f"duplicate-{n}-grams": f"more than {100 * most:.0f}% of text in repeated {n}-grams"
            for n, most in DUPLICATE_NGRAMS.items()
        },
    },
    "c4": {
        "lorem-ipsum": "the words lorem ipsum",
        "curly-bracket": "a curly bracket",
        "sentences": "fewer than 5 sentences in the lines that stay",
    },
    "fineweb": {
        "line-ends": "12% of lines or fewer end with punctuation",
        "duplicate-lines": "10% of characters or more in lines that occurred before",
        "short-lines": "67% of lines or more have fewer than 30 characters",
    },
}
LINE_RULES: dict[str, dict[str, str]] = {
    "c4": {
        "line-ends": "no mark ends the line",
        "line-words": "fewer than 3 words",
        "javascript": "the word Javascript",
        "policies": "the words of a notice on cookies, privacy or terms of use",
    }
}
"""The lines that each rule of a filter removes from a document."""
FILTERS = tuple(RULES)
FEWEST_SENTENCES = 5
STOP_WORDS = frozenset(("the", "be", "to", "of", "and", "that", "have", "with"))

_END_MARKS = frozenset(".!?\"'”’»。！？」")
_PUNCTUATION = tuple(".!?\"'”’»…。！？」．｡؟۔।॥።။")
_CITATION = re.compile(r"\[(?:\d*|edit|citation needed)\]")
_POLICY = re.compile(
    r"terms of use|privacy policy|cookie policy|uses cookies|use of cookies|use cookies"
)
_KELVIN = "\u212a".encode()
_FIRST_WORDS = 60
"""Words of a document among which two stop words are looked for first."""
_NEWLINE, _HASH, _DOT, _ELLIPSIS = map(ord, "\n#.…")
_BULLETS = np.array([ord("•"), ord("-")], np.uint32)


def describe_rule(name: str) -> str:
    """Return what a rule drops or removes, by its full name, such as c4-sentences."""
    group, _, rule = name.partition("-")
    return {**RULES[group], **LINE_RULES.get(group, {})}[rule]


@dataclass
class Verdict:
    text: str
    rule: str = ""
    """The rule that drops it, such as gopher-word-count; "" where it stays."""
    lines: dict[str, list[str]] = field(default_factory=dict)
    """The lines that were removed, by rule, where it stays."""


def apply_filters(texts: Sequence[str], filters: Sequence[str], language: str) -> list[Verdict]:
    """Apply filters to documents, but for c4-sentences, which is left to the caller. The stop words
    of Gopher count in English only; `language` is an ISO 639 code.
    """
    verdicts = [Verdict(text) for text in texts]
    for name in FILTERS:
        if name not in filters:
            continue
        staying = [verdict for verdict in verdicts if not verdict.rule and verdict.text]
        if name == "c4":
            for verdict in staying:
                _apply_c4(verdict)
        elif staying:
            pages = _Pages([verdict.text for verdict in staying])
            for rule, mask in (
                _judge_gopher(pages, language) if name == "gopher" else _judge_fineweb(pages)
            ).items():
                for number in np.flatnonzero(mask).tolist():
                    if not staying[number].rule:
                        staying[number].rule = f"{name}-{rule}"
    for verdict in verdicts:
        if verdict.rule:
            verdict.text = ""
            verdict.lines = {}
    return verdicts


# ----------------------------------------------------------------------------------------------- C4


def _apply_c4(verdict: Verdict) -> None:
    # Small letters A to Z in UTF-8 are fast, and enough to look for words of such letters. A
    # capital of another script becomes one of them too, the sign of the unit kelvin.
    data = verdict.text.encode(errors="surrogatepass")
    lowered = (
        verdict.text.lower().encode(errors="surrogatepass") if _KELVIN in data else data
    ).lower()
    if b"lorem ipsum" in lowered:
        verdict.rule = "c4-lorem-ipsum"
    elif b"{" in lowered:
        verdict.rule = "c4-curly-bracket"
    else:
        has_words = (
            b"cookie" in lowered
            or b"javascript" in lowered
            or b"terms of use" in lowered
            or b"privacy policy" in lowered
        )
        has_citation = b"[" in lowered
        lines = []
        for line in verdict.text.split("\n"):
            stripped = line.strip()
            if has_citation and "[" in stripped:
                stripped = _CITATION.sub("", stripped).strip()
            if not stripped:
                if not line:
                    lines.append("")
                continue
            rule = _find_line_rule(stripped, has_words)
            if rule:
                verdict.lines.setdefault(f"c4-{rule}", []).append(stripped)
            else:
                lines.append(stripped)
        verdict.text = "\n".join(lines).strip()


def _find_line_rule(line: str, has_words: bool) -> str:
    if line[-1] not in _END_MARKS:
        return "line-ends"
    if len(line.split(None, 2)) < 3:
        return "line-words"
    if has_words:
        lowered = line.lower()
        if "javascript" in lowered:
            return "javascript"
        if _POLICY.search(lowered):
            return "policies"
    return ""


# ------------------------------------------------------------------------------- Gopher and FineWeb


@lru_cache(1)
def _list_kinds() -> tuple[Mask, Mask]:
    every = np.arange(0x110000, dtype=np.uint32)
    every[0xD800:0xE000] = 0  # surrogates, which texts do not have
    characters = every.view("<U1")
    return np.char.isspace(characters), np.char.isalpha(characters)


class _Pages:
    """Documents end to end as code points. `*_bounds` are where the words or lines of each document
    begin, and the end, (documents + 1,).
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = texts
        self.codes = np.frombuffer("\n".join([*texts, ""]).encode("utf-32-le"), np.uint32)
        self.characters = np.array([len(text) for text in texts], np.int64)
        self.bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(self.characters + 1)])
        is_space = np.concatenate([[True], _list_kinds()[0][self.codes]])
        edges = np.flatnonzero(is_space[1:] != is_space[:-1])
        self.word_starts, self.word_ends = edges[::2], edges[1::2]
        self.word_bounds = np.searchsorted(self.word_starts, self.bounds)
        self.words = np.diff(self.word_bounds)
        ends = np.flatnonzero(self.codes == _NEWLINE)
        starts = np.concatenate([np.zeros(1, np.int64), ends[:-1] + 1])
        first = np.searchsorted(self.word_starts, starts)
        last = np.searchsorted(self.word_ends, ends, "right")
        full = first < last
        self.line_starts, self.line_ends = starts[full], ends[full]
        self.first_words, self.last_words = first[full], last[full] - 1
        self.line_bounds = np.searchsorted(self.line_starts, self.bounds)
        self.lines = np.maximum(np.diff(self.line_bounds), 1)

    @property
    def word_lengths(self) -> Ints:
        return self.word_ends - self.word_starts

    def count(self, mask: Mask) -> Ints:
        """Count the characters of a kind, (documents,)."""
        positions = np.searchsorted(np.flatnonzero(mask), self.bounds)
        return np.diff(positions)

    def count_words(self, mask: Mask) -> Ints:
        sums = np.concatenate([np.zeros(1, np.int32), np.cumsum(mask, dtype=np.int32)])
        return sum_by_document(sums[self.word_ends] > sums[self.word_starts], self.word_bounds)

    def count_ellipses(self) -> Ints:
        """Count ellipses, of one character or three dots, (documents,)."""
        is_dot = np.concatenate([[False], self.codes == _DOT, [False]])
        edges = np.flatnonzero(is_dot[1:] != is_dot[:-1])
        sums = np.concatenate([[0], np.cumsum((edges[1::2] - edges[::2]) // 3)])
        dots = sums[np.searchsorted(edges[::2], self.bounds)]
        return np.diff(dots) + self.count(self.codes == _ELLIPSIS)

    @cached_property
    def line_firsts(self) -> npt.NDArray[np.uint32]:
        """The first visible character of each line, (lines,)."""
        return self.codes[self.word_starts[self.first_words]]

    @cached_property
    def line_lasts(self) -> npt.NDArray[np.uint32]:
        """The last visible character of each line, (lines,)."""
        return self.codes[self.word_ends[self.last_words] - 1]

    def has_blank_line(self) -> Mask:
        """Return which documents have two line ends in a row, (documents,)."""
        ends = np.flatnonzero(self.codes == _NEWLINE)
        doubles = ends[:-1][np.diff(ends) == 1]
        numbers = np.searchsorted(self.bounds, doubles, "right") - 1
        # The end of the document does not count as a line end of it.
        inside = doubles + 1 < self.bounds[numbers + 1] - 1
        has_blank = np.zeros(len(self.texts), bool)
        has_blank[numbers[inside]] = True
        return has_blank

    def has_ellipsis_end(self) -> Mask:
        """Return which lines end with an ellipsis, (lines,)."""
        end = self.word_ends[self.last_words]
        three = np.all([self.codes[np.maximum(end - i, 0)] == _DOT for i in (1, 2, 3)], axis=0)
        ends: Mask = (three & (end - 3 >= self.line_starts)) | (self.line_lasts == _ELLIPSIS)
        return ends

    @cached_property
    def duplicate_lines(self) -> Ints:
        """Characters of each line that occurred before in its document, else 0, (lines,)."""
        documents = np.repeat(np.arange(len(self.texts)), np.diff(self.line_bounds))
        lengths = self.line_ends - self.line_starts
        starts = self.line_starts - self.bounds[documents]
        characters = np.zeros(len(lengths), np.int64)
        # Only lines of equal length with the same three characters may be equal.
        middles = self.codes[(self.line_starts + self.line_ends) // 2]
        alike, _ = find_repeated(
            mix(documents, lengths, self.line_firsts, self.line_lasts, middles)
        )
        seen = set[tuple[int, str]]()
        for line, number in zip(alike.tolist(), documents[alike].tolist(), strict=True):
            start = starts[line]
            key = number, self.texts[number][start : start + lengths[line]]
            if key in seen:
                characters[line] = lengths[line]
            seen.add(key)
        return characters

    def share_lines(self, mask: npt.NDArray[np.generic]) -> npt.NDArray[np.float64]:
        """Return the share of lines of a kind, (documents,)."""
        return sum_by_document(mask, self.line_bounds) / self.lines


def _judge_gopher(pages: _Pages, language: str) -> dict[str, Mask]:
    words = np.maximum(pages.words, 1)
    mean = sum_by_document(pages.word_lengths, pages.word_bounds) / words
    rules = {
        "word-count": (pages.words < 50) | (pages.words > 100_000),
        "word-length": (mean < 3) | (mean > 10),
        "hash-signs": pages.count(pages.codes == _HASH) > 0.1 * words,
        "ellipses": pages.count_ellipses() > 0.1 * words,
        "bullets": pages.share_lines(np.isin(pages.line_firsts, _BULLETS)) > 0.9,
        "ellipsis-lines": pages.share_lines(pages.has_ellipsis_end()) > 0.3,
        "letters": pages.count_words(_list_kinds()[1][pages.codes]) < 0.8 * words,
    }
    staying = np.flatnonzero(~np.any(list(rules.values()), axis=0))

    def judge_each(rule: str, staying: Ints, is_broken: Callable[[str], bool]) -> None:
        rules[rule] = np.zeros(len(pages.texts), bool)
        rules[rule][staying] = [is_broken(pages.texts[number]) for number in staying.tolist()]

    if language.partition("-")[0] == "en":
        judge_each("stop-words", staying, _has_few_stop_words)
    duplicates = pages.duplicate_lines
    rules["duplicate-lines"] = pages.share_lines(duplicates > 0) > 0.3
    rules["duplicate-line-characters"] = (
        sum_by_document(duplicates, pages.line_bounds) > 0.2 * pages.characters
    )
    several = staying[pages.has_blank_line()[staying]]
    judge_each("duplicate-paragraphs", several, lambda text: _measure_paragraphs(text)[0] > 0.3)
    judge_each(
        "duplicate-paragraph-characters", several, lambda text: _measure_paragraphs(text)[1] > 0.2
    )
    staying = np.flatnonzero(~np.any(list(rules.values()), axis=0))
    counts = np.diff(pages.word_bounds)
    documents = np.repeat(np.arange(len(counts)), counts)
    is_staying = np.zeros(len(counts), bool)
    is_staying[staying] = True
    chosen = np.flatnonzero(is_staying[documents])
    if not len(chosen):
        return rules
    hashes = SpanHasher(pages.codes).hash(
        pages.word_starts[chosen], pages.word_ends[chosen], documents[chosen]
    )
    bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts[staying])])
    texts = [pages.texts[number] for number in staying.tolist()]
    for rule, mask in measure_ngrams(texts, hashes, pages.word_lengths[chosen], bounds).items():
        rules[rule] = np.zeros(len(pages.texts), bool)
        rules[rule][staying] = mask
    return rules


def _has_few_stop_words(text: str) -> bool:
    some = text.split(None, _FIRST_WORDS)[:_FIRST_WORDS]
    return len(STOP_WORDS.intersection(some)) < 2 and len(STOP_WORDS.intersection(text.split())) < 2


def _measure_paragraphs(text: str) -> tuple[float, float]:
    seen, count, characters = set[str](), 0, 0
    paragraphs = re.split(r"\n{2,}", text)
    for paragraph in paragraphs:
        if paragraph in seen:
            count += 1
            characters += len(paragraph)
        seen.add(paragraph)
    return count / len(paragraphs), characters / len(text)


def _judge_fineweb(pages: _Pages) -> dict[str, Mask]:
    marks = np.array(list(map(ord, _PUNCTUATION)), np.uint32)
    newlines = pages.count(pages.codes == _NEWLINE) - 1  # the last one is no part of the document
    duplicates = sum_by_document(pages.duplicate_lines, pages.line_bounds)
    return {
        "line-ends": pages.share_lines(np.isin(pages.line_lasts, marks)) <= 0.12,
        "duplicate-lines": duplicates >= 0.1 * (pages.characters - newlines),
        "short-lines": pages.share_lines(pages.line_ends - pages.line_starts < 30) >= 0.67,
    }
