"""Put the differences of a study into words: a sentence, a row of a table, or a summary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from litebert.analysis.report import Table
from litebert.studies.statistics import Difference, compute_mean
from litebert.studies.study import Published, Study
from litebert.tasks.scores import score_title

NOISE, AGREES, DISAGREES = "inside the noise", "agrees", "disagrees"
OPEN = "open"
"""The verdict where seeds are still to come."""

LOWER = ("perplexity",)
"""Columns of papers that are better lower."""


def summarize(differences: Sequence[Difference], study: Study, judged: Sequence[str]) -> str:
    """Summarize the deciding score of all variants, and say how it fits the paper.

    Args:
        judged: the scores that have verdicts; the first decides.
    """
    deciding = [difference for difference in differences if difference.score == judged[0]]
    if not any(difference.p is not None for difference in deciding):
        return (
            f"{format_title(judged[0])} of {len(deciding)} variants beside '{study.baseline}'; no "
            "difference could be tested."
        )
    verdict_words = {
        "better": "better beyond the noise of the seeds",
        "worse": "worse beyond the noise of the seeds",
        NOISE: NOISE,
        OPEN: OPEN,
    }
    by_verdict = [
        (words, [difference.variant for difference in deciding if _judge(difference) == verdict])
        for verdict, words in verdict_words.items()
    ]
    text = f"{format_title(judged[0])} against '{study.baseline}': {_join_groups(by_verdict)}."
    fit_of = {difference.variant: compare_with_paper(difference, study) for difference in deciding}
    by_fit = [
        (fit, [variant for variant in fit_of if fit_of[variant] == fit])
        for fit in (AGREES, DISAGREES, NOISE, OPEN)
    ]
    if fits := _join_groups(by_fit):
        text += f" The sign of the paper's differences compared with ours: {fits}."
    return text


def _join_groups(groups: Sequence[tuple[str, Sequence[str]]]) -> str:
    total = sum(len(variants) for _, variants in groups)
    texts = []
    for words, variants in groups:
        if not variants:
            continue
        names = ", ".join(f"'{variant}'" for variant in variants)
        # The names of all variants say nothing once there are many of them.
        texts.append(f"{words}: {f'all {total}' if len(variants) == total > 3 else names}")
    return "; ".join(texts)


def make_verdict_table(differences: Sequence[Difference], study: Study) -> Table:
    """Make a table of each difference from the baseline, its verdict and the paper's difference."""
    columns: tuple[str, ...] = ("score", "variant", "difference", "p", "verdict")
    scores = list(dict.fromkeys(difference.score for difference in differences))
    ordered = sorted(differences, key=lambda difference: scores.index(difference.score))
    rows: list[tuple[str, ...]] = []
    for difference in ordered:
        score, value, halfwidth = difference.score, difference.value, difference.halfwidth
        size = f"{_format_sign(value)}{format_amount(score, abs(value))}"
        if halfwidth is not None:
            size += f" ± {format_amount(score, halfwidth)}"
        p = "-" if difference.p is None else _format_p(difference.p).removeprefix("= ")
        row: tuple[str, ...]
        row = (format_title(score), difference.variant, size, p, _judge(difference))
        if study.paper:
            fit = compare_with_paper(difference, study) or "-"
            row += (_format_published(difference, study), fit)
        rows.append(row)
    note = (
        f"A difference is measured from '{study.baseline}': it is the mean over pairs of runs, one "
        "pair for each seed. Its 95 % interval is not corrected. The column p is from a paired t "
        "test of whether this mean is zero: the chance of a mean at least as large if the "
        "variants were equal. It is corrected for the comparisons and for testing after each seed."
    )
    if study.paper:
        columns += ("paper's difference", "sign of both")
        note += f" The paper's differences are from {study.paper.source}."
    return Table("Verdicts", columns, tuple(rows), note)


def _judge(difference: Difference) -> str:
    if difference.p is None:
        if difference.is_open:
            return OPEN
        return "one seed" if difference.halfwidth is None else "cannot be tested"
    if not difference.is_beyond_noise:
        return OPEN if difference.is_open else NOISE
    lower_is_better = difference.score.endswith("loss")
    return "better" if (difference.value < 0) == lower_is_better else "worse"


class _Figures(NamedTuple):
    """The figures of a paper that a difference is compared with, as printed."""

    paper: Published
    variant: str
    baseline: str
    column: str


def _find_published(difference: Difference, study: Study) -> _Figures | None:
    """Find the paper's figures of the variant and of the baseline for a score.

    They are in the column named after the score's objective, or else in the first column that has
    both figures.
    """
    paper, variant = study.paper, difference.variant
    if paper is None or variant not in paper.rows or study.baseline not in paper.rows:
        return None
    pairs = list(zip(paper.rows[variant], paper.rows[study.baseline], strict=True))
    objective = difference.score.partition("_")[0]
    same_name = [i for i, column in enumerate(paper.columns) if column.lower() == objective]
    for i in same_name or range(len(pairs)):
        if "-" not in pairs[i]:
            return _Figures(paper, *pairs[i], paper.columns[i])
    return None


def _format_published(difference: Difference, study: Study) -> str:
    """Return the paper's difference with the name of its column; "-" if there is none."""
    figures = _find_published(difference, study)
    if figures is None:
        return "-"
    value = float(figures.variant) - float(figures.baseline)
    digits = len(figures.variant.partition(".")[2])
    sign = _format_sign(round(value, digits))
    return f"{sign}{abs(value):.{digits}f} {figures.column}"


def compare_with_paper(difference: Difference, study: Study) -> str | None:
    """Say if the paper's difference has the same sign; None if there is nothing to compare."""
    expected = find_expected(difference, study)
    if expected is None or difference.p is None:
        return None
    if not difference.is_beyond_noise:
        return OPEN if difference.is_open else NOISE
    return AGREES if _judge(difference) == expected else DISAGREES


def find_expected(difference: Difference, study: Study) -> str | None:
    """Return `better` or `worse` as the paper found the variant; None if it says neither."""
    if difference.variant in study.expected:
        return study.expected[difference.variant]
    figures = _find_published(difference, study)
    if figures is None:
        return None
    variant, baseline = float(figures.variant), float(figures.baseline)
    if variant == baseline:
        return None
    return "better" if (variant < baseline) == (figures.column in LOWER) else "worse"


def _format_sign(value: float) -> str:
    return "+" if value > 0 else "−" if value < 0 else ""


def format_verdict(difference: Difference, baseline: str) -> str:
    """Put a difference into a sentence, with its interval and its p value."""
    score, value, halfwidth = difference.score, difference.value, difference.halfwidth
    if value == 0:
        comparison = "equal to"
    else:
        is_better = (value < 0) == score.endswith("loss")
        amount = format_amount(score, abs(value))
        comparison = f"{amount} {'better than' if is_better else 'worse than'}"
    start = f"{format_title(score)}: '{difference.variant}' is {comparison} '{baseline}'"
    if halfwidth is None:
        return f"{start} with one seed, which cannot tell a difference from noise."
    if difference.is_open:
        return f"{start}, ± {format_amount(score, halfwidth)}: no verdict stands yet."
    if difference.p is None:
        return f"{start}; the seeds of each agree exactly, so it cannot be tested."
    verdict = "beyond the noise of the seeds" if difference.is_beyond_noise else NOISE
    p = _format_p(difference.p)
    return f"{start}, ± {format_amount(score, halfwidth)}: {verdict} (p {p})."


def format_amount(score: str, difference: float) -> str:
    """Return a difference with its unit; shares differ by points."""
    if score.endswith("loss"):
        return f"{difference:.3f} nats"
    return f"{difference:.3f}" if score.endswith("auc") else f"{100 * difference:.1f} points"


def _format_p(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"= {p:.3f}"


def format_title(name: str) -> str:
    """Return the title of a score: MLM loss for mlm_loss."""
    objective, _, quantity = name.partition("_")
    if quantity:
        return f"{objective.upper()} {quantity.replace('_', ' ')}"
    return score_title(name)


def _format_value(name: str, value: float) -> str:
    return f"{value:.3f}" if name.endswith(("loss", "auc")) else f"{value:.1%}"


def format_mean(name: str, values: Sequence[float]) -> str:
    """Return the mean of a score over seeds, with its interval."""
    if not values:
        return "-"
    mean = compute_mean(values)
    text = _format_value(name, mean.value)
    if mean.halfwidth is not None:
        text += f" ± {_format_value(name, mean.halfwidth)}"
    return text


def format_difference(difference: Difference | None) -> str:
    """Return a difference in the unit of its score, with * if it is beyond the noise."""
    if difference is None:
        return "-"
    sign = _format_sign(difference.value)
    star = "*" if difference.is_beyond_noise else ""
    return f"{sign}{_format_value(difference.score, abs(difference.value))}{star}"
