"""What a study found, for people and for programs: report.html, report.md, results.csv and figures
in its folder.
"""

from __future__ import annotations

import csv
import io
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import date
from importlib.metadata import version
from pathlib import Path
from platform import python_version

from litebert import cost
from litebert.analysis.curves import mean as mean_course
from litebert.analysis.curves import points, switched
from litebert.analysis.figures import Intervals, save_png
from litebert.analysis.report import Section, Switched, Table, write
from litebert.errors import RunError
from litebert.storage import atomic_write
from litebert.studies.cells import Cell, scores_of
from litebert.studies.plan import Plan, sized
from litebert.studies.statistics import differences, mean
from litebert.studies.study import Study
from litebert.studies.verdicts import sentence, shown, signed, summary, title, verdicts

Scores = Mapping[str, Mapping[str, Sequence[float]]]
"""By variant and name of score, a value for each seed."""


class Findings:
    """The scores of a study's cells, compared."""

    def __init__(
        self,
        study: Study,
        plan: Plan,
        cells: Sequence[Cell],
        extras: Sequence[str] = (),
        stopped: int | None = None,
    ) -> None:
        """`extras`: scores to compare beside those that the study names; `stopped`: the signal that
        ended it early.
        """
        self.study, self.plan, self.cells, self.stopped = study, plan, cells, stopped
        self.names = (*study.scores, *extras)
        self.judged = tuple(name for name in self.names if name not in study.unjudged)
        found: dict[str, dict[str, list[float]]] = {name: {} for name in study.variants}
        self.ended = [cell for cell in cells if cell.done and not cell.fault]
        for cell in self.ended:
            for name, value in scores_of(cell).items():
                found[cell.variant].setdefault(name, []).append(value)
        self.scores: Scores = found
        self.differences = differences(found, study.baseline, self.judged)

    def verdicts(self) -> list[str]:
        """A sentence on each difference from the baseline, by score."""
        if not self.judged:
            scores = " and ".join(map(title, self.names))
            return [
                f"No verdict: {scores} mean something else in each variant; compare them "
                "by --tasks."
            ]
        found = [
            sentence(one, self.study.baseline)
            for name in self.judged
            for one in self.differences
            if one.score == name
        ]
        return found or [
            f"No verdict yet: no two variants have a score for {title(self.judged[0])}."
        ]

    def table(self) -> Table:
        """A row for each variant: its cost, its scores, and what the paper printed."""
        paper = self.study.paper
        columns = ["variant", "parameters", "steps", *(title(name) for name in self.names)]
        place = columns.index(title(self.judged[0])) + 1 if self.judged else 0
        if place:
            columns.insert(place, "difference")
        if paper:
            columns += [f"paper: {column}" for column in paper.columns]
        by_variant = {one.variant: one for one in self.differences if one.score == self.judged[0]}
        rows = []
        for variant, config in self.study.variants.items():
            parameters = sum(
                cost.encoder_parameters(sized(config, self.plan.vocabulary).encoder).values()
            )
            row = [variant, f"{parameters / 1e6:.2f} M", f"{self.plan.steps[variant]:,}"]
            row += (shown(name, self.scores[variant].get(name, ())) for name in self.names)
            if place:
                row.insert(place, signed(by_variant.get(variant)))
            if paper:
                row += paper.rows.get(variant, ("-",) * len(paper.columns))
            rows.append(tuple(row))
        note = self._seeds()
        tested = sum(one.p is not None for one in self.differences)
        if place:
            note += f" Differences are from '{self.study.baseline}' in {title(self.judged[0])}"
            note += (
                "; * marks those beyond the noise (Welch's t test, p < 0.05 after Holm's "
                f"correction for {tested} "
                f"comparison{'s' * (tested > 1)})."
                if tested
                else "; none could be tested."
            )
        if paper:
            note += (
                f" The paper's figures are from {paper.source}: other models, other data, one "
                "run each."
            )
        return Table("Results", tuple(columns), tuple(rows), note)

    def _seeds(self) -> str:
        """What the means are of: a run that failed has no scores."""
        ended = {
            name: sum(cell.variant == name for cell in self.ended) for name in self.study.variants
        }
        most = max(ended.values())
        fewer = ", ".join(f"{count} of '{name}'" for name, count in ended.items() if count < most)
        if most < 2:
            return "One seed each, so there are no intervals." if most else "No run has ended yet."
        return (
            f"Means of {most} seeds{f' ({fewer})' if fewer else ''} with 95 % intervals "
            "(Student's t)."
        )

    def intervals(self) -> list[Intervals]:
        """The means of each score with their intervals, beside the baseline's."""
        drawn = []
        for name in self.names:
            known = {
                one: mean(values[name]) for one, values in self.scores.items() if values.get(name)
            }
            if len(known) < 2:
                continue
            base = known.get(self.study.baseline)
            single = [one.halfwidth is None for one in known.values()]
            caption = "mean and 95 % interval over seeds" + (
                ", none with one seed" if any(single) else ""
            )
            drawn.append(
                Intervals(
                    title(name),
                    tuple(known),
                    tuple(one.value for one in known.values()),
                    tuple(one.halfwidth or 0.0 for one in known.values()),
                    "one seed, no interval" if all(single) else caption,
                    None if base is None else base.value,
                    "" if base is None else f"The dashed line is '{self.study.baseline}'.",
                    name,
                )
            )
        return drawn

    def faults(self) -> Table | None:
        """The cells without scores, and why."""
        rows = [
            (cell.variant, str(cell.seed), cell.fault or "has not ended yet")
            for cell in self.cells
            if cell.fault or not cell.done
        ]
        return (
            Table("Runs without scores", ("variant", "seed", "reason"), tuple(rows))
            if rows
            else None
        )

    def made(self) -> Table:
        """The machine, the versions, the text and the network behind the scores."""
        plan, base = self.plan, self.study.variants[self.study.baseline]
        encoder = base.encoder
        threads = f", {plan.threads} thread{'s' * (plan.threads > 1)} each" if plan.threads else ""
        rows = (
            (
                "date and version",
                f"{date.today()}, litebert {version('litebert')}, Python {python_version()}",
            ),
            (
                "machine",
                f"{plan.machine}; {plan.jobs} run{'s' * (plan.jobs > 1)} at a time{threads}",
            ),
            (
                "runs",
                f"{len(self.ended)} of {len(self.cells)}, seeds 0 to {plan.seeds - 1}, "
                f"{plan.budget}",
            ),
            ("text", plan.text),
            (
                f"network of '{self.study.baseline}', scale {plan.scale}",
                f"{encoder.layers} layers of {encoder.hidden_size} units, E "
                f"{encoder.embedding_size}, sharing "
                f"{encoder.sharing}; {base.batch_sequences} sequences of up to "
                f"{base.sequences.length} tokens a step",
            ),
        )
        return Table("How it was made", ("what", "value"), rows)

    def curves(self) -> list[Switched]:
        """The held-out curve of the deciding score, means over seeds, against steps or against
        time.
        """
        name, runs = self.names[0], {}
        for variant in self.study.variants:
            with suppress(OSError, RunError):
                runs[variant] = mean_course(
                    [points(one.run) for one in self.ended if one.variant == variant]
                )
        scale, unit = (1.0, "nats") if name.endswith("loss") else (100.0, "%")
        axes = ("step", "minutes of training")
        drawn = switched(title(name), unit, (name, ""), runs, scale=scale, axes=axes)
        return [drawn] if drawn else []


def write_reports(found: Findings, command: Sequence[str]) -> Path:
    """Write all three; the path of the page."""
    plan, study = found.plan, found.study
    about = (
        summary(found.differences, study, found.judged)
        if found.differences
        else " ".join(found.verdicts())
    )
    table, faults = found.table(), found.faults()
    judged = [verdicts(found.differences, study)] if found.differences else []
    remarks = (
        [Table("", ("Read with care",), tuple((remark,) for remark in study.remarks))]
        if study.remarks
        else []
    )
    again = Table(
        "How to do this again",
        ("command",),
        (
            (f"litebert {shlex.join(command)}",),
            *((f"litebert {shlex.join(one.words)}",) for one in found.cells[0].commands),
        ),
        "The first is the study; the others are those of its first run. Recipes of all "
        "variants are in recipes/.",
    )
    drawn = found.intervals()
    failed = [faults] if faults else []
    sections: list[Section] = [
        table,
        *judged,
        *remarks,
        *drawn,
        *found.curves(),
        *failed,
        found.made(),
        again,
    ]
    page = plan.folder / "report.html"
    write(page, study.question, about, sections)
    _write(
        plan.folder / "report.md",
        _markdown(study.question, about, [one for one in sections if isinstance(one, Table)]),
    )
    _write(plan.folder / "results.csv", _csv(found))
    (plan.folder / "figures").mkdir(exist_ok=True)
    for figure in drawn:
        save_png(figure, plan.folder / "figures" / f"{figure.name}.png")
    return page


def _write(path: Path, text: str) -> None:
    with atomic_write(path) as file:
        file.write(text.encode())


def _markdown(title: str, lead: str, tables: Sequence[Table]) -> str:
    parts = [f"# {title}", lead]
    for table in tables:
        lines = [
            "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"
            for row in (table.columns, ("---",) * len(table.columns), *table.rows)
        ]
        parts += [f"## {table.title}" if table.title else "", "\n".join(lines), table.note]
    return "\n\n".join(part for part in parts if part) + "\n"


def _csv(found: Findings) -> str:
    """A row for each score of each run that has ended."""
    file = io.StringIO()
    rows = csv.writer(file, lineterminator="\n")
    rows.writerow(("variant", "seed", "steps", "score", "value"))
    for cell in found.ended:
        for name, value in scores_of(cell).items():
            rows.writerow((cell.variant, cell.seed, cell.steps, name, repr(value)))
    return file.getvalue()
