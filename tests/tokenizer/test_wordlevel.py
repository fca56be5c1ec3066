"""A tokenizer.json of whole words opens, and gives the ids of the library that wrote it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tokenizers
import transformers
from tokenizers import normalizers, pre_tokenizers
from tokenizers.models import WordLevel

from litebert.base.errors import DataError
from litebert.tokenizer import Tokenizer
from litebert.tokenizer.extension import extend
from toys.refusals import refused

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "model", "of", "words", "."]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    library = tokenizers.Tokenizer(
        WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]")
    )
    library.normalizer = normalizers.Lowercase()
    library.pre_tokenizer = pre_tokenizers.Whitespace()
    library.add_special_tokens(WORDS[:5])
    library.save(str(tmp_path / "tokenizer.json"))
    return tmp_path / "tokenizer.json"


def test_it_gives_the_ids_of_its_library(file: Path, tmp_path: Path) -> None:
    tokenizer, library = Tokenizer.load(file), tokenizers.Tokenizer.from_file(str(file))
    texts = ["A model of words.", "a stranger, of words", ""]
    assert tokenizer.encode(texts) == [
        library.encode(text, add_special_tokens=False).ids for text in texts
    ]
    assert (tokenizer.kind, tokenizer.unk_id, tokenizer.vocab_size) == ("wordlevel", 1, len(WORDS))
    tokenizer.save(tmp_path / "saved")
    again = Tokenizer.load(tmp_path / "saved")
    assert again.fingerprint == tokenizer.fingerprint
    peer = transformers.AutoTokenizer.from_pretrained(tmp_path / "saved")
    assert peer(texts[0])["input_ids"] == [2, *tokenizer.encode(texts[:1])[0], 3]


def test_every_piece_is_a_word_of_its_own(file: Path) -> None:
    starts = Tokenizer.load(file).word_starts
    assert starts is not None
    np.testing.assert_array_equal(starts, True)


def test_its_words_cannot_be_cut(file: Path) -> None:
    with refused(DataError, "WordLevel"):
        extend(Tokenizer.load(file), ["a model of more words"] * 9, 3)


@pytest.mark.parametrize("kind", ["WordLevel", "WordPiece"])
def test_a_missing_unknown_piece_is_named(kind: str, file: Path) -> None:
    spec = json.loads(file.read_text())
    spec["model"].update(type=kind, unk_token="<none>")
    if kind == "WordPiece":
        spec["model"].update(continuing_subword_prefix="##", max_input_chars_per_word=100)
    file.write_text(json.dumps(spec))
    with refused(DataError, file, "<none>"):
        Tokenizer.load(file)
