"""The pieces that begin a word."""

from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import pre_tokenizers

from litebert.tokenizer import Tokenizer
from litebert.tokenizer.words import find_starts_by_bytes, find_starts_by_mark, is_continuation
from toys.tokenizing import Kind, raw_model, train

# -------------------------------------------------------------------------------------- whole words


def word_start(tokenizer: Tokenizer, text: str) -> list[tuple[str, bool]]:
    starts = tokenizer.word_starts
    assert starts is not None
    return [(tokenizer.get_token(i), bool(starts[i])) for i in tokenizer.encode([text])[0]]


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
    starts = find_starts_by_mark(list(table))
    assert starts is not None
    assert dict(zip(table, starts.tolist(), strict=True)) == table
    assert find_starts_by_mark(["a", "b"]) is None


@pytest.mark.parametrize("kind", ["unigram", "wordpiece", "bpe"])
def test_word_starts_regroup_the_words_of_a_text(kind: Kind) -> None:
    tokenizer = train(kind)
    starts = tokenizer.word_starts
    assert starts is not None
    assert starts.dtype == bool
    assert starts.shape == (tokenizer.vocab_size,)
    assert starts[list(tokenizer.special_ids)].all()
    assert not starts.all()
    words: list[str] = []
    for piece, start in word_start(
        tokenizer, "Unbelievable functions: returning values, of (objects)"
    ):
        text = piece.removeprefix("▁").removeprefix("##").removeprefix("Ġ").lower()
        if start:
            words.append(text)
        else:
            words[-1] += text
    expected = [
        "unbelievable",
        "functions",
        ":",
        "returning",
        "values",
        ",",
        "of",
        "(",
        "objects",
        ")",
    ]
    if (
        kind != "wordpiece"
    ):  # a piece without a mark cannot know that the one before it was punctuation
        expected[7:9] = ["(objects"]
    assert [word for word in words if word] == expected


def test_in_chinese_and_thai_every_piece_is_a_word(
    unigram: Tokenizer, wordpiece: Tokenizer
) -> None:
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
    peer = AutoTokenizer.from_pretrained(tmp_path / "saved")
    for text in ("the cat", "  the  cat ", ""):
        assert peer(text, add_special_tokens=False)["input_ids"] == tokenizer.encode([text])[0]


def test_a_bare_prefix_continues_nothing() -> None:
    assert find_starts_by_mark(["▁a", ""]) is not None
    assert not is_continuation("")


def test_bytes_of_a_character_are_one_word(tmp_path: Path) -> None:
    path = tmp_path / "bytes.model"
    path.write_bytes(raw_model(byte_fallback=True, vocab_size=600))
    tokenizer = Tokenizer.load(path)
    assert word_start(tokenizer, "猫")[-3:] == [
        ("<0xE7>", True),
        ("<0x8C>", False),
        ("<0xAB>", False),
    ]


def as_bytes(text: str, count: int | None = None) -> str:
    """The first bytes of a text as a byte-level vocabulary writes them, by the library's own
    table."""
    letters = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(
        text
    )
    return "".join(part for part, _ in letters)[:count]


def test_word_starts_of_bytes() -> None:
    table = {
        as_bytes(" the"): True,
        as_bytes(" "): True,
        as_bytes("\n"): True,
        as_bytes("ing"): False,
        as_bytes("7"): False,
        as_bytes("é"): False,
        as_bytes("’s"): True,
        as_bytes("."): True,
        as_bytes("漢字"): True,
        as_bytes("ไทย"): True,
        as_bytes("한국"): False,
        as_bytes(" 한"): True,
        as_bytes("हिन"): False,
        # The first bytes of a character: Latin, Vietnamese, Greek, Hindi, Hangul continue; Thai,
        # Chinese, kana, quotes, dashes and pictures do not.
        as_bytes("é", 1): False,
        as_bytes("ệ", 2): False,
        as_bytes("λ", 1): False,
        as_bytes("ह", 2): False,
        as_bytes("한", 1): False,
        as_bytes("흔", 1): False,  # of what these bytes can begin, half is assigned
        as_bytes("ੱ", 2): False,
        as_bytes("ไ", 2): True,
        as_bytes("漢", 1): True,
        as_bytes("漢", 2): True,
        as_bytes("の", 2): True,
        as_bytes("“", 2): True,
        as_bytes("—", 1): True,
        as_bytes("😀", 1): True,
        as_bytes("😀", 2): True,
        as_bytes("😀", 3): True,
        # What goes on with a character begun before.
        as_bytes("漢")[1:]: False,
        as_bytes("é")[1:]: False,
        as_bytes("😀 a")[2:]: False,
        "Õ": False,  # the first byte of Armenian letters
        "õ": True,  # a byte that no text in UTF-8 holds
        "an added piece": False,
        "日本 added": True,
        "": True,
    }
    assert dict(zip(table, find_starts_by_bytes(list(table)).tolist(), strict=True)) == table


def test_a_character_cut_into_bytes_is_one_word(bpe: Tokenizer) -> None:
    for text, words in (
        ("猫犬 dog's", ["猫", "犬", " dog", "'s"]),
        ("việt naïve😀", [" việt", " naïve", "😀"]),
    ):
        groups: list[list[int]] = []
        starts = bpe.word_starts
        assert starts is not None
        for i in bpe.encode([text])[0]:
            if starts[i]:
                groups.append([])
            groups[-1].append(i)
        spelt = [bpe.decode(word) for word in groups]
        assert [word for word in spelt if word] == [word.strip() for word in words]
