"""The scores of a study's cells, compared, and put into words, tables and figures."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import date
from importlib.metadata import version
from platform import python_version

from litebert.analysis.charts import Intervals
from litebert.analysis.curves import average_points, make_switched, read_points
from litebert.analysis.report import Switched, Table
from litebert.base.errors import RunError
from litebert.config import cost
from litebert.studies.cells import Cell, read_scores
from litebert.studies.grid import set_vocabulary
from litebert.studies.plan import Plan
from litebert.studies.statistics import (
    POWER,
    Difference,
    Power,
    compare_with_baseline,
    compute_mean,
    make_power,
    measure_spread,
)
from litebert.studies.study import Study
from litebert.tasks.scores import score_title
from litebert.train.plateau import knows_frequencies_only

NOISE, AGREES, DISAGREES = "inside the noise", "agrees", "disagrees"
OPEN = "open"

LOWER = ("perplexity",)
"""Columns of papers that are better lower."""


def read_cells(
    study: Study, cells: Sequence[Cell]
) -> dict[str, dict[str, dict[int, float | None]]]:
    """Read the scores of the cells that have ended, by variant, name and seed; None of one that
    failed.

    A cell without the head for a score in `study.chance` has the accuracy of the most frequent
    answer, which is that of all runs because they answer the same questions.
    """
    scores: dict[str, dict[str, dict[int, float | None]]] = {name: {} for name in study.variants}
    ended = {id(cell): read_scores(cell) for cell in cells if cell.done and not cell.fault}
    majorities = {
        name: values[majority]
        for values in ended.values()
        for name in study.chance
        if (majority := f"{name.partition('_')[0]}_majority") in values
    }
    for cell in cells:
        for name, value in {**majorities, **ended[id(cell)]}.items() if id(cell) in ended else ():
            scores[cell.variant].setdefault(name, {})[cell.seed] = value
    for cell in cells:
        if cell.fault:
            for by_seed in scores[cell.variant].values():
                by_seed[cell.seed] = None
    return scores


def find_decided(
    study: Study, plan: Plan, extras: Sequence[str], cells: Sequence[Cell]
) -> set[str]:
    differences = compare_with_baseline(
        read_cells(study, cells), study.baseline, study.list_judged(extras), plan.planned
    )
    undecided = {each.variant for each in differences if not each.is_beyond_noise}
    return {each.variant for each in differences} - undecided


class Findings:
    def __init__(
        self,
        study: Study,
        plan: Plan,
        cells: Sequence[Cell],
        extras: Sequence[str] = (),
        stopped: int | None = None,
    ) -> None:
        """Compare the scores of the cells that have ended, and `extras` beside those of the study.
        `stopped` is the signal that ended the study early.
        """
        self.study, self.plan, self.cells, self.stopped = study, plan, cells, stopped
        self.names = (*study.scores, *extras)
        self.judged = study.list_judged(extras)
        self.ended = [cell for cell in cells if cell.done and not cell.fault]
        by_seed = read_cells(study, cells)
        self.scores = {
            variant: {
                name: [value for value in values.values() if value is not None]
                for name, values in by_name.items()
            }
            for variant, by_name in by_seed.items()
        }
        self.differences = compare_with_baseline(by_seed, study.baseline, self.judged, plan.planned)

    def find_power(self) -> Power | None:
        if not self.judged:
            return None
        spread = measure_spread(self.differences, self.judged[0], "the seeds of this study")
        return make_power(self.plan.planned, len(self.differences), spread) if spread else None

    def warn_of_frequencies(self) -> str:
        """Warn of variants that learned little but how frequent each token is; "" without any."""
        entropy = self.plan.entropy
        names = [
            f"'{name}'"
            for name, scores in self.scores.items()
            if (losses := scores.get("mlm_loss"))
            and knows_frequencies_only(compute_mean(losses).value, entropy)
        ]
        if not names:
            return ""
        return (
            f"The networks of {', '.join(names)} have learned little more than how frequent each "
            f"token is: their held-out loss is not clearly below the unigram entropy "
            f"({entropy:.2f} nats). Give the study a larger --budget before you trust a verdict."
        )

    def verdicts(self) -> list[str]:
        if not self.judged:
            scores = " and ".join(map(format_title, self.names))
            return [
                f"No verdict: {scores} mean something else in each variant; compare them "
                "by --tasks."
            ]
        sentences = [
            format_verdict(difference, self.study.baseline)
            for name in self.judged
            for difference in self.differences
            if difference.score == name
        ]
        return sentences or [
            f"No verdict yet: no two variants have a score for {format_title(self.judged[0])}."
        ]

    def make_table(self) -> Table:
        paper = self.study.paper
        columns = ["variant", "parameters", "steps", *map(format_title, self.names)]
        # The difference stands after the deciding score, if there is such a score.
        position = columns.index(format_title(self.judged[0])) + 1 if self.judged else 0
        if position:
            columns.insert(position, "difference")
        if paper:
            columns += [f"paper: {column}" for column in paper.columns]
        deciding = [each for each in self.differences if each.score == self.judged[0]]
        difference_of = {each.variant: each for each in deciding}
        rows = []
        for variant, config in self.study.variants.items():
            encoder = set_vocabulary(config, self.plan.vocabulary).encoder
            parameters = sum(cost.encoder_parameters(encoder).values())
            row = [variant, f"{parameters / 1e6:.2f} M", f"{self.plan.steps[variant]:,}"]
            row += (format_mean(name, self.scores[variant].get(name, ())) for name in self.names)
            if position:
                cell = "-"
                if each := difference_of.get(variant):
                    value = _format_value(each.score, abs(each.value))
                    cell = f"{_format_sign(each.value)}{value}{'*' * each.is_beyond_noise}"
                row.insert(position, cell)
            if paper:
                row += paper.rows.get(variant, ("-",) * len(paper.columns))
            rows.append(tuple(row))
        return Table("Results", tuple(columns), tuple(rows), self._write_note())

    def _write_note(self) -> str:
        note = self._describe_seeds()
        tested = sum(difference.p is not None for difference in self.differences)
        if self.judged:
            title = format_title(self.judged[0])
            note += f" Differences are from '{self.study.baseline}' in {title}. "
            if tested:
                note += (
                    "A star marks those beyond the noise (paired t test, p < 0.05 after Holm's "
                    f"correction for {tested} comparison{'s' * (tested > 1)} and for "
                    "testing after each seed)."
                )
            else:
                note += "None could be tested."
        if self.study.paper:
            note += (
                f" The paper's figures are from {self.study.paper.source}: other models, other "
                "data, one run each."
            )
        return note

    def _describe_seeds(self) -> str:
        variants = [cell.variant for cell in self.ended]  # a run that failed has no scores
        ended = {name: variants.count(name) for name in self.study.variants}
        most = max(ended.values())
        if most == 0:
            return "No run has ended yet."
        if most == 1:
            return "One seed each, so there are no intervals."
        fewer = ", ".join(f"{count} of '{name}'" for name, count in ended.items() if count < most)
        exceptions = f" ({fewer})" if fewer else ""
        return f"Means of {most} seeds{exceptions} with 95% intervals (Student's t)."

    def make_difference_figure(self) -> Intervals | None:
        """Make a figure of the differences from the baseline in the first judged score: these are
        tested, for a mean over seeds can vary more than the difference of a pair.
        """
        shown = [each for each in self.differences if each.halfwidth is not None]
        shown = [each for each in shown if each.score == self.judged[0]]
        if not shown:
            return None
        name, baseline = self.judged[0], self.study.baseline
        return Intervals(
            f"{format_title(name)}: difference from '{baseline}'",
            tuple(each.variant for each in shown),
            tuple(each.value for each in shown),
            tuple(each.halfwidth or 0.0 for each in shown),
            "mean difference of pairs and 95% interval over seeds",
            0.0,
            f"The dashed line is no difference from '{baseline}'.",
            f"{name}_difference",
        )

    def make_figures(self) -> list[Intervals]:
        first = self.make_difference_figure()
        figures = [] if first is None else [first]
        for name in self.names:
            means = {
                variant: compute_mean(scores[name])
                for variant, scores in self.scores.items()
                if scores.get(name)
            }
            if len(means) < 2:
                continue
            baseline = means.get(self.study.baseline)
            one_seed = [mean.halfwidth is None for mean in means.values()]
            caption = "mean and 95% interval over seeds"
            if all(one_seed):
                caption = "one seed, no interval"
            elif any(one_seed):
                caption += ", none with one seed"
            figures.append(
                Intervals(
                    format_title(name),
                    tuple(means),
                    tuple(mean.value for mean in means.values()),
                    tuple(mean.halfwidth or 0.0 for mean in means.values()),
                    caption,
                    None if baseline is None else baseline.value,
                    "" if baseline is None else f"The dashed line is '{self.study.baseline}'.",
                    name,
                )
            )
        return figures

    def make_fault_table(self) -> Table | None:
        """Make a table of the cells without scores and the reasons; None if there are none."""
        rows = [
            (cell.variant, str(cell.seed), cell.fault or "has not ended yet")
            for cell in self.cells
            if cell.fault or not (cell.done or cell.is_needless)
        ]
        if not rows:
            return None
        return Table("Runs without scores", ("variant", "seed", "reason"), tuple(rows))

    def make_run_table(self) -> Table:
        name = self.names[0]
        values = read_cells(self.study, self.cells)
        rows = []
        for variant in self.study.variants:
            by_seed = values[variant].get(name, {})
            scores = (by_seed.get(seed) for seed in range(self.plan.seeds))
            row = ("-" if score is None else format_mean(name, [score]) for score in scores)
            rows.append((variant, *row))
        columns = ("variant", *(f"seed {seed}" for seed in range(self.plan.seeds)))
        return Table(f"Every run: {format_title(name)}", columns, tuple(rows))

    def make_origin_table(self) -> Table:
        plan, config = self.plan, self.study.variants[self.study.baseline]
        encoder = config.encoder
        threads = f", {plan.threads} thread{'s' * (plan.threads > 1)} each" if plan.threads else ""
        machine = f"{plan.machine}; {plan.jobs} run{'s' * (plan.jobs > 1)} at a time{threads}"
        runs = f"{len(self.ended)} of {len(self.cells)}, seeds 0 to {plan.seeds - 1}, {plan.budget}"
        network = (
            f"{encoder.layers} layers of {encoder.hidden_size} units, E {encoder.embedding_size}, "
            f"sharing {encoder.sharing}; {config.batch_sequences} sequences of up to "
            f"{config.sequences.length} tokens a step"
        )
        rows = (
            ("date and version", describe_version()),
            ("machine", machine),
            ("runs", runs),
            ("text", plan.text),
            (f"network of '{self.study.baseline}', scale {plan.scale}", network),
        )
        note = (
            "To cite this study, give the date and the version above, and cite litebert by its "
            "file CITATION.cff."
        )
        return Table("How it was made", ("what", "value"), rows, note)

    def make_curves(self) -> list[Switched]:
        name, runs = self.names[0], {}
        for variant in self.study.variants:
            folders = [cell.run for cell in self.ended if cell.variant == variant]
            with suppress(OSError, RunError):
                runs[variant] = average_points(list(map(read_points, folders)))
        scale, unit = (1.0, "nats") if name.endswith("loss") else (100.0, "%")
        axes = ("step", "minutes of training")
        curves = make_switched(format_title(name), unit, (name, ""), runs, scale=scale, axes=axes)
        return [curves] if curves else []


# ------------------------------------------------------------------------------------------- words


def summarize(differences: Sequence[Difference], study: Study, judged: Sequence[str]) -> str:
    """Summarize the deciding score, the first of the `judged`, of all variants, and how it fits the
    paper.
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
    columns: tuple[str, ...] = ("score", "variant", "difference", "pairs", "p", "verdict")
    scores = list(dict.fromkeys(difference.score for difference in differences))
    ordered = sorted(differences, key=lambda difference: scores.index(difference.score))
    rows: list[tuple[str, ...]] = []
    for difference in ordered:
        score, value, halfwidth = difference.score, difference.value, difference.halfwidth
        size = f"{_format_sign(value)}{format_amount(score, abs(value))}"
        if halfwidth is not None:
            size += f" ± {format_amount(score, halfwidth)}"
        p = "-" if difference.p is None else _format_p(difference.p).removeprefix("= ")
        # Those with the sign of the mean, which no single odd run can move.
        same = difference.higher if value > 0 else difference.pairs - difference.higher
        pairs = "-" if difference.pairs < 2 else f"{same} of {difference.pairs}"
        row = [format_title(score), difference.variant, size, pairs, p, _judge(difference)]
        if study.paper:
            published = "-"
            if figures := _find_published(difference, study):
                ours, base, column = figures
                apart, digits = float(ours) - float(base), len(ours.partition(".")[2])
                sign = _format_sign(round(apart, digits))
                published = f"{sign}{abs(apart):.{digits}f} {column}"
            row += [published, compare_with_paper(difference, study) or "-"]
        rows.append(tuple(row))
    note = (
        f"A difference from '{study.baseline}' is the mean over pairs of runs with equal seeds, "
        "with its 95% interval; the pairs counted have its sign. p is from a paired t test, "
        "corrected for the comparisons and for testing after each seed."
    )
    if study.paper:
        columns += ("paper's difference", "sign of both")
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


def _find_published(difference: Difference, study: Study) -> tuple[str, str, str] | None:
    """Find the paper's figures of the variant and of the baseline for a score, and their column:
    that named after the score's objective, or else the first that has both figures.
    """
    paper, variant = study.paper, difference.variant
    if paper is None or variant not in paper.rows or study.baseline not in paper.rows:
        return None
    pairs = list(zip(paper.rows[variant], paper.rows[study.baseline], strict=True))
    objective = difference.score.partition("_")[0]
    same_name = [i for i, column in enumerate(paper.columns) if column.lower() == objective]
    for i in same_name or range(len(pairs)):
        if "-" not in pairs[i]:
            return *pairs[i], paper.columns[i]
    return None


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
    variant, baseline = map(float, figures[:2])
    if variant == baseline:
        return None
    return "better" if (variant < baseline) == (figures[2] in LOWER) else "worse"


def _format_sign(value: float) -> str:
    return "+" if value > 0 else "−" if value < 0 else ""


def format_verdict(difference: Difference, baseline: str) -> str:
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
    if not values:
        return "-"
    mean = compute_mean(values)
    text = _format_value(name, mean.value)
    if mean.halfwidth is not None:
        text += f" ± {_format_value(name, mean.halfwidth)}"
    return text


def describe_version() -> str:
    return f"{date.today()}, litebert {version('litebert')}, Python {python_version()}"


def describe_power(power: Power) -> str:
    comparisons = f"{power.comparisons} comparison{'s' * (power.comparisons != 1)}"
    start = f"With {power.seeds} seeds and {comparisons}, the study can detect"
    if power.spread is None:
        return (
            f"{start} a difference of {power.spreads:.1f} times the spread of a pair of runs, "
            f"with a chance of {100 * POWER:.0f}%. That spread is measured once two seeds "
            "have finished."
        )
    score, value = power.spread.score, power.spreads * power.spread.value
    return (
        f"{start} a difference of {format_amount(score, value)} in {format_title(score)} with "
        f"a chance of {100 * POWER:.0f}%. The spread of a pair of runs is "
        f"{format_amount(score, power.spread.value)}, from {power.spread.source}."
    )
