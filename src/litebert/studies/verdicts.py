"""What the differences of a study say, in words: a sentence, a row of a table, or a summary of all
of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from litebert.analysis.report import Table
from litebert.studies.statistics import Difference, Mean, mean
from litebert.studies.study import Published, Study
from litebert.tasks.scores import score_title


def summary(found: Sequence[Difference], study: Study, judged: Sequence[str]) -> str:
    """What the deciding score says of all variants, and how that fits the paper."""
    own = [one for one in found if one.score == judged[0]]
    if not any(one.p is not None for one in own):
        return (
            f"{title(judged[0])} of {len(own)} variants beside '{study.baseline}'; no "
            "difference could be tested."
        )
    ways = (
        ("better", "better beyond the noise of the seeds"),
        ("worse", "worse beyond the noise of the seeds"),
        (NOISE, NOISE),
    )
    by_way = [(words, [one.variant for one in own if _way(one) == way]) for way, words in ways]
    text = f"{title(judged[0])} against '{study.baseline}': {_listed(by_way)}."
    fits = [
        (way, [one.variant for one in own if _fit(one, study) == way])
        for way in (AGREES, DISAGREES, NOISE)
    ]
    if listed := _listed(fits):
        text += f" The sign of the paper's differences beside ours: {listed}."
    return text


def _listed(groups: Sequence[tuple[str, Sequence[str]]]) -> str:
    total = sum(len(names) for _, names in groups)
    return "; ".join(
        f"{words}: "
        + (f"all {total}" if len(names) == total > 3 else ", ".join(f"'{name}'" for name in names))
        for words, names in groups
        if names
    )


def verdicts(found: Sequence[Difference], study: Study) -> Table:
    """A row for each difference from the baseline: its size, whether the seeds explain it, and what
    the paper saw.
    """
    columns: tuple[str, ...] = ("score", "variant", "difference", "p", "verdict")
    rows: list[tuple[str, ...]] = []
    scores = list(dict.fromkeys(one.score for one in found))
    for one in sorted(found, key=lambda one: scores.index(one.score)):
        size = f"{_sign(one.value)}{_amount(one.score, abs(one.value))}"
        half = "" if one.halfwidth is None else f" ± {_amount(one.score, one.halfwidth)}"
        row: tuple[str, ...] = (title(one.score), one.variant, size + half)
        row += ("-" if one.p is None else _p(one.p).removeprefix("= "), _way(one))
        if study.paper:
            row += (_reported(one, study), _fit(one, study) or "-")
        rows.append(row)
    note = (
        f"Differences are from '{study.baseline}', with 95 % intervals that are not corrected; "
        "p values are."
    )
    if study.paper:
        columns += ("paper's difference", "sign of both")
        note += f" The paper's differences are from {study.paper.source}."
    return Table("Verdicts", columns, tuple(rows), note)


NOISE, AGREES, DISAGREES = "inside the noise", "agrees", "disagrees"


def _way(one: Difference) -> str:
    if one.p is None:
        return "one seed" if one.halfwidth is None else "cannot be tested"
    if not one.beyond_noise:
        return NOISE
    return "better" if (one.value < 0) == one.score.endswith("loss") else "worse"


def _printed(one: Difference, study: Study) -> tuple[Published, str, str, int] | None:
    """The paper's figures of the variant and of the baseline that speak of this score, and their
    column.

    It is the column named after the objective of the score, else the first that has both.
    """
    paper = study.paper
    if paper is None or one.variant not in paper.rows or study.baseline not in paper.rows:
        return None
    pairs = list(zip(paper.rows[one.variant], paper.rows[study.baseline], strict=True))
    named = [
        i for i, column in enumerate(paper.columns) if column.lower() == one.score.partition("_")[0]
    ]
    for i in named or range(len(pairs)):
        if "-" not in pairs[i]:
            return paper, *pairs[i], i
    return None


def _reported(one: Difference, study: Study) -> str:
    if (found := _printed(one, study)) is None:
        return "-"
    paper, own, base, column = found
    value = float(own) - float(base)
    digits = len(own.partition(".")[2])
    return f"{_sign(round(value, digits))}{abs(value):.{digits}f} {paper.columns[column]}"


def _fit(one: Difference, study: Study) -> str | None:
    """Whether the paper's difference has the sign of ours; None where it has none."""
    found = _printed(one, study)
    if found is None or one.p is None or float(found[1]) == float(found[2]):
        return None
    if not one.beyond_noise:
        return NOISE
    lower = found[0].columns[found[3]] in LOWER
    better = (float(found[1]) < float(found[2])) == lower
    return AGREES if (_way(one) == "better") == better else DISAGREES


LOWER = ("perplexity",)
"""Columns of papers that are better lower."""


def _sign(value: float) -> str:
    return "+" if value > 0 else "−" if value < 0 else ""


def sentence(one: Difference, baseline: str) -> str:
    """What one difference says, with its interval and its p value."""
    lower = one.score.endswith("loss")
    way = (
        "equal to"
        if one.value == 0
        else ("better than" if (one.value < 0) == lower else "worse than")
    )
    amount = f"{_amount(one.score, abs(one.value))} {way}" if one.value else way
    start = f"{title(one.score)}: '{one.variant}' is {amount} '{baseline}'"
    if one.halfwidth is None:
        return f"{start} with one seed, which cannot tell a difference from noise."
    if one.p is None:
        return f"{start}; the seeds of each agree exactly, so it cannot be tested."
    sure = "beyond the noise of the seeds" if one.beyond_noise else "inside the noise"
    return f"{start}, ± {_amount(one.score, one.halfwidth)}: {sure} (p {_p(one.p)})."


def _amount(score: str, difference: float) -> str:
    """A difference with its unit; shares differ by points."""
    if score.endswith("loss"):
        return f"{difference:.3f} nats"
    return f"{difference:.3f}" if score.endswith("auc") else f"{100 * difference:.1f} points"


def _p(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"= {p:.3f}"


def title(name: str) -> str:
    """A score as a reader knows it."""
    objective, _, kind = name.partition("_")
    return f"{objective.upper()} {kind.replace('_', ' ')}" if kind else score_title(name)


def _number(name: str, value: float) -> str:
    return f"{value:.3f}" if name.endswith(("loss", "auc")) else f"{value:.1%}"


def shown(name: str, values: Sequence[float]) -> str:
    """The mean of a score over seeds, with its interval."""
    if not values:
        return "-"
    one: Mean = mean(values)
    return _number(name, one.value) + (
        f" ± {_number(name, one.halfwidth)}" if one.halfwidth is not None else ""
    )


def signed(one: Difference | None) -> str:
    """A difference in the unit of its score; * where it is beyond the noise."""
    if one is None:
        return "-"
    return (
        f"{_sign(one.value)}{_number(one.score, abs(one.value))}{'*' if one.beyond_noise else ''}"
    )
