"""Random phrases of texts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from litebert.text.phrases import LONGEST, LONGEST_TEXT, make_phrases

TEXT = st.text(alphabet="ab cdé 猫", max_size=40).map(lambda text: " ".join(text.split()))


@given(st.lists(TEXT, max_size=8), st.integers(0, 30), st.integers(0, 3))
def test_phrases_are_new_texts_of_the_same_words(texts: list[str], count: int, seed: int) -> None:
    phrases = make_phrases(texts, count, seed)
    assert len(phrases) <= count
    assert len(set(phrases)) == len(phrases)
    assert not set(phrases) & {*texts, ""}
    assert phrases == make_phrases(texts, count, seed)
    symbols = set("".join(texts))
    assert all(set(phrase) <= symbols for phrase in phrases)
    longest = max((len(text) for text in texts), default=0)
    assert all(len(phrase.split()) <= longest for phrase in phrases)


def test_a_text_gives_spans_with_other_words_of_the_texts() -> None:
    text = " ".join(f"w{i}" for i in range(40))
    phrases = make_phrases([text, "good bad"], 400)
    assert len(phrases) == 400
    vocabulary = set(text.split()) | {"good", "bad"}
    assert all(set(phrase.split()) <= vocabulary for phrase in phrases)
    lengths = [len(phrase.split()) for phrase in phrases if "w" in phrase]
    spans = sum(length <= LONGEST for length in lengths) / len(lengths)
    assert 0.2 < spans < 0.8
    assert any("good" in phrase.split() and "w1" in phrase.split() for phrase in phrases)
    assert make_phrases([text], 10, seed=1) != make_phrases([text], 10, seed=2)


def test_a_text_without_spaces_is_cut_between_its_characters() -> None:
    phrases = make_phrases(["この映画はとても面白かったですし音楽も良かった"], 20)
    assert len(phrases) == 20
    assert not any(" " in phrase for phrase in phrases)


def test_one_word_has_no_phrases() -> None:
    assert make_phrases(["good"], 10) == []
    assert make_phrases([""], 10) == []


def test_short_texts_end_early_and_long_texts_are_cut() -> None:
    assert 1 <= len(make_phrases(["a b"], 10_000_000)) <= 8
    long = " ".join(f"w{i}" for i in range(100_000))
    assert max(len(phrase.split()) for phrase in make_phrases([long], 50)) <= LONGEST_TEXT
