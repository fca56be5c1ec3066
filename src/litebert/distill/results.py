"""The table at the end of a distillation: the score, the size and the speed of the baseline, the
teacher, the student and its 8-bit weights.
"""

from __future__ import annotations

import math
import pickle
import shlex
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from litebert import hub
from litebert.answer.model import load
from litebert.answer.predicting import Predictor
from litebert.base import progress
from litebert.base.storage import atomic_text
from litebert.distill.steps import DistillInputs, DistillRequest, Step, locate_teacher
from litebert.finetuning.teachers import BASELINE
from litebert.interop.files import weights_files
from litebert.interop.names import find_exported_graph
from litebert.judge.baselines import fit_baseline
from litebert.judge.baselines.models import make_baseline
from litebert.judge.seeds import judge
from litebert.text.records import Notes
from litebert.train import device as devices

ROUNDS = 5
"""Rounds in which each model answers the same texts in its turn."""
TEXTS = 64
CARD = "README.md"
_STUDENT, _INT8 = "student", "student, 8 bits"


@dataclass(frozen=True)
class System:
    name: str
    size: int
    """Bytes of its weights; of the baseline as Python pickles it."""
    answer: Callable[[Sequence[Any]], list[Any]]


@dataclass(frozen=True)
class SystemRow:
    name: str
    score: float
    megabytes: float
    texts_per_second: float


@dataclass(frozen=True)
class DistillResults:
    metric: str
    examples: int
    rows: tuple[SystemRow, ...]
    machine: str
    advice: tuple[str, ...]

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> DistillResults:
        rows = tuple(SystemRow(**row) for row in fields["rows"])
        return cls(**{**fields, "rows": rows, "advice": tuple(fields["advice"])})

    @property
    def columns(self) -> tuple[str, ...]:
        return "model", f"{self.metric} on {self.examples:,}", "MB", "texts/s"

    @property
    def cells(self) -> list[tuple[str, ...]]:
        return [
            (row.name, f"{row.score:.4g}", f"{row.megabytes:.1f}", f"{row.texts_per_second:,.0f}")
            for row in self.rows
        ]

    @property
    def note(self) -> str:
        return (
            f"Scores on the development part. Speed is from text to answer, the median of {ROUNDS} "
            f"rounds in turn over at most {TEXTS} of its texts: a short measurement, on "
            f"{self.machine}."
        )


def measure_distillation(
    request: DistillRequest, inputs: DistillInputs, out: Path
) -> DistillResults:
    task, files = inputs.files.task, inputs.files
    examples = files.read(task.dev[0])
    with progress.task("scoring and timing the models"):
        systems = _open_systems(request, inputs, out)
        scores = {
            system.name: task.score(examples, system.answer(examples))[task.metric]
            for system in systems
        }
        speeds = _measure_speed(systems, examples[:TEXTS])
    rows = tuple(
        SystemRow(system.name, scores[system.name], system.size / 1e6, speeds[system.name])
        for system in systems
    )
    machine = devices.choose("float32", "cpu").describe()
    advice = advise(scores, task.metric, len(examples), bool(request.student))
    return DistillResults(task.metric, len(examples), rows, machine, advice)


def _open_systems(request: DistillRequest, inputs: DistillInputs, out: Path) -> list[System]:
    task, files = inputs.files.task, inputs.files
    systems = []
    if make_baseline(task.output) is not None:
        fitted = fit_baseline(task, files.read("train"))
        size = len(pickle.dumps(fitted.model))
        systems.append(System(BASELINE, size, fitted.answers))
    sources = {_STUDENT: str(out / "student"), _INT8: str(out / "int8")}
    if request.teacher != BASELINE:
        sources = {"teacher": locate_teacher(request, inputs, out), **sources}
    for name, source in sources.items():
        if name == _INT8 and not Path(source).exists():
            continue
        predictor = load(source, device="cpu", exit_confidence="off").predictor
        folder = hub.locate(source)
        folder = folder / "model" if (folder / "model").is_dir() else folder
        graph = find_exported_graph(folder)
        size = sum(file.stat().st_size for file in ([graph] if graph else weights_files(folder)))
        systems.append(System(name, size, partial(_answer, predictor)))
    return systems


def _answer(predictor: Predictor, examples: Sequence[Any]) -> list[Any]:
    items = predictor.task.encode(examples, predictor.tokenizer, predictor.length, Notes())
    return [entry.answer for entry in predictor.answer_items(examples, items)]


def _measure_speed(systems: Sequence[System], examples: Sequence[Any]) -> dict[str, float]:
    """Measure the texts a second of each model, in turns, so that other load meets all alike."""
    seconds: dict[str, list[float]] = {system.name: [] for system in systems}
    for system in systems:
        system.answer(examples)  # the first pass also reads and compiles
    for _ in range(ROUNDS):
        for system in systems:
            start = time.perf_counter()
            system.answer(examples)
            seconds[system.name].append(time.perf_counter() - start)
    return {name: len(examples) / statistics.median(times) for name, times in seconds.items()}


def advise(
    scores: dict[str, float], metric: str, examples: int, is_given: bool = False
) -> tuple[str, ...]:
    """Say how the student, which a person gave or not, stands beside the baseline, and what to do
    where it is not better."""
    student, baseline = scores[_STUDENT], scores.get(BASELINE)
    sentences = []
    if baseline is not None:
        figures = f"{metric} {student:.4g} against {baseline:.4g} on {examples:,} texts"
        verdict = judge([student], [baseline], examples)
        other = "another --student" if is_given else "a longer --budget"
        remedy = f"give more --unlabeled text, {other} or a better teacher"
        sentences.append(
            f"The student is better than the baseline, with {figures}."
            if verdict == "better"
            else f"The student is {'level with' if verdict == 'level' else 'not better than'} the "
            f"baseline, with {figures}: {remedy}, in another --out."
        )
        teacher = [scores.get("teacher", math.inf)]
        if verdict != "better" and judge(teacher, [baseline], examples) in ("level", "worse"):
            sentences.append(
                f"The teacher is no better than the baseline either ({teacher[0]:.4g}): give it "
                "more labels, or distil the baseline."
            )
    if _INT8 not in scores:
        sentences.append(
            "There are no 8-bit weights, because they cost more than --max-drop allows: use the "
            "student in float32."
        )
    return tuple(sentences)


def write_card(
    results: DistillResults, steps: Sequence[Step], out: Path, command: Sequence[str]
) -> None:
    lines = ["# A distilled model", "", *results.advice, ""]
    lines += [f"| {' | '.join(results.columns)} |", "|---|---:|---:|---:|"]
    lines += [f"| {' | '.join(cells)} |" for cells in results.cells]
    lines += ["", results.note, "", "Made by", "", f"    {shlex.join(command)}", ""]
    lines += ["which ran", ""]
    for step in steps:
        words = shlex.join(("litebert", *step.words)) if step.words else f"({step.about})"
        lines.append(f"    {words}")
    example = shlex.join(("litebert", "predict", str(out / "student"), "--input", "TEXTS.txt"))
    lines += ["", "To answer with it:", "", f"    {example}", ""]
    with atomic_text(out / CARD) as file:
        file.write("\n".join(lines))
