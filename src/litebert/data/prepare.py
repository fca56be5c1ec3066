"""`litebert prepare`: text to token shards, in constant memory, over several processes, resumable.

One process reads the sources. It drops exact duplicates, deals documents to the splits by the hash
of their text, and cuts each split into shards of about `shard_bytes` of text (dealing.py). The
other processes encode (workers.py).

A journal lists the finished shards with their checksums. The same command reads the text again,
which is cheap, but encodes only what is missing. A checksum of the text of each finished shard
proves that the sources are the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from litebert.data import shards as disk
from litebert.data.building import finish_set, reporting_writes
from litebert.data.journal import check_folder, check_same
from litebert.data.part_shards import merge_shards
from litebert.data.part_writing import remove_part, write_part
from litebert.data.settings import ShardSettings
from litebert.data.shard_files import has_index
from litebert.data.shards import Shards
from litebert.data.summary import warn
from litebert.data.text_corpus import TextCorpus, save_tokenizer
from litebert.errors import DataError
from litebert.parts import Part, find_parts
from litebert.parts.finished import read_parts
from litebert.remote.names import join
from litebert.remote.target import open_target
from litebert.text.sources import DocumentSplit, Markup
from litebert.tokenizer import Tokenizer


def prepare(
    sources: Sequence[str],
    out: str | Path,
    *,
    tokenizer: str | Path,
    processes: int = 0,
    text_column: str = "text",
    split: DocumentSplit = "blank-line",
    language: str = "en",
    encoding: str = "utf-8",
    encodings: Mapping[str, str] | None = None,
    unwrap: bool = False,
    markup: Markup = "keep",
    heldout: float = 0.01,
    shard_bytes: int = 32 << 20,
    near_duplicates: float = 0.0,
    filters: Sequence[str] = (),
    keep_languages: Sequence[str] = (),
    check_against: Sequence[str] = (),
) -> Shards:
    """Turn `sources` (text/sources.py) into the shard folder or URL `out`, or continue it.

    Args:
        tokenizer: a folder or file that `Tokenizer.load` opens.
        processes: those that encode, next to the one that reads; 0 for one per core, at most 8.
        text_column: the column or field of rows that holds the text.
        split: where a document of plain text ends.
        language: decides where sentences end (text/sentences.py).
        encoding: of all files for which `encodings` names no other one.
        encodings: encodings of the files that match a pattern, by pattern.
        unwrap: join the lines of each paragraph.
        markup: `strip` takes the text out of web pages and Markdown.
        heldout: share of the documents held out, by the hash of their text. Above 0, a corpus of
            less than 8 MB holds out more, about 5 % of its text up to 64 KB.
        shard_bytes: bytes of text per shard; memory grows with it.
        near_duplicates: drop documents at least so similar to an earlier one, from 0.5 to 1.
        filters: drop documents by the rules of `c4`, `gopher` and `fineweb` (text/filters.py).
        keep_languages: drop documents in other languages; ISO 639-1 codes.
        check_against: files, or "heldout", whose texts the documents to train on may hold.

    Raises:
        DataError: text, tokenizer or folder cannot be used, or the disk is full; shards stay.
    """
    settings = ShardSettings(
        sources,
        text_column=text_column,
        split=split,
        language=language,
        encoding=encoding,
        encodings=encodings,
        unwrap=unwrap,
        markup=markup,
        heldout=heldout,
        shard_bytes=shard_bytes,
        near_duplicates=near_duplicates,
        filters=filters,
        keep_languages=keep_languages,
        check_against=check_against,
        out=out,
    )
    return _prepare_set(out, settings, Tokenizer.load(tokenizer), processes)


def _prepare_set(
    out: str | Path, settings: ShardSettings, tokenizer: Tokenizer, processes: int
) -> Shards:
    _check_processes(processes)
    if settings.needs_parts:
        return _prepare_in_two_passes(out, settings, tokenizer, processes)
    corpus = TextCorpus(settings, settings.make_reading(), processes)
    return finish_set(
        out,
        settings.make_header(tokenizer),
        corpus,
        lambda folder: save_tokenizer(tokenizer, folder),
    )


def prepare_part(
    part: str | Part,
    sources: Sequence[str],
    out: str | Path,
    *,
    tokenizer: str | Path,
    processes: int = 0,
    **settings: Any,
) -> str | Path:
    """Prepare one part of `sources`, `i/n`, on any machine, for `merge` to make the set `out` of.

    All parts take equal arguments. The same call again continues an unfinished part, or returns at
    once.

    Args:
        settings: all other arguments of `prepare`, by name.

    Returns:
        The folder of the part, in `out`.parts; its URL where `out` is one.

    Raises:
        ConfigError: the part is none, a source can be read only once, or the folder holds the same
            part of other work.
        DataError: as in `prepare`.
    """
    _check_processes(processes)
    return write_part(
        Part.parse(part) if isinstance(part, str) else part,
        out,
        ShardSettings(sources, out=out, **settings),
        Tokenizer.load(tokenizer),
        processes,
    )


def _prepare_in_two_passes(
    out: str | Path, settings: ShardSettings, tokenizer: Tokenizer, processes: int
) -> Shards:
    """Prepare a set as one part, whose documents `merge` compares."""
    if has_index(out, disk.INDEX):
        finished = Shards.open(out)
        header = settings.make_header(tokenizer)
        check_same(finished.name, finished.index, header)
        if finished.index["settings"]["files"] == header["settings"]["files"]:
            remove_part(join(find_parts(out), Part(1, 1).name))  # of a process killed at the end
            warn(finished.index)
            return finished
    else:
        target = open_target(out)
        with target.open() as folder, reporting_writes(folder):
            check_folder(target)
    part = write_part(Part(1, 1), out, settings, tokenizer, processes)
    shards = merge_shards(out, read_parts(out))
    remove_part(part)
    return shards


def _check_processes(processes: int) -> None:
    """Refuse a number of processes below 0.

    Raises:
        DataError: it is below 0.
    """
    if processes < 0:
        raise DataError(f"processes is {processes}; give how many to use, or 0 for one per core")
