"""Rows of every kind of file, and where a file is wrong; see test_malformed.py for every reader and
defect.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from litebert.base.errors import ConfigError, DataError, MissingExtraError
from litebert.text.records import Layout, Notes, detect_format, read_lines, read_records
from toys.refusals import refused

ROWS: list[dict[str, Any]] = [
    {"id": 1, "a": 'He said "no", twice.', "b": "x"},
    {"id": 2, "a": "Über die Straße", "b": ""},
    {"id": 3, "a": "", "b": "我们"},
]


def pack_rows(name: str) -> bytes:
    held = io.StringIO()
    if name.endswith("csv"):
        csv.writer(held).writerows([["id", "a", "b"], *(row.values() for row in ROWS)])
    elif name.endswith("tsv"):
        held.write("id\ta\tb\n" + "".join(f"{row['id']}\t{row['a']}\t{row['b']}\n" for row in ROWS))
    else:
        held.write("".join(json.dumps(row) + "\n" for row in ROWS))
    return held.getvalue().encode()


def write_file(path: Path, content: bytes | str) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def read(
    path: str | Path, *columns: str, optional: Sequence[str] = (), **layout: Any
) -> list[tuple[Any, ...]]:
    rows = read_records(path, columns, Notes(), optional=optional, layout=Layout(**layout))
    return [row.values for row in rows]


WANTED = [(row["b"], row["a"]) for row in ROWS]


@pytest.mark.parametrize("name", ["a.csv", "a.TSV", "a.tsv", "a.jsonl", "a.ndjson"])
def test_the_same_rows_from_every_form(tmp_path: Path, name: str) -> None:
    data = pack_rows(name.lower())
    assert read(write_file(tmp_path / name, data), "b", "a") == WANTED
    assert (
        read(write_file(tmp_path / name, b"\xef\xbb\xbf" + data.replace(b"\r\n", b"\n")), "b", "a")
        == WANTED
    )
    dos = data.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
    assert read(write_file(tmp_path / name, dos), "b", "a") == WANTED
    assert read(write_file(tmp_path / f"{name}.gz", gzip.compress(dos)), "b", "a") == WANTED


def test_parquet(tmp_path: Path) -> None:
    pq.write_table(
        pa.table({key: [row[key] for row in ROWS] for key in ROWS[0]}), tmp_path / "a.parquet"
    )
    assert read(tmp_path / "a.parquet", "b", "a") == WANTED
    assert read(tmp_path / "a.parquet", "a", optional=["none", "id"])[1] == (
        "Über die Straße",
        None,
        2,
    )
    assert [row.line for row in read_records(tmp_path / "a.parquet", ["a"], Notes())] == [1, 2, 3]
    with refused(DataError, tmp_path / "a.parquet", "'c'"):
        read(tmp_path / "a.parquet", "c")


def test_plain_text_and_standard_input_keep_blank_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert read(write_file(tmp_path / "a.txt", "one\n\ntwo"), "text", optional=["label"]) == [
        ("one", None),
        ("", None),
        ("two", None),
    ]
    with refused(DataError, tmp_path / "a.txt", "'pair'"):
        read(tmp_path / "a.txt", "text", "pair")
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"x\n\ny\n")))
    assert read("-", "text") == [("x",), ("",), ("y",)]
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b'{"text": "x"}\n')))
    assert read("-", "text", form="jsonl") == [("x",)]


def test_csv_rows_over_several_lines_are_named_by_their_first(tmp_path: Path) -> None:
    path = write_file(tmp_path / "a.csv", 'a,b\n"two\nlines",x\n\nlast,y\n')
    notes = Notes()
    rows = list(read_records(path, ["a"], notes))
    assert [(row.line, *row.values) for row in rows] == [(2, "two\nlines"), (5, "last")]
    assert notes.notes() == ["blank lines were skipped (1)"]
    with refused(DataError, f"{path}:3", "1 columns", 2):
        read(write_file(path, 'a,b\nx,y\n"two\nlines"\n'), "a")


@pytest.mark.parametrize(
    ("name", "content", "place", "names"),
    [
        ("a.csv", "b \n1\n", "", ["first line", "'a'", "b"]),
        ("a.tsv", "b\n1\n", "", ["first line", "'a'", "b"]),
        ("a.csv", "a\n", "", []),
        ("a.jsonl", "\n\n", "", []),
        ("a.jsonl", '{"a": "x"}\n\n7\n', ":3", ['{"a": ...}']),
        ("a.jsonl", "[" * 100_000, ":1", []),
        ("a.jsonl", "{}\n", ":1", ["'a'"]),
        ("a.jsonl", '{"a": "x"}\n{"aa": "y"}\n', ":2", ["'a'", "'aa'"]),
        ("a.csv", "a,b\n1,2\n3\n", ":3", ["1 columns", 2]),
        ("a.csv", 'a,b\n1,"2" 3\n', ":2", []),
        ("a.csv", "a,a\n1,2\n", "", ["'a'"]),
        ("a.jsonl", "not json\n", ":1", ["character 1"]),
        ("a.jsonl.gz", b"not gzip", "", []),
        ("a.doc", "x", "", [".csv"]),
    ],
)
def test_malformed_files(
    tmp_path: Path, name: str, content: bytes | str, place: str, names: list[str]
) -> None:
    path = write_file(tmp_path / name, content)
    with refused(DataError, f"{path}{place}", *names):
        read(path, "a")


def test_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    (tmp_path / "b.parquet").mkdir()
    for name in ("a.csv", "b.parquet"):
        with refused(DataError, tmp_path / name):
            read(tmp_path / name, "a")
    with refused(ConfigError, "'cvs'", "'csv'"):
        read(tmp_path / "a.csv", "a", form="cvs")


def test_forms_by_suffix() -> None:
    assert [
        detect_format(name) for name in ("-", "a.CSV.gz", "b.v2.ndjson", Path("c.parquet"), "d.txt")
    ] == ["text", "csv", "jsonl", "parquet", "text"]


@given(
    st.lists(
        st.text(st.characters(codec="utf-8", exclude_characters="\0\n\r\ufeff"), max_size=9),
        max_size=6,
    )
)
def test_lines_are_those_of_the_text(
    tmp_path_factory: pytest.TempPathFactory, wanted: list[str]
) -> None:
    path = tmp_path_factory.getbasetemp() / "lines.txt"
    path.write_bytes("".join(f"{line}\r\n" for line in wanted).encode())
    assert list(read_lines(path, Notes())) == list(enumerate(wanted, 1))


def test_a_line_across_blocks_is_whole(tmp_path: Path) -> None:
    long = "é" * (3 << 19)
    path = write_file(tmp_path / "a.txt", f"{long}\nend\n{long}")
    assert [text for _, text in read_lines(path, Notes())] == [long, "end", long]


# --------------------------------------------------------------------- files as people export them

TABLE = [("text", "label"), ("the bill, is wrong", "billing"), ('the "fan"; is loud', "hardware")]


def export(delimiter: str, quoting: Any = csv.QUOTE_MINIMAL) -> str:
    held = io.StringIO()
    csv.writer(held, delimiter=delimiter, quoting=quoting).writerows(TABLE)
    return held.getvalue()


@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_delimiter_is_found(delimiter: str, suffix: str, tmp_path: Path) -> None:
    path, wanted = tmp_path / f"a{suffix}", TABLE[1:]
    for head in ("", "\ufeff", f"sep={delimiter}\r\n"):
        if suffix == ".tsv" and delimiter == "\t":
            write_file(path, head + export(delimiter, csv.QUOTE_ALL))
        else:
            write_file(path, head + export(delimiter))
        assert read(path, "text", "label") == wanted
        first = next(read_records(path, ["text"], Notes()))
        assert first.line == (3 if head.startswith("sep") else 2)
    write_file(path, export(delimiter, csv.QUOTE_ALL).split("\n", 1)[1])
    assert read(path, "0", "1", header=False) == wanted


def test_a_delimiter_that_nobody_expects_is_named(tmp_path: Path) -> None:
    path = write_file(tmp_path / "a.csv", export("~"))
    assert read(path, "text", "label", delimiter="~") == TABLE[1:]
    with refused(DataError, path, "'label'", "name the delimiter with --delimiter"):
        read(path, "label")
    with refused(DataError, path, "'label'", "another --delimiter than ','"):
        read(path, "label", delimiter=",")
    path = write_file(path, "text;note\na;b\n")
    with refused(DataError, path, "'label'", "another --delimiter than ','"):
        read(path, "label", delimiter=",")
    path = write_file(path, "my text\na\n")
    with refused(DataError, path, "'my texts'", "did you mean 'my text'?"):
        read(path, "my texts")
    # Texts of a single column hold commas, and semicolons too.
    path = write_file(path, "text\nyes; a\nno; b\n")
    assert read(path, "text") == [("yes; a",), ("no; b",)]


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        ('"a"\t"b"\n"x, y"\t"z"\n', [("x, y", "z")]),
        (
            'a\tb\n1\t"z"\n2\t"two\nlines and ""more"""\n',
            [("1", "z"), ("2", 'two\nlines and "more"')],
        ),
        ('a\tb\n1\t"y"\n2\t"z"\n', [("1", "y"), ("2", "z")]),
        ('a\tb\n"open\ty\n2\t"z"\n', [('"open', "y"), ("2", '"z"')]),  # as in GLUE
        ('a\tb\n"yes" she said\ty\n2"\t3\n', [('"yes" she said', "y"), ('2"', "3")]),
    ],
)
def test_quotes_of_tsv_by_the_file(content: str, wanted: list[Any], tmp_path: Path) -> None:
    assert read(write_file(tmp_path / "a.tsv", content), "a", "b") == wanted


@pytest.mark.parametrize("suffix", [".json", ".jsonl"])
@pytest.mark.parametrize("indent", [None, 1])
def test_a_list_of_objects(suffix: str, indent: int | None, tmp_path: Path) -> None:
    path = write_file(tmp_path / f"a{suffix}", json.dumps(ROWS, indent=indent))
    assert read(path, "b", "a") == WANTED
    for content, place in (
        ('[{"a": 1},\n{"b": 2}]', ":2"),
        ('[{"a": 1},\n x]', ":2"),
        ('{\n"a": {"0": "x"}}', ""),
        ("[1]", ":1"),
        ('[{"data": {"a": 1}, "annotations": []}]', ":1 .*Label Studio"),
    ):
        with pytest.raises(DataError, match=f"{path}{place}"):
            read(write_file(path, content), "a")


@pytest.mark.parametrize(
    "name", ["a.xls", "a.zip", "a.feather", "a.pkl", "a.ods", "a.csv.bz2", "a.sqlite"]
)
def test_known_formats_that_are_not_read(name: str, tmp_path: Path) -> None:
    with refused(DataError, tmp_path / name, Path(name).suffix):
        read(write_file(tmp_path / name, "x"), "a")


def test_a_workbook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    path, book = tmp_path / "a.xlsx", openpyxl.Workbook()
    for row in (("text", "label", "n"), ("a", "x", 2.0), (None, None, None), (12, True, 0.5)):
        book.active.append(row)
    book.create_sheet("other")
    book.save(path)
    notes = Notes()
    rows = list(read_records(path, ["text", "n", "label"], notes))
    assert [row[:2] for row in rows] == [(2, ("a", "2", "x")), (4, ("12", "0.5", "True"))]
    assert len(notes.notes()) == 2, "a sheet and a blank row"
    assert read(path, "0", header=False)[0] == ("text",)
    with refused(DataError, path, ".xlsx"):
        read(write_file(path, path.read_bytes()[:900]), "text")
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with refused(MissingExtraError, "openpyxl", "litebert[xlsx]"):
        read(path, "text")


def test_names_of_classes_in_parquet(tmp_path: Path) -> None:
    names = {"names": ["no", "yes"], "_type": "ClassLabel"}
    features = {"a": names, "b": {"feature": names, "_type": "Sequence"}, "c": [names]}
    about = {"huggingface": json.dumps({"info": {"features": features}})}
    table = pa.table({"a": [1, 0, -1], "b": [[0, 1], [], [1]], "c": [[0], [1], None]})
    path = tmp_path / "a.parquet"
    pq.write_table(table.replace_schema_metadata(about), path)
    assert read(path, "a", "b", "c") == [
        ("yes", ["no", "yes"], ["no"]),
        ("no", [], ["yes"]),
        (None, ["yes"], None),
    ]
    for broken in ("[]", '{"info": {"features": {"a": {"names": 3}}}}', "no JSON"):
        pq.write_table(table.replace_schema_metadata({"huggingface": broken}), path)
        assert read(path, "a")[0] == (1,)
