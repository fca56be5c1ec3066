"""Text in a store is read as the same text on the disk is, whatever the network does."""

from __future__ import annotations

import gzip
import json
import lzma
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from abuse import forked
from answer.test_engines import model_folder
from litebert.base.errors import DataError, MissingExtraError
from litebert.parts import Part
from litebert.remote import reading, stores
from litebert.text.sources import Reading, read_documents
from toys.prepare import content
from toys.prepare import run as prepare
from toys.refusals import refused
from toys.s3 import SECRET, Fault, Store, forget_connections

Run = Callable[..., tuple[int, str, str]]
ROOT = "s3://texts/"


@pytest.fixture
def corpus(tiny_corpus: Path, tmp_path: Path, store: Store) -> Path:
    """Files of all kinds, here and below `corpus/` in the store."""
    folder = tmp_path / "corpus"
    (folder / "more").mkdir(parents=True)
    texts = tiny_corpus.read_text().strip().split("\n\n")
    (folder / "a.txt").write_text("\n\n".join(texts[:50]))
    (folder / "b.txt.gz").write_bytes(gzip.compress("\n\n".join(texts[50:80]).encode()))
    (folder / "c.txt.xz").write_bytes(lzma.compress("\n\n".join(texts[80:90]).encode()))
    with pa.CompressedOutputStream(str(folder / "d.txt.zst"), "zstd") as file:
        file.write("\n\n".join(texts[90:100]).encode())
    (folder / "a").mkdir()
    (folder / "a" / "z.txt").write_text("sorted before a.txt")
    rows = "".join(json.dumps({"text": text}) + "\n" for text in texts[100:120])
    (folder / "more" / "e.jsonl").write_text(rows)
    pq.write_table(pa.table({"text": texts[120:150]}), folder / "more" / "f.parquet")
    (folder / "more" / "picture.png").write_bytes(b"not text")
    (folder / ".hidden.txt").write_text("no")
    put_folder(store, folder, "corpus/")
    return folder


def put_folder(store: Store, folder: Path, prefix: str) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            store.put(f"{prefix}{path.relative_to(folder)}", path.read_bytes())


def read(*sources: object, part: Part | None = None) -> list[str]:
    return [document.text for document in read_documents([*map(str, sources)], part=part)]


def test_a_folder_reads_as_on_the_disk(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "BLOCK", 5000)
    local, remote = Reading(), Reading()
    expected = list(read_documents([str(corpus)], local))
    documents = list(read_documents([f"{ROOT}corpus"], remote))
    assert [document.text for document in documents] == [document.text for document in expected]
    assert remote.tally.to_dict() == local.tally.to_dict()
    assert documents[0].source == f"{ROOT}corpus/a/z.txt:1"
    assert remote.meter.total == local.meter.total


def test_a_name_with_the_marks_of_a_pattern_is_read(store: Store) -> None:
    store.put("texts/a [1].txt", b"A text of its own.")
    assert read(f"{ROOT}texts/a [1].txt") == ["A text of its own."]


def test_a_url_of_a_local_file_is_refused(tmp_path: Path) -> None:
    with refused(DataError, "give its path without file://"):
        read(f"file://{tmp_path}")


@pytest.mark.thorough
def test_files_patterns_and_parts_read_as_on_the_disk(corpus: Path) -> None:
    assert read(f"{ROOT}corpus/b.txt.gz") == read(corpus / "b.txt.gz")
    assert read(f"{ROOT}corpus/*.txt*") == read(f"{corpus}/*.txt*")
    for number in (1, 2, 3):
        part = Part(number, 3)
        assert read(f"{ROOT}corpus", part=part) == read(corpus, part=part)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["slow", "cut", "short", "busy", "reset"])
def test_a_fault_of_the_network_changes_no_text(
    corpus: Path, store: Store, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Neither is a body that ends early the end of the text, nor is any of it read twice."""
    monkeypatch.setattr(reading, "BLOCK", 5000)
    expected = read(corpus / "a.txt")
    store.faults = [Fault(kind, 1 if kind == "slow" else 4), Fault("busy", 2, "HEAD")]
    assert read(f"{ROOT}corpus/a.txt") == expected
    assert store.faults[0].times == 0, "the faults happened"


@pytest.mark.thorough
def test_a_lasting_fault_ends_in_a_sentence(
    store: Store, run: Run, tmp_path: Path, tiny_tokenizer: Path
) -> None:
    store.put("corpus/a.txt", b"some text " * 100)
    words = ("prepare", f"{ROOT}corpus/a.txt", "--tokenizer", tiny_tokenizer, "--out")
    for kind in ("busy", "reset", "cut"):
        store.faults = [Fault(kind, -1, part="a.txt")]
        status, _, err = run(*words, tmp_path / kind)
        assert status == 2
        assert f"{ROOT}corpus/a.txt" in err
        assert len(err.strip().split("\n")) == 1, err
        assert SECRET not in err


@pytest.mark.thorough
def test_a_file_that_is_replaced_while_it_is_read_is_refused(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "BLOCK", 1 << 19)
    store.put("a.txt", b"old line\n" * 300_000)

    def replace(texts: Iterator[object]) -> None:
        next(texts)
        store.put("a.txt", b"new line\n" * 300_000)
        for _ in texts:
            pass

    with refused(DataError, f"{ROOT}a.txt"):
        replace(iter(read_documents([f"{ROOT}a.txt"], Reading(split="line"))))


@pytest.mark.thorough
def test_memory_is_a_few_blocks(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "BLOCK", 1000)
    store.put("a.txt", b"x" * 20_000)
    with reading.StoreFile(f"{ROOT}a.txt") as file:
        while file.read(100):
            assert len(file._blocks) <= 2
    gets = [request for request in store.requests if request.startswith("GET /texts/a.txt")]
    assert len(gets) == 20, "every byte is fetched once"


@pytest.mark.thorough
@pytest.mark.parametrize(
    "source", [f"{ROOT}none.txt", f"{ROOT}none/*.txt", "s3://no-such-bucket/a.txt"]
)
def test_what_does_not_exist_is_named(store: Store, source: str) -> None:
    with refused(DataError, source):
        read(source)


@pytest.mark.thorough
def test_a_folder_without_text_says_what_it_holds(store: Store) -> None:
    store.put("corpus/a.png", b"")
    with refused(DataError, f"{ROOT}corpus", ".png (1)"):
        read(f"{ROOT}corpus")


def test_a_machine_without_credentials_is_told_so(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    forget_connections()
    with refused(DataError, f"{ROOT}a.txt", "credentials"):
        read(f"{ROOT}a.txt")
    forget_connections()


def test_secrets_of_a_name_are_in_no_message(store: Store) -> None:
    for source in ("s3://me:hush@texts/a.txt", "foo://x/a.txt?signature=hush"):
        with pytest.raises(DataError) as caught:
            read(source)
        assert "hush" not in str(caught.value)
        assert caught.value.__cause__ is None


def test_a_missing_library_is_named(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    import fsspec.core

    def fail(*arguments: object, **options: object) -> None:
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr(fsspec.core, "url_to_fs", fail)
    with refused(MissingExtraError, "s3fs", "'litebert[remote]'"):
        read(f"{ROOT}a.txt")
    with refused(DataError, "gs://", "s3fs"):
        read("gs://bucket/a.txt")


def test_any_store_of_fsspec_is_read() -> None:
    stores.write_file("memory://corpus/a.txt", b"one\n\ntwo\n")
    assert read("memory://corpus") == ["one", "two"]
    assert read("memory://corpus/a.txt") == ["one", "two"]


class Watch:
    """An importer that refuses what speaks to stores."""

    def find_spec(self, name: str, *rest: object) -> None:
        if name.split(".")[0] in ("s3fs", "aiohttp", "botocore"):
            raise AssertionError(f"{name} is imported")


def forbid_stores() -> None:
    sys.meta_path.insert(0, Watch())


@pytest.mark.thorough
def test_without_a_url_no_store_is_imported(tmp_path: Path, tiny_tokenizer: Path) -> None:
    """`torch` and `huggingface_hub` import parts of `fsspec`, and none of its stores."""
    (tmp_path / "a.txt").write_text("some text\n\nmore text\n")

    words = ["prepare", "a.txt", "--tokenizer", str(tiny_tokenizer), "--out", "data"]
    ended = forked.run(words, tmp_path, before=forbid_stores)
    assert ended.status == 0, ended.err


@pytest.mark.thorough
def test_a_tokenizer_is_trained_on_text_in_a_store(corpus: Path, run: Run, tmp_path: Path) -> None:
    options = ("--kind", "wordpiece", "--vocab-size", "300", "--out")
    assert run("tokenizer", "train", corpus, *options, tmp_path / "here")[0] == 0
    assert run("tokenizer", "train", f"{ROOT}corpus", *options, tmp_path / "there")[0] == 0
    local, remote = (
        (tmp_path / name / "tokenizer.json").read_bytes() for name in ("here", "there")
    )
    assert local == remote


def test_a_set_is_that_of_the_same_text_on_the_disk(
    corpus: Path, tiny_tokenizer: Path, tmp_path: Path
) -> None:
    """And a source that was replaced is noticed."""
    prepare(corpus, tmp_path / "local", tiny_tokenizer)
    prepare(f"{ROOT}corpus", tmp_path / "remote", tiny_tokenizer)
    local, remote = content(tmp_path / "local"), content(tmp_path / "remote")
    indexes = [json.loads(files.pop("index.json")) for files in (local, remote)]
    assert remote == local
    assert indexes[1]["settings"].pop("sources") == [f"{ROOT}corpus"]
    for index in indexes:
        index["settings"].pop("files")
        index["settings"].pop("sources", None)
    assert indexes[0] == indexes[1]


@pytest.mark.thorough
def test_a_source_that_was_replaced_is_noticed(
    store: Store, tiny_corpus: Path, tiny_tokenizer: Path, tmp_path: Path
) -> None:
    text = tiny_corpus.read_bytes()
    store.put("a.txt", text)
    prepare(f"{ROOT}a.txt", tmp_path / "data", tiny_tokenizer)
    prepare(f"{ROOT}a.txt", tmp_path / "data", tiny_tokenizer)
    store.put("a.txt", text[:-100] + text[-100:].swapcase())
    with refused(DataError, tmp_path / "data", "text"):
        prepare(f"{ROOT}a.txt", tmp_path / "data", tiny_tokenizer)


@pytest.mark.thorough
def test_rows_in_a_store_are_answered(
    store: Store, tiny_tokenizer: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_folder(tmp_path / "model", tiny_tokenizer, "classes")
    rows = b"text,n\n" + b"".join(b"a row of text,%d\n" % number for number in range(50))
    table = pa.table({"text": ["some text"] * 30, "n": list(range(30))})
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "a.csv").write_bytes(rows)
    pq.write_table(table, tmp_path / "rows" / "b.parquet")
    put_folder(store, tmp_path / "rows", "rows/")
    words = ("--out", tmp_path / "local.csv", "--keep", "n")
    assert run("predict", model, "--input", tmp_path / "rows", *words)[0] == 0
    words = ("--out", tmp_path / "remote.csv", "--keep", "n")
    assert run("predict", model, "--input", f"{ROOT}rows", *words)[0] == 0
    expected = (tmp_path / "local.csv").read_text().replace(f"{tmp_path}/", ROOT)
    assert (tmp_path / "remote.csv").read_text() == expected
    for source, out in ((f"{ROOT}none.csv", "x.csv"), (f"{ROOT}rows/a.csv", f"{ROOT}rows/a.csv")):
        status, _, err = run("predict", model, "--input", source, "--out", out)
        assert status == 2
        assert len(err.strip().split("\n")) == 1, err
