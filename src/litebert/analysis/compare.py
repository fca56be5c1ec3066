"""Compare pretraining runs by the files in their folders: recipe.json, run.json, metrics.jsonl and
the newest state.json. Torch is not loaded, so a table of many runs takes a moment.

The table is fair only if the runs were alike: `list_differences` and `make_settings_table` say how
they differ. Tokens per second include held-out evaluations and checkpoints.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeGuard

from litebert.analysis.report import Table
from litebert.base.errors import ConfigError, RunError
from litebert.base.json_reader import fault_of, read_json
from litebert.base.registry import OBJECTIVES, POSITIONS
from litebert.base.storage import hash_fault, newest_whole
from litebert.config import Config, cost
from litebert.config.serialization import from_dict, to_dict
from litebert.model.objectives import Score
from litebert.train import metrics

ALIKE = 1.5
"""The largest ratio of two runs' tokens, or seconds, that needs no remark."""
_FREE = ("name", "train.save_every", "train.keep_checkpoints")
"""Settings that change no score."""


@dataclass(frozen=True)
class ComparedRun:
    """A run at its last held-out evaluation."""

    run: str
    recipe: str
    encoder_parameters: int
    """Parameters of the encoder with its pooler, which later tasks use."""
    parameters: int
    """Parameters of all that was trained: encoder, heads and generator."""
    step: int
    steps: int
    tokens: int
    """Tokens trained on, without padding."""
    seconds: float | None
    """Seconds of training up to the newest checkpoint; None if there is no checkpoint."""
    tokens_per_second: float | None
    scores: dict[str, float]
    """Held-out scores of the run's objectives, by their names in metrics.jsonl."""
    data_fingerprint: str
    budget: str
    length: int
    """Tokens of a sequence, in training and in its held-out scores."""
    settings: Mapping[str, str] = field(default_factory=dict)


def compare(
    runs: Iterable[str | Path], shards: str | Path | None = None, device: str = "auto"
) -> list[ComparedRun]:
    """Compare run folders, in the given order. A run without an evaluation has no scores.

    Args:
        shards: score every run on the held-out documents of this folder of `prepare`, as `evaluate`
            does on `device`, instead of showing the scores that each run wrote.

    Raises:
        RunError: a folder is no pretraining run, or was changed.
        DataError: `shards` were prepared with another tokenizer than a run's.
    """
    rows = [_read_run(Path(run)) for run in runs]
    if shards is None:
        return rows
    from litebert.data.shards import Shards
    from litebert.train.evaluate import evaluate_pretrained

    fingerprint = Shards.open(shards).fingerprint
    return [
        replace(
            row,
            scores=evaluate_pretrained(row.run, shards, device=device),
            data_fingerprint=fingerprint,
        )
        for row in rows
    ]


def list_differences(rows: Sequence[ComparedRun]) -> list[str]:
    sentences = []
    if len({row.data_fingerprint for row in rows}) > 1:
        sentences.append(
            "the runs were trained on different data and each is scored on its own data, so "
            "their losses and accuracies cannot be compared; --shards scores all of them on the "
            "same held-out text"
        )
    lengths = sorted({row.length for row in rows})
    if len(lengths) > 1:
        sentences.append(
            "the runs were trained and scored on sequences of "
            f"{' and '.join(map(str, lengths))} tokens; longer sequences give more context"
        )
    has_same_budget = len({row.budget for row in rows}) == 1
    for unit in ("tokens", "seconds"):
        amounts = [(value, row.run) for row in rows if (value := getattr(row, unit)) is not None]
        if not amounts:
            continue
        (least, first), (most, last) = min(amounts), max(amounts)
        if most > ALIKE * least:
            low, high = (f"{amount:,.1f}".removesuffix(".0") for amount in (least, most))
            budgets = "the runs had different budgets:"
            if has_same_budget:
                budgets = f"the same budget, {rows[0].budget}, was"
            sentences.append(f"{budgets} {low} {unit} for {first} and {high} for {last}")
    for row in rows:
        if row.step < row.steps:
            sentences.append(f"{row.run} is at step {row.step:,} of {row.steps:,}")
    return sentences


def make_settings_table(rows: Sequence[ComparedRun]) -> Table:
    lines = [
        (name, *(row.settings.get(name, "-") for row in rows))
        for name in find_differing([row.settings for row in rows])
    ]
    columns = ("setting", *shorten_names([row.run for row in rows]))
    return Table("What differs", columns, tuple(lines))


def make_table(rows: Sequence[ComparedRun]) -> Table:
    columns = {
        "run": shorten_names([row.run for row in rows]),
        "recipe": [row.recipe for row in rows],
        "encoder, M": [f"{row.encoder_parameters / 1e6:.2f}" for row in rows],
        "whole, M": [f"{row.parameters / 1e6:.2f}" for row in rows],
        "steps": [
            f"{row.step:,}" + (f" of {row.steps:,}" if row.step < row.steps else "") for row in rows
        ],
        "tokens, M": [f"{row.tokens / 1e6:.2f}" for row in rows],
        "tokens/s": [
            "-" if row.tokens_per_second is None else f"{row.tokens_per_second:,.0f}"
            for row in rows
        ],
    }
    for title, scores in _list_compared_scores().items():
        column = [_format_score(row, scores) for row in rows]
        if set(column) != {"-"}:
            columns[title] = column
    note = (
        "Parameters in millions, of the encoder and of all that was trained. Scores are "
        "held out. ± is the standard error."
    )
    for name, objective in OBJECTIVES.items():
        if objective.note and any(f"{name}_loss" in row.scores for row in rows):
            note += f" {objective.note}"
    return Table(
        "Runs side by side", tuple(columns), tuple(zip(*columns.values(), strict=True)), note
    )


def _list_compared_scores() -> dict[str, dict[str, Score]]:
    """Return the scores that runs are compared by, title -> objective -> score, where objectives
    that ask the same question share a title.
    """
    scores: dict[str, dict[str, Score]] = {}
    for name, objective in OBJECTIVES.items():
        score_of_key = {score.key: score for score in objective.shown}
        for title, key in objective.compared.items():
            if key in score_of_key:
                scores.setdefault(title.format(NAME=name.upper()), {})[name] = score_of_key[key]
    return scores


def _format_score(row: ComparedRun, scores: Mapping[str, Score]) -> str:
    """Return the first of a title's scores that a run has, with its error and its baseline."""
    for name, score in scores.items():
        text = score.number(score.key, row.scores, name)
        if not text:
            continue
        if error := score.number(score.error, row.scores, name):
            text += f" ± {error}"
        if baseline := score.number(score.baseline, row.scores, name):
            text += f" ({baseline})"
        return text
    return "-"


def _read_run(folder: Path) -> ComparedRun:
    run = read_json(folder / "run.json", RunError, "name a whole run folder")
    recipe = folder / "recipe.json"
    fields = read_json(recipe, RunError)
    try:
        config = from_dict(Config, fields)
        steps, fingerprint = int(run["steps"]), str(run["data_fingerprint"])
    except ConfigError as error:
        remedy, objectives = "restore the file", fields.get("objectives")
        encoder = fields.get("encoder")
        parts: list[tuple[Any, Any]] = []
        if isinstance(objectives, list):
            parts += [(name, OBJECTIVES) for name in objectives]
        if isinstance(encoder, dict):
            parts.append((encoder.get("positions"), POSITIONS))
        if any(isinstance(name, str) and name not in registry for name, registry in parts):
            remedy = (
                "if an extension adds it, name the file of the extension in LITEBERT_EXTENSIONS"
            )
        raise RunError(f"{recipe}: {error}; {remedy}") from None
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise RunError(
            f"{folder / 'run.json'} was changed ({fault_of(error)}); restore it"
        ) from None

    rows = metrics.read(folder / "metrics.jsonl")
    trained = [row for row in rows if row["kind"] == "train" and isinstance(row.get("tokens"), int)]
    heldout = next((row for row in reversed(rows) if row["kind"] == "heldout"), None)
    step = heldout["step"] if heldout else trained[-1]["step"] if trained else 0
    tokens = [row["tokens"] for row in trained if row["step"] <= step]
    prefixes = tuple(f"{name}_" for name in config.objectives)
    scores = {
        name: score
        for name, score in (heldout or {}).items()
        if name.startswith(prefixes) and _is_number(score)
    }

    newest, _ = newest_whole(folder / "checkpoints", lambda path: hash_fault(path, "state.json"))
    state = read_json(newest / "state.json", RunError) if newest else {}
    seconds, seen, rate = state.get("seconds"), state.get("tokens"), None
    if _is_number(seconds) and _is_number(seen) and seconds > 0:
        rate = seen / seconds
    else:
        seconds = None

    sets = run.get("sets")
    data = os.path.basename(str(run.get("data", "")))
    if isinstance(sets, list):
        data = " ".join(f"{os.path.basename(entry['data'])}:{entry['weight']}" for entry in sets)
    settings = flatten(to_dict(config))
    settings = {name: value for name, value in settings.items() if name not in _FREE}
    settings |= {"data": data, "data fingerprint": fingerprint[:8]}
    if isinstance(run.get("machine"), str):
        settings["machine"] = run["machine"]
    return ComparedRun(
        run=str(folder),
        recipe=config.name,
        encoder_parameters=sum(cost.encoder_parameters(config.encoder).values()),
        parameters=sum(cost.model_parameters(config).values()),
        step=step,
        steps=steps,
        # There is no row of metrics if the run took fewer steps than a row sums.
        tokens=tokens[-1] if tokens else 0,
        seconds=seconds,
        tokens_per_second=rate,
        scores=scores,
        data_fingerprint=fingerprint,
        budget=config.train.budget,
        length=config.sequences.length,
        settings=settings,
    )


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


# ----------------------------------------------------------------- settings, names, wide tables


def flatten(fields: Any, path: str = "") -> dict[str, str]:
    """Return nested fields by their dotted names, as text; None is left out."""
    if isinstance(fields, Mapping):
        return {
            key: value
            for name, inner in fields.items()
            for key, value in flatten(inner, f"{path}{name}.").items()
        }
    if not path or fields is None:
        return {}
    return {path[:-1]: ", ".join(map(str, fields)) if isinstance(fields, list) else str(fields)}


def find_differing(runs: Sequence[Mapping[str, str]]) -> list[str]:
    names = dict.fromkeys(name for settings in runs for name in settings)
    return [name for name in names if len({settings.get(name) for settings in runs}) > 1]


def shorten_names(runs: Sequence[str]) -> list[str]:
    names = [Path(run).resolve().name for run in runs]
    return names if len(set(names)) == len(runs) else list(runs)


def split_table(table: Table, width: int, keys: int = 1) -> list[Table]:
    """Split a table by columns into tables of at most `width` characters, if possible, all with the
    first `keys` columns.
    """
    widths = [max(map(len, column)) + 2 for column in zip(table.columns, *table.rows, strict=True)]
    used = key_width = sum(widths[:keys])
    groups: list[list[int]] = [[]]
    for column in range(keys, len(widths)):
        if groups[-1] and used + widths[column] > width:
            groups.append([])
            used = key_width
        groups[-1].append(column)
        used += widths[column]

    def select(row: Sequence[str], columns: Sequence[int]) -> tuple[str, ...]:
        return (*row[:keys], *(row[column] for column in columns))

    return [
        Table(
            table.title,
            select(table.columns, chosen),
            tuple(select(row, chosen) for row in table.rows),
        )
        for chosen in groups
    ]
