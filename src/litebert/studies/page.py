"""Write the results of a study: report.html, report.md, results.csv and figures in its folder."""

from __future__ import annotations

import csv
import io
import shlex
from collections.abc import Sequence
from pathlib import Path

from litebert.analysis.charts import Intervals, save_png
from litebert.analysis.report import Section, Table, write
from litebert.storage import atomic_text
from litebert.studies.cells import read_scores
from litebert.studies.findings import Findings
from litebert.studies.markdown import format_markdown
from litebert.studies.verdicts import (
    make_verdict_table,
    summarize,
)


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
    _write_text(plan.folder / "results.csv", _format_csv(findings))
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
    """Write the Markdown of a study, and its picture.

    Args:
        picture: the file of the picture, in the folder of `path` or below it; by default beside it.
    """
    picture = picture or path.with_suffix(".png")
    figures = findings.make_figures()
    sections = _make_sections(findings, (), ())
    tables = [section for section in sections if isinstance(section, Table)]
    if figures:
        save_png(figures[0], picture)
    place = picture.relative_to(path.parent).as_posix() if figures else None
    _write_text(path, format_markdown(findings, tables, command, place))


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
    again = Table(
        "How to do this again",
        ("command",),
        tuple((f"litebert {shlex.join(words)}",) for words in commands),
        "The first is the study; the others belong to its first run. Recipes of all "
        "variants are in recipes/.",
    )
    return [*sections, findings.make_origin_table(), again]


def _write_text(path: Path, text: str) -> None:
    with atomic_text(path) as file:
        file.write(text)


def _format_csv(findings: Findings) -> str:
    file = io.StringIO()
    rows = csv.writer(file, lineterminator="\n")
    rows.writerow(("variant", "seed", "steps", "score", "value"))
    for cell in findings.ended:
        for name, value in read_scores(cell).items():
            rows.writerow((cell.variant, cell.seed, cell.steps, name, repr(value)))
    return file.getvalue()
