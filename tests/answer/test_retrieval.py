"""`litebert evaluate --retrieval`: scores as trec_eval computes them, BM25 as another library
does."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import litebert
from litebert.answer import vectors
from litebert.base.errors import DataError
from litebert.model.task_model import TaskModel
from litebert.tasks.retrieval import ranking
from litebert.tasks.retrieval.bm25 import Bm25
from litebert.tasks.retrieval.files import list_splits, read_collection
from litebert.tasks.retrieval.ranking import BestDocuments, score_rankings
from litebert.tokenizer import Tokenizer
from toys.beir import make_collection, write_collection
from toys.folders import save_litebert
from toys.points import randomize, shape
from toys.refusals import names, refused

Run = Callable[..., tuple[int, str, str]]
TREC = {
    "ndcg_at_10": "ndcg_cut_10",
    "recall_at_10": "recall_10",
    "recall_at_100": "recall_100",
}


@pytest.fixture(scope="module")
def model(tiny_tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of vectors with random weights."""
    words = Tokenizer.load(tiny_tokenizer)
    network = TaskModel(shape(vocab_size=words.vocab_size, pooler=False), False, 0).eval()
    randomize(network, scale=0.15)
    task = {
        "task": "pairs",
        "kind": "backbone",
        "problem": "similarity",
        "length": 16,
        "pair": True,
        "vectors": {"pooling": "mean", "normalized": True},
    }
    place = tmp_path_factory.mktemp("model") / "model"
    save_litebert(network, words, place, task=task)
    return place


def read_folder(folder: Path) -> tuple[dict[str, str], dict[str, str], dict[str, dict[str, int]]]:
    """Read the documents, the queries and the grades of test, without litebert."""
    documents, queries = (
        {
            row["_id"]: row["text"]
            for row in map(json.loads, (folder / f"{name}.jsonl").read_text().splitlines())
        }
        for name in ("corpus", "queries")
    )
    grades: dict[str, dict[str, int]] = {}
    for line in (folder / "qrels" / "test.tsv").read_text().splitlines()[1:]:
        query, document, grade = line.split("\t")
        grades.setdefault(query, {})[document] = int(grade)
    return documents, queries, grades


def score_by_trec(
    grades: Mapping[str, Mapping[str, int]], run: dict[str, dict[str, float]]
) -> dict[str, float]:
    """Score a run as trec_eval does."""
    trec = pytest.importorskip("pytrec_eval", reason="pytrec-eval-terrier is not installed")
    plain = {query: dict(row) for query, row in grades.items()}
    by_query = trec.RelevanceEvaluator(plain, {"ndcg_cut", "recall"}).evaluate(run)
    scores = {
        name: float(np.mean([row[measure] for row in by_query.values()]))
        for name, measure in TREC.items()
    }
    best = {
        query: dict(sorted(row.items(), key=lambda cell: (cell[1], cell[0]), reverse=True)[:10])
        for query, row in run.items()
    }
    ranks = trec.RelevanceEvaluator(plain, {"recip_rank"}).evaluate(best)
    return scores | {"mrr_at_10": float(np.mean([row["recip_rank"] for row in ranks.values()]))}


def make_run(
    scores: NDArray[np.floating[Any]], queries: list[str], documents: list[str]
) -> dict[str, dict[str, float]]:
    return {
        query: {name: float(score) for name, score in zip(documents, row, strict=True)}
        for query, row in zip(queries, scores, strict=True)
    }


def test_the_scores_are_those_of_trec_eval(
    model: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    bm25s = pytest.importorskip("bm25s", reason="bm25s is not installed")
    for module, name in ((vectors, "CHUNK"), (ranking, "BLOCK"), (ranking, "QUERIES")):
        monkeypatch.setattr(module, name, 32)
    folder = make_collection(tmp_path / "folder")
    status, out, err = run("evaluate", model, "--retrieval", folder, "--json")
    assert status == 0, err
    report = json.loads(out)
    documents, queries, grades = read_folder(folder)
    assert (report["documents"], report["queries"]) == (150, 40)
    assert report["split"] == "test"
    opened = litebert.load(model)
    cosines = opened.encode(queries.values()) @ opened.encode(documents.values()).T
    wanted = score_by_trec(grades, make_run(cosines, [*queries], [*documents]))
    # Cosines that differ by rounding may change places.
    assert report["scores"] == pytest.approx(wanted, abs=2e-3)

    words = [re.findall(r"\w+", text.lower()) for text in documents.values()]
    peer = bm25s.BM25(method="lucene", k1=0.9, b=0.4)
    peer.index(words, show_progress=False)
    rows = np.stack(
        [peer.get_scores(re.findall(r"\w+", text.lower())) for text in queries.values()]
    )
    run_of_all = make_run(rows, [*queries], [*documents])
    retrieved = {
        query: {name: score for name, score in row.items() if score > 0}
        for query, row in run_of_all.items()
    }
    assert report["bm25"] == pytest.approx(score_by_trec(grades, retrieved), abs=1e-6)
    assert report["bm25"]["ndcg_at_10"] > report["scores"]["ndcg_at_10"]
    status, out, err = run("evaluate", model, "--retrieval", folder)
    assert "BM25, which counts words, is better than model" in " ".join((out + err).split())


def test_bm25_is_that_of_another_library() -> None:
    bm25s = pytest.importorskip("bm25s", reason="bm25s is not installed")
    texts = ["A cat and a dog", "the dog, the dog!", "", "cats"]
    scorer = Bm25(texts)
    actual = scorer.compute_scores(scorer.count(["dog dog cat", "nothing"]), slice(0, 4))
    peer = bm25s.BM25(method="lucene", k1=0.9, b=0.4)
    peer.index([re.findall(r"\w+", text.lower()) for text in texts], show_progress=False)
    np.testing.assert_allclose(actual[0], peer.get_scores(["dog", "dog", "cat"]), rtol=1e-5)
    assert not actual[1].any()


def test_bm25_of_text_without_spaces() -> None:
    scorer = Bm25(
        ["我们的图书馆早上九点开门并且晚上六点关门", "天气预报说明天会下雨而且气温会下降很多"]
    )
    scores = scorer.compute_scores(scorer.count(["图书馆几点开门"]), slice(0, 2))
    assert scores[0, 0] > 2 * scores[0, 1]


@pytest.mark.parametrize("block", [7, 100])
def test_equal_scores_are_ranked_as_trec_eval_does(block: int) -> None:
    draw = np.random.default_rng(0)
    documents = sorted((f"d{i}" for i in range(60)), reverse=True)
    queries = ["q0", "d7", "q2"]
    scores = draw.integers(0, 4, (3, 60)).astype(np.float32)
    best = BestDocuments(queries, {name: i for i, name in enumerate(documents)}, 100)
    for start in range(0, 60, block):
        best.add(scores[:, start : start + block].copy(), start)
    grades = {query: {f"d{i}": i % 3 for i in range(9)} for query in queries}
    run = make_run(scores, queries, documents)
    del run["d7"]["d7"]  # a query does not find itself
    relevant = [[grade for grade in row.values() if grade] for row in grades.values()]
    rankings = [
        [grades[query].get(documents[place], 0) for place in places]
        for query, places in zip(queries, best.rank(), strict=True)
    ]
    assert score_rankings(rankings, relevant) == pytest.approx(score_by_trec(grades, run))


@pytest.mark.parametrize("depth", [1, 7, 60, 100])
def test_the_best_documents_are_those_of_a_full_sort(depth: int) -> None:
    draw = np.random.default_rng(1)
    scores = draw.integers(0, 5, (20, 60)).astype(np.float32)
    scores[scores == 0] = -np.inf
    scores[3] = -np.inf
    best = BestDocuments([f"q{i}" for i in range(20)], {}, depth)
    for start in range(0, 60, 25):
        best.add(scores[:, start : start + 25].copy(), start)
    for row, places in zip(scores, best.rank(), strict=True):
        order = np.argsort(-row, kind="stable")[:depth]
        assert places.tolist() == order[row[order] > -np.inf].tolist()


@pytest.mark.parametrize("is_relevant", [False, True])
def test_a_query_finds_the_document_of_its_own_id_only_where_that_is_relevant(
    is_relevant: bool, model: Path, tmp_path: Path, run: Run
) -> None:
    documents = {"1": "red fox", "2": "red fox again", "3": "blue whale"}
    grades = {"1": {"1" if is_relevant else "2": 1}, "2": {"3": 1}}
    queries = {"1": "red fox", "2": "whale"}
    folder = write_collection(tmp_path / "a", documents, queries, {"test": grades})
    status, out, err = run("evaluate", model, "--retrieval", folder, "--json")
    assert status == 0, err
    assert json.loads(out)["bm25"]["mrr_at_10"] == 1.0
    names(err.splitlines()[0], folder, "id of their query" if is_relevant else "own id, as in BEIR")


DOCUMENTS = {"d1": "a red fox", "d2": "a blue whale"}
QUERIES = {"q1": "red", "q2": "whale"}


def test_what_is_missing_is_told(model: Path, tmp_path: Path, log_messages: list[str]) -> None:
    folder = write_collection(
        tmp_path / "a",
        DOCUMENTS,
        QUERIES,
        {"dev": {"q1": {"d1": 1, "gone": 1}, "q2": {"d1": 0}, "lost": {"d1": 1}}},
    )
    scored = litebert.evaluate_retrieval(model, folder)
    assert (scored.queries, scored.split) == (1, "dev")
    assert scored.bm25["recall_at_10"] == 0.5
    messages = "\n".join(log_messages)
    assert "not in corpus.jsonl" in messages
    assert "queries.jsonl lacks" in messages


def test_mistakes_get_a_sentence(model: Path, tmp_path: Path, run: Run) -> None:
    folder = write_collection(tmp_path / "a", DOCUMENTS, QUERIES, {"test": {"q1": {"d1": 1}}})

    def refuse(*words: object, places: tuple[object, ...]) -> None:
        status, _, err = run("evaluate", model, *words)
        assert status == 2
        names(err, *places)

    refuse("--retrieval", tmp_path, places=(tmp_path, "corpus.jsonl"))
    refuse("--retrieval", folder, "--qrels", "tset", places=("tset", "test"))
    refuse("--retrieval", folder, "--data", "a.csv", places=("--retrieval", "--data"))
    refuse("--shards", folder, "--qrels", "dev", places=("--qrels", "--retrieval"))
    qrels = folder / "qrels" / "test.tsv"
    qrels.write_text("query-id\tcorpus-id\tscore\nq1\td1\tgood\n")
    refuse("--retrieval", folder, places=(f"{qrels}:2", "good"))
    qrels.write_text("query-id\tcorpus-id\tscore\nq1\tno\t1\n")
    refuse("--retrieval", folder, places=(qrels, "corpus.jsonl"))
    qrels.write_text("query-id\tdocument\nq1\td1\n")
    refuse("--retrieval", folder, places=(qrels, "corpus-id"))
    qrels.write_text("q1\td1\t1\n")
    refuse("--retrieval", folder, places=(qrels, "query-id<TAB>corpus-id<TAB>score"))
    refuse("--retrieval", "", places=("retrieval is empty",))
    qrels.unlink()
    refuse("--retrieval", folder, places=(folder / "qrels", ".tsv"))
    qrels.write_text("query-id\tcorpus-id\tscore\nq1\td1\t1\n")
    with open(folder / "corpus.jsonl", "a", encoding="utf-8") as file:
        file.write('{"_id": "d1", "text": "again"}\n')
    refuse("--retrieval", folder, places=(f"{folder / 'corpus.jsonl'}:3", "d1"))
    (folder / "corpus.jsonl").write_text('{"_id": "d1", "text": 3}\n')
    refuse("--retrieval", folder, places=(f"{folder / 'corpus.jsonl'}:1", 3))


@pytest.mark.parametrize(
    ("judgments", "places"),
    [
        ("q1\td1\t1e300\n", ("test.tsv:2", "1e300")),
        ("q1\td1\t100000000000000000000\n", ("test.tsv:2", "three digits")),
        ("q1\td1\t1_0\n", ("test.tsv:2", "1_0")),
        ("q1\td1\t0\nq1\td1\t1\n", ("test.tsv:3", "'d1'", "another score")),
    ],
)
def test_judgments_that_cannot_be_get_a_sentence(
    tmp_path: Path, judgments: str, places: tuple[str, ...]
) -> None:
    folder = write_collection(tmp_path / "a", DOCUMENTS, QUERIES, {})
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + judgments)
    with refused(DataError, *places):
        read_collection(folder)


def test_files_of_judgments_are_named_by_all_before_the_suffix(tmp_path: Path) -> None:
    grades = {"q1": {"d1": 1}}
    folder = write_collection(
        tmp_path / "a", DOCUMENTS, QUERIES, {"test": grades, "v2.dev": grades}
    )
    (folder / "qrels" / "._test.tsv").write_bytes(b"\x00\x05")
    assert list(list_splits(folder)) == ["test", "v2.dev"]
    (folder / "qrels" / "test.tsv.gz").write_bytes(b"")
    with refused(DataError, "test.tsv.gz", "leave one"):
        list_splits(folder)
