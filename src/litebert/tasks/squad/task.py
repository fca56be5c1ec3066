"""SQuAD 1.1 and 2.0: the answer to a question is a span of a text, or, in 2.0, perhaps there is
none.

A text longer than a row is read in windows that overlap (spans.py). The score of "no answer" is
that of [CLS] as start and end, as in BERT's code; the heads of ALBERT's code for 2.0 are a
different model.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from litebert.errors import ConfigError, DataError, nearest
from litebert.finetuning.examples import ModelExample
from litebert.finetuning.items import Item, build_row
from litebert.finetuning.outputs import softmax
from litebert.finetuning.token_outputs import OneSpan
from litebert.storage import write_json
from litebert.tasks.parts import FileTask, Layout, Source, given_files, layout_of, named
from litebert.tasks.predictions import texts
from litebert.tasks.squad.files import Question, may_be_unanswerable, read_questions, stands
from litebert.tasks.squad.scores import (
    AnswerUnit,
    best_threshold,
    halves,
    judge,
    scores_1,
    scores_2,
    tune,
    without_spaces,
)
from litebert.tasks.squad.spans import Answer, Candidate, Window, best_answer, tokens_of, windows
from litebert.text.records import FileFormat, Notes, format_value, read_records, require_text
from litebert.tokenizer import Tokenizer

QUESTION_TOKENS = 64
"""Most tokens of a question by default; less if that would be more than half of a row."""
STRIDE = 128
"""Tokens from the start of a window to the next; less where that would be more than half of a
window.
"""
ANSWER_TOKENS = 30
"""Most tokens of an answer that is found, by default; training has no limit."""
Threshold = Literal["half", "dev"] | float
"""How much likelier no answer must be than an answer, in logits, to be given. `half`: the threshold
that is best for one half of the scored questions, and the scores of the other half. `dev`: the
papers' way, the best for the very questions that are scored, which flatters. Or a number. What is
tuned is tuned on the dev part, and cuts the test part too, whose own answers are never looked at
for it."""


class Squad(FileTask[Question]):
    """SQuAD from the files of its parts.

    Without `dev`, a share `heldout` of the articles of `train` takes its place: whole articles, for
    questions about one text help to answer one another. `version` is 1 or 2; None looks into the
    files: 2 where one says so, or says of questions whether they can be answered. The scores are
    those of the official script of the version, as percentages; for your own files in a language
    without spaces, F1 may be counted over `characters` instead (`answer_unit`).
    """

    name, suffix = "squad", ".json"
    inputs = "give (question, context)"
    predicted_files = ("QUESTIONS.json", "ANSWERS.json")
    takes = (
        "dev",
        "test",
        "threshold",
        "stride",
        "answer_tokens",
        "question_tokens",
        "answer_unit",
        "heldout",
        "encoding",
    )
    usual = MappingProxyType(
        {
            "version": 1,
            "threshold": 0.0,
            "stride": STRIDE,
            "answer_tokens": ANSWER_TOKENS,
            "question_tokens": QUESTION_TOKENS,
            "answer_unit": "words",
        }
    )
    suffixes = (".json",)
    percent = True
    output: OneSpan

    def __init__(
        self,
        *,
        train: Source | None = None,
        dev: Source | None = None,
        test: Source | None = None,
        version: Literal[1, 2] | None = None,
        threshold: Threshold = "half",
        stride: int = STRIDE,
        answer_tokens: int = ANSWER_TOKENS,
        question_tokens: int = QUESTION_TOKENS,
        answer_unit: AnswerUnit = "words",
        heldout: float = 0.1,
        layout: Layout | None = None,
    ) -> None:
        if version not in (None, 1, 2):
            raise ConfigError(
                f"version is {version!r}; give 1 for SQuAD 1.1, 2 for SQuAD 2.0, or leave it out"
            )
        if threshold not in ("half", "dev") and (
            isinstance(threshold, str) or math.isnan(threshold)
        ):
            raise ConfigError(f"threshold is '{threshold}'; give 'half', 'dev' or a number")
        for name, value in (
            ("stride", stride),
            ("answer_tokens", answer_tokens),
            ("question_tokens", question_tokens),
        ):
            if value < 1:
                raise ConfigError(f"{name} is {value}; give at least one token")
        if answer_unit not in get_args(AnswerUnit):
            raise ConfigError(
                f"answer_unit is '{answer_unit}'; {nearest(answer_unit, get_args(AnswerUnit))}"
            )
        files = {"train": train, "dev": dev, "test": test}
        super().__init__(
            OneSpan(longest=answer_tokens), files=files, heldout=heldout, layout=layout
        )
        self.question_tokens, self.answer_unit = question_tokens, answer_unit
        self.threshold, self.stride, self.answer_tokens = threshold, stride, answer_tokens
        self._version = version
        self._deciding: frozenset[Question] = frozenset()
        self._tuned: float | None = None

    @classmethod
    def from_data(cls, name: str, data: Source, **options: Any) -> Squad:
        """Of a folder's files, or of training files with `dev` and `test` beside them."""
        options |= given_files(data, options)
        task = cls(layout=layout_of(options), **options)
        if "threshold" in options and task.version == 1:
            files = named(next(iter(task._paths.values())))
            raise ConfigError(
                f"threshold is {options['threshold']}, an option of SQuAD 2.0, and {files} "
                "is of version "
                "1.1; leave it out"
            )
        return task

    def settings(self) -> dict[str, Any]:
        """All that answers and their scores depend on; in version 2 also the threshold, as it was
        tuned last.
        """
        names = [name for name in self.usual if name != "threshold"]
        threshold = {"threshold": self._kept()} if self.version == 2 else {}
        return {name: getattr(self, name) for name in names} | threshold

    def identity(self) -> dict[str, Any]:
        """How the threshold is chosen, and, where they are not the usual ones, the settings that
        change scores only.
        """
        changed = {name: getattr(self, name) for name in ("answer_tokens", "answer_unit")}
        changed = {
            name: None if value == self.usual[name] else value for name, value in changed.items()
        }
        return {"threshold": self.threshold, **changed}

    @property
    def full_name(self) -> str:
        """squad1 or squad2."""
        return f"{self.name}{self.version}"

    @cached_property
    def version(self) -> int:
        """1 or 2."""
        return self._version or 1 + any(
            may_be_unanswerable(path, self._layout.encoding)
            for paths in self._paths.values()
            for path in paths
        )

    # -------------------------------------------------------------------------------------- reading

    def read(self, part: str) -> list[Question]:
        """The questions of a part, in order. Of `train`, those without an answer that can be learnt
        are left out.
        """
        paths = self._of(part)
        self._found = Notes()
        questions: list[Question] = []
        for path in paths:
            first = questions[-1].article + 1 if questions else 0
            own = read_questions(path, self._found, self._layout.encoding)
            questions += (
                [question._replace(article=first + question.article) for question in own]
                if first
                else own
            )
        if len(paths) > 1 and len({question.id for question in questions}) < len(questions):
            twice = next(
                name for name, count in Counter(one.id for one in questions).items() if count > 1
            )
            raise DataError(
                f"the id {format_value(twice)} occurs twice in {named(paths)}; give each question "
                "an id of its own"
            )
        questions = self._own(part, questions, lambda i: questions[i].article, "articles")
        wrong = sum(not stands(gold, one.context) for one in questions for gold in one.answers)
        if wrong:
            self._found["answers do not stand at their answer_start"] += wrong
        if part == "train":
            usable = [question for question in questions if question.impossible or question.placed]
            if len(usable) < len(questions):
                self._found["questions have no answer to learn and were left out"] += len(
                    questions
                ) - len(usable)
            questions = usable
        if part != "test" and not any(question.known for question in questions):
            what = "learn from" if part == "train" else "score"
            raise DataError(
                f"no question in {named(paths)} has an answer to {what}; give a labelled file"
            )
        golds = [
            gold.text for question in questions for gold in question.answers if part != "train"
        ]
        if self.answer_unit == "words" and 2 * sum(map(without_spaces, golds)) > len(golds):
            self._found[
                "answers have no spaces between words, and F1 counts words; --answer-unit "
                "characters counts "
                "characters"
            ] += len(golds)
        elif self.answer_unit == "characters" and golds:
            self._found["answers are scored with F1 over characters"] += len(golds)
        if part == "dev":
            self._deciding, self._tuned = frozenset(questions), None
        return questions

    def example(self, value: Any, name: str) -> Question:
        """Of a question and a context."""
        question, context = texts(value, 2)
        return Question(name, question, context, (), False)

    def show_example(self, example: Question) -> ModelExample:
        """The question and its context, with the first of the right answers."""
        label = (
            example.answers[0].text
            if example.answers
            else "no answer"
            if example.impossible
            else None
        )
        return ModelExample({"question": example.text, "context": example.context}, label)

    def stream(
        self,
        source: str | Path,
        *,
        text: str = "text",
        pair: str | None = None,
        form: FileFormat | None = None,
    ) -> Iterator[Question]:
        """The questions of a file with the columns `question` and `context`."""
        self._found = Notes()
        for line, (asked, context) in read_records(
            source, ("question", "context"), self._found, form=form
        ):
            where = f"{source}:{line}"
            asked, context = (
                require_text(asked, "question", where),
                require_text(context, "context", where),
            )
            yield Question(str(line), asked, context, (), False)

    def official(self, source: Any) -> list[tuple[str, Question]]:
        """The questions of a file in the form of SQuAD, by their ids."""
        self._found = Notes()
        return [(question.id, question) for question in read_questions(source, self._found)]

    # ------------------------------------------------------------------------------------- encoding

    def encode(self, examples: Sequence[Question], tokenizer: Tokenizer, length: int) -> list[Item]:
        """[CLS] question [SEP] part of the context [SEP], one row for each window, of at most
        `length` tokens.

        The target is the first and last token of the first answer that stands where the file says;
        (0, 0), that is [CLS], in windows without the whole of it and where there is no answer
        (official BERT and ALBERT code); None where the answer is not known or not in any window.

        Raises:
            ConfigError: the row has no room.
        """
        room = length - 2 - tokenizer.pair_separators
        if room < 2:
            raise ConfigError(
                f"length is {length} tokens, too few for a question and a text; give a "
                "length of 384"
            )
        contexts = list(
            dict.fromkeys(example.context for example in examples)
        )  # one text has many questions
        encoded = dict(zip(contexts, tokenizer.encode_offsets(contexts), strict=True))
        asked = tokenizer.encode([example.text.strip() for example in examples])
        most = min(self.question_tokens, room // 2)
        items = []
        for i, (example, question) in enumerate(zip(examples, asked, strict=True)):
            if len(question) > most:
                self._found[f"questions were truncated to {most} tokens"] += 1
            question = question[:most]
            ids, spans = encoded[example.context]
            gold = example.placed
            answer = None if gold is None else tokens_of(gold, spans)
            if gold is not None and answer is None:
                self._found["answers hold nothing that the tokenizer reads"] += 1
            first = 1 + len(question) + tokenizer.pair_separators
            rows = []
            for begin, end, owned in windows(len(ids), room - len(question), self.stride):
                row = build_row(tokenizer, question, ids[begin:end].tolist())
                inside = answer is not None and begin <= answer[0] and answer[1] < end
                target = (
                    (first + answer[0] - begin, first + answer[1] - begin)
                    if inside and answer
                    else (0, 0)
                )
                rows.append((row, target, Window(first, spans[begin:end], owned)))
            known = example.impossible or any(target != (0, 0) for _, target, _ in rows)
            if answer is not None and not known:
                self._found[f"answers are too long for any window at {length} tokens"] += 1
            items += [
                Item(i, (row,), target if known else None, window) for row, target, window in rows
            ]
        return items

    # -------------------------------------------------------------------------------------- answers

    def answers(
        self,
        examples: Sequence[Question],
        items: Sequence[Item],
        logits: Sequence[NDArray[np.float32]],
    ) -> list[Answer]:
        """One per question, in order: the best of all spans of at most `answer_tokens` tokens in
        all windows.
        """
        seen: list[list[tuple[Window, NDArray[np.float64]]]] = [[] for _ in examples]
        for item, found in zip(items, logits, strict=True):
            seen[item.example].append((item.detail, found.astype(np.float64)))
        return [
            best_answer(example.context, here, self.output)
            for example, here in zip(examples, seen, strict=True)
        ]

    def record(self, example: Question, answer: Answer) -> dict[str, Any]:
        """The text, its score, and how much likelier no answer is."""
        score = answer.candidates[0].score if answer.candidates else None
        return {
            "prediction": self.texts([answer], self._kept())[0],
            "score": score,
            "no_answer_odds": answer.odds,
        }

    def texts(self, answers: Sequence[Answer], threshold: float = 0.0) -> list[str]:
        """The text of each answer; in version 2 empty where the odds of no answer are above the
        threshold.
        """
        return [
            "" if self.version == 2 and answer.odds > threshold else answer.value
            for answer in answers
        ]

    # --------------------------------------------------------------------------------------- scores

    def score(self, examples: Sequence[Question], answers: Sequence[Answer]) -> dict[str, float]:
        """Those of the official script, and in version 2 the `threshold` they hold for.

        With the threshold `half` they are those of the half it was not tuned on; with `dev`,
        `best_exact` and `best_f1` come with thresholds of their own. Once a dev part was read, the
        threshold is tuned on its questions alone: all others are scored whole, by the threshold
        that the last score of dev tuned.
        """
        decides = not self._deciding or all(question in self._deciding for question in examples)
        examples, answers = self._known(examples, answers, lambda question: question.known)
        golds = [[gold.text for gold in question.answers] for question in examples]
        if self.version == 1:
            return scores_1(
                [answer.value for answer in answers],
                [texts or [""] for texts in golds],
                self.answer_unit,
            )
        judged = [
            judge(question.id, answer.value, answer.odds, texts, self.answer_unit)
            for question, answer, texts in zip(examples, answers, golds, strict=True)
        ]
        tuned, reported = (
            halves(judged) if decides and self.threshold == "half" else (judged, judged)
        )
        if decides and isinstance(self.threshold, str):
            self._tuned = tune(tuned)
        threshold = self._kept()
        scores = scores_2(reported, threshold) | {"threshold": threshold}
        if self.threshold == "dev" and decides:
            for name in ("exact", "f1"):
                scores[f"best_{name}"], scores[f"best_{name}_thresh"] = best_threshold(judged, name)
        return scores

    def _kept(self) -> float:
        """The threshold that is given, or was tuned last."""
        if not isinstance(self.threshold, str):
            return float(self.threshold)
        if self._tuned is None:
            self._found[
                "no dev part was scored to tune the threshold on, so it is 0; give a number"
            ] += 1
        return self._tuned or 0.0

    # -------------------------------------------------------------------------------------- writing

    def write(self, examples: Sequence[Question], answers: Sequence[Answer], path: Path) -> None:
        """`path` as the official script reads it, {id: text}, and beside it `nbest_NAME`; in
        version 2 also `null_odds_NAME`, for its --na-prob-file.

        In version 2 the threshold is that of `score`; where none was tuned before it is 0, which is
        noted.
        """
        threshold = 0.0
        if self.version == 2:
            known = any(question.known for question in examples)
            threshold = self.score(examples, answers)["threshold"] if known else self._kept()
        ids = [example.id for example in examples]
        write_json(path, dict(zip(ids, self.texts(answers, threshold), strict=True)))
        nbest = [_listed(answer, self.version == 2) for answer in answers]
        write_json(path.with_name(f"nbest_{path.name}"), dict(zip(ids, nbest, strict=True)))
        if self.version == 2:
            odds = [answer.odds for answer in answers]
            write_json(path.with_name(f"null_odds_{path.name}"), dict(zip(ids, odds, strict=True)))


def _listed(answer: Answer, with_null: bool) -> list[dict[str, Any]]:
    """The candidates with their probabilities among one another, no answer among them in
    version 2."""
    candidates = [
        *answer.candidates,
        *[Candidate("", *answer.null)] * (with_null or not answer.candidates),
    ]
    candidates.sort(key=lambda candidate: -candidate.score)
    likely = softmax(np.array([candidate.score for candidate in candidates], np.float64))
    return [
        {"text": one.text, "probability": p, "start_logit": one.start, "end_logit": one.end}
        for one, p in zip(candidates, likely.tolist(), strict=True)
    ]
