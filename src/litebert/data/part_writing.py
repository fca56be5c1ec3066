"""A part of a set written from text, on any machine (part_shards.py merges them)."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from litebert.data.building import reporting_writes, write_shards
from litebert.data.dealing import Dealer
from litebert.data.encoding import encode_with_texts
from litebert.data.filtering import FilteredEncoding
from litebert.data.journal import Journal
from litebert.data.settings import ShardSettings
from litebert.data.text_corpus import TextCorpus, save_tokenizer
from litebert.parts import (
    BEGUN,
    MARKER,
    Part,
    find_parts,
    finish_part,
    is_finished,
    lock_part,
    make_identity,
)
from litebert.remote.names import is_url, join
from litebert.remote.target import Target, open_target
from litebert.tokenizer import Tokenizer


def write_part(
    part: Part, out: str | Path, settings: ShardSettings, tokenizer: Tokenizer, processes: int
) -> str | Path:
    """Write what is missing of a part of the set `out`, and return its folder.

    Raises:
        ConfigError: a source can be read only once, or the folder holds the part of other work.
        DataError: the text cannot be used, or the disk is full. Finished files stay.
    """
    header = settings.make_header(tokenizer)
    recorded = {name: value for name, value in header["settings"].items() if name != "files"}
    identity = make_identity("prepare", recorded, tokenizer.fingerprint, settings.list_files())
    encode = (
        FilteredEncoding(tuple(settings.filters), tuple(settings.keep_languages)).encode
        if settings.filters or settings.keep_languages
        else encode_with_texts
    )
    corpus = TextCorpus(settings, settings.make_reading(), processes, part, encode)
    with lock_part(out, part, identity) as target, reporting_writes(target.folder):
        if not is_finished(target.folder):
            save_tokenizer(tokenizer, target.folder)
            _write_files(target, part, identity, header, corpus)
            target.finish(MARKER)
            target.delete(BEGUN)
        target.delete(Journal.NAME)
    name = join(find_parts(out), part.name)
    return name if is_url(name) else Path(name)


def _write_files(
    target: Target, part: Part, identity: dict[str, Any], header: dict[str, Any], corpus: TextCorpus
) -> None:
    """Write the files of a part that are missing, and then its marker."""
    journal, folder = Journal(target, header), target.folder
    dealer: Dealer[str] = Dealer(None, header["settings"]["shard_bytes"], journal.finished, folder)
    for _ in write_shards(folder, header, journal, dealer, corpus):
        pass
    infos = sorted(journal.finished.values(), key=lambda info: (len(info.file), info.file))
    finish_part(
        folder,
        part,
        identity,
        files={info.file: {"bytes": info.bytes, "sha256": info.sha256} for info in infos},
        header=header,
        shards=[asdict(info) for info in infos],
        documents={"kept": dealer.distinct, "duplicates": dealer.duplicates},
        tally=corpus.tally.to_state(),
    )


def remove_part(folder: str | Path) -> None:
    """Remove a part that is merged, and the folder of parts, if it is empty then."""
    open_target(folder).remove()
    if not is_url(folder):
        with suppress(OSError):  # other parts lie there, or there is no folder
            Path(folder).parent.rmdir()
