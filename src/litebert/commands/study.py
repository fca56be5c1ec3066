"""`litebert study` and `studies`: comparisons of variants on your own text."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from litebert.base.errors import ConfigError
from litebert.base.storage import check_output
from litebert.commands import console
from litebert.commands.console import DataPath, Json
from litebert.commands.options import Arg, drop_options

if TYPE_CHECKING:
    from litebert.studies.findings import Findings
    from litebert.studies.plan import Plan


@dataclass
class StudyArguments:
    """Run a comparison as a grid of training runs, and report which differences exceed the noise of
    the seeds. The same command again continues.
    """

    examples: ClassVar[tuple[str, ...]] = (
        "litebert study sharing --shards data --budget 2h",
        "litebert study sharing --shards data --budget 2h --forecast",
    )

    name: Annotated[str, Arg("NAME", positional=True)]
    """A study of litebert studies, a TOML file or file.py:function."""
    shards: DataPath | None = None
    """Folder of litebert prepare; it must be given."""
    out: Path | None = None
    """Folder to write; by default study-NAME."""
    budget: str = "30m"
    """A time for the whole grid, such as 2h; or steps or tokens for each run."""
    seeds: int = 5
    """Most runs of each variant; one gives no verdict."""
    scale: Literal["toy", "micro", "claim", "tiny", "mini", "base"] = "tiny"
    """Size of the encoder; toy takes seconds a run, micro up to minutes."""
    tasks: Annotated[tuple[str, ...], Arg("TASK=FOLDER")] = ()
    """Also fine-tune each run on these tasks, such as sst2=GLUE/SST-2."""
    blimp: Path | None = None
    """Also score each run on pairs of sentences, as litebert evaluate does."""
    pilot: Path | None = None
    """Folder of an earlier study, whose spread tells what this one can detect."""
    jobs: int = 0
    """Runs at a time; 0 chooses, by cores, GPUs and memory."""
    device: str = "auto"
    """auto, cpu, cuda, or mps on a Mac."""
    page: Path | None = None
    """Markdown file for the page of the study, with a picture beside it."""
    forecast: bool = False
    """Only say what the study costs and which difference it can detect."""
    json: Json = False


def study(words: list[str]) -> int:
    arguments = console.parse(StudyArguments, words, "study")
    with console.loading():
        from litebert.studies.page import write_markdown
        from litebert.studies.papers import make_study
        from litebert.studies.plan import StudySettings
        from litebert.studies.run import study as run

    if arguments.page is not None:
        check_output(arguments.page, "--page")
        check_output(arguments.page.with_suffix(".png"), "--page")
    if arguments.shards is None:
        make_study(arguments.name, arguments.scale)  # a wrong name is refused before missing data
        raise ConfigError(
            "no data to train on is given; name a folder written by litebert prepare with --shards"
        )
    command = ("study", *drop_options(words, ["--forecast"], ["--page"]))
    outcome = run(
        arguments.name,
        arguments.shards,
        arguments.out,
        StudySettings(
            budget=arguments.budget,
            seeds=arguments.seeds,
            scale=arguments.scale,
            tasks=dict(map(_task, arguments.tasks)),
            blimp=arguments.blimp,
            pilot=arguments.pilot,
            jobs=arguments.jobs,
            device=arguments.device,
        ),
        forecast=arguments.forecast,
        command=command,
    )
    if arguments.page is not None:
        write_markdown(outcome, command, arguments.page)
    if arguments.forecast:
        _show_forecast(outcome.plan, arguments)
        return 0
    page = outcome.plan.folder / "report.html"
    failed = {cell.run.name: cell.fault for cell in outcome.cells if cell.fault}
    if outcome.stopped is not None:
        console.say(f"stopped; {page} shows what has ended, and the same command continues")
        return 128 + outcome.stopped
    if arguments.json:
        console.print_json(
            {
                "study": arguments.name,
                "scores": outcome.scores,
                "verdicts": outcome.verdicts(),
                "differences": [vars(difference) for difference in outcome.differences],
                "failed": failed,
            }
        )
    else:
        _show_findings(outcome)
    console.ending(f"{page}, report.md and results.csv")
    return 1 if failed else 0


def _show_forecast(plan: Plan, arguments: StudyArguments) -> None:
    if arguments.json:
        forecast = {"hours": plan.hours, "power": plan.power}
        console.print_json({"study": arguments.name, **forecast})
    else:
        console.show(f"{plan.describe_cost()} {plan.power}".strip())


def _show_findings(findings: Findings) -> None:
    table = findings.make_table()
    console.wide_table(table)
    console.show(table.note)
    for sentence in findings.verdicts():
        console.show(sentence)


@dataclass
class StudiesArguments:
    """List the studies and the question that each of them answers."""

    examples: ClassVar[tuple[str, ...]] = ("litebert studies",)

    json: Json = False


def studies(words: list[str]) -> int:
    arguments = console.parse(StudiesArguments, words, "studies")
    with console.loading():
        from litebert.studies.papers import STUDIES, make_study

    questions = {name: make_study(name, "tiny").question for name in STUDIES}
    if arguments.json:
        console.print_json(questions)
        return 0
    console.table(("study", "question"), list(questions.items()))
    console.ending(None, ("study", next(iter(questions)), "--shards", "DATA"))
    return 0


def _task(word: str) -> tuple[str, Path]:
    name, _, folder = word.partition("=")
    if not folder:
        raise ConfigError(f"--tasks {word} names no folder; write it like sst2=GLUE/SST-2")
    return name, Path(folder)
