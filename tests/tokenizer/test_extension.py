"""New pieces for a tokenizer that is kept: which ones, what they leave alone, and that other
software agrees.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from litebert.base.errors import DataError
from litebert.tokenizer import Tokenizer
from litebert.tokenizer.extension import extend
from litebert.tokenizer.spelling import find_sources
from litebert.tokenizer.training import train_tokenizer
from toys.refusals import refused
from toys.tokenizing import TRICKY, Kind, train

KOREAN = [
    "소유권은 러스트의 가장 독특한 특성입니다.",
    "러스트는 소유권을 규칙으로 관리합니다. 소유권의 규칙을 살펴봅시다.",
    "스택과 힙은 코드가 런타임에 쓰는 메모리의 일부입니다.",
    "메모리는 소유권 시스템을 통해 관리됩니다.",
] * 5
ENGLISH = ["The cat sat on the mat.", "statements and expressions, in that order", "a b c"]
KINDS = ["unigram", "wordpiece", "bpe"]


def tokens(tokenizer: Tokenizer, lines: list[str]) -> tuple[int, int]:
    """How many, and how many of them are unknown."""
    ids, _ = tokenizer.encode_flat(lines)
    return len(ids), int((ids == tokenizer.unk_id).sum())


@pytest.mark.parametrize("kind", KINDS)
def test_new_pieces_save_tokens_and_leave_the_old_ones_alone(kind: Kind) -> None:
    old = train(kind)
    extension = extend(old, KOREAN, 25)
    new = extension.tokenizer
    assert new.vocab_size == old.vocab_size + len(extension.added) == old.vocab_size + 25
    assert [new.get_token(i) for i in range(old.vocab_size)] == [
        old.get_token(i) for i in range(old.vocab_size)
    ]
    assert [piece.token for piece in extension.added] == [
        new.get_token(i) for i in range(old.vocab_size, new.vocab_size)
    ]
    assert new.special_ids == old.special_ids
    assert new.pair_separators == old.pair_separators
    assert new.encode(ENGLISH) == old.encode(ENGLISH)
    before, after = tokens(old, KOREAN), tokens(new, KOREAN)
    assert sum(after) < 0.7 * sum(before)
    assert after[1] <= before[1] / 2
    if kind == "bpe":  # every merge saves what it was chosen for
        assert before[0] - after[0] == sum(piece.saved for piece in extension.added)
        assert [new.decode(ids) for ids in new.encode(KOREAN)] == KOREAN
    assert sorted(extension.added, key=lambda piece: -piece.saved)[0] == extension.added[0]


@pytest.mark.parametrize("kind", KINDS)
def test_an_extended_tokenizer_gives_transformers_the_same_ids(kind: Kind, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    new = extend(train(kind), KOREAN, 25).tokenizer
    new.save(tmp_path)
    assert Tokenizer.load(tmp_path).fingerprint == new.fingerprint
    peer = AutoTokenizer.from_pretrained(tmp_path)
    assert len(peer) == new.vocab_size
    for text in [*KOREAN[:4], *ENGLISH, *TRICKY]:
        assert peer(text, add_special_tokens=False)["input_ids"] == new.encode([text])[0], text
        assert [ids.tolist() for ids, _ in new.encode_offsets([text])] == new.encode([text])


def test_the_piece_that_saves_most_is_added_first() -> None:
    wordpiece = train_tokenizer(["a b c d e f g"] * 9, kind="wordpiece", vocab_size=19)
    # abcdef: 3 x 5 tokens saved; fg, which stands in nothing else: 9 x 1; abc: 2 x 2, but 0 beside
    # abcdef.
    extension = extend(wordpiece, ["abcdef abcdef abcdef fg fg fg fg fg fg fg fg fg abc abc"], 3)
    assert [(piece.token, piece.saved) for piece in extension.added] == [
        ("abcdef", 15),
        ("fg", 9),
        ("abc", 4),
    ]
    assert tokens(extension.tokenizer, ["abcdef fg abc"]) == (3, 0)


def test_letters_are_not_joined_with_digits_or_signs() -> None:
    extension = extend(train(), ["x=1.25 foo_bar() foo_bar() x=1.25"] * 20, 40)
    for piece in extension.added:
        text = piece.token.removeprefix("▁")
        assert text.isalpha() or text.isdigit() or not any(map(str.isalnum, text)), piece


def test_an_imported_unigram_model_with_special_pieces_behind_its_vocabulary(
    tmp_path: Path,
) -> None:
    train().save(tmp_path)
    spec = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    mask = next(i for i, (piece, _) in enumerate(spec["model"]["vocab"]) if piece == "[MASK]")
    spec["model"]["vocab"][mask][0] = "nothing"
    for token in spec["added_tokens"]:
        if token["content"] == "[MASK]":
            token["id"] = len(spec["model"]["vocab"])
    (tmp_path / "imported.json").write_text(json.dumps(spec), encoding="utf-8")
    old = Tokenizer.load(tmp_path / "imported.json")
    new = extend(old, KOREAN, 20).tokenizer
    assert (new.mask_id, new.vocab_size) == (old.mask_id, old.vocab_size + 20)
    assert new.encode(ENGLISH) == old.encode(ENGLISH)
    assert sum(tokens(new, KOREAN)) < sum(tokens(old, KOREAN))


def test_what_cannot_be_extended_is_refused() -> None:
    with refused(DataError, 0):
        extend(train(), KOREAN, 0)
    with refused(DataError, "text"):
        extend(train(), ["the the", "of"], 5)


# ------------------------------------------------------------------ the pieces of another tokenizer


@pytest.mark.parametrize("old_kind", KINDS)
@pytest.mark.parametrize("new_kind", KINDS)
def test_pieces_are_found_by_what_they_spell(old_kind: Kind, new_kind: Kind) -> None:
    old, new = train(old_kind), train(new_kind, 650)
    sources = [source.ids for source in find_sources(old, new)]
    for role in ("pad", "unk", "cls", "sep", "mask"):
        assert sources[getattr(new, f"{role}_id")] == [getattr(old, f"{role}_id")]
    cased = (
        old_kind == "bpe"
    )  # the others lower-case, so that a piece with upper case reads otherwise in them
    words = [
        w
        for w in ("statement", "the", "order", "expressions")
        if len(new.encode([w])[0]) == 1 or not cased
    ]
    for word in words:
        ids = new.encode([word])[0]
        if len(ids) == 1:
            assert sources[ids[0]] == old.encode([word])[0], word
    inside = {"unigram": "ing", "wordpiece": "##ing", "bpe": "ing"}
    place = {
        tokenizer: next(
            i
            for i in range(tokenizer.vocab_size)
            if tokenizer.get_token(i) == inside[tokenizer.kind]
        )
        for tokenizer in (old, new)
    }
    assert sources[place[new]] == [place[old]]
    assert sum(map(bool, sources)) > 0.7 * new.vocab_size
