"""`litebert pretrain`, `compare` and `quickstart`.

Arguments are read before torch is imported, so that help and errors appear at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from litebert.base import launch, progress
from litebert.base.errors import ConfigError, RunError
from litebert.base.machine import keep_freed_memory
from litebert.base.storage import check_output
from litebert.commands import console
from litebert.commands.console import DataPath, DeviceName, Json, RecipeName
from litebert.commands.options import Arg, Short, ShortForms, require_beside
from litebert.config import Config, replace
from litebert.hub import pin_to_record
from litebert.model.objectives import score_rows
from litebert.remote.names import shorten

if TYPE_CHECKING:
    from litebert.analysis.report import Table


@dataclass(kw_only=True)
class PretrainArguments:
    """Train a recipe on token shards. The same command again continues; Ctrl-C saves and stops.

    Every field of the recipe is an option too. Without RECIPE, --from MODEL trains that model
    further.
    """

    examples: ClassVar[tuple[str, ...]] = (
        "litebert pretrain albert-next-tiny --shards data --out run --budget 30m",
        "litebert pretrain bert-mini --shards books:2 web:1 --out run --lr 5e-4",
        'litebert pretrain --from MODEL --shards data --out run --budget "5000 steps"',
    )

    common: ClassVar[str] = (
        "budget from teacher lr batch-size max-length bf16 seed train.micro-batch tracker "
        "overwrite device json"
    )

    recipe: RecipeName = ""
    shards: Annotated[tuple[str, ...], Arg("DATA[:WEIGHT]")]
    """Folders of litebert prepare, with weights if they are several."""
    out: Path
    """Folder of the run."""
    budget: str | None = None
    """How long to train: 30m, 5000 steps, 300M tokens."""
    add_budget: Annotated[tuple[str, ...], Arg("BUDGET")] = ()
    """Further budgets of a finished run, all of them so far: 30m 1h."""
    from_model: Annotated[Path | None, Arg("MODEL", name="from")] = None
    """Start from the weights of a model of the same shape and tokenizer."""
    table_from: Annotated[str | None, Arg("MODEL")] = None
    """Start the token table from that of a larger model of any tokenizer."""
    teacher: Annotated[Path | None, Arg("MODEL")] = None
    """Learn from a pretrained model of any size, by the fields of distill."""
    overwrite: bool = False
    """Delete the run in --out and start again."""
    device: DeviceName = "auto"
    json: Json = False
    short: Short = field(default_factory=ShortForms)


def pretrain(words: list[str]) -> int:
    arguments, config = console.parse_with_recipe(
        PretrainArguments, words, "pretrain", _recipe_of_model
    )
    with console.loading():
        from litebert.analysis.run_report import write_run
        from litebert.data.mixture import parse_weights
        from litebert.train.pretrain import pretrain as run
        from litebert.train.start import run_folder
        from litebert.train.trackers import keep_artifacts

    keep_freed_memory()
    console.refuse_lessons(words, arguments.teacher)
    data = parse_weights(arguments.shards)
    if arguments.budget is not None:
        config = replace(config, train=replace(config.train, budget=arguments.budget))
    if arguments.table_from:
        config = replace(config, table=replace(config.table, model=arguments.table_from))
    with console.group() as ranks:
        if arguments.overwrite:
            ranks.decide(lambda: console.confirm_overwrite(run_folder(arguments.out)))
        done = run(
            config,
            data,
            arguments.out,
            from_model=arguments.from_model,
            teacher=arguments.teacher,
            add_budget=arguments.add_budget,
            overwrite=arguments.overwrite,
            device=arguments.device,
        )
        outcome = done.outcome
        if ranks.main:
            write_run(done.folder)
            keep_artifacts(done.folder, config.tracker, outcome.step)
    if not outcome.finished:
        console.say(
            f"saved at step {outcome.step:,} of {done.steps:,}; run the same command to continue"
        )
        return 128 + (outcome.signal or 0)
    if not ranks.main:  # only the main process has the run, where machines share no disk
        return 0
    if arguments.json:
        counts = {"steps": done.steps, "tokens": outcome.tokens, "seconds": outcome.seconds}
        console.print_json({"run": str(done.folder), **counts, "heldout": outcome.scores})
    else:
        console.table(("held out", done.folder.name), score_rows(outcome.scores))
    first = shorten(data if isinstance(data, str) else next(iter(data)))
    console.ending(
        f"{done.folder}; its curves are in {done.folder / 'report.html'}",
        ("evaluate", done.folder, "--shards", first),
        console.suggest_finetuning(done.folder),
    )
    return 0


def _recipe_of_model(arguments: PretrainArguments) -> Config:
    if arguments.from_model is None:
        raise ConfigError("give RECIPE, such as albert-next-tiny, or a model with --from")
    with console.loading():
        from litebert.train.initial_weights import build_further_recipe
        from litebert.train.start import IDENTITY
    if not arguments.overwrite or launch.restarts():
        pin_to_record(arguments.out / IDENTITY)
    return build_further_recipe(arguments.from_model)


@dataclass
class CompareArguments:
    """Show runs of pretraining or of fine-tuning in one table, with the settings that differ."""

    examples: ClassVar[tuple[str, ...]] = (
        "litebert compare run-1 run-2",
        "litebert compare run-1 run-2 --shards data --page runs.html",
    )

    runs: Annotated[tuple[str, ...], Arg("RUN", positional=True)]
    """Run folders, all of pretraining or all of fine-tuning."""
    shards: DataPath | None = None
    """Score pretraining runs again, on the held-out text of this folder."""
    page: Path | None = None
    """Also write a page with the held-out curves of pretraining runs."""
    device: str = "auto"
    """Device that scores --shards, as in litebert finetune."""
    markdown: bool = False
    """Print the table as GitHub's Markdown."""
    json: Json = False


def compare(words: list[str]) -> int:
    arguments = console.parse(CompareArguments, words, "compare")
    with console.loading():
        from litebert.analysis import compare as runs
        from litebert.analysis import compare_tasks as tasks

    if arguments.json and arguments.markdown:
        raise ConfigError(
            "--json and --markdown are two formats of one table; give only one of them"
        )
    if not arguments.runs:
        raise RunError("name the folder of at least one run")
    require_beside("shards", arguments, "device")
    kinds = {tasks.is_task_run(Path(run)): run for run in arguments.runs}
    is_finetuned = True in kinds
    if len(kinds) == 2:
        raise RunError(
            f"{kinds[True]} is a fine-tuning run and {kinds[False]} is none; compare runs of one "
            "kind"
        )
    if is_finetuned and arguments.page is not None:
        raise RunError("--page draws pretraining runs; leave it out for fine-tuning runs")
    if arguments.page is not None:
        check_output(arguments.page, "--page")
    if is_finetuned and arguments.shards is not None:
        raise RunError(
            "--shards scores pretraining runs; leave it out for fine-tuning runs, and see "
            "litebert evaluate --data"
        )
    comparison: _Comparison
    with progress.task("reading the runs"):
        if is_finetuned:
            scores = tasks.compare_tasks(arguments.runs)
            tables = tasks.make_task_table(scores), tasks.make_differences_table(scores)
            comparison = _Comparison(scores, *tables, [], 2)
        else:
            rows = runs.compare(arguments.runs, arguments.shards, arguments.device)
            tables = runs.make_table(rows), runs.make_settings_table(rows)
            comparison = _Comparison(rows, *tables, runs.list_differences(rows), 1)
    _show_comparison(comparison, arguments)
    console.warn(*comparison.remarks)
    if arguments.page is not None:
        _write_comparison(comparison, arguments.page, arguments.runs)
    if is_finetuned:
        first = Path(arguments.runs[0])
        seeds = sorted(first.glob("seed-*/finetune.json"))
        model = seeds[0].parent if seeds else first  # one of several seeds predicts
        console.ending(None, ("predict", model, "--input", "FILE"))
    else:
        console.ending(None, console.suggest_finetuning(arguments.runs[0]))
    return 0


@dataclass(frozen=True)
class _Comparison:
    """Runs side by side, of pretraining or of fine-tuning."""

    rows: Sequence[Any]
    """A dataclass for each run, or for each task of a run."""
    scores: Table
    settings: Table
    """The settings in which the runs differ."""
    remarks: Sequence[str]
    """Sentences on runs that should not be compared without a second thought."""
    keys: int
    """Columns at the left that are repeated where the table is too wide for the terminal."""


def _show_comparison(comparison: _Comparison, arguments: CompareArguments) -> None:
    scores, settings = comparison.scores, comparison.settings
    if arguments.json:
        differing = [setting for setting, *_ in settings.rows]
        console.print_json([{**asdict(row), "differing": differing} for row in comparison.rows])
        return
    if arguments.markdown:
        console.print_markdown(scores.columns, scores.rows, scores.note)
        if settings.rows:
            console.show("")
            console.print_markdown(
                settings.columns, settings.rows, "The settings in which the runs differ."
            )
        return
    console.wide_table(scores, comparison.keys)
    console.show(scores.note)
    if settings.rows:
        console.wide_table(settings, title=settings.title)


def _write_comparison(comparison: _Comparison, page: Path, folders: Sequence[str]) -> None:
    from litebert.analysis.compare import shorten_names
    from litebert.analysis.curves import make_charts, read_points
    from litebert.analysis.report import write

    details = [comparison.settings] if comparison.settings.rows else []
    lead = " ".join(f"{remark[0].upper()}{remark[1:]}." for remark in comparison.remarks)
    curves = dict(zip(shorten_names(folders), map(read_points, map(Path, folders)), strict=True))
    scores = replace(comparison.scores, title="Scores and costs")
    write(page, "Runs side by side", lead, [scores, *make_charts(curves), *details])
    console.say(f"wrote {page}")


@dataclass
class QuickstartArguments:
    """Go from raw text to a pretrained model, its scores and a report, in minutes on two cores."""

    examples: ClassVar[tuple[str, ...]] = (
        "litebert quickstart",
        "litebert quickstart --source my-texts/ --language de --budget 30m --out mine",
    )

    out: Path = Path("quickstart")
    """Folder to write; the same command again continues."""
    source: tuple[str, ...] = ("python-docs",)
    """Files or folders of text; python-docs is the text that Python carries."""
    language: str = "en"
    """Language of the text, for sentence boundaries."""
    vocab_size: int | None = None
    """Tokens in the vocabulary; by default 8192, or what a small text allows."""
    budget: str = "4m"
    """How long to pretrain, such as 30m, 5000 steps or 300M tokens."""
    blimp: Annotated[str | None, Arg("PATH")] = None
    """Also score pairs of good and bad sentences, as in litebert evaluate."""
    device: DeviceName = "auto"
    seed: int = 0
    """Seed of all random choices."""
    json: Json = False


def quickstart(words: list[str]) -> int:
    arguments = console.parse(QuickstartArguments, words, "quickstart")
    with console.loading():
        from litebert.studies.quickstart import Quickstart
        from litebert.studies.quickstart import quickstart as run

    keep_freed_memory()
    options, tables = vars(arguments), list[dict[str, Any]]()
    as_json = options.pop("json")

    def collect(columns: Sequence[str], rows: Sequence[Any], title: str = "") -> None:
        tables.append({"title": title, "columns": columns, "rows": rows})

    show = collect if as_json else console.table
    status = run(Quickstart(**options), show, console.program())
    if as_json and status == 0:
        console.print_json(tables)
    return status
