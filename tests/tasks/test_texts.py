"""Rows, answers and scores of tasks over one or two texts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.special import expit, softmax

from litebert.base.errors import DataError
from litebert.tasks.text_outputs import Number, OneClass, SeveralLabels
from litebert.tasks.texts import Example, TextTask
from litebert.tokenizer import Tokenizer
from toys.refusals import names, refused
from toys.tasks import Opened


class Toy(TextTask):
    name = "toy"


CLASSES = Toy(OneClass(("no", "yes", "so")), score_names=("accuracy",))
LABELS = Toy(SeveralLabels(("a", "b")), score_names=("micro_f1", "exact"))
NUMBER = Toy(Number(), "pearson", score_names=("rmse", "pearson"))


@pytest.fixture(scope="module")
def tokenizer(tiny_tokenizer: Path) -> Tokenizer:
    return Tokenizer.load(tiny_tokenizer)


def test_rows_of_one_text_and_of_two(tokenizer: Tokenizer) -> None:
    task = Opened(None, Toy(OneClass(("no", "yes"))))
    first, second = tokenizer.encode(["Bado gifu", "kalo"])
    encoded, empty = task.encode([Example("Bado gifu", label=1), Example("")], tokenizer, 64)
    assert encoded.rows[0].ids.tolist() == [tokenizer.cls_id, *first, tokenizer.sep_id]
    assert (encoded.example, encoded.target, empty.example, empty.target) == (0, 1, 1, None)
    assert empty.rows[0].ids.tolist() == [tokenizer.cls_id, tokenizer.sep_id]
    alone, two = task.encode([Example("Bado gifu"), Example("Bado gifu", "kalo")], tokenizer, 64)
    assert alone.rows[0].ids.tolist() == encoded.rows[0].ids.tolist()
    assert two.rows[0].ids.tolist() == [
        tokenizer.cls_id,
        *first,
        tokenizer.sep_id,
        *second,
        tokenizer.sep_id,
    ]
    assert two.rows[0].types.tolist() == [0] * (len(first) + 2) + [1] * (len(second) + 1)
    assert task.notes == []


def test_longer_texts_are_cut_counted_and_said(tokenizer: Tokenizer) -> None:
    task = Opened(None, Toy(OneClass(("no", "yes"))))
    size = len(tokenizer.encode(["bado gifu kalo"])[0])
    exact = [Example("bado gifu kalo"), Example("bado gifu kalo bado"), Example("b" * 100_000)]
    items = task.encode(exact, tokenizer, size + 2)
    assert [len(item.rows[0].ids) for item in items] == [size + 2] * 3
    (note,) = task.notes
    names(note, size + 2, 2)
    paired = Opened(None, Toy(OneClass(("no", "yes"))))
    paired.encode([Example("bado gifu kalo", "")], tokenizer, size + 3)
    assert paired.notes == []
    paired = Opened(None, Toy(OneClass(("no", "yes"))))
    paired.encode([Example("bado gifu kalo", "")], tokenizer, size + 2)
    (note,) = paired.notes
    names(note, size + 2, 1)


@given(arrays(np.float32, (4, 3), elements=st.floats(-1e4, 1e4, width=32)))
def test_classes_are_the_likeliest_with_their_odds(logits: np.ndarray) -> None:
    answers = CLASSES.answers([], [], list(logits))
    assert [answer.value for answer in answers] == [
        CLASSES.output.labels[i] for i in logits.argmax(1)
    ]
    odds = np.stack([answer.probabilities for answer in answers])
    np.testing.assert_allclose(odds, softmax(logits.astype(np.float64), 1), atol=1e-12)


@given(arrays(np.float32, (4, 2), elements=st.floats(-1e4, 1e4, width=32)))
def test_labels_stand_each_alone(logits: np.ndarray) -> None:
    answers = LABELS.answers([], [], list(logits))
    odds = np.stack([answer.probabilities for answer in answers])
    np.testing.assert_allclose(odds, expit(logits.astype(np.float64)), atol=1e-12)
    for answer in answers:
        assert answer.value == tuple(np.array(LABELS.output.labels)[answer.probabilities > 0.5])


def test_numbers_are_as_the_head_gives_them() -> None:
    answers = NUMBER.answers([], [], [np.array([x], np.float32) for x in (-1.5, 7.25)])
    assert [(answer.value, len(answer.probabilities)) for answer in answers] == [
        (-1.5, 0),
        (7.25, 0),
    ]
    assert NUMBER.answers([], [], []) == []


def test_scores_of_the_examples_that_have_labels() -> None:
    examples = [Example("", label=0), Example(""), Example("", label=2)]
    logits = [np.array(row, np.float32) for row in ([1, 0, 0], [0, 0, 1], [0, 1, 0])]
    assert CLASSES.score(examples, CLASSES.answers(examples, [], logits)) == {"accuracy": 0.5}
    many = [Example("", label=(1, 0)), Example("", label=(1, 1))]
    answers = LABELS.answers(many, [], [np.array(row, np.float32) for row in ([1, -1], [1, -1])])
    assert LABELS.score(many, answers) == {
        "micro_f1": pytest.approx(2 * 2 / (2 * 2 + 1)),
        "exact": 0.5,
    }
    numbers = [Example("", label=1.0), Example("", label=3.0)]
    answers = NUMBER.answers(numbers, [], [np.array([x], np.float32) for x in (2, 3)])
    assert NUMBER.score(numbers, answers) == {
        "rmse": pytest.approx(0.5**0.5),
        "pearson": pytest.approx(1),
    }
    with refused(DataError, "toy"):
        CLASSES.score(examples[1:2], CLASSES.answers(examples[1:2], [], logits[:1]))


def test_how_often_each_label_occurs() -> None:
    assert CLASSES.output.counts([0, 0, 2]).tolist() == [2, 0, 1]
    assert LABELS.output.counts([(1, 0), (1, 1)]).tolist() == [2, 1]
    assert NUMBER.output.counts([1.0]).tolist() == []
