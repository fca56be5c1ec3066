"""Write the results of a study in its folder: report.html, report.md, results.csv and figures. All
sentences are fixed, with the figures of the record filled in.
"""

from __future__ import annotations

import csv
import io
import shlex
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from litebert.analysis.charts import Intervals, save_png
from litebert.analysis.report import Section, Table, write
from litebert.base.progress import duration
from litebert.base.storage import atomic_text
from litebert.studies.cells import TIMES, read_scores
from litebert.studies.findings import (
    AGREES,
    DISAGREES,
    NOISE,
    OPEN,
    Findings,
    compare_with_paper,
    describe_power,
    describe_version,
    find_expected,
    make_verdict_table,
    summarize,
)


def write_reports(findings: Findings, command: Sequence[str]) -> Path:
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
    if figures:
        save_png(figures[0], picture)
    place = picture.relative_to(path.parent).as_posix() if figures else None
    with atomic_text(path) as file:
        file.write(_format_markdown(findings, command, place))


def _make_sections(
    findings: Findings, figures: Sequence[Intervals], command: Sequence[str]
) -> list[Section]:
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
    commands = [command, *(first.words for first in findings.cells[0].commands)]
    note = (
        "The first is the study; the others belong to its first run. Recipes of all variants are "
        "in recipes/."
    )
    lines = tuple((f"litebert {shlex.join(words)}",) for words in commands)
    again = Table("How to do this again", ("command",), lines, note)
    return [*sections, findings.make_origin_table(), again]


def _format_markdown(findings: Findings, command: Sequence[str], picture: str | None) -> str:
    """Format the page of a study, which is read whole; `picture` is a path from the page."""
    study, plan = findings.study, findings.plan
    paragraphs = [f"# {study.question}"]
    if study.finding:
        source = f" Source: {study.paper.source}." if study.paper else ""
        paragraphs.append(f"**The paper.** {study.finding}{source}")
    if study.naming:
        paragraphs.append(study.naming)
    words = _count_fits(findings) if findings.differences else " ".join(findings.verdicts())
    if found := " ".join(filter(None, (findings.warn_of_frequencies(), words))):
        paragraphs.append(f"**Here.** {found}")
    if picture is not None:
        paragraphs.append(f"![Differences from the baseline with their 95% intervals]({picture})")
    tables = [findings.make_table()]
    if findings.differences:
        tables.append(make_verdict_table(findings.differences, study))
    if faults := findings.make_fault_table():
        tables.append(faults)
    power = findings.find_power()
    for table in tables:
        head, *rows = (
            "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"
            for row in (table.columns, *table.rows)
        )
        rule = "|" + "---|" * len(table.columns)
        paragraphs += ["\n".join((head, rule, *rows)), table.note]
    again = list(command)
    for option, value in (("--shards", "data"), ("--out", ""), ("--pilot", "")):
        if option in again:
            position = again.index(option)
            again[position : position + 2] = [option, value] if value else []
    commands = (*plan.preparing, shlex.join(again))
    paragraphs += [
        *study.remarks,
        f"**Setup.** {_describe_runs(findings)}",
        describe_power(power) if power else plan.power,
        _describe_cost(findings),
        "**On your own text:**",
        "\n".join(f"    litebert {line}" for line in commands),
    ]
    origin = f"`litebert {shlex.join(command)} --page FILE` wrote this page and its picture."
    if "--pilot" in command:
        origin += " `--pilot` names an earlier study, whose noise told what this one can detect."
    paragraphs.append(origin)
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


def _describe_runs(findings: Findings) -> str:
    plan, study = findings.plan, findings.study
    config = study.variants[study.baseline]
    encoder = config.encoder
    needless = sum(cell.is_needless for cell in findings.cells)
    early = f" ({needless} more were not needed, as their verdicts were clear)" if needless else ""
    missing = len(findings.cells) - len(findings.ended) - needless
    rest = f", {missing} to come," if missing else ""
    table = ""
    if config.table.start == "cooccurrence":
        table = " The token table starts from counts of neighboring tokens."
    ratio = encoder.intermediate_size / encoder.hidden_size
    return (
        f"{len(findings.ended)} runs{early}{rest} at scale `{plan.scale}`: '{study.baseline}' has "
        f"{encoder.layers} layers of {encoder.hidden_size} units, E {encoder.embedding_size}, "
        f"{encoder.norm}-norm, a {encoder.feedforward} feed-forward block of {ratio:g} times the "
        f"width and {encoder.positions} positions. A step of {config.train.optimizer.name} reads "
        f"{config.batch_sequences} sequences of up to {config.sequences.length} tokens."
        f"{table} The text has {plan.text}. Runs with equal seeds read equal text in an equal "
        "order."
    )


def _describe_cost(findings: Findings) -> str:
    plan, seconds = findings.plan, 0.0
    with suppress(OSError, ValueError):
        lines = (plan.folder / TIMES).read_text(encoding="utf-8").split()
        seconds = sum(float(line.rpartition(",")[2]) for line in lines)
    sentences = []
    if seconds:
        together = ""
        if plan.jobs > 1:
            together = f", or {duration(seconds / plan.jobs)} with {plan.jobs} at a time"
        sentences.append(f"The runs took {duration(seconds)} of one core{together}.")
    if any(not (cell.done or cell.is_needless) for cell in findings.cells):
        sentences.append(plan.describe_cost())
    sentences.append(f"{plan.machine}; {describe_version()}.")
    return " ".join(sentences)
