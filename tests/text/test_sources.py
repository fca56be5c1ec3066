"""Sources to documents to sentences: every kind of source, and every kind of bad one with the place
it is bad at.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import lzma
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from litebert.base.errors import DataError
from litebert.text import sources as corpus
from litebert.text.files import expand
from litebert.text.lines import BLOCK, Meter
from litebert.text.sources import MAX_DOCUMENT, Reading, read_documents
from toys.refusals import refused

TEXTS = [
    "The first text.\nIt has two lines.",
    "Où est le café? 我们学习语言。",
    "The third, with a tab\tand “quotes”.",
]
PLAIN = "\n\n".join(TEXTS) + "\n"


def read(*sources: Any, **options: Any) -> list[str]:
    return [
        document.text
        for document in read_documents([str(source) for source in sources], Reading(**options))
    ]


def places(source: Path, **options: Any) -> list[str]:
    return [
        document.source.removeprefix(f"{source}:")
        for document in read_documents([str(source)], Reading(**options))
    ]


def zstd(data: bytes) -> bytes:
    return bytes(pa.compress(data, "zstd", asbytes=True))


def write_file(path: Path, content: bytes | str) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


# ------------------------------------------------------------------------------------- what is read


def as_csv(texts: list[str], field: str = "text") -> str:
    held = io.StringIO()
    rows = csv.writer(held)
    rows.writerows([["id", field], *enumerate(texts)])
    return held.getvalue()


@pytest.mark.parametrize(
    ("name", "pack"),
    [
        ("a.txt", bytes),
        ("a.md", bytes),
        ("no suffix", bytes),
        ("a.txt.gz", gzip.compress),
        ("two members.txt.gz", lambda data: gzip.compress(data[:30]) + gzip.compress(data[30:])),
        ("a.TXT.GZ", gzip.compress),
        ("a.xz", lzma.compress),
        ("a.txt.zst", zstd),
        ("two frames.zst", lambda data: b"".join(map(zstd, (data[:30], data[30:])))),
    ],
)
def test_plain_text_in_every_packing(
    tmp_path: Path, name: str, pack: Callable[[bytes], bytes]
) -> None:
    path = write_file(tmp_path / name, pack(PLAIN.encode()))
    assert read(path) == TEXTS
    assert places(path) == ["1", "4", "6"]


@pytest.mark.parametrize("name", ["a.jsonl", "a.ndjson", "a.jsonl.gz"])
def test_json_lines(tmp_path: Path, name: str) -> None:
    rows = [json.dumps({"id": i, "body": text}) for i, text in enumerate(TEXTS)]
    content = "\n".join([rows[0], "", rows[1], '{"body": null}', rows[2]]).encode()
    path = write_file(tmp_path / name, gzip.compress(content) if name.endswith("gz") else content)
    assert read(path, text_column="body") == TEXTS
    assert places(path, text_column="body") == ["1", "3", "5"]


def test_csv_with_quoted_commas_quotes_and_line_ends(tmp_path: Path) -> None:
    texts = ['A comma, and a "quote".', "Two\nlines.", "Plain."]
    path = write_file(tmp_path / "a.csv", as_csv(texts))
    assert read(path) == texts
    assert read(write_file(tmp_path / "a.csv.xz", lzma.compress(as_csv(texts).encode()))) == texts
    huge = "word " * 100_000  # beyond the default limit of Python's reader
    assert read(write_file(tmp_path / "huge.csv", as_csv([huge]))) == [huge.strip()]


def test_parquet(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": [1, 2, 3, 4], "text": [*TEXTS, None]}), path, row_group_size=2)
    meter = Meter()
    assert read(path, meter=meter) == TEXTS
    assert meter.read == meter.total == path.stat().st_size
    assert places(path) == ["1", "2", "3"]


def test_folder_is_read_sorted_and_passes_over_what_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / ".hidden").mkdir()
    write_file(tmp_path / "b.txt", "Second.")
    write_file(tmp_path / "a.md", "First.")
    write_file(tmp_path / "sub" / "c.txt.gz", gzip.compress(b"Third."))
    write_file(tmp_path / "picture.png", b"\x89PNG\0")
    write_file(tmp_path / ".hidden" / "d.txt", "Never.")
    assert read(tmp_path) == ["First.", "Second.", "Third."]


def test_glob_is_sorted_and_a_file_named_like_a_pattern_is_itself(tmp_path: Path) -> None:
    for name in ("2.txt", "1.txt", "3.log"):
        write_file(tmp_path / name, name)
    assert read(tmp_path / "*.txt") == ["1.txt", "2.txt"]
    assert read(tmp_path / "*") == ["1.txt", "2.txt", "3.log"]
    literal = write_file(tmp_path / "[1].txt", "Itself.")
    assert read(literal) == ["Itself."]
    assert read(tmp_path / "3.log", tmp_path / "1.txt") == ["3.log", "1.txt"], (
        "sources keep the order given"
    )


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(PLAIN.encode())))
    documents = list(read_documents(["-"]))
    assert [document.text for document in documents] == TEXTS
    assert [document.source for document in documents] == ["-:1", "-:4", "-:6"]
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"ab\xff")))
    with refused(DataError, "standard input:1", "0xff", "2 others"):
        read("-")


def test_folder_saved_by_datasets(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    data = datasets.Dataset.from_dict({"text": [*TEXTS, None], "id": [1, 2, 3, 4]})
    data.save_to_disk(str(tmp_path / "alone"))
    assert read(f"hf:{tmp_path}/alone") == TEXTS
    datasets.DatasetDict({"test": data.select([0]), "train": data}).save_to_disk(
        str(tmp_path / "dict")
    )
    assert read(f"hf:{tmp_path}/dict") == TEXTS
    datasets.DatasetDict({"one": data, "two": data}).save_to_disk(str(tmp_path / "no train"))
    with refused(DataError, f"hf:{tmp_path}/no train", "'train'", "one, two"):
        read(f"hf:{tmp_path}/no train")
    with refused(DataError, f"hf:{tmp_path}/alone", "'txt'", "'text'", "--text-column"):
        read(f"hf:{tmp_path}/alone", text_column="txt")
    with refused(DataError, f"hf:{tmp_path}/alone:1", "'id'", "int", "--text-column"):
        read(f"hf:{tmp_path}/alone", text_column="id")
    (tmp_path / "none").mkdir()
    with refused(DataError, f"hf:{tmp_path}/none"):
        read(f"hf:{tmp_path}/none")


# ---------------------------------------------------------------------------------- how it is split


def test_split_by_blank_line_file_or_line(tmp_path: Path) -> None:
    path = write_file(tmp_path / "a.txt", "\n\none\ntwo\n \t\n\nthree")
    assert (read(path), places(path)) == (["one\ntwo", "three"], ["3", "7"])
    assert (read(path, split="line"), places(path, split="line")) == (
        ["one", "two", "three"],
        ["3", "4", "7"],
    )
    assert read(path, split="file") == ["one\ntwo\n \t\n\nthree"]


def test_line_ends_and_byte_order_marks(tmp_path: Path) -> None:
    unix = read(write_file(tmp_path / "unix.txt", "one\ntwo\n\nthree\n"))
    assert read(write_file(tmp_path / "dos.txt", "one\r\ntwo\r\n\r\nthree\r\n")) == unix
    assert read(write_file(tmp_path / "mac.txt", "one\rtwo\r\rthree\r")) == unix
    assert read(write_file(tmp_path / "bom.txt", "\ufeffone\ntwo\n\n\ufeffthree\n")) == unix
    assert read(write_file(tmp_path / "bom.csv", b"\xef\xbb\xbftext\r\none\r\n")) == ["one"]
    assert read(write_file(tmp_path / "bom.jsonl", b'\xef\xbb\xbf{"text": "one"}\r\n')) == ["one"]
    edge = "x" * (BLOCK - 1)  # a line end across two blocks
    assert read(write_file(tmp_path / "edge.txt", f"{edge}\r\nyes"), split="line")[1:] == ["yes"]


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-16", "utf-16-le", "utf-32"])
def test_other_encodings(tmp_path: Path, encoding: str) -> None:
    path = write_file(tmp_path / "a.txt", "naïve café\n\nZürich".encode(encoding))
    assert read(path, encoding=encoding) == ["naïve café", "Zürich"]


def test_one_huge_line_is_cut_at_sentences_and_nothing_is_lost(tmp_path: Path) -> None:
    text = "".join(f"This is sentence number {i} of them all. " for i in range(80_000)).strip()
    documents = read(write_file(tmp_path / "a.txt", text))
    assert len(documents) > 2
    assert max(map(len, documents)) <= MAX_DOCUMENT
    assert " ".join(documents) == text
    assert all(piece.endswith("all.") for piece in documents)
    without_spaces = "x" * (2 * MAX_DOCUMENT + 5)
    assert "".join(read(write_file(tmp_path / "x.txt", without_spaces))) == without_spaces
    assert (
        "".join(read(write_file(tmp_path / "x.jsonl", json.dumps({"text": without_spaces}))))
        == without_spaces
    )


def test_many_lines_without_a_blank_one_are_cut_at_a_line_end(tmp_path: Path) -> None:
    lines = [f"line {i} says a little of its own" for i in range(50_000)]
    path = write_file(tmp_path / "a.txt", "\n".join(lines))
    for split in ("blank-line", "file"):
        documents = read(path, split=split)
        assert len(documents) > 1
        assert max(map(len, documents)) <= MAX_DOCUMENT
        assert "\n".join(documents).split("\n") == lines
        second = places(path, split=split)[1]
        assert documents[1].startswith(lines[int(second) - 1]), (
            "a piece knows the line that it starts at"
        )


def test_meter_counts_the_bytes_on_disk(tmp_path: Path) -> None:
    paths = [
        write_file(tmp_path / "a.txt", PLAIN),
        write_file(tmp_path / "b.txt.gz", gzip.compress(PLAIN.encode())),
    ]
    meter = Meter()
    read(*paths, meter=meter)
    assert meter.read == meter.total == sum(path.stat().st_size for path in paths)


# ---------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize("before", [0, 5, BLOCK - 1, BLOCK, BLOCK + 7])
@pytest.mark.parametrize("bad", [b"\xff", b"\xe9 "])  # never valid; latin-1 where utf-8 wants more
def test_wrong_encoding_names_line_and_byte(tmp_path: Path, before: int, bad: bytes) -> None:
    path = write_file(tmp_path / "a.txt", b"x" * before + bad + b"after")
    with refused(
        DataError,
        f"{path}:1",
        f"0x{bad[:1].hex()}",
        f"{before:,} others",
        "--encoding 'a.txt=latin-1'",
    ):
        read(path)
    text = "x" * before + bad.decode("latin-1") + "after"
    assert "".join(read(path, encoding="latin-1")).replace(" ", "") == text.replace(" ", "")


def test_a_character_cut_off_at_the_end_of_the_file(tmp_path: Path) -> None:
    path = write_file(tmp_path / "a.txt", "ab我".encode()[:-1])
    with refused(DataError, f"{path}:1", "0xe6", "2 others"):
        read(path)


@pytest.mark.parametrize("before", [0, 9, BLOCK + 3])
def test_binary_files(tmp_path: Path, before: int) -> None:
    path = write_file(tmp_path / "a.txt", b"x" * before + b"\0\xff")
    with refused(DataError, f"{path}:1", "0x00", f"{before:,} others"):
        read(path)


@pytest.mark.parametrize(
    ("name", "content", "place", "names"),
    [
        ("a.jsonl", '{"text": "a"}\n\n{"text": "b"\n', ":3", ["character 13"]),
        (
            "a.jsonl",
            '{"text": "a"}\n{"texts": "b", "id": 1}\n',
            ":2",
            ["'text'", "'texts'", "--text-column"],
        ),
        ("a.jsonl", '{"text": "a"}\n{"text": 7}\n', ":2", ["'text'", "int", "--text-column"]),
        ("a.csv", "id,texts\n1,a\n", "", ["'text'", "'texts'", "--text-column"]),
        ("a.csv", "id,text\n1,a\n2,b,c\n", ":3", ["3 columns", "2"]),
        ("a.csv", 'id,text\n1,"never closed\n', ":2", []),
    ],
)
def test_bad_rows_name_the_line(
    tmp_path: Path, name: str, content: str, place: str, names: list[str]
) -> None:
    """More in test_records.py: one reader serves corpora and tasks."""
    path = write_file(tmp_path / name, content)
    with refused(DataError, f"{path}{place}", *names):
        read(path)


@pytest.mark.parametrize(
    ("name", "pack"), [("a.gz", gzip.compress), ("a.xz", lzma.compress), ("a.zst", zstd)]
)
def test_compressed_files_cut_short_or_damaged(
    tmp_path: Path, name: str, pack: Callable[[bytes], bytes]
) -> None:
    whole = pack(" ".join(map(str, range(10_000))).encode())
    for content in (
        whole[: len(whole) // 2],
        whole[:-1],
        whole[: len(whole) // 2] + bytes(50),
        b"plain text",
    ):
        path = write_file(tmp_path / name, content)
        with refused(DataError, path):
            read(path)


def test_missing_files_name_the_nearest(tmp_path: Path) -> None:
    write_file(tmp_path / "corpus.txt", "text")
    for name, near in (
        ("corpos.txt", f"'{tmp_path}/corpus.txt'"),
        ("zzz", ""),
        ("no/a.txt", f"folder {tmp_path}/no"),
        ("*.md", ""),
    ):
        with refused(DataError, tmp_path / name, near or tmp_path):
            read(tmp_path / name)
    with refused(DataError, "hf:NAME", "python-docs"):
        read()


def test_a_file_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_file(tmp_path / "a.txt", "text")
    with monkeypatch.context() as patch:
        patch.setattr(corpus, "expand", lambda sources, **options: list(sources))
        path.unlink()  # after it was found
        with refused(DataError, path):
            read(path)


def test_nothing_to_read(tmp_path: Path) -> None:
    empty = write_file(tmp_path / "empty.txt", "")
    blank = write_file(tmp_path / "blank.txt", " \n\n\t\r\n")
    with refused(DataError, empty, blank):
        read(empty, blank)
    assert read(empty, write_file(tmp_path / "some.txt", "Some.")) == ["Some."], (
        "one empty file among others is no error"
    )
    (tmp_path / "folder").mkdir()
    write_file(tmp_path / "folder" / "picture.png", b"\0")
    with refused(DataError, tmp_path / "folder", ".txt", ".parquet"):
        read(tmp_path / "folder")


def test_bad_options(tmp_path: Path) -> None:
    path = write_file(tmp_path / "a.txt", "text")
    with refused(DataError, "'utf-9'"):
        read(path, encoding="utf-9")
    with refused(DataError, "split", "'lines'", "'line'"):
        read(path, split="lines")


def test_expand_keeps_what_is_no_path() -> None:
    assert expand(["-", "python-docs", "hf:name"]) == ["-", "python-docs", "hf:name"]
