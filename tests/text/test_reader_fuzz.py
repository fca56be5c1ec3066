"""Any bytes in a file of any kind give documents or one error of ours that names the file, and
nothing else.
"""

from __future__ import annotations

import gzip
import io
import json
import lzma
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from litebert.base.errors import DataError
from litebert.text.sources import Reading, read_documents
from toys.refusals import names

SUFFIXES = (
    *(".txt", ".md", ".html", ".jsonl", ".csv", ".tsv", ".parquet"),
    *(".gz", ".xz", ".zst", ".jsonl.gz", ".csv.zst"),
)


def table() -> bytes:
    held = io.BytesIO()
    pq.write_table(pa.table({"text": ["One.", "Two.", None], "id": [1, 2, 3]}), held)
    return held.getvalue()


WHOLE = (
    'id,text\n1,"Où, là."\n2,two\n'.encode(),
    b'id\ttext\n1\tOne\n2\ttwo "half\n',
    (json.dumps({"text": "One \ud83d.", "more": [[{}]]}) + '\n{"text": null}\n').encode(),
    b"<html><meta charset=latin-1><h1>A</h1><p>b<b>c</b><table><td>d<!-- e --><![CDATA[f]]>",
    b'# A *b*\n\n- c `d`\n> e\n\n|f|g|\n|-|-|\n|h|i|\n\n[j]: <k> "l"\n![m][j] &amp; &#0;\n',
    "One.\n\nTwo.".encode("utf-16"),
    table(),
)
PACKED = tuple(
    pack(data)
    for data in WHOLE
    for pack in (
        gzip.compress,
        lzma.compress,
        lambda data: bytes(pa.compress(data, "zstd", asbytes=True)),
    )
)


@st.composite
def damage_file(draw: st.DrawFn) -> bytes:
    """A file that was whole, with some bytes changed, lost or put in."""
    data = draw(st.sampled_from(WHOLE + PACKED))
    for _ in range(draw(st.integers(0, 3))):
        place = draw(st.integers(0, len(data)))
        data = data[:place] + draw(st.binary(max_size=4)) + data[place + draw(st.integers(0, 4)) :]
    return data


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


@settings(
    max_examples=150,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    data=st.one_of(st.binary(max_size=300), damage_file()),
    split=st.sampled_from(("blank-line", "file", "line")),
    strip=st.booleans(),
    unwrap=st.booleans(),
)
def test_any_bytes(
    folder: Path,
    data: bytes,
    split: Literal["blank-line", "file", "line"],
    strip: bool,
    unwrap: bool,
) -> None:
    for suffix in SUFFIXES:
        path = folder / f"a{suffix}"
        path.write_bytes(data)
        reading = Reading(
            split=split, markup="strip" if strip else "keep", unwrap=unwrap and split != "line"
        )
        try:
            documents = list(read_documents([str(path)], reading))
        except DataError as error:
            names(str(error), path)
            continue
        assert documents
        assert all(document.text.strip() == document.text != "" for document in documents)
        b"".join(document.text.encode() for document in documents)


@pytest.mark.parametrize(
    "markup", [b"<div>" * 5_000, b"<b><p>" * 5_000, b"<table><tr><td>" * 5_000]
)
def test_pages_nested_deeply(tmp_path: Path, markup: bytes) -> None:
    path = tmp_path / "a.html"
    path.write_bytes(markup + b"Deep.")
    assert [document.text for document in read_documents([str(path)], Reading(markup="strip"))] == [
        "Deep."
    ]


@pytest.mark.parametrize("markup", [b"> " * 5_000, b"[" * 2_000, b"- " * 1_000, b"*a " * 2_000])
def test_markdown_nested_deeply(tmp_path: Path, markup: bytes) -> None:
    path = tmp_path / "a.md"
    for content in (markup + b"deep.", markup[:60] + b"deep."):
        path.write_bytes(content)
        try:
            (document,) = read_documents([str(path)], Reading(markup="strip"))
        except DataError as error:
            names(str(error), path)
        else:
            assert document.text.endswith("deep.")
    assert document.text, "what is nested a little is read"
