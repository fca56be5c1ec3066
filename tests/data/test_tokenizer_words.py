"""Which pieces begin a word."""

from __future__ import annotations

from pathlib import Path

import pytest
from toy_tokenizers import raw_model, train

from litebert.data.tokenizer import Tokenizer
from litebert.data.tokenizer_engines import continues_word, marked_word_starts

# --------------------------------------------------------------------------------------------------------- whole words


def word_start(tokenizer: Tokenizer, text: str) -> list[tuple[str, bool]]:
    starts = tokenizer.word_starts
    assert starts is not None
    return [(tokenizer.piece(i), bool(starts[i])) for i in tokenizer.encode([text])[0]]


def test_word_starts_by_mark_and_script() -> None:
    table = {
        "▁the": True,
        "▁": True,
        "ing": False,
        "é": False,
        "7": False,
        "\u0301": False,
        ".": True,
        "'": True,
        "s'": False,
        "€": True,
        "😀": True,
        "漢字": True,
        "の": True,
        "カ": True,
        "ー": True,
        "々": True,
        "ไทย": True,
        "ລາວ": True,
        "ខ្មែ": True,
        "မြန်": True,
        "བོད": True,
        "한국": False,
        "हिन": False,
        "ру": False,
        "ﾊ": True,
    }
    starts = marked_word_starts(list(table))
    assert starts is not None
    assert dict(zip(table, starts.tolist(), strict=True)) == table
    assert marked_word_starts(["a", "b"]) is None


@pytest.mark.parametrize("kind", ["unigram", "wordpiece"])
def test_word_starts_regroup_the_words_of_a_text(kind: str) -> None:
    tokenizer = train(kind)
    starts = tokenizer.word_starts
    assert starts is not None
    assert starts.dtype == bool
    assert starts.shape == (tokenizer.vocab_size,)
    assert starts[list(tokenizer.special_ids)].all()
    assert not starts.all()
    words: list[str] = []
    for piece, start in word_start(tokenizer, "Unbelievable functions: returning values, of (objects)"):
        text = piece.removeprefix("▁").removeprefix("##")
        if start:
            words.append(text)
        else:
            words[-1] += text
    expected = ["unbelievable", "functions", ":", "returning", "values", ",", "of", "(", "objects", ")"]
    if kind == "unigram":  # a piece without a mark cannot know that the one before it was punctuation
        expected[7:9] = ["(objects"]
    assert [word for word in words if word] == expected


def test_in_chinese_and_thai_every_piece_is_a_word(unigram: Tokenizer, wordpiece: Tokenizer) -> None:
    for tokenizer in (unigram, wordpiece):
        for text in ("我们学习语言", "名前はまだ無い", "ภาษาไทย"):
            assert all(start for _, start in word_start(tokenizer, text))
        assert not all(start for _, start in word_start(tokenizer, "합니다띄어쓰기"))


def test_word_starts_are_none_where_the_mark_ends_a_word(tmp_path: Path) -> None:
    path = tmp_path / "suffix.model"
    path.write_bytes(raw_model(treat_whitespace_as_suffix=True))
    assert Tokenizer.load(path).word_starts is None


def test_a_model_without_a_mark_before_the_first_word(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    path = tmp_path / "plain.model"
    path.write_bytes(raw_model(add_dummy_prefix=False))
    tokenizer = Tokenizer.load(path)
    tokenizer.save(tmp_path / "saved")
    theirs = AutoTokenizer.from_pretrained(tmp_path / "saved")
    for text in ("the cat", "  the  cat ", ""):
        assert theirs(text, add_special_tokens=False)["input_ids"] == tokenizer.encode([text])[0]


def test_a_bare_prefix_continues_nothing() -> None:
    assert marked_word_starts(["▁a", ""]) is not None
    assert not continues_word("")


def test_bytes_of_a_character_are_one_word(tmp_path: Path) -> None:
    path = tmp_path / "bytes.model"
    path.write_bytes(raw_model(byte_fallback=True, vocab_size=600))
    tokenizer = Tokenizer.load(path)
    assert word_start(tokenizer, "猫")[-3:] == [("<0xE7>", True), ("<0x8C>", False), ("<0xAB>", False)]
