"""`litebert distill`: from a large model to a small one, by commands that it shows."""

from __future__ import annotations

import logging
import shlex
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from litebert.base.errors import ConfigError, ModelError, RunError
from litebert.base.storage import lock_folder
from litebert.commands import console
from litebert.commands.console import Json
from litebert.commands.options import Short, ShortForms
from litebert.commands.task_options import (
    collect_options,
    join_source,
    list_option_words,
    parse_with_task,
    read_unlabeled,
)
from litebert.config.finetuning import FinetuneConfig

if TYPE_CHECKING:
    from litebert.distill.steps import DistillRecord, Step

log = logging.getLogger("litebert")


@dataclass(frozen=True)
class DistillArguments:
    """Make a small model of a large one: a teacher, a tokenizer, a student that is pretrained and
    then learns the task from the teacher, and its weights in 8 bits. The same command again
    continues.

    Each step is a command of litebert, which is shown as it starts. Fields of the recipe of
    finetune are options too, such as --epochs 5; they are the student's.
    """

    teacher: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="TEACHER")]
    """A model fine-tuned on the task, an encoder to fine-tune on --data first, or the word
    baseline."""
    data: tuple[str, ...]
    """The labeled texts, as in litebert finetune."""
    out: Path
    """Folder to write."""
    task: str = "table"
    """table for your own data, or a GLUE task; it answers with a class, labels or a number."""
    unlabeled: tuple[str, ...] = ()
    """Files of further texts, which the teacher answers; as in litebert finetune."""
    phrases: int | None = None
    """Random phrases of the texts for the teacher to answer; by default 20 for each text, 100,000
    at most."""
    size: str = "2M"
    """Parameters of the student at most, such as 500k, 2M or 10M."""
    tokenizer: Literal["new", "teacher"] = "new"
    """Train a tokenizer on the texts, or take the teacher's."""
    vocab_size: int = 8192
    """Tokens of a new tokenizer; a small text allows fewer."""
    language: str = "en"
    """Language of the text, for sentence boundaries, as in litebert prepare."""
    budget: str | None = None
    """Pretraining of the student; by default a minute for each 400,000 characters of text, 10 at
    most."""
    max_drop: float | None = None
    """Write no 8-bit weights if the main score falls by more points than this; 0.5 by default."""
    tracker: tuple[str, ...] = ()
    """Trackers that get the metrics of each run, as in litebert pretrain and finetune."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:N, or mps on a Mac; auto takes a GPU or mps if there is one."""
    dry_run: bool = False
    """Show the commands and write nothing."""
    json: Json = False
    short: Short = field(default_factory=ShortForms)


def distill(words: list[str]) -> int:
    """litebert distill TEACHER --data LABELED --unlabeled TEXT --size 2M --out S"""
    arguments, options, rest = parse_with_task(DistillArguments, words, "distill", "table")
    with console.loading():
        from litebert.distill.results import DistillResults, measure_distillation, write_card
        from litebert.distill.steps import (
            DistillRequest,
            choose_student,
            describe_student,
            list_steps,
            open_record,
            parse_size,
            read_inputs,
        )
        from litebert.finetuning.setup import settle_for_output
        from litebert.recipes import STUDENT_WIDTHS, make_student
        from litebert.tasks.registry import open_task
        from litebert.train.device import choose
        from litebert.train.trackers import require_trackers

    if not all(arguments.data or [""]):
        raise ConfigError("data is empty; name the labeled texts")
    request = DistillRequest(
        task_words=tuple(list_option_words(options)),
        student_words=tuple(rest),
        **{
            name: getattr(arguments, name)
            for name in (
                *("teacher", "data", "task", "unlabeled", "phrases", "size", "tokenizer"),
                *("vocab_size", "language", "budget", "max_drop"),
            )
        },
    )
    request.check()
    require_trackers(arguments.tracker)
    choose("auto", arguments.device)

    settings = collect_options(options, {word.partition("=")[0] for word in words})
    files = open_task(arguments.task, join_source(arguments.data), **settings)
    unlabeled = read_unlabeled(files.task, arguments.unlabeled, settings) or []
    inputs = read_inputs(request, files, unlabeled)
    lessons = console.parse(FinetuneConfig, rest, "distill", default=FinetuneConfig())
    if lessons.seeds > 1:
        raise ConfigError(f"seeds is {lessons.seeds}, and distill makes one student; leave it out")
    # What finetune would refuse in the last step but one.
    encoder = make_student(STUDENT_WIDTHS[0], inputs.vocab_size).encoder
    settle_for_output(files.task.output, lessons, encoder)
    out = arguments.out
    steps = list_steps(request, inputs, out, arguments.device)
    if arguments.dry_run:
        config = choose_student(parse_size(request.size), inputs.vocab_size)
        for number, step in enumerate(steps, 1):
            _show_step(step, f"{number}/{len(steps)}")
        console.say(f"with a full vocabulary {describe_student(config)}")
        return 0
    with lock_folder(out, RunError):
        record = open_record(out, request, inputs.content)
        status = _run_steps(steps, record, arguments.tracker)
        if status:
            console.say("stopped; the same command continues")
            return status
        if record.results and {step.name for step in steps} <= set(record.done):
            results = DistillResults.from_dict(record.results)
        else:
            results = measure_distillation(request, inputs, out)
            write_card(results, steps, out, ("litebert", "distill", *words))
            record.results = asdict(results)
            record.write()

    if arguments.json:
        console.print_json({"distilled": str(out), **asdict(results)})
        return 0
    console.table(results.columns, results.cells)
    console.show(results.note)
    for sentence in results.advice:
        console.show(sentence)
    console.ending(out, ("predict", out / "student", "--input", "TEXTS.txt"))
    return 0


def _show_step(step: Step, label: str) -> None:
    console.say(f"{label}  {step.about}")
    if step.words:
        console.say(f"     {console.program()} {shlex.join(step.words)}")


def _run_steps(steps: Sequence[Step], record: DistillRecord, trackers: Sequence[str]) -> int:
    """Run the steps that are not whole; return the exit status of the one that stopped, or 0."""
    for number, step in enumerate(steps, 1):
        label = f"{number}/{len(steps)}"
        has_form = step.path.is_file() if step.path.suffix else step.path.is_dir()
        if step.name in record.done and has_form:
            console.say(f"{label}  {step.path} is whole")
            continue
        if step.name in record.done and record.refusal and step is steps[-1]:
            log.warning(f"no 8-bit weights: {record.refusal}")
            continue
        _show_step(step, label)
        if step.prepare is not None:
            step.prepare()
        try:
            tracked = trackers if step.words[:1] in (("pretrain",), ("finetune",)) else ()
            more = ("--tracker", *tracked) if tracked else ()
            status = _run_verb((*step.words, *more)) if step.words else 0
        except ModelError as error:
            if step is not steps[-1]:
                raise
            log.warning(f"no 8-bit weights: {error}")
            record.refusal, status = str(error), 0
        if status:
            return status
        record.mark(step.name)
    return 0


def _run_verb(words: Sequence[str]) -> int:
    """Run a command of litebert in this process; its tables go to standard error."""
    from litebert.commands.models import pretrain
    from litebert.commands.tasks import export, finetune
    from litebert.commands.text import prepare
    from litebert.commands.tokenizer import tokenizer

    verbs = {verb.__name__: verb for verb in (export, finetune, prepare, pretrain, tokenizer)}
    with redirect_stdout(sys.stderr):
        return verbs[words[0]](list(words[1:]))
