"""Tokenizers: layout, the same ids as `transformers`, training within a budget, imports, whole words, reports."""

from __future__ import annotations

import json
import os
import pickle
import random
import re
import string
import subprocess
import sys
import unicodedata
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import numpy as np
import pytest
import sentencepiece
import tokenizers
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sentencepiece import sentencepiece_model_pb2 as model_pb2
from tokenizers import models

from litebert.data.tokenizer import Tokenizer, inspect, train_tokenizer
from litebert.data.tokenizer_engines import continues_word, marked_word_starts
from litebert.data.tokenizer_training import character_rules, sample_lines, split_lines
from litebert.errors import DataError

PROSE = [topics[name] for name in sorted(topics)[:12]]
EXTRA = [
    "Où est le café naïve? Über die Straße, señor — Ærø, Łódź, İstanbul, Ελληνικά.",
    "吾輩は猫である。名前はまだ無い。我们学习语言。",
    "ภาษาไทยไม่มีช่องว่างระหว่างคำ",
    "한국어는 띄어쓰기를 합니다. हिन्दी में मात्राएँ।",
]
CORPUS = PROSE + EXTRA * 3
TRICKY = [
    "",
    " ",
    "\t\n",
    "The cat sat.",
    "  two  spaces\tand a tab\r\nand lines ",
    "ÉCOLE école e\u0301cole E\u0301\u0323 o\u0308\u0304",
    "ﬁne ½ ² Ａｂｃ １２３ ～ ㎏ ｶﾞ ｶ",
    "smile 😀 👩‍👩‍👧 🇫🇷 👍🏽 A🏽",
    "吾輩は猫である。我们 中文abc",
    "ภาษาไทย",
    "각 한국어",
    "1,999 and 1999, x1999,",
    "a" * 500 + " " + "ab" * 60,
    "zero\u200bwidth soft\u00adhyphen bom\ufeff nul\x00 bell\x07 \u2028 \u00a0",
    "▁mark ▁ __",
    "``quotes'' “curly” don't",
    '(a) "b" - c. – £1 €2',
    "!!!???... ---",
]


@cache
def train(kind: str = "unigram", vocab_size: int = 600, **options: Any) -> Tokenizer:
    return train_tokenizer(CORPUS, kind=kind, vocab_size=vocab_size, **options)  # type: ignore[arg-type]


def pieces(tokenizer: Tokenizer, text: str) -> list[str]:
    return [tokenizer.piece(i) for i in tokenizer.encode([text])[0]]


@pytest.fixture(scope="module", params=["unigram", "wordpiece", "unigram-cased", "unigram-strip", "wordpiece-strip"])
def saved(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Tokenizer, Path]:
    kind, _, option = request.param.partition("-")
    options = {"": {}, "cased": {"lower_case": False}, "strip": {"strip_accents": True}}[option]
    tokenizer = train(kind, **options)
    folder = tmp_path_factory.mktemp(request.param)
    tokenizer.save(folder)
    return tokenizer, folder


@pytest.fixture(scope="module")
def theirs(saved: tuple[Tokenizer, Path]) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(saved[1])


@pytest.fixture(scope="module")
def unigram() -> Tokenizer:
    return train()


@pytest.fixture(scope="module")
def wordpiece() -> Tokenizer:
    return train("wordpiece")


# ------------------------------------------------------------------------------------------------------------- layout


def test_unigram_has_the_layout_of_albert(unigram: Tokenizer) -> None:
    expected = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]", "(", ")", '"', "-", ".", "–", "£", "€"]
    assert [unigram.piece(i) for i in range(13)] == expected
    assert unigram.vocab_size == 600
    assert unigram.special_ids == (0, 1, 2, 3, 4)
    assert (unigram.pad_id, unigram.unk_id, unigram.cls_id, unigram.sep_id, unigram.mask_id) == (0, 1, 2, 3, 4)


def test_wordpiece_has_the_order_of_bert(wordpiece: Tokenizer) -> None:
    assert [wordpiece.piece(i) for i in range(5)] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert wordpiece.vocab_size == 600
    assert wordpiece.special_ids == (0, 1, 2, 3, 4)


def test_random_ids_are_all_but_the_special(unigram: Tokenizer) -> None:
    np.testing.assert_array_equal(unigram.random_ids, np.arange(5, 600))


def test_specials_are_never_read_from_text(saved: tuple[Tokenizer, Path]) -> None:
    tokenizer = Tokenizer.load(saved[1])
    ids = tokenizer.encode(["a [MASK] b [SEP] <pad> [PAD] [CLS]"])[0]
    assert not set(ids) & {tokenizer.mask_id, tokenizer.sep_id, tokenizer.pad_id, tokenizer.cls_id}


def test_digits_and_commas_have_no_rule_of_their_own(tmp_path: Path) -> None:
    tokenizer = train_tokenizer(["in 1999, we met"] * 50 + PROSE, kind="unigram", vocab_size=600)
    # The original code would cut the comma off every piece that ends in digit and comma; this is the model's cut.
    assert "".join(pieces(tokenizer, "1999,")) == "▁1999,"
    raw = sentencepiece.SentencePieceProcessor(model_proto=tokenizer._engine.files()["spiece.model"])
    assert tokenizer.encode(["in 1999, x1999,"])[0] == raw.encode("in 1999, x1999,")


# ---------------------------------------------------------------------------------------- the same ids elsewhere


def test_saved_folder_opens_with_transformers(saved: tuple[Tokenizer, Path], theirs: Any) -> None:
    tokenizer, _ = saved
    # In a run of one sign (*****) two cuts have the same score, and rounding chooses: such lines are left out.
    lines = [line for text in PROSE for line in text.splitlines() if not re.search(r"([^\s.-])\1\1", line)]
    for text in TRICKY + EXTRA + lines:
        ours = tokenizer.encode([text])[0]
        assert theirs(text, add_special_tokens=False)["input_ids"] == ours, ascii(text)
    a, b = tokenizer.encode(["a cat", "the dog"])
    one, two = theirs("a cat"), theirs("a cat", "the dog")
    assert one["input_ids"] == [tokenizer.cls_id, *a, tokenizer.sep_id]
    assert two["input_ids"] == [tokenizer.cls_id, *a, tokenizer.sep_id, *b, tokenizer.sep_id]
    assert two["token_type_ids"] == [0] * (len(a) + 2) + [1] * (len(b) + 1)
    for role in ("pad", "unk", "cls", "sep", "mask"):
        assert getattr(theirs, f"{role}_token_id") == getattr(tokenizer, f"{role}_id")
    assert len(theirs) == tokenizer.vocab_size


@pytest.mark.parametrize("model_type", ["albert", "bert"])
def test_a_model_beside_changes_nothing(saved: tuple[Tokenizer, Path], tmp_path: Path, model_type: str) -> None:
    from transformers import AutoTokenizer

    saved[0].save(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    for text in TRICKY:
        assert theirs(text, add_special_tokens=False)["input_ids"] == saved[0].encode([text])[0], ascii(text)


def test_transformers_reads_a_mask_in_text_where_we_do_not(saved: tuple[Tokenizer, Path], theirs: Any) -> None:
    tokenizer, _ = saved
    before, after = tokenizer.encode(["a cat", "dog"])
    assert theirs("a cat [MASK] dog", add_special_tokens=False)["input_ids"] == [*before, tokenizer.mask_id, *after]


@settings(max_examples=300, deadline=None)
@given(
    text=st.text(
        st.characters(exclude_categories=["Cs", "Cn", "Co"]) | st.sampled_from("Aaé \u0301\u0323ｶﾞ각"), max_size=40
    )
)
def test_any_text_gives_the_ids_of_transformers(saved: tuple[Tokenizer, Path], theirs: Any, text: str) -> None:
    assume(not any(name in text for name in theirs.all_special_tokens))  # those they read as special
    # Compatibility characters younger than the tables of `tokenizers` are the one known difference.
    assume(tokenizers.normalizers.NFKC().normalize_str(text) == unicodedata.normalize("NFKC", text))
    assert theirs(text, add_special_tokens=False)["input_ids"] == saved[0].encode([text])[0]


@settings(max_examples=100, deadline=None)
@given(texts=st.lists(st.text(max_size=30), max_size=5))
def test_flat_is_the_batch_end_to_end(saved: tuple[Tokenizer, Path], texts: list[str]) -> None:
    flat, lengths = saved[0].encode_flat(texts)
    assert flat.dtype == np.int32
    assert lengths.dtype == np.int64
    assert [part.tolist() for part in np.split(flat, np.cumsum(lengths))[:-1]] == saved[0].encode(texts)


def test_wordpiece_encodes_as_the_reference_class(wordpiece: Tokenizer) -> None:
    from transformers import BertTokenizer

    vocabulary = {wordpiece.piece(i): i for i in range(wordpiece.vocab_size)}
    reference = BertTokenizer(vocab=vocabulary, do_lower_case=True, strip_accents=False)
    for text in TRICKY + EXTRA:
        assert reference(text, add_special_tokens=False)["input_ids"] == wordpiece.encode([text])[0]


def test_decode_gives_the_text_back(unigram: Tokenizer, wordpiece: Tokenizer) -> None:
    text = "the class of an object"
    for tokenizer in (unigram, wordpiece):
        ids = tokenizer.encode([text])[0]
        assert tokenizer.decode([tokenizer.cls_id, *ids, tokenizer.sep_id, tokenizer.pad_id]) == text
        assert tokenizer.decode(np.array(ids)) == text


def test_half_a_character_is_refused(saved: tuple[Tokenizer, Path]) -> None:
    with pytest.raises(DataError, match="half a character"):
        saved[0].encode(["a", "\ud83d"])
    with pytest.raises((TypeError, AttributeError)):
        saved[0].encode([None])  # type: ignore[list-item]


# ------------------------------------------------------------------------------------------------- save, load, workers


def test_load_gives_the_same_tokenizer(saved: tuple[Tokenizer, Path], tmp_path: Path) -> None:
    tokenizer, folder = saved
    loaded = Tokenizer.load(folder)
    loaded.save(tmp_path / "again")
    for other in (loaded, Tokenizer.load(str(tmp_path / "again")), pickle.loads(pickle.dumps(tokenizer))):
        assert other.fingerprint == tokenizer.fingerprint
        assert other.kind == tokenizer.kind
        assert other.special_ids == tokenizer.special_ids
        assert other.encode(TRICKY) == tokenizer.encode(TRICKY)
        np.testing.assert_array_equal(other.word_starts, tokenizer.word_starts)
    assert (tmp_path / "again" / "tokenizer.json").read_bytes() == (folder / "tokenizer.json").read_bytes()


@pytest.mark.parametrize("kind", ["unigram", "wordpiece"])
def test_fingerprint_changes_with_what_decides_ids(kind: str) -> None:
    variants = [
        train(kind),
        train(kind, vocab_size=550),
        train(kind, lower_case=False),
        train(kind, strip_accents=True),
    ]
    assert len({tokenizer.fingerprint for tokenizer in variants}) == 4


def test_fingerprint_ignores_the_training_record(unigram: Tokenizer, tmp_path: Path) -> None:
    model = model_pb2.ModelProto.FromString(unigram._engine.files()["spiece.model"])
    model.trainer_spec.input.append("/somewhere/else.txt")
    (tmp_path / "spiece.model").write_bytes(model.SerializeToString())
    assert Tokenizer.load(tmp_path).fingerprint == unigram.fingerprint


WORKERS = """
import multiprocessing, sys, warnings
warnings.simplefilter("error")
from litebert.data.tokenizer import Tokenizer, train_tokenizer

if __name__ == "__main__":
    trained = train_tokenizer(["the cat sat on the mat with another cat"] * 9, kind="wordpiece", vocab_size=35)
    for tokenizer in (trained, Tokenizer.load(sys.argv[1])):
        expected = tokenizer.encode(["the cat sat"] * 8)
        for method in ("fork", "spawn"):
            with multiprocessing.get_context(method).Pool(2) as pool:
                assert pool.map(tokenizer.encode, [["the cat sat"] * 4] * 2) == [expected[:4]] * 2
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no fork")
def test_workers_encode_without_a_warning(unigram: Tokenizer, tmp_path: Path) -> None:
    unigram.save(tmp_path / "tokenizer")
    script = tmp_path / "workers.py"
    script.write_text(WORKERS)
    result = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "tokenizer")],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (result.returncode, result.stderr, result.stdout) == (0, "", "")


# ------------------------------------------------------------------------------------------------------------ training


@pytest.mark.parametrize("kind", ["unigram", "wordpiece"])
def test_training_is_deterministic(kind: str) -> None:
    budget = 60_000  # less than the corpus holds, so that the sample matters
    train.cache_clear()
    first, other = (train(kind, 400, memory=budget, seed=seed) for seed in (1, 2))
    train.cache_clear()
    again = train(kind, 400, memory=budget, seed=1)
    assert first.fingerprint == again.fingerprint
    assert first.fingerprint != other.fingerprint


def test_training_holds_no_more_than_its_budget() -> None:
    def endless() -> Iterator[str]:
        draw = random.Random(5)
        for _ in range(4000):
            yield " ".join("".join(draw.choices(string.ascii_lowercase, k=5)) for _ in range(40))

    lines = sample_lines(endless(), 100_000, seed=3)
    assert 0.6 * 100_000 < sum(map(sys.getsizeof, lines)) <= 100_000


def test_sample_is_uniform_and_keeps_the_order() -> None:
    lines = [f"{i:04d}" + "x" * (i % 7 * 20) for i in range(400)]
    hits = np.zeros(400)
    for seed in range(300):
        sample = sample_lines(lines, 40_000, seed)
        assert sample == sorted(sample)
        hits[[int(line[:4]) for line in sample]] += 1
    share = hits.sum() / hits.size / 300
    chi_square = ((hits - 300 * share) ** 2 / (300 * share * (1 - share))).sum()
    assert 0.2 < share < 0.8
    assert abs(chi_square - 400) < 4 * np.sqrt(2 * 400)
    assert sample_lines(lines, 1 << 20, 0) == lines
    assert sample_lines(["a" * 999], 10, 0) == ["a" * 999]


@given(st.text(st.sampled_from("ab \n"), max_size=80))
def test_split_lines_loses_nothing_but_spaces(text: str) -> None:
    lines = list(split_lines(text, 8))
    assert all(0 < len(line) <= 8 for line in lines)
    assert "".join("".join(lines).split()) == "".join(text.split())


def test_split_lines_cuts_at_spaces() -> None:
    assert list(split_lines("one two three\n\nfour", 8)) == ["one two", "three", "four"]


@pytest.mark.parametrize("kind", ["unigram", "wordpiece"])
def test_too_large_a_vocabulary_names_the_largest(kind: str) -> None:
    text = ["the cat sat on the mat", "the dog sat on the log"]
    with pytest.raises(DataError, match=r"largest possible is \d+") as caught:
        train_tokenizer(text, kind=kind, vocab_size=5000)  # type: ignore[arg-type]
    largest = int(str(caught.value).split("largest possible is ")[1].split(",")[0])
    assert train_tokenizer(text, kind=kind, vocab_size=largest).vocab_size == largest  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["unigram", "wordpiece"])
def test_too_small_a_vocabulary_is_refused(kind: str) -> None:
    with pytest.raises(DataError, match=r"vocabulary of 5 .*too small|vocabulary of 5 could not"):
        train(kind, 5)


@pytest.mark.parametrize("kind", ["unigram", "wordpiece"])
@pytest.mark.parametrize("texts", [[], ["", " \n\t "]])
def test_no_text_is_refused(kind: str, texts: list[str]) -> None:
    with pytest.raises(DataError, match="no text"):
        train_tokenizer(texts, kind=kind, vocab_size=100)  # type: ignore[arg-type]


def test_a_failure_of_the_trainer_is_told_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**_: Any) -> None:
        raise RuntimeError("INTERNAL:\n out of cheese")

    monkeypatch.setattr(sentencepiece.SentencePieceTrainer, "train", fail)
    with pytest.raises(DataError, match=r"could not be trained \(INTERNAL: out of cheese\)"):
        train("unigram", 333)


def test_training_leaves_the_environment_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "true")
    train("wordpiece", 401)
    assert os.environ["TOKENIZERS_PARALLELISM"] == "true"


def test_unknown_kind_is_refused() -> None:
    with pytest.raises(DataError, match="did you mean 'unigram'"):
        train("unigrams")


@pytest.mark.parametrize("kind", ["unigram", "wordpiece"])
def test_thousands_of_characters_fit_a_small_vocabulary(kind: str) -> None:
    draw = random.Random(0)
    ideographs = [chr(0x4E00 + i) for i in range(3000)]
    weights = [1 / (i + 1) for i in range(3000)]
    texts = ["".join(draw.choices(ideographs, weights, k=60)) + "。" for _ in range(600)]
    tokenizer = train_tokenizer(texts, kind=kind, vocab_size=500)  # type: ignore[arg-type]
    assert tokenizer.vocab_size == 500
    flat, _ = tokenizer.encode_flat(texts)
    known = tokenizer.decode(tokenizer.encode([ideographs[0] * 3 + ideographs[5]])[0]).replace(" ", "")
    assert known == ideographs[0] * 3 + ideographs[5]
    assert (flat == tokenizer.unk_id).mean() < 0.35


def test_rare_letters_of_a_small_alphabet_are_kept() -> None:
    tokenizer = train_tokenizer([*PROSE, "an é, once in all the text"], kind="unigram", vocab_size=900)
    assert tokenizer.unk_id not in tokenizer.encode(["é"])[0]


@pytest.mark.parametrize("kind", ["unigram", "wordpiece"])
def test_accents_and_case(kind: str) -> None:
    kept, stripped, cased = train(kind), train(kind, strip_accents=True), train(kind, lower_case=False)
    assert kept.normalize("Café ÜBER Straße Ærø") == "café über straße ærø"
    assert stripped.normalize("Café ÜBER Straße Ærø") == "cafe uber straße ærø"
    assert cased.normalize("Café ÜBER") == "Café ÜBER"
    assert kept.encode(["CAFÉ"]) == kept.encode(["cafe\u0301" if kind == "unigram" else "café"])
    assert stripped.encode(["Où"]) == stripped.encode(["ou"])


def test_stripping_accents_leaves_other_letters_whole() -> None:
    rules = character_rules(lower_case=True, strip_accents=True)
    assert rules["\u0301"] == ""
    assert rules["É"] == "e"
    assert "한" not in rules  # composed again, not left in its parts
    assert character_rules(lower_case=False, strip_accents=False)["ﬁ"] == "fi"


def test_raw_sentencepiece_reads_our_model_alike(unigram: Tokenizer) -> None:
    raw = sentencepiece.SentencePieceProcessor(model_proto=unigram._engine.files()["spiece.model"])
    for text in ["École e\u0301cole", "The CAT  sat.\tﬁne", "吾輩は猫", "soft\u00adhyphen"]:
        assert raw.encode(text) == unigram.encode([text])[0]


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


def raw_model(**options: Any) -> bytes:
    import io

    out = io.BytesIO()
    settings_: dict[str, Any] = {
        "vocab_size": 300,
        "pad_id": 0,
        "unk_id": 1,
        "bos_id": -1,
        "eos_id": -1,
        "control_symbols": ["[CLS]", "[SEP]", "[MASK]"],
        "minloglevel": 3,
        **options,
    }
    lines = [line.lower() for text in PROSE for line in split_lines(text)]
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=out, **settings_)
    return out.getvalue()


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


# ------------------------------------------------------------------------------------------------------------- imports


def test_a_bare_model_gets_the_lower_casing_done_outside(tmp_path: Path) -> None:
    (tmp_path / "spiece.model").write_bytes(raw_model())
    tokenizer = Tokenizer.load(tmp_path / "spiece.model")
    assert tokenizer.encode(["The Café"]) == tokenizer.encode(["the cafe"])
    tokenizer.save(tmp_path / "saved")
    again = Tokenizer.load(tmp_path / "saved")
    assert again.encode(TRICKY) == tokenizer.encode(TRICKY)
    assert again.fingerprint == tokenizer.fingerprint
    from transformers import AutoTokenizer

    theirs = AutoTokenizer.from_pretrained(tmp_path / "saved")
    for text in ["The Café", "a  CAT", "x [y] 12."]:
        assert theirs(text, add_special_tokens=False)["input_ids"] == tokenizer.encode([text])[0]
    # The configuration beside a model has the last word.
    config = {"do_lower_case": False, "keep_accents": True}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    assert Tokenizer.load(tmp_path).encode(["The"]) != tokenizer.encode(["the"])


def test_a_folder_written_by_transformers(tmp_path: Path) -> None:
    from transformers import AlbertTokenizer, BertTokenizer

    source = tmp_path / "source"
    source.mkdir()
    (source / "spiece.model").write_bytes(raw_model())
    vocabulary = {
        piece: i for i, piece in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "c", "##at"])
    }
    for reference in (AlbertTokenizer.from_pretrained(source), BertTokenizer(vocab=vocabulary)):
        folder = tmp_path / type(reference).__name__
        reference.save_pretrained(folder)
        for path in (folder, folder / "tokenizer.json"):
            tokenizer = Tokenizer.load(path)
            assert tokenizer.cls_id == reference.cls_token_id
            assert tokenizer.word_starts is not None
            for text in ["The CAT", "the café ``quoted''", " the  value [x]", ""]:
                assert tokenizer.encode([text])[0] == reference(text, add_special_tokens=False)["input_ids"]
        tokenizer.save(folder / "ours")
        assert Tokenizer.load(folder / "ours").encode(["the Cat"]) == tokenizer.encode(["the Cat"])


@pytest.mark.parametrize(("words", "upper"), [(["the", "##e"], False), (["The", "##e"], True)])
def test_a_bare_vocabulary_file(tmp_path: Path, words: list[str], upper: bool) -> None:
    path = tmp_path / "vocab.txt"
    path.write_bytes("\r\n".join(["[PAD]", "[unused1]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words, ""]).encode())
    tokenizer = Tokenizer.load(path)
    assert tokenizer.kind == "wordpiece"
    assert tokenizer.vocab_size == 8
    assert tokenizer.unk_id == 2
    assert tokenizer.encode(["The", "The\u0301"])[0] == [6]
    assert (tokenizer.encode(["Thé"]) == tokenizer.encode(["The"])) is not upper
    assert tokenizer.random_ids.tolist() == [1, 6, 7]
    assert Tokenizer.load(tmp_path).fingerprint == tokenizer.fingerprint


def test_real_models(shared_data: Path, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    german = Tokenizer.load(shared_data / "spm" / "german-albert-30k.model")
    english = Tokenizer.load(shared_data / "vocab" / "bert-base-uncased-vocab.txt")
    assert (german.vocab_size, english.vocab_size) == (30000, 30522)
    assert (english.pad_id, english.unk_id, english.cls_id, english.sep_id, english.mask_id) == (0, 100, 101, 102, 103)
    assert english.encode(["Hello, world!"])[0] == [7592, 1010, 2088, 999]
    assert pieces(german, "Über die Straße")[:1] == ["▁Über"]
    raw = sentencepiece.SentencePieceProcessor(model_file=str(shared_data / "spm" / "german-albert-30k.model"))
    text = ["Über den Wolken muß die Freiheit wohl grenzenlos sein, sagte er.", "1,999 Äpfel", *TRICKY, *EXTRA]
    for name, tokenizer in (("german", german), ("english", english)):
        tokenizer.save(tmp_path / name)
        theirs = AutoTokenizer.from_pretrained(tmp_path / name)
        for line in text:
            line = unicodedata.normalize("NFC", line)
            if "ｶﾞ" not in line:  # a foreign model composes half-width marks, `tokenizers` cannot
                assert theirs(line, add_special_tokens=False)["input_ids"] == tokenizer.encode([line])[0], ascii(line)
    assert german.encode(text) == raw.encode(text)


# ------------------------------------------------------------------------------------------------------- unusable files


def json_of(model: Any) -> str:
    return tokenizers.Tokenizer(model).to_str()


def byte_pair_model() -> bytes:
    return raw_model(model_type="bpe")


def newer_model(unigram_bytes: bytes) -> bytes:
    model = model_pb2.ModelProto.FromString(unigram_bytes)
    model.normalizer_spec.name = "litebert:nfkc,rot13"
    return bytes(model.SerializeToString())


def test_unusable_files_are_refused_by_name(tmp_path: Path, unigram: Tokenizer) -> None:
    good = unigram._engine.files()["spiece.model"]
    specials = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n"
    gaps = {"<pad>": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 9}
    cases: dict[str, tuple[bytes | None, str]] = {
        "absent.model": (None, "no tokenizer at"),
        "empty.model": (b"", "no SentencePiece pieces"),
        "noise.model": (bytes(range(256)) * 40, "damaged"),
        "cut.model": (good[: len(good) // 2], "damaged"),
        "bpe.model": (byte_pair_model(), "not a unigram model"),
        "newer.model": (newer_model(good), "'rot13', written by a newer"),
        "nomask.model": (raw_model(control_symbols=["[CLS]", "[SEP]"]), r"no piece \[MASK\] or <mask>"),
        "binary.txt": (b"\xff\xfe\x00", "not UTF-8 text .byte 0"),
        "twice.txt": (f"{specials}cat\ncat\n".encode(), r"twice.txt:7: the piece 'cat' stands on line 6"),
        "nounk.txt": (b"a\nb\n", r"no piece <unk> or \[UNK\]"),
        "nocls.txt": (b"[UNK]\n[PAD]\n", r"no piece \[CLS\] or <s>"),
        "binary.json": (b"\x80\x81", "not UTF-8 text"),
        "syntax.json": (b"{", "not a tokenizer.json"),
        "other.json": (b'{"a": 1}', "not a tokenizer.json"),
        "list.json": (b"[1, 2]", "not a tokenizer.json"),
        "bpe.json": (json_of(models.BPE({"a": 0}, [])).encode(), "holds a BPE tokenizer"),
        "gaps.json": (json_of(models.WordPiece(gaps, unk_token="[UNK]")).encode(), "gaps"),
        "odd.bin": (b"x", "no tokenizer file"),
    }
    for name, (content, message) in cases.items():
        path = tmp_path / name
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(DataError, match=message) as caught:
            Tokenizer.load(path)
        assert name in str(caught.value)
        assert "\n" not in str(caught.value), name


def test_unusable_folders_are_refused(tmp_path: Path, unigram: Tokenizer) -> None:
    with pytest.raises(DataError, match=r"holds no tokenizer\.json"):
        Tokenizer.load(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text("[]")
    with pytest.raises(DataError, match=r"tokenizer_config\.json is not a JSON object"):
        Tokenizer.load(tmp_path)
    (tmp_path / "tokenizer_config.json").unlink()
    model = unigram._engine.files()["spiece.model"]
    (tmp_path / "one.model").write_bytes(model)
    (tmp_path / "two.model").write_bytes(model)
    with pytest.raises(DataError, match=r"holds 2 \*\.model files"):
        Tokenizer.load(tmp_path)
    (tmp_path / "spiece.model").write_bytes(model)
    assert Tokenizer.load(tmp_path).fingerprint == unigram.fingerprint
    (tmp_path / "tokenizer.json").mkdir()
    (tmp_path / "vocab.txt").mkdir()
    assert Tokenizer.load(tmp_path).fingerprint == unigram.fingerprint


def test_an_unreadable_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "vocab.txt"
    path.write_text("x")

    def refuse(self: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(DataError, match=r"vocab\.txt cannot be read .Permission denied"):
        Tokenizer.load(path)


def test_wordpiece_without_a_prefix_cannot_tell_words(tmp_path: Path) -> None:
    vocabulary = {piece: i for i, piece in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"])}
    path = tmp_path / "tokenizer.json"
    path.write_text(json_of(models.WordPiece(vocabulary, unk_token="[UNK]", continuing_subword_prefix="")))
    assert Tokenizer.load(path).word_starts is None


# ------------------------------------------------------------------------------------------------------------- inspect


def test_inspect_counts_what_happens(unigram: Tokenizer) -> None:
    texts = ["The cat sat.\nOn the mat", "ﬁne ﬁne ☃ \x07", "É"]
    report = inspect(unigram, iter(texts))
    ids = [i for text in texts for line in text.split("\n") for i in unigram.encode([line])[0]]
    assert (report.texts, report.words, report.pieces) == (3, 11, len(ids))
    assert report.unknown_pieces == ids.count(unigram.unk_id) == 1
    assert report.pieces_per_word == len(ids) / 11
    assert report.unknown_rate == 1 / len(ids)
    assert report.lower_cased_characters == 3
    assert [(c.char, c.becomes, c.count) for c in report.changed] == [("ﬁ", "fi", 2), ("\x07", "", 1)]
    assert (report.changed_characters, report.dropped_characters) == (2, 1)
    assert [(c.char, c.count) for c in report.unknown] == [("☃", 1)]


def test_inspect_shows_lost_accents_most_frequent_first() -> None:
    tokenizer = train(strip_accents=True)
    report = inspect(tokenizer, ["é à é É" + chr(c) for c in range(0x100, 0x17F)])
    assert [(c.char, c.becomes) for c in report.changed[:3]] == [("é", "e"), ("à", "a"), ("É", "e")]
    assert len(report.changed) == 20
    kept = inspect(train(), ["é à é É"])
    assert kept.changed == ()
    assert kept.lower_cased_characters == 1


def test_inspect_reports_as_rows_and_as_json(wordpiece: Tokenizer) -> None:
    report = inspect(wordpiece, ["The cat ☃\u200b\u0301"])
    decoded = json.loads(json.dumps(report.to_dict()))
    assert decoded["pieces_per_word"] == report.pieces_per_word
    assert decoded["unknown"][0]["char"] == "☃"
    rows = dict(report.rows())
    assert rows["texts"] == "1"
    assert rows["☃ U+2603 SNOWMAN"] == "unknown, 1"
    assert rows["U+200B ZERO WIDTH SPACE"] == "dropped, 1"


def test_inspect_of_nothing(unigram: Tokenizer) -> None:
    report = inspect(unigram, [])
    assert (report.texts, report.pieces, report.pieces_per_word, report.unknown_rate) == (0, 0, 0.0, 0.0)
