"""The runs of a study: ordinary run folders, which ordinary commands in other processes write.

A run that fails notes so in its cell, and the other runs go on. A study that was stopped continues.
"""

from __future__ import annotations

import json
import logging
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

from litebert.base import progress
from litebert.base.errors import RunError
from litebert.base.json_reader import read_json
from litebert.base.registry import TASKS
from litebert.base.storage import atomic_text, lock_folder, write_json
from litebert.studies.grid import DECIDING, make_environment
from litebert.studies.plan import Plan, StudySettings
from litebert.studies.statistics import FIRST_LOOK
from litebert.studies.study import Study
from litebert.train import metrics

log = logging.getLogger("litebert")

PROGRAM = (sys.executable, "-m", "litebert")
Decide = Callable[[Sequence["Cell"]], Collection[str]]
"""A function from the cells of a study to the variants whose verdicts stand."""

TIMES = "times.csv"
"""The processor seconds of every command that ended: variant, seed, command, seconds."""
POLL_SECONDS = 0.2
STOP_SECONDS = 120.0
"""Seconds that runs have to save their state after a signal to stop."""


@dataclass(frozen=True)
class Command:
    words: tuple[str, ...]
    output: Path

    @property
    def done(self) -> bool:
        return self.output.is_file()


@dataclass
class Cell:
    variant: str
    seed: int
    run: Path
    steps: int
    commands: tuple[Command, ...]
    after: str | None = None
    fault: str = ""
    is_needless: bool = False
    """True if it was never started, because the verdicts on its variant stood before."""

    @property
    def done(self) -> bool:
        return all(command.done for command in self.commands)

    @property
    def folders(self) -> list[Path]:
        return [
            Path(command.words[command.words.index("--out") + 1])
            for command in self.commands
            if "--out" in command.words
        ]

    def count_steps(self) -> int:
        if self.commands[0].done:
            return self.steps
        with suppress(OSError, RunError):
            rows = metrics.read(self.run / "metrics.jsonl")
            return max((int(row["step"]) for row in rows), default=0)
        return 0


class _Job(NamedTuple):
    cell: Cell
    command: int
    process: subprocess.Popen[bytes]
    log: IO[bytes]


def make_cells(study: Study, plan: Plan, settings: StudySettings) -> list[Cell]:
    """Make the cells of a study, seed by seed, so that the first cells hold every variant."""
    return [
        _make_cell(study, plan, settings, variant, seed)
        for seed in range(plan.seeds)
        for variant in study.variants
    ]


def _make_cell(study: Study, plan: Plan, settings: StudySettings, variant: str, seed: int) -> Cell:
    run, steps = plan.run_folder(variant, seed), plan.steps[variant]
    after = study.after.get(variant)
    scores = plan.folder / "scores" / run.name
    sequences = DECIDING * study.variants[variant].train.evaluate_sequences
    on_device = () if settings.device == "auto" else ("--device", settings.device)
    source = ("--from", str(plan.run_folder(after, seed))) if after else ()

    def make_command(name: str, *words: str | Path) -> Command:
        return Command((*map(str, words), *on_device, "--json"), scores / f"{name}.json")

    pretrain = ("pretrain", plan.recipe_file(variant), "--shards", plan.data_folder(variant))
    budget = ("--budget", f"{steps} steps", "--train.seed", str(seed))
    evaluate = ("evaluate", run, "--shards", plan.data, "--sequences", str(sequences))
    commands = [
        make_command("pretrain", *pretrain, "--out", run, *budget, *source),
        make_command("heldout", *evaluate),
    ]
    if settings.blimp is not None:
        commands.append(make_command("blimp", "evaluate", run, "--blimp", settings.blimp))
    for name, folder in settings.tasks.items():
        out = plan.folder / "tasks" / f"{run.name}-{name}"
        words = ("finetune", run, "--task", name, "--data", folder, "--out", out)
        commands.append(make_command(name, *words, "--train.seed", str(seed)))
    return Cell(variant, seed, run, steps, tuple(commands), after)


def read_scores(cell: Cell) -> dict[str, float]:
    """Read the scores of a cell that has ended, as fractions: the held-out scores, `blimp`, and the
    deciding score of each task.
    """
    scores: dict[str, float] = {}
    for command in cell.commands[1:]:
        printed, name = read_json(command.output, RunError), command.output.stem
        if name == "heldout":
            scores |= {
                key: value for key, value in printed["scores"].items() if isinstance(value, float)
            }
        elif name == "blimp":
            scores["blimp"] = float(printed["blimp"]["overall"]["plain"]["accuracy"])
        else:
            unit = 100.0 if TASKS[name].percent else 1.0
            scores[name] = float(printed["scores"][0][printed["metric"]]) / unit
    return scores


def run_cells(cells: Sequence[Cell], plan: Plan, decide: Decide = lambda _: ()) -> int | None:
    """Run the cells that are not done, `plan.jobs` at a time, and return the signal that stopped
    the study; None if all have ended. The caller holds the lock of the study's folder.

    A cell that starts from another cell waits for it, and fails if that failed. After the first
    looks, a seed starts when the seeds before it have ended, without the variants whose verdicts
    stand. So the cells that run are the same however often the study was stopped.
    """
    for path in (plan.folder / "scores").glob("*/*.part"):  # files of a killed study
        with suppress(OSError):
            path.unlink()
    logs = plan.folder / "logs"
    logs.mkdir(exist_ok=True)
    _drop_needless(cells, plan, decide)
    cell_of = {(cell.variant, cell.seed): cell for cell in cells}
    waiting = [cell for cell in cells if not cell.done]
    free_slots = list(range(plan.jobs))
    jobs: dict[int, _Job] = {}
    total, done = _count_all_steps(cells), sum(cell.count_steps() for cell in cells)
    with progress.task("study", total, "steps", done, tenths=True) as bar, _Stop() as stop:
        try:
            while (waiting or jobs) and stop.signal is None:
                waiting = [cell for cell in waiting if not cell.is_needless]
                while waiting and free_slots:
                    cell = next((cell for cell in waiting if _may_start(cell, cell_of)), None)
                    if cell is None:
                        break
                    waiting.remove(cell)
                    if not cell.fault:
                        slot = free_slots.pop(0)
                        jobs[slot] = _start_next(cell, slot, plan, logs)
                time.sleep(POLL_SECONDS)
                for slot, job in list(jobs.items()):
                    seconds = -_count_processor_seconds()
                    if job.process.poll() is None:
                        continue
                    seconds += _count_processor_seconds()
                    job.log.close()
                    del jobs[slot]
                    _finish(job, logs)
                    if job.cell.fault or job.cell.done:
                        free_slots.append(slot)
                        _drop_needless(cells, plan, decide)
                        bar.total = _count_all_steps(cells)
                    else:
                        jobs[slot] = _start_next(job.cell, slot, plan, logs)
                    if not job.cell.fault:
                        _note_time(plan, job, seconds)
                bar.done = sum(cell.count_steps() for cell in cells)
                failed = sum(bool(cell.fault) for cell in cells)
                needed = sum(not cell.is_needless for cell in cells)
                bar.text = f"{sum(cell.done for cell in cells)} of {needed} runs"
                bar.text += f", {failed} failed" if failed else ""
        finally:  # no process goes on after a signal or an error
            _end([job.process for job in jobs.values()])
            for job in jobs.values():
                job.log.close()
    return stop.signal


def _count_all_steps(cells: Sequence[Cell]) -> int:
    return sum(cell.count_steps() if cell.is_needless else cell.steps for cell in cells)


def _count_processor_seconds() -> float:
    """Count the processor seconds of all processes that were started here and have ended."""
    times = os.times()
    return times.children_user + times.children_system


def _note_time(plan: Plan, job: _Job, seconds: float) -> None:
    words = (job.cell.run.name, job.cell.commands[job.command].output.stem, f"{seconds:.1f}")
    path = plan.folder / TIMES
    before = path.read_text("utf-8", "replace") if path.exists() else ""
    with atomic_text(path) as file:  # a line that an earlier version tore is cut off
        file.write(before[: before.rfind("\n") + 1] + ",".join(words) + "\n")


def _drop_needless(cells: Sequence[Cell], plan: Plan, decide: Decide) -> None:
    """Drop the cells that no open verdict needs, once all cells of a seed have ended."""
    seeds = {cell.seed for cell in cells}
    ended = [seed for seed in seeds if all(_has_ended(cell) for cell in cells if cell.seed <= seed)]
    if not ended or max(ended) + 1 < FIRST_LOOK:
        return
    decided = {*decide(cells)}
    variants = {cell.variant: cell.after for cell in cells}
    needed = {variant for variant in variants if variant not in decided}
    if needed <= {plan.baseline}:  # nothing is left to compare it with
        needed = set()
    for variant in reversed(list(variants)):  # what a variant starts from comes before it
        source = variants[variant]
        if variant in needed and source is not None:
            needed.add(source)
    for cell in cells:
        if cell.variant not in needed and cell.seed > max(ended) and not cell.done:
            cell.is_needless = True


def _has_ended(cell: Cell) -> bool:
    return cell.done or bool(cell.fault) or cell.is_needless


def _may_start(cell: Cell, cell_of: Mapping[tuple[str, int], Cell]) -> bool:
    """Return True if a cell can start: the cell it starts from has ended, trained or failed, and no
    run that a killed study left behind still writes its folders.
    """
    if cell.seed >= FIRST_LOOK and not all(
        _has_ended(earlier) for earlier in cell_of.values() if earlier.seed < cell.seed
    ):
        return False
    if cell.after is not None:
        source = cell_of[cell.after, cell.seed]
        if source.fault:
            cell.fault = f"it starts from '{cell.after}', which failed"
            return True
        if not source.commands[0].done:
            return False
    return not any(_is_locked(folder) for folder in cell.folders if folder.is_dir())


def _is_locked(folder: Path) -> bool:
    try:
        with lock_folder(folder, RunError):
            return False
    except RunError:
        return True


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.terminate()
    deadline = time.monotonic() + STOP_SECONDS
    try:
        for process in processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
    finally:
        for process in processes:  # does nothing to a process that has ended
            process.kill()
            process.wait()


def _start_next(cell: Cell, slot: int, plan: Plan, logs: Path) -> _Job:
    number = next(i for i, command in enumerate(cell.commands) if not command.done)
    command = cell.commands[number]
    log_file = (logs / f"{cell.run.name}.log").open("ab")
    log_file.write(f"$ litebert {shlex.join(command.words)}\n".encode())
    log_file.flush()
    temporary = _temporary_path(command.output)
    temporary.parent.mkdir(parents=True, exist_ok=True)
    with temporary.open("wb") as printed:
        process = subprocess.Popen(
            [*PROGRAM, *command.words],
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=log_file,
            env=make_environment(slot, plan.threads),
            start_new_session=True,
        )
    return _Job(cell, number, process, log_file)


def _finish(job: _Job, logs: Path) -> None:
    cell, command, status = job.cell, job.cell.commands[job.command], job.process.returncode
    temporary = _temporary_path(command.output)
    if status == 0:
        try:
            write_json(command.output, json.loads(temporary.read_bytes()))
        except ValueError as error:
            cell.fault = f"litebert {command.words[0]} printed no JSON ({error})"
        temporary.unlink()
        return
    temporary.unlink(missing_ok=True)
    if status > 0:
        lines = (logs / f"{cell.run.name}.log").read_text("utf-8", "replace").rstrip().split("\n")
        cell.fault = lines[-1]
    else:
        cell.fault = f"litebert {command.words[0]} was killed by signal {-status}"
    log.warning(f"{cell.variant}, seed {cell.seed}: {cell.fault}; the other runs continue")


def _temporary_path(output: Path) -> Path:
    # With the id of this process, because commands of a killed study may still print.
    return output.with_suffix(f".{os.getpid()}.part")


class _Stop:
    """Hold the first SIGINT, SIGTERM or SIGHUP back, so that the runs can save; the second ends the
    study at once.
    """

    def __init__(self) -> None:
        self.signal: int | None = None
        self._handlers_before: dict[int, Any] = {}

    def __enter__(self) -> _Stop:
        with suppress(ValueError):  # not in the main thread, where signals arrive
            for name in ("SIGINT", "SIGTERM", "SIGHUP"):
                number = getattr(signal, name, None)
                # Windows has no SIGHUP, and nohup ignores it.
                if number is None or signal.getsignal(number) == signal.SIG_IGN:
                    continue
                self._handlers_before[number] = signal.signal(number, self._receive)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._handlers_before.items():
            signal.signal(number, handler)

    def _receive(self, number: int, _: object) -> None:
        if self.signal is not None:
            raise KeyboardInterrupt
        self.signal = number
        log.info("stopping: the runs save their state; run the same command to continue")
