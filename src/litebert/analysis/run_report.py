"""`report.html` of a run folder, of pretraining or fine-tuning, from the files that the run wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from litebert.analysis.report import Section, Table, run_sections, write
from litebert.errors import RunError
from litebert.model.objectives import score_rows
from litebert.progress import task
from litebert.storage import read_json
from litebert.tasks.scores import score_title
from litebert.train import metrics


@task("writing the report")
def write_run(folder: Path) -> Path:
    """Write `folder`/report.html: the newest held-out scores, the curves and the events of the run so far."""
    rows = recorded(folder)
    own = _finetuning if (folder / "finetune.json").is_file() else _pretraining
    lead, scores, entropy = own(folder, rows)
    path = folder / "report.html"
    write(path, folder.resolve().name, lead, [*scores, *run_sections(rows, entropy)])
    return path


def recorded(folder: Path) -> list[dict[str, Any]]:
    """The rows of metrics.jsonl and speed.jsonl."""
    rows, speed = metrics.read(folder / "metrics.jsonl"), folder / "speed.jsonl"
    return rows + (metrics.read(speed) if speed.is_file() else [])  # runs of earlier versions have none


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
    if watched := watched_table(rows):
        note = "Scores on the held-out part of the data given with --watch, before the first step and now."
        sections.append(Table("Watched text", *watched, note))
    return lead, sections, facts.get("unigram_entropy")


def watched_table(rows: list[dict[str, Any]]) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]] | None:
    """Columns and rows of the scores on watched text (`--watch`), at first and at last; None where none was watched."""
    watched = [{key: value for key, value in row.items() if key != "kind"} for row in rows if row["kind"] == "watch"]
    if not watched:
        return None
    first, last = watched[0], watched[-1]
    before, after = (dict(score_rows({key: value for key, value in row.items() if isinstance(value, float)}))
                     for row in (first, last))  # fmt: skip
    columns = ("watched text", f"step {first['step']:,}", f"step {last['step']:,}")
    return columns, tuple((name, before.get(name, ""), text) for name, text in after.items())


def _finetuning(folder: Path, rows: list[dict[str, Any]]) -> tuple[str, list[Section], None]:
    facts = read_json(folder / "finetune.json", RunError)
    file = folder / "scores.json"
    sections: list[Section] = []
    if file.is_file():
        scores = {name: one for name, one in read_json(file, RunError).items() if isinstance(one, (int, float))}
        sections.append(Table(
            "Scores of the best weights",
            ("score", "value"),
            tuple((score_title(name), f"{value:.4g}") for name, value in scores.items()),
        ))  # fmt: skip
    sections += [Table(title, columns, cells, _EXITS_NOTE) for title, columns, cells in exit_tables(folder)]
    lead = (
        f"{facts['model']}, fine-tuned on the task {facts['task']}: {_steps(rows)} of {facts['steps']:,} steps. The "
        f"best weights are those with the highest {score_title(facts['metric'])} on the development part."
    )
    return lead, sections, None


_EXITS_NOTE = "litebert predict and score follow the chosen threshold; --exit takes another, and --exit off none."


def exit_tables(folder: Path) -> list[tuple[str, tuple[str, ...], tuple[tuple[str, ...], ...]]]:
    """Of a fine-tuning run with early exits: what each threshold saves and costs, as title, columns and rows."""
    file = folder / "exits.json"
    if not file.is_file():
        return []
    found = read_json(file, RunError)
    name, depth = score_title(found["metric"]), len(found["layers"])
    rows = [
        (
            "off" if one["share"] == 1 else f"{one['threshold']:.6g}",
            "chosen" if one["threshold"] == found["threshold"] else "",
            f"{one['share']:.3f}",
            f"{one['share'] * depth:.1f} of {depth}",
            f"{1 / one['share']:.2f}",
            f"{one['score']:.4g}",
        )
        for one in found["curve"]
    ]
    patience = "the answer" if found["patience"] == 1 else f"the same answer of {found['patience']} layers in a row"
    title = f"Early exits on {found['part']}, as soon as {patience} is as certain as the threshold"
    return [
        (title, ("threshold", "", "share of layers", "layers used", "fewer by a factor of", name), tuple(rows)),
        (f"Answers of each layer on {found['part']}", ("layer", name),
         tuple((str(layer), f"{one:.4g}") for layer, one in enumerate(found["layers"], 1))),
    ]  # fmt: skip


def _steps(rows: list[dict[str, Any]]) -> str:
    return f"{max((row['step'] for row in rows), default=0):,}"
