"""Write the results of a study in its folder: report.html, report.md, results.csv and figures. All
sentences are fixed, with the figures of the record filled in.
"""

from __future__ import annotations

import csv
import io
import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from litebert.analysis.charts import Intervals, save_png
from litebert.analysis.report import Section, Table, write
from litebert.base.progress import duration
from litebert.base.storage import atomic_text
from litebert.config import Config
from litebert.studies.cells import TIMES, read_scores
from litebert.studies.findings import (
    AGREES,
    DISAGREES,
    NOISE,
    OPEN,
    Findings,
    compare_with_paper,
    describe_power,
    find_expected,
    format_verdict,
    make_verdict_table,
    summarize,
)
from litebert.studies.plan import Plan
from litebert.studies.statistics import Difference


def write_reports(findings: Findings, command: Sequence[str]) -> Path:
    """Write the page, the Markdown, the CSV file and the figures; return the path of the page."""
    plan, study = findings.plan, findings.study
    if findings.differences:
        lead = summarize(findings.differences, study, findings.judged)
    else:
        lead = " ".join(findings.verdicts())
    lead = " ".join(filter(None, (findings.warn_of_frequencies(), lead)))
    figures = findings.make_figures()
    sections = _make_sections(findings, figures, command)
    page = plan.folder / "report.html"
    write(page, study.question, lead, sections)
    table = io.StringIO()
    rows = csv.writer(table, lineterminator="\n")
    rows.writerow(("variant", "seed", "steps", "score", "value"))
    for cell in findings.ended:
        for name, value in read_scores(cell).items():
            rows.writerow((cell.variant, cell.seed, cell.steps, name, repr(value)))
    with atomic_text(plan.folder / "results.csv") as file:
        file.write(table.getvalue())
    folder = plan.folder / "figures"
    folder.mkdir(exist_ok=True)
    for figure in figures:
        save_png(figure, folder / f"{figure.name}.png")
    picture = folder / f"{figures[0].name}.png" if figures else folder
    write_markdown(findings, command, plan.folder / "report.md", picture)
    return page


def write_markdown(
    findings: Findings, command: Sequence[str], path: Path, picture: Path | None = None
) -> None:
    """Write the Markdown of a study, and its picture, by default beside it; `picture` is a file in
    the folder of `path` or below it.
    """
    picture = picture or path.with_suffix(".png")
    figures = findings.make_figures()
    sections = _make_sections(findings, (), ())
    tables = [section for section in sections if isinstance(section, Table)]
    if figures:
        save_png(figures[0], picture)
    place = picture.relative_to(path.parent).as_posix() if figures else None
    with atomic_text(path) as file:
        file.write(_format_markdown(findings, tables, command, place))


def _make_sections(
    findings: Findings, figures: Sequence[Intervals], command: Sequence[str]
) -> list[Section]:
    """Make the sections of the page, in order, with the commands of a study if one is given."""
    study = findings.study
    sections: list[Section] = [findings.make_table()]
    if findings.differences:
        sections.append(make_verdict_table(findings.differences, study))
    sections.append(findings.make_run_table())
    if study.remarks:
        remarks = tuple((remark,) for remark in study.remarks)
        sections.append(Table("", ("Read with care",), remarks))
    sections += [*figures, *findings.make_curves()]
    faults = findings.make_fault_table()
    if faults:
        sections.append(faults)
    if not command:
        return [*sections, findings.make_origin_table()]
    commands = [command, *(first.words for first in findings.cells[0].commands)]
    note = (
        "The first is the study; the others belong to its first run. Recipes of all variants are "
        "in recipes/."
    )
    lines = tuple((f"litebert {shlex.join(words)}",) for words in commands)
    again = Table("How to do this again", ("command",), lines, note)
    return [*sections, findings.make_origin_table(), again]


def _format_markdown(
    findings: Findings, tables: Sequence[Table], command: Sequence[str], picture: str | None
) -> str:
    """Format the page of a study, with tables at its end; `picture` is a path from the page."""
    study = findings.study
    paragraphs = [f"# {study.question}"]
    if study.finding:
        source = f" Source: {study.paper.source}." if study.paper else ""
        paragraphs.append(f"**What the paper found.** {study.finding}{source}")
    if study.naming:
        paragraphs.append(f"**What the variants are called.** {study.naming}")
    finding = " ".join(filter(None, (findings.warn_of_frequencies(), _count_fits(findings))))
    paragraphs.append(f"**What we found.** {finding}".strip())
    if sentences := _list_verdicts(findings):
        paragraphs.append("\n".join(f"- {sentence}" for sentence in sentences))
    if picture is not None:
        paragraphs.append(f"![Differences from the baseline with their 95 % intervals]({picture})")
    paragraphs += [
        f"**What we ran.** {_describe_runs(findings)}",
        f"**What it can detect.** {_describe_power(findings)}",
        f"**What it costs.** {_describe_cost(findings)}",
        "**How to repeat it on your own text.**",
        _list_commands(findings.plan, command),
    ]
    origin = f"`litebert {shlex.join(command)} --page FILE` wrote this page and its picture."
    if "--pilot" in command:
        origin += (
            " `--pilot` names an earlier study, which tells what this one can detect before its "
            "first run. The runs do not need it."
        )
    paragraphs.append(origin)
    for table in tables:
        lines = [
            "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"
            for row in (table.columns, ("---",) * len(table.columns), *table.rows)
        ]
        paragraphs += [f"## {table.title}" if table.title else "", "\n".join(lines), table.note]
    return "\n\n".join(paragraph for paragraph in paragraphs if paragraph) + "\n"


def _count_fits(findings: Findings) -> str:
    study = findings.study
    fits = Counter(
        compare_with_paper(difference, study) or OPEN
        for difference in findings.differences
        if find_expected(difference, study) is not None
    )
    if not fits:
        return ""
    total = sum(fits.values())
    if total == 1 and not fits[OPEN]:
        if fits[NOISE]:
            return "The one comparison with the paper is inside the noise."
        return f"The one comparison {next(iter(fits))} with the paper."
    agree = f"{fits[AGREES]} agree{'s' * (fits[AGREES] == 1)}"
    disagree = f"{fits[DISAGREES]} disagree{'s' * (fits[DISAGREES] == 1)}"
    pending = f", {fits[OPEN]} open" if fits[OPEN] else ""
    return (
        f"Of {total} comparison{'s' * (total > 1)} with the paper, {agree}, {disagree} and "
        f"{fits[NOISE]} {'is' if fits[NOISE] == 1 else 'are'} inside the noise{pending}."
    )


def _list_verdicts(findings: Findings) -> list[str]:
    if not findings.differences:
        return findings.verdicts()
    sentences = []
    for name in findings.judged:
        for difference in findings.differences:
            if difference.score != name:
                continue
            sentence = format_verdict(difference, findings.study.baseline)
            if difference.pairs > 1:
                sentence += f" {_count_pairs(difference)}"
            expected = find_expected(difference, findings.study)
            if expected is not None and difference.is_beyond_noise:
                fit = compare_with_paper(difference, findings.study)
                sentence += f" The paper found it {expected}: {fit}."
            elif expected is not None:
                sentence += f" The paper found it {expected}."
            sentences.append(sentence)
    return sentences


def _count_pairs(difference: Difference) -> str:
    """Count the pairs with the sign of the mean, which no single odd run can move."""
    same = difference.higher if difference.value > 0 else difference.pairs - difference.higher
    is_better = (difference.value < 0) == difference.score.endswith("loss")
    word = "better" if is_better else "worse"
    return f"It is {word} in {same} of {difference.pairs} pairs."


def _describe_runs(findings: Findings) -> str:
    plan, study = findings.plan, findings.study
    config = study.variants[study.baseline]
    encoder, counts = config.encoder, sorted({*plan.steps.values()})
    steps = f"{counts[0]:,}" + (f" to {counts[-1]:,}" if len(counts) > 1 else "")
    needless, early = sum(cell.is_needless for cell in findings.cells), ""
    if needless:
        early = f" {needless} more were not needed, because their verdicts were clear."
    table = ""
    if config.table.start == "cooccurrence":
        table = " The token table starts from counts of neighboring tokens."
    missing = len(findings.cells) - len(findings.ended) - needless
    rest = f" {missing} are still to come." if missing else ""
    return (
        f"{len(study.variants)} variants with up to {plan.planned} seeds each, {steps} steps a "
        f"run: {len(findings.ended)} runs have finished.{early}{rest} The network of "
        f"'{study.baseline}' has {encoder.layers} layers of {encoder.hidden_size} units with "
        f"embeddings of {encoder.embedding_size} (scale `{plan.scale}`). A step reads "
        f"{config.batch_sequences} sequences of up to {config.sequences.length} tokens.{table} "
        f"{_describe_block(config)} The text has {plan.text}. Runs with equal seeds read equal "
        "text in an equal order."
    )


def _describe_block(config: Config) -> str:
    encoder = config.encoder
    ratio = encoder.intermediate_size / encoder.hidden_size
    parts = (
        f"{encoder.norm}-norm layers",
        f"a {encoder.feedforward} feed-forward block of {ratio:g} times the width",
        f"{encoder.positions} positions",
    )
    sentence = (
        f"The networks have {', '.join(parts)} and {'biases' if encoder.bias else 'no biases'}. "
        f"The optimizer is {config.train.optimizer.name}."
    )
    block = encoder.norm, encoder.feedforward, encoder.positions
    is_paper = block == ("post", "plain", "learned")
    return sentence if is_paper else f"{sentence} The papers have other blocks."


def _describe_power(findings: Findings) -> str:
    power = findings.find_power()
    stated = f"Before the first run: {findings.plan.power}" if findings.plan.power else ""
    measured = f"Afterwards: {describe_power(power)}" if power else ""
    rule = (
        "A verdict needs a paired t test below 5 %, corrected for the comparisons (Holm) and for "
        "testing after each seed (alpha spending). So if no variants differ, a study gives a "
        "verdict in at most 5 % of cases."
    )
    return " ".join(filter(None, (stated, measured, rule)))


def _describe_cost(findings: Findings) -> str:
    plan, seconds = findings.plan, _read_seconds(findings.plan.folder)
    sentences = []
    if seconds:
        together = ""
        if plan.jobs > 1:
            together = f", or {duration(seconds / plan.jobs)} with {plan.jobs} at a time"
        sentences.append(f"The runs took {duration(seconds)} of one core{together}.")
    if any(not (cell.done or cell.is_needless) for cell in findings.cells):
        sentences.append(plan.describe_cost())
    sentences.append(f"The machine: {plan.machine}.")
    return " ".join(filter(None, sentences))


def _read_seconds(folder: Path) -> float:
    try:
        lines = (folder / TIMES).read_text(encoding="utf-8").split()
        return sum(float(line.rpartition(",")[2]) for line in lines)
    except (OSError, ValueError):
        return 0.0


def _list_commands(plan: Plan, command: Sequence[str]) -> str:
    again = list(command)
    for option, value in (("--shards", "data"), ("--out", ""), ("--pilot", "")):
        if option in again:
            position = again.index(option)
            again[position : position + 2] = [option, value] if value else []
    lines = (*plan.preparing, shlex.join(again))
    return "\n".join(f"    litebert {line}" for line in lines)
