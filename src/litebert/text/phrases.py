"""Random phrases of texts, for a teacher to answer: few labeled texts become many."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate

SHORTEST, LONGEST = 3, 16
SPANS, LONGEST_TEXT = 0.5, 128
"""Share of the phrases that are a span of a text. The others come from all of it, or from so many
words in a row where it has more."""
DROPPED, REPLACED = 0.3, 0.4
"""Shares of the words that are left out, and that are replaced by random ones, at most."""
TRIES = 1000
"""Draws in a row that give no new phrase, after which there are taken to be no more: short texts
have few different phrases."""


def make_phrases(texts: Sequence[str], count: int, seed: int = 0) -> list[str]:
    """Make at most `count` different phrases of texts, none of which is one of the texts, in an
    order that depends on the texts, their order and the seed alone.

    A phrase is a text or a span of it, without some of its words and with random words in place of
    some. A random word is likely in proportion to the square root of its count, so that rare words
    come up too. The source of the idea is Tang et al. 2019, "Distilling Task-Specific Knowledge
    from BERT into Simple Neural Networks", section 3.3.
    """
    split_texts = [_split(text) for text in texts]
    split_texts = [text for text in split_texts if text[0]]
    counts = Counter(word for words, _ in split_texts for word in words)
    if not counts:
        return []
    vocabulary = list(counts)
    weights = list(accumulate(count**0.5 for count in counts.values()))
    draw, present = random.Random(seed), set(texts)
    phrases: dict[str, None] = {}
    repeats = 0
    while len(phrases) < count and repeats < TRIES:
        words, space = draw.choice(split_texts)
        size = min(LONGEST_TEXT, len(words))
        if len(words) > SHORTEST and draw.random() < SPANS:
            size = draw.randint(SHORTEST, min(LONGEST, len(words)))
        start = draw.randint(0, len(words) - size)
        words = words[start : start + size]
        dropped, replaced = draw.random() * DROPPED, draw.random() * REPLACED
        words = [word for word in words if draw.random() >= dropped] or words
        others = draw.choices(vocabulary, cum_weights=weights, k=len(words))
        pairs = zip(words, others, strict=True)
        words = [other if draw.random() < replaced else word for word, other in pairs]
        phrase = space.join(words)
        repeats += 1
        if phrase not in present:
            present.add(phrase)
            phrases[phrase], repeats = None, 0
    return list(phrases)


def _split(text: str) -> tuple[list[str], str]:
    """Return the words of a text and what joins them; its characters where it has no spaces."""
    words = text.split()
    return (words, " ") if len(words) != 1 or len(text) < LONGEST else (list(words[0]), "")
