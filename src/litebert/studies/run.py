"""Run a study, from its name to its report."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

from litebert.answer.masks.minimal_pairs import read_paradigms
from litebert.data.shards import Shards
from litebert.errors import DataError, RunError
from litebert.registry import TASKS
from litebert.storage import lock_folder
from litebert.studies.cells import make_cells, run_cells
from litebert.studies.findings import Findings, find_decided
from litebert.studies.page import write_reports
from litebert.studies.plan import PLAN, Extras, Plan, make_plan
from litebert.studies.power import make_power, measure_spread, read_seed_scores
from litebert.studies.statistics import compare_with_baseline
from litebert.studies.study import Scale, Study, make_slug, make_study

log = logging.getLogger("litebert")


def study(
    name: str,
    shards: str | Path,
    out: str | Path | None = None,
    *,
    budget: str = "30m",
    seeds: int = 5,
    scale: Scale = "tiny",
    tasks: Mapping[str, str | Path] | None = None,
    blimp: str | Path | None = None,
    pilot: str | Path | None = None,
    jobs: int = 0,
    device: str = "auto",
    forecast: bool = False,
    command: Sequence[str] = (),
) -> Findings:
    """Run a study, or the rest of it, and write its reports.

    Args:
        name: a name in `STUDIES`, a TOML file, or `file.py:function`.
        shards: a folder written by `prepare`.
        out: by default `study-NAME`.
        budget: a time for the whole grid, or steps or tokens for each run.
        seeds: most runs of each variant.
        scale: size of the encoder that is varied.
        tasks: folders of tasks to fine-tune on, by name.
        blimp: sentence pairs to score each run on.
        pilot: an earlier study, whose seeds tell the spread before this study starts.
        jobs: runs at a time; 0 chooses by the machine. device: auto, cpu, cuda, or mps.
        forecast: whether to end before the first run, with the plan written.
        command: the words that the report shows as the command.

    Returns the scores, and the signal that ended the study early, if any.

    Raises:
        ConfigError: the study, a task or the budget is wrong.
        DataError: the data, a task's folder or the pairs cannot be used.
        RunError: the folder is in use, or holds another study or something else.
    """
    grid = make_study(name, scale)
    folder = Path(out or f"study-{make_slug(Path(name).stem)}")
    extras = _make_extras(tasks or {}, blimp)
    Shards.open(shards)  # so that a wrong path leaves no folder
    with lock_folder(folder, RunError):
        plan = make_plan(
            grid,
            name,
            folder,
            Path(shards),
            extras,
            scale=scale,
            budget=budget,
            seeds=seeds,
            jobs=jobs,
            device=device,
            power=_describe_power(grid, folder, seeds, extras, pilot),
        )
        findings = _run_plan(grid, plan, extras, device, forecast)
        write_reports(findings, command or ("study", name))
        return findings


def _run_plan(grid: Study, plan: Plan, extras: Extras, device: str, forecast: bool) -> Findings:
    """Run the cells of a plan, and return their scores."""
    cells = make_cells(grid, plan, extras, device)
    steps = ", ".join(f"{variant} {count:,}" for variant, count in plan.steps.items())
    log.info(
        f"{grid.question} {len(grid.variants)} variants x {plan.seeds} seeds = "
        f"{len(cells)} runs, {plan.jobs} at a time; steps: {steps}"
    )
    names = _list_extra_scores(extras)
    if forecast:  # the verb shows the cost and the power
        return Findings(grid, plan, cells, names)
    for sentence in (plan.describe_cost(), plan.power):
        if sentence:
            log.info(sentence)
    stopped = run_cells(cells, plan, lambda cells: find_decided(grid, plan, names, cells))
    findings = Findings(grid, plan, cells, names, stopped)
    if power := findings.find_power():
        log.info(power.describe())
    if warning := findings.warn_of_frequencies():
        log.warning(warning)
    return findings


def _list_extra_scores(extras: Extras) -> tuple[str, ...]:
    return (*(["blimp"] if extras.blimp else []), *extras.tasks)


def _describe_power(
    grid: Study, folder: Path, seeds: int, extras: Extras, pilot: str | Path | None
) -> str:
    """Describe which difference a study sees before its first run; "" if it can test nothing.

    Raises:
        DataError: the folder of the earlier study cannot be read.
    """
    if (folder / PLAN).exists():  # it was said before
        return ""
    judged = grid.list_judged(_list_extra_scores(extras))
    spread = None
    if pilot is not None and judged:
        scores = read_seed_scores(Path(pilot))
        baseline = grid.baseline if grid.baseline in scores else next(iter(scores), "")
        differences = compare_with_baseline(scores, baseline, judged[:1], seeds)
        spread = measure_spread(differences, judged[0], f"the study in {pilot}")
        if spread is None:
            raise DataError(
                f"{pilot} has no two seeds of two variants with the score {judged[0]}; give "
                "--pilot the folder of a study that has, or leave it out"
            )
    power = make_power(seeds, (len(grid.variants) - 1) * len(judged), spread)
    return power.describe() if power else ""


def _make_extras(tasks: Mapping[str, str | Path], blimp: str | Path | None) -> Extras:
    """Refuse wrong tasks and sentence pairs now, rather than after hours of training."""
    extras = Extras(
        {task: Path(path) for task, path in tasks.items()},
        None if blimp is None else Path(blimp),
    )
    for task, path in extras.tasks.items():
        TASKS[task]  # raises a ConfigError for an unknown name
        if not path.exists():
            raise DataError(
                f"{path}, the data of {task}, does not exist; give --tasks {task}=FOLDER"
            )
    if extras.blimp is not None:
        read_paradigms(extras.blimp, 1)
    return extras
