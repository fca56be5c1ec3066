"""Which columns `litebert fit` takes for texts and labels."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from litebert.base.errors import DataError
from litebert.fitting.columns import find_columns

TEXTS = ["it broke after a week, sadly", "works as it should", "the parcel came late", "so so"]


def table(*columns: tuple[str, list[Any]], delimiter: str = ",", header: bool = True) -> str:
    names, cells = zip(*columns, strict=True)
    rows = [list(names)] * header + [list(row) for row in zip(*cells, strict=True)]
    quoted = (
        [f'"{cell}"' if delimiter in str(cell) else str(cell) for cell in row] for row in rows
    )
    return "".join(delimiter.join(row) + "\n" for row in quoted)


IDS, CLASSES = [17, 18, 19, 20], ["bad", "good", "bad", "good"]
LINES = [
    {"body": text, "n": i, "team": label}
    for i, (text, label) in enumerate(zip(TEXTS, CLASSES, strict=True))
]
FOUND: dict[str, tuple[str, str, dict[str, Any]]] = {
    "names": ("a.csv", table(("text", TEXTS), ("label", CLASSES)), {}),
    "other names and an id": (
        "a.csv",
        table(("id", IDS), ("comment", TEXTS), ("team", CLASSES)),
        {"text": "comment", "label": ("team",)},
    ),
    "a long column beside a named one": (
        "a.csv",
        table(("title", ["a", "b", "c", "d"]), ("story", TEXTS * 1), ("label", CLASSES)),
        {"text": "story"},
    ),
    "ids and addresses are no texts": (
        "a.csv",
        table(
            ("key", [f"{i}f3a9c7e5b1d2468-0ace-13579bdf2468" for i in range(4)]),
            ("url", [f"https://example.com/a/long/path/{i}" for i in range(4)]),
            ("said", TEXTS),
            ("team", CLASSES),
        ),
        {"text": "said", "label": ("team",)},
    ),
    "a header that is called as a class": (
        "a.csv",
        table(("sms", TEXTS), ("spam", ["spam", "ham", "spam", "ham"])),
        {"text": "sms", "label": ("spam",), "header": True},
    ),
    "semicolons of a spreadsheet": (
        "a.csv",
        table(("Text", TEXTS), ("Etikett", CLASSES), delimiter=";"),
        {"text": "Text", "label": ("Etikett",)},
    ),
    "no header": (
        "a.csv",
        table(("x", CLASSES), ("y", TEXTS), header=False),
        {"text": "1", "label": ("0",), "header": False},
    ),
    "a pair": (
        "a.tsv",
        table(("premise", TEXTS), ("hypothesis", TEXTS[::-1]), ("label", CLASSES), delimiter="\t"),
        {"text": "premise", "pair": "hypothesis"},
    ),
    "lines of JSON": (
        "a.jsonl",
        "".join(json.dumps(line) + "\n" for line in LINES),
        {"text": "body", "label": ("team",)},
    ),
    "a list of JSON": ("a.json", json.dumps(LINES, indent=1), {"text": "body", "label": ("team",)}),
    "a list on one line": (
        "a.json",
        json.dumps(LINES),
        {"text": "body", "label": ("team",)},
    ),
}


@pytest.mark.parametrize("name", FOUND)
def test_columns_are_found(name: str, tmp_path: Path) -> None:
    file, content, expected = FOUND[name]
    (tmp_path / file).write_text(content, encoding="utf-8")
    found = find_columns(tmp_path / file)
    usual = {"text": "text", "label": ("label",), "pair": None, "header": True}
    assert {key: getattr(found, key) for key in usual} == {**usual, **expected}


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16", "utf-8", "utf-8-sig"])
def test_encodings_are_found(encoding: str, tmp_path: Path) -> None:
    content = table(("text", ["schön", "häßlich", "übel", "naja"]), ("label", CLASSES))
    (tmp_path / "a.csv").write_bytes(content.encode(encoding))
    found = find_columns(tmp_path / "a.csv")
    assert found.encoding == encoding.removesuffix("-sig")
    assert (found.text, found.label) == ("text", ("label",))


def test_what_is_named_is_taken(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(table(("text", TEXTS), ("label", CLASSES), ("other", TEXTS)))
    found = find_columns(tmp_path / "a.csv", "other", ["text"])
    assert (found.text, found.label) == ("other", ("text",))


@pytest.mark.parametrize(
    ("content", "remedy"),
    [
        (table(("a", IDS), ("b", IDS[::-1])), "--text-column"),
        (table(("text", TEXTS)), "--label-column"),
        (table(("text", TEXTS), ("number", ["x", "y", "z", "w"])), "--label-column"),
        ("text,label\n", "holds no rows"),
    ],
)
def test_what_is_missing_is_said(content: str, remedy: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(content)
    with pytest.raises(DataError, match=remedy):
        find_columns(tmp_path / "a.csv")


def test_the_encoding_of_a_compressed_file(tmp_path: Path) -> None:
    for encoding in ("utf-8", "cp1252"):
        file = tmp_path / f"{encoding}.csv.gz"
        with gzip.open(file, "wt", encoding=encoding) as opened:
            opened.write(table(("text", [f"{text}, é" for text in TEXTS]), ("label", CLASSES)))
        assert find_columns(file).encoding == encoding


def test_the_delimiter_that_is_given(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text(table(("text;b,c", TEXTS), ("label", CLASSES), delimiter="~"))
    found = find_columns(file, delimiter="~")
    assert (found.text, found.label) == ("text;b,c", ("label",))
