"""How the scores of an objective are shown: as rows of a table, as a cell of a comparison, as curves of a report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from litebert.registry import OBJECTIVES


@dataclass(frozen=True)
class Score:
    """One held-out score as a person reads it. Keys are those of `Objective.scores`, without the objective's name."""

    key: str
    title: str
    """`{NAME}` in it stands for the name of the objective, in capitals."""
    form: str = ".1%"
    """How the number is formatted."""
    baseline: str = ""
    """Key of what guessing would give."""
    remark: str = ""
    """What the baseline is; without a baseline, what the score is a share of."""
    error: str = ""
    """Key of the standard error."""

    def number(self, key: str, scores: Mapping[str, float], name: str) -> str:
        """The score under a key of objective `name`, formatted; empty where there is none."""
        value = scores.get(f"{name}_{key}")
        return "" if value is None else f"{value:{self.form}}"

    def text(self, scores: Mapping[str, float], name: str) -> str:
        """The score of objective `name` beside its error and its baseline; empty where it has none."""
        value, error = self.number(self.key, scores, name), self.number(self.error, scores, name)
        guess = self.number(self.baseline, scores, name)
        remark = f"{self.remark}: {guess}" if guess else "" if self.baseline else self.remark
        return value and value + (f" ± {error}" if error else "") + (f" ({remark})" if remark else "")


@dataclass(frozen=True)
class Curves:
    """A chart of a run's report, by default of the accuracy; drawn where the run recorded any of its lines."""

    title: str
    """With `{NAME}` as in `Score`."""
    lines: tuple[tuple[str, str, str], ...] = (("training", "train", "accuracy"), ("held out", "heldout", "accuracy"))
    """Of each its label, the kind of rows it is read from, and the key in them."""
    axis: str = "correct, %"
    scale: float = 100.0
    baseline: str = "majority"
    """Key of what guessing would give, drawn as a level; empty for none."""
    note: str = ""
    unigram_entropy: bool = False
    """Whether the unigram entropy of the data is the level to get below."""


def score_rows(scores: Mapping[str, float]) -> list[tuple[str, str]]:
    """Held-out scores as a table's rows, each accuracy beside what guessing would give."""
    there = {name: one for name, one in OBJECTIVES.items() if f"{name}_loss" in scores or f"{name}_accuracy" in scores}
    rows = []
    for name, objective in there.items():
        owner = "".join(other.owner_of.get(name, "") for other in there.values())
        shown = [(score.title.format(NAME=name.upper()), score.text(scores, name)) for score in objective.shown]
        rows += [(owner + title, text) for title, text in shown if text]
    return rows
