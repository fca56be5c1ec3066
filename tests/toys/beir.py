"""Folders in the layout of BEIR."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path

Grades = Mapping[str, Mapping[str, int]]


def write_collection(
    folder: Path,
    documents: Mapping[str, str],
    queries: Mapping[str, str],
    grades: Mapping[str, Grades],
) -> Path:
    """Write documents and queries by their ids, and the grades of each split."""
    (folder / "qrels").mkdir(parents=True)
    for name, texts in (("corpus", documents), ("queries", queries)):
        with open(folder / f"{name}.jsonl", "w", encoding="utf-8") as file:
            for identity, text in texts.items():
                file.write(json.dumps({"_id": identity, "text": text}) + "\n")
    for split, rows in grades.items():
        with open(folder / "qrels" / f"{split}.tsv", "w", encoding="utf-8") as file:
            file.write("query-id\tcorpus-id\tscore\n")
            for query, row in rows.items():
                file.writelines(f"{query}\t{name}\t{grade}\n" for name, grade in row.items())
    return folder


def make_collection(
    folder: Path, documents: int = 150, splits: Mapping[str, int] | None = None, words: int = 6
) -> Path:
    """Write made-up documents, and queries of words of one of them, which is relevant; of some
    queries another document is relevant too, with a lower grade.

    Args:
        splits: the number of queries of each split.
        words: words of a query.
    """
    draw = random.Random(0)
    syllables = [a + b for a in "bdfgklmnprst" for b in "aeiou"]
    vocabulary = ["".join(draw.choices(syllables, k=3)) for _ in range(600)]
    frequent = vocabulary[:40] * 15
    texts = {
        f"d{i}": " ".join(draw.choice(vocabulary + frequent) for _ in range(draw.randint(8, 60)))
        for i in range(documents)
    }
    queries: dict[str, str] = {}
    grades: dict[str, dict[str, dict[str, int]]] = {}
    for split, count in (splits or {"test": 40}).items():
        grades[split] = {}
        for _ in range(count):
            name, target = f"q{len(queries)}", draw.choice(list(texts))
            parts = texts[target].split()
            queries[name] = " ".join(draw.sample(parts, min(words, len(parts))))
            grades[split][name] = {target: 2}
            if draw.random() < 0.4:
                grades[split][name].setdefault(draw.choice(list(texts)), 1)
    return write_collection(folder, texts, queries, grades)
