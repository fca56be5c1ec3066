"""Offsets: spans lie in the raw text, ascend, leave out nothing but spaces, and hold what their
pieces say.
"""

from __future__ import annotations

import pickle
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import normalizers

from litebert.base.errors import DataError
from litebert.tokenizer import Tokenizer
from toys.refusals import refused
from toys.tokenizing import EXTRA, PROSE, TRICKY, raw_model, train

pytestmark = pytest.mark.thorough


KINDS = {
    "unigram": lambda: train("unigram"),
    "unigram-cased": lambda: train("unigram", lower_case=False),
    "unigram-strip": lambda: train("unigram", strip_accents=True),
    "wordpiece": lambda: train("wordpiece"),
    "wordpiece-strip": lambda: train("wordpiece", strip_accents=True),
    "bpe": lambda: train("bpe"),
}
EVERY_KIND = pytest.mark.parametrize("kind", KINDS)


def spans(tokenizer: Tokenizer, text: str) -> list[tuple[str, str]]:
    """(piece, what it stands for) of each token."""
    ids, offsets = tokenizer.encode_offsets([text])[0]
    return [
        (tokenizer.get_token(int(i)), text[a:b])
        for i, (a, b) in zip(ids, offsets.tolist(), strict=True)
    ]


def cuts(tokenizer: Tokenizer, text: str) -> list[str]:
    return [cut for _, cut in spans(tokenizer, text)]


def check(tokenizer: Tokenizer, text: str) -> None:
    ids, offsets = tokenizer.encode_offsets([text])[0]
    assert ids.dtype == offsets.dtype == np.int32
    assert offsets.shape == (len(ids), 2)
    assert (offsets >= 0).all()
    assert (offsets <= len(text)).all()
    assert (offsets[:, 0] <= offsets[:, 1]).all()
    assert (np.diff(offsets, axis=0) >= 0).all()
    covered = np.zeros(len(text), bool)
    for begin, end in offsets:
        covered[begin:end] = True
        assert text[begin:end] == text[begin:end].strip()
    # What stands in no span is a space, or says nothing to the tokenizer on its own, or is a
    # control character.
    for char in {char for char, inside in zip(text, covered, strict=True) if not inside}:
        quiet = (
            char.isspace()
            or unicodedata.category(char) in ("Cc", "Cf")
            or not tokenizer.encode([char])[0]
        )
        assert quiet or char == "▁", f"{char!a} of {text!a}"


@EVERY_KIND
def test_texts_of_every_sort(kind: str) -> None:
    tokenizer = KINDS[kind]()
    for text in TRICKY + EXTRA + PROSE:
        check(tokenizer, text)
        if kind == "bpe" or "*****" not in text:
            assert tokenizer.encode_offsets([text])[0][0].tolist() == tokenizer.encode([text])[0], (
                ascii(text)
            )
    many = tokenizer.encode_offsets(TRICKY)
    assert [ids.tolist() for ids, _ in many] == tokenizer.encode(TRICKY)


CHARACTERS = st.characters(exclude_categories=["Cs", "Cn", "Co"]) | st.sampled_from(
    "Aaé \u0301\u0323ｶﾞ각½ﬁ¨İ\u200d😀\ufe0f▁\n\x07\x00"
)


@EVERY_KIND
@settings(max_examples=150)
@given(text=st.text(CHARACTERS, max_size=30))
def test_any_text(kind: str, text: str) -> None:
    tokenizer = KINDS[kind]()
    check(tokenizer, text)
    ids, offsets = tokenizer.encode_offsets([text])[0]
    # Compatibility characters younger than the tables of `tokenizers` are the one known difference.
    if normalizers.NFKC().normalize_str(text) == unicodedata.normalize("NFKC", text):
        assert ids.tolist() == tokenizer.encode([text])[0]
    if kind == "bpe":
        return
    if unicodedata.normalize("NFKD", text) != "".join(
        unicodedata.normalize("NFKD", char) for char in text
    ):
        return  # marks change their order across characters, and pieces come from several places
    # A token that shares no character with its neighbors says what its span says.
    for i, (begin, end) in enumerate(offsets.tolist()):
        alone = (i == 0 or offsets[i - 1, 1] <= begin) and (
            i + 1 == len(ids) or offsets[i + 1, 0] >= end
        )
        if alone and begin < end and ids[i] != tokenizer.unk_id:
            piece = tokenizer.get_token(int(ids[i])).removeprefix("##").replace("▁", " ").strip()
            assert tokenizer.normalize(text[begin:end]) == piece, f"{text!a} at {begin}"


@EVERY_KIND
def test_a_word_begins_after_its_space(kind: str) -> None:
    tokenizer = KINDS[kind]()
    text = "  the\tcat  \n sat \u00a0on\u2003(the) mat "
    assert "".join(cuts(tokenizer, text)) == "".join(text.split())
    _, offsets = tokenizer.encode_offsets([text])[0]
    starts = {begin for begin, end in offsets.tolist() if begin < end}
    assert {text.index(word) for word in ("the", "cat", "sat", "on", "(", "mat")} <= starts


def test_stripped_accents_stay_in_the_span() -> None:
    for kind in ("unigram-strip", "wordpiece-strip"):
        for text in ("e\u0301cole cafe\u0301", "école café"):
            parts = cuts(KINDS[kind](), text)
            assert "".join(parts) == text.replace(" ", "")
            assert not any(unicodedata.combining(cut[0]) for cut in parts if cut)


def test_what_one_character_becomes_shares_its_span() -> None:
    tokenizer = KINDS["unigram"]()
    text = "x ½ ㎏"
    parts = [cut for cut in cuts(tokenizer, text) if cut]
    assert set(parts) == {"x", "½", "㎏"}
    assert parts.count("½") > 1
    assert parts.count("㎏") > 1
    ligature = spans(tokenizer, "of ﬁne")
    assert all(cut in ("ﬁ", "ﬁn", "ﬁne", "n", "ne", "e", "") for _, cut in ligature[-3:])


def test_composed_characters_and_emoji() -> None:
    for kind in ("unigram", "unigram-strip"):
        tokenizer = KINDS[kind]()
        assert cuts(tokenizer, "x ｶﾞ")[-1] == "ｶﾞ"
        hangul = unicodedata.normalize("NFD", "각")
        assert cuts(tokenizer, f"x {hangul}")[-1] == hangul
        assert cuts(tokenizer, "x 👩\u200d👧 y")[-2:] in (["👩\u200d👧", "y"], ["", "y"])
    assert cuts(KINDS["wordpiece"](), "吾輩は cat")[:3] == ["吾", "輩", "は"]
    assert set(cuts(KINDS["bpe"](), "é😀")) == {"", "é", "😀"}, (
        "the bytes of a character share its span"
    )


def test_nothing_to_read() -> None:
    tokenizer = KINDS["unigram"]()
    assert tokenizer.encode_offsets([]) == []
    for ids, offsets in tokenizer.encode_offsets(["", " \n", "\x07"]):
        assert ids.shape == (0,)
        assert offsets.shape == (0, 2)


def test_half_a_character() -> None:
    for kind in ("unigram", "wordpiece"):
        with refused(DataError, "'a\\ud83d'"):
            KINDS[kind]().encode_offsets(["ok", "a\ud83d"])


def test_pickling_after_use() -> None:
    for kind in KINDS:
        tokenizer = KINDS[kind]()
        expected = spans(tokenizer, "a [MASK] <pad> cat")
        assert spans(pickle.loads(pickle.dumps(tokenizer)), "a [MASK] <pad> cat") == expected


def test_special_pieces_in_a_text_are_text(tmp_path: Path) -> None:
    text = "<pad> x<unk>y [MASK] [CLS]"
    train("unigram", lower_case=False).save(tmp_path)
    folder_tokenizer, file_tokenizer = (
        Tokenizer.load(tmp_path),
        Tokenizer.load(tmp_path / "tokenizer.json"),
    )
    for tokenizer in (folder_tokenizer, file_tokenizer):
        ids = tokenizer.encode_offsets([text])[0][0].tolist()
        assert ids == tokenizer.encode([text])[0] == folder_tokenizer.encode([text])[0]
        assert not set(ids) & {*tokenizer.special_ids} - {tokenizer.unk_id}
    assert (
        file_tokenizer.decode([*file_tokenizer.encode(["a cat"])[0], file_tokenizer.unk_id])
        == "a cat<unk>"
    )


def test_what_a_foreign_table_drops_at_the_beginning(tmp_path: Path) -> None:
    (tmp_path / "spiece.model").write_bytes(raw_model())
    tokenizer = Tokenizer.load(tmp_path)
    for begin in ("\x07", "\x07\x1e", "\x1f \x08", "\ufeff"):
        text = f"{begin}the cat sat"
        check(tokenizer, text)
        assert "".join(cuts(tokenizer, text)) == "thecatsat", ascii(text)


def test_vocabularies_of_others(shared_data: Path) -> None:
    for file in ("vocab/bert-base-uncased-vocab.txt", "spm/german-albert-30k.model"):
        tokenizer = Tokenizer.load(shared_data / file)
        for text in EXTRA + PROSE[:3] + ["Crème brûlée (Über) don't", " lead", "吾輩 naïve"]:
            check(tokenizer, text)
        assert "".join(cuts(tokenizer, " Crème BRU\u0302LÉE")) == "CrèmeBRU\u0302LÉE"
