"""Shards: what is written is what pyarrow alone and the views read, and nothing but a whole set
opens.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litebert.base.errors import DataError
from litebert.data import dealing, shard_files
from litebert.data import shards as disk
from litebert.data.encoding import Encoded, choose_id_type
from litebert.data.shard_files import read_blocks, write_shard
from litebert.data.shards import INDEX, Shards, Split
from toys.prepare import needs_proc
from toys.prepare import run as prepare
from toys.refusals import refused

Documents = list[list[list[int]]]
"""Ids of sentences of documents."""

DOCUMENTS: Documents = [[[7, 8, 9], [10]], [[11, 12]], [[5], [6], [7, 7, 7]], [[300] * 40, [301]]]


def encode(documents: Sequence[Sequence[Sequence[int]]], vocab_size: int) -> Encoded:
    sentences = [sentence for document in documents for sentence in document]
    return Encoded(
        np.array([i for sentence in sentences for i in sentence], choose_id_type(vocab_size)),
        np.array([len(sentence) for sentence in sentences], np.int32),
        np.array([len(document) for document in documents], np.int32),
    )


def pyarrow_alone(path: Path) -> Any:
    with pa.OSFile(str(path)) as file:
        return pa.ipc.open_file(file).read_all()


def as_lists(split: Split) -> Documents:
    documents = []
    for number in range(split.documents):
        ids, starts = split.read_document(number)
        documents.append([part.tolist() for part in np.split(ids, starts[1:-1])])
    return documents


# ------------------------------------------------------------------------------ writing and reading


@settings(max_examples=60)
@given(
    chunks=st.lists(
        st.lists(
            st.lists(
                st.lists(st.integers(0, 65_535), min_size=1, max_size=6), min_size=1, max_size=4
            ),
            max_size=5,
        ),
        min_size=1,
        max_size=5,
    ),
    large=st.booleans(),
    batch_tokens=st.sampled_from([1, 7, 1 << 24]),
)
def test_round_trip(chunks: list[Documents], large: bool, batch_tokens: int) -> None:
    shift, vocab_size = (100_000, 200_000) if large else (0, 65_536)
    chunks = [
        [[[i + shift for i in sentence] for sentence in doc] for doc in chunk] for chunk in chunks
    ]
    wanted = [document for chunk in chunks for document in chunk]
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(shard_files, "BATCH_TOKENS", batch_tokens)
        path = Path(folder) / "train-00000.arrow"
        write_shard(path, [encode(chunk, vocab_size) for chunk in chunks], vocab_size)
        table = pyarrow_alone(path)
        assert table.schema.names == ["sentences"]
        assert table.schema.types == [pa.list_(pa.list_(pa.uint32() if large else pa.uint16()))]
        assert table.column("sentences").to_pylist() == wanted
        split = Split(read_blocks(path))
        assert as_lists(split) == wanted
        assert split.documents == len(wanted)
        assert split.sentences == sum(map(len, wanted))
        assert split.tokens == sum(len(sentence) for document in wanted for sentence in document)
        assert split.document_tokens.tolist() == [sum(map(len, document)) for document in wanted]
        assert split.document_sentences.tolist() == [len(document) for document in wanted]


def test_views_lie_in_the_mapped_file(tmp_path: Path) -> None:
    path = tmp_path / "a.arrow"
    long = [[[i % 1000] * 100 for i in range(100)] for _ in range(100)]
    write_shard(path, [encode(long, 1000)], 1000)
    before = pa.total_allocated_bytes()
    split = Split(read_blocks(path))
    views = [split.read_document(number)[0] for number in range(split.documents)]
    assert pa.total_allocated_bytes() - before < 10_000, "a copy would take two megabytes"
    assert not any(view.flags.owndata or view.flags.writeable for view in views)
    assert {view.dtype.name for view in views} == {"uint16"}
    assert np.shares_memory(views[3], split.read_document(3)[0])
    first, second = (view.__array_interface__["data"][0] for view in views[:2])
    assert second == first + views[0].nbytes, "documents lie next to each other"
    ids, starts = split.read_document(99)
    assert starts.dtype == np.int64
    assert (starts[0], starts[-1]) == (0, len(ids))


def test_documents_are_numbered_through_all_shards(tmp_path: Path) -> None:
    blocks = []
    for number, documents in enumerate((DOCUMENTS[:2], [], DOCUMENTS[2:])):
        write_shard(tmp_path / f"{number}.arrow", [encode(documents, 400)], 400)
        blocks += read_blocks(tmp_path / f"{number}.arrow")
    split = Split(blocks)
    assert as_lists(split) == DOCUMENTS
    for outside in (-1, split.documents):
        with pytest.raises(IndexError, match=f"document {outside} of 4"):
            split.read_document(outside)
    nothing = Split([])
    assert nothing.documents == nothing.sentences == nothing.tokens == 0
    assert len(nothing.document_tokens) == 0


# -------------------------------------------------------------------------------------------- a set


@pytest.fixture
def data(tiny_data: Path, tmp_path: Path) -> Path:
    """A set that a test may damage."""
    return Path(shutil.copytree(tiny_data, tmp_path / "data"))


def test_open(tiny_data: Path) -> None:
    shards = Shards.open(tiny_data, verify=True)
    for split, name in ((shards.train, "train"), (shards.heldout, "heldout")):
        table = pyarrow_alone(tiny_data / f"{name}-00000.arrow")
        assert as_lists(split) == table.column(0).to_pylist()
    index = json.loads((tiny_data / INDEX).read_text())
    assert shards.tokenizer.fingerprint == index["tokenizer"]["fingerprint"]
    assert shards.path == tiny_data


def test_folders_that_are_no_set(tmp_path: Path, data: Path) -> None:
    with refused(DataError, tmp_path / "no"):
        Shards.open(tmp_path / "no")
    (data / INDEX).unlink()
    with refused(DataError, data, INDEX):
        Shards.open(data)


@pytest.mark.parametrize("name", ["train-00000.arrow", "heldout-00000.arrow"])
def test_a_shard_that_is_missing_or_of_another_size(data: Path, name: str) -> None:
    path = data / name
    content = path.read_bytes()
    for cut in (content[:-1], b""):
        path.write_bytes(cut)
        with refused(DataError, path, len(cut), len(content)):
            Shards.open(data)
    path.unlink()
    with refused(DataError, path):
        Shards.open(data)


def test_flipped_bytes_are_found_on_request(data: Path) -> None:
    path = data / "train-00000.arrow"
    content = path.read_bytes()
    for at in (0, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        with refused(DataError, path, "sha256"):
            Shards.open(data, verify=True)
    path.write_bytes(content)
    Shards.open(data, verify=True)


def test_a_shard_of_the_right_size_that_is_no_shard(data: Path) -> None:
    path = data / "train-00000.arrow"
    size = path.stat().st_size
    path.write_bytes(bytes(size))
    with refused(DataError, path, "Arrow"):
        Shards.open(data)


@pytest.mark.parametrize(
    ("table", "wrong"),
    [
        (pa.table({"text": ["a"]}), "sentences"),
        (pa.table({"sentences": [[[1, 2]]]}), "sentences"),  # int64
        (
            pa.table({"sentences": pa.array([[[1, None]]], pa.list_(pa.list_(pa.uint16())))}),
            "nulls",
        ),
        (pa.table({"sentences": pa.array([[None]], pa.list_(pa.list_(pa.uint16())))}), "nulls"),
        (pa.table({"sentences": pa.array([None], pa.list_(pa.list_(pa.uint16())))}), "nulls"),
    ],
)
def test_arrow_files_that_hold_something_else(tmp_path: Path, table: Any, wrong: str) -> None:
    path = tmp_path / "a.arrow"
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    with refused(DataError, path, wrong):
        read_blocks(path)


def edit(change: Callable[[dict[str, Any]], Any]) -> Callable[[str], str]:
    def edit_index(text: str) -> str:
        index = json.loads(text)
        change(index)
        return json.dumps(index)

    return edit_index


@pytest.mark.parametrize(
    ("change", "place", "names"),
    [
        (lambda text: text[: len(text) // 2], INDEX, []),
        (lambda text: "", INDEX, []),
        (lambda text: "\xff\xfe", INDEX, []),
        (lambda text: "[]", INDEX, []),
        (edit(lambda index: index.pop("unigram_entropy")), INDEX, ["unigram_entropy"]),
        (edit(lambda index: index.pop("shards")), INDEX, ["shards"]),
        (edit(lambda index: index["shards"][0].pop("sha256")), INDEX, ["sha256"]),
        (edit(lambda index: index.update(format=99)), INDEX, ["format 99", 1]),
        (edit(lambda index: index["shards"][0].update(tokens=3)), INDEX, ["3 tokens", "train"]),
        (
            edit(lambda index: index["shards"][0].update(documents=1)),
            INDEX,
            ["1 documents", "train"],
        ),
        (edit(lambda index: index["tokenizer"].update(fingerprint="0")), "tokenizer", []),
    ],
)
def test_a_bad_index(
    data: Path, change: Callable[[str], str], place: str, names: list[object]
) -> None:
    path = data / INDEX
    path.write_text(change(path.read_text()), encoding="latin-1")
    with refused(DataError, data / place, *names):
        Shards.open(data)


def test_the_tokenizer_is_missing(data: Path) -> None:
    shutil.rmtree(data / "tokenizer")
    with refused(DataError, data / "tokenizer"):
        Shards.open(data)


# ---------------------------------------------------------------------------------- many shards


@pytest.fixture
def many(tiny_corpus: Path, tiny_tokenizer: Path, tmp_path: Path) -> Path:
    """A set of a dozen shards of several record batches."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shard_files, "BATCH_TOKENS", 800)
        patch.setattr(dealing, "CHUNK_BYTES", 500)
        prepare(tiny_corpus, tmp_path / "many", tiny_tokenizer, shard_bytes=5000)
    return tmp_path / "many"


def test_shards_that_are_opened_when_they_are_read(
    many: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    eager = Shards.open(many)
    monkeypatch.setattr(shard_files, "BATCH_TOKENS", 800)
    monkeypatch.setattr(disk, "MOST_AT_ONCE", 3)
    monkeypatch.setattr(disk, "MOST_OPEN", 2)
    opened: list[str] = []
    read = shard_files.read_blocks

    def note_and_read(path: Path) -> Any:
        opened.append(path.name)
        return read(path)

    lazy = Shards.open(many)
    monkeypatch.setattr(shard_files, "read_blocks", note_and_read)
    order = np.random.default_rng(1).integers(0, eager.train.documents, 300)
    for before, now in ((eager.train, lazy.train), (eager.heldout, lazy.heldout)):
        assert as_lists(now) == as_lists(before)
        for unit in ("documents", "sentences", "tokens"):
            assert getattr(now, unit) == getattr(before, unit)
        assert now.document_tokens.tolist() == before.document_tokens.tolist()
        assert now.document_sentences.tolist() == before.document_sentences.tolist()
    some, same = lazy.train.read(order), eager.train.read(order)
    assert some.tokens.tolist() == same.tokens.tolist()
    assert some.sentences.tolist() == same.sentences.tolist()
    segments = zip(
        lazy.train.read_segments("sentence"), eager.train.read_segments("sentence"), strict=True
    )
    for (ids, starts), (expected_ids, expected_starts) in segments:
        assert ids.tolist() == expected_ids.tolist()
        assert starts.tolist() == expected_starts.tolist()
    assert len(set(opened)) > 5


def test_an_index_that_miscounts_a_shard_is_refused_where_it_is_read(
    many: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = json.loads((many / INDEX).read_text())
    entry = index["shards"][2]
    entry["documents"] += 1
    (many / INDEX).write_text(json.dumps(index))
    with refused(DataError, many / INDEX):
        Shards.open(many)
    monkeypatch.setattr(disk, "MOST_AT_ONCE", 3)
    monkeypatch.setattr(shard_files, "BATCH_TOKENS", 800)
    with refused(DataError, many / INDEX, entry["file"], entry["documents"]):
        _ = Shards.open(many).train.document_tokens


OPENED = """
import sys, time
from pathlib import Path
from litebert.data.shards import Shards

def read_peak():
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])

before, start = read_peak(), time.perf_counter()
split = Shards.open(sys.argv[1]).train
seconds = time.perf_counter() - start
print(split.documents, seconds, read_peak() - before)
"""


@pytest.mark.thorough
@needs_proc
def test_ten_thousand_shards_open_in_two_seconds_and_200_mb(
    tiny_data: Path, tmp_path: Path
) -> None:
    data = Path(shutil.copytree(tiny_data, tmp_path / "data"))
    index = json.loads((data / INDEX).read_text())
    entry = next(entry for entry in index["shards"] if entry["split"] == "train")
    for number in range(1, 10_000):
        name = f"train-{number:05d}.arrow"
        os.link(data / entry["file"], data / name)
        index["shards"].append({**entry, "file": name})
    (data / INDEX).write_text(json.dumps(index))
    command = [sys.executable, "-c", OPENED, str(data)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    assert int(output[0]) == 10_000 * entry["documents"]
    assert float(output[1]) < 2
    assert int(output[2]) < 200_000, "kilobytes"
