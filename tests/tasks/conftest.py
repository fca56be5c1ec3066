"""A tokenizer whose tokens are counted by eye."""

from __future__ import annotations

import pytest

from litebert.tokenizer import Tokenizer

LETTERS = "abcdefghijklmnopqrstuvwxyz"


@pytest.fixture(scope="module")
def letters(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """WordPiece that spells every word letter by letter, so that a word has as many tokens as
    letters.
    """
    path = tmp_path_factory.mktemp("letters") / "vocab.txt"
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    pieces = [*special, *LETTERS, *(f"##{letter}" for letter in LETTERS)]
    path.write_text("\n".join(pieces) + "\n", encoding="utf-8")
    return Tokenizer.load(path)
