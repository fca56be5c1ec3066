"""Score vectors on STS-B dev, SQuAD dev (a question finds its paragraph) and SST-2 (1,000 labels).

    python runs/encoder/judge.py MODEL BENCHMARKS [DTYPE]

MODEL is a litebert folder, or an archive of `litebert.demo.pack` with one model. BENCHMARKS holds
`glue/STS-B`, `glue/SST-2` and `squad`.
"""

from __future__ import annotations

import csv
import json
import random
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

PENALTIES = (3e-3, 1e-3, 3e-4, 1e-4)


def read_tsv(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def rank(values: np.ndarray) -> np.ndarray:
    """Ranks from 1; equal values share their mean rank."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[inverse]


def fit(x: np.ndarray, y: np.ndarray, penalty: float) -> np.ndarray:
    """Weights of a logistic regression, its intercept last, by Newton's method."""
    z = np.hstack((x, np.ones((len(x), 1))))
    strength = np.full(z.shape[1], 2 * penalty * len(x))
    strength[-1] = 1e-9
    weights = np.zeros(z.shape[1])
    for _ in range(12):
        p = 1 / (1 + np.exp(-np.clip(z @ weights, -30, 30)))
        curvature = np.maximum(p * (1 - p), 1e-5)[:, None]
        hessian = (z * curvature).T @ z + np.diag(strength)
        weights -= np.linalg.solve(hessian, z.T @ (p - y) + strength * weights)
    return weights


def accuracy(weights: np.ndarray, x: np.ndarray, y: np.ndarray) -> float:
    return float(((x @ weights[:-1] + weights[-1] > 0) == (y > 0.5)).mean())


def judge(
    embed: Callable[[list[str]], np.ndarray], benchmarks: Path, with_labels: bool = True
) -> dict[str, float | list[float]]:
    """Scores times 100 of unit vectors, float64 (texts, numbers): STS-B dev, SQuAD dev, and SST-2
    dev after 1,000 labels.
    """
    head, *rows = read_tsv(benchmarks / "glue/STS-B/dev.tsv")
    first, second, score = (head.index(name) for name in ("sentence1", "sentence2", "score"))
    rows = [row for row in rows if len(row) > score]
    cosines = (embed([row[first] for row in rows]) * embed([row[second] for row in rows])).sum(1)
    gold = np.array([float(row[score]) for row in rows])
    scores: dict[str, float | list[float]] = {
        "STS-B": 100 * np.corrcoef(rank(cosines), rank(gold))[0, 1]
    }

    paragraphs: list[str] = []
    questions, answers = [], []
    for article in json.loads((benchmarks / "squad/dev-v1.1.json").read_text("utf-8"))["data"]:
        for paragraph in article["paragraphs"]:
            for question in paragraph["qas"]:
                questions.append(question["question"])
                answers.append(len(paragraphs))
            paragraphs.append(paragraph["context"])
    similar = embed(questions) @ embed(paragraphs).T
    above = (similar > similar[np.arange(len(answers)), answers][:, None]).sum(1)
    scores["recall@1"] = 100 * float((above == 0).mean())
    scores["MRR@10"] = 100 * float(np.where(above < 10, 1 / (above + 1), 0).mean())
    if with_labels:
        train = read_tsv(benchmarks / "glue/SST-2/train.tsv")[1:]
        dev = read_tsv(benchmarks / "glue/SST-2/dev.tsv")[1:]
        dev_x, dev_y = embed([row[0] for row in dev]), np.array([float(row[1]) for row in dev])
        draws = scores["SST-2"] = []
        for seed in range(3):
            draw = random.Random(seed).sample(train, 1000)
            x, y = embed([row[0] for row in draw]), np.array([float(row[1]) for row in draw])
            draws.append(100 * accuracy(fit_by_folds(x, y), dev_x, dev_y))
    return {
        name: [round(v, 1) for v in value] if isinstance(value, list) else round(float(value), 2)
        for name, value in scores.items()
    }


def fit_by_folds(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The weights of the penalty that four folds prefer."""
    fold = np.arange(len(x)) % 4

    def sum_of_folds(penalty: float) -> float:
        parts = ((fold != i, fold == i) for i in range(4))
        return sum(accuracy(fit(x[a], y[a], penalty), x[b], y[b]) for a, b in parts)

    return fit(x, y, max(PENALTIES, key=sum_of_folds))


def main() -> None:
    import litebert
    from litebert.demo import unpack

    model, benchmarks = Path(sys.argv[1]), Path(sys.argv[2])
    if model.suffix == ".zip":
        (model,) = unpack(tempfile.mkdtemp(), model).values()
    dtype: Any = sys.argv[3] if len(sys.argv) > 3 else None
    encoder = litebert.load(model, dtype=dtype).sentence_encoder

    def embed(texts: list[str]) -> np.ndarray:
        vectors = np.asarray(encoder.encode(texts), np.float64)
        unit: np.ndarray = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        return unit

    print(json.dumps(judge(embed, benchmarks)))


if __name__ == "__main__":
    main()
