"""`litebert prepare`: text to token shards; and the options of every verb that reads text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from litebert.commands.console import DataPath, Json, ending, parse, print_json, table
from litebert.remote.names import shorten

if TYPE_CHECKING:
    from litebert.text.sources import Reading


@dataclass
class TextOptions:
    """How text is read and divided into documents."""

    text_column: str = "text"
    """Field of .jsonl, .csv, .tsv and .parquet rows that holds the text."""
    split: Literal["blank-line", "file", "line"] = "blank-line"
    """The boundary between two documents of a text file."""
    encoding: tyro.conf.UseAppendAction[
        Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME|PATTERN=NAME")]
    ] = ()
    """Encoding of text files, utf-8 by default; repeat as 'PATTERN=NAME' for files that match a
    pattern."""
    unwrap: bool = False
    """Join the lines of each paragraph of plain text; for text that is hard-wrapped."""
    markup: Literal["keep", "strip"] = "keep"
    """keep reads Markdown and HTML as plain text; strip extracts their text (pip install
    'litebert[markup]')."""

    def words(self, sources: Sequence[str]) -> list[str]:
        """The words of a command line that reads these sources in the same way."""
        words = [
            *sources,
            *(word for encoding in self.encoding for word in ("--encoding", encoding)),
        ]
        words += ["--unwrap"] if self.unwrap else []
        for option in fields(TextOptions):
            if (
                isinstance(option.default, str)
                and (value := getattr(self, option.name)) != option.default
            ):
                words += [f"--{option.name.replace('_', '-')}", value]
        return words

    def reading(self) -> Reading:
        from litebert.text.encodings import parse_encodings
        from litebert.text.sources import Reading

        return Reading(
            self.text_column, self.split, *parse_encodings(self.encoding), self.unwrap, self.markup
        )


@dataclass
class Text(TextOptions):
    """The same, with where it comes from."""

    sources: Annotated[
        tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="[SOURCE ...]")
    ] = ("python-docs",)
    """Files, folders, quoted patterns, URLs (s3://...), - for standard input, hf:NAME, or
    python-docs for the built-in corpus.
    """


@dataclass
class PrepareArguments(Text):
    """Turn text into token shards, in constant memory; the same command again continues."""

    out: DataPath = "data"
    """Folder or URL to write."""
    tokenizer: str = "tokenizer"
    """A folder, *.model, vocab.txt or tokenizer.json; or a model folder, for its tokenizer."""
    language: str = "en"
    """Language of the text, for sentence boundaries; `line` if each line is already a sentence."""
    heldout: float = 0.01
    """Share of the documents kept for evaluation; a small corpus keeps up to 5 %."""
    processes: int = 0
    """Number of processes that encode; 0 for one per core."""
    near_duplicates: float = 0.0
    """Drop documents that resemble an earlier one at least this much, such as 0.8; 0 keeps them."""
    filters: tuple[Literal["gopher", "c4", "fineweb"], ...] = ()
    """Drop documents by the published rules of these corpora; the table shows what each drops."""
    keep_languages: Annotated[tuple[str, ...], tyro.conf.arg(metavar="CODE")] = ()
    """Drop documents in other languages than these, such as de en (pip install
    'litebert[languages]')."""
    check_against: Annotated[tuple[str, ...], tyro.conf.arg(metavar="FILE|heldout")] = ()
    """Report texts of these files, or held-out documents, that also occur in the training text."""
    part: Annotated[str | None, tyro.conf.arg(metavar="I/N")] = None
    """Prepare one of N parts on this machine, such as 1/4; litebert merge makes the set of all."""
    json: Json = False


def prepare(words: list[str]) -> int:
    """litebert prepare SOURCES --tokenizer T --out D"""
    arguments = parse(PrepareArguments, words, "prepare")
    reading = arguments.reading()
    from litebert.data.prepare import PrepareConfig, prepare_part
    from litebert.data.prepare import prepare as run
    from litebert.data.summary import DROPPED, list_rows
    from litebert.parts.finished import open_part
    from litebert.text.tally import format_count

    names = {field.name for field in fields(PrepareConfig)}
    read = {name: value for name, value in vars(arguments).items() if name in names}
    read |= {"encoding": reading.encoding, "encodings": reading.encodings}
    work = (arguments.sources, arguments.out)
    options: dict[str, Any] = {
        "tokenizer": arguments.tokenizer,
        "processes": arguments.processes,
        "config": PrepareConfig(**read),
    }
    if (part := arguments.part) is not None:
        folder = prepare_part(part, *work, **options)
        marker = open_part(folder).marker
        parts = {
            "documents": marker["documents"]["kept"],
            "duplicates": marker["documents"]["duplicates"],
            "tokens": sum(entry["tokens"] for entry in marker["shards"]),
        }
        if arguments.json:
            print_json({"part": part, "folder": shorten(folder), **parts})
        else:
            rows = [(name, f"{count:,}") for name, count in parts.items()]
            table((f"part {part}", shorten(folder)), rows)
        ending(shorten(folder), ("merge", shorten(arguments.out)))
        return 0
    shards = run(*work, **options)
    counts = {
        name: {"documents": split.documents, "sentences": split.sentences, "tokens": split.tokens}
        for name, split in (("train", shards.train), ("heldout", shards.heldout))
    }
    if arguments.json:
        summary = {
            "read": shards.index["documents"],
            "unigram_entropy": shards.unigram_entropy,
            "summary": shards.index["summary"],
            **{name: shards.index[name] for name in DROPPED if name in shards.index},
        }
        print_json({**counts, **summary})
    else:
        splits = []
        for what, name in (("for training", "train"), ("held out", "heldout")):
            sizes = (format_count(size, unit[:-1]) for unit, size in counts[name].items())
            splits.append((what, ", ".join(sizes)))
        entropy = (
            f"{shards.unigram_entropy:.2f} nats, the loss of a model that knows only how "
            "frequent each token is"
        )
        language = ("sentence rules", arguments.language)
        every = [*list_rows(shards.index), language, *splits, ("unigram entropy", entropy)]
        table(("prepared", shorten(arguments.out)), every)
    shown = shorten(arguments.out)
    ending(shown, ("pretrain", "albert-next-tiny", "--shards", shown, "--out", "RUN"))
    return 0
