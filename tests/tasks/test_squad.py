"""SQuAD: windows of rows, and answers cut from the raw text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litebert.base.errors import ConfigError, DataError
from litebert.tasks.squad.files import Gold, Question
from litebert.tasks.squad.spans import split_windows
from litebert.tasks.token_outputs import OneSpan
from litebert.tasks.values import Item
from litebert.tokenizer import Tokenizer
from litebert.tokenizer.training import train_tokenizer
from toys.refusals import names, refused
from toys.tasks import Squad

CONTEXT = (
    "Zoë's café, in São Paulo,\u00a0sold 1,200 cups (½ price) to 猫 fans. " * 3
    + "It closed in 1999."
)
LETTERS = "abcdefghijklmnopqrstuvwxyz"


@pytest.fixture(scope="module", params=["unigram", "wordpiece", "bpe"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    size = {"unigram": 50, "wordpiece": 100, "bpe": 280}[request.param]
    return train_tokenizer(
        [CONTEXT, "who what where when"] * 5, kind=request.param, vocab_size=size
    )


def at(text: str, context: str = CONTEXT, nth: int = 0) -> Gold:
    start = -1
    for _ in range(nth + 1):
        start = context.index(text, start + 1)
    return Gold(text, start)


def logits_of(items: Sequence[Item]) -> list[np.ndarray]:
    """Logits of a model that knows the targets."""
    all_logits = []
    for item in items:
        logits = np.zeros((len(item.rows[0].ids), 2), np.float32)
        if item.target is not None and (item.target != (0, 0)):
            logits[item.target[0], 0] = logits[item.target[1], 1] = 9
        elif item.target is not None:
            logits[0] = 3
        all_logits.append(logits)
    return all_logits


def test_what_cannot_be_asked_for(tmp_path: Path, letters: Tokenizer) -> None:
    with refused(DataError, tmp_path / "none.json"):
        Squad(dev=tmp_path / "none.json").read("dev")
    with refused(DataError, tmp_path):
        _ = Squad(dev=tmp_path).version
    (tmp_path / "a.json").write_text("{}", encoding="utf-8")
    with refused(DataError, "squad", "train", "dev"):
        Squad(dev=tmp_path / "a.json").read("train")
    wrong: list[tuple[str, Any, list[Any]]] = [
        ("threshold", "best", ["'half'", "'dev'"]),
        ("threshold", float("nan"), []),
        ("version", 3, [1, 2]),
        ("stride", 0, []),
        ("answer_tokens", 0, []),
        ("heldout", 1, [0]),
    ]
    for option, value, right in wrong:
        with refused(ConfigError, option, value, *right):
            Squad(**{option: value})
    question = Question("q", "who", "a b", (), False)
    with refused(ConfigError, 4, 384):
        Squad().encode([question], letters, 4)


# ------------------------------------------------------------------------------------------ windows


def articles(path: Path, count: int) -> Path:
    """Articles of two questions about two paragraphs each."""
    data = []
    for i in range(count):
        paragraphs = [
            {
                "context": f"He is {word}.",
                "qas": [
                    {
                        "id": f"{i}-{word}",
                        "question": "Who?",
                        "answers": [{"text": word, "answer_start": 6}],
                    }
                ],
            }
            for word in ("here", "away")
        ]
        data.append({"title": str(i), "paragraphs": paragraphs})
    path.write_text(json.dumps({"version": "1.1", "data": data}), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("count", "share", "held"), [(20, 0.1, 2), (20, 0.5, 10), (2, 0.1, 1), (2, 0.99, 1)]
)
def test_without_a_dev_file_whole_articles_are_held_out(
    count: int, share: float, held: int, tmp_path: Path
) -> None:
    path = articles(tmp_path / "train.json", count)
    task = Squad(train=path, heldout=share)
    assert task.dev == ("dev",)
    train = [question.id for question in task.read("train")]
    (note,) = task.notes
    names(note, path, count, held)
    dev = [question.id for question in task.read("dev")]
    assert sorted(train + dev) == sorted(
        question.id for question in Squad(train=path, dev=path).read("dev")
    )
    parts = [{name.split("-")[0] for name in part} for part in (train, dev)]
    assert not parts[0] & parts[1]
    assert len(parts[1]) == held
    assert [question.id for question in Squad(train=path, heldout=share).read("dev")] == dev


def test_wrong_offsets_are_counted_in_the_part_they_are_in(tmp_path: Path) -> None:
    path = articles(tmp_path / "train.json", 4)
    whole = json.loads(path.read_text(encoding="utf-8"))
    for article in whole["data"]:
        article["paragraphs"][0]["qas"][0]["answers"][0]["answer_start"] = 1
    path.write_text(json.dumps(whole), encoding="utf-8")
    task = Squad(train=path, heldout=0.25)
    task.read("train")
    names(next(note for note in task.notes if "answer_start" in note), 3)
    task.read("dev")
    (note,) = task.notes
    names(note, "answer_start", 1)


def test_a_row(letters: Tokenizer) -> None:
    question = Question("q", "  who ran ", "the fox", (Gold("fox", 4),), False)
    (item,) = Squad().encode([question], letters, 64)
    row = item.rows[0]
    pieces = " ".join(letters.get_token(int(i)) for i in row.ids)
    assert pieces == "[CLS] w ##h ##o r ##a ##n [SEP] t ##h ##e f ##o ##x [SEP]"
    assert row.types.tolist() == [0] * 8 + [1] * 7
    assert item.target == (11, 13)
    assert item.detail.first == 8


def test_two_separators(tokenizer: Tokenizer) -> None:
    question = Question("q", "who sold", CONTEXT, (at("1999", CONTEXT),), False)
    items = Squad().encode([question], tokenizer, 64)
    question_ids = tokenizer.encode(["who sold"])[0]
    separators = [tokenizer.sep_id] * tokenizer.pair_separators
    assert len(items) > 1
    for item in items:
        ids = item.rows[0].ids.tolist()
        assert len(ids) <= 64
        assert ids[: item.detail.first] == [tokenizer.cls_id, *question_ids, *separators]
        assert ids[-1] == tokenizer.sep_id
        assert len(ids) == item.detail.first + len(item.detail.spans) + 1
    assert len(items[0].rows[0].ids) == 64


@pytest.mark.parametrize(("length", "expected_tokens"), [(512, 64), (384, 64), (64, 30)])
def test_long_questions_are_cut(letters: Tokenizer, length: int, expected_tokens: int) -> None:
    task = Squad()
    question = Question("q", "x" * 90, "the fox", (at("fox", "the fox"),), False)
    (item,) = task.encode([question], letters, length)
    assert item.detail.first == 2 + expected_tokens
    (note,) = task.notes
    names(note, expected_tokens, 1)


@settings(max_examples=200)
@given(n=st.integers(0, 90), size=st.integers(1, 40), stride=st.integers(1, 40))
def test_every_token_is_in_a_window_and_belongs_to_one(n: int, size: int, stride: int) -> None:
    cut = list(split_windows(n, size, stride))
    assert cut[0][0] == 0
    assert cut[-1][1] == n
    for (begin, end, owned), (later, _, _) in pairwise(cut):
        assert end - begin == size
        assert later - begin == min(stride, (size + 1) // 2)
        assert len(owned) == end - begin
        assert end < n, "the last window is the first that reaches the end"
    owners: list[list[int]] = [[] for _ in range(n)]
    for i, (begin, _, owned) in enumerate(cut):
        for place in np.flatnonzero(owned):
            owners[begin + place].append(i)
    for token, owner in enumerate(owners):  # the rule of maximum context, said plainly
        worth = {
            i: min(token - begin, end - 1 - token) + 0.01 * (end - begin)
            for i, (begin, end, _) in enumerate(cut)
            if begin <= token < end
        }
        assert owner == [max(worth, key=lambda i: (worth[i], -i))]


def test_the_papers_windows() -> None:
    assert [(begin, end) for begin, end, _ in split_windows(500, 350, 128)] == [
        (0, 350),
        (128, 478),
        (256, 500),
    ]


def test_targets(letters: Tokenizer) -> None:
    context = "the fox ran off and the dog sat on the mat all day long"
    golds = (at("dog sat", context),)
    questions = [
        Question("there", "who", context, golds, False),
        Question("nowhere", "who", context, (), True),
        Question("unknown", "who", context, (), False),
        Question("too long", "who", context, (at(context, context),), False),
        Question("unseen", "who", "a \u200b b", (at("\u200b", "a \u200b b"),), False),
    ]
    task = Squad()
    items = task.encode(questions, letters, 32)
    targets = [[item.target for item in items if item.example == i] for i in range(5)]
    assert len(targets[0]) > 2
    hits = [item for item in items if item.example == 0 and item.target != (0, 0)]
    assert 0 < len(hits) < len(targets[0])
    for item in hits:
        ids = item.rows[0].ids[item.target[0] : item.target[1] + 1]
        assert " ".join(letters.get_token(int(i)) for i in ids) == "d ##o ##g s ##a ##t"
    assert set(targets[1]) == {(0, 0)}
    assert {*targets[2], *targets[3], *targets[4]} == {None}
    too_long, unread = task.notes
    names(too_long, 32, 1)
    names(unread, 1)


# ------------------------------------------------------------------------------------------ answers

SPANS = [
    "Zoë's café",
    "café",
    "São Paulo",
    "1,200",
    "(½ price)",
    "½",
    "猫",
    "猫 fans",
    "1999",
    "Paulo,\u00a0sold",
]


@pytest.mark.parametrize("length", [384, 64])
def test_answers_are_cut_from_the_raw_text(tokenizer: Tokenizer, length: int) -> None:
    questions = [
        Question(f"{text}{nth}", "who sold", CONTEXT, (at(text, nth=nth),), False)
        for text in SPANS
        for nth in range(min(3, CONTEXT.count(text)))
    ]
    task = Squad(version=1, threshold=0.0)
    items = task.encode(questions, tokenizer, length)
    answers = task.answers(questions, items, logits_of(items))
    assert [answer.value for answer in answers] == [
        question.answers[0].text for question in questions
    ]
    assert task.score(questions, answers) == {"exact_match": 100.0, "f1": 100.0}


def test_of_two_windows_the_one_with_more_context_answers(letters: Tokenizer) -> None:
    question = Question("q", "who", "the fox ran off and the dog sat on the mat", (), False)
    task = Squad(version=1)
    items = task.encode([question], letters, 32)
    logits = [np.full((len(item.rows[0].ids), 2), -5.0, np.float32) for item in items]
    last = len(items[0].detail.spans) - 1
    assert not items[0].detail.owned[last]
    logits[0][items[0].detail.first + last, 0] = 99  # at the edge of the first window
    (answer,) = task.answers([question], items, logits)
    assert {candidate.score for candidate in answer.candidates} == {-10}
    logits[0][items[0].detail.first] = 7
    (answer,) = task.answers([question], items, logits)
    assert (answer.value, answer.candidates[0].score) == ("t", 14)


def test_special_tokens_and_the_question_are_no_answer(letters: Tokenizer) -> None:
    question = Question("q", "who", "the fox", (), False)
    task = Squad(version=1)
    items = task.encode([question], letters, 32)
    logits = np.zeros((len(items[0].rows[0].ids) + 8, 2), np.float32)  # padded
    logits[: items[0].detail.first] = logits[len(items[0].rows[0].ids) - 1 :] = 50
    logits[items[0].detail.first + 3 :][:3] = 1
    (answer,) = task.answers([question], items, [logits])
    assert {candidate.score for candidate in answer.candidates} <= {0.0, 1.0, 2.0}
    assert answer.value in ("fox", "f", "o", "x", "fo", "ox")
    assert answer.odds == 98


@settings(max_examples=100)
@given(n=st.integers(0, 40), longest=st.integers(1, 12), seed=st.integers(0, 99))
def test_the_best_spans_are_those_of_a_full_search(n: int, longest: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    logits, owned = draw.normal(size=(n, 2)), draw.random(n) < 0.7
    every = [
        (logits[i, 0] + logits[j, 1], i, j)
        for i in range(n)
        if owned[i]
        for j in range(i, min(n, i + longest))
    ]
    expected = [(i, j) for _, i, j in sorted(every, reverse=True)[:20]]
    logits[~owned, 0] = -np.inf
    assert OneSpan(longest=longest).answers([logits]) == [expected]


def test_n_best_and_no_answer(letters: Tokenizer) -> None:
    question = Question("q", "who", "fox fox fox and the dog sat on the mat", (), False)
    task = Squad(version=2)
    items = task.encode([question], letters, 24)
    assert len(items) > 1
    draw = np.random.default_rng(0)
    logits = [draw.normal(size=(len(item.rows[0].ids), 2)).astype(np.float32) for item in items]
    (answer,) = task.answers([question], items, logits)
    texts = [candidate.text for candidate in answer.candidates]
    assert len(texts) == len(set(texts)) == 20
    scores = [candidate.score for candidate in answer.candidates]
    assert scores == sorted(scores, reverse=True)
    assert texts[0] == answer.value
    null = min(float(logit[0, 0]) + float(logit[0, 1]) for logit in logits)
    assert answer.odds == pytest.approx(null - scores[0])
    assert task.choose_texts([answer], answer.odds) == [answer.value]
    assert task.choose_texts([answer], answer.odds - 1e-6) == [""]
    assert Squad(version=1).choose_texts([answer], -99.0) == [answer.value]


def test_a_text_of_nothing(tokenizer: Tokenizer) -> None:
    for context in ("", " \n "):
        question = Question("q", "who", context, (), True)
        task = Squad(version=2, threshold=0.0)
        items = task.encode([question], tokenizer, 32)
        assert len(items) == 1
        (answer,) = task.answers([question], items, logits_of(items))
        assert answer.value == ""
        assert task.score([question], [answer])["f1"] == 100


# ---------------------------------------------------------------------------------------- real data


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("file", "version", "count"), [("dev-v1.1.json", 1, 10570), ("part-v2.0.json", 2, 6078)]
)
def test_a_model_that_knows_the_answers(
    shared_data: Path, file: str, version: int, count: int
) -> None:
    options: dict[str, Any] = {"threshold": 0.0} if version == 2 else {}
    task = Squad(dev=shared_data / "squad" / file, **options)
    questions = task.read("dev")
    assert (task.version, len(questions), task.notes) == (version, count, [])
    vocabulary = Tokenizer.load(shared_data / "vocab" / "bert-base-uncased-vocab.txt")
    some = questions[::5]
    items = task.encode(some, vocabulary, 384)
    answers = task.answers(some, items, logits_of(items))
    scores = task.score(some, answers)
    # Lost are gold answers that are part of a piece ("8" of "18") and those of more than 30 tokens.
    assert scores["f1"] > 99.7
    exact = [
        answer.value == question.answers[0].text
        for question, answer in zip(some, answers, strict=True)
        if question.answers
    ]
    assert np.mean(exact) > 0.99
