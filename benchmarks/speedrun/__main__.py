"""The speedrun: who trains the best small encoder in 10, 30 and 60 minutes of wall clock?

    python benchmarks/speedrun --source FILES_OR_FOLDERS --out runs/speedrun [--minutes 10 30 60]
    [--seeds 3]
                               [--recipes albert-next-mini] [--baselines albert modernbert] [--shape
                               mini] [--rates 5e-4 1e-3 2e-3] [--blimp FOLDER] [--glue FOLDER]
                               [--language en]

The protocol: one text, one tokenizer of 8,192 pieces trained on it, 2% of its documents held out,
masks at 15% for every score; the clock starts with the command. Ours is `litebert pretrain RECIPE
--budget`; a baseline (baseline.py) takes the best of three learning rates, tried for a third of the
time. One run at a time. The same command continues an interrupted campaign, and with --blimp or
--glue adds scores that are missing. It writes a report with the curves, results.json, and a file a
run.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
import protocol
from protocol import Result
from results import write as write_results

from litebert.analysis.charts import Chart, Series
from litebert.analysis.report import Section, Table, write
from litebert.base.storage import write_json
from litebert.train import device as devices
from litebert.train import metrics

RATES = (5e-4, 1e-3, 2e-3)
START = 12.0
"""Seconds that our command takes before and after its budget: imports, opening the data, measuring
the speed.
"""
BLIMP = {"plain": "BLiMP", "within_word": "BLiMP, within words"}


def run_recipe(
    recipe: str, length: int, shards: Path, folder: Path, minutes: float, seed: int
) -> Result:
    """A run of a recipe from the command to the end."""
    words = [
        "pretrain",
        recipe,
        "--shards",
        shards,
        "--out",
        folder / "run",
        "--budget",
        f"{60 * minutes - START:.0f}s",
    ]
    words += ["--train.seed", seed, "--train.evaluate-every", f"{100 / protocol.POINTS:g}%"]
    words += ["--train.evaluate-sequences", protocol.OUR_SEQUENCES]
    shutil.rmtree(
        folder / "run", ignore_errors=True
    )  # a run that was interrupted is no run of so many minutes
    seconds = protocol.time_command(protocol.litebert(*map(str, words)), folder / "log.txt")
    rows = metrics.read(folder / "run" / "metrics.jsonl")
    speed = metrics.read(folder / "run" / "speed.jsonl")
    points = curve_of(rows, speed, seconds)
    tokens = max(row.get("tokens", 0) for row in rows)  # so far
    loss, accuracy = protocol.heldout_loss(folder / "run", shards, protocol.FINAL_SEQUENCES, length)
    settings = json.loads((folder / "run" / "recipe.json").read_text(encoding="utf-8"))
    return Result(
        settings["name"],
        seed,
        minutes,
        seconds,
        tokens,
        parameters(folder / "run"),
        loss,
        accuracy,
        points,
        settings=settings,
    )


def curve_of(
    rows: Sequence[Mapping[str, Any]], speed: Sequence[Mapping[str, Any]], seconds: float
) -> list[tuple[float, float]]:
    """Minutes and held-out losses of a run of ours whose command took so many seconds; rows of
    speed stand at other steps than those of losses."""
    steps, passed = [0, *(row["step"] for row in speed)], [0.0, *(row["seconds"] for row in speed)]
    before = seconds - passed[-1]  # of the command, before the first step and after the last
    heldout = [row for row in rows if row["kind"] == "heldout"]
    return [
        ((before + float(np.interp(row["step"], steps, passed))) / 60, row["mlm_loss"])
        for row in heldout
    ]


def baseline(
    kind: str,
    shape: str,
    shards: Path,
    folder: Path,
    minutes: float,
    seed: int,
    rate: float,
    curve: bool = True,
) -> Result:
    """A run of a baseline: its speed is measured first, and then it has all the time.

    One without a curve, which only tries a rate, is scored on fewer sequences.
    """
    options: dict[str, object] = {
        "--shards": shards,
        "--minutes": minutes,
        "--seed": seed,
        "--rate": rate,
        "--points": protocol.POINTS,
        "--shape": shape,
        "--out": folder / "run",
    }
    script = [sys.executable, str(Path(__file__).parent / "baseline.py"), kind]
    script += [str(word) for option in options.items() for word in option]
    shutil.rmtree(folder / "run", ignore_errors=True)
    protocol.time_command(script, folder / "measuring.txt")
    steps = json.loads((folder / "run" / "steps.json").read_text(encoding="utf-8"))["steps"]
    words = [*script, "--steps", str(steps), "--began", str(time.monotonic())]
    seconds = protocol.time_command(words, folder / "log.txt")
    facts = json.loads((folder / "run" / "run.json").read_text(encoding="utf-8"))
    points, length = [], protocol.SHAPES[shape].length
    sequences = protocol.FINAL_SEQUENCES if curve else protocol.SEQUENCES
    for number, (_, passed) in enumerate(facts["times"] if curve else ()):
        point = folder / "run" / f"point-{number}"
        points.append(
            (passed / 60, protocol.heldout_loss(point, shards, protocol.SEQUENCES, length)[0])
        )
    loss, accuracy = protocol.heldout_loss(last_point(folder), shards, sequences, length)
    settings = {"learning_rate": rate, "steps": facts["steps"]}
    return Result(
        kind,
        seed,
        minutes,
        seconds,
        facts["tokens"],
        facts["parameters"],
        loss,
        accuracy,
        points,
        settings=settings,
    )


def last_point(folder: Path) -> Path:
    """The weights at the end of a baseline's run, as long as they are kept."""
    points = (folder / "run").glob("point-*")
    return max(points, key=lambda path: int(path.name.partition("-")[2]), default=folder / "run")


def parameters(run: Path) -> int:
    """Parameters of the whole model of a run."""
    from litebert.interop import read_folder

    return sum(parameter.numel() for parameter in read_folder(run).model.parameters())


def best_rate(
    kind: str, shape: str, shards: Path, folder: Path, minutes: float, rates: Sequence[float]
) -> float:
    """The best of some learning rates, each tried for a third of the time."""
    losses = {}
    for rate in rates:
        place = folder / f"rate-{rate:g}"
        place.mkdir(parents=True, exist_ok=True)
        result = protocol.load_result(place / "result.json")
        if result is None:
            result = baseline(kind, shape, shards, place, minutes / 3, 0, rate, curve=False)
        protocol.save(place / "result.json", result)
        losses[rate] = result.loss if math.isfinite(result.loss) else math.inf
    return min(losses, key=losses.__getitem__)


def campaign(options: argparse.Namespace) -> list[Result]:
    """Every run that is not there yet, and all results."""
    shards, results = protocol.data(options.source, options.out, options.language), []
    length = protocol.SHAPES[options.shape].length
    for minutes in options.minutes:
        for seed in range(options.seeds):
            for kind, system in [("ours", recipe) for recipe in options.recipes] + [
                ("peer", name) for name in options.baselines
            ]:
                folder = (
                    options.out
                    / f"{minutes:g}m-{options.shape}"
                    / f"{Path(system).stem}-{kind}"
                    / f"seed-{seed}"
                )
                folder.mkdir(parents=True, exist_ok=True)
                result = protocol.load_result(folder / "result.json")
                if result is None:
                    print(f"{system}, {minutes:g} minutes, seed {seed}", flush=True)
                    if kind == "ours":
                        result = run_recipe(system, length, shards, folder, minutes, seed)
                    else:
                        rate = best_rate(
                            system, options.shape, shards, folder.parent, minutes, options.rates
                        )
                        result = baseline(
                            system, options.shape, shards, folder, minutes, seed, rate
                        )
                    protocol.save(folder / "result.json", result)
                model = folder / "run" if kind == "ours" else last_point(folder)
                protocol.add_scores(
                    result, model, options.blimp, options.glue, folder, options.task_seeds
                )
                print(
                    f"  loss {result.loss:.3f}, accuracy {result.accuracy:.1%}, "
                    f"{result.seconds:.0f} s",
                    flush=True,
                )
                results.append(result)
    return results


# --------------------------------------------------------------------------------------- the report


def sections(results: Sequence[Result]) -> list[Section]:
    """A table and the curves for each number of minutes."""
    made: list[Section] = []
    for minutes in sorted({result.minutes for result in results}):
        groups: dict[str, list[Result]] = {}
        for result in results:
            if result.minutes == minutes:
                groups.setdefault(result.system, []).append(result)
        columns = (
            "system",
            "parameters",
            "tokens",
            "seconds",
            "loss",
            "accuracy",
            *BLIMP.values(),
            *protocol.TASKS,
        )
        rows = tuple(
            sorted(
                (row(name, runs) for name, runs in groups.items()),
                key=lambda cells: float(cells[4]),
            )
        )
        most = max(len(runs) for runs in groups.values())
        note = f"Medians of {most} seeds." if most > 1 else "One seed."
        made.append(Table(f"{minutes:g} minutes", columns, rows, note))
        lines = tuple(curve(name, runs) for name, runs in groups.items())
        made.append(
            Chart(f"Held-out loss in {minutes:g} minutes", lines, "minutes", "cross entropy, nats")
        )
    return made


def row(name: str, runs: Sequence[Result]) -> tuple[str, ...]:
    """One system, medians over its seeds."""

    def cell(value: Any, form: str) -> str:
        values = [value(run) for run in runs if value(run) is not None]
        return format(statistics.median(values), form) if values else ""

    return (
        name,
        cell(lambda run: run.parameters, ",.0f"),
        cell(lambda run: run.tokens, ",.0f"),
        cell(lambda run: run.seconds, ".0f"),
        cell(lambda run: run.loss, ".3f"),
        cell(lambda run: run.accuracy, ".1%"),
        *(
            cell(lambda run, form=form: run.blimp.get(form, {}).get("accuracy"), ".1%")
            for form in BLIMP
        ),
        *(cell(lambda run, task=task: run.tasks.get(task), ".3f") for task in protocol.TASKS),
    )


def curve(name: str, runs: Sequence[Result]) -> Series:
    """That of the seed whose final loss is the median."""
    points = sorted(runs, key=lambda run: run.loss)[len(runs) // 2].curve
    return Series(name, tuple(minutes for minutes, _ in points), tuple(loss for _, loss in points))


def main() -> int:
    """Run the campaign and write its report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--source", nargs="+", default=["python-docs"])
    parser.add_argument("--language", default="en")
    parser.add_argument("--out", type=Path, default=Path("runs/speedrun"))
    parser.add_argument("--minutes", nargs="+", type=float, default=[10.0, 30.0, 60.0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--recipes", nargs="*", default=["albert-next-mini"])
    parser.add_argument(
        "--baselines", nargs="*", default=["albert", "modernbert"], choices=("albert", "modernbert")
    )
    parser.add_argument(
        "--shape",
        default="mini",
        choices=protocol.SHAPES,
        help="of the baselines, and of all scores",
    )
    parser.add_argument(
        "--rates", nargs="+", type=float, default=RATES, help="learning rates of the baselines"
    )
    parser.add_argument("--blimp", type=Path, help="a folder of pairs of sentences")
    parser.add_argument("--glue", type=Path, help="the folder with SST-2/, CoLA/ and RTE/")
    parser.add_argument("--task-seeds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write the results to this file too")
    options = parser.parse_args()
    results, machine = campaign(options), devices.choose("auto").describe()
    write(
        options.out / "report.html",
        "Speedrun",
        f"{', '.join(options.source)}, on {machine}.",
        sections(results),
    )
    write_json(
        options.out / "results.json",
        {"machine": machine, "results": [vars(result) for result in results]},
    )
    write_results(options.json, {"results": [vars(result) for result in results]})
    print(f"wrote {options.out / 'report.html'} and {options.out / 'results.json'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
