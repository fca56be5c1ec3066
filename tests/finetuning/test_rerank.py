"""`finetune --task rerank`: a cross-encoder learned with hard negatives, scored after retrieval."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import litebert
from litebert.tasks.registry import open_task
from litebert.tasks.retrieval.files import read_collection
from litebert.tasks.retrieval.ranking import rank_by_bm25
from toys.beir import make_collection, write_collection
from toys.finetuning import recipe_file
from toys.refusals import names

Run = Callable[..., tuple[int, str, str]]


def test_training_rows_are_the_judgments_with_hard_negatives(tmp_path: Path) -> None:
    folder = make_collection(tmp_path / "a", 80, {"train": 30, "dev": 10, "test": 5})
    files = open_task("rerank", folder, negatives=3)
    collection = read_collection(folder, "train")
    names_of = list(collection.documents)
    best = dict(zip(collection.queries, rank_by_bm25(collection, 50), strict=True))
    rows = files.read("train")
    positives = {tuple(row.name.split("\t")) for row in rows if row.label}
    assert positives == {
        (query, document) for query, row in collection.grades.items() for document in row
    }
    negatives = [row.name.split("\t") for row in rows if not row.label]
    assert len(negatives) > 2 * len(positives)
    for query, document in negatives:
        assert document not in collection.grades[query]
        assert document in [names_of[place] for place in best[query]]
    assert len(set(map(tuple, negatives))) == len(negatives)
    assert files.read("train") == open_task("rerank", folder, negatives=3).read("train")
    dev = files.read("dev")
    assert {row.name.split("\t")[0] for row in dev} == set(read_collection(folder, "dev").queries)


def test_a_query_that_shares_no_word_with_a_document_has_no_negatives(tmp_path: Path) -> None:
    documents = {"d1": "red house", "d2": "green tree"}
    queries = {"q1": "red", "q2": "zzzz"}
    grades = {"q1": {"d1": 1}, "q2": {"d2": 1}}
    folder = write_collection(
        tmp_path / "data", documents, queries, {"train": grades, "dev": grades}
    )
    rows = open_task("rerank", folder).read("train")
    assert {row.name for row in rows if row.label} == {"q1\td1", "q2\td2"}


def check_refusals(run: Run, reranker: Path, folder: Path, out: Path) -> None:
    """What a reranker cannot do gets a sentence."""
    ranked = ("evaluate", reranker, "--retrieval", folder)
    commands: dict[tuple[object, ...], tuple[object, ...]] = {
        (*ranked, "--retriever", reranker): ("retriever", reranker),
        (*ranked, "--top", 101): ("top", 100),
        ("export", reranker, "--static", "--out", out / "s"): (reranker, "sentence vectors"),
    }
    for words, places in commands.items():
        status, _, err = run(*words)
        assert status == 2
        names(err.splitlines()[-1], *places)


@pytest.mark.thorough
def test_a_reranker_from_training_to_sentence_transformers(
    tiny_tokenizer: Path, tmp_path: Path, run: Run
) -> None:
    folder = make_collection(tmp_path / "data", 60, {"train": 40, "test": 20})
    model = recipe_file(tmp_path)
    words = ("finetune", model, "--tokenizer", tiny_tokenizer, "--task", "rerank", "--data", folder)
    status, out, err = run(
        *(*words, "--out", tmp_path / "run", "--steps", 6, "--device", "cpu", "--json")
    )
    assert status == 0, err
    report = json.loads(out)
    assert report["scores"][0].keys() == {"ndcg_at_10", "mrr_at_10"}
    # The other relevant document of a query shares no word with it, so BM25 alone is not perfect.
    assert 0.5 < report["baseline"]["scores"]["ndcg_at_10"] < 1
    tuned = tmp_path / "run"
    status, out, err = run(
        *("evaluate", tuned, "--retrieval", folder, "--top", 5, "--json", "--device", "cpu")
    )
    assert status == 0, err
    report = json.loads(out)

    # The first five of BM25, ranked by hand by what the model answers.
    collection = read_collection(folder)
    opened = litebert.load(tuned)
    names_of, texts = list(collection.documents), list(collection.documents.values())
    gains = []
    for (query, text), places in zip(
        collection.queries.items(), rank_by_bm25(collection, 5), strict=True
    ):
        numbers = [
            answer["prediction"] for answer in opened.predict([(text, texts[i]) for i in places])
        ]
        order = [names_of[places[i]] for i in np.argsort(-np.array(numbers))]
        grades = collection.grades[query]
        ideal = sorted(grades.values(), reverse=True)
        gains.append(
            sum(grades.get(name, 0) / np.log2(i + 2) for i, name in enumerate(order))
            / sum(grade / np.log2(i + 2) for i, grade in enumerate(ideal))
        )
    assert report["scores"]["ndcg_at_10"] == pytest.approx(np.mean(gains), abs=1e-3)
    assert report["bm25"]["recall_at_100"] >= report["scores"]["recall_at_100"]

    check_refusals(run, tuned, folder, tmp_path)
    status, _, err = run("convert", tuned, "--out", tmp_path / "hf", "--to", "hf")
    assert status == 0, err
    pairs = [(text, texts[3]) for text in list(collection.queries.values())[:4]]
    wanted = np.array([answer["prediction"] for answer in opened.predict(pairs)])
    back = [answer["prediction"] for answer in litebert.load(tmp_path / "hf").predict(pairs)]
    np.testing.assert_allclose(back, wanted, atol=1e-5)
    peers = pytest.importorskip(
        "sentence_transformers", reason="sentence-transformers is not installed"
    )
    peer = peers.CrossEncoder(str(tmp_path / "hf"), device="cpu")
    np.testing.assert_allclose(peer.predict(pairs), 1 / (1 + np.exp(-wanted)), atol=1e-5)


def test_mistakes_get_a_sentence(tiny_tokenizer: Path, tmp_path: Path, run: Run) -> None:
    grades = {"q1": {"d1": 1}}
    folder = write_collection(tmp_path / "a", {"d1": "a fox"}, {"q1": "fox"}, {"test": grades})
    model = recipe_file(tmp_path)

    def refuse(*words: object, places: tuple[object, ...]) -> None:
        status, _, err = run(
            *("finetune", model, "--tokenizer", tiny_tokenizer, "--task", "rerank"),
            *("--out", tmp_path / "run", *words),
        )
        assert status == 2
        names(err.splitlines()[-1], *places)

    refuse("--data", folder, places=(folder / "qrels", "train.tsv"))
    (folder / "qrels" / "test.tsv").rename(folder / "qrels" / "train.tsv")
    refuse("--data", folder, "--negatives", 0, places=("negatives", 0))
    refuse("--data", folder, "--heldout", 2, places=("heldout", "2.0"))
    refuse("--data", folder, folder, places=("one folder",))
    refuse("--data", tmp_path, places=(tmp_path, "corpus.jsonl"))


def test_a_text_of_a_relevant_document_is_never_wrong(tmp_path: Path) -> None:
    """Under another id, and where two queries with the same text have different judgments."""
    texts = [f"the red house number {i}" for i in range(8)]
    twins = [f" The red  house number {i}" for i in range(8)]
    documents = {f"d{i}": text for i, text in enumerate([*texts, *texts, *twins])}
    queries = {"q1": "red house number 1", "q2": "red house number 1", "q3": "red house 3"}
    grades = {"q1": {"d1": 1}, "q2": {"d2": 1}, "q3": {"d3": 1}}
    folder = write_collection(
        tmp_path / "data", documents, queries, {"train": grades, "dev": grades}
    )
    files = open_task("rerank", folder, negatives=20)
    for part in ("train", "dev"):
        rows = files.read(part)
        right, wrong = (
            {
                (row.text, " ".join(row.pair.lower().split()))
                for row in rows
                if bool(row.label) == label
            }
            for label in (True, False)
        )
        assert len(right) == 3
        assert wrong
        assert not right & wrong
    # Queries with one text are on one side of a split.
    many = {f"q{i}": f"red house number {i // 2}" for i in range(8)}
    judged = {name: {"d1": 1} for name in many}
    folder = write_collection(tmp_path / "split", documents, many, {"train": judged})
    files = open_task("rerank", folder, heldout=0.25)
    train, dev = ({row.text for row in files.read(part)} for part in ("train", "dev"))
    assert dev
    assert not train & dev
