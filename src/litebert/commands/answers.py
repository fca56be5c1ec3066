"""`litebert predict`, `fill-mask` and `embed`: what a model answers."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from litebert.base.errors import ConfigError, DataError, require
from litebert.base.storage import is_written_into
from litebert.commands import console
from litebert.commands.console import Json, ModelPath
from litebert.remote.names import path_of, shorten, suggest
from litebert.text.records import FileFormat, Layout

if TYPE_CHECKING:
    from litebert.answer.inputs import Columns
    from litebert.parts import Part

log = logging.getLogger("litebert")


@dataclass
class Reading:
    """The options that `predict` and `embed` share: where rows come from."""

    model: ModelPath
    input: tuple[str, ...] = ("-",)
    """Files, folders or patterns: CSV, TSV, JSONL, Parquet, text lines, CoNLL, SQuAD or RACE; - is
    standard input."""
    out: str = "-"
    """File to write; - is standard output. If the work stops early, the file keeps the answers so
    far.
    """
    text_column: str | None = None
    """Column that holds the text; by default the one used in training, else "text"."""
    keep: str | None = None
    """Columns of the input to copy into the output, separated by commas, or all."""
    header: bool = True
    """Read column names from the first line of CSV and TSV; else columns are numbers from 0."""
    delimiter: str | None = None
    """The delimiter of CSV and TSV, such as ; or tab; by default each file tells it."""
    input_format: FileFormat | None = None
    """Format of the input; by default the suffix decides, or else the content."""
    encoding: str = "utf-8"
    """Encoding of the input."""
    engine: str | None = None
    """compiled (CPUs), torch (GPUs, parts of your own) or onnx; by default what suits the machine
    and the model."""
    dtype: Literal["float32", "bfloat16", "int8"] | None = None
    """Type of the matrix products: float32 by default; bfloat16 and int8 are faster. litebert
    doctor --engines MODEL measures all."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:N, or mps on a Mac; auto takes a GPU or mps if there is one."""
    part: Annotated[str | None, tyro.conf.arg(metavar="I/N")] = None
    """Answer one of N parts on this machine, such as 1/4; litebert merge makes the file of all."""

    def parse_part(self) -> Part | None:
        from litebert.parts import Part

        return None if self.part is None else Part.parse(self.part)

    def end_part(self, part: Part, count: str) -> None:
        """Say where a part is, and how to merge."""
        from litebert.parts import find_parts
        from litebert.remote.names import join

        folder = shorten(join(find_parts(self.out), part.name))
        console.ending(f"{count} to {folder}", ("merge", self.out))

    def name_columns(self, pair: str | None = None) -> Columns:
        from litebert.answer.inputs import Columns

        names = (name.strip() for name in (self.keep or "").split(","))
        return Columns(self.text_column, pair, tuple(filter(None, names)))

    @property
    def layout(self) -> Layout:
        return Layout(self.input_format, self.header, self.encoding, self.delimiter)


@dataclass
class PredictArguments(Reading):
    """Answer texts, or every row of the input, with a fine-tuned model, in order.

    The suffix of --out may be .csv, .jsonl, or .json for the official SQuAD script.
    """

    texts: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="TEXT")] = ()
    """Texts to answer at once, in place of --input."""
    pair_column: str | None = None
    """Column that holds the second text; by default the one used in training."""
    format: Literal["csv", "jsonl", "json"] | None = None
    """Format of the output; by default its suffix decides, and standard output is csv."""
    exit_confidence: Literal["auto", "off"] | float = "auto"
    """Confidence at which texts exit early: auto (as calibrated), off (all layers) or a number,
    such as 0.95."""
    min_precision: float | None = None
    """Leave unsure answers empty, so that this share of the others is right, such as 0.95."""
    explain: Literal["occlusion", "gradients"] | None = None
    """Add how much each word speaks for the answer: occlusion answers without it; gradients needs
    PyTorch."""


_FORMS: dict[str, Literal["csv", "jsonl", "json"]] = {
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
}
"""Formats by the suffix of --out."""


def predict(words: list[str]) -> int:
    """litebert predict MODEL --input F --out G"""
    arguments = console.parse(PredictArguments, words, "predict")
    with console.loading():
        from litebert.answer.files import predict_file
        from litebert.answer.model import load
        from litebert.text.tally import format_count

    suffix = path_of(arguments.out).suffix.lower()
    if suffix in (".tsv", ".parquet", ".npy"):
        raise ConfigError(
            f"answers are written as CSV or JSONL; give --out {suggest(arguments.out, '.csv')}"
        )
    implied = _FORMS.get(suffix)
    if implied is not None and arguments.format not in (None, implied):
        raise ConfigError(
            f"--format {arguments.format} contradicts the suffix of --out "
            f"{shorten(arguments.out)}; leave one out"
        )
    part, layout = arguments.parse_part(), arguments.layout
    model = load(
        arguments.model,
        engine=arguments.engine,
        dtype=arguments.dtype,
        device=arguments.device,
        exit_confidence=arguments.exit_confidence,
        min_precision=arguments.min_precision,
    )
    if arguments.texts:
        require(
            arguments.input == ("-",) and arguments.out == "-",
            "a TEXT on the line is answered on standard output; leave out --input and --out",
        )
        _show_answers(arguments.texts, model.predict(arguments.texts))
        return 0
    count = predict_file(
        model,
        arguments.input,
        console.data_output() if arguments.out == "-" else arguments.out,
        form=arguments.format or implied or "csv",
        columns=arguments.name_columns(arguments.pair_column),
        layout=layout,
        explain=arguments.explain,
        part=part,
    )
    if part is not None:
        arguments.end_part(part, format_count(count, "answer"))
        return 0
    console.ending(
        None
        if arguments.out == "-"
        else f"{format_count(count, 'answer')} to {shorten(arguments.out)}"
    )
    return 0


def _show_answers(texts: Sequence[str], answers: Sequence[Mapping[str, Any]]) -> None:
    rows = []
    for text, answer in zip(texts, answers, strict=True):
        value, likely = answer["prediction"], answer.get("probabilities")
        shown = ", ".join(map(str, value)) if isinstance(value, list) else value
        shown = f"{shown:.4g}" if isinstance(shown, float) else str(shown)
        sure = f"{max(likely.values()):.0%}" if isinstance(likely, Mapping) and likely else ""
        rows.append((text, shown, sure))
    console.table(("text", "prediction", "probability"), rows)


@dataclass
class EmbedArguments(Reading):
    """Write a sentence vector for every text: the mean of its last states, or [CLS].

    Without MODEL, the package's own encoder computes them, which reads English.

    The suffix of --out may be .npy (an array of shape (texts, hidden size)), .parquet or .jsonl
    (with the column "vector").
    """

    model: ModelPath = ""
    out: str = "-"
    """File to write; - is standard output. A .jsonl file of float32 keeps the vectors of an
    interrupted run."""
    pooling: Literal["mean", "cls"] | None = None
    """Vector of a text: the mean of its states, or the state of [CLS]; by default as the model
    says."""
    normalize: bool | None = None
    """Scale vectors to unit length; by default as the model says, else not."""
    vector_size: int | None = None
    """Numbers to leave of each vector, the first ones; all by default."""
    prompt_name: str | None = None
    """Prompt of the model before each text, such as query; by default as the model says."""
    vector_dtype: Literal["float32", "int8"] = "float32"
    """Type of the numbers. With int8, NAME.scale.npy holds the scale and offset of each
    dimension."""


def embed(words: list[str]) -> int:
    """litebert embed MODEL --input F --out G.npy"""
    arguments = console.parse(EmbedArguments, words, "embed")
    with console.loading():
        from litebert.answer.model import load
        from litebert.answer.vector_files import SUFFIXES, embed_file, scale_file
        from litebert.demo import ENCODER
        from litebert.text.tally import format_count

    output, part, layout = Path(arguments.out), arguments.parse_part(), arguments.layout
    # A device or a pipe takes JSON Lines, so its suffix is not checked.
    is_file = arguments.out != "-" and not is_written_into(output)
    if is_file and output.suffix.lower() not in SUFFIXES:
        raise ConfigError(
            "vectors are written as .npy, .parquet or .jsonl; give --out "
            f"{suggest(arguments.out, '.npy')}"
        )
    if not arguments.model:
        console.say(f"no MODEL: {ENCODER}, the encoder of the package, which reads English")
    model = load(
        arguments.model or ENCODER,
        engine=arguments.engine,
        dtype=arguments.dtype,
        device=arguments.device,
    )
    count = embed_file(
        model,
        arguments.input,
        console.data_output() if arguments.out == "-" else arguments.out,
        encoder=model.vectors_by(
            arguments.pooling, arguments.normalize, arguments.vector_size, arguments.prompt_name
        ),
        dtype=arguments.vector_dtype,
        columns=arguments.name_columns(),
        layout=layout,
        part=part,
    )
    if part is not None:
        arguments.end_part(part, format_count(count, "vector"))
        return 0
    scale = (
        f", their scale to {shorten(scale_file(output))}"
        if arguments.vector_dtype == "int8"
        else ""
    )
    console.ending(
        None
        if arguments.out == "-"
        else f"{format_count(count, 'vector')} to {shorten(arguments.out)}{scale}"
    )
    return 0


@dataclass
class FillMaskArguments:
    """Fill the masked words of texts with a pretrained model.

    Write a mask as [MASK], <mask> or ___, whatever the tokenizer calls its own.
    """

    model: ModelPath
    texts: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="TEXT")] = ()
    """Texts with a mask; if there are none, each line of standard input is one."""
    top: int = 5
    """Number of predictions for each mask."""
    targets: tuple[str, ...] = ()
    """Words to give the probabilities of instead, each a token of the model."""
    tokenizer: Path | None = None
    """The tokenizer of a MODEL without a readable one: a folder, *.model, vocab.txt or
    tokenizer.json."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:N, or mps on a Mac; auto takes a GPU or mps if there is one."""
    json: Json = False


def fill_mask(words: list[str]) -> int:
    """litebert fill-mask MODEL "a text with a [MASK]" """
    arguments = console.parse(FillMaskArguments, words, "fill-mask")
    from litebert.answer.model import load
    from litebert.base import progress
    from litebert.text.lines import STANDARD_INPUT
    from litebert.text.records import Notes, read_lines
    from litebert.tokenizer.coverage import Coverage

    model = load(arguments.model, device=arguments.device, tokenizer=arguments.tokenizer)
    coverage = Coverage(model.mask_filler.tokenizer)
    matches, count = [], 0
    given: Iterable[str] = arguments.texts
    if not given:
        if sys.stdin is not None and sys.stdin.isatty():
            log.info("reading texts from standard input, one on each line")
        given = (line for _, line in read_lines(STANDARD_INPUT, Notes()) if line.strip())
    with progress.track(given, "filling", len(arguments.texts) or None, "texts") as texts:
        for text in texts:
            masks = model.fill_mask(text, arguments.top, arguments.targets or None)
            count += 1
            coverage.add([model.mask_filler.row(text)])
            if arguments.json:
                matches.append(
                    {"text": text, "masks": [[guess._asdict() for guess in mask] for mask in masks]}
                )
                continue
            for number, mask in enumerate(masks, 1):
                title = text if len(masks) == 1 else f"{text}  (mask {number} of {len(masks)})"
                console.table(
                    ("prediction", "probability"),
                    [(guess.token, f"{guess.probability:.1%}") for guess in mask],
                    title,
                )
    if count == 0:
        raise DataError(
            "standard input holds no text; pipe texts with a mask into it, or give them as "
            "arguments"
        )
    if arguments.json:
        console.print_json(matches)
    coverage.warn()
    return 0
