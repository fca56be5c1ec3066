"""Bytes to lines, in blocks of any size, and the place of what is no text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from litebert.base.errors import DataError
from litebert.text.lines import decode_blocks, split_blocks, split_text
from toys.refusals import refused


@given(
    st.text(st.characters(codec="utf-8", exclude_characters="\0\ufeff"), max_size=60),
    st.integers(1, 7),
)
def test_blocks_of_any_size_give_the_lines_of_the_text(text: str, size: int) -> None:
    data = text.encode()
    blocks = [data[i : i + size] for i in range(0, len(data), size)]
    lines = list(split_blocks(decode_blocks(blocks, "it", prose=True)))
    wanted = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    assert lines == (wanted if wanted[-1] else wanted[:-1])


@given(st.text(st.sampled_from("ab .\n。"), max_size=80), st.integers(2, 12))
def test_cut_loses_nothing_and_keeps_the_limit(text: str, longest: int) -> None:
    pieces = split_text(text, longest)
    assert "".join(pieces) == text
    assert all(len(piece) <= longest for piece in pieces)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-16-be", "gb18030"])
@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_a_bad_byte_is_placed_in_its_line_in_blocks_of_any_size(encoding: str, size: int) -> None:
    good, line = "ab我\n\r\n".encode(encoding), "我x".encode(encoding)[len("".encode(encoding)) :]
    data = good + line + {"utf-8": b"\xff", "gb18030": b"\xff"}.get(encoding, b"\x00")
    texts: list[str] = []
    with refused(DataError, "it:3", f"{len(line)} others"):
        for text in decode_blocks(
            [data[i : i + size] for i in range(0, len(data), size)], "it", encoding, prose=True
        ):
            texts.append(text)
    assert "".join(texts) == "ab我\n\n我x"
