"""`report.html` of a run folder, of pretraining or fine-tuning, from the files that the run wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from litebert.analysis.report import Section, Table, run_sections, write
from litebert.errors import RunError
from litebert.model.objectives import score_rows
from litebert.progress import task
from litebert.storage import read_json
from litebert.train import metrics


@task("writing the report")
def write_run(folder: Path) -> Path:
    """Write `folder`/report.html: the newest held-out scores, the curves and the events of the run so far."""
    rows = metrics.read(folder / "metrics.jsonl")
    if (folder / "speed.jsonl").is_file():  # runs of earlier versions have none
        rows += metrics.read(folder / "speed.jsonl")
    own = _finetuning if (folder / "finetune.json").is_file() else _pretraining
    lead, scores, entropy = own(folder, rows)
    path = folder / "report.html"
    write(path, folder.resolve().name, lead, [*scores, *run_sections(rows, entropy)])
    return path


def _pretraining(folder: Path, rows: list[dict[str, Any]]) -> tuple[str, list[Section], float | None]:
    facts, recipe = read_json(folder / "run.json", RunError), read_json(folder / "recipe.json", RunError)
    shape = recipe["encoder"]
    lead = (
        f"{recipe['name']}: {shape['layers']} layers, hidden size {shape['hidden_size']}; {_steps(rows)} of "
        f"{facts['steps']:,} steps on {facts['machine']}."
    )
    sections: list[Section] = []
    if heldout := [row for row in rows if row["kind"] == "heldout"]:
        sections.append(Table(
            f"Held-out scores at step {heldout[-1]['step']:,}",
            ("score", "model (without learning)"),
            tuple(score_rows({key: value for key, value in heldout[-1].items() if isinstance(value, float)})),
            "The last points of the held-out curves. litebert evaluate scores more sequences by default, so "
            "its numbers differ a little.",
        ))  # fmt: skip
    return lead, sections, facts.get("unigram_entropy")


def _finetuning(folder: Path, rows: list[dict[str, Any]]) -> tuple[str, list[Section], None]:
    facts = read_json(folder / "finetune.json", RunError)
    file = folder / "scores.json"
    sections: list[Section] = []
    if file.is_file():
        scores = read_json(file, RunError)
        sections.append(Table(
            "Scores of the best weights",
            ("score", "value"),
            tuple((name, f"{value:.4g}") for name, value in scores.items() if isinstance(value, (int, float))),
        ))  # fmt: skip
    return f"Fine-tuning: {_steps(rows)} of {facts['steps']:,} steps.", sections, None


def _steps(rows: list[dict[str, Any]]) -> str:
    return f"{max((row['step'] for row in rows), default=0):,}"
