"""`litebert predict`, `fill` and `embed`: what a model answers."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from litebert.commands import console
from litebert.commands.console import Json, ModelPath
from litebert.errors import ConfigError

log = logging.getLogger("litebert")

InputFormat = Literal["csv", "tsv", "jsonl", "text", "conll"]


@dataclass
class Reading:
    """Where rows come from; what `predict` and `embed` share."""

    model: ModelPath
    input: tuple[str, ...] = ("-",)
    """Files, folders or patterns: CSV, TSV, JSONL, Parquet or plain text with one text a line, CoNLL columns to tag,
    official SQuAD and RACE files; - is standard input."""
    output: str = "-"
    """A file; - is standard output. What is done when the work ends early is kept in it."""
    text: str | None = None
    """Column of the text; by default the one that was learned from, else "text"."""
    keep: str | None = None
    """Columns of the input that the output carries along, with commas between them; or all."""
    no_header: bool = False
    """The first line of CSV or TSV names no columns; --text 0 is the first one."""
    input_format: InputFormat | None = None
    """Of the input; by default its suffix says it, or its content."""
    encoding: str = "utf-8"
    """Of the input."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""

    @property
    def kept(self) -> list[str]:
        """The columns to keep."""
        return [name.strip() for name in (self.keep or "").split(",") if name.strip()]


@dataclass
class PredictArguments(Reading):
    """Answer every row of files with a fine-tuned model, in order.

    --output takes .csv, .jsonl, or .json for the script of SQuAD.
    """

    pair: str | None = None
    """Column of the second text; by default the one that was learned from."""
    format: Literal["csv", "jsonl", "json"] | None = None
    """Of the output; by its suffix, and csv on standard output."""


def predict(words: list[str]) -> int:
    """litebert predict MODEL --input F --output G"""
    arguments = console.parse(PredictArguments, words, "predict")
    with console.loading():
        from litebert.answer.files import predict_file
        from litebert.answer.predictor import load

    form = arguments.format
    if form is None:
        output = Path(arguments.output)
        suffix = output.suffix.lower()
        if suffix in (".tsv", ".parquet", ".npy"):
            raise ConfigError(f"answers are written as CSV or JSONL; give --output {output.with_suffix('.csv')}")
        form = "json" if suffix == ".json" else "jsonl" if suffix in (".jsonl", ".ndjson") else "csv"
    model = load(arguments.model, device=arguments.device)
    count = predict_file(
        model, arguments.input, console.data_output() if arguments.output == "-" else arguments.output, form=form,
        source_form=arguments.input_format, text=arguments.text, pair=arguments.pair, keep=arguments.kept,
        header=not arguments.no_header, encoding=arguments.encoding,
    )  # fmt: skip
    console.ending(None if arguments.output == "-" else f"{console.count(count, 'answer')} to {arguments.output}")
    return 0


@dataclass
class EmbedArguments(Reading):
    """Write a sentence vector for every text: the mean of the last states over its tokens.

    --output takes .npy, float32 of shape (texts, hidden size), or .jsonl with the field "vector".
    """


def embed(words: list[str]) -> int:
    """litebert embed MODEL --input F --output G.npy"""
    arguments = console.parse(EmbedArguments, words, "embed")
    with console.loading():
        from litebert.answer.files import embed_file
        from litebert.answer.predictor import load

    output = Path(arguments.output)
    if arguments.output != "-" and output.suffix.lower() not in (".npy", ".jsonl", ".ndjson"):
        raise ConfigError(f"vectors are written as .npy or .jsonl; give --output {output.with_suffix('.npy')}")
    model = load(arguments.model, device=arguments.device)
    count = embed_file(
        model, arguments.input, console.data_output() if arguments.output == "-" else arguments.output,
        source_form=arguments.input_format, text=arguments.text, keep=arguments.kept,
        header=not arguments.no_header, encoding=arguments.encoding,
    )  # fmt: skip
    console.ending(None if arguments.output == "-" else f"{console.count(count, 'vector')} to {arguments.output}")
    return 0


@dataclass
class FillArguments:
    """Guess the masked words of texts with a pretrained model.

    A mask is written [MASK], <mask> or ___, whatever the tokenizer's own is.
    """

    model: ModelPath
    texts: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="TEXT")] = ()
    """Texts with a mask; without one, each line of standard input."""
    top: int = 5
    """Guesses for each mask."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""
    json: Json = False


def fill(words: list[str]) -> int:
    """litebert fill MODEL "a text with a [MASK]" """
    arguments = console.parse(FillArguments, words, "fill")
    from litebert import progress
    from litebert.answer.predictor import load

    model = load(arguments.model, device=arguments.device)
    found = []
    for text in progress.tracked(arguments.texts or _lines(), "filling", len(arguments.texts) or None, "texts"):
        masks = model.fill(text, arguments.top)
        if arguments.json:
            found.append({"text": text, "masks": [[guess._asdict() for guess in mask] for mask in masks]})
            continue
        for number, mask in enumerate(masks, 1):
            title = text if len(masks) == 1 else f"{text}  (mask {number} of {len(masks)})"
            console.table(
                ("guess", "probability"), [(guess.token, f"{guess.probability:.1%}") for guess in mask], title
            )
    if arguments.json:
        console.print_json(found)
    return 0


def _lines() -> Iterator[str]:
    """The lines of standard input that are not blank."""
    from litebert.text.lines import STANDARD_INPUT
    from litebert.text.records import Notes, lines

    if sys.stdin is not None and sys.stdin.isatty():
        log.info("reading texts from standard input, one on each line")
    return (line for _, line in lines(STANDARD_INPUT, Notes()) if line.strip())
