"""`study`: a comparison from its name to its report."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

from litebert.answer.minimal_pairs import read_paradigms
from litebert.errors import DataError, RunError
from litebert.registry import TASKS
from litebert.storage import locked
from litebert.studies.cells import cells_of, run_cells
from litebert.studies.page import Findings, write_reports
from litebert.studies.plan import Extras, planned
from litebert.studies.study import Scale, slug, study_of

log = logging.getLogger("litebert")


def study(
    name: str,
    data: str | Path,
    out: str | Path | None = None,
    *,
    budget: str = "30m",
    seeds: int = 3,
    scale: Scale = "tiny",
    tasks: Mapping[str, str | Path] | None = None,
    blimp: str | Path | None = None,
    jobs: int = 0,
    device: str = "auto",
    command: Sequence[str] = (),
) -> Findings:
    """Run a study, or what is left of it, and write its reports; `Findings.stopped` where a signal
    came before its end.

    Args:
        name: one of `STUDIES`, a TOML file, or `file.py:function`.
        data: a folder written by `prepare`.
        out: the folder of the study; by default `study-NAME`.
        budget: a time for the whole grid, or steps or tokens for each run.
        seeds: runs of each variant.
        scale: size of the encoder that is varied.
        tasks: folders of tasks to fine-tune each run on, by their names.
        blimp: sentence pairs to score each run on.
        jobs: runs at a time; 0 chooses by the machine.
        device: auto, cpu, cuda, or mps on a Mac.
        command: the words that the report shows as the command.

    Raises:
        ConfigError: the study, a task or the budget cannot be.
        DataError: the data, a task's folder or the sentence pairs cannot be used.
        RunError: the folder is in use, or holds another study or something else.
    """
    asked = study_of(name, scale)
    folder = Path(out) if out is not None else Path(f"study-{slug(Path(name).stem)}")
    extras = Extras(
        {task: Path(place) for task, place in (tasks or {}).items()},
        None if blimp is None else Path(blimp),
    )
    for task, place in extras.tasks.items():  # before hours of training
        TASKS[task]
        if not place.exists():
            raise DataError(
                f"{place}, the data of {task}, does not exist; give --tasks {task}=FOLDER"
            )
    if extras.blimp is not None:
        read_paradigms(extras.blimp, 1)
    with locked(folder, RunError):
        plan = planned(
            asked,
            name,
            folder,
            Path(data),
            extras,
            scale=scale,
            budget=budget,
            seeds=seeds,
            jobs=jobs,
            device=device,
        )
        cells = cells_of(asked, plan, extras, device)
        log.info(
            f"{asked.question} {len(asked.variants)} variants x {plan.seeds} seeds = "
            f"{len(cells)} runs, {plan.jobs} at "
            "a time; steps: "
            f"{', '.join(f'{variant} {count:,}' for variant, count in plan.steps.items())}"
        )
        stopped = run_cells(cells, plan)
        found = Findings(
            asked, plan, cells, (*(["blimp"] if extras.blimp else []), *extras.tasks), stopped
        )
        write_reports(found, command or ("study", name))
    return found
