"""The estimators of scikit-learn, used as scikit-learn uses its own."""

from __future__ import annotations

import copy
import csv
import gc
import json
import pickle
import re
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import make_pipeline

from litebert import finetune, load, open_task
from litebert.base.errors import ConfigError, DataError, ModelError
from litebert.config import FinetuneConfig, replace
from litebert.demo import unpack
from litebert.fitting import methods
from litebert.sklearn import TextClassifier, TextRegressor, TextVectorizer
from litebert.tokenizer import Tokenizer
from toys.finetuning import finetune as finetune_with
from toys.finetuning import recipe_file, write_table
from toys.folders import save_hf
from toys.refusals import refused

PAGE = Path(__file__).resolve().parents[1] / "docs" / "sklearn.md"


@pytest.fixture
def settings(tmp_path: Path, tiny_tokenizer: Path) -> dict[str, Any]:
    """The parameters of a quick fit."""
    return {
        "model": str(recipe_file(tmp_path)),
        "tokenizer": str(tiny_tokenizer),
        "out": str(tmp_path / "fits"),
        "epochs": 2,
        "learning_rate": 3e-3,
        "batch_size": 16,
        "max_length": 32,
    }


@pytest.fixture
def rows(tmp_path: Path) -> tuple[list[str], list[str]]:
    """Texts, and the labels that their first words say."""
    with open(write_table(tmp_path / "rows.csv", 240), encoding="utf-8") as file:
        table = list(csv.DictReader(file))
    return [row["text"] for row in table], [row["label"] for row in table]


class TestClassifier:
    def test_it_learns_what_the_verb_learns(
        self, settings: dict[str, Any], rows: tuple[list[str], list[str]]
    ) -> None:
        texts, labels = rows
        classifier = TextClassifier(**settings | {"epochs": 6}).fit(texts, labels)
        assert classifier.score(texts, labels) > 0.9
        assert classifier.classes_.tolist() == ["no", "yes"]
        answers = load(classifier.folder_).predict(texts[:20])
        assert classifier.predict(texts[:20]).tolist() == [a["prediction"] for a in answers]
        probabilities = classifier.predict_proba(texts[:20])
        for answer, row in zip(answers, probabilities, strict=True):
            expected = [answer["probabilities"][name] for name in ("no", "yes")]
            assert row == pytest.approx(expected, abs=1e-5)

    @pytest.mark.thorough
    def test_the_parameters_reach_the_run(
        self, settings: dict[str, Any], rows: tuple[list[str], list[str]], tmp_path: Path
    ) -> None:
        """A fit ends with the bytes of `finetune` on the same rows and settings."""
        classifier = TextClassifier(**settings).fit(*rows)
        files = open_task("table", classifier.folder_.parent / "rows.jsonl", target="class")

        def change(config: FinetuneConfig) -> FinetuneConfig:
            optimizer = replace(config.train.optimizer, learning_rate=3e-3)
            train = replace(config.train, batch="16 sequences", optimizer=optimizer)
            return replace(config, epochs=2, length=32, train=train)

        out, words = tmp_path / "run", settings["tokenizer"]
        finetune(settings["model"], files, out, change, tokenizer=words)
        weights = "model/model.safetensors"
        actual = (classifier.folder_ / weights).read_bytes()
        assert actual == (tmp_path / "run" / weights).read_bytes()

    def test_classes_come_back_as_they_were(
        self, settings: dict[str, Any], rows: tuple[list[str], list[str]]
    ) -> None:
        texts, labels = rows
        numbers = np.array([10 if label == "yes" else 9 for label in labels])
        predicted = TextClassifier(**settings).fit(np.array(texts), numbers).predict(texts[:4])
        assert predicted.dtype == numbers.dtype
        assert {*predicted.tolist()} <= {9, 10}

    def test_columns_of_arrow_and_pairs_of_texts(
        self, settings: dict[str, Any], rows: tuple[list[str], list[str]]
    ) -> None:
        texts, labels = pyarrow.array(rows[0]), pyarrow.array(rows[1])
        fitted = TextClassifier(**settings).fit(texts, labels)
        assert fitted.folder_ == TextClassifier(**settings).fit(*rows).folder_
        pairs = [(text, "and more") for text in rows[0]]
        both = TextClassifier(**settings).fit(pairs, rows[1])
        assert len(both.predict(pairs[:3])) == 3

    @pytest.mark.thorough
    def test_a_repeated_fit_is_not_run_again(
        self, settings: dict[str, Any], rows: tuple[list[str], list[str]]
    ) -> None:
        first = TextClassifier(**settings).fit(*rows)
        written = (first.folder_ / "scores.json").stat().st_mtime_ns
        again = TextClassifier(**settings).fit(*rows)
        assert again.folder_ == first.folder_
        assert (again.folder_ / "scores.json").stat().st_mtime_ns == written
        other = TextClassifier(**settings | {"random_state": 1}).fit(*rows)
        assert other.folder_ != first.folder_

    @pytest.mark.thorough
    def test_a_fit_on_other_rows_leaves_the_folder_of_the_first(
        self, settings: dict[str, Any], rows: tuple[list[str], list[str]]
    ) -> None:
        texts, labels = rows
        classifier = TextClassifier(**settings).fit(texts, labels)
        first, before = pickle.dumps(classifier), classifier.predict_proba(texts[:8])
        opposite = ["no" if label == "yes" else "yes" for label in labels]
        classifier.fit(texts, opposite)
        assert not np.allclose(classifier.predict_proba(texts[:8]), before)
        assert np.array_equal(pickle.loads(first).predict_proba(texts[:8]), before)

    @pytest.mark.thorough
    def test_threads_that_fit_the_same_rows_share_a_run(
        self, settings: dict[str, Any], rows: tuple[list[str], list[str]]
    ) -> None:
        with ThreadPoolExecutor(3) as threads:
            fits = [threads.submit(TextClassifier(**settings).fit, *rows) for _ in range(3)]
        assert len({fit.result().folder_ for fit in fits}) == 1

    @pytest.mark.thorough
    def test_a_fitted_one_is_cross_validated_in_processes(
        self, settings: dict[str, Any], rows: tuple[list[str], list[str]]
    ) -> None:
        fitted = TextClassifier(**settings | {"out": None}).fit(*rows)
        scores = cross_validate(fitted, *rows, n_jobs=2, cv=2)["test_score"]
        assert scores.shape == (2,)

    @pytest.mark.thorough
    def test_a_class_with_a_nul_comes_back(
        self, settings: dict[str, Any], rows: tuple[list[str], list[str]]
    ) -> None:
        texts, labels = rows
        given = ["yes\0" if label == "yes" else "n\0o" for label in labels]
        assert set(TextClassifier(**settings).fit(texts, given).predict(texts)) <= {"yes\0", "n\0o"}

    @pytest.mark.thorough
    def test_a_pickle_names_the_folder(
        self, settings: dict[str, Any], rows: tuple[list[str], list[str]]
    ) -> None:
        fitted = TextClassifier(**settings).fit(*rows)
        before = fitted.predict_proba(rows[0][:8])
        restored = pickle.loads(pickle.dumps(fitted))
        assert np.array_equal(restored.predict_proba(rows[0][:8]), before)
        temporary = TextClassifier(**settings | {"out": None}).fit(*rows)
        first, second = pickle.loads(pickle.dumps(temporary)), copy.deepcopy(temporary)
        before = temporary.predict_proba(rows[0][:8])
        assert clone(temporary).get_params() == temporary.get_params()
        folder = temporary.folder_
        del temporary
        gc.collect()
        assert not folder.exists()
        again = pickle.loads(pickle.dumps(first))
        for one in (first, second, again):
            assert np.array_equal(one.predict_proba(rows[0][:8]), before)

    @pytest.mark.thorough
    def test_a_search_tries_and_refits(
        self, settings: dict[str, Any], rows: tuple[list[str], list[str]]
    ) -> None:
        search = GridSearchCV(TextClassifier(**settings), {"epochs": [1, 2]}, cv=2)
        search.fit(*rows)
        assert search.best_estimator_.folder_.is_dir()
        assert len(list(Path(settings["out"]).iterdir())) == 5

    @pytest.mark.thorough
    def test_labels_with_spaces_and_floats_come_back(
        self, settings: dict[str, Any], rows: tuple[list[str], list[str]]
    ) -> None:
        for classes in ([" no ", "yes"], [1.0, 2.5], [True, False]):
            labels = [classes[label == "yes"] for label in rows[1]]
            predicted = TextClassifier(**settings).fit(rows[0], labels).predict(rows[0][:9])
            assert {*predicted.tolist()} <= {*classes}

    def test_a_fit_that_fails_leaves_the_one_before(
        self, settings: dict[str, Any], rows: tuple[list[str], list[str]]
    ) -> None:
        texts, labels = rows
        fitted = TextClassifier(**settings | {"out": None}).fit(texts, labels)
        before = fitted.predict(texts[:8]).tolist()
        others = ["up" if label == "yes" else "down" for label in labels]
        with refused(ModelError, "nowhere"):
            fitted.set_params(model="nowhere").fit(texts, others)
        assert fitted.predict(texts[:8]).tolist() == before
        folder = fitted.folder_
        fitted.set_params(model=settings["model"]).fit(texts, others)
        assert {*fitted.predict(texts[:8]).tolist()} <= {"up", "down"}
        assert not folder.exists()
        assert fitted.folder_.exists()

    def test_numbers_of_numpy_are_parameters(
        self, settings: dict[str, Any], rows: tuple[list[str], list[str]]
    ) -> None:
        """A search over an array gives them."""
        arrays = {
            "epochs": np.int64(2),
            "learning_rate": np.float64(3e-3),
            "batch_size": np.int64(16),
            "max_length": np.int64(32),
            "random_state": np.int64(0),
        }
        fitted = TextClassifier(**settings | arrays).fit(*rows)
        assert fitted.folder_ == TextClassifier(**settings).fit(*rows).folder_
        with refused(ConfigError, "random_state"):
            TextClassifier(**settings | {"random_state": None}).fit(*rows)

    def test_texts_of_every_kind(
        self, settings: dict[str, Any], rows: tuple[list[str], list[str]]
    ) -> None:
        texts = [np.str_(rows[0][0]), "half \ud800 a character", *rows[0][2:]]
        fitted = TextClassifier(**settings).fit(texts, rows[1])
        assert len(fitted.predict(text for text in rows[0][:3])) == 3
        assert fitted.predict([]).shape == (0,)
        assert fitted.predict_proba([]).shape == (0, 2)

    def test_an_interrupt_reaches_the_caller_and_a_repeated_fit_continues(
        self,
        settings: dict[str, Any],
        rows: tuple[list[str], list[str]],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        sent: list[int] = []

        def interrupt(*_: Any) -> None:
            if not sent:
                sent.append(signal.SIGINT)
                signal.raise_signal(signal.SIGINT)

        def run(*arguments: Any, **options: Any) -> Any:
            return finetune_with(*arguments, **options, on_step=interrupt)

        classifier = TextClassifier(**settings)
        with monkeypatch.context() as patch:
            patch.setattr("litebert.finetuning.run.finetune", run)
            with pytest.raises(KeyboardInterrupt):
                classifier.fit(*rows)
        with pytest.raises(NotFittedError):
            classifier.predict(rows[0])
        assert len(classifier.fit(*rows).predict(rows[0])) == 240


def test_a_number_of_each_text(settings: dict[str, Any], rows: tuple[list[str], list[str]]) -> None:
    texts, labels = rows
    numbers = [2.5 if label == "yes" else -1.0 for label in labels]
    regressor = TextRegressor(**settings | {"epochs": 8}).fit(texts, numbers)
    assert regressor.score(texts, numbers) > 0.5
    answers = load(regressor.folder_).predict(texts[:5])
    assert regressor.predict(texts[:5]).tolist() == [answer["prediction"] for answer in answers]


def test_vectors_in_a_table(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    model, texts = unpack(tmp_path)["vectors"], ["a fine film", "a dull film"]
    table = pandas.DataFrame({"text": texts, "year": [1999, 2001]}, index=[7, 9])
    steps = [("vector", TextVectorizer(model), ["text"]), ("rest", "passthrough", ["year"])]
    result = ColumnTransformer(steps).set_output(transform="pandas").fit_transform(table)
    assert result.index.tolist() == [7, 9]
    assert result.columns[0] == "vector__textvectorizer0"
    assert np.array_equal(result.iloc[:, :-1].to_numpy(np.float32), load(model).encode(texts))


def test_vectors_in_a_pipeline(settings: dict[str, Any], rows: tuple[list[str], list[str]]) -> None:
    folder = TextClassifier(**settings).fit(*rows).folder_
    pipeline = make_pipeline(TextVectorizer(folder), LogisticRegression())
    pipeline.fit(*rows)
    assert np.array_equal(pipeline[0].transform(rows[0][:6]), load(folder).encode(rows[0][:6]))
    restored = pickle.loads(pickle.dumps(pipeline))
    assert restored.predict(rows[0]).tolist() == pipeline.predict(rows[0]).tolist()


@pytest.mark.parametrize(
    ("texts", "labels", "places"),
    [
        ("one text", ["a"], ["X"]),
        (["a", 3], ["x", "y"], ["X[1]", "3"]),
        (["a", ("b", "c")], ["x", "y"], ["pairs"]),
        (["a", "b"], ["x"], ["2 texts", "1 targets"]),
        (["a", "b"], ["x", "x"], ["'x'"]),
        (pyarrow.table({"text": ["a"], "by": ["b"]}), ["x"], ["X is a table"]),
        (["a", "b"], pyarrow.table({"label": ["x", "y"], "by": ["b", "c"]}), ["y is a table"]),
        ({"a", "b"}, ["x", "y"], ["X is"]),
        ({"a": 0, "b": 1}, ["x", "y"], ["X is"]),
        (["a", "b"], frozenset("xy"), ["y is"]),
        (["a", "b"], {"x": 0, "y": 1}, ["y is"]),
        (["a", "b", "c"], ["x\0y", "x y", "z"], ["the name 'x y'"]),
        (["a", "b"], ["x", "\0"], ["y[1]"]),
        (["a", "b"], None, ["y is None"]),
        (["a", "b"], "xy", ["y is 'xy'"]),
        (["a", "b"], ["x", None], ["y[1]", "None"]),
        (["a", "b"], ["x", float("nan")], ["y[1]", "nan"]),
        (["a", "b"], ["x", " "], ["y[1]", "' '"]),
        (["a", "b"], np.array([["x"], ["y"]]), ["y[0]", "['x']"]),
        (["a", "b"], [1, "1"], ["texts and numbers"]),
        (["a", "b"], ["x", "x "], ["the name 'x'"]),
        (["a", "b"], ["x", "\ud800"], ["y[1]"]),
    ],
)
def test_what_cannot_be_fitted_is_refused(
    settings: dict[str, Any], texts: Any, labels: Any, places: list[str]
) -> None:
    with refused(DataError, *places):
        TextClassifier(**settings).fit(texts, labels)


@pytest.mark.parametrize(
    ("texts", "numbers", "places"),
    [
        ([], [], ["X is empty"]),
        (["a", "b"], [1.0, 10**400], ["y[1]"]),
        (["a", "b"], [1.0, None], ["y[1]", "None"]),
        (["a", "b"], [float("nan"), 1.0], ["y[0]", "nan"]),
        (["a", "b"], np.zeros((2, 1)), ["y[0]", "[0.0]"]),
    ],
)
def test_numbers_that_cannot_be_fitted_are_refused(
    settings: dict[str, Any], texts: Any, numbers: Any, places: list[str]
) -> None:
    with refused(DataError, *places):
        TextRegressor(**settings).fit(texts, numbers)


@pytest.mark.thorough
def test_class_weights_and_the_metric(
    settings: dict[str, Any], rows: tuple[list[str], list[str]]
) -> None:
    """They reach the run and its baseline, by the values of y, and survive a clone."""
    texts, labels = rows
    numbers = np.array([10 if label == "yes" else 9 for label in labels])
    cases: tuple[tuple[Any, Any], ...] = (
        ("balanced", "balanced"),
        ({np.int64(10): 25, 9: 1.0}, {"10": 25.0, "9": 1.0}),
    )
    for class_weight, recorded in cases:
        classifier = TextClassifier(
            **settings | {"epochs": 1}, class_weight=class_weight, metric="macro_f1"
        )
        fitted = clone(classifier).fit(texts, numbers)
        identity = json.loads((fitted.folder_ / "finetune.json").read_text(encoding="utf-8"))
        assert (identity["metric"], identity["config"]["class_weights"]) == ("macro_f1", recorded)
        scores = json.loads((fitted.folder_ / "scores.json").read_text(encoding="utf-8"))
        assert "weighted" in scores["baseline"]["name"]
    # A weight of 25 against 1 lets a network that has learned little answer with this class.
    assert (fitted.predict(texts) == 10).mean() > 0.9


@pytest.mark.parametrize(
    ("parameters", "places"),
    [
        ({"class_weight": "balance"}, ["class_weight", "balance"]),
        ({"class_weight": {"maybe": 2}}, ["class_weight", "maybe"]),
        ({"class_weight": {"yes": 0}}, ["class_weights of yes", "above 0"]),
        ({"metric": "f1"}, ["metric", "macro_f1"]),
        ({"class_weight": {"yes": "heavy"}}, ["class_weight", "heavy"]),
        ({"class_weight": {"yes": None}}, ["class_weight", "None"]),
        ({"class_weight": np.ones(2)}, ["class_weight", "array"]),
        ({"metric": 5}, ["metric is 5"]),
        ({"device": None}, ["device is None"]),
        ({"tokenizer": 5}, ["tokenizer is 5"]),
        ({"model": 3}, ["model is 3"]),
        ({"out": "/dev/null/fits"}, ["/dev/null/fits"]),
        ({"out": "a" * 300}, ["a" * 300]),
        ({"out": "a\0b"}, [r"'a\x00b'"]),
    ],
)
def test_weights_and_metrics_that_cannot_be_are_refused(
    settings: dict[str, Any],
    rows: tuple[list[str], list[str]],
    parameters: dict[str, Any],
    places: list[str],
) -> None:
    with refused(ConfigError, *places):
        TextClassifier(**settings | parameters).fit(*rows)


def test_rows_of_weight_zero_teach_nothing(
    settings: dict[str, Any], rows: tuple[list[str], list[str]]
) -> None:
    """In a list, an array and a column, and the rows with an opposite label are as if not there."""
    texts, labels = rows
    wrong = ["yes" if label == "no" else "no" for label in labels]
    weights = [1.0] * len(texts) + [0] * len(texts)
    fits = [
        TextClassifier(**settings | {"epochs": 6}).fit(
            [*texts, *(f"{text} so" for text in texts)], labels + wrong, sample_weight=column
        )
        for column in (weights, np.array(weights), pyarrow.array(weights))
    ]
    assert len({str(fitted.folder_) for fitted in fits}) == 1  # equal weights are one fit
    assert fits[0].score(texts, labels) > 0.9
    for bad in ([1.0], ["x"] * len(texts), [-1.0] * len(texts), [np.nan] * len(texts)):
        with refused(DataError, "sample_weight", str(len(texts))):
            TextClassifier(**settings).fit(texts, labels, sample_weight=bad)


@pytest.mark.parametrize(
    ("name", "value"), [("max_length", 32.0), ("batch_size", "16"), ("epochs", "3")]
)
def test_parameters_of_another_kind_are_refused(
    settings: dict[str, Any], rows: tuple[list[str], list[str]], name: str, value: Any
) -> None:
    with refused(ConfigError, name, str(value), "number"):
        TextClassifier(**settings | {name: value}).fit(*rows)


def test_a_vectorizer_that_is_not_fitted_is_copied_unopened() -> None:
    copied = pickle.loads(pickle.dumps(TextVectorizer("nowhere")))
    with pytest.raises(NotFittedError):
        copied.transform(["a"])


def test_a_model_that_is_missing_and_one_that_is_not_fitted(
    settings: dict[str, Any], rows: tuple[list[str], list[str]]
) -> None:
    with refused(ModelError, "nowhere"):
        TextClassifier(**settings | {"model": "nowhere"}).fit(*rows)
    with pytest.raises(NotFittedError):
        TextClassifier(**settings).predict(["a"])


def test_without_a_model_the_encoder_of_fit_learns(
    tmp_path: Path, rows: tuple[list[str], list[str]], caplog: pytest.LogCaptureFixture
) -> None:
    """Here, where no Hub can be reached, the one of the package."""
    caplog.set_level("INFO")
    texts, labels = rows
    fitted = TextClassifier(out=tmp_path / "fits", epochs=2, max_length=16).fit(texts, labels)
    assert fitted.score(texts, labels) > 0.8
    assert "of the package" in caplog.text


def test_without_parameters_of_training_it_chooses_a_way(
    tmp_path: Path, rows: tuple[list[str], list[str]]
) -> None:
    """As `litebert fit` does, with the classes as they were given, and a number for a regressor."""
    texts, labels = rows
    numbers = [int(label == labels[0]) for label in labels]
    fitted = TextClassifier(out=tmp_path / "fits", methods=["tfidf", "frozen"]).fit(texts, numbers)
    found = json.loads((fitted.folder_ / "fit.json").read_text("utf-8"))
    assert {judged["method"] for judged in found["judged"]} == {"tfidf", "frozen"}
    assert fitted.score(texts, numbers) > 0.9
    assert fitted.predict(texts).dtype == np.array(numbers).dtype
    again = pickle.loads(pickle.dumps(fitted))
    assert (again.predict_proba(texts) == fitted.predict_proba(texts)).all()

    regressor = TextRegressor(methods=["tfidf"]).fit(texts, np.array(numbers, float))
    assert regressor.score(texts, numbers) > 0.5
    pairs = [(text, "a question") for text in texts]
    assert TextClassifier(methods=["tfidf"]).fit(pairs, labels).score(pairs, labels) > 0.9
    with refused(ConfigError, "methods", "leave one out"):
        TextClassifier(methods=["tfidf"], epochs=1).fit(texts, labels)
    with refused(ConfigError, "budget", "leave one out"):
        TextClassifier(budget="1h", epochs=1).fit(texts, labels)


def test_a_choice_that_is_interrupted_says_so_and_starts_over(
    tmp_path: Path, rows: tuple[list[str], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: Any) -> Any:
        raise KeyboardInterrupt

    classifier = TextClassifier(out=tmp_path / "fits", methods=["tfidf", "frozen"])
    with monkeypatch.context() as patched:
        patched.setitem(methods.METHODS, "frozen", interrupt)
        with pytest.raises(KeyboardInterrupt):
            classifier.fit(*rows)
    found = json.loads((classifier.fit(*rows).folder_ / "fit.json").read_text("utf-8"))
    assert {judged["method"] for judged in found["judged"]} == {"tfidf", "frozen"}


@pytest.mark.thorough
def test_the_page_runs(
    tmp_path: Path, tiny_tokenizer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every block of the page, in its order, in a folder that has what it names."""
    pytest.importorskip("pandas")
    import torch

    from litebert.model.pretrainer import Pretrainer
    from litebert.recipes.files import recipe

    monkeypatch.chdir(tmp_path)
    table = write_table(tmp_path / "train.csv", 60)
    table.write_text(table.read_text("utf-8").replace("label", "team", 1), "utf-8")
    torch.manual_seed(0)
    config, words = recipe(str(recipe_file(tmp_path))), Tokenizer.load(tiny_tokenizer)
    encoder = replace(config.encoder, vocab_size=words.vocab_size)
    model = Pretrainer(replace(config, encoder=encoder))
    save_hf(model, words, tmp_path / "run")
    page = PAGE.read_text("utf-8").replace("hf:sentence-transformers/all-MiniLM-L6-v2", "run")
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.M | re.S)
    names: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
    assert names["pipeline"].score(names["table"]["text"], names["table"]["team"]) >= 0.5
