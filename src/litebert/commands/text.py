"""`litebert tokenizer` and `litebert prepare`: text to token shards."""

from __future__ import annotations

import logging
import shlex
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from litebert.commands.console import Json, ending, parse, print_json, show, table
from litebert.errors import ConfigError

if TYPE_CHECKING:
    from litebert.text.sources import Reading

log = logging.getLogger("litebert")


@dataclass
class Text:
    """Where text comes from and how it is divided into documents."""

    sources: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="[SOURCE ...]")] = ("python-docs",)
    """Files, folders, quoted patterns, - for standard input, hf:NAME, or python-docs for the built-in corpus."""
    text_field: str = "text"
    """Field of .jsonl, .csv, .tsv and .parquet rows that holds the text."""
    split: Literal["blank-line", "file", "line"] = "blank-line"
    """Where one document of a text file ends and the next begins."""
    encoding: tyro.conf.UseAppendAction[Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME|PATTERN=NAME")]] = ()
    """Encoding of text files, utf-8 by default; repeat it as 'PATTERN=NAME' for the files that match a pattern, such as
    '*.old.txt=latin-1'."""
    unwrap: bool = False
    """Join the lines of each paragraph of plain text; for text that is hard-wrapped."""
    markup: Literal["keep", "strip"] = "keep"
    """keep reads Markdown and web pages as plain text; strip extracts the text of both, with one document per section,
    and also reads the web pages in folders (pip install 'litebert[markup]')."""

    def given(self) -> str:
        """The words of a command line that reads the same text."""
        words = [*self.sources, *(word for encoding in self.encoding for word in ("--encoding", encoding))]
        words += ["--unwrap"] if self.unwrap else []
        for option in fields(Text):
            if isinstance(option.default, str) and (value := getattr(self, option.name)) != option.default:
                words += [f"--{option.name.replace('_', '-')}", value]
        return shlex.join(words)

    def reading(self) -> Reading:
        from litebert.text.encodings import by_file
        from litebert.text.sources import Reading

        return Reading(self.text_field, self.split, *by_file(self.encoding), self.unwrap, self.markup)


@dataclass
class TrainTokenizerArguments(Text):
    """Train a tokenizer on a sample of text. Ctrl-C stops it at once and leaves nothing behind."""

    out: Path = Path("tokenizer")
    """Folder to write, which transformers.AutoTokenizer can open too. A tokenizer already there is replaced."""
    kind: Literal["unigram", "wordpiece", "bpe"] = "unigram"
    """SentencePiece unigram in ALBERT's layout, BERT's WordPiece, or byte-level BPE in RoBERTa's layout."""
    vocab_size: int = 8192
    """Number of pieces in the vocabulary."""
    no_lower_case: bool = False
    """Keep upper case, which unigram and wordpiece convert to lower case by default; bpe always keeps it."""
    strip_accents: bool = False
    """Remove accents (unigram and wordpiece only)."""
    memory: int = 64
    """MiB of text to sample."""
    seed: int = 0
    """Seed of the sample."""


@dataclass
class InspectTokenizerArguments(Text):
    """Show what a tokenizer does to text: pieces per word, unknown pieces, and what its normalizer drops."""

    tokenizer: str = "tokenizer"
    """A folder, *.model, vocab.txt or tokenizer.json."""
    json: Json = False


def tokenizer(words: list[str]) -> int:
    """litebert tokenizer train|inspect"""
    action = words[0] if words else ""
    if action in ("-h", "--help"):
        show("litebert tokenizer train     train a tokenizer on text")
        show("litebert tokenizer inspect   show what a tokenizer does to a text")
        show("\nlitebert tokenizer train --help shows the options.")
        return 0
    if action not in ("train", "inspect"):
        raise ConfigError(f"there is no action '{action}'; use litebert tokenizer train or litebert tokenizer inspect")
    arguments: TrainTokenizerArguments | InspectTokenizerArguments
    if action == "train":
        arguments = parse(TrainTokenizerArguments, words[1:], "tokenizer train")
    else:
        arguments = parse(InspectTokenizerArguments, words[1:], "tokenizer inspect")
    from litebert.text.sources import documents

    reading = arguments.reading()
    texts = (document.text for document in documents(arguments.sources, reading))
    if isinstance(arguments, TrainTokenizerArguments):
        from litebert.text.tally import counted, listed
        from litebert.tokenizer import train_tokenizer
        from litebert.tokenizer.tokenizer import check_folder
        from litebert.tokenizer.training import MOST_PIECES

        check_folder(arguments.out)
        if not 1 <= arguments.vocab_size <= MOST_PIECES:
            raise ConfigError(f"--vocab-size is {arguments.vocab_size}; give a number from 1 to {MOST_PIECES}")
        if arguments.memory < 1:
            raise ConfigError(f"--memory is {arguments.memory} MiB; give at least 1")
        trained = train_tokenizer(
            texts,
            kind=arguments.kind,
            vocab_size=arguments.vocab_size,
            lower_case=False if arguments.no_lower_case else None,
            strip_accents=arguments.strip_accents,
            memory=arguments.memory * 2**20,
            seed=arguments.seed,
        )
        replaced = trained.write(arguments.out)
        log.info(f"read {counted(reading.tally.documents, 'document')} from {listed(reading.tally.files)}")
        ending(
            f"{arguments.out}: a {trained.kind} tokenizer of {trained.vocab_size:,} pieces"
            + (", replacing the one that was there" if replaced else ""),
            ("prepare", *shlex.split(arguments.given()), "--tokenizer", arguments.out, "--out", "DATA"),
        )
        return 0
    from litebert.tokenizer import Tokenizer, inspect

    report = inspect(Tokenizer.load(arguments.tokenizer), texts)
    if arguments.json:
        print_json(report.to_dict())
    else:
        table(("", arguments.tokenizer), report.rows())
    ending(None, ("prepare", *arguments.sources, "--tokenizer", arguments.tokenizer, "--out", "DATA"))
    return 0


@dataclass
class PrepareArguments(Text):
    """Turn text into token shards, in constant memory; the same command again continues."""

    out: Path = Path("data")
    """Folder to write."""
    tokenizer: str = "tokenizer"
    """A folder, *.model, vocab.txt or tokenizer.json."""
    language: str = "en"
    """Language of the text, for sentence boundaries; `line` if each line is already a sentence."""
    heldout: float = 0.01
    """Share of the documents kept for evaluation; a small corpus keeps up to 5 %."""
    processes: int = 0
    """Number of processes that encode; 0 for one per core."""
    json: Json = False


def prepare(words: list[str]) -> int:
    """litebert prepare SOURCES --tokenizer T --out D"""
    arguments = parse(PrepareArguments, words, "prepare")
    from litebert.data.prepare import prepare as run
    from litebert.data.summary import rows
    from litebert.text.tally import counted

    reading = arguments.reading()
    options = {name: value for name, value in vars(arguments).items() if name not in ("json", "encoding")}
    shards = run(**options, encoding=reading.encoding, encodings=reading.encodings)
    counts = {
        name: {"documents": split.documents, "sentences": split.sentences, "tokens": split.tokens}
        for name, split in (("train", shards.train), ("heldout", shards.heldout))
    }
    read = shards.index["documents"]
    if arguments.json:
        known = {"read": read, "unigram_entropy": shards.unigram_entropy, "summary": shards.index.get("summary")}
        print_json({**counts, **known})
    else:
        kinds = (("to train on", "train"), ("held out", "heldout"))
        splits = [
            (what, ", ".join(counted(count, part.removesuffix("s")) for part, count in counts[name].items()))
            for what, name in kinds
        ]
        entropy = f"{shards.unigram_entropy:.2f} nats, the loss of a model that knows only how frequent each piece is"
        every = [*rows(shards.index), *splits, ("unigram entropy", entropy)]
        table(("prepared", str(arguments.out)), every)
    ending(arguments.out, ("pretrain", "albert-tiny", "--data", arguments.out, "--out", "RUN"))
    return 0
