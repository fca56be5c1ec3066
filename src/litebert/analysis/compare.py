"""Runs side by side, from what their folders hold: recipe.json, run.json, metrics.jsonl, the newest
state.json.

Nothing is computed again and torch is not loaded, so a table of many runs takes a moment, unless
the runs are to be scored on the same data. The table is as fair as the runs were alike:
`differences` shows where they were not, and `settings_table` lists every setting that differs.
Tokens per second are those of the whole run, held-out evaluations and checkpoints included.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeGuard

from litebert import cost
from litebert.analysis.differences import differing, flat, short_names
from litebert.analysis.report import Table
from litebert.config import Config
from litebert.config.serialization import from_dict, to_dict
from litebert.errors import ConfigError, RunError
from litebert.json_reader import fault_of, read_json
from litebert.model.objectives import Score
from litebert.registry import OBJECTIVES, POSITIONS
from litebert.storage import hash_fault, newest_whole
from litebert.train import metrics

ALIKE = 1.5
"""Largest ratio of two runs' tokens, or seconds, that is not worth a remark."""
_FREE = ("name", "train.save_every", "train.keep_checkpoints")
"""Settings that change no score."""


@dataclass(frozen=True)
class ComparedRun:
    """One run as it stood at its last held-out evaluation."""

    run: str
    """Its folder."""
    recipe: str
    encoder_parameters: int
    """Of the encoder with its pooler, which is what is used afterwards."""
    parameters: int
    """Of all that was trained: encoder, heads and generator."""
    step: int
    steps: int
    """That the budget bought."""
    tokens: int
    """Trained on, padding aside."""
    seconds: float | None
    """Of training to the newest checkpoint; None where there is none left."""
    tokens_per_second: float | None
    scores: dict[str, float]
    """Held out, of the run's own objectives, named as in metrics.jsonl."""
    data_fingerprint: str
    budget: str
    """As it was asked for."""
    length: int
    """Tokens per sequence, in training and in its held-out scores."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """What made the run, by dotted name: its recipe, its data and its machine."""


def compare(
    runs: Iterable[str | Path], data: str | Path | None = None, device: str = "auto"
) -> list[ComparedRun]:
    """One row per run folder, in the order given; a run that was not evaluated yet has no scores.

    Args:
        data: score every run anew on the held-out part of this folder of `prepare`, as `evaluate`
            does on `device`, instead of showing the scores that each run wrote.

    Raises:
        RunError: a folder is no pretraining run, or was changed.
        DataError: `data` was prepared with another tokenizer than a run's.
    """
    rows = [_row(Path(run)) for run in runs]
    if data is None:
        return rows
    from litebert.data.shards import Shards
    from litebert.train.evaluate import evaluate

    fingerprint = Shards.open(data).fingerprint
    return [
        replace(row, scores=evaluate(row.run, data, device=device), data_fingerprint=fingerprint)
        for row in rows
    ]


def differences(rows: Sequence[ComparedRun]) -> list[str]:
    """What makes the rows less comparable than they look, in sentences."""
    found = []
    if len({row.data_fingerprint for row in rows}) > 1:
        found.append(
            "the runs were trained on different data and each is scored on its own, so "
            "their losses and accuracies "
            "answer different questions; --data scores them all on the same held-out text"
        )
    lengths = sorted({row.length for row in rows})
    if len(lengths) > 1:
        found.append(
            "the runs were trained and scored on sequences of "
            f"{' and '.join(map(str, lengths))} tokens; "
            "longer sequences give more context to guess from"
        )
    same = len({row.budget for row in rows}) == 1
    for unit in ("tokens", "seconds"):
        known = [(value, row.run) for row in rows if (value := getattr(row, unit)) is not None]
        (least, first), (most, last) = min(known, default=(0, "")), max(known, default=(0, ""))
        if most > ALIKE * least:
            amounts = [f"{amount:,.1f}".removesuffix(".0") for amount in (least, most)]
            what = (
                f"the same budget, {rows[0].budget}, was"
                if same
                else "the runs had different budgets:"
            )
            found.append(f"{what} {amounts[0]} {unit} for {first} and {amounts[1]} for {last}")
    unfinished = [
        f"{row.run} is at step {row.step:,} of {row.steps:,}"
        for row in rows
        if row.step < row.steps
    ]
    return [*found, *unfinished]


def settings_table(rows: Sequence[ComparedRun]) -> Table:
    """A row for each setting in which the runs differ, a column for each run; no rows where they
    differ in none.
    """
    lines = [
        (name, *(row.settings.get(name, "-") for row in rows))
        for name in differing([row.settings for row in rows])
    ]
    return Table("What differs", ("setting", *short_names([row.run for row in rows])), tuple(lines))


def table(rows: Sequence[ComparedRun]) -> Table:
    """The rows for people; a score that no run has is left out."""
    columns = {
        "run": short_names([row.run for row in rows]),
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
    titles: dict[str, dict[str, Score]] = {}
    for name, objective in OBJECTIVES.items():
        by_key = {score.key: score for score in objective.shown}
        for title, key in objective.compared.items():
            if key in by_key:
                titles.setdefault(title.format(NAME=name.upper()), {})[name] = by_key[key]
    for title, kinds in titles.items():
        column = [_cell(row, kinds) for row in rows]
        if set(column) != {"-"}:
            columns[title] = column
    note = (
        "Parameters in millions, of the encoder and of all that was trained. Scores are "
        "held out. ± is one standard "
        "error."
    )
    for name, objective in OBJECTIVES.items():
        if objective.note and any(f"{name}_loss" in row.scores for row in rows):
            note += f" {objective.note}"
    return Table(
        "Runs side by side", tuple(columns), tuple(zip(*columns.values(), strict=True)), note
    )


def _cell(row: ComparedRun, kinds: Mapping[str, Score]) -> str:
    """The score of the one objective of a kind that the run has, with its error and what guessing
    would give.
    """
    for name, score in kinds.items():
        if value := score.number(score.key, row.scores, name):
            error = score.number(score.error, row.scores, name)
            baseline = score.number(score.baseline, row.scores, name)
            return value + (f" ± {error}" if error else "") + (f" ({baseline})" if baseline else "")
    return "-"


def _row(folder: Path) -> ComparedRun:
    run, recipe = (
        read_json(folder / "run.json", RunError, "name a whole run folder"),
        folder / "recipe.json",
    )
    fields = read_json(recipe, RunError)
    try:
        config = from_dict(Config, fields)
        steps, fingerprint = int(run["steps"]), str(run["data_fingerprint"])
    except ConfigError as error:
        raise RunError(f"{recipe}: {error}; {_remedy(fields)}") from None
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise RunError(
            f"{folder / 'run.json'} was changed ({fault_of(error)}); restore it"
        ) from None
    rows = metrics.read(folder / "metrics.jsonl")
    trained = [row for row in rows if row["kind"] == "train" and isinstance(row.get("tokens"), int)]
    heldout = next((row for row in reversed(rows) if row["kind"] == "heldout"), None)
    step = heldout["step"] if heldout else trained[-1]["step"] if trained else 0
    tokens = [row["tokens"] for row in trained if row["step"] <= step]
    own = tuple(f"{name}_" for name in config.objectives)
    scores = {
        name: score
        for name, score in (heldout or {}).items()
        if name.startswith(own) and _is_number(score)
    }
    seconds, rate = _clock(folder)
    return ComparedRun(
        run=str(folder),
        recipe=config.name,
        encoder_parameters=sum(cost.encoder_parameters(config.encoder).values()),
        parameters=sum(cost.model_parameters(config).values()),
        step=step,
        steps=steps,
        tokens=tokens[-1] if tokens else 0,  # fewer steps than a row of metrics sums
        seconds=seconds,
        tokens_per_second=rate,
        scores=scores,
        data_fingerprint=fingerprint,
        budget=config.train.budget,
        length=config.sequences.length,
        settings=_settings(config, run, fingerprint),
    )


def _remedy(recipe: Mapping[str, Any]) -> str:
    """What to do about a recipe that cannot be read."""
    objectives, encoder = recipe.get("objectives"), recipe.get("encoder")
    own = (
        [name for name in objectives if isinstance(name, str) and name not in OBJECTIVES]
        if isinstance(objectives, list)
        else []
    )
    positions = encoder.get("positions") if isinstance(encoder, dict) else None
    if own or (isinstance(positions, str) and positions not in POSITIONS):
        return "if it is a part of your own, name the file that adds it in LITEBERT_EXTENSIONS"
    return "restore the file"


def _settings(config: Config, run: Mapping[str, Any], fingerprint: str) -> dict[str, str]:
    facts = {
        "data": os.path.basename(str(run.get("data", ""))),
        "data fingerprint": fingerprint[:8],
    }
    if isinstance(run.get("machine"), str):
        facts["machine"] = run["machine"]
    return {
        **{name: value for name, value in flat(to_dict(config)).items() if name not in _FREE},
        **facts,
    }


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _clock(folder: Path) -> tuple[float | None, float | None]:
    """Seconds of training and tokens per second up to the newest whole checkpoint."""
    newest, _ = newest_whole(folder / "checkpoints", lambda path: hash_fault(path, "state.json"))
    state = read_json(newest / "state.json", RunError) if newest else {}
    seconds, tokens = state.get("seconds"), state.get("tokens")
    if not (_is_number(seconds) and _is_number(tokens) and seconds > 0):
        return None, None
    return seconds, tokens / seconds
