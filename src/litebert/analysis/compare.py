"""Runs side by side, from what their folders hold: recipe.json, run.json, metrics.jsonl, the newest state.json.

Nothing is computed again and torch is not loaded, so a table of many runs takes a moment. It is therefore as fair as
the runs were alike: `differences` says in words where they were not. Tokens per second are those of the whole run,
held-out evaluations and checkpoints included.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from litebert import cost
from litebert.analysis.report import Table
from litebert.config import Config
from litebert.config.serialization import from_dict
from litebert.errors import ConfigError, RunError
from litebert.model.objectives import Score
from litebert.registry import OBJECTIVES
from litebert.storage import read_json
from litebert.train import metrics

ALIKE = 1.5
"""Largest ratio of two runs' tokens, or seconds, that is not worth a word."""


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


def compare(runs: Iterable[str | Path]) -> list[ComparedRun]:
    """One row per run folder, in the order given.

    Raises:
        RunError: a folder is no pretraining run, or has no held-out scores yet.
    """
    return [_row(Path(run)) for run in runs]


def differences(rows: Sequence[ComparedRun]) -> list[str]:
    """What makes the rows less comparable than they look, in words."""
    said = []
    if len({row.data_fingerprint for row in rows}) > 1:
        said.append("the runs were trained on different data, and each was scored on its own: loss and accuracy on "
                    "other pieces are other questions")  # fmt: skip
    lengths = sorted({row.length for row in rows})
    if len(lengths) > 1:
        said.append(f"the runs read sequences of {' and '.join(map(str, lengths))} tokens, in training and in their "
                    "scores: longer ones give more context to guess from")  # fmt: skip
    same = len({row.budget for row in rows}) == 1
    for unit in ("tokens", "seconds"):
        known = [(value, row.run) for row in rows if (value := getattr(row, unit)) is not None]
        (least, first), (most, last) = min(known, default=(0, "")), max(known, default=(0, ""))
        if most > ALIKE * least:
            amounts = [f"{amount:,.1f}".removesuffix(".0") for amount in (least, most)]
            what = f"the same budget, {rows[0].budget}, was" if same else "the runs had different budgets:"
            said.append(f"{what} {amounts[0]} {unit} to {first} and {amounts[1]} to {last}")
    unfinished = [f"{row.run} stands at step {row.step:,} of {row.steps:,}" for row in rows if row.step < row.steps]
    return [*said, *unfinished]


FACTS = 7
"""So many columns of `table` say what a run is; its scores follow."""


def table(rows: Sequence[ComparedRun]) -> Table:
    """The rows for people; a score that no run has is left out."""
    names = [Path(row.run).resolve().name for row in rows]
    if len(set(names)) < len(rows):
        names = [row.run for row in rows]
    columns = {
        "run": names,
        "recipe": [row.recipe for row in rows],
        "encoder, M": [f"{row.encoder_parameters / 1e6:.2f}" for row in rows],
        "whole, M": [f"{row.parameters / 1e6:.2f}" for row in rows],
        "steps": [f"{row.step:,}" for row in rows],
        "tokens, M": [f"{row.tokens / 1e6:.2f}" for row in rows],
        "tokens/s": ["-" if row.tokens_per_second is None else f"{row.tokens_per_second:,.0f}" for row in rows],
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
    note = "Parameters in millions, of the encoder and of all that was trained. Scores are held out."
    for name, objective in OBJECTIVES.items():
        if objective.note and any(f"{name}_loss" in row.scores for row in rows):
            note += f" {objective.note}"
    return Table("Runs side by side", tuple(columns), tuple(zip(*columns.values(), strict=True)), note)


def _cell(row: ComparedRun, kinds: Mapping[str, Score]) -> str:
    """The score of the one objective of a kind that the run has, and what guessing would give."""
    for name, score in kinds.items():
        if value := score.number(score.key, row.scores, name):
            guess = score.number(score.baseline, row.scores, name)
            return f"{value} ({guess})" if guess else value
    return "-"


def _row(folder: Path) -> ComparedRun:
    run, recipe = read_json(folder / "run.json", RunError, "name a whole run folder"), folder / "recipe.json"
    try:
        config = from_dict(Config, read_json(recipe, RunError))
        steps, fingerprint = int(run["steps"]), str(run["data_fingerprint"])
    except ConfigError as error:
        raise RunError(f"{recipe} was changed ({error}); restore it") from None
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(f"{folder / 'run.json'} was changed ({error!r}); restore it") from None
    rows = metrics.read(folder / "metrics.jsonl")
    heldout = next((row for row in reversed(rows) if row["kind"] == "heldout"), None)
    if heldout is None:
        raise RunError(f"{folder} has no held-out scores yet; let it train to its first evaluation")
    own = tuple(f"{name}_" for name in config.objectives)
    trained = [row["tokens"] for row in rows if row["kind"] == "train" and row["step"] <= heldout["step"]]
    seconds, rate = _clock(folder)
    return ComparedRun(
        run=str(folder),
        recipe=config.name,
        encoder_parameters=sum(cost.encoder_parameters(config.encoder).values()),
        parameters=sum(cost.model_parameters(config).values()),
        step=heldout["step"],
        steps=steps,
        tokens=trained[-1] if trained else 0,  # fewer steps than a row of metrics sums
        seconds=seconds,
        tokens_per_second=rate,
        scores={name: score for name, score in heldout.items() if name.startswith(own) and score is not None},
        data_fingerprint=fingerprint,
        budget=config.train.budget,
        length=config.sequences.length,
    )


def _clock(folder: Path) -> tuple[float | None, float | None]:
    """Seconds of training and tokens per second up to the newest checkpoint."""
    states = sorted((folder / "checkpoints").glob("step-*/state.json"))
    state = read_json(states[-1], RunError) if states else {}
    seconds, tokens = state.get("seconds"), state.get("tokens")
    return (seconds, tokens / seconds) if seconds and tokens else (None, None)
