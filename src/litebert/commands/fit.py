"""`litebert fit`: a file of labels to a model."""

from __future__ import annotations

import csv
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from litebert.base.errors import ConfigError
from litebert.commands import console
from litebert.commands.console import DeviceName, Json
from litebert.commands.options import Arg, list_changes, spell

if TYPE_CHECKING:
    from litebert.fitting.run import Fit


@dataclass
class FitArguments:
    """Make the best model that your labels allow: TF-IDF, a linear model on an encoder, or a
    trained network, each scored on rows that it did not read. The same command again continues.
    """

    examples: ClassVar[tuple[str, ...]] = (
        "litebert fit tickets.csv",
        'litebert predict tickets-model "The invoice is wrong"',
        'litebert fit texts.csv --labels "billing, hardware, access"',
    )
    common: ClassVar[str] = (
        "out text-column label-column pair-column labels describe unlabeled next size model "
        "methods budget prefer overwrite device json"
    )
    file: Annotated[tuple[Path, ...], Arg("FILE", positional=True)]
    """A table, or a folder with one of texts for each class; several are one table."""
    out: Path | None = None
    """Folder of the model; by default NAME-model."""
    text_column: str | None = None
    """Column of the texts, such as body or subject + body; by default found."""
    label_column: tuple[str, ...] = ()
    """Column of the labels, or columns of 0 and 1; by default found."""
    pair_column: str | None = None
    """Column of a second text."""
    group_column: str | None = None
    """Column of what rows belong to, such as a customer; no model is scored on what it read."""
    labels: str = ""
    """Names of the classes, where no row has a label."""
    describe: Path | None = None
    """CSV of labels and what they mean, without a header."""
    unlabeled: tuple[Path, ...] = ()
    """More texts: a table, a text a line, or a folder. What the model is sure of teaches it."""
    next: int = 0
    """Rows worth a label to write to NAME-next.csv, which fit reads beside FILE."""
    size: str | None = None
    """Go on to a student of at most so many parameters in 8 bits, such as 4M."""
    model: Annotated[str | None, Arg("MODEL")] = None
    """Encoder; by default all-MiniLM-L6-v2, or the package's own."""
    methods: tuple[Literal["tfidf", "frozen", "contrastive", "finetune"], ...] = ()
    """Methods to try; by default those that suit the number of rows."""
    budget: str = "10m"
    """Time for all of it."""
    prefer: Literal["balance", "score"] = "balance"
    """Take TF-IDF, small and fast, if it is as good within the error, or always the best."""
    target: Literal["class", "labels", "number"] | None = None
    """What a label is, such as number for ratings; by default found."""
    separator: str | None = None
    """Separator of several labels in one cell."""
    encoding: str | None = None
    """Encoding of the file; by default found."""
    delimiter: str | None = None
    """Delimiter of CSV, such as ; or tab; by default found."""
    header: bool = True
    """The first line names the columns; found where it is data."""
    seed: int = 0
    """Seed of all random choices."""
    overwrite: bool = False
    """Delete the fit in --out and start again."""
    device: DeviceName = "auto"
    json: Json = False


def fit(words: list[str]) -> int:
    arguments = console.parse(FitArguments, words, "fit")
    with console.loading():
        from litebert.distill.steps import parse_size
        from litebert.fitting.run import HELD
        from litebert.fitting.run import fit as run

    if arguments.size is not None:
        if arguments.json:
            raise ConfigError("--json prints the fit alone, without a student; leave --size out")
        parse_size(arguments.size)  # before minutes of work
    labels = [label.strip() for label in arguments.labels.split(",") if label.strip()]
    names = (
        *("text_column", "label_column", "pair_column", "group_column", "target", "separator"),
        *("encoding", "delimiter", "header", "model", "methods", "unlabeled", "budget", "prefer"),
        *("overwrite", "device", "seed"),
    )
    result = run(
        arguments.file,
        arguments.out,
        labels=labels,
        describe=_read_descriptions(arguments.describe),
        next_rows=arguments.next,
        teacher=arguments.size is not None,
        **{name: getattr(arguments, name) for name in names},
    )
    if arguments.json:
        file = None if result.next is None else str(result.next)
        console.print_json(asdict(result) | {"folder": str(result.folder), "next": file})
        return 0
    if result.judged:
        rows = [
            (
                ("* " if judged.method == result.method else "  ") + judged.method,
                f"{judged.score:.3f} ± {judged.error:.3f}",
                f"{judged.rows:,}",
                f"{judged.seconds:.1f} s",
                f"{judged.texts_per_second:,.0f}",
                f"{judged.megabytes:.3g}",
            )
            for judged in result.judged
        ]
        columns_shown = ("method", result.metric, "scored on", "trained in", "texts/s", "MB")
        console.table(columns_shown, rows)
    console.show(f"{result.method}: {result.reason}.")
    if result.options:
        same = _spell_words(arguments.file, _list_typed(arguments) | result.options)
        if "--overwrite" not in same:  # of what stands there now
            same.append("--overwrite")
        console.show(f"The same model without a search: {shlex.join(['litebert', *same])}")
    if arguments.size is not None:
        return _distill(result, arguments, result.folder / HELD)
    if result.next is None:
        following: list[tuple[object, ...]] = [
            ("predict", result.folder, *_list_texts(result)),
            ("serve", result.folder),
        ]
    else:
        console.say(f"fill in the labels of {result.next}, as many as you like")
        files = [*(() if labels else arguments.file), result.next]
        typed = _list_typed(arguments)
        if labels:
            typed["unlabeled"] = arguments.file
        following = [(*_spell_words(files, typed), "--overwrite")]
    console.ending(result.folder, *following)
    return 0


def _list_texts(result: Fit) -> list[str]:
    return ["TEXT"] * (2 if "pair_column" in result.options else 1)


def _list_typed(arguments: FitArguments) -> dict[str, Any]:
    """The options that differ from their defaults, of those that say what is learned and where."""
    asked = {"file", "labels", "next", "size", "overwrite", "json"}
    return {name: value for name, value in list_changes(arguments).items() if name not in asked}


def _spell_words(files: Sequence[Path], options: Mapping[str, Any]) -> list[str]:
    usual = ("header", True), ("encoding", "utf-8")
    unusual = {name: value for name, value in options.items() if (name, value) not in usual}
    return ["fit", *map(str, files), *spell(unusual)]


def _distill(result: Fit, arguments: FitArguments, held: Path) -> int:
    """Go on to a student: of what learned without the rows that judge both."""
    from litebert.commands.distill import distill
    from litebert.distill.steps import parse_size
    from litebert.fitting.encoders import find_student

    assert arguments.size is not None
    if result.method == "tfidf":
        size = sum(file.stat().st_size for file in (result.folder / "model").rglob("*"))
        console.show(f"TF-IDF models are small already: {size / 1e6:.2g} MB, without a network.")
        console.ending(result.folder, ("predict", result.folder, *_list_texts(result)))
        return 0
    train = held / "train.jsonl"
    with open(train, encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    console.say(
        "\na student learns from a teacher that has not read the rows that judge both, so both are "
        "a little worse than the model of all rows"
    )
    options = {
        "data": train,
        "dev": held / "dev.jsonl",
        "pair_column": "pair" if "pair" in rows[0] else None,
        "target": arguments.target,
        "unlabeled": arguments.unlabeled,
        "student": find_student([row["text"] for row in rows], parse_size(arguments.size)),
        "size": arguments.size,
        "out": result.folder / "student",
        "device": arguments.device,
    }
    given = {name: value for name, value in options.items() if value}
    return distill([str(held / "teacher"), *spell(given)])


def _read_descriptions(file: Path | None) -> dict[str, list[str]]:
    from litebert.base.errors import DataError
    from litebert.text.lines import find_suffix

    if file is None:
        return {}
    if not file.is_file():
        raise DataError(f"{file} does not exist; give a CSV of labels and descriptions")
    delimiter = "\t" if find_suffix(file) == ".tsv" else ","
    try:
        lines = file.read_text("utf-8-sig").splitlines(keepends=True)
    except UnicodeDecodeError:
        raise DataError(f"{file} is not in UTF-8; save it as CSV in UTF-8") from None
    described: dict[str, list[str]] = {}
    for number, row in enumerate(csv.reader(lines, delimiter=delimiter), 1):
        if row and (len(row) != 2 or not all(cell.strip() for cell in row)):
            raise DataError(
                f"{file}:{number} has no label and description; write two columns, and "
                "quotes around a text with commas"
            )
        if row:
            described.setdefault(row[0].strip(), []).append(row[1].strip())
    return described
