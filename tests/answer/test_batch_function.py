"""A model as a function of batches: the answers of the model, in any process, read once."""

from __future__ import annotations

import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import litebert
from litebert import BatchFunction
from litebert.answer import batch_function
from litebert.base.errors import ConfigError, DataError
from litebert.tokenizer import Tokenizer
from toys.answers import made
from toys.refusals import refused

TEXTS = ["bado toto kumi", "mimi", "so ti fa la so ti fa la", "lala bado"]


@pytest.fixture(scope="module")
def classifier(tiny_tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("batches") / "classifier"
    task = {"task": "table", "problem": "classes", "pair": False}
    return made(folder, tiny_tokenizer, "sequence", 3, ("ja", "nein", "so"), **task)


@pytest.fixture(scope="module")
def tagger(tiny_tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("batches") / "tagger"
    return made(folder, tiny_tokenizer, "tokens", 3, ("O", "B-X", "I-X"))


def test_answers_have_the_columns_of_the_csv_and_of_the_batch(
    classifier: Path, tmp_path: Path
) -> None:
    batch = {"id": np.arange(4), "body": np.array(TEXTS)}
    columns = BatchFunction(classifier, columns=["body"])(batch)
    records = litebert.load(classifier).predict(TEXTS)
    assert list(columns) == ["id", "body", "prediction", "p_ja", "p_nein", "p_so"]
    assert columns["id"] is batch["id"]
    assert columns["prediction"].tolist() == [record["prediction"] for record in records]
    assert columns["p_ja"].dtype == float
    assert columns["p_ja"].tolist() == [record["probabilities"]["ja"] for record in records]


def test_vectors_and_ids(classifier: Path, tiny_tokenizer: Path) -> None:
    vectors = BatchFunction(classifier, "embed")({"text": TEXTS})["vectors"]
    assert np.array_equal(vectors, litebert.load(classifier).encode(TEXTS))
    short = BatchFunction(classifier, "embed", vector_size=5)({"text": TEXTS})["vectors"]
    assert short.shape == (4, 5)
    ids = BatchFunction(tiny_tokenizer, "tokenize", columns="text")({"text": TEXTS})["ids"]
    assert ids[0].dtype == np.uint16
    assert [row.tolist() for row in ids] == Tokenizer.load(tiny_tokenizer).encode(TEXTS)


def test_columns_of_arrow_are_those_of_lists(classifier: Path) -> None:
    function = BatchFunction(classifier, "embed")
    vectors = [function({"text": column})["vectors"] for column in (TEXTS, pa.array(TEXTS))]
    assert np.array_equal(*vectors)


def test_words_and_an_empty_batch(tagger: Path) -> None:
    tags = BatchFunction(tagger)({"text": [text.split() for text in TEXTS]})["prediction"]
    assert list(map(len, tags)) == [3, 1, 8, 2]
    assert len(BatchFunction(tagger)({"text": []})["prediction"]) == 0


@pytest.mark.thorough
def test_a_pickle_is_small_and_answers_in_another_process(
    classifier: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(classifier.parent)  # where the other process is not
    function = BatchFunction("classifier", "embed")
    expected = function({"text": TEXTS})["vectors"]
    data = pickle.dumps(function)
    assert len(data) < 1000
    (tmp_path / "function").write_bytes(data)
    code = (
        "import pickle, sys; from litebert.answer import batch_function as room\n"
        "function = pickle.load(open('function', 'rb'))\n"
        f"for _ in range(2): vectors = function({{'text': {TEXTS}}})['vectors']\n"
        "print(room._read_model.cache_info().misses); print(vectors.tobytes().hex())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    misses, vectors = done.stdout.split()
    assert misses == "1"
    assert np.allclose(np.frombuffer(bytes.fromhex(vectors), np.float32), expected.ravel(), 1e-5)


def test_a_model_is_read_once_until_its_files_change(
    tiny_tokenizer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["ja", "nein"]
    task = {"task": "table", "problem": "classes", "pair": False}
    calls: list[str] = []

    def load(path: str, **options: object) -> object:
        calls.append(path)
        return litebert.load(path)

    monkeypatch.setattr(batch_function, "load", load)
    for change in (1, 2):
        shutil.rmtree(tmp_path / "model", ignore_errors=True)
        folder = made(tmp_path / "model", tiny_tokenizer, "sequence", 2, tuple(names), **task)
        first, second = BatchFunction(folder), pickle.loads(pickle.dumps(BatchFunction(folder)))
        assert first == second
        for function in (first, second, first):
            answers = function({"text": TEXTS})["prediction"]
            assert set(answers) <= set(names)
        assert len(calls) == change
        names = ["yes", "no"]


def test_wrong_settings_and_batches_are_refused(classifier: Path) -> None:
    with refused(ConfigError, "verb is 'predcit'", "predict"):
        BatchFunction(classifier, "predcit")  # type: ignore[arg-type]
    with refused(ConfigError, "columns is ['a', 'b']", "one column to embed"):
        BatchFunction(classifier, "embed", columns=["a", "b"])
    with refused(DataError, "no column 'text'", "body", "`columns`"):
        BatchFunction(classifier)({"body": TEXTS})
    with refused(ConfigError, "vector_size is 3", "embed"):
        BatchFunction(classifier, vector_size=3)
    with refused(DataError, "text 2 is None"):
        BatchFunction(classifier, "tokenize")({"text": ["a", None]})
    with refused(DataError, "input 1 is 1"):
        BatchFunction(classifier)({"text": [1, 2, 3]})
