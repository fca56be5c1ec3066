"""`litebert distill`: from a large model to a small one, by commands that it shows."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from litebert.base.errors import ConfigError, ModelError, RunError
from litebert.base.storage import lock_folder
from litebert.commands import console
from litebert.commands.console import DeviceName, Json
from litebert.commands.options import Arg, Short, ShortForms, list_changes, spell
from litebert.commands.task_options import (
    collect_options,
    join_source,
    parse_with_task,
    read_unlabeled,
)
from litebert.config.finetuning import FinetuneConfig

if TYPE_CHECKING:
    from litebert.distill.steps import DistillRecord, Step


@dataclass(frozen=True)
class DistillArguments:
    """Make a small model of a large one: a student that learns the task from a teacher, in 8 bits.
    The same command again continues.

    Each step is a command of litebert, which is shown as it starts. The fields of finetune are
    options too; they are the student's.
    """

    examples: ClassVar[tuple[str, ...]] = (
        "litebert distill classifier --data train.csv --student vectors --out small",
        "litebert distill classifier --data train.csv --size 500k --out small --dry-run",
    )

    common: ClassVar[str] = (
        "task unlabeled student size budget language max-drop dev text-column "
        "label-column epochs dry-run device json"
    )

    teacher: Annotated[str, Arg("TEACHER", positional=True)]
    """A model of the task, an encoder to fine-tune first, or the word baseline."""
    data: tuple[str, ...]
    """Labeled texts, as in litebert finetune."""
    out: Path
    """Folder to write."""
    task: str = "table"
    """table, or one of GLUE."""
    unlabeled: tuple[str, ...] = ()
    """Files of further texts, which the teacher answers."""
    phrases: int | None = None
    """Random phrases that the teacher answers; by default 20 for each text."""
    student: Annotated[str, Arg("MODEL")] = ""
    """Small model that the student starts from, such as vectors, instead of one of --size."""
    size: str = "2M"
    """Most parameters of the student, such as 500k or 10M."""
    tokenizer: Literal["new", "teacher"] = "new"
    """Train a tokenizer on the texts, or take that of the teacher."""
    vocab_size: int = 8192
    """Tokens of a new tokenizer; a small text allows fewer."""
    language: str = "en"
    """Language of the text, for sentence boundaries."""
    budget: str | None = None
    """Pretraining of the student; by default 0.5M to 5M tokens, by the size of the text."""
    max_drop: float | None = None
    """Write no 8-bit weights if the score falls by more points; by default 0.5."""
    tracker: Annotated[tuple[str, ...], Arg("TRACKER")] = ()
    """Trackers of metrics and results: tensorboard, wandb, mlflow or trackio."""
    device: DeviceName = "auto"
    dry_run: bool = False
    """Show the commands and write nothing."""
    json: Json = False
    short: Short = field(default_factory=ShortForms)


def distill(words: list[str]) -> int:
    arguments, options, rest = parse_with_task(DistillArguments, words, "distill")
    with console.loading():
        from litebert.distill.results import DistillResults, measure_distillation, write_card
        from litebert.distill.steps import (
            LAST,
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
        task_words=tuple(spell(list_changes(options))),
        student_words=tuple(rest),
        **{
            field.name: getattr(arguments, field.name)
            for field in fields(DistillRequest)
            if hasattr(arguments, field.name)
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
        for number, step in enumerate(steps, 1):
            _show_step(step, f"{number}/{len(steps)}")
        if not request.student:
            config = choose_student(parse_size(request.size), inputs.vocab_size)
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
    best = out / ("student" if record.refusal else LAST)
    console.ending(out, ("predict", best, "--input", "TEXTS.txt"), ("serve", best))
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
            console.warn(f"no 8-bit weights: {record.refusal}")
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
            console.warn(f"no 8-bit weights: {error}")
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
