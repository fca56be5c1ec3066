"""SQuAD: scores, the threshold of no answer and the part it is tuned on, and predictions out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from litebert.base.errors import DataError
from litebert.tasks.squad.files import Gold, Question
from litebert.tasks.squad.scores import halve, judge
from litebert.tasks.squad.spans import Answer, Candidate
from toys.refusals import names, refused
from toys.tasks import Squad

CONTEXT = "Zoë's café, in São Paulo, sold 1,200 cups. It closed in 1999."
YEAR = Gold("1999", CONTEXT.index("1999"))


def make_answer(text: str, odds: float) -> Answer:
    return Answer(
        text, odds, (odds, 0.0), (Candidate(text, 0.0, 0.0), Candidate("else", -1.0, -1.0))
    )


def some_questions(count: int) -> tuple[list[Question], list[Answer]]:
    """Half of them without an answer; odds above 2 tell them, but for a few."""
    questions, answers = [], []
    for i in range(count):
        gold = () if i % 2 else (YEAR,)
        questions.append(Question(f"id{i}", "when", CONTEXT, gold, not gold))
        answers.append(
            make_answer("1999", 2 + i / 1000 + (1 + i % 7) * (1 if (i % 2 or i % 11 == 0) else -1))
        )
    return questions, answers


def test_the_threshold_is_tuned_on_one_half_and_reported_on_the_other() -> None:
    questions, answers = some_questions(200)
    half, dev, fixed = (
        Squad(version=2, threshold=threshold).score(questions, answers)
        for threshold in ("half", "dev", -3.0)
    )
    assert (half["total"], dev["total"], fixed["total"]) == (100, 200, 200)
    assert 1 <= half["threshold"] <= 3
    assert (half["f1"] > 80, fixed["threshold"], fixed["f1"] < half["f1"]) == (True, -3, True)
    assert dev["f1"] == dev["best_f1"] >= half["f1"] - 10
    assert "best_f1" not in half
    # What the reported half says cannot move the threshold.
    tuned = {question.id for question in questions} - {
        q.id for q in report_questions(questions, answers)
    }
    spoilt = [
        answer if q.id in tuned else make_answer("wrong", -50.0)
        for q, answer in zip(questions, answers, strict=True)
    ]
    again = Squad(version=2).score(questions, spoilt)
    assert again["threshold"] == half["threshold"]
    assert again["f1"] == 0


def report_questions(questions: list[Question], answers: list[Answer]) -> list[Question]:
    second_half = halve(
        [judge(q.id, a.value, a.odds, ["x"]) for q, a in zip(questions, answers, strict=True)]
    )[1]
    return [
        question
        for question in questions
        if question.id in {question.id for question in second_half}
    ]


def test_only_what_is_known_is_scored() -> None:
    unknown = Question("u", "who", CONTEXT, (), False)
    answerable = Question("k", "who", CONTEXT, (YEAR,), False)
    task = Squad(version=1)
    assert task.score([unknown, answerable], [make_answer("x", 0), make_answer("1999", 0)]) == {
        "exact_match": 100.0,
        "f1": 100.0,
    }
    with refused(DataError, "squad"):
        task.score([unknown], [make_answer("x", 0)])


def test_written_files(tmp_path: Path) -> None:
    questions, answers = some_questions(40)
    task = Squad(version=2)
    task.write(questions, answers, tmp_path / "p.json")
    threshold = task.score(questions, answers)["threshold"]
    predictions, odds, nbest = (
        json.loads((tmp_path / name).read_text("utf-8"))
        for name in ("p.json", "null_odds_p.json", "nbest_p.json")
    )
    assert predictions == {
        question.id: "" if answer.odds > threshold else "1999"
        for question, answer in zip(questions, answers, strict=True)
    }
    assert odds == {
        question.id: answer.odds for question, answer in zip(questions, answers, strict=True)
    }
    for name, answer in zip(nbest, answers, strict=True):
        assert {answer["text"] for answer in nbest[name]} == {"1999", "else", ""}
        assert sum(answer["probability"] for answer in nbest[name]) == pytest.approx(1)
        scores = [answer["start_logit"] + answer["end_logit"] for answer in nbest[name]]
        assert scores == sorted(scores, reverse=True)
        assert (nbest[name][0]["text"] == "") == (answer.odds > 0)
    (tmp_path / "one").mkdir()
    Squad(version=1).write(questions, answers, tmp_path / "one" / "q")
    assert sorted(path.name for path in (tmp_path / "one").iterdir()) == ["nbest_q", "q"]
    assert set(json.loads((tmp_path / "one/q").read_text()).values()) == {"1999"}


def test_writing_without_known_answers(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "litebert")
    questions = [Question("é", "who", CONTEXT, (), False)]
    for threshold, text, notes in (("half", "", 1), (5.0, "1999", 0)):
        task = Squad(version=2, threshold=threshold)
        task.write(questions, [make_answer("1999", 1.0)], tmp_path / "p.json")
        assert json.loads((tmp_path / "p.json").read_text("utf-8")) == {"é": text}
        assert len(caplog.messages) == notes
        for message in caplog.messages:
            names(message, "dev", "threshold", 0)
        caplog.clear()


def in_a_file(path: Path, questions: Sequence[Question], has_answers: bool) -> Path:
    """Questions as the official file has them."""
    entries = []
    for question in questions:
        answers = [{"text": gold.text, "answer_start": gold.start} for gold in question.answers]
        known_of = {"answers": answers, "is_impossible": question.impossible} if has_answers else {}
        entries.append({"id": question.id, "question": question.text, **known_of})
    data = [{"paragraphs": [{"context": CONTEXT, "qas": entries}]}]
    path.write_text(json.dumps({"version": "v2.0", "data": data}), encoding="utf-8")
    return path


def read_written(path: Path) -> dict[str, str]:
    answers: dict[str, str] = json.loads(path.read_text("utf-8"))
    return answers


@pytest.mark.parametrize("has_answers", [True, False])
@pytest.mark.parametrize("threshold", ["half", "dev"])
def test_the_threshold_of_dev_cuts_the_test_part(
    threshold: Any, has_answers: bool, tmp_path: Path
) -> None:
    """The test part may have answers, which are never tuned on; the same ids in both
    parts are no matter.
    """
    questions, answers = some_questions(60)
    dev = in_a_file(tmp_path / "dev.json", questions, True)
    # In the test part no answer is right far below the odds that tell in dev: tuned on itself, all
    # would be answered.
    others = [
        question._replace(text="since", answers=(YEAR,), impossible=False)
        for question in questions[:30]
    ]
    test = in_a_file(tmp_path / "test.json", others, has_answers)
    task = Squad(dev=dev, test=test, threshold=threshold)
    parts = {part: task.read(part) for part in ("dev", "test")}
    tuned = task.score(parts["dev"], answers)["threshold"]
    assert 1 <= tuned <= 3
    ready = task.tune(parts["dev"], answers)
    assert (ready.threshold, task.threshold) == (tuned, threshold), "a task is a value"
    if has_answers:
        scores = ready.score(parts["test"], answers[:30])
        assert (scores["threshold"], scores["total"], "best_f1" in scores) == (tuned, 30, False)
    for part in ("dev", "test"):
        ready.write(parts[part], answers[: len(parts[part])], tmp_path / f"said-{part}.json")
    is_answered = [answer.odds <= tuned for answer in answers]
    assert [bool(text) for text in read_written(tmp_path / "said-dev.json").values()] == is_answered
    assert [
        bool(text) for text in read_written(tmp_path / "said-test.json").values()
    ] == is_answered[:30]
    assert not all(is_answered[:30])
