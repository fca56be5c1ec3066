"""A source of text of one's own: defined here, registered in a line each way, used by every command
that reads text.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from litebert.base.registry import SOURCES
from litebert.cli import main
from litebert.data.shards import Shards
from litebert.text.sources import Reading, read_documents
from litebert.tokenizer import Tokenizer


def letters(name: str, reading: Reading) -> Iterator[tuple[str, str]]:
    """A document of every paragraph of a letter, which has its head before the first blank line."""
    for i, text in enumerate(Path(name).read_text(encoding=reading.encoding).split("\n\n")[1:]):
        yield text, f"paragraph {i + 1}"


def numbers(name: str, reading: Reading) -> Iterator[tuple[str, int]]:
    """A document of every number, `count:40` of 40."""
    for i in range(int(name) if name.isdigit() else 7):
        yield f"Number {i} of {name}.", i


@pytest.fixture(autouse=True, scope="module")
def _register() -> None:
    SOURCES.add(".eml", letters)
    SOURCES.add("count:", numbers)
    SOURCES.add("seven", numbers)


def test_a_suffix_a_scheme_and_a_name(tmp_path: Path) -> None:
    (tmp_path / "a.eml").write_text("To: me\n\nDear you.\n\nYours.")
    (tmp_path / "b.txt").write_text("Plain.")
    assert [(document.text, document.source) for document in read_documents([str(tmp_path)])] == [
        ("Dear you.", f"{tmp_path}/a.eml:paragraph 1"),
        ("Yours.", f"{tmp_path}/a.eml:paragraph 2"),
        ("Plain.", f"{tmp_path}/b.txt:1"),
    ]
    assert [document.text for document in read_documents(["count:1", "seven"])][:2] == [
        "Number 0 of 1.",
        "Number 0 of seven.",
    ]


def test_the_commands_read_it(tmp_path: Path) -> None:
    tokenizer, data = str(tmp_path / "tokenizer"), str(tmp_path / "data")
    train = ["tokenizer", "train", "count:40", "seven", "--kind", "wordpiece"]
    assert main([*train, "--vocab-size", "48", "--out", tokenizer]) == 0
    prepare = ["prepare", "count:40", "seven", "--tokenizer", tokenizer, "--out", data]
    prepare += ["--processes", "1"]
    assert main(prepare) == 0
    shards = Shards.open(data)
    assert shards.train.documents + shards.heldout.documents == 47
    texts = [
        shards.train.read_document(number)[0].tolist() for number in range(shards.train.documents)
    ]
    assert Tokenizer.load(tokenizer).encode(["Number 3 of 40."])[0] in texts
    assert main(prepare) == 0, "the same command again finds it whole"
