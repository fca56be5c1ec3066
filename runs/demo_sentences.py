"""Write the texts of reviews and an even sample of other sentences, one a line, each once.

    python runs/demo_sentences.py REVIEWS.csv OUT.txt MOST TEXT...

TEXT is a file of text or a folder of such files, gzip or plain, or a JSON file of SQuAD, whose
passages and questions are all taken. Of other text at most MOST sentences are.
"""

from __future__ import annotations

import csv
import gzip
import json
import sys
from pathlib import Path

from litebert.text.sentences import split_sentences

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


def read_squad(path: Path) -> list[str]:
    """Read the sentences of all passages, and the questions."""
    sentences: list[str] = []
    for article in json.loads(path.read_text(encoding="utf-8"))["data"]:
        for passage in article["paragraphs"]:
            sentences += split_sentences(passage["context"], "en")
            sentences += [question["question"] for question in passage["qas"]]
    return [sentence for sentence in sentences if len(sentence) in LENGTHS]


def main() -> None:
    most = int(sys.argv.pop(3))
    reviews, out, *sources = map(Path, sys.argv[1:])
    with open(reviews, encoding="utf-8", newline="") as file:
        texts = [row["text"] for row in csv.DictReader(file)]
    plain = [source for source in sources if source.suffix != ".json"]
    others = [sentence for source in plain for sentence in read_sentences(source)]
    step = max(1, len(others) // max(1, most))
    texts += others[::step][:most]
    texts += [s for source in sources if source not in plain for s in read_squad(source)]
    lines = dict.fromkeys(" ".join(text.split()) for text in texts)
    out.write_text("\n".join(filter(None, lines)) + "\n", encoding="utf-8")
    print(f"{out}: {len(lines):,} sentences", file=sys.stderr)


if __name__ == "__main__":
    main()
