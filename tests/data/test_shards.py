"""Shards: what is written is what pyarrow alone and the views read, and nothing but a whole set opens."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litebert.data import shards as disk
from litebert.data.encoding import Encoded, id_type
from litebert.data.shards import INDEX, Shards, Split, read_blocks, write_shard
from litebert.errors import DataError

Documents = list[list[list[int]]]
"""Ids of sentences of documents."""

DOCUMENTS: Documents = [[[7, 8, 9], [10]], [[11, 12]], [[5], [6], [7, 7, 7]], [[300] * 40, [301]]]


def encoded(documents: Sequence[Sequence[Sequence[int]]], vocab_size: int) -> Encoded:
    sentences = [sentence for document in documents for sentence in document]
    return Encoded(
        np.array([i for sentence in sentences for i in sentence], id_type(vocab_size)),
        np.array([len(sentence) for sentence in sentences], np.int32),
        np.array([len(document) for document in documents], np.int32),
    )


def pyarrow_alone(path: Path) -> Any:
    with pa.OSFile(str(path)) as file:
        return pa.ipc.open_file(file).read_all()


def as_lists(split: Split) -> Documents:
    found = []
    for number in range(split.documents):
        ids, starts = split.sentences_of(number)
        found.append([part.tolist() for part in np.split(ids, starts[1:-1])])
    return found


# ---- writing and reading -------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=60)
@given(
    chunks=st.lists(
        st.lists(
            st.lists(st.lists(st.integers(0, 65_535), min_size=1, max_size=6), min_size=1, max_size=4), max_size=5
        ),
        min_size=1,
        max_size=5,
    ),
    large=st.booleans(),
    batch_tokens=st.sampled_from([1, 7, 1 << 24]),
)
def test_round_trip(chunks: list[Documents], large: bool, batch_tokens: int) -> None:
    shift, vocab_size = (100_000, 200_000) if large else (0, 65_536)
    chunks = [[[[i + shift for i in sentence] for sentence in doc] for doc in chunk] for chunk in chunks]
    wanted = [document for chunk in chunks for document in chunk]
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(disk, "_BATCH_TOKENS", batch_tokens)
        path = Path(folder) / "train-00000.arrow"
        write_shard(path, [encoded(chunk, vocab_size) for chunk in chunks], vocab_size)
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


def test_ids_take_four_bytes_only_where_the_vocabulary_needs_them() -> None:
    assert id_type(65_536) is np.uint16
    assert id_type(65_537) is np.uint32


def test_views_lie_in_the_mapped_file(tmp_path: Path) -> None:
    path = tmp_path / "a.arrow"
    long = [[[i % 1000] * 100 for i in range(100)] for _ in range(100)]
    write_shard(path, [encoded(long, 1000)], 1000)
    before = pa.total_allocated_bytes()
    split = Split(read_blocks(path))
    views = [split.sentences_of(number)[0] for number in range(split.documents)]
    assert pa.total_allocated_bytes() - before < 10_000, "a copy would take two megabytes"
    assert all(not view.flags.owndata and not view.flags.writeable and view.dtype == np.uint16 for view in views)
    assert np.shares_memory(views[3], split.sentences_of(3)[0])
    first = views[0].__array_interface__["data"][0]
    assert views[1].__array_interface__["data"][0] == first + views[0].nbytes, "documents lie next to each other"
    ids, starts = split.sentences_of(99)
    assert starts.dtype == np.int64
    assert (starts[0], starts[-1]) == (0, len(ids))


def test_documents_are_numbered_through_all_shards(tmp_path: Path) -> None:
    blocks = []
    for number, documents in enumerate((DOCUMENTS[:2], [], DOCUMENTS[2:])):
        write_shard(tmp_path / f"{number}.arrow", [encoded(documents, 400)], 400)
        blocks += read_blocks(tmp_path / f"{number}.arrow")
    split = Split(blocks)
    assert as_lists(split) == DOCUMENTS
    for outside in (-1, split.documents):
        with pytest.raises(IndexError, match=f"document {outside} of 4"):
            split.sentences_of(outside)
    nothing = Split([])
    assert (nothing.documents, nothing.sentences, nothing.tokens, len(nothing.document_tokens)) == (0, 0, 0, 0)


# ---- a set ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def data(tiny_data: Path, tmp_path: Path) -> Path:
    """A set that a test may damage."""
    return Path(shutil.copytree(tiny_data, tmp_path / "data"))


def test_open(tiny_data: Path) -> None:
    shards = Shards.open(tiny_data, verify=True)
    tables = {name: pyarrow_alone(tiny_data / f"{name}-00000.arrow") for name in ("train", "heldout")}
    assert as_lists(shards.train) == tables["train"].column(0).to_pylist()
    assert as_lists(shards.heldout) == tables["heldout"].column(0).to_pylist()
    index = json.loads((tiny_data / INDEX).read_text())
    assert shards.tokenizer.fingerprint == index["tokenizer"]["fingerprint"]
    assert shards.path == tiny_data


def test_fingerprint_is_that_of_the_index(data: Path) -> None:
    before = Shards.open(data).fingerprint
    assert Shards.open(str(data)).fingerprint == before
    index = data / INDEX
    index.write_bytes(index.read_bytes() + b"\n")
    assert Shards.open(data).fingerprint != before


def fails(folder: Path, verify: bool = False) -> str:
    with pytest.raises(DataError) as error:
        Shards.open(folder, verify=verify)
    message = str(error.value)
    assert "\n" not in message
    return message


def test_folders_that_are_no_set(tmp_path: Path, data: Path) -> None:
    assert fails(tmp_path / "no") == f"{tmp_path}/no does not exist; make it with litebert prepare"
    (data / INDEX).unlink()
    assert fails(data) == f"{data} holds no index.json, so it is no whole set; run litebert prepare to its end"


@pytest.mark.parametrize("name", ["train-00000.arrow", "heldout-00000.arrow"])
def test_a_shard_that_is_missing_or_of_another_size(data: Path, name: str) -> None:
    path = data / name
    content = path.read_bytes()
    path.write_bytes(content[:-1])
    assert fails(data) == f"{path} has {len(content) - 1} bytes, not {len(content)}; prepare the data again"
    path.write_bytes(b"")
    assert fails(data).startswith(f"{path} has 0 bytes")
    path.unlink()
    assert fails(data) == f"{path} is missing; prepare the data again"


def test_flipped_bytes_are_found_on_request(data: Path) -> None:
    path = data / "train-00000.arrow"
    content = path.read_bytes()
    for at in (0, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        assert fails(data, verify=True) == (f"{path} has changed since it was written (sha256); prepare the data again")
    path.write_bytes(content)
    Shards.open(data, verify=True)


def test_a_shard_of_the_right_size_that_is_no_shard(data: Path) -> None:
    path = data / "train-00000.arrow"
    size = path.stat().st_size
    path.write_bytes(bytes(size))
    assert fails(data).startswith(f"{path} is not a readable Arrow file")


@pytest.mark.parametrize(
    ("table", "wrong"),
    [
        (pa.table({"text": ["a"]}), "holds no column sentences"),
        (pa.table({"sentences": [[[1, 2]]]}), "holds no column sentences"),  # int64
        (pa.table({"sentences": pa.array([[[1, None]]], pa.list_(pa.list_(pa.uint16())))}), "holds nulls"),
        (pa.table({"sentences": pa.array([[None]], pa.list_(pa.list_(pa.uint16())))}), "holds nulls"),
        (pa.table({"sentences": pa.array([None], pa.list_(pa.list_(pa.uint16())))}), "holds nulls"),
    ],
)
def test_arrow_files_that_hold_something_else(tmp_path: Path, table: Any, wrong: str) -> None:
    path = tmp_path / "a.arrow"
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    with pytest.raises(DataError, match=f"^{path} {wrong}"):
        read_blocks(path)


def edit(change: Callable[[dict[str, Any]], Any]) -> Callable[[str], str]:
    def edited(text: str) -> str:
        index = json.loads(text)
        change(index)
        return json.dumps(index)

    return edited


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        (lambda text: text[: len(text) // 2], "index.json is not valid JSON"),
        (lambda text: "", "index.json is not valid JSON"),
        (lambda text: "\xff\xfe", "index.json is not valid JSON"),
        (lambda text: "[]", "index.json must hold a JSON object"),
        (edit(lambda index: index.pop("unigram_entropy")), "index.json is damaged (KeyError: 'unigram_entropy')"),
        (edit(lambda index: index.pop("shards")), "index.json is damaged (KeyError: 'shards')"),
        (edit(lambda index: index["shards"][0].pop("sha256")), "index.json is damaged (TypeError"),
        (edit(lambda index: index.update(format=99)), "index.json has format 99, and this litebert reads 1"),
        (edit(lambda index: index["shards"][0].update(tokens=3)), "index.json counts 3 tokens in the train shards"),
        (edit(lambda index: index["shards"][0].update(documents=1)), "index.json counts 1 documents in the train"),
        (edit(lambda index: index["tokenizer"].update(fingerprint="0")), "tokenizer is not the tokenizer of these"),
    ],
)
def test_a_bad_index(data: Path, change: Callable[[str], str], wrong: str) -> None:
    path = data / INDEX
    path.write_text(change(path.read_text()), encoding="latin-1")
    assert f"{data}/{wrong}" in fails(data)


def test_the_tokenizer_is_missing(data: Path) -> None:
    shutil.rmtree(data / "tokenizer")
    assert f"{data / 'tokenizer'}" in fails(data)
