"""The score that the defaults of fine-tuning lose against the best of a small grid of rates, on
five tasks and from three starts.

    python benchmarks/defaults.py --data TEXTS --start small=RUN \
        --start scratch=albert-next-tiny --start vectors=FOLDER --tokenizer RUN/tokenizer \
        [--tasks sst2-1000 rte] [--out DIR] [--json]

Each cell is one run: a task, a start, and either the defaults or the defaults with one rate of the
grid given. A cell is a process of its own, writes one line of DIR/cells.jsonl when it ends, and is
not run again once its line is there, so that the campaign survives a stop: the same command goes
on. A cell that takes longer than --most-minutes is stopped, and its line says so. The table of what
is there is printed at the end, or alone with --print. A frozen encoder under a linear model of
scikit-learn stands beside those starts that are pretrained: the score before the first step.

Tasks: docstrings (800 rows, of the quickstart), rte (2,490), cola (8,551), sst2-1000, sst2-8000 and
sst2 (67,349).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from litebert.base.machine import count_cores, read_processor_name

RATES = ("1e-4", "3e-4", "1e-3", "3e-3")
"""The grid."""
TASKS = ("sst2-1000", "docstrings", "rte", "sst2-8000", "cola", "sst2")
"""The cheapest first."""
DEFAULTS = "defaults"


def words_of(task: str, data: Path, out: Path) -> list[str]:
    """The options of litebert finetune that read a task; files that have to be made lie in
    `out`."""
    if task == "docstrings":
        from litebert.studies.packages import LABEL, TEXT, write_table

        train, dev = write_table(out / "docstrings")
        return [
            "--task",
            "table",
            "--data",
            str(train),
            "--dev",
            str(dev),
            "--text-column",
            TEXT,
            "--label-column",
            LABEL,
        ]
    name, _, rows = task.partition("-")
    if not rows:
        return ["--task", name, "--data", str(data / "glue")]
    folder = out / task
    if not (folder / "train.tsv").exists():
        folder.mkdir(parents=True, exist_ok=True)
        source = next(
            path
            for path in (data / "glue").rglob("train.tsv")
            if path.parent.name.lower() in ("sst-2", "sst2")
        )
        lines = source.read_text(encoding="utf-8").splitlines(keepends=True)
        sample = [line for i, line in enumerate(lines[1:]) if i % (len(lines) // int(rows)) == 0][
            : int(rows)
        ]
        (folder / "train.tsv").write_text("".join([lines[0], *sample]), encoding="utf-8")
        (folder / "dev.tsv").write_bytes((source.parent / "dev.tsv").read_bytes())
    files = ("--data", str(folder / "train.tsv"), "--dev", str(folder / "dev.tsv"))
    return ["--task", "table", *files, "--text-column", "sentence", "--label-column", "label"]


def run_cell(
    cell: dict[str, str], model: str, task_options: list[str], limit: float, out: Path
) -> dict[str, Any]:
    """Run one cell as a user would, and what is known of it then."""
    folder = out / "runs" / "-".join(cell.values())
    rate_options = (
        [] if cell["rate"] == DEFAULTS else ["--train.optimizer.learning-rate", cell["rate"]]
    )
    command = [
        sys.executable,
        "-m",
        "litebert",
        "finetune",
        model,
        *task_options,
        *rate_options,
        "--out",
        str(folder),
    ]
    began = time.monotonic()
    try:
        done = subprocess.run(command, timeout=60 * limit, capture_output=True, text=True)
    except subprocess.TimeoutExpired:
        return {**cell, "stopped_after_minutes": limit}
    if done.returncode:
        return {**cell, "failed": done.stderr[-500:]}
    record = json.loads((folder / "finetune.json").read_text())
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    first: dict[str, Any] = next(
        (row for row in rows if row["kind"] == "heldout" and row["step"] == 0), {}
    )
    optimizer = record["config"]["train"]["optimizer"]
    return {
        **cell,
        "metric": record["metric"],
        "score": json.loads((folder / "scores.json").read_text())[record["metric"]],
        "frozen": first.get(record["metric"]),
        "chosen": optimizer["learning_rate"],
        "steps": record["steps"],
        "length": record["config"]["length"],
        "minutes": round((time.monotonic() - began) / 60, 2),
    }


def table_of(cells: list[dict[str, Any]]) -> str:
    """A row for each task and start: what frozen states give, the grid, and the defaults with what
    they lose.
    """
    grouped: dict[tuple[str, str], dict[str, dict[str, Any]]] = defaultdict(dict)
    for cell in cells:
        grouped[cell["task"], cell["start"]][cell["rate"]] = cell
    lines = [
        "| task | start | frozen | " + " | ".join(RATES) + " | defaults (rate) | below the best |"
    ]
    lines.append("|" + "---|" * (len(RATES) + 5))
    for (task, start), by_rate in grouped.items():
        scores = {rate: cell["score"] for rate, cell in by_rate.items() if "score" in cell}
        shown = [f"{100 * scores[rate]:.1f}" if rate in scores else "-" for rate in RATES]
        default_cell, frozen = (
            by_rate.get(DEFAULTS, {}),
            next((c["frozen"] for c in by_rate.values() if c.get("frozen")), None),
        )
        chosen = (
            f"{100 * default_cell['score']:.1f} ({default_cell['chosen']:.0e})"
            if "score" in default_cell
            else "-"
        )
        lost = (
            f"{100 * (max(scores.values()) - default_cell['score']):.1f}"
            if "score" in default_cell and len(scores) > 1
            else "-"
        )
        bare = "-" if frozen is None else f"{100 * frozen:.1f}"
        lines.append(f"| {task} | {start} | {bare} | {' | '.join(shown)} | {chosen} | {lost} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="the folder of the tasks' files")
    parser.add_argument("--start", action="append", default=[], metavar="NAME=MODEL")
    parser.add_argument("--tokenizer", help="for starts that are recipes")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument(
        "--rates", nargs="*", choices=RATES, default=list(RATES), help="of the grid"
    )
    parser.add_argument("--most-minutes", type=float, default=20.0)
    parser.add_argument("--out", type=Path, default=Path("defaults"))
    parser.add_argument("--print", action="store_true", dest="only_print")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    file = options.out / "cells.jsonl"
    cells = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    done = {(cell["task"], cell["start"], cell["rate"]) for cell in cells}
    starts = dict(start.split("=", 1) for start in options.start)
    wanted = [
        (task, start, rate)
        for task in options.tasks
        for start in starts
        for rate in (DEFAULTS, *options.rates)
    ]
    for task, start, rate in () if options.only_print else wanted:
        if (task, start, rate) in done:
            continue
        task_options = words_of(task, options.data, options.out)
        if options.tokenizer and not Path(starts[start]).is_dir():
            task_options += ["--tokenizer", options.tokenizer]
        named = {"task": task, "start": start, "rate": rate}
        cell = run_cell(named, starts[start], task_options, options.most_minutes, options.out)
        cells.append({**cell, "machine": read_processor_name(), "cores": count_cores()})
        with open(file, "a", encoding="utf-8") as handle:
            handle.write(json.dumps(cells[-1]) + "\n")
    print(json.dumps(cells, indent=2) if options.json else table_of(cells))


if __name__ == "__main__":
    main()
