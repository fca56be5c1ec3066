"""Rerankers: a query and a document are read as one row, and answered with one logit.

Training rows come from the judgments of a folder in the layout of BEIR, and from hard negatives:
documents that BM25 ranks high and nobody judged relevant.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from litebert.base.errors import ConfigError, DataError
from litebert.data.random_keys import derive, permute
from litebert.tasks.outputs import restore_output
from litebert.tasks.retrieval.files import Collection, list_splits, read_collection
from litebert.tasks.retrieval.ranking import rank_by_bm25, score_rankings
from litebert.tasks.splits import HeldoutOptions, Source, require_one, select_split
from litebert.tasks.task import Task, TaskFiles
from litebert.tasks.text_outputs import Relevance
from litebert.tasks.texts import Example, TextTask, hash_texts, shorten_number, stream_texts
from litebert.tasks.values import Answer
from litebert.text.records import Notes

NEGATIVES = 4
"""Hard negatives of each relevant document."""
DEPTH = 50
"""Documents that BM25 ranks highest, among which hard negatives are drawn."""
CANDIDATES = 20
"""Documents of BM25 that are ranked for a query of the development part."""
_NEGATIVES = 61
"""The purpose of the random key, which no other random choice has."""
_SEPARATOR = "\t"
"""Stands between the ids of the query and the document in the name of an example."""


@dataclass(frozen=True, kw_only=True)
class RerankOptions(HeldoutOptions):
    """The options of reranking."""

    negatives: int = NEGATIVES
    """Hard negatives of BM25 for each relevant document."""


class RerankFiles(TaskFiles[Example]):
    """A folder in the layout of BEIR. The judgments `train` are learned from, and `dev`, or a share
    of the queries of `train`, chooses the best weights.
    """

    task: Rerank
    stream = staticmethod(stream_texts)

    def __init__(
        self, task: Rerank, folder: Path, negatives: int, heldout: float, seed: int
    ) -> None:
        if negatives < 1:
            raise ConfigError(f"negatives is {negatives}; give 1 or more")
        if not 0 < heldout < 1:
            raise ConfigError(f"heldout is {heldout}; give a share between 0 and 1")
        self._splits = list_splits(folder)
        if "train" not in self._splits:
            raise DataError(
                f"{folder / 'qrels'} has {', '.join(self._splits)}, and a reranker learns from "
                "train.tsv; add one"
            )
        self._folder, self._negatives, self._heldout = folder, negatives, heldout
        self._seed = seed
        self._collections: dict[str, Collection] = {}
        self._examples: dict[str, list[Example]] = {}
        self.task = replace(task, dev=("dev",), sources=(folder.name,))

    @classmethod
    def open(
        cls, task_class: type[Task[Example]], name: str, data: Source, **options: Any
    ) -> RerankFiles:
        folder = Path(require_one(data, name))
        assert issubclass(task_class, Rerank)
        if "heldout" in options and "dev" in list_splits(folder):
            raise ConfigError(
                f"heldout is a share of the queries of train to use as dev, and {folder} has a "
                "qrels/dev.tsv; leave --heldout out"
            )
        seed, given = options.pop("seed", 0), RerankOptions(**options)
        return cls(task_class(Relevance()), folder, given.negatives, given.heldout, seed)

    @classmethod
    def open_labeled(cls, task: Task[Example], source: Source, **options: Any) -> NoReturn:
        raise ConfigError(
            "a reranker is scored on a folder in the layout of BEIR; give it to --retrieval "
            "instead of --data"
        )

    @property
    def file_names(self) -> dict[str, list[str]]:
        return {
            name: [self._splits[name].name] for name in ("train", "dev") if name in self._splits
        }

    def read(self, split: str, notes: Notes | None = None) -> list[Example]:
        """Read the rows, made once: of train with hard negatives, of dev the documents to rank."""
        notes = Notes() if notes is None else notes
        if split not in self._examples:
            name = split if "dev" in self._splits else "train"
            if name not in self._collections:
                self._collections[name] = read_collection(self._folder, name)
            collection = self._collections[name]
            if "dev" not in self._splits:
                names = list(collection.queries)
                chosen = select_split(
                    split,
                    names,
                    [hash_texts(text) for text in collection.queries.values()],
                    share=self._heldout,
                    seed=self._seed,
                    groups_name=f"queries of {self._splits['train']}",
                    notes=notes,
                )
                collection = replace(
                    collection,
                    queries={name: collection.queries[name] for name in chosen},
                    grades={name: collection.grades[name] for name in chosen},
                )
            rows = self._make_train(collection) if split == "train" else _make_dev(collection)
            self._examples[split] = [
                Example(
                    collection.queries[query],
                    collection.documents[document],
                    float(grade),
                    f"{query}{_SEPARATOR}{document}",
                )
                for query, document, grade in rows
            ]
        examples = self._examples[split]
        if split == "train":
            count = sum(not example.label for example in examples)
            notes[f"hard negatives of BM25 for {len(examples) - count:,} relevant documents"] = (
                count
            )
        return list(examples)

    def _make_train(self, collection: Collection) -> Iterator[tuple[str, str, int]]:
        """Yield each query's relevant documents and hard negatives, drawn by its number."""
        names = list(collection.documents)
        rankings = rank_by_bm25(collection, DEPTH)
        right = _list_right_texts(collection)
        for number, (query, places) in enumerate(zip(collection.queries, rankings, strict=True)):
            relevant = [name for name in collection.grades[query] if name in collection.documents]
            texts = right[hash_texts(collection.queries[query])]
            others = [
                names[place]
                for place in places
                if hash_texts(collection.documents[names[place]]) not in texts
            ]
            order = np.zeros(0, np.int64)
            if others:  # none for a query that shares no word with another document
                keys = np.repeat(derive(self._seed, _NEGATIVES, number), len(others))
                order = np.argsort(permute(np.arange(len(others)), len(others), keys))
            drawn = (others[place] for place in order)
            for document in relevant:
                yield query, document, 1
                for _ in range(self._negatives):
                    if (negative := next(drawn, None)) is not None:
                        yield query, negative, 0


def _list_right_texts(collection: Collection) -> dict[int, set[int]]:
    right: dict[int, set[int]] = {}
    for query, grades in collection.grades.items():
        texts = (collection.documents[name] for name in grades if name in collection.documents)
        right.setdefault(hash_texts(collection.queries[query]), set()).update(
            map(hash_texts, texts)
        )
    return right


def _make_dev(collection: Collection) -> Iterator[tuple[str, str, int]]:
    """Yield the documents to rank for each query: those of BM25, without others that have the text
    of a relevant one, and the relevant ones that it missed.
    """
    names = list(collection.documents)
    rankings, right = rank_by_bm25(collection, CANDIDATES), _list_right_texts(collection)
    for (query, grades), places in zip(collection.grades.items(), rankings, strict=True):
        texts = right[hash_texts(collection.queries[query])]
        candidates = [
            names[place]
            for place in places
            if grades.get(names[place])
            or hash_texts(collection.documents[names[place]]) not in texts
        ]
        missed = [name for name in grades if name in collection.documents]
        for document in dict.fromkeys([*candidates, *missed]):
            yield query, document, grades.get(document, 0)


@dataclass(frozen=True)
class Rerank(TextTask):
    """How relevant a document is to a query, in one number."""

    name, files, options = "rerank", RerankFiles, RerankOptions

    pair: bool | None = True

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Rerank:
        return cls(restore_output(settings))

    def settings(self) -> dict[str, Any]:
        columns = {"text": "query", "pair": "document", "label": None}
        return {**super().settings(), "columns": columns}

    @property
    def distill_obstacle(self) -> str:
        return "learns from judgments, without labeled rows"

    @property
    def inputs(self) -> str:
        return "the model ranks documents, give (query, document)"

    def score(self, examples: Sequence[Example], answers: Sequence[Answer]) -> dict[str, float]:
        rows: dict[str, list[tuple[float, str, int]]] = {}
        for example, answer in zip(examples, answers, strict=True):
            query, _, document = example.name.partition(_SEPARATOR)
            number = float(answer.value)
            value = number if np.isfinite(number) else -np.inf
            assert isinstance(example.label, float)
            rows.setdefault(query, []).append((value, document, int(example.label)))
        rankings = [
            [grade for *_, grade in sorted(row, reverse=True)]
            for row in rows.values()
            if any(grade for *_, grade in row)
        ]
        relevant = [[grade for grade in row if grade] for row in rankings]
        if not relevant:
            raise DataError("no query has a relevant document among those to rank; give judgments")
        return score_rankings(rankings, relevant, self.score_names)

    def _make_record(self, example: Example, answer: Answer) -> dict[str, Any]:
        query, _, document = example.name.partition(_SEPARATOR)
        number = shorten_number(answer.value)
        return {"query": query, "document": document, "prediction": number}
