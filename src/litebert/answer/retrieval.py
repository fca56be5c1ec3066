"""Retrieval: how well a model finds the relevant documents of queries, by vectors' cosines, beside
BM25. Shapes: Q queries, D numbers of a vector.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from litebert.answer.model import Model, load
from litebert.answer.vectors import SentenceEncoder
from litebert.base.errors import ConfigError
from litebert.tasks.retrieval.files import Collection, read_collection
from litebert.tasks.retrieval.ranking import (
    DEPTH,
    BestDocuments,
    Ranking,
    rank_by_bm25,
    score_rankings,
)
from litebert.tasks.similarity import scale_to_unit
from litebert.tasks.task import Row
from litebert.tokenizer.coverage import Coverage

log = logging.getLogger("litebert")


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
    retriever: dict[str, float] | None = None
    """The same of the model of vectors whose documents a reranker ranked; None for those of
    BM25."""

    def list_columns(self) -> dict[str, dict[str, float]]:
        """List the scores beside those of the model, by what they belong to."""
        return {
            **({} if self.retriever is None else {"retriever": self.retriever}),
            "BM25": self.bm25,
        }

    def rows(self) -> list[tuple[str, ...]]:
        """Return the rows of a table: the score, the model, and the others."""
        columns = (self.scores, *self.list_columns().values())
        return [(name, *(f"{column[name]:.4f}" for column in columns)) for name in self.scores]


def evaluate_retrieval(
    model: str | Path | Model,
    folder: str | Path,
    *,
    split: str | None = None,
    vector_size: int | None = None,
    top: int | None = None,
    retriever: str | Path | None = None,
    device: str = "auto",
) -> RetrievalScores:
    """Score a model on a folder in the layout of BEIR.

    Args:
        model: any model that gives sentence vectors, as `load` takes or gives it; or a reranker,
            which answers a pair of texts with a number.
        folder: a folder with corpus.jsonl, queries.jsonl and qrels/*.tsv.
        split: the name of the file in qrels; by default test, or the only one.
        vector_size: the numbers of a vector that are left, the first ones; all by default.
        top: the documents of each query that a reranker ranks; 100 by default.
        retriever: a model of sentence vectors that finds these documents; by default BM25 does.
        device: as in `load`.

    Raises:
        ConfigError: there is no such file of judgments, size or device, or an option that
            the model does not take.
        DataError: the folder is not in this layout, or a file is malformed; the message names the
            line.
        ModelError: a model cannot be opened, or gives no vectors.
    """
    collection = read_collection(folder, split)  # first, for it may find a mistake
    opened = model if isinstance(model, Model) else load(model, device=device)
    facts = collection.split, len(collection.documents), len(collection.queries)
    if not opened.ranks_pairs:
        for option, value in {"top": top, "retriever": retriever}.items():
            if value is not None:
                raise ConfigError(
                    f"{option} is of a reranker, and {opened.path} does not answer pairs of texts "
                    f"with a number; leave --{option} out"
                )
        ranking = rank_by_vectors(opened.vectors_by(size=vector_size), collection)
        bm25 = _score(collection, rank_by_bm25(collection))
        return RetrievalScores(*facts, _score(collection, ranking), bm25)
    top = DEPTH if top is None else top
    if type(top) is not int or not 1 <= top <= DEPTH:
        raise ConfigError(f"top is {top!r}; give a whole number from 1 to {DEPTH}")
    first = words = rank_by_bm25(collection)
    if retriever is not None:
        finder = load(retriever, device=device)
        if finder.ranks_pairs:
            raise ConfigError(
                f"retriever is {retriever}, a reranker, which gives no vectors; give a model of "
                "sentence vectors, or leave it out"
            )
        first = rank_by_vectors(finder.vectors_by(size=vector_size), collection)
    elif vector_size is not None:
        raise ConfigError("vector_size is of vectors, and a reranker has none; leave it out")
    ranking = rerank(opened, collection, [places[:top] for places in first])
    return RetrievalScores(
        *facts,
        _score(collection, ranking),
        _score(collection, words),
        None if retriever is None else _score(collection, first),
    )


def rerank(model: Model, collection: Collection, ranking: Ranking) -> Ranking:
    """Rank the documents of each query by the number that a model answers to the pair."""
    texts = list(collection.documents.values())
    pairs = [
        (query, texts[place])
        for query, places in zip(collection.queries.values(), ranking, strict=True)
        for place in places
    ]
    numbers = iter([answer["prediction"] for answer in model.predict(pairs)])
    ranked = []
    for places in ranking:
        scored = [(-next(numbers), int(place)) for place in places]
        ranked.append(np.array([place for _, place in sorted(scored)], np.int64))
    return ranked


def rank_by_vectors(encoder: SentenceEncoder, collection: Collection) -> Ranking:
    """Rank the documents of each query by the cosine of the vectors, in constant memory."""
    queries = scale_to_unit(encoder.encode(collection.queries.values()))
    best, start = BestDocuments.of(collection), 0
    coverage = Coverage(encoder.tokenizer)
    rows = map(Row, collection.documents.values())
    for _, vectors in encoder.encode_rows(rows, ahead=True, coverage=coverage):
        best.add(queries @ scale_to_unit(vectors).T, start)
        start += len(vectors)
    coverage.warn()
    return best.rank()


def _score(collection: Collection, ranking: Ranking) -> dict[str, float]:
    names = list(collection.documents)
    grades = [
        [relevant.get(names[place], 0) for place in places]
        for places, relevant in zip(ranking, collection.grades.values(), strict=True)
    ]
    return score_rankings(grades, [list(row.values()) for row in collection.grades.values()])
