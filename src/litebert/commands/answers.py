"""`litebert predict`, `fill-mask` and `embed`: what a model answers."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from litebert.base.errors import ConfigError, DataError, require
from litebert.base.storage import is_written_into
from litebert.commands import console
from litebert.commands.console import DeviceName, Json, ModelPath, ModelTokenizer, VectorSize
from litebert.commands.engines import AnswerOptions, EngineOptions
from litebert.commands.options import Arg
from litebert.remote.names import path_of, shorten, suggest
from litebert.text.records import FileFormat, Layout

if TYPE_CHECKING:
    from litebert.answer.inputs import Columns
    from litebert.parts import Part


@dataclass(kw_only=True)
class Reading(EngineOptions):
    """The options that `predict` and `embed` share: where rows come from."""

    model: ModelPath
    input: tuple[str, ...] = ("-",)
    """Files or folders of rows, lines or a benchmark; - is standard input."""
    out: Annotated[str, Arg("FILE")] = "-"
    """File to write; - is standard output."""
    text_column: str | None = None
    """Column of the text; by default as in training, or text."""
    keep: Annotated[str | None, Arg("COLUMN,...")] = None
    """Columns of the input to copy into the output, or all."""
    header: bool = True
    """The first line of CSV names the columns; else they are numbers from 0."""
    delimiter: str | None = None
    """Delimiter of CSV, such as ; or tab; by default found."""
    input_format: FileFormat | None = None
    """Format of the input; by default suffix and content decide."""
    encoding: str = "utf-8"
    """Encoding of the input, such as latin-1."""
    part: Annotated[str | None, Arg("I/N")] = None
    """Answer one of N parts here, such as 1/4; litebert merge joins them."""

    def parse_part(self) -> Part | None:
        from litebert.parts import Part

        return None if self.part is None else Part.parse(self.part)

    def end(self, part: Part | None, count: str, more: str = "") -> None:
        """Say what was written where, and how to merge a part."""
        from litebert.parts import find_parts
        from litebert.remote.names import join

        if part is not None:
            folder = shorten(join(find_parts(self.out), part.name))
            console.ending(f"{count} to {folder}", ("merge", self.out))
        elif self.out != "-":
            console.ending(f"{count} to {shorten(self.out)}{more}")

    def name_columns(self, pair: str | None = None) -> Columns:
        from litebert.answer.inputs import Columns

        names = (name.strip() for name in (self.keep or "").split(","))
        return Columns(self.text_column, pair, tuple(filter(None, names)))

    @property
    def layout(self) -> Layout:
        return Layout(self.input_format, self.header, self.encoding, self.delimiter)


@dataclass
class PredictArguments(Reading, AnswerOptions):
    """Answer texts, or every row of the input in order, with a fine-tuned model."""

    examples: ClassVar[tuple[str, ...]] = (
        "litebert predict classifier --input new.csv --out answers.csv",
        "litebert predict classifier --input new.csv --keep id --min-precision 0.95",
        'litebert predict classifier "It broke after a week."',
    )

    common: ClassVar[str] = (
        "input out text-column pair-column keep delimiter format min-precision explain engine "
        "dtype device"
    )

    texts: Annotated[tuple[str, ...], Arg("TEXT", positional=True)] = ()
    """Texts to answer, instead of --input; for a model of pairs, two each."""
    pair_column: str | None = None
    """Column of a second text; by default as in training."""
    format: Literal["csv", "jsonl", "json"] | None = None
    """Format of the output; by default its suffix decides, or csv."""
    min_precision: float | None = None
    """Leave unsure answers empty, so that this share of the rest is right."""
    explain: Literal["occlusion", "gradients"] | None = None
    """Add how much each word speaks for the answer; gradients needs PyTorch."""


_FORMS: dict[str, Literal["csv", "jsonl", "json"]] = {
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
}
"""Formats by the suffix of --out."""


def predict(words: list[str]) -> int:
    arguments = console.parse(PredictArguments, words, "predict")
    with console.loading():
        from litebert.answer.files import predict_file
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
    for text in arguments.texts:
        require(
            arguments.input == ("-",) and arguments.out == "-",
            "a TEXT on the line is answered on standard output; leave out --input and --out",
        )
        require(not Path(text).is_file(), f"{text} is a file; give --input {text}")
    model = arguments.load(arguments.model, min_precision=arguments.min_precision)
    if texts := arguments.texts:
        inputs: Sequence[Any] = texts
        if model.predictor.task.pair and len(texts) % 2 == 0:
            inputs = list(zip(texts[::2], texts[1::2], strict=True))
        shown = [text if isinstance(text, str) else " | ".join(text) for text in inputs]
        show_answers(shown, model.predict(inputs))
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
    arguments.end(part, format_count(count, "answer"))
    return 0


def show_answers(
    texts: Sequence[str], answers: Sequence[Mapping[str, Any]], column: str = "prediction"
) -> None:
    rows = []
    for text, answer in zip(texts, answers, strict=True):
        value, likely = answer["prediction"], answer.get("probabilities")
        shown = ", ".join(map(str, value)) if isinstance(value, list) else value
        shown = f"{shown:.4g}" if isinstance(shown, float) else str(shown)
        sure = f"{max(likely.values()):.0%}" if isinstance(likely, Mapping) and likely else ""
        rows.append((text, shown, sure))
    console.table(("text", column, "probability"), rows)


@dataclass
class EmbedArguments(Reading):
    """Write a sentence vector for every text; without MODEL, by the package's English encoder."""

    examples: ClassVar[tuple[str, ...]] = (
        "litebert embed --input texts.csv --out vectors.npy",
        "litebert embed MODEL --input texts.csv --keep id --out vectors.parquet",
    )

    common: ClassVar[str] = (
        "input out text-column keep delimiter pooling normalize vector-size prompt-name engine "
        "dtype device"
    )
    model: ModelPath = ""
    out: Annotated[str, Arg("FILE")] = "-"
    """File to write, .npy, .parquet or .jsonl; - is standard output."""
    pooling: Literal["mean", "cls"] | None = None
    """Vector of a text, the mean of its states or [CLS]; by default as the model says."""
    normalize: bool | None = None
    """Scale vectors to length 1; by default as the model says."""
    vector_size: VectorSize = None
    prompt_name: str | None = None
    """Prompt of the model before each text, such as query."""
    vector_dtype: Literal["float32", "int8"] = "float32"
    """Type of the numbers; with int8, NAME.scale.npy holds their scales."""


def embed(words: list[str]) -> int:
    arguments = console.parse(EmbedArguments, words, "embed")
    with console.loading():
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
    model = arguments.load(arguments.model or ENCODER)
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
    has_scale = arguments.vector_dtype == "int8"
    scale = f", their scale to {shorten(scale_file(output))}" if has_scale else ""
    arguments.end(part, format_count(count, "vector"), scale)
    return 0


@dataclass
class FillMaskArguments:
    """Fill the masked words of texts with a pretrained model; write a mask as [MASK] or ___."""

    examples: ClassVar[tuple[str, ...]] = (
        'litebert fill-mask run "The capital of France is [MASK]."',
        'litebert fill-mask run "She ___ the book." --targets read wrote',
    )

    model: ModelPath
    texts: Annotated[tuple[str, ...], Arg("TEXT", positional=True)] = ()
    """Texts with a mask; by default the lines of standard input."""
    top: int = 5
    """Number of predictions for each mask."""
    targets: Annotated[tuple[str, ...], Arg("WORD")] = ()
    """Words whose probabilities to give instead, each a token of the model."""
    tokenizer: ModelTokenizer = None
    device: DeviceName = "auto"
    json: Json = False


def fill_mask(words: list[str]) -> int:
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
            console.say("reading texts from standard input, one on each line")
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
