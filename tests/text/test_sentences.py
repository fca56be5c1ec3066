"""Texts to sentences, in the languages and without an end; and to lines."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from litebert.base.errors import DataError
from litebert.text.sentences import MAX_SENTENCE, split_lines, split_sentences
from toys.refusals import refused


def test_sentences_by_language() -> None:
    english = "Dr. Smith paid 3.50 to Mr. Jones. Why? He was asked to!\nA new line ends one"
    assert split_sentences(english) == [
        "Dr. Smith paid 3.50 to Mr. Jones.",
        "Why?",
        "He was asked to!",
        "A new line ends one",
    ]
    assert split_sentences("吾輩は猫である。名前はまだ無い。", "ja") == [
        "吾輩は猫である。",
        "名前はまだ無い。",
    ]
    assert split_sentences("Das kostet z.B. 3 Euro. Gut.", "de") == [
        "Das kostet z.B. 3 Euro.",
        "Gut.",
    ]


def test_sentences_one_per_line() -> None:
    assert split_sentences("One. Still one.\n\n  Two \n", "line") == ["One. Still one.", "Two"]


@pytest.mark.parametrize("language", ["en", "line"])
def test_a_sentence_without_an_end_is_cut(language: str) -> None:
    text = "word " * MAX_SENTENCE
    sentences = split_sentences(text, language)
    assert max(map(len, sentences)) <= MAX_SENTENCE
    assert " ".join(sentences) == text.strip()


@pytest.mark.parametrize("language", ["english", "xx", "EN", "", "e"])
def test_a_language_that_is_no_code(language: str) -> None:
    with refused(DataError, f"'{language}'"):
        split_sentences("Text.", language)


@given(st.text(st.sampled_from("ab \n"), max_size=80))
def test_split_lines_loses_nothing_but_spaces(text: str) -> None:
    lines = list(split_lines(text, 8))
    assert all(0 < len(line) <= 8 for line in lines)
    assert "".join("".join(lines).split()) == "".join(text.split())


def test_split_lines_cuts_at_spaces() -> None:
    assert list(split_lines("one two three\n\nfour", 8)) == ["one two", "three", "four"]


@pytest.mark.thorough
@pytest.mark.parametrize("mark", ["“", "'", "‘x ", "{'k': 'v'}, "])
def test_quotes_that_do_not_close_take_linear_time(mark: str) -> None:
    def measure(size: int) -> float:
        text = (mark * size)[:size]
        began = time.process_time()
        assert "".join(split_sentences(text)).replace(" ", "") == text.replace(" ", "")
        return time.process_time() - began

    assert measure(120_000) < 3 * measure(60_000) + 0.1  # four times as much, were it quadratic


@given(
    st.lists(st.sampled_from(["A word. ", "“Yes?” ", "no end ", "‘x", "。", "Mr. X "]), max_size=30)
)
def test_a_long_line_loses_nothing(pieces: list[str]) -> None:
    line = "".join(pieces) * 400
    assert "".join(split_sentences(line)).replace(" ", "") == line.replace(" ", "")


def test_an_ordinary_line_is_split_as_a_whole() -> None:
    sentences = [f"Mr. Brown said “number {i}, please.” " for i in range(540)]
    line = "".join(sentences)[:19_990]
    import sentencex

    assert split_sentences(line) == [part.strip() for part in sentencex.segment("en", line)]
    twice = split_sentences(line + " " + line)
    assert twice[:400] == split_sentences(line)[:400]
    assert twice[-400:] == split_sentences(line)[-400:]
