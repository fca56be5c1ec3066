"""Filters beside the same rules written plainly, a document at a time, on random texts."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litebert.text.filters import STOP_WORDS, apply_filters
from litebert.text.repetition import DUPLICATE_NGRAMS, TOP_NGRAMS

WORDS = [
    *("the", "of", "and", "to", "cat", "dog", "house", "word.", "end!", "hello?", "x", "12"),
    *("#", "•", "-", "…", "...", ".."),
    *("Javascript javascript Cookie cookies {", "terms of use", "Privacy Policy", "lorem ipsum"),
    *("use coo\u212aies", "uses cookies", "[1]", "[edit]", "[citation needed]", "»", "”"),
    *("x" * 30, "ß", "Σ", "日本。", "İ"),
]
GAPS = [*("    " * 3), "  ", "\n", "\n", "\n\n", "\n\n\n", "\t", "\u2028", "\u3000", "\x0b", ".\n"]
C4_ENDS = (".", "!", "?", '"', "'", "”", "’", "»", "。", "！", "？", "」")
ENDS = (*C4_ENDS, "…", "．", "｡", "؟", "۔", "।", "॥", "።")
POLICY = r"terms of use|privacy policy|cookie policy|uses cookies|use of cookies|use cookies"


def list_repeated(items: list[str]) -> list[str]:
    """The items that occurred before."""
    seen = set[str]()
    return [item for item in items if item in seen or seen.add(item)]  # type: ignore[func-returns-value]


def cover(words: list[str], n: int) -> int:
    """The characters in runs of n words that occurred before."""
    seen, covered = set[tuple[str, ...]](), set[int]()
    for i in range(len(words) - n + 1):
        run = tuple(words[i : i + n])
        if run in seen:
            covered |= {*range(i, i + n)}
        seen.add(run)
    return sum(len(words[i]) for i in covered)


def list_gopher(text: str) -> Iterator[tuple[str, bool]]:
    words, lines = text.split(), [line for line in text.split("\n") if line.strip()]
    count, total = max(1, len(words)), max(1, len(lines))
    mean = sum(map(len, words)) / count
    yield "word-count", not 50 <= len(words) <= 100_000
    yield "word-length", not 3 <= mean <= 10
    yield "hash-signs", text.count("#") > 0.1 * count
    yield "ellipses", text.count("...") + text.count("…") > 0.1 * count
    yield "bullets", sum(line.strip()[0] in "•-" for line in lines) / total > 0.9
    yield (
        "ellipsis-lines",
        sum(line.rstrip().endswith(("...", "…")) for line in lines) / total > 0.3,
    )
    yield "letters", sum(any(map(str.isalpha, word)) for word in words) < 0.8 * count
    yield "stop-words", len(STOP_WORDS & {*words}) < 2
    yield "duplicate-lines", len(list_repeated(lines)) / total > 0.3
    yield "duplicate-line-characters", len("".join(list_repeated(lines))) > 0.2 * len(text)
    paragraphs = re.split(r"\n{2,}", text)
    yield "duplicate-paragraphs", len(list_repeated(paragraphs)) / len(paragraphs) > 0.3
    repeated = len("".join(list_repeated(paragraphs)))
    yield "duplicate-paragraph-characters", repeated / len(text) > 0.2
    for n, most in TOP_NGRAMS.items():
        runs = Counter(zip(*(words[i:] for i in range(n)), strict=False)).most_common(1)
        longest = sum(times * len(" ".join(run)) for run, times in runs)
        yield f"top-{n}-gram", longest > most * len(text)
    for n, most in DUPLICATE_NGRAMS.items():
        yield f"duplicate-{n}-grams", cover(words, n) > most * len(text)


def list_fineweb(text: str) -> Iterator[tuple[str, bool]]:
    lines = [line for line in text.split("\n") if line.strip()]
    total = max(1, len(lines))
    yield "line-ends", sum(line.rstrip().endswith(ENDS) for line in lines) / total <= 0.12
    repeated = len("".join(list_repeated(lines)))
    yield "duplicate-lines", repeated >= 0.1 * len(text.replace("\n", ""))
    yield "short-lines", sum(len(line) < 30 for line in lines) / total >= 0.67


def apply_c4(text: str) -> tuple[str, str, dict[str, list[str]]]:
    if "lorem ipsum" in text.lower():
        return "", "c4-lorem-ipsum", {}
    if "{" in text:
        return "", "c4-curly-bracket", {}
    staying, removed = [], dict[str, list[str]]()
    for line in text.split("\n"):
        bare = re.sub(r"\[(?:\d*|edit|citation needed)\]", "", line.strip()).strip()
        rules = {
            "line-ends": not bare.endswith(C4_ENDS),
            "line-words": len(bare.split()) < 3,
            "javascript": "javascript" in bare.lower(),
            "policies": re.search(POLICY, bare.lower()),
        }
        broken = next((name for name, value in rules.items() if value), None)
        if not bare:
            staying += [""] if not line else []
        elif broken:
            removed.setdefault(f"c4-{broken}", []).append(bare)
        else:
            staying.append(bare)
    return "\n".join(staying).strip(), "", removed


def make_text(draw: random.Random) -> str:
    """A text of few or many words, of which a stretch may stand several times."""
    chosen = [*draw.sample(WORDS, draw.choice([2, 6, len(WORDS)])), "the", "of", "and"]
    long = chosen + [f"w{i}ord" for i in range(draw.choice([0, 0, 200]))]
    count = draw.choice([1, 20, 60, 150])
    gaps = draw.choice([GAPS, [" "], [" ", " ", ".\n"]])
    text = "".join(draw.choice(long) + draw.choice(gaps) for _ in range(count))
    first = draw.randrange(max(1, len(text)))
    stretch = text[first : first + draw.choice([5, 40, 200])]
    return (text + draw.choice([" ", "\n"]).join([stretch] * draw.choice([0, 0, 1, 4]))).strip()


@settings(max_examples=40)
@given(st.integers(0, 2**32))
def test_filters_give_the_verdicts_of_plain_rules(seed: int) -> None:
    draw = random.Random(seed)
    texts = [text for _ in range(30) if (text := make_text(draw))]
    for name, list_rules in (("gopher", list_gopher), ("fineweb", list_fineweb)):
        for text, verdict in zip(texts, apply_filters(texts, [name], "en"), strict=True):
            rule = next((rule for rule, is_broken in list_rules(text) if is_broken), "")
            assert verdict.rule == (f"{name}-{rule}" if rule else ""), text
    for text, verdict in zip(texts, apply_filters(texts, ["c4"], "en"), strict=True):
        assert (verdict.text, verdict.rule, verdict.lines) == apply_c4(text)


@pytest.mark.parametrize("word", ["javascript", "JavaScript", "use cookies", "use coo\u212aies"])
def test_capitals_of_other_scripts_count_as_letters(word: str) -> None:
    text = f"A line of five words.\nWe {word} on every page of ours."
    removed = apply_filters([text], ["c4"], "en")[0].lines
    assert sum(map(len, removed.values())) == 1
