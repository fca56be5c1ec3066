"""`litebert prepare`: text to token shards; and the options of every verb that reads text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from litebert.commands import console
from litebert.commands.console import DataPath, Json
from litebert.commands.options import Arg, list_changes, spell
from litebert.remote.names import shorten

if TYPE_CHECKING:
    from litebert.text.sources import Reading


@dataclass
class TextOptions:
    """How text is read and divided into documents."""

    text_column: str = "text"
    """Column or field of the text, in files of rows."""
    split: Literal["blank-line", "file", "line"] = "blank-line"
    """What ends a document of a text file."""
    encoding: Annotated[tuple[str, ...], Arg("NAME|PATTERN=NAME", repeat=True)] = ()
    """Encoding of text files, by default utf-8; once for each pattern of files."""
    unwrap: bool = False
    """Join the lines of a paragraph, where text is hard-wrapped."""
    markup: Literal["keep", "strip"] = "keep"
    """Keep the marks of Markdown and HTML, or strip them (litebert[markup])."""

    def words(self, sources: Sequence[str]) -> list[str]:
        """The words of a command line that reads these sources in the same way."""
        here = TextOptions.__dataclass_fields__
        changes = {name: value for name, value in list_changes(self).items() if name in here}
        encodings = changes.pop("encoding", ())
        repeated = (word for each in encodings for word in ("--encoding", each))
        return [*sources, *repeated, *spell(changes)]

    def reading(self) -> Reading:
        from litebert.text.encodings import parse_encodings
        from litebert.text.sources import Reading

        return Reading(
            self.text_column, self.split, *parse_encodings(self.encoding), self.unwrap, self.markup
        )


@dataclass
class Text(TextOptions):
    """The same, with where it comes from."""

    sources: Annotated[tuple[str, ...], Arg("SOURCE", positional=True)] = ("python-docs",)
    """Files, folders, patterns, URLs, hf:NAME, - or python-docs, the text of Python itself."""


@dataclass
class PrepareArguments(Text):
    """Turn text into token shards, in constant memory. The same command again continues."""

    examples: ClassVar[tuple[str, ...]] = (
        "litebert prepare my-texts/ --tokenizer tokenizer --out data",
        'litebert prepare "books/*.jsonl" --language de --near-duplicates 0.8',
        "litebert prepare hf:wikitext --filters c4 gopher --out data",
    )

    common: ClassVar[str] = (
        "out tokenizer language text-column split heldout near-duplicates filters keep-languages "
        "processes encoding json"
    )

    out: DataPath = "data"
    """Folder or URL to write."""
    tokenizer: str = "tokenizer"
    """A folder of a tokenizer or a model, *.model, vocab.txt or tokenizer.json."""
    language: str = "en"
    """Language of the text, for sentence boundaries; line if each line is one."""
    heldout: float = 0.01
    """Share of the documents held out; a small corpus holds out up to 5%."""
    processes: int = 0
    """Processes that encode; 0 is one for each core."""
    near_duplicates: float = 0.0
    """Drop documents that resemble an earlier one this much, such as 0.8."""
    filters: tuple[Literal["gopher", "c4", "fineweb"], ...] = ()
    """Drop documents by the published rules of these corpora."""
    keep_languages: Annotated[tuple[str, ...], Arg("CODE")] = ()
    """Drop documents in other languages, such as all but de en (litebert[languages])."""
    check_against: Annotated[tuple[str, ...], Arg("FILE|heldout")] = ()
    """Report texts of these files that are also in the training text."""
    part: Annotated[str | None, Arg("I/N")] = None
    """Prepare one of N parts here, such as 1/4; litebert merge joins them."""
    json: Json = False


def prepare(words: list[str]) -> int:
    arguments = console.parse(PrepareArguments, words, "prepare")
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
            console.print_json({"part": part, "folder": shorten(folder), **parts})
        else:
            rows = [(name, f"{count:,}") for name, count in parts.items()]
            console.table((f"part {part}", shorten(folder)), rows)
        console.ending(shorten(folder), ("merge", shorten(arguments.out)))
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
        console.print_json({**counts, **summary})
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
        console.table(("prepared", shorten(arguments.out)), every)
    shown = shorten(arguments.out)
    console.ending(shown, ("pretrain", "albert-next-tiny", "--shards", shown, "--out", "RUN"))
    return 0
