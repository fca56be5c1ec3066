"""`litebert pretrain`, `evaluate`, `compare`, `convert` and `quickstart`.

Arguments are read before torch is imported, so that help and mistakes come at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from litebert.commands import console
from litebert.commands.console import Json, ModelPath, RecipeName
from litebert.config import replace
from litebert.config.finetuning import HeadName
from litebert.errors import RunError
from litebert.model.objectives import score_rows


@dataclass
class PretrainArguments:
    """Train a recipe on token shards. The same command again continues; Ctrl-C and SIGTERM save and leave.

    Every field of the recipe is an option too, as in --encoder.layers 6; RECIPE --help lists them.
    """

    recipe: RecipeName
    data: Path
    """A folder written by litebert prepare."""
    out: Path
    """The run folder."""
    budget: str | None = None
    """Like 30m, 5000 steps or 300M tokens; the recipe's own by default."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""
    tensorboard: bool = False
    """Mirror the metrics for TensorBoard."""
    json: Json = False


def pretrain(words: list[str]) -> int:
    """litebert pretrain RECIPE --data D --out R"""
    arguments, config = console.parse_with_recipe(PretrainArguments, words, "pretrain")
    from litebert.train.device import keep_freed_memory
    from litebert.train.pretrain import pretrain as run

    keep_freed_memory()
    if arguments.budget is not None:
        config = replace(config, train=replace(config.train, budget=arguments.budget))
    with console.training_progress() as on_step:
        done = run(
            config,
            arguments.data,
            arguments.out,
            device=arguments.device,
            tensorboard=arguments.tensorboard,
            on_step=on_step,
        )
    outcome = done.outcome
    if not outcome.finished:
        console.say(f"saved at step {outcome.step} of {done.steps}; run the same command to continue")
        return 128 + (outcome.signal or 0)
    if arguments.json:
        console.print_json({"run": str(done.folder), "steps": done.steps, "tokens": outcome.tokens,
                            "seconds": outcome.seconds, "heldout": outcome.scores})  # fmt: skip
    else:
        console.table(("held out", done.folder.name), score_rows(outcome.scores))
    return 0


@dataclass
class EvaluateArguments:
    """Held-out scores on fixed masks at 15 %, whatever the training rate, so that models compare.

    Objectives rtd and sbo are scored on the masks that the model was trained with.
    """

    model: ModelPath
    data: Path
    """A folder written by litebert prepare with the same tokenizer."""
    sequences: int = 2048
    """At most so many held-out sequences."""
    length: int = 0
    """Tokens per sequence; 0 takes the length the model was trained at."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""
    json: Json = False


def evaluate(words: list[str]) -> int:
    """litebert evaluate MODEL --data D"""
    arguments = console.parse(EvaluateArguments, words, "evaluate")
    from litebert.train.evaluate import evaluate as run

    scores = run(
        arguments.model,
        arguments.data,
        sequences=arguments.sequences,
        length=arguments.length or None,
        device=arguments.device,
    )
    if arguments.json:
        console.print_json(scores)
    else:
        console.table(("held out", arguments.model), score_rows(scores))
    return 0


@dataclass
class CompareArguments:
    """Runs in one table: parameters, tokens, speed and the last held-out scores; and the settings in which they differ.

    Of fine-tuning runs: a row for each task, a column for each run.
    """

    runs: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="RUN")]
    """Run folders, all of one kind."""
    data: Path | None = None
    """Score all pretraining runs anew on the held-out part of this folder of litebert prepare."""
    device: str = "auto"
    """Where --data is computed: auto, cpu, cuda or cuda:N."""
    markdown: bool = False
    """Print the table as GitHub's Markdown."""
    json: Json = False


def compare(words: list[str]) -> int:
    """litebert compare RUN..."""
    arguments = console.parse(CompareArguments, words, "compare")
    from litebert.analysis import compare as runs
    from litebert.analysis import compare_tasks as tasks
    from litebert.analysis.differences import parts

    if not arguments.runs:
        raise RunError("name the folders of one run or more")
    rows: Sequence[Any]
    if tasks.finetunings(Path(arguments.runs[0])):
        if arguments.data is not None:
            raise RunError("--data scores pretraining runs; leave it out for fine-tuning runs, and see litebert score")
        rows = tasks.compare_tasks(arguments.runs)
        shown, settings, remarks, keys = tasks.task_table(rows), tasks.task_differences(rows), [], 2
    else:
        rows = runs.compare(arguments.runs, arguments.data, arguments.device)
        shown, settings, remarks, keys = runs.table(rows), runs.settings_table(rows), runs.differences(rows), 1
    if arguments.json:
        differing = [setting for setting, *_ in settings.rows]
        console.print_json([{**asdict(row), "differing": differing} for row in rows])
    elif arguments.markdown:
        console.print_markdown(shown.columns, shown.rows, shown.note)
        if settings.rows:
            console.show("")
            console.print_markdown(settings.columns, settings.rows, "The settings in which the runs differ.")
    else:
        width = console.width()
        for part in parts(shown, width, keys):
            console.table(part.columns, part.rows)
        console.show(shown.note)
        for part in parts(settings, width) if settings.rows else ():
            console.table(part.columns, part.rows, title=settings.title)
    for remark in remarks:
        console.say(f"note: {remark}")
    return 0


@dataclass
class ConvertArguments:
    """Convert a model folder, both ways."""

    source: ModelPath
    destination: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="DESTINATION")]
    """Folder to write."""
    to: str
    """The format to write, by a name in `FORMATS`: hf or litebert."""
    head: HeadName | None = None
    """Of a Hugging Face folder, the class to write (mlm of a model trained with rtd is its generator), by itself the
    one that holds most; or what its classifier is for, where its config.json does not say."""


def convert(words: list[str]) -> int:
    """litebert convert SRC DST --to hf|litebert [--head mlm]"""
    arguments = console.parse(ConvertArguments, words, "convert")
    from litebert.interop import convert as run

    for note in run(arguments.source, arguments.destination, to=arguments.to, head=arguments.head).notes:
        console.say(note)
    console.say(f"wrote {arguments.destination}")
    return 0


@dataclass
class QuickstartArguments:
    """From raw text to a pretrained model, held-out scores and a report; minutes on two CPU cores."""

    out: Path = Path("quickstart")
    """Folder to write; the same command again continues."""
    text: tuple[str, ...] = ("python-docs",)
    """Sources of text, as in litebert prepare."""
    language: str = "en"
    """For sentence boundaries, as in litebert prepare."""
    vocab_size: int = 8192
    """Pieces of the tokenizer; a small text allows fewer."""
    budget: str = "8m"
    """For pretraining."""


def quickstart(words: list[str]) -> int:
    """litebert quickstart"""
    arguments = console.parse(QuickstartArguments, words, "quickstart")
    from litebert.studies.quickstart import quickstart as run
    from litebert.train.device import keep_freed_memory

    keep_freed_memory()
    with console.training_progress() as on_step:
        return run(**vars(arguments), show=console.table, on_step=on_step, watch=console.reading_progress)
