"""Score vectors on STS-B dev, SQuAD dev (a question finds its paragraph) and SST-2 (1,000 labels).

    python runs/encoder/judge.py MODEL BENCHMARKS [DTYPE]

MODEL is a model, by its folder or its name in the package, or `counts`: words and characters,
counted. BENCHMARKS holds `glue/STS-B`, `glue/SST-2` and `squad`. `counts` needs scikit-learn.
"""

from __future__ import annotations

import csv
import json
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

PENALTIES = (3e-3, 1e-3, 3e-4, 1e-4)
Scores = dict[str, float | list[float]]
Labeled = tuple[list[str], np.ndarray]


def read_tsv(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def read_stsb(benchmarks: Path) -> tuple[list[str], list[str], np.ndarray]:
    head, *rows = read_tsv(benchmarks / "glue/STS-B/dev.tsv")
    first, second, score = (head.index(name) for name in ("sentence1", "sentence2", "score"))
    rows = [row for row in rows if len(row) > score]
    gold = np.array([float(row[score]) for row in rows])
    return [row[first] for row in rows], [row[second] for row in rows], gold


def read_squad(benchmarks: Path) -> tuple[list[str], list[str], np.ndarray]:
    """Questions, paragraphs, and the paragraph of each question."""
    questions: list[str] = []
    paragraphs: list[str] = []
    answers: list[int] = []
    for article in json.loads((benchmarks / "squad/dev-v1.1.json").read_text("utf-8"))["data"]:
        for paragraph in article["paragraphs"]:
            for question in paragraph["qas"]:
                questions.append(question["question"])
                answers.append(len(paragraphs))
            paragraphs.append(paragraph["context"])
    return questions, paragraphs, np.array(answers)


def read_sst(benchmarks: Path) -> Iterator[tuple[Labeled, Labeled]]:
    """Three draws of 1,000 labels, each with the development part."""

    def labeled(rows: list[list[str]]) -> Labeled:
        return [row[0] for row in rows], np.array([float(row[1]) for row in rows])

    train = read_tsv(benchmarks / "glue/SST-2/train.tsv")[1:]
    dev = labeled(read_tsv(benchmarks / "glue/SST-2/dev.tsv")[1:])
    for seed in range(3):
        yield labeled(random.Random(seed).sample(train, 1000)), dev


def rank(values: np.ndarray) -> np.ndarray:
    """Ranks from 1; equal values share their mean rank."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[inverse]


def spearman(a: np.ndarray, b: np.ndarray) -> float:
    return 100 * float(np.corrcoef(rank(a), rank(b))[0, 1])


def retrieval(similar: np.ndarray, answers: np.ndarray) -> Scores:
    above = (similar > similar[np.arange(len(answers)), answers][:, None]).sum(1)
    mrr = np.where(above < 10, 1 / (above + 1), 0).mean()
    return {"recall@1": 100 * float((above == 0).mean()), "MRR@10": 100 * float(mrr)}


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


def fit_by_folds(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The weights of the penalty that four folds prefer."""
    fold = np.arange(len(x)) % 4

    def sum_of_folds(penalty: float) -> float:
        parts = ((fold != i, fold == i) for i in range(4))
        return sum(accuracy(fit(x[a], y[a], penalty), x[b], y[b]) for a, b in parts)

    return fit(x, y, max(PENALTIES, key=sum_of_folds))


def judge(
    embed: Callable[[list[str]], np.ndarray], benchmarks: Path, with_labels: bool = True
) -> Scores:
    """Scores times 100 of unit vectors, float64 (texts, numbers)."""
    first, second, gold = read_stsb(benchmarks)
    scores: Scores = {"STS-B": spearman((embed(first) * embed(second)).sum(1), gold)}
    questions, paragraphs, answers = read_squad(benchmarks)
    scores |= retrieval(embed(questions) @ embed(paragraphs).T, answers)
    if with_labels:
        draws = scores["SST-2"] = []
        for (texts, y), (dev_texts, dev_y) in read_sst(benchmarks):
            weights = fit_by_folds(embed(texts), y)
            draws.append(100 * accuracy(weights, embed(dev_texts), dev_y))
    return rounded(scores)


def judge_counts(benchmarks: Path) -> Scores:
    """The same of counted words and characters, with their rarity in the set itself."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_union
    from sklearn.preprocessing import normalize

    def counts() -> Any:
        words = TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2))
        parts = TfidfVectorizer(sublinear_tf=True, ngram_range=(2, 5), analyzer="char_wb")
        return make_union(words, parts)

    first, second, gold = read_stsb(benchmarks)
    counter = counts().fit([*first, *second])
    a, b = (normalize(counter.transform(texts)) for texts in (first, second))
    scores: Scores = {"STS-B": spearman(np.asarray(a.multiply(b).sum(1)).ravel(), gold)}
    questions, paragraphs, answers = read_squad(benchmarks)
    words = TfidfVectorizer(sublinear_tf=True)
    found = words.fit_transform(paragraphs)
    scores |= retrieval((words.transform(questions) @ found.T).toarray(), answers)
    draws = scores["SST-2"] = []
    for (texts, y), (dev_texts, dev_y) in read_sst(benchmarks):
        counter = counts()
        search = GridSearchCV(LogisticRegression(max_iter=1000), {"C": (1, 3, 10, 30)}, cv=4)
        search.fit(counter.fit_transform(texts), y)
        draws.append(100 * search.score(counter.transform(dev_texts), dev_y))
    return rounded(scores)


def rounded(scores: Scores) -> Scores:
    return {
        name: [round(v, 1) for v in value] if isinstance(value, list) else round(value, 2)
        for name, value in scores.items()
    }


def main() -> None:
    model, benchmarks = sys.argv[1], Path(sys.argv[2])
    if model == "counts":
        print(json.dumps(judge_counts(benchmarks)))
        return
    import litebert

    dtype: Any = sys.argv[3] if len(sys.argv) > 3 else None
    encoder = litebert.load(model, dtype=dtype).sentence_encoder

    def embed(texts: list[str]) -> np.ndarray:
        vectors = np.asarray(encoder.encode(texts), np.float64)
        unit: np.ndarray = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        return unit

    print(json.dumps(judge(embed, benchmarks)))


if __name__ == "__main__":
    main()
