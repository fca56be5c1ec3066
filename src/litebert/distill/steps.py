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
    int8/            the student with 8-bit weights
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
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from litebert.base import progress
from litebert.base.errors import ConfigError, RunError, require
from litebert.base.json_reader import read_json
from litebert.base.storage import LOCK, atomic_text, sha256_of, write_json
from litebert.config import Config, cost
from litebert.config.amounts import BUDGET_UNITS, parse_amount
from litebert.config.serialization import to_json
from litebert.data.shards import Shards
from litebert.demo import locate
from litebert.finetuning.teachers import BASELINE, open_teachers
from litebert.interop import read_folder
from litebert.interop.names import find_exported_graph
from litebert.recipes import STUDENT_WIDTHS, make_student
from litebert.tasks.table import TableFiles
from litebert.tasks.task import TaskFiles
from litebert.tasks.text_outputs import Number, SeveralLabels
from litebert.text.phrases import make_phrases
from litebert.text.sentences import check_language
from litebert.tokenizer.training import check_size
from litebert.train.teacher import compute_fingerprint

log = logging.getLogger("litebert")

PHRASES_PER_TEXT, DEFAULT_PHRASES = 20, 100_000
"""Phrases for each text, and for all texts, by default at most."""
PRETRAINED_ROWS = 20_000
"""Texts and phrases that are enough for a student that is given; more make it slow to learn."""
MOST_PHRASES = 10_000_000
MOST_PARAMETERS = 1_000_000_000
LEAST_VOCABULARY = 100
CHARACTERS, MOST_BLOCKS = 400_000, 10
"""Characters of text for which the student is pretrained on half a million tokens by default, and
how often at most: about a minute each on two cores for a student of 2M parameters."""
RECORD = "distill.json"
LAST = "int8"
_SIZE = re.compile(r"(\d+(?:\.\d+)?)([kKmM]?)")
_SCALES = {"": 1, "k": 1_000, "m": 1_000_000}


@dataclass(frozen=True, kw_only=True)
class DistillRequest:
    """The arguments of `litebert distill` that decide what is made."""

    teacher: str
    data: tuple[str, ...]
    task: str
    task_words: tuple[str, ...] = ()
    unlabeled: tuple[str, ...] = ()
    phrases: int | None = None
    """Phrases that the teacher answers; None for a number that follows from the texts."""
    student: str = ""
    """The model that the student starts from; "" to pretrain one of at most `size`."""
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
        require(
            not self.student
            or all(
                getattr(self, name) == getattr(DistillRequest, name)
                for name in ("budget", "tokenizer", "vocab_size")
            ),
            "--student names a model that is pretrained, with its tokenizer; leave --budget, "
            "--tokenizer and --vocab-size out",
        )
        check_size(self.vocab_size)
        if not self.student:
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
    is_finetuned: bool
    """True if the teacher answers the task already, as the baseline does."""
    has_table: bool
    """True if the student's token table can start from the teacher's: an exported graph has none,
    and a tokenizer of whole words cannot spell the student's tokens."""
    vocab_size: int
    """Tokens of the student's tokenizer; fewer where the text is too small for a new one."""
    teacher: str = ""
    """The sha256 of the teacher's weights; "" for the baseline."""
    student: str = ""
    """The sha256 of the weights that the student starts from, if it is given."""

    @cached_property
    def content(self) -> dict[str, str]:
        """The digests of what is read, by its options: with other content, all steps differ."""
        task = self.files.task
        rows = [self.files.read(split) for split in ("train", *task.dev)]
        data = [task.output, rows]
        read = {"TEACHER": self.teacher, "--data": data, "--unlabeled": self.unlabeled}
        read |= {"--student": self.student} if self.student else {}
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
    student = ""
    if request.student:
        student = compute_fingerprint(read_folder(locate(request.student)))
    if request.teacher == BASELINE:
        return DistillInputs(files, unlabeled, True, False, request.vocab_size, student=student)
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
    return DistillInputs(files, unlabeled, is_finetuned, has_table, vocab_size, digest, student)


@dataclass(frozen=True)
class Step:
    name: str
    about: str
    path: Path
    words: tuple[str, ...] = ()
    """The command that does it; empty where `prepare` does it all."""
    prepare: Callable[[], None] | None = None
    """Makes what the command needs."""


def list_steps(
    request: DistillRequest, inputs: DistillInputs, out: Path, device: str
) -> list[Step]:
    text, phrases, recipe = (out / name for name in ("text.txt", "phrases.txt", "student.json"))
    folders = (out / name for name in ("tokenizer", "data", "pretrained", "student", LAST))
    tokenizer, data, pretrained, student, int8 = folders
    task = ("--task", request.task, "--data", *request.data, *request.task_words)
    on_device: tuple[str, ...] = () if device == "auto" else ("--device", device)
    teacher = locate_teacher(request, inputs, out)
    steps: list[Step] = []
    words: tuple[str, ...]

    if not inputs.is_finetuned:
        words = ("finetune", request.teacher, *task, *on_device, "--out", teacher)
        about = f"{request.teacher} is fine-tuned on the task, to be the teacher"
        steps.append(Step("teacher", about, Path(teacher), words))

    about = f"{len(inputs.lines):,} different texts go to {text}, one a line"
    steps.append(Step("text", about, text, prepare=lambda: _write_texts(inputs, out)))

    if not request.student:
        lines = (str(text), "--split", "line")
        source = request.teacher
        if request.tokenizer == "new":
            source = str(tokenizer)
            size = ("--vocab-size", str(request.vocab_size), "--shrink")
            words = ("tokenizer", "train", *lines, *size, "--out", source)
            about = f"a tokenizer of {request.vocab_size:,} tokens, or as many as the text allows"
            steps.append(Step("tokenizer", about, tokenizer, words))

        language = ("--language", request.language, "--tokenizer", source)
        words = ("prepare", *lines, *language, "--out", str(data))
        steps.append(Step("data", "the text becomes token shards", data / "index.json", words))

        budget = request.budget or choose_budget(inputs.lines)
        words = ("pretrain", str(recipe), "--shards", str(data), "--budget", budget, *on_device)
        table = ("--table-from", teacher) if inputs.has_table else ()
        about = f"the student learns the language of the text; its recipe is {recipe}"
        words = (*words, *table, "--out", str(pretrained))
        write = partial(_write_recipe, request, out)
        steps.append(Step("pretrained", about, pretrained, words, write))

    unlabeled = list(request.unlabeled)
    if count := choose_phrase_count(request, inputs):
        unlabeled.append(str(phrases))
        about = f"up to {count:,} random phrases of the texts go to {phrases}, for the teacher to "
        write = partial(_write_phrases, inputs, phrases, count)
        steps.append(Step("phrases", f"{about}answer", phrases, prepare=write))

    more = ("--unlabeled", *unlabeled) if unlabeled else ()
    learned = (*task, "--teacher", teacher, *more, *request.student_words, *on_device)
    words = ("finetune", request.student or str(pretrained), *learned, "--out", str(student))
    about = "the student learns the task from the teacher"
    steps.append(Step("student", about, student, words))

    # The weights in 8 bits must not cost more than the limit on the development part.
    scored: tuple[str, ...] = ("--data", *request.data)
    if isinstance(inputs.files, TableFiles):
        pair = ("--pair-column", "pair") if inputs.files.task.pair else ()
        columns = ("--text-column", "text", "--label-column", "label", *pair)
        scored = ("--data", str(out / "dev.jsonl"), *columns)
    limit = () if request.max_drop is None else ("--max-drop", f"{request.max_drop:g}")
    words = ("export", str(student), "--out", str(int8), *scored, *limit)
    about = "the student is written with weights of 8 bits"
    clear = partial(shutil.rmtree, int8, ignore_errors=True)
    return [*steps, Step(LAST, about, int8, words, clear)]


def locate_teacher(request: DistillRequest, inputs: DistillInputs, out: Path) -> str:
    return request.teacher if inputs.is_finetuned else str(out / "teacher")


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
    texts = len(inputs.lines)
    most = max(0, PRETRAINED_ROWS - texts) if request.student else DEFAULT_PHRASES
    return min(PHRASES_PER_TEXT * texts, most)


def choose_budget(lines: Sequence[str]) -> str:
    characters = sum(map(len, lines))
    return f"{min(MOST_BLOCKS, max(1, math.ceil(characters / CHARACTERS))) / 2:g}M tokens"


def describe_student(config: Config) -> str:
    encoder = config.encoder
    parameters = sum(cost.encoder_parameters(encoder).values())
    return (
        f"the student has {encoder.layers} layers of {encoder.hidden_size} units that share their "
        f"weights, and {encoder.vocab_size:,} tokens of {encoder.embedding_size}: "
        f"{parameters:,} parameters"
    )


def _write_texts(inputs: DistillInputs, out: Path) -> None:
    """Write the texts, and a table's development rows, under columns with fixed names."""
    files = inputs.files
    if isinstance(files, TableFiles):
        output = files.task.output
        with atomic_text(out / "dev.jsonl") as file:
            for example in files.read(files.task.dev[0]):
                if example.label is None:
                    continue
                label: Any = example.label
                if isinstance(output, Number):
                    label = float(label)
                elif isinstance(output, SeveralLabels):
                    named = zip(output.labels, label, strict=True)
                    label = [name for name, flag in named if flag]
                else:
                    label = output.labels[label]
                pair = {} if example.pair is None else {"pair": example.pair}
                row = {"text": example.text, **pair, "label": label}
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
    with atomic_text(out / "text.txt") as file:
        file.writelines(f"{line}\n" for line in inputs.lines)


def _write_phrases(inputs: DistillInputs, path: Path, count: int) -> None:
    with progress.task("making phrases"):
        phrases = make_phrases(inputs.lines, count)
    with atomic_text(path) as file:
        file.writelines(f"{phrase}\n" for phrase in phrases)
    log.info(f"     {path} has {len(phrases):,} phrases")


def _write_recipe(request: DistillRequest, out: Path) -> None:
    vocab_size = Shards.open(out / "data").tokenizer.vocab_size
    config = choose_student(parse_size(request.size), vocab_size)
    log.info(f"     {describe_student(config)}")
    with atomic_text(out / "student.json") as file:
        file.write(to_json(config))


# --------------------------------------------------------------------------------------- the record


@dataclass
class DistillRecord:
    folder: Path
    request: dict[str, Any]
    done: list[str] = field(default_factory=list)
    refusal: str = ""
    """The reason why there are no 8-bit weights, where these cost too much."""
    results: dict[str, Any] = field(default_factory=dict)
    content: dict[str, str] = field(default_factory=dict)
    """The digests of what the steps read, by its options."""

    def mark(self, name: str) -> None:
        self.done.append(name)
        self.write()

    def write(self) -> None:
        fields = {"format": 1, "request": self.request, "content": self.content, "done": self.done}
        if self.refusal:
            fields["refusal"] = self.refusal
        write_json(self.folder / RECORD, {**fields, "results": self.results})


def open_record(folder: Path, request: DistillRequest, content: dict[str, str]) -> DistillRecord:
    """Begin a distillation in a folder, or find the one that is there. Its last step, the weights
    in 8 bits, is done again where their limit differs.
    """
    fields = json.loads(json.dumps(asdict(request)))
    if not (folder / RECORD).is_file():
        if any(path.name != LOCK for path in folder.iterdir()):
            raise RunError(
                f"{folder} holds no distillation, and is not empty; give --out a new folder"
            )
        record = DistillRecord(folder, fields, content=content)
        record.write()
        return record
    saved = read_json(folder / RECORD, RunError)
    before = saved.get("request", {})
    for name, value in fields.items():
        if before.get(name) != value and name != "max_drop":
            raise RunError(
                f"{folder} holds a distillation with {_format_option(name, before.get(name))}, not "
                f"with {_format_option(name, value)}; give that, or another --out"
            )
    for option, digest in content.items():
        if saved.get("content", content).get(option) != digest:
            raise RunError(
                f"what {option} names has changed since the distillation in {folder} began; "
                "restore it, or give another --out"
            )
    done = list(saved.get("done", []))
    if before.get("max_drop") != request.max_drop:
        done, saved = [name for name in done if name != LAST], {}
    refusal, results = str(saved.get("refusal", "")), dict(saved.get("results", {}))
    return DistillRecord(folder, fields, done, refusal, results, content)


def _format_option(name: str, value: Any) -> str:
    if name.endswith("_words"):
        return " ".join(value) if value else "the defaults of the task and of finetune"
    text = " ".join(value) if isinstance(value, list) else value
    option = "TEACHER" if name == "teacher" else f"--{name.replace('_', '-')}"
    return f"{option} {text}" if text not in (None, "", []) else f"no {option}"
