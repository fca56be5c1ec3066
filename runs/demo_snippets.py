"""Write rated snippets of reviews as a table of positive and negative texts.

    python runs/demo_snippets.py vaderSentiment-3.3.2.tar.gz OUT

The archive is the source distribution of vaderSentiment (MIT), as `pip download` fetches it. It
holds snippets of film reviews (of Pang and Lee) and product reviews (of Hu and Liu), which twenty
people rated from -4 to 4 (Hutto and Gilbert 2014, "VADER: A Parsimonious Rule-based Model for
Sentiment Analysis of Social Media Text"). OUT gets train.csv, dev.csv and test.csv, with a tenth of
the snippets in each of the last two. Snippets that are hardly positive or negative are left out.
"""

from __future__ import annotations

import csv
import hashlib
import io
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

FILES = ("movieReviewSnippets_GroundTruth.txt", "amazonReviewSnippets_GroundTruth.txt")
LEAST_RATING = 0.5
"""Mean rating of a snippet, either way, from which it counts as positive or negative."""


def read_snippets(archive: Path) -> Iterator[tuple[str, float]]:
    """Yield each snippet once, with its mean rating."""
    seen: set[str] = set()
    with tarfile.open(archive) as outer:
        name = next(name for name in outer.getnames() if name.endswith("ICWSM_2014.tar.gz"))
        packed = outer.extractfile(name)
        assert packed is not None
        with tarfile.open(fileobj=io.BytesIO(packed.read())) as inner:
            for member in (m for m in inner.getmembers() if m.name.endswith(FILES)):
                file = inner.extractfile(member)
                assert file is not None
                for line in file.read().decode("utf-8").splitlines():
                    _, rating, text = line.split("\t", 2)
                    text = " ".join(text.split())
                    if text and text not in seen:
                        seen.add(text)
                        yield text, float(rating)


def choose_part(text: str) -> str:
    """Choose the part of a snippet by a hash of it, so that no order decides."""
    place = int(hashlib.sha256(text.encode()).hexdigest(), 16) % 10
    return {0: "dev", 1: "test"}.get(place, "train")


def main() -> None:
    archive, out = map(Path, sys.argv[1:])
    out.mkdir(parents=True, exist_ok=True)
    parts: dict[str, list[tuple[str, str]]] = {"train": [], "dev": [], "test": []}
    for text, rating in read_snippets(archive):
        if abs(rating) >= LEAST_RATING:
            label = "positive" if rating > 0 else "negative"
            parts[choose_part(text)].append((text, label))
    for part, rows in parts.items():
        with open(out / f"{part}.csv", "w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(("text", "label"))
            writer.writerows(rows)
        print(f"{part}: {len(rows):,} snippets", file=sys.stderr)


if __name__ == "__main__":
    main()
