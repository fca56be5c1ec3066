"""JSON that a person or another program wrote: what is read, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from litebert.base.errors import DataError, RunError
from litebert.base.json_reader import DEEPEST, parse_json, read_json
from toys.refusals import refused


@pytest.mark.parametrize(
    "content",
    [
        *(
            b"",
            b"{",
            b"[]",
            b"3",
            b"\xff",
            b'{"a":' * 100_000,
            b"9" * 5000,
            '{"a": 1}'.encode("utf-16"),
        ),
        *(b'{"a": 1, "a": 1}', b'{"a": [{"b": 1, "c": 2, "b": 3}]}'),
        b'{"a": ' + b"[" * 900 + b"]" * 900 + b"}",
    ],
)
def test_anything_but_a_json_object_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(content)
    with refused(DataError, path, "copy it again"):
        read_json(path, DataError, "copy it again")


def test_a_json_file_may_begin_with_a_mark(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b'\xef\xbb\xbf{"a": 1}')
    assert read_json(tmp_path / "a.json", RunError, "") == {"a": 1}


def test_brackets_count_where_they_open_something() -> None:
    deepest = "[" * DEEPEST + "]" * DEEPEST
    texts = "[" * 9 * DEEPEST
    for text in (
        deepest,
        f'["{texts}"]',
        f'["\\"{texts}"]',
        f'{{"{texts}": "\\\\"}}',
        f"[{'[],' * 200}[]]",
    ):
        assert parse_json(text) == json.loads(text)
    for text in (f"[{deepest}]", f'{{"\\\\": [{deepest}]}}', f'["{texts}", {deepest}]'):
        with pytest.raises(ValueError, match=str(DEEPEST)):
            parse_json(text)


def test_a_json_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "none.json", tmp_path):
        with refused(RunError, path, "make another"):
            read_json(path, RunError, "make another")
