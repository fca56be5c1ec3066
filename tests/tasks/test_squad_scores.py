"""SQuAD's scores: the official scripts' numbers on made-up answers, rules by hand, thresholds by
brute force.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from litebert.tasks.squad.scores import (
    Judged,
    exact_match,
    find_best_threshold,
    halve,
    judge,
    score_1,
    score_2,
    simplify,
    tune,
    unit_f1,
)


def made_up() -> tuple[dict[str, list[str]], dict[str, str], dict[str, float]]:
    """Gold texts, answers and odds of sixty questions, a fifth of them without an answer."""
    text = "the red fox, A blue hen. one an old door! sat by river's edge again"
    words = text.split()
    golds: dict[str, list[str]] = {}
    answers, odds = {}, {}
    for i in range(60):
        name = f"q{i:02d}"
        start, size = i * 7 % 11, 1 + i % 4
        answers[name] = " ".join(words[start : start + size]) if i % 13 else ""
        shifted = (start + (i % 3 == 0)) % 11
        texts = [" ".join(words[shifted : shifted + size]), words[i % 12].upper()]
        golds[name] = [] if i % 5 == 0 else texts[: 1 + i % 2]
        odds[name] = (i * 29 % 23 - 11) / 4 + (0 if golds[name] else 2)
    golds["q07"] = ["the", "!"]
    return golds, answers, odds


def all_judged() -> list[Judged]:
    golds, answers, odds = made_up()
    return [judge(name, answers[name], odds[name], golds[name]) for name in golds]


def test_the_numbers_of_the_official_script_1() -> None:
    golds, answers, _ = made_up()
    answerable = [name for name, texts in golds.items() if texts]
    scores = score_1([answers[name] for name in answerable], [golds[name] for name in answerable])
    assert scores == {"exact_match": 60.416666666666664, "f1": 67.6388888888889}


OFFICIAL_2 = {
    -1.0: {
        "exact": 38.333333333333336,
        "f1": 41.88888888888889,
        "total": 60,
        "HasAns_exact": 22.916666666666668,
        "HasAns_f1": 27.361111111111114,
        "HasAns_total": 48,
        "NoAns_exact": 100.0,
        "NoAns_f1": 100.0,
        "NoAns_total": 12,
    },
    0.5: {
        "exact": 43.333333333333336,
        "f1": 49.94444444444445,
        "total": 60,
        "HasAns_exact": 35.416666666666664,
        "HasAns_f1": 43.680555555555564,
        "HasAns_total": 48,
        "NoAns_exact": 75.0,
        "NoAns_f1": 75.0,
        "NoAns_total": 12,
    },
}
"""Threshold -> what evaluate-v2.0.py prints for it."""


@pytest.mark.parametrize("threshold", OFFICIAL_2)
def test_the_numbers_of_the_official_script_2(threshold: float) -> None:
    assert score_2(all_judged(), threshold) == OFFICIAL_2[threshold]


def test_the_best_thresholds_of_the_official_script() -> None:
    assert find_best_threshold(all_judged(), "exact") == (53.333333333333336, 2.5)
    assert find_best_threshold(all_judged(), "f1") == (64.11111111111111, 2.75)


# -------------------------------------------------------------------------------------------- rules


@pytest.mark.parametrize(
    ("text", "simple"),
    [
        ("The  Cat's\u00a0HAT.", "cats hat"),
        ("a an the", ""),
        ("theatre an-other", "theatre another"),
        ("«a» — b", "« » — b"),
        ("a.n apple", "apple"),  # punctuation goes first, and leaves an article
        ("", ""),
    ],
)
def test_what_is_compared(text: str, simple: str) -> None:
    assert simplify(text) == simple


def test_f1_by_hand() -> None:
    assert unit_f1("big red dog", "red dog dog", empty_match=False) == pytest.approx(2 / 3)
    assert unit_f1("dog dog", "the dog", empty_match=True) == pytest.approx(2 / 3)
    assert unit_f1("cat", "dog", empty_match=True) == 0


@pytest.mark.parametrize(
    ("answer", "gold", "first", "second"), [("", "the", 0, 1), ("", "x", 0, 0), ("x", "", 0, 0)]
)
def test_texts_without_a_word(answer: str, gold: str, first: float, second: float) -> None:
    assert unit_f1(answer, gold, empty_match=False) == first
    assert unit_f1(answer, gold, empty_match=True) == second


def test_the_best_gold_counts_for_each_score() -> None:
    assert score_1(["old red door"], [["door", "Old red!", "the old red door"]]) == {
        "exact_match": 100.0,
        "f1": 100.0,
    }
    assert score_1(["red door"], [["door", "red cat hat"]])["f1"] == pytest.approx(100 * 2 / 3)


WORDS = st.lists(st.sampled_from(["a", "the", "red", "Red", "dog.", "!", "cat"]), max_size=5).map(
    " ".join
)


@given(answer=WORDS, gold=WORDS)
def test_f1_is_what_removing_shared_words_one_by_one_gives(answer: str, gold: str) -> None:
    answer_words, rest = simplify(answer).split(), simplify(gold).split()
    total, shared = len(answer_words) + len(rest), 0
    for word in answer_words:
        if word in rest:
            rest.remove(word)
            shared += 1
    expected = 2 * shared / total if shared else 0.0
    assert unit_f1(answer, gold, empty_match=False) == pytest.approx(expected)
    assert (unit_f1(answer, gold, empty_match=True) == 1) >= bool(exact_match(answer, gold))


# --------------------------------------------------------------------------------------- thresholds

QUESTION = st.builds(
    lambda name, odds, f1, answerable: Judged(
        name, True, odds, answerable, float(f1 == 1 and answerable), f1 if answerable else 0.0
    ),
    st.text("abc", min_size=1, max_size=9),
    st.integers(-3, 3).map(float),
    st.sampled_from([0.0, 0.25, 0.5, 1.0]),
    st.booleans(),
)


@given(judged=st.lists(QUESTION, min_size=1, max_size=12))
def test_no_threshold_is_better_than_the_tuned_one(judged: list[Judged]) -> None:
    best = max(
        score_2(judged, threshold)["f1"]
        for threshold in [-10.0, *(question.odds for question in judged)]
    )
    assert score_2(judged, tune(judged))["f1"] == pytest.approx(best)
    assert find_best_threshold(judged, "f1")[0] >= best - 1e-9  # the official one may promise more


def test_where_no_answer_is_best_the_threshold_says_so() -> None:
    judged = [judge("a", "wrong", -5.0, []), judge("b", "wrong", -7.0, [])]
    assert find_best_threshold(judged, "f1") == (100.0, 0.0), (
        "the official script promises what threshold 0 does not give"
    )
    assert score_2(judged, 0.0)["f1"] == 0
    assert score_2(judged, tune(judged))["f1"] == 100
    assert tune([]) == 0


def test_the_halves_are_fixed_by_the_ids() -> None:
    judged = all_judged()
    first, second = halve(judged)
    assert len(first) == len(second) == 30
    assert sorted(first + second) == sorted(judged)
    again, _ = halve(judged[::-1])
    assert {question.id for question in again} == {question.id for question in first}
    assert abs(sum(q.has_answer for q in first) - sum(q.has_answer for q in second)) < 10
    assert [len(half) for half in halve(judged[:3])] == [1, 2]
