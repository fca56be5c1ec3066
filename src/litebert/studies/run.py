"""Run a study, from its name to its report."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from litebert.answer.masks.minimal_pairs import read_paradigms
from litebert.base.errors import DataError, RunError
from litebert.base.registry import TASKS
from litebert.base.storage import lock_folder
from litebert.data.shards import Shards
from litebert.studies.cells import make_cells, run_cells
from litebert.studies.findings import Findings, describe_power, find_decided
from litebert.studies.page import write_reports
from litebert.studies.papers import make_study
from litebert.studies.plan import StudySettings, make_plan
from litebert.studies.statistics import (
    compare_with_baseline,
    make_power,
    measure_spread,
    read_seed_scores,
)
from litebert.studies.study import Study, make_slug

log = logging.getLogger("litebert")


def study(
    name: str,
    shards: str | Path,
    out: str | Path | None = None,
    settings: StudySettings | None = None,
    *,
    forecast: bool = False,
    command: Sequence[str] = (),
) -> Findings:
    """Run a study, or the rest of it, and write its reports.

    Args:
        name: a name in `STUDIES`, a TOML file, or `file.py:function`.
        shards: a folder written by `prepare`.
        out: by default `study-NAME`.
        settings: `litebert.StudySettings`, such as the budget and the seeds.
        forecast: whether to end before the first run, with the plan written.
        command: the words that the report shows as the command.

    Returns the scores, and the signal that ended the study early, if any.

    Raises:
        ConfigError: the study, a task or the budget is wrong.
        DataError: the data, a task's folder or the pairs cannot be used.
        RunError: the folder is in use, or holds another study or something else.
    """
    settings = settings or StudySettings()
    grid = make_study(name, settings.scale)
    folder = Path(out or f"study-{make_slug(Path(name).stem)}")
    # Wrong tasks and sentence pairs are refused now, rather than after hours of training.
    for task, path in settings.tasks.items():
        TASKS[task]  # raises a ConfigError for an unknown name
        if not path.exists():
            raise DataError(
                f"{path}, the data of {task}, does not exist; give --tasks {task}=FOLDER"
            )
    if settings.blimp is not None:
        read_paradigms(settings.blimp, 1)
    Shards.open(shards)  # so that a wrong path leaves no folder
    with lock_folder(folder, RunError):
        power = partial(_describe_power, grid, settings)
        plan = make_plan(grid, name, folder, Path(shards), settings, power)
        cells = make_cells(grid, plan, settings)
        steps = ", ".join(f"{variant} {count:,}" for variant, count in plan.steps.items())
        log.info(
            f"{grid.question} {len(grid.variants)} variants x {plan.seeds} seeds = "
            f"{len(cells)} runs, {plan.jobs} at a time; steps: {steps}"
        )
        stopped = None
        if not forecast:  # whose verb shows the cost and the power
            for sentence in filter(None, (plan.describe_cost(), plan.power)):
                log.info(sentence)
            stopped = run_cells(
                cells, plan, lambda cells: find_decided(grid, plan, settings.scores, cells)
            )
        findings = Findings(grid, plan, cells, settings.scores, stopped)
        if not forecast:
            if measured := findings.find_power():
                log.info(describe_power(measured))
            if warning := findings.warn_of_frequencies():
                log.warning(warning)
        write_reports(findings, command or ("study", name))
        return findings


def _describe_power(grid: Study, settings: StudySettings) -> str:
    judged, pilot, seeds = grid.list_judged(settings.scores), settings.pilot, settings.seeds
    spread = None
    if pilot is not None and judged:
        scores = read_seed_scores(pilot)
        baseline = grid.baseline if grid.baseline in scores else next(iter(scores), "")
        differences = compare_with_baseline(scores, baseline, judged[:1], seeds)
        spread = measure_spread(differences, judged[0], f"the study in {pilot}")
        if spread is None:
            raise DataError(
                f"{pilot} has no two seeds of two variants with the score {judged[0]}; give "
                "--pilot the folder of a study that has, or leave it out"
            )
    power = make_power(seeds, (len(grid.variants) - 1) * len(judged), spread)
    return describe_power(power) if power else ""
