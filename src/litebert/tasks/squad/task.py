"""SQuAD 1.1 and 2.0: the answer to a question is a span of a text; in 2.0 there may be no answer.

A text longer than a sequence is read in windows that overlap (spans.py). The score of no answer is
that of [CLS] as start and end, as in BERT's code. ALBERT's heads for 2.0 are a different model.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from litebert.base.errors import ConfigError, DataError, nearest
from litebert.base.storage import write_json
from litebert.tasks.outputs import softmax
from litebert.tasks.predictions import list_texts
from litebert.tasks.rows import build_row
from litebert.tasks.splits import Source, SplitFiles, SplitOptions, format_files, take_layout
from litebert.tasks.squad.files import Question, is_placed, may_be_unanswerable, read_questions
from litebert.tasks.squad.scores import (
    AnswerUnit,
    Judged,
    find_best_threshold,
    halve,
    has_no_spaces,
    judge,
    score_1,
    score_2,
    tune,
)
from litebert.tasks.squad.spans import (
    Answer,
    Candidate,
    Window,
    find_answer,
    find_tokens,
    split_windows,
)
from litebert.tasks.task import Row, Task
from litebert.tasks.token_outputs import OneSpan
from litebert.tasks.values import Item, ModelExample
from litebert.text.records import Notes, RowSource, format_value, read_records, require_text
from litebert.tokenizer import Tokenizer

log = logging.getLogger("litebert")

QUESTION_TOKENS = 64
"""Most tokens of a question by default; less if that is more than half of a sequence."""
STRIDE = 128
"""Tokens from the start of a window to the next; less if that is more than half of a window."""
ANSWER_TOKENS = 30
"""Most tokens of a predicted answer, by default; training has no limit."""
Threshold = Literal["half", "dev"] | float
"""The odds of no answer, in logits, above which the prediction is no answer. `half` is the best for
one half of the dev questions, with the scores of the other half. `dev` is the best for the
questions that are scored: the papers do so, and it flatters. The test split takes the tuned number.
"""


@dataclass(frozen=True, kw_only=True)
class SquadOptions(SplitOptions):
    """The options of SQuAD."""

    threshold: Threshold | None = None
    """Odds of no answer in SQuAD 2.0: half of dev (the default), dev, or a number."""
    stride: int = STRIDE
    """Tokens from the start of one window to the next."""
    answer_tokens: int = ANSWER_TOKENS
    """Longest answer in tokens."""
    question_tokens: int = QUESTION_TOKENS
    """Longest question in tokens."""
    answer_unit: AnswerUnit = "words"
    """What F1 counts; characters for languages without spaces."""


class SquadFiles(SplitFiles[Question]):
    """The files of SQuAD. A dev split that is held out of `train` takes whole articles, because
    questions about a text help to answer one another.
    """

    suffixes = (".json",)
    task: Squad

    @classmethod
    def of(
        cls,
        sources: Mapping[str, Source],
        *,
        version: Literal[1, 2] | None = None,
        task_class: type[Task[Question]] | None = None,
        **options: Any,
    ) -> SquadFiles:
        """Open the files of the splits.

        Args:
            sources: the files of train, dev and test.
            version: 1 or 2. None looks into the files: it is 2 if a file names that version, or
                marks whether questions can be answered.
            options: as `SquadOptions` has them.
        """
        layout, heldout = take_layout(options), options.pop("heldout", 0.1)
        make = task_class or Squad
        assert issubclass(make, Squad)
        files = cls(make(**options), sources, heldout=heldout, layout=layout)
        paths = [path for paths in files._paths.values() for path in paths]
        if version is None:
            encoding = files._layout.encoding
            version = 2 if any(may_be_unanswerable(path, encoding) for path in paths) else 1
            if "threshold" in options and version == 1:
                first = format_files(next(iter(files._paths.values())))
                raise ConfigError(
                    f"threshold is {options['threshold']}, an option of SQuAD 2.0, and {first} "
                    "is of version 1.1; leave it out"
                )
        files.task = replace(files.task, version=version)
        return files

    def read(self, split: str, notes: Notes | None = None) -> list[Question]:
        """Read the questions of a split. Those of `train` without an answer are left out."""
        notes = Notes() if notes is None else notes
        paths = self._find_files(split)
        questions: list[Question] = []
        for path in paths:  # whose articles are numbered on
            first = questions[-1].article + 1 if questions else 0
            for question in read_questions(path, notes, self._layout.encoding):
                questions.append(question._replace(article=first + question.article))
        counts = Counter(question.id for question in questions)
        if len(counts) < len(questions):
            twice = next(name for name, count in counts.items() if count > 1)
            raise DataError(
                f"the id {format_value(twice)} occurs twice in {format_files(paths)}; give each "
                "question a different id"
            )
        articles = [question.article for question in questions]
        questions = self._select_split(split, questions, articles, "articles", notes)
        misplaced = sum(
            not is_placed(gold, question.context)
            for question in questions
            for gold in question.answers
        )
        if misplaced:
            notes["answers do not stand at their answer_start"] += misplaced
        if split == "train":
            usable = [one for one in questions if one.impossible or one.placed_answer]
            if len(usable) < len(questions):
                left_out = len(questions) - len(usable)
                notes["questions have no answer to learn and were left out"] += left_out
            questions = usable
        if split != "test" and not any(question.is_labeled for question in questions):
            purpose = "learn from" if split == "train" else "score"
            raise DataError(
                f"no question in {format_files(paths)} has an answer to {purpose}; "
                "give a labeled file"
            )
        golds = [gold.text for question in questions for gold in question.answers]
        if split == "train":
            return questions
        if self.task.answer_unit == "words" and 2 * sum(map(has_no_spaces, golds)) > len(golds):
            notes[
                "answers have no spaces between words, and F1 counts words; --answer-unit "
                "characters counts characters"
            ] += len(golds)
        elif self.task.answer_unit == "characters" and golds:
            notes["answers are scored with F1 over characters"] += len(golds)
        return questions

    @classmethod
    def stream(
        cls, source: RowSource, notes: Notes, *, text: str = "text", pair: str | None = None
    ) -> Iterator[Row[Question]]:
        for line, (question, context), extras in read_records(
            source, ("question", "context"), notes
        ):
            location = f"{source}:{line}"
            question = require_text(question, "question", location)
            context = require_text(context, "context", location)
            example = Question(str(line), question, context, (), False)
            yield Row(example, extras, str(source), line)

    @classmethod
    def stream_official(cls, source: RowSource, notes: Notes) -> Iterator[Row[Question]]:
        """Yield the questions of a file in the form of SQuAD with their ids."""
        for question in read_questions(source, notes):
            yield Row(question, {"id": question.id}, str(source))


@dataclass(frozen=True)
class Squad(Task[Question]):
    """SQuAD 1.1 or 2.0, with percentages by the official script of the version as scores."""

    name, files, options = "squad", SquadFiles, SquadOptions
    suffix = ".json"
    inputs = "give (question, context)"
    predicted_files = ("QUESTIONS.json", "ANSWERS.json")
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
    percent = True

    output: OneSpan = field(default_factory=OneSpan)
    version: int = 1
    threshold: Threshold = "half"
    stride: int = STRIDE
    answer_tokens: int = ANSWER_TOKENS
    question_tokens: int = QUESTION_TOKENS
    answer_unit: AnswerUnit = "words"

    def __post_init__(self) -> None:
        if self.version not in (1, 2):
            raise ConfigError(
                f"version is {self.version!r}; give 1 for SQuAD 1.1, 2 for SQuAD 2.0, or leave it "
                "out"
            )
        if self.threshold not in ("half", "dev") and (
            isinstance(self.threshold, str) or math.isnan(self.threshold)
        ):
            raise ConfigError(f"threshold is '{self.threshold}'; give 'half', 'dev' or a number")
        for name in ("stride", "answer_tokens", "question_tokens"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; give at least one token")
        units = get_args(AnswerUnit)
        if self.answer_unit not in units:
            raise ConfigError(
                f"answer_unit is '{self.answer_unit}'; {nearest(self.answer_unit, units)}"
            )
        object.__setattr__(self, "output", OneSpan(longest=self.answer_tokens))
        super().__post_init__()

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Squad:
        return cls(**{name: settings.get(name, value) for name, value in cls.usual.items()})

    def settings(self) -> dict[str, Any]:
        """Return the settings that answers and scores depend on; version 2 has the threshold."""
        names = [name for name in self.usual if name != "threshold"]
        settings = {name: getattr(self, name) for name in names}
        if self.version == 2:
            settings["threshold"] = self._require_threshold()
        return settings

    def identity(self) -> dict[str, Any]:
        """Return how the threshold is chosen, and what changes scores only (None: default)."""
        identity: dict[str, Any] = {"threshold": self.threshold}
        for name in ("answer_tokens", "answer_unit"):
            value = getattr(self, name)
            identity[name] = None if value == self.usual[name] else value
        return identity

    @property
    def full_name(self) -> str:
        return f"{self.name}{self.version}"

    def example(self, value: Any, name: str) -> Question:
        question, context = list_texts(value, 2)
        return Question(name, question, context, (), False)

    def show_example(self, example: Question) -> ModelExample:
        label = None
        if example.answers:
            label = example.answers[0].text
        elif example.impossible:
            label = "no answer"
        return ModelExample({"question": example.text, "context": example.context}, label)

    def encode(
        self, examples: Sequence[Question], tokenizer: Tokenizer, length: int, notes: Notes
    ) -> list[Item]:
        """Encode [CLS] question [SEP] window of the context [SEP], a sequence for each window.

        The target of a window is the first and last token of the first answer that is where the
        file says; (0, 0), that is [CLS], if the window does not hold all of it, or if there is no
        answer (official BERT and ALBERT code). It is None if the answer is not known, or if no
        window holds it.
        """
        max_tokens = length - 2 - tokenizer.pair_separators
        if max_tokens < 2:
            raise ConfigError(
                f"length is {length} tokens, too few for a question and a text; give a "
                "length of 384"
            )
        # A context with many questions is encoded once.
        contexts = list(dict.fromkeys(example.context for example in examples))
        encoded = dict(zip(contexts, tokenizer.encode_offsets(contexts), strict=True))
        questions = tokenizer.encode([example.text.strip() for example in examples])
        max_question = min(self.question_tokens, max_tokens // 2)
        items = []
        for i, (example, question) in enumerate(zip(examples, questions, strict=True)):
            if len(question) > max_question:
                notes[f"questions were truncated to {max_question} tokens"] += 1
            question = question[:max_question]
            ids, spans = encoded[example.context]
            gold = example.placed_answer
            answer = None if gold is None else find_tokens(gold, spans)
            if gold is not None and answer is None:
                notes["answers hold nothing that the tokenizer reads"] += 1
            first = 1 + len(question) + tokenizer.pair_separators
            size = max_tokens - len(question)
            rows = []
            for begin, end, owned in split_windows(len(ids), size, self.stride):
                row = build_row(tokenizer, question, ids[begin:end].tolist())
                target = (0, 0)
                if answer is not None and begin <= answer[0] and answer[1] < end:
                    target = (first + answer[0] - begin, first + answer[1] - begin)
                rows.append((row, target, Window(first, spans[begin:end], owned)))
            has_target = example.impossible or any(target != (0, 0) for _, target, _ in rows)
            if answer is not None and not has_target:
                notes[f"answers are too long for any window at {length} tokens"] += 1
            for row, target, window in rows:
                shown = target if has_target else None
                items.append(Item(i, (row,), shown, window, group=hash(example.context)))
        return items

    def answers(
        self,
        examples: Sequence[Question],
        items: Sequence[Item],
        logits: Sequence[NDArray[np.float32]],
    ) -> list[Answer]:
        windows: list[list[tuple[Window, NDArray[np.float64]]]] = [[] for _ in examples]
        for item, item_logits in zip(items, logits, strict=True):
            windows[item.example].append((item.detail, item_logits.astype(np.float64)))
        return [
            find_answer(example.context, example_windows, self.output)
            for example, example_windows in zip(examples, windows, strict=True)
        ]

    def record(self, example: Question, answer: Answer) -> dict[str, Any]:
        score = answer.candidates[0].score if answer.candidates else None
        return {
            "prediction": self.choose_texts([answer], self._require_threshold())[0],
            "score": score,
            "no_answer_odds": answer.odds,
        }

    def read_record(self, example: Question, record: Mapping[str, Any]) -> Answer:
        odds = float(record["no_answer_odds"])
        return Answer(str(record["prediction"] or ""), odds, (0.0, 0.0), ())

    def has_label(self, example: Question) -> bool:
        return example.is_labeled

    def choose_texts(self, answers: Sequence[Answer], threshold: float = 0.0) -> list[str]:
        """Return the text of each answer; in version 2 it is empty for odds above the threshold."""
        return [
            "" if self.version == 2 and answer.odds > threshold else answer.value
            for answer in answers
        ]

    def score(self, examples: Sequence[Question], answers: Sequence[Answer]) -> dict[str, float]:
        """Compute the scores of the official script, and in version 2 the `threshold` they need.

        With `half`, they are those of the half that did not tune the threshold. With `dev`,
        `best_exact` and `best_f1` have their own thresholds.
        """
        examples, answers = self._select_labeled(examples, answers)
        if self.version == 1:
            golds = [[gold.text for gold in question.answers] for question in examples]
            texts = [answer.value for answer in answers]
            return score_1(texts, [gold_texts or [""] for gold_texts in golds], self.answer_unit)
        judged = self._judge(examples, answers)
        threshold, to_report = self._tune(judged)
        scores = score_2(to_report, threshold) | {"threshold": threshold}
        if self.threshold == "dev":
            for name in ("exact", "f1"):
                best, best_threshold = find_best_threshold(judged, name)
                scores[f"best_{name}"], scores[f"best_{name}_thresh"] = best, best_threshold
        return scores

    def tune(self, examples: Sequence[Question], answers: Sequence[Answer]) -> Squad:
        """Return the task with the threshold as a number, tuned as in `score`."""
        if self.version == 1 or not isinstance(self.threshold, str):
            return self
        examples, answers = self._select_labeled(examples, answers)
        threshold, _ = self._tune(self._judge(examples, answers))
        return replace(self, threshold=threshold)

    def _judge(self, examples: Sequence[Question], answers: Sequence[Answer]) -> list[Judged]:
        return [
            judge(
                question.id,
                answer.value,
                answer.odds,
                [gold.text for gold in question.answers],
                self.answer_unit,
            )
            for question, answer in zip(examples, answers, strict=True)
        ]

    def _tune(self, judged: list[Judged]) -> tuple[float, list[Judged]]:
        if not isinstance(self.threshold, str):
            return float(self.threshold), judged
        to_tune, to_report = halve(judged) if self.threshold == "half" else (judged, judged)
        return tune(to_tune), to_report

    def _require_threshold(self) -> float:
        if not isinstance(self.threshold, str):
            return float(self.threshold)
        if self.version == 2:
            log.info("no dev split was scored to tune the threshold on, so it is 0; give a number")
        return 0.0

    def write(self, examples: Sequence[Question], answers: Sequence[Answer], path: Path) -> None:
        """Write {id: text} to `path`, as the official script reads it, and `nbest_NAME` beside it;
        in version 2 also `null_odds_NAME`, for its --na-prob-file. An untuned threshold is 0.
        """
        threshold = 0.0
        if self.version == 2 and any(question.is_labeled for question in examples):
            threshold = self.score(examples, answers)["threshold"]
        elif self.version == 2:
            threshold = self._require_threshold()
        ids = [example.id for example in examples]
        write_json(path, dict(zip(ids, self.choose_texts(answers, threshold), strict=True)))
        nbest = [_list_candidates(answer, self.version == 2) for answer in answers]
        write_json(path.with_name(f"nbest_{path.name}"), dict(zip(ids, nbest, strict=True)))
        if self.version == 2:
            odds = [answer.odds for answer in answers]
            write_json(path.with_name(f"null_odds_{path.name}"), dict(zip(ids, odds, strict=True)))


def _list_candidates(answer: Answer, with_null: bool) -> list[dict[str, Any]]:
    """Return the candidates with their probabilities among each other, the best first. No answer is
    one with `with_null`, and where there is no other.
    """
    candidates = list(answer.candidates)
    if with_null or not candidates:
        candidates.append(Candidate("", *answer.null))
    candidates.sort(key=lambda candidate: -candidate.score)
    probabilities = softmax(np.array([candidate.score for candidate in candidates], np.float64))
    return [
        {
            "text": candidate.text,
            "probability": probability,
            "start_logit": candidate.start,
            "end_logit": candidate.end,
        }
        for candidate, probability in zip(candidates, probabilities.tolist(), strict=True)
    ]
