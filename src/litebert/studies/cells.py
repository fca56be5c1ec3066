"""The runs of a study: each an ordinary run folder, made by ordinary commands in processes of their
own.

A run that fails says so in its cell and takes nothing else with it. Everything continues:
`pretrain` and `finetune` by themselves, and a command that prints scores is not repeated where its
file is whole.
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
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from litebert import progress
from litebert.errors import RunError
from litebert.json_reader import read_json
from litebert.registry import TASKS
from litebert.storage import locked, write_json
from litebert.studies.plan import DECIDING, Extras, Plan, surroundings
from litebert.studies.study import Study
from litebert.train import metrics

log = logging.getLogger("litebert")

PROGRAM = (sys.executable, "-m", "litebert")
POLL_SECONDS = 0.2
STOP_SECONDS = 120.0
"""That runs have to save, once they were told to stop."""
Running = dict[int, "tuple[Cell, int, subprocess.Popen[bytes], IO[bytes]]"]
"""What runs at each place: a cell, the number of its command, the process, and its log."""


@dataclass(frozen=True)
class Command:
    """A command of litebert, and the file that keeps what it prints."""

    words: tuple[str, ...]
    output: Path

    @property
    def done(self) -> bool:
        """Whether it has ended well."""
        return self.output.is_file()


@dataclass
class Cell:
    """One variant with one seed."""

    variant: str
    seed: int
    run: Path
    steps: int
    commands: tuple[Command, ...]
    after: str | None = None
    """The variant whose weights it starts from."""
    fault: str = ""
    """Why it has no scores, in a sentence."""

    @property
    def done(self) -> bool:
        """Whether all its scores are there."""
        return all(command.done for command in self.commands)

    @property
    def folders(self) -> list[Path]:
        """The folders that its commands write: that of its run, and one for each task."""
        return [
            Path(one.words[one.words.index("--out") + 1])
            for one in self.commands
            if "--out" in one.words
        ]

    def step(self) -> int:
        """How far its training has come."""
        if self.commands[0].done:
            return self.steps
        with suppress(OSError, RunError):
            rows = metrics.read(self.run / "metrics.jsonl")
            return max((int(row["step"]) for row in rows), default=0)
        return 0


def cells_of(study: Study, plan: Plan, extras: Extras, device: str) -> list[Cell]:
    """The cells of a study, seed by seed, so that an early look sees every variant."""
    return [
        _cell(study, plan, extras, variant, seed, device)
        for seed in range(plan.seeds)
        for variant in study.variants
    ]


def _cell(study: Study, plan: Plan, extras: Extras, variant: str, seed: int, device: str) -> Cell:
    run, steps, after = plan.run(variant, seed), plan.steps[variant], study.after.get(variant)
    scores = plan.folder / "scores" / run.name
    sequences = DECIDING * study.variants[variant].train.evaluate_sequences
    on = ("--device", device) if device != "auto" else ()
    source = ("--from", str(plan.run(after, seed))) if after else ()
    commands = [
        Command(
            (
                "pretrain",
                str(plan.recipe(variant)),
                "--data",
                str(plan.data_of(variant)),
                "--out",
                str(run),
                "--budget",
                f"{steps} steps",
                "--train.seed",
                str(seed),
                *source,
                *on,
                "--json",
            ),
            scores / "pretrain.json",
        ),
        Command(
            (
                "evaluate",
                str(run),
                "--data",
                str(plan.data),
                "--sequences",
                str(sequences),
                *on,
                "--json",
            ),
            scores / "heldout.json",
        ),
    ]
    if extras.blimp is not None:
        words = ("evaluate", str(run), "--blimp", str(extras.blimp), *on, "--json")
        commands.append(Command(words, scores / "blimp.json"))
    for name, folder in extras.tasks.items():
        out = plan.folder / "tasks" / f"{run.name}-{name}"
        words = ("finetune", str(run), "--task", name, "--data", str(folder), "--out", str(out))
        commands.append(
            Command((*words, "--train.seed", str(seed), *on, "--json"), scores / f"{name}.json")
        )
    return Cell(variant, seed, run, steps, tuple(commands), after)


def scores_of(cell: Cell) -> dict[str, float]:
    """Every score of a cell that has ended: held out by name, `blimp`, and of each task its
    deciding one.

    Percentages become fractions, as all others are.
    """
    found: dict[str, float] = {}
    for command in cell.commands[1:]:
        data, name = read_json(command.output, RunError), command.output.stem
        if name == "heldout":
            found.update({key: value for key, value in data.items() if isinstance(value, float)})
        elif name == "blimp":
            found["blimp"] = float(data["blimp"]["overall"]["plain"]["accuracy"])
        else:
            found[name] = float(data["scores"][0][data["metric"]]) / (
                100.0 if TASKS[name].percent else 1.0
            )
    return found


def run_cells(cells: Sequence[Cell], plan: Plan) -> int | None:
    """Run what is left of the cells, `plan.jobs` at a time; the signal that stopped it, None where
    all have ended.

    A cell that starts from another one waits for it, and fails where that failed. The caller holds
    the study's folder.
    """
    for path in (plan.folder / "scores").glob("*/*.part"):  # what a killed study left
        with suppress(OSError):
            path.unlink()
    left = [cell for cell in cells if not cell.done]
    logs = plan.folder / "logs"  # where each run's messages go
    logs.mkdir(exist_ok=True)
    total, before = sum(cell.steps for cell in cells), sum(cell.step() for cell in cells)
    with progress.task("study", total, "steps", before, tenths=True) as bar, _Stop() as stop:
        running: Running = {}
        try:
            _work(left, cells, plan, logs, bar, stop, running)
        finally:  # a signal or an error leaves none behind
            _end([process for _, _, process, _ in running.values()])
            for *_, output in running.values():
                output.close()
    return stop.signal


def _work(
    left: list[Cell],
    cells: Sequence[Cell],
    plan: Plan,
    logs: Path,
    bar: progress.Task,
    stop: _Stop,
    running: Running,
) -> None:
    by_name = {(cell.variant, cell.seed): cell for cell in cells}
    free = list(range(plan.jobs))
    while (left or running) and stop.signal is None:
        while left and free:
            cell = next((one for one in left if _may_start(one, by_name)), None)
            if cell is None:
                break
            left.remove(cell)
            if cell.fault:
                continue
            place = free.pop(0)
            running[place] = _start(cell, 0, place, plan, logs)
        time.sleep(POLL_SECONDS)
        for place, (cell, number, process, output) in list(running.items()):
            if process.poll() is None:
                continue
            output.close()
            del running[place]
            _ended(cell, number, process.returncode, logs)
            later = next(
                (n for n in range(number + 1, len(cell.commands)) if not cell.commands[n].done),
                None,
            )
            if cell.fault or later is None:
                free.append(place)
            else:
                running[place] = _start(cell, later, place, plan, logs)
        bar.done = sum(cell.step() for cell in cells)
        ended = sum(cell.done for cell in cells)
        failed = sum(bool(cell.fault) for cell in cells)
        bar.text = f"{ended} of {len(cells)} runs" + (f", {failed} failed" if failed else "")


def _may_start(cell: Cell, by_name: Mapping[tuple[str, int], Cell]) -> bool:
    """Whether what a cell starts from is there, and no run that a killed study left behind still
    works on it.

    Where the cell it starts from failed, this one fails too.
    """
    if cell.after is not None:
        source = by_name[cell.after, cell.seed]
        if source.fault:
            cell.fault = f"it starts from '{cell.after}', which failed"
            return True
        if not source.commands[0].done:
            return False
    for folder in cell.folders:
        if folder.is_dir():
            try:
                with locked(folder, RunError):
                    pass
            except RunError:
                return False
    return True


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Stop processes, with time to save; a second signal ends that time too."""
    for process in processes:
        process.terminate()
    until = time.monotonic() + STOP_SECONDS
    try:
        for process in processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, until - time.monotonic()))
    finally:
        for process in processes:  # nothing to one that has ended
            process.kill()
            process.wait()


def _start(
    cell: Cell, number: int, place: int, plan: Plan, logs: Path
) -> tuple[Cell, int, subprocess.Popen[bytes], IO[bytes]]:
    """Start a command, or the next that is not done, of a cell."""
    number = next(n for n in range(number, len(cell.commands)) if not cell.commands[n].done)
    words = cell.commands[number].words
    output = (logs / f"{cell.run.name}.log").open("ab")
    output.write(f"$ litebert {shlex.join(words)}\n".encode())
    output.flush()
    aside = _aside(cell.commands[number].output)
    aside.parent.mkdir(parents=True, exist_ok=True)
    with aside.open("wb") as printed:
        process = subprocess.Popen(
            [*PROGRAM, *words],
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=output,
            env=surroundings(place, plan.threads),
            start_new_session=True,
        )
    return cell, number, process, output


def _ended(cell: Cell, number: int, status: int, logs: Path) -> None:
    """Keep what a command printed, or say why it failed."""
    command = cell.commands[number]
    aside = _aside(command.output)
    if status == 0:
        try:
            write_json(command.output, json.loads(aside.read_bytes()))
        except ValueError as error:
            cell.fault = f"litebert {command.words[0]} printed no JSON ({error})"
        aside.unlink()
        return
    aside.unlink(missing_ok=True)
    lines = (logs / f"{cell.run.name}.log").read_text("utf-8", "replace").rstrip().split("\n")
    cell.fault = (
        lines[-1] if status > 0 else f"litebert {command.words[0]} was killed by signal {-status}"
    )
    log.warning(f"{cell.variant}, seed {cell.seed}: {cell.fault}; the other runs go on")


def _aside(output: Path) -> Path:
    """Where it is printed first; the name is this process's own, for one that was killed may have
    left its commands.
    """
    return output.with_suffix(f".{os.getpid()}.part")


class _Stop:
    """Holds the first SIGINT, SIGTERM or SIGHUP back, so that the runs can save; the second one
    ends at once.
    """

    def __init__(self) -> None:
        self.signal: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> _Stop:
        with suppress(ValueError):  # not in the main thread, where signals arrive
            for name in ("SIGINT", "SIGTERM", "SIGHUP"):
                number = getattr(signal, name, None)  # Windows has no SIGHUP
                if (
                    number is not None and signal.getsignal(number) != signal.SIG_IGN
                ):  # nohup ignores it
                    self._before[number] = signal.signal(number, self._received)
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def _received(self, number: int, _: object) -> None:
        if self.signal is not None:
            raise KeyboardInterrupt
        self.signal = number
        log.info("stopping: the runs save what they have; the same command continues")
