"""From a large model to a small one: the steps of `litebert distill`, each a command of its own.

The folder of a distillation holds

    distill.json     the request, the steps that are whole, and at the end the scores
    teacher/         the run of the teacher, where it was not fine-tuned before
    text.txt         the training texts and those without labels, one a line
    phrases.txt      random phrases of them, which the teacher answers
    dev.jsonl        of a table: the rows that 8-bit weights are scored on
    tokenizer/       the tokenizer, trained on text.txt
    data/            text.txt as token shards
    student.json     the recipe of the student
    pretrained/      the student's run on the shards
    student/         its run on the task, with the teacher
    int8/            the student with 8-bit weights, as ONNX
    README.md        the scores, and the commands

A step that is whole is skipped, and a step that was stopped continues. So the same command goes on
after a kill, and ends with the same bits.
"""

from __future__ import annotations

import json
import logging
import math
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from litebert import cost, progress
from litebert.config import Config
from litebert.config.amounts import BUDGET_UNITS, parse_amount
from litebert.config.serialization import to_json
from litebert.data.shards import Shards
from litebert.errors import ConfigError, require
from litebert.finetuning.task import Task, TaskFiles
from litebert.finetuning.teachers import BASELINE, open_teachers
from litebert.finetuning.text_outputs import Number, SeveralLabels
from litebert.interop import read_folder
from litebert.interop.onnx.exports import find_exported_graph
from litebert.recipes import STUDENT_WIDTHS, make_student
from litebert.storage import atomic_text, sha256_of
from litebert.tasks.table import TableFiles
from litebert.text.phrases import make_phrases
from litebert.text.sentences import check_language
from litebert.tokenizer.training import check_size
from litebert.train.teacher import compute_fingerprint

log = logging.getLogger("litebert")

PHRASES_PER_TEXT, DEFAULT_PHRASES = 20, 100_000
"""Phrases for each text, and for all texts, by default at most."""
MOST_PHRASES = 10_000_000
MOST_MINUTES = 10
"""Minutes of pretraining by default, at most."""
MOST_PARAMETERS = 1_000_000_000
LEAST_VOCABULARY = 100
"""Tokens of a vocabulary for which even the smallest text is enough."""
CHARACTERS = 400_000
"""Characters of text for which the student is pretrained a minute by default."""
LAST = "int8"
"""The last step, and its folder."""
_SIZE = re.compile(r"(\d+(?:\.\d+)?)([kKmM]?)")
_SCALES = {"": 1, "k": 1_000, "m": 1_000_000}


@dataclass(frozen=True, kw_only=True)
class DistillRequest:
    """The arguments of `litebert distill` that decide what is made."""

    teacher: str
    data: tuple[str, ...]
    task: str
    task_words: tuple[str, ...] = ()
    """Options of the task, as words of a command line."""
    unlabeled: tuple[str, ...] = ()
    phrases: int | None = None
    """Phrases of the texts that the teacher answers; None for a number that follows from the
    texts."""
    size: str = "2M"
    tokenizer: Literal["new", "teacher"] = "new"
    vocab_size: int = 8192
    language: str = "en"
    budget: str | None = None
    """Budget of pretraining; None for one that follows from the text."""
    max_drop: float | None = None
    """Points of the main score that 8-bit weights may cost; None for the default of export."""
    student_words: tuple[str, ...] = ()
    """Fields of the recipe of fine-tuning, for the student, as words of a command line."""

    def check(self) -> None:
        """Refuse values that cannot be."""
        check_size(self.vocab_size)
        choose_student(parse_size(self.size), min(self.vocab_size, LEAST_VOCABULARY))
        require(
            self.max_drop is None or self.max_drop >= 0,
            f"--max-drop is {self.max_drop}; give 0 points or more",
        )
        check_language(self.language)
        require(
            self.phrases is None or 0 <= self.phrases <= MOST_PHRASES,
            f"--phrases is {self.phrases}; give a number from 0 to {MOST_PHRASES:,}",
        )
        if self.budget is not None:
            parse_amount(self.budget, "--budget", BUDGET_UNITS)
        require(
            self.tokenizer == "new" or self.teacher != BASELINE,
            "--tokenizer teacher takes the tokenizer of a model, and the baseline has none; leave "
            "--tokenizer out",
        )


@dataclass(frozen=True)
class DistillInputs:
    """The task, its texts and the teacher, read before the first step."""

    files: TaskFiles[Any]
    unlabeled: list[Any]
    """Examples without labels."""
    is_finetuned: bool
    """True if the teacher answers the task already, as the baseline does."""
    has_table: bool
    """True if the teacher has a token table that the student's can start from: no exported graph
    has, and a tokenizer of whole words cannot spell the student's tokens."""
    vocab_size: int
    """Tokens of the student's tokenizer; fewer where the text is too small for a new one."""
    teacher: str = ""
    """The sha256 of the teacher's weights; "" for the baseline."""

    @cached_property
    def content(self) -> dict[str, str]:
        """The digests of what is read, by its options: with other content, all steps differ."""
        task = self.files.task
        rows = [self.files.read(split) for split in ("train", *task.dev)]
        data = [task.output, rows]
        read = {"TEACHER": self.teacher, "--data": data, "--unlabeled": self.unlabeled}
        texts = {name: repr(value).encode("utf-8", "surrogatepass") for name, value in read.items()}
        return {name: sha256(text).hexdigest() for name, text in texts.items()}

    @cached_property
    def lines(self) -> list[str]:
        """The different texts, labeled or not, each as one line; a pair is one text."""
        task = self.files.task
        items = task.plain_items([*self.files.read("train"), *self.unlabeled])
        lines = (" ".join(" ".join(item.texts).split()) for item in items)
        return list(dict.fromkeys(filter(None, lines)))

    @cached_property
    def has_phrases(self) -> bool:
        """True if the texts have phrases that are no texts themselves; single words have none."""
        return bool(make_phrases(self.lines, 1))


def read_inputs(
    request: DistillRequest, files: TaskFiles[Any], unlabeled: list[Any]
) -> DistillInputs:
    """Check the task and the teacher of a request."""
    task = files.task
    require(
        not task.distill_obstacle,
        f"litebert distill is for labeled texts with a class, labels or a number, and the "
        f"{task.name} task {task.distill_obstacle}; use finetune --teacher",
    )
    require(
        task.has_phrases or not request.phrases,
        f"--phrases {request.phrases} has no effect, because an example is a pair of texts; leave "
        "it out",
    )
    if request.teacher == BASELINE:
        return DistillInputs(files, unlabeled, True, False, request.vocab_size)
    graph = find_exported_graph(Path(request.teacher))
    is_graph = graph is not None
    loaded = read_folder(request.teacher, lazy=is_graph)
    digest = compute_fingerprint(loaded) if graph is None else sha256_of(graph)
    is_finetuned = bool(loaded.task_record)
    if is_finetuned and loaded.tokenizer is not None:
        open_teachers([request.teacher], task, loaded.tokenizer, 0)
    vocab_size = request.vocab_size
    if request.tokenizer == "teacher" and loaded.tokenizer is not None:
        vocab_size = loaded.tokenizer.vocab_size
        choose_student(parse_size(request.size), vocab_size)
    has_table = not is_graph and (
        loaded.tokenizer is None or loaded.tokenizer.engine.kind.is_divisible
    )
    return DistillInputs(files, unlabeled, is_finetuned, has_table, vocab_size, digest)


@dataclass(frozen=True)
class Step:
    """A step of a distillation."""

    name: str
    about: str
    """Description of what it does, for people."""
    path: Path
    """The file or the folder that it makes."""
    words: tuple[str, ...] = ()
    """The command that does it; empty where `prepare` does it all."""
    prepare: Callable[[], None] | None = None
    """Makes what the command needs."""


def list_steps(
    request: DistillRequest, inputs: DistillInputs, out: Path, device: str
) -> list[Step]:
    """List the steps of a distillation in their order."""
    steps = [
        _list_teacher_steps(request, inputs, out, device),
        _list_text_steps(request, inputs, out),
    ]
    student = _list_student_steps(request, inputs, out, device)
    return [*steps[0], *steps[1], *student, _make_export_step(inputs, request, out)]


def locate_teacher(request: DistillRequest, inputs: DistillInputs, out: Path) -> str:
    """Return the teacher as `finetune --teacher` takes it."""
    return request.teacher if inputs.is_finetuned else str(out / "teacher")


def _list_task_words(request: DistillRequest) -> tuple[str, ...]:
    return ("--task", request.task, "--data", *request.data, *request.task_words)


def _list_device_words(device: str) -> tuple[str, ...]:
    return () if device == "auto" else ("--device", device)


def _list_teacher_steps(
    request: DistillRequest, inputs: DistillInputs, out: Path, device: str
) -> list[Step]:
    if inputs.is_finetuned:
        return []
    path = out / "teacher"
    words = ("finetune", request.teacher, *_list_task_words(request), *_list_device_words(device))
    about = f"{request.teacher} is fine-tuned on the task, to be the teacher"
    return [Step("teacher", about, path, (*words, "--out", str(path)))]


def _list_text_steps(request: DistillRequest, inputs: DistillInputs, out: Path) -> list[Step]:
    text, tokenizer, data = out / "text.txt", out / "tokenizer", out / "data"
    steps = [
        Step(
            "text",
            f"{len(inputs.lines):,} different texts go to {text}, one a line",
            text,
            prepare=lambda: _write_texts(inputs, out),
        )
    ]
    lines = (str(text), "--split", "line")
    source = str(tokenizer)
    if request.tokenizer == "teacher":
        source = request.teacher
    else:
        size = ("--vocab-size", str(request.vocab_size), "--shrink")
        words = ("tokenizer", "train", *lines, *size, "--out", source)
        about = f"a tokenizer of {request.vocab_size:,} tokens, or as many as the text allows"
        steps.append(Step("tokenizer", about, tokenizer, words))
    language = ("--language", request.language, "--tokenizer", source)
    words = ("prepare", *lines, *language, "--out", str(data))
    steps.append(Step("data", "the text becomes token shards", data / "index.json", words))
    if count := choose_phrase_count(request, inputs):
        steps.append(_make_phrase_step(inputs, out / "phrases.txt", count))
    return steps


def _make_phrase_step(inputs: DistillInputs, path: Path, count: int) -> Step:
    def write() -> None:
        with progress.task("making phrases"):
            phrases = make_phrases(inputs.lines, count)
        with atomic_text(path) as file:
            file.writelines(f"{phrase}\n" for phrase in phrases)
        log.info(f"     {path} has {len(phrases):,} phrases")

    about = f"up to {count:,} random phrases of the texts go to {path}, for the teacher to answer"
    return Step("phrases", about, path, prepare=write)


def _list_student_steps(
    request: DistillRequest, inputs: DistillInputs, out: Path, device: str
) -> list[Step]:
    recipe, pretrained, student = out / "student.json", out / "pretrained", out / "student"
    budget = request.budget or choose_budget(inputs.lines)
    on_device = _list_device_words(device)
    text = ("--shards", str(out / "data"), "--budget", budget, *on_device)
    if inputs.has_table:
        text += ("--table-from", locate_teacher(request, inputs, out))
    pretrain = ("pretrain", str(recipe), *text, "--out", str(pretrained))
    teacher = ("--teacher", locate_teacher(request, inputs, out))
    unlabeled = list(request.unlabeled)
    if choose_phrase_count(request, inputs):
        unlabeled.append(str(out / "phrases.txt"))
    more = ("--unlabeled", *unlabeled) if unlabeled else ()
    learned = (*_list_task_words(request), *teacher, *more, *request.student_words, *on_device)
    finetune = ("finetune", str(pretrained), *learned, "--out", str(student))
    return [
        Step(
            "pretrained",
            f"the student learns the language of the text; its recipe is {recipe}",
            pretrained,
            pretrain,
            lambda: _write_recipe(request, out),
        ),
        Step("student", "the student learns the task from the teacher", student, finetune),
    ]


def _make_export_step(inputs: DistillInputs, request: DistillRequest, out: Path) -> Step:
    """Make the step that writes 8-bit weights, which must not cost more than the limit on the
    development part.
    """
    path = out / LAST
    scored: tuple[str, ...] = ("--data", *request.data)
    if isinstance(inputs.files, TableFiles):
        scored = (
            "--data",
            str(out / "dev.jsonl"),
            "--text-column",
            "text",
            "--label-column",
            "label",
        )
        scored += ("--pair-column", "pair") if inputs.files.task.pair else ()
    limit = () if request.max_drop is None else ("--max-drop", f"{request.max_drop:g}")
    words = ("export", str(out / "student"), "--out", str(path), "--int8", *scored, *limit)
    about = "the student is written with weights of 8 bits"
    return Step(LAST, about, path, words, lambda: shutil.rmtree(path, ignore_errors=True))


# ----------------------------------------------------------------------------------- inside a step


def parse_size(text: str) -> int:
    """Read a number of parameters, such as 500k, 2M or 1500000."""
    match = _SIZE.fullmatch(text)
    parameters = 0 if match is None else int(float(match[1]) * _SCALES[match[2].lower()])
    if not 0 < parameters <= MOST_PARAMETERS:
        raise ConfigError(
            f"--size is '{text}'; write a number of parameters up to 1000M, such as 500k, 2M or 10M"
        )
    return parameters


def choose_student(parameters: int, vocab_size: int) -> Config:
    """Choose the widest student whose encoder has at most so many parameters."""
    students = [make_student(hidden, vocab_size) for hidden in STUDENT_WIDTHS]
    sizes = [sum(cost.encoder_parameters(student.encoder).values()) for student in students]
    if sizes[0] > parameters:
        raise ConfigError(
            f"--size is {parameters:,} parameters, and the smallest student with {vocab_size:,} "
            f"tokens has {sizes[0]:,}; give a larger --size or a smaller --vocab-size"
        )
    return students[sum(size <= parameters for size in sizes) - 1]


def choose_phrase_count(request: DistillRequest, inputs: DistillInputs) -> int:
    """Choose how many phrases the teacher answers; none where an example is two texts."""
    if not inputs.files.task.has_phrases or request.phrases == 0:
        return 0
    if not inputs.has_phrases:
        require(
            request.phrases is None,
            f"--phrases {request.phrases} has no effect, because every text is one word; leave it "
            "out",
        )
        return 0
    if request.phrases is not None:
        return request.phrases
    return min(PHRASES_PER_TEXT * len(inputs.lines), DEFAULT_PHRASES)


def choose_budget(lines: Sequence[str]) -> str:
    """Choose for how long a student is pretrained on some texts."""
    characters = sum(map(len, lines))
    return f"{min(MOST_MINUTES, max(1, math.ceil(characters / CHARACTERS)))}m"


def describe_student(config: Config) -> str:
    """Describe the shape of a student in a sentence."""
    encoder = config.encoder
    parameters = sum(cost.encoder_parameters(encoder).values())
    return (
        f"the student has {encoder.layers} layers of {encoder.hidden_size} units that share their "
        f"weights, and {encoder.vocab_size:,} tokens of {encoder.embedding_size}: "
        f"{parameters:,} parameters"
    )


def _write_texts(inputs: DistillInputs, out: Path) -> None:
    files = inputs.files
    if isinstance(files, TableFiles):
        with atomic_text(out / "dev.jsonl") as file:
            for row in _list_rows(files.task, files.read(files.task.dev[0])):
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
    with atomic_text(out / "text.txt") as file:
        file.writelines(f"{line}\n" for line in inputs.lines)


def _list_rows(task: Task[Any], examples: Sequence[Any]) -> Iterator[dict[str, Any]]:
    for example in examples:
        if example.label is not None:
            pair = {} if example.pair is None else {"pair": example.pair}
            yield {"text": example.text, **pair, "label": _name_label(task, example.label)}


def _name_label(task: Task[Any], label: Any) -> Any:
    """Write a target of a table as its files do."""
    if isinstance(task.output, Number):
        return float(label)
    if isinstance(task.output, SeveralLabels):
        return [name for name, flag in zip(task.output.labels, label, strict=True) if flag]
    return task.output.labels[label]


def _write_recipe(request: DistillRequest, out: Path) -> None:
    vocab_size = Shards.open(out / "data").tokenizer.vocab_size
    config = choose_student(parse_size(request.size), vocab_size)
    log.info(f"     {describe_student(config)}")
    with atomic_text(out / "student.json") as file:
        file.write(to_json(config))
