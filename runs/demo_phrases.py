"""Write random phrases of the texts of a table, for a teacher to answer.

    python runs/demo_phrases.py REVIEWS.csv OUT.txt

Few labeled texts become many: of each text it takes spans of some words, and words may be missing
(as in Tang et al. 2019, "Distilling Task-Specific Knowledge from BERT into Simple Neural
Networks").
"""

from __future__ import annotations

import csv
import random
import sys
from pathlib import Path

COUNT = 5
"""Phrases of a text."""
LONGEST = 16
"""Words of a phrase, at most; half of the phrases are whole texts without some words."""
MISSING = 0.15
"""Share of the words that are left out."""


def make_phrase(words: list[str], draw: random.Random) -> str:
    """Make a phrase of the words of a text."""
    if draw.random() < 0.5 and len(words) > 3:
        size = draw.randint(3, min(LONGEST, len(words)))
        start = draw.randint(0, len(words) - size)
        words = words[start : start + size]
    stays = [word for word in words if draw.random() >= MISSING]
    return " ".join(stays or words)


def main() -> None:
    reviews, out = map(Path, sys.argv[1:])
    with open(reviews, encoding="utf-8", newline="") as file:
        texts = [row["text"].split() for row in csv.DictReader(file)]
    draw = random.Random(0)
    phrases = dict.fromkeys(make_phrase(words, draw) for words in texts for _ in range(COUNT))
    out.write_text("\n".join(filter(None, phrases)) + "\n", encoding="utf-8")
    print(f"{out}: {len(phrases):,} phrases", file=sys.stderr)


if __name__ == "__main__":
    main()
