"""`litebert.mteb.Encoder` in mteb, on a tiny task of its own."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr

import litebert
from litebert.model.task_model import TaskModel
from litebert.mteb import Encoder
from litebert.tokenizer import Tokenizer
from toys.folders import save_litebert
from toys.points import randomize, shape

FIRSTS = ["bado toto", "kumi lala", "fa so la", "mimi", "toto kumi fa", "so so"]
SECONDS = ["toto bado", "kumi", "ti ti ti", "mimi mimi", "lala", "so la"]
SCORES = [5.0, 4.0, 0.0, 3.0, 1.0, 2.0]


@pytest.fixture
def model(tiny_tokenizer: Path, tmp_path: Path) -> Path:
    words = Tokenizer.load(tiny_tokenizer)
    network = TaskModel(shape(vocab_size=words.vocab_size, pooler=False), False, 0).eval()
    randomize(network, scale=0.15)
    vectors = {"pooling": "mean", "normalized": True}
    task = {"task": "pairs", "kind": "backbone", "problem": "similarity", "length": 16}
    save_litebert(network, words, tmp_path / "model", task={**task, "vectors": vectors})
    return tmp_path / "model"


def make_task() -> Any:
    """Make a task of mteb over the made-up pairs."""
    import datasets
    from mteb.abstasks import AbsTaskSTS
    from mteb.abstasks.task_metadata import TaskMetadata

    class TinySTS(AbsTaskSTS):  # type: ignore[misc]  # mteb has no types here
        metadata = TaskMetadata(
            name="TinySTS",
            description="Six made-up pairs.",
            dataset={"path": "litebert/tiny", "revision": "1"},
            type="STS",
            category="t2t",
            modalities=["text"],
            eval_splits=["test"],
            eval_langs=["eng-Latn"],
            main_score="cosine_spearman",
            reference=None,
            date=None,
            domains=None,
            task_subtypes=None,
            license=None,
            annotations_creators=None,
            dialect=None,
            sample_creation=None,
            bibtex_citation="",
        )
        min_score, max_score = 0, 5

        def load_data(self, **options: Any) -> None:
            columns = {"sentence1": FIRSTS, "sentence2": SECONDS, "score": SCORES}
            self.dataset = datasets.DatasetDict({"test": datasets.Dataset.from_dict(columns)})
            self.data_loaded = True

    return TinySTS()


@pytest.mark.thorough
def test_mteb_scores_the_vectors(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mteb = pytest.importorskip("mteb", reason="mteb is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those of mteb and its libraries
        result = mteb.evaluate(
            Encoder(model), make_task(), cache=None, co2_tracker=False, show_progress_bar=False
        )
    score = result.task_results[0].scores["test"][0]["cosine_spearman"]
    opened = litebert.load(model)
    cosines = (opened.encode(FIRSTS) * opened.encode(SECONDS)).sum(1)
    assert score == pytest.approx(spearmanr(cosines, SCORES).statistic, abs=1e-6)


def test_it_encodes_batches(model: Path) -> None:
    encoder = Encoder(model, vector_size=4)
    vectors = encoder.encode([{"text": FIRSTS[:4]}, {"text": FIRSTS[4:]}], hf_split="test")
    assert vectors.shape == (6, 4)
    whole = litebert.load(model).encode(FIRSTS)[:, :4]
    units = whole / np.linalg.norm(whole, axis=1, keepdims=True)
    np.testing.assert_allclose(vectors, units, atol=1e-6)
    np.testing.assert_allclose(encoder.similarity(whole, vectors), units @ units.T, atol=1e-6)
    pairwise = encoder.similarity_pairwise(whole, vectors)
    np.testing.assert_allclose(pairwise, np.ones(6), atol=1e-6)


def test_results_have_the_name_that_the_hub_has(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = SimpleNamespace(ModelMeta=SimpleNamespace(create_empty=lambda facts: facts))
    for name in ("mteb", "mteb.models", "mteb.models.model_meta"):
        monkeypatch.setitem(sys.modules, name, metadata)
    encoder = Encoder(model)
    assert encoder.mteb_model_meta["name"] == f"litebert/{model.name}"
    monkeypatch.setattr(encoder, "_name", "hf:some/model@v2")
    facts = encoder.mteb_model_meta
    assert (facts["name"], facts["revision"]) == ("some/model", "v2")
