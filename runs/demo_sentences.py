"""Write the texts of reviews and an even sample of other sentences, one a line, each once.

    python runs/demo_sentences.py REVIEWS.csv OUT.txt TEXT...

TEXT is a file of text or a folder of such files, gzip or plain.
"""

from __future__ import annotations

import csv
import gzip
import sys
from pathlib import Path

from litebert.text.sentences import split_sentences

MOST = 90_000
"""Sentences that are not of reviews, at most."""
LENGTHS = range(20, 200)
"""Characters of a sentence."""


def read_sentences(path: Path) -> list[str]:
    """Read the sentences of all files under a path, in the order of their names."""
    paths = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    sentences: list[str] = []
    for file in paths:
        data = file.read_bytes()
        text = (gzip.decompress(data) if file.suffix == ".gz" else data).decode("utf-8", "replace")
        for line in text.splitlines():
            sentences += (s for s in split_sentences(line, "en") if len(s) in LENGTHS)
    return sentences


def main() -> None:
    reviews, out, *sources = map(Path, sys.argv[1:])
    with open(reviews, encoding="utf-8", newline="") as file:
        texts = [row["text"] for row in csv.DictReader(file)]
    others = [sentence for source in sources for sentence in read_sentences(source)]
    step = max(1, len(others) // MOST)
    lines = dict.fromkeys(" ".join(text.split()) for text in [*texts, *others[::step][:MOST]])
    out.write_text("\n".join(filter(None, lines)) + "\n", encoding="utf-8")
    print(f"{out}: {len(lines):,} sentences", file=sys.stderr)


if __name__ == "__main__":
    main()
