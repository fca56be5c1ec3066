"""Retrieval: how well a model finds the relevant documents of queries, beside BM25.

Sentence vectors are compared by their cosine with each document. Shapes: Q queries, D numbers of a
vector.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from litebert import progress
from litebert.answer.model import Model, load
from litebert.answer.vectors import SentenceEncoder
from litebert.finetuning.similarity import scale_to_unit
from litebert.finetuning.task import Row
from litebert.tasks.retrieval.bm25 import Bm25
from litebert.tasks.retrieval.files import Collection, read_collection
from litebert.tasks.retrieval.ranking import BestDocuments, Ranking, score_rankings
from litebert.tokenizer.coverage import Coverage

log = logging.getLogger("litebert")

BLOCK = 4096
"""Documents that BM25 scores at once."""
QUERIES = 1024
"""Queries that BM25 scores at once."""


@dataclass(frozen=True)
class RetrievalScores:
    """The scores of a model and of BM25 on a collection."""

    split: str
    """The name of the file of judgments."""
    documents: int
    queries: int
    scores: dict[str, float]
    """The scores of the model by name: nDCG and reciprocal rank of the first 10 documents, recall
    of the first 10 and 100."""
    bm25: dict[str, float]
    """The same of BM25."""

    def rows(self) -> list[tuple[str, str, str]]:
        """Return the rows of a table: the score, the model, BM25."""
        return [(name, f"{self.scores[name]:.4f}", f"{self.bm25[name]:.4f}") for name in self.bm25]


def evaluate_retrieval(
    model: str | Path,
    folder: str | Path,
    *,
    split: str | None = None,
    vector_size: int | None = None,
    engine: str | None = None,
    device: str = "auto",
) -> RetrievalScores:
    """Score a model on a folder in the layout of BEIR.

    Args:
        model: any model that gives sentence vectors, as `load` takes it.
        folder: a folder with corpus.jsonl, queries.jsonl and qrels/*.tsv.
        split: the name of the file in qrels; by default test, or the only one.
        vector_size: the numbers of a vector that are left, the first ones; all by default.
        engine: as in `load`.
        device: as in `load`.

    Raises:
        ConfigError: there is no such file of judgments, size, engine or device.
        DataError: the folder is not in this layout, or a file is malformed; the message names the
            line.
        ModelError: the model cannot be opened, or gives no vectors.
    """
    collection = read_collection(folder, split)  # first, for it may find a mistake
    return score_retrieval(load(model, engine=engine, device=device), collection, vector_size)


def score_retrieval(
    model: Model, collection: Collection, vector_size: int | None = None
) -> RetrievalScores:
    """Score a model on a collection; see `evaluate_retrieval`."""
    ranking = rank_by_vectors(model.vectors_by(size=vector_size), collection)
    return RetrievalScores(
        collection.split,
        len(collection.documents),
        len(collection.queries),
        _score(collection, ranking),
        _score(collection, rank_by_bm25(collection)),
    )


def rank_by_vectors(encoder: SentenceEncoder, collection: Collection) -> Ranking:
    """Rank the documents of each query by the cosine of the vectors. The vectors of the documents
    are not kept, so that memory stays constant.
    """
    queries = scale_to_unit(encoder.encode(collection.queries.values()))
    best, start = _begin(collection), 0
    coverage = Coverage(encoder.tokenizer)
    for vectors in _encode_documents(encoder, collection, coverage):
        best.add(queries @ scale_to_unit(vectors).T, start)
        start += len(vectors)
    coverage.warn()
    return best.rank()


def _encode_documents(
    encoder: SentenceEncoder, collection: Collection, coverage: Coverage
) -> Iterator[NDArray[np.float32]]:
    rows = map(Row, collection.documents.values())
    for _, vectors in encoder.encode_rows(rows, ahead=True, coverage=coverage):
        yield vectors


def rank_by_bm25(collection: Collection) -> Ranking:
    """Rank the documents of each query by BM25; those that share no word with it are left out."""
    names, texts = list(collection.queries), list(collection.queries.values())
    with progress.task("ranking by BM25", len(names), "queries") as bar:
        scorer, ranking = Bm25(list(collection.documents.values())), Ranking()
        for first in range(0, len(names), QUERIES):
            part = slice(first, first + QUERIES)
            counts, best = scorer.count(texts[part]), _begin(collection, names[part])
            for start in range(0, len(collection.documents), BLOCK):
                scores = scorer.compute_scores(counts, slice(start, start + BLOCK))
                best.add(np.where(scores > 0, scores, -np.inf).astype(np.float32), start)
            ranking += best.rank()
            bar.advance(len(texts[part]))
    return ranking


def _begin(collection: Collection, queries: list[str] | None = None) -> BestDocuments:
    places = {name: place for place, name in enumerate(collection.documents)}
    return BestDocuments(list(collection.queries) if queries is None else queries, places)


def _score(collection: Collection, ranking: Ranking) -> dict[str, float]:
    """Compute the scores of a ranking of each query."""
    names = list(collection.documents)
    grades = [
        [relevant.get(names[place], 0) for place in places]
        for places, relevant in zip(ranking, collection.grades.values(), strict=True)
    ]
    return score_rankings(grades, [list(row.values()) for row in collection.grades.values()])
