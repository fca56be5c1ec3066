"""Text to shards: the same bytes however many processes and whatever interrupts it, in flat
memory."""

from __future__ import annotations

import errno
import multiprocessing
import os
import random
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from litebert.base.errors import DataError
from litebert.base.storage import lock_folder
from litebert.data import dealing, shard_files
from litebert.data import prepare as preparing
from litebert.data import shards as disk
from litebert.data.shards import Shards
from litebert.text.sentences import split_sentences
from litebert.text.sources import Document, read_documents
from litebert.tokenizer import Tokenizer
from litebert.tokenizer.training import train_tokenizer
from toys.prepare import Prepare, content, needs_proc, start, texts_of, tree, wait_for
from toys.refusals import refused


def test_every_sentence_of_every_document_is_there(
    tiny_corpus: Path, tiny_tokenizer: Path, whole: Path
) -> None:
    shards = Shards.open(whole, verify=True)
    tokenizer = Tokenizer.load(tiny_tokenizer)
    wanted = {}
    for document in read_documents([str(tiny_corpus)]):
        sentences = tokenizer.encode(split_sentences(document.text))
        starts = np.cumsum([0, *map(len, sentences)]).tolist()
        wanted[tuple(i for sentence in sentences for i in sentence)] = starts
    documents = {}
    for split in (shards.train, shards.heldout):
        for number in range(split.documents):
            ids, starts = split.read_document(number)
            documents[tuple(ids.tolist())] = starts.tolist()
    assert documents == wanted
    assert shards.tokenizer.fingerprint == tokenizer.fingerprint
    in_train = [tuple(shards.train.read_document(i)[0]) for i in range(shards.train.documents)]
    assert in_train == [ids for ids in wanted if ids in in_train], "in the order of the sources"


def test_unigram_entropy_and_top_share_are_those_of_the_train_split(whole: Path) -> None:
    shards = Shards.open(whole)
    documents = range(shards.train.documents)
    ids = np.concatenate([shards.train.read_document(number)[0] for number in documents])
    shares = np.unique(ids, return_counts=True)[1] / len(ids)
    assert shards.unigram_entropy == pytest.approx(-np.sum(shares * np.log(shares)), rel=1e-12)
    assert shards.top_piece_share == pytest.approx(shares.max(), rel=1e-12)


def test_heldout_documents_are_in_no_train_shard(whole: Path, tiny_tokenizer: Path) -> None:
    shards, tokenizer = Shards.open(whole), Tokenizer.load(tiny_tokenizer)
    train, heldout = texts_of(shards.train, tokenizer), texts_of(shards.heldout, tokenizer)
    assert not set(train) & set(heldout)
    assert len(train) + len(heldout) == 200
    assert 8 <= len(heldout) <= 36, "a tenth, within three standard errors"


@pytest.mark.parametrize(
    ("count", "heldout", "splits"),
    [
        (1, 0.5, (1, 0)),
        (2, 0.001, (1, 1)),
        (2, 0.999, (1, 1)),
        (40, 0.001, (38, 2)),
        (40, 0.0, (40, 0)),
    ],
)
def test_small_corpora_have_something_in_each_split(
    tmp_path: Path, prepare: Prepare, count: int, heldout: float, splits: tuple[int, int]
) -> None:
    corpus = tmp_path / "a.txt"
    corpus.write_text("\n\n".join(f"Number {i} of some." for i in range(count)))
    shards = prepare(tmp_path / "out", corpus, heldout=heldout)
    assert (shards.train.documents, shards.heldout.documents) == splits


def test_which_documents_are_held_out_depends_on_their_text_alone(
    tmp_path: Path, prepare: Prepare, tiny_corpus: Path, tiny_tokenizer: Path, whole: Path
) -> None:
    texts = tiny_corpus.read_text().strip().split("\n\n")
    random.Random(1).shuffle(texts)
    corpus = tmp_path / "shuffled.txt"
    corpus.write_text("\n\n".join(texts))
    tokenizer = Tokenizer.load(tiny_tokenizer)
    shuffled = prepare(tmp_path / "out", corpus)
    held_out = [texts_of(shards.heldout, tokenizer) for shards in (shuffled, Shards.open(whole))]
    assert sorted(held_out[0]) == sorted(held_out[1])


def test_exact_duplicates_are_dropped_and_counted(
    tmp_path: Path, prepare: Prepare, tiny_corpus: Path
) -> None:
    texts = tiny_corpus.read_text().strip().split("\n\n")
    corpus = tmp_path / "a.txt"
    corpus.write_text("\n\n".join([*texts[:50], *texts[10:30], texts[0], " " + texts[1] + "  "]))
    shards = prepare(tmp_path / "out", corpus)
    assert shards.train.documents + shards.heldout.documents == 50
    assert shards.index["documents"] == {"kept": 50, "duplicates": 22, "empty": 0}


def test_hashes_that_share_bytes_are_told_apart() -> None:
    seen = dealing.DocumentHashes()
    first, second = b"ab" + bytes(range(8)), b"ab" + bytes(range(8, 16))
    across = b"ab" + bytes(range(4, 12))  # the first's end and the second's start in memory
    digests = (first, second, across) * 2
    assert [seen.is_new(digest) for digest in digests] == [True] * 3 + [False] * 3
    assert seen.is_new(b"ba" + bytes(range(8)))


def test_documents_without_a_single_piece_are_left_out(tmp_path: Path, prepare: Prepare) -> None:
    corpus = tmp_path / "a.txt"
    corpus.write_text("Some text.\n\n\x01\x02\n\nMore text.\n\nAnd more.\n\n\x03")
    shards = prepare(tmp_path / "out", corpus)
    assert shards.train.documents + shards.heldout.documents == 3
    assert shards.index["documents"] == {"kept": 5, "duplicates": 0, "empty": 2}
    corpus.write_text("\x01\x02\n\n\x03")
    with refused(DataError, corpus):
        prepare(tmp_path / "none", corpus)


# ----------------------------------------------------------------------------------- the same bytes


def test_the_number_of_processes_does_not_show(
    tmp_path: Path, prepare: Prepare, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Several chunks a shard, more than wait at a time.
    monkeypatch.setattr(dealing, "CHUNK_BYTES", 2000)
    prepare(tmp_path / "two", processes=2)
    assert content(tmp_path / "two") == content(whole)
    monkeypatch.setattr(preparing, "MOST_PROCESSES", 1)
    prepare(tmp_path / "all", processes=0)
    assert content(tmp_path / "all") == content(whole)


def test_bytes_are_prepared_as_other_pieces_are(
    tmp_path: Path, prepare: Prepare, tiny_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dealing, "CHUNK_BYTES", 2000)
    text = tiny_corpus.read_text(encoding="utf-8")
    tokenizer = train_tokenizer([text], kind="bpe", vocab_size=400)
    tokenizer.save(tmp_path / "tokenizer")
    (tmp_path / "a.txt").write_text(text + "\n\nCafé 猫 <mask> </s> 😀.\n", encoding="utf-8")
    shards = prepare(tmp_path / "one", tmp_path / "a.txt", tmp_path / "tokenizer")
    prepare(tmp_path / "two", tmp_path / "a.txt", tmp_path / "tokenizer", processes=2)
    assert content(tmp_path / "two") == content(tmp_path / "one")
    assert (shards.tokenizer.kind, shards.tokenizer.pair_separators) == ("bpe", 2)
    sentences = []
    for split in (shards.train, shards.heldout):
        for ids, starts in map(split.read_document, range(split.documents)):
            sentences += [tokenizer.decode(ids[a:b].tolist()) for a, b in pairwise(starts)]
    documents = read_documents([str(tmp_path / "a.txt")])
    wanted = [sentence for document in documents for sentence in split_sentences(document.text)]
    assert sorted(sentences) == sorted(wanted), "byte for byte"


def test_a_finished_folder_returns_at_once(
    prepare: Prepare, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*arguments: object, **options: object) -> Iterator[Document]:
        yield from ()
        raise AssertionError("the text is read again")

    monkeypatch.setattr(preparing, "read_documents", never)
    before = {path: path.stat().st_mtime_ns for path in whole.rglob("*")}
    assert prepare(whole).train.documents > 0
    assert {path: path.stat().st_mtime_ns for path in whole.rglob("*")} == before


# ---------------------------------------------------------------------------------- what goes wrong


def test_a_worker_that_dies_is_reported_and_the_work_continues(
    tmp_path: Path, prepare: Prepare, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def deadly(*arguments: Any, **options: Any) -> Iterator[Document]:
        for number, document in enumerate(read_documents(*arguments, **options)):
            if number == 150:
                wait_for(multiprocessing.active_children)
                for child in multiprocessing.active_children():
                    child.kill()
                    child.join()
            yield document

    with monkeypatch.context() as patch:
        patch.setattr(preparing, "read_documents", deadly)
        patch.setattr(dealing, "LOOKAHEAD_BYTES", 1)
        with refused(DataError, "--processes"):
            prepare(tmp_path / "out", processes=2)
    prepare(tmp_path / "out")
    assert content(tmp_path / "out") == content(whole)


def test_a_full_disk(
    tmp_path: Path, prepare: Prepare, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = shard_files.write_shard

    def short(path: Path, *rest: Any) -> None:
        if path.name == "train-00001.arrow":
            raise OSError(errno.ENOSPC, "No space left on device")
        write(path, *rest)

    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(shard_files, "write_shard", short)
        with refused(DataError, out, "full"):
            prepare(out)
    prepare(out)
    assert content(out) == content(whole)


def test_a_finished_folder_may_lie_where_nothing_can_be_deleted(
    tmp_path: Path, prepare: Prepare, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(tmp_path / "out")

    def refuse(path: Path, missing_ok: bool = False) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    monkeypatch.setattr(Path, "unlink", refuse)
    assert prepare(tmp_path / "out").train.documents
    assert content(tmp_path / "out") == content(whole)


def test_bad_text_stops_and_what_is_done_stays(
    tmp_path: Path, prepare: Prepare, tiny_corpus: Path
) -> None:
    corpus = tmp_path / "a.txt"
    good = tiny_corpus.read_bytes()
    corpus.write_bytes(good + b"\n\nbad \xff\n")
    out = tmp_path / "out"
    with refused(DataError, f"{corpus}:{good.count(10) + 3}", "0xff", "4 others"):
        prepare(out, corpus)
    assert not (out / disk.INDEX).exists()
    with refused(DataError, out, disk.INDEX):
        Shards.open(out)


def test_halves_of_surrogate_pairs_are_replaced_and_counted(
    tmp_path: Path, prepare: Prepare
) -> None:
    corpus = tmp_path / "a.jsonl"
    corpus.write_text('{"text": "good"}\n{"text": "\\ud83d bad \\udc00"}\n')
    shards = prepare(tmp_path / "out", corpus)
    assert shards.train.documents + shards.heldout.documents == 2
    assert shards.index["summary"]["replaced_characters"] == 2


def test_an_empty_corpus(tmp_path: Path, prepare: Prepare) -> None:
    corpus = tmp_path / "a.txt"
    corpus.write_text("\n \n")
    with refused(DataError, corpus):
        prepare(tmp_path / "out", corpus)
    assert not (tmp_path / "out" / disk.INDEX).exists()


def test_folders_that_are_not_for_it(tmp_path: Path, prepare: Prepare, tiny_corpus: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "precious.txt").write_text("mine")
    with refused(DataError, tmp_path / "full"):
        prepare(tmp_path / "full")
    assert content(tmp_path / "full") == {"precious.txt": b"mine"}
    with refused(DataError, tiny_corpus):
        prepare(tiny_corpus)


def test_two_commands_in_one_folder(prepare: Prepare, unfinished_folder: Path) -> None:
    with (
        lock_folder(unfinished_folder, DataError),
        refused(DataError, unfinished_folder, f"process {os.getpid()}"),
    ):
        prepare(unfinished_folder)
    prepare(unfinished_folder)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("heldout", 1.0),
        ("heldout", -0.1),
        ("shard_bytes", 0),
        ("processes", -1),
        ("language", "english"),
    ],
)
def test_bad_options(tmp_path: Path, prepare: Prepare, field: str, value: Any) -> None:
    with refused(DataError, field, value):
        prepare(tmp_path / "out", **{field: value})
    assert not (tmp_path / "out").exists()


# ------------------------------------------------------------------------------------------- memory


def resident(process: int) -> int:
    """Bytes resident in a process and all below it; what they share counts once for each."""
    total = 0
    for pid in tree(process):
        try:
            total += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        except OSError:
            continue
    return total * os.sysconf("SC_PAGE_SIZE")


def test_words_are_counted_over_all_documents_kept(tmp_path: Path) -> None:
    more = "word " * 1000  # more than one block
    texts = [f"document {number} of\nsome\nwords {more}" for number in range(500)]
    dealer: dealing.Dealer[str] = dealing.Dealer(0.01, 1 << 20, {}, tmp_path)
    documents = (Document(text.strip(), "") for text in [*texts, *texts[:50]])
    for _ in dealer.make_chunks(dealing.hash_documents(documents)):
        pass
    assert (dealer.words, dealer.duplicates) == (sum(len(text.split()) for text in texts), 50)
    assert dealer.words == sum(len(text.split()) for text in texts), "asked twice"


def generate(path: Path, size: int, base: list[str]) -> None:
    """About `size` bytes of documents, no two the same."""
    with open(path, "w") as file:
        number = 0
        while file.tell() < size:
            file.write("\n\n".join(f"Edition {number}. {text}" for text in base) + "\n\n")
            number += 1


def memory_of_preparing(
    tmp_path: Path, corpus: Path, tokenizer: Path, shard_bytes: int
) -> list[int]:
    """Resident bytes of the whole process tree, sampled while it prepares `corpus`."""
    samples = []
    process = start(tmp_path, corpus, tmp_path / "out", tokenizer, 0.01, shard_bytes)
    while process.poll() is None:
        samples.append(resident(process.pid))
        time.sleep(0.05)
    assert process.returncode == 0
    return samples


@pytest.mark.thorough
@needs_proc
def test_memory_is_flat(tmp_path: Path, tiny_corpus: Path, tiny_tokenizer: Path) -> None:
    corpus = tmp_path / "a.txt"
    generate(corpus, 60_000_000, tiny_corpus.read_text().strip().split("\n\n"))
    samples = memory_of_preparing(tmp_path, corpus, tiny_tokenizer, shard_bytes=4 << 20)
    assert max(samples) < 700e6
    early, late = max(samples[: len(samples) // 2]), max(samples[len(samples) // 2 :])
    assert late - early < 25e6, "the second half of the text alone is 30 MB"


@pytest.mark.slow
@needs_proc
def test_a_gigabyte_stays_under_a_gigabyte_of_memory(
    tmp_path: Path, tiny_corpus: Path, tiny_tokenizer: Path
) -> None:
    corpus = tmp_path / "a.txt"
    generate(corpus, 1_000_000_000, tiny_corpus.read_text().strip().split("\n\n"))
    samples = memory_of_preparing(tmp_path, corpus, tiny_tokenizer, shard_bytes=32 << 20)
    assert max(samples) < 1e9


def test_the_index_is_written_last(
    tmp_path: Path, prepare: Prepare, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = []
    replace = os.replace

    def note_and_replace(source: Any, target: Any) -> None:
        names.append(Path(target).name)
        replace(source, target)

    monkeypatch.setattr(os, "replace", note_and_replace)
    prepare(tmp_path / "out")
    assert names[0] == "tokenizer"
    assert names[-1] == "index.json"
    assert names.count("index.json") == 1
