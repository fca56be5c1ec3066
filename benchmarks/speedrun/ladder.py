"""The ladder: which single changes of a recipe help, at the same number of steps, and what a step
of each costs.

    python benchmarks/speedrun/ladder.py --shards SHARDS --out FOLDER [--base albert-tiny] [--steps
    400] [--seeds 2]
                                         [--only NAME ...] [--with "OPTIONS FOR ALL"] [--cost]
                                         [--rounds 5] [--finetune "OPTIONS OF litebert finetune"]

Every change of `CHANGES` trains for the same steps, from the same seeds, over the same batches; so
a busy machine changes no loss. `--cost` trains nothing: it times steps of all changes that have a
result, in turn, on a quiet machine, and a run's time is estimated from them. The same command
continues with what is missing, seed by seed. Each call writes ladder.json and ladder.md: losses at
shares of the run, against the base, against steps and against that time. With `--finetune`, each
new run learns a task too, and the table has the task's score.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import protocol

from litebert.base.storage import write_json
from litebert.config import Config
from litebert.config.serialization import from_dict
from litebert.train import device as devices
from litebert.train import metrics
from litebert.train.measure import measure

BASE = "base"
CHANGES = {
    BASE: "",
    "mlm only": "--objectives mlm",
    "masks 30%": "--masking.rate 0.3",
    "masks 40%": "--masking.rate 0.4",
    "single tokens masked": "--masking.span single --masking.unit token",
    "half batch, twice the steps": "--train.batch '16 sequences' --budget '800 steps'",
    "twice the batch, half the steps": "--train.batch '64 sequences' --budget '200 steps'",
    "depth 6 from the start": "--train.depth-schedule",
    "depth 2, 4, 6": "--train.depth-schedule 0.35 2 0.7 4",
    "depth 1 until 60%": "--train.depth-schedule 0.6 1",
    "Muon at 0.01": "--train.optimizer.muon-learning-rate 0.01",
    "Muon at 0.04": "--train.optimizer.muon-learning-rate 0.04",
    "decay 0.1": "--train.optimizer.weight-decay 0.1",
    "AdamW at 1.5e-3": "--train.optimizer.learning-rate 1.5e-3",
    "AdamW at 6e-3": "--train.optimizer.learning-rate 6e-3",
    "wide feed-forward, 4 H": "--encoder.intermediate-size 512",
    "E 128": "--encoder.embedding-size 128",
    "untied head": "--encoder.untied",
    "untied head, E 128": "--encoder.untied --encoder.embedding-size 128",
    "half length, then full": "--train.length-schedule 0.5 32",
    "full sentences": "--sequences.format full-sentences --objectives mlm",
    "2 groups": "--encoder.sharing groups --encoder.groups 2 --train.depth-schedule 0.25 2 0.6 4",
    "random table": "--table.start random",
    "table from counts": "--table.start cooccurrence",
    "table from counts, std 0.05": "--table.start cooccurrence --table.std 0.05",
    "table from counts, std 0.2": "--table.start cooccurrence --table.std 0.2",
    "table from counts, window 2": "--table.start cooccurrence --table.window 2",
    "table from counts, window 10": "--table.start cooccurrence --table.window 10",
    "table from counts, in documents": "--table.start cooccurrence --table.context document",
    "random table, E 128": "--table.start random --encoder.embedding-size 128",
    "table from counts, E 96": "--table.start cooccurrence --encoder.embedding-size 96",
    "table from counts, E 128": "--table.start cooccurrence --encoder.embedding-size 128",
    "no sharing": "--encoder.sharing none --train.depth-schedule",
    "cosine": "--train.schedule.name cosine",
}
"""Changes by name, as options of `litebert pretrain`."""
POINTS = 4
"""Points of a curve."""


def train_change(
    options: argparse.Namespace, change: str, folder: Path, seed: int
) -> dict[str, Any] | None:
    """A run of a change, or None where it failed, as diverged runs do."""
    words = [
        "pretrain",
        options.base,
        "--shards",
        options.shards,
        "--out",
        folder / "run",
        "--train.seed",
        seed,
    ]
    words += ["--budget", f"{options.steps} steps", "--train.evaluate-every", f"{100 / POINTS:g}%"]
    words += [*shlex.split(options.common), *shlex.split(change)]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with open(folder / "log.txt", "wb") as log:
        status = subprocess.run(
            protocol.litebert(*map(str, words)), stdout=log, stderr=subprocess.STDOUT
        ).returncode
    if status:
        print(f"  ended with status {status}; see {folder / 'log.txt'}", flush=True)
        (folder / "failed").touch()
        return None
    score = finetune_change(options, folder, seed) if options.finetune else None
    rows = [
        row for row in metrics.read(folder / "run" / "metrics.jsonl") if row["kind"] == "heldout"
    ]
    settings = json.loads((folder / "run" / "recipe.json").read_text(encoding="utf-8"))
    shutil.rmtree(folder / "run" / "checkpoints")
    return {
        "seed": seed,
        "change": change,
        "loss": rows[-1]["mlm_loss"],
        "accuracy": rows[-1]["mlm_accuracy"],
        "curve": [(row["step"], row["mlm_loss"]) for row in rows],
        "score": score,
        "settings": settings,
    }


def finetune_change(options: argparse.Namespace, folder: Path, seed: int) -> float | None:
    """The score of a run's fine-tuning, the first that the task names; None where it failed."""
    words = [
        "finetune",
        folder / "run",
        "--out",
        folder / "task",
        "--train.seed",
        seed,
        *shlex.split(options.finetune),
    ]
    with open(folder / "log.txt", "ab") as log:
        status = subprocess.run(
            protocol.litebert(*map(str, words)), stdout=log, stderr=subprocess.STDOUT
        ).returncode
    if status:
        print(f"  its fine-tuning ended with status {status}; see {folder / 'log.txt'}", flush=True)
        return None
    scores = json.loads((folder / "task" / "scores.json").read_text(encoding="utf-8"))
    shutil.rmtree(folder / "task")
    return float(next(iter(scores.values())))


def climb(options: argparse.Namespace) -> None:
    """Every run that is not there yet, all changes with one seed before the next."""
    for seed in range(options.seeds):
        for name in options.only or CHANGES:
            folder = place(options.out, name) / f"seed-{seed}"
            if (folder / "result.json").exists() or (
                (folder / "failed").exists() and not options.again
            ):
                continue
            print(f"{name}, seed {seed}", flush=True)
            if (result := train_change(options, CHANGES[name], folder, seed)) is not None:
                write_json(folder / "result.json", result)
                print(f"  loss {result['loss']:.3f}", flush=True)
                write(options.out)


def place(out: Path, name: str) -> Path:
    """The folder of a change."""
    return out / "".join(letter if letter.isalnum() else "-" for letter in name)


def time_steps(out: Path, rounds: int, seconds: float) -> None:
    """Seconds per step in each stage of each change that has a result, in turn; medians of the
    rounds.
    """
    configs = {name: from_dict(Config, runs[0]["settings"]) for name, runs in results(out).items()}
    machine = devices.choose("auto")
    step_times: dict[str, list[list[float]]] = {name: [] for name in configs}
    for _ in range(rounds):
        for name, config in configs.items():
            rate = measure(config, machine, seconds)
            step_times[name].append([each for _, each in rate.step_seconds])
    shares = {name: [end for end, _, _ in config.stages()] for name, config in configs.items()}
    costs = {
        name: list(zip(shares[name], map(statistics.median, zip(*times, strict=True)), strict=True))
        for name, times in step_times.items()
    }
    write_json(out / "cost.json", {"machine": machine.describe(), "step_seconds": costs})


def estimate_seconds(costs: Sequence[tuple[float, float]], share: float, steps: int) -> float:
    """Seconds until a share of the run is over."""
    total, start = 0.0, 0.0
    for end, each in costs:
        total += max(0.0, min(share, end) - start) * steps * each
        start = end
    return total


def results(out: Path) -> dict[str, list[dict[str, Any]]]:
    """Results of the runs that there are, by change."""
    files = {name: sorted(place(out, name).glob("*/result.json")) for name in CHANGES}
    by_change = {
        name: [json.loads(file.read_text(encoding="utf-8")) for file in paths]
        for name, paths in files.items()
    }
    return {name: runs for name, runs in by_change.items() if runs}


def write(out: Path) -> None:
    """The table, best first, as JSON and as markdown."""
    by_change = results(out)
    timed = (
        json.loads((out / "cost.json").read_text(encoding="utf-8"))
        if (out / "cost.json").exists()
        else {}
    )
    costs = timed.get("step_seconds", {})
    base = {run["seed"]: run for run in by_change.get(BASE, ())}
    rows = []
    for name, runs in by_change.items():
        steps = runs[0]["curve"][-1][0]
        paired = [run["loss"] - base[run["seed"]]["loss"] for run in runs if run["seed"] in base]
        curve = [
            statistics.mean(losses)
            for losses in zip(*([loss for _, loss in run["curve"]] for run in runs), strict=True)
        ]
        times = (
            [estimate_seconds(costs[name], step / steps, steps) for step, _ in runs[0]["curve"]]
            if name in costs
            else None
        )
        rows.append(
            {
                "name": name,
                "change": runs[0]["change"],
                "seeds": [run["seed"] for run in runs],
                "losses": [run["loss"] for run in runs],
                "accuracy": statistics.mean(run["accuracy"] for run in runs),
                "against_base": statistics.mean(paired) if paired else None,
                "scores": [run["score"] for run in runs if run.get("score") is not None],
                "steps": [step for step, _ in runs[0]["curve"]],
                "curve": curve,
                "seconds": times,
            }
        )
    rows.sort(key=lambda row: statistics.mean(row["losses"]))
    write_json(out / "ladder.json", {"machine": timed.get("machine"), "rows": rows})
    (out / "ladder.md").write_text(format_markdown(rows) + "\n", encoding="utf-8")


def format_markdown(rows: list[dict[str, Any]]) -> str:
    """The rows as a table, with the estimated time beside that of the base."""
    reference = next(
        (row["seconds"][-1] for row in rows if row["name"] == BASE and row["seconds"]), None
    )
    heads = [f"loss at {share / POINTS:.0%}" for share in range(1, POINTS + 1)]
    lines = [
        [
            "change",
            "options",
            *heads,
            "by seed",
            "against base",
            "accuracy",
            "task",
            "estimated time",
        ]
    ]
    for row in rows:
        times = row["seconds"]
        lines.append(
            [
                row["name"],
                f"`{row['change']}`" if row["change"] else "",
                *(f"{loss:.3f}" for loss in row["curve"]),
                " ".join(f"{loss:.3f}" for loss in row["losses"]),
                "" if row["against_base"] is None else f"{row['against_base']:+.3f}",
                f"{row['accuracy']:.1%}",
                " ".join(f"{score:.3f}" for score in row["scores"]),
                f"{times[-1]:.0f} s ({times[-1] / reference:.2f})" if times and reference else "",
            ]
        )
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shards", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("runs/ladder"))
    parser.add_argument("--base", default="albert-tiny")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--only", nargs="+", choices=tuple(CHANGES), metavar="NAME")
    parser.add_argument(
        "--with", dest="common", default="", help="options of all runs, in one string"
    )
    parser.add_argument(
        "--finetune",
        default="",
        help="options of litebert finetune, in one string: a task to learn",
    )
    parser.add_argument("--again", action="store_true", help="also what failed before")
    parser.add_argument("--cost", action="store_true", help="time the steps instead of training")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--seconds", type=float, default=0.5, help="of each measurement, for each depth"
    )
    options = parser.parse_args()
    if options.cost:
        time_steps(options.out, options.rounds, options.seconds)
    else:
        climb(options)
    write(options.out)
    print((options.out / "ladder.md").read_text(encoding="utf-8"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
