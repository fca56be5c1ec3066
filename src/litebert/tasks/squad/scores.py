"""Exact match and F1 of extracted answers, and the threshold under which no answer is given.

The rules of the official scripts `evaluate-v1.1.py` and `evaluate-v2.0.py`
(rajpurkar.github.io/SQuAD-explorer), with the same sums in the same order, so that the scores agree
to the last digit. All are percentages. The rules are English: articles are dropped, words are what
lies between spaces, and only ASCII punctuation is removed. For languages without spaces F1 may be
counted over characters instead, as in the evaluation of CMRC 2018 (Cui et al. 2019).
"""

from __future__ import annotations

import hashlib
import re
import string
import unicodedata
from collections import Counter
from collections.abc import Sequence
from typing import Literal, NamedTuple

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u30ff"
    "\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
"""Thai, Lao, Burmese, Khmer, Japanese and Chinese letters."""
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def simplify(text: str) -> str:
    """Lower-cased, without ASCII punctuation, then without articles, single spaces between
    words."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def exact_match(answer: str, gold: str) -> float:
    """1 where both are the same after `simplify`, else 0."""
    return float(simplify(answer) == simplify(gold))


AnswerUnit = Literal["words", "characters"]
"""What F1 is counted over."""


def units_of(text: str, unit: AnswerUnit) -> list[str]:
    """The words of a text after `simplify`, or its characters, less spaces and all punctuation."""
    if unit == "words":
        return simplify(text).split()
    return [
        one for one in simplify(text) if not one.isspace() and unicodedata.category(one)[0] != "P"
    ]


def without_spaces(text: str) -> bool:
    """Whether a text is mostly in a script that puts no spaces between words."""
    return 2 * len(_UNSPACED.findall(text)) > len("".join(text.split()))


def unit_f1(answer: str, gold: str, empty_match: bool, unit: AnswerUnit = "words") -> float:
    """F1 of the two bags of units; of two texts without any it is 1 with `empty_match` (2.0), else
    0 (1.1).
    """
    ours, theirs = units_of(answer, unit), units_of(gold, unit)
    shared = sum((Counter(ours) & Counter(theirs)).values())
    if shared == 0:
        return float(empty_match and not ours and not theirs)
    precision, recall = shared / len(ours), shared / len(theirs)
    return (2 * precision * recall) / (precision + recall)


def scores_1(
    answers: Sequence[str], golds: Sequence[Sequence[str]], unit: AnswerUnit = "words"
) -> dict[str, float]:
    """`exact_match` and `f1` where every question has gold answers; the best of them counts (SQuAD
    1.1).
    """
    exact = f1 = 0.0
    for answer, texts in zip(answers, golds, strict=True):
        exact += max(exact_match(answer, text) for text in texts)
        f1 += max(unit_f1(answer, text, empty_match=False, unit=unit) for text in texts)
    return {"exact_match": 100.0 * exact / len(answers), "f1": 100.0 * f1 / len(answers)}


class Judged(NamedTuple):
    """One question of SQuAD 2.0 with the answer that was found, before any threshold."""

    id: str
    answered: bool
    """Whether a text was found at all."""
    odds: float
    """How much likelier no answer is than the text that was found."""
    has_answer: bool
    exact: float
    f1: float

    def scores(self, threshold: float) -> tuple[float, float]:
        """Exact match and F1 where odds above the threshold mean no answer."""
        if self.odds > threshold:
            return (float(not self.has_answer),) * 2
        return self.exact, self.f1


def judge(
    id: str,  # noqa: A002
    answer: str,
    odds: float,
    golds: Sequence[str],
    unit: AnswerUnit = "words",
) -> Judged:
    """`golds`: the gold texts, none where the question has no answer.

    As in the official script, a question with gold answers that hold no word is scored as one
    without, and still counted among those with.
    """
    texts = [text for text in golds if simplify(text)] or [""]
    exact = max(exact_match(answer, text) for text in texts)
    f1 = max(unit_f1(answer, text, empty_match=True, unit=unit) for text in texts)
    return Judged(id, bool(answer), odds, bool(golds), exact, f1)


def scores_2(judged: Sequence[Judged], threshold: float) -> dict[str, float]:
    """`exact`, `f1`, `total` over all questions and, with HasAns_ and NoAns_, over those with and
    without an answer.
    """
    scores = {}
    for prefix, group in (("", (True, False)), ("HasAns_", (True,)), ("NoAns_", (False,))):
        pairs = [question.scores(threshold) for question in judged if question.has_answer in group]
        if pairs:
            scores[f"{prefix}exact"] = 100.0 * sum(exact for exact, _ in pairs) / len(pairs)
            scores[f"{prefix}f1"] = 100.0 * sum(f1 for _, f1 in pairs) / len(pairs)
            scores[f"{prefix}total"] = float(len(pairs))
    return scores


def best_threshold(judged: Sequence[Judged], score: str) -> tuple[float, float]:
    """`best_exact` or `best_f1` of the official script, and the threshold it prints.

    It lets questions answer one by one in the order of their odds, from no answer anywhere, which
    it calls threshold
    0. So its best may be a score that its threshold does not give; `tune` gives one that holds.
    """
    current = best = float(sum(not question.has_answer for question in judged))
    threshold = 0.0
    for question in sorted(judged, key=lambda question: question.odds):
        if question.has_answer:
            current += question.f1 if score == "f1" else question.exact
        else:
            current -= question.answered
        if current > best:
            best, threshold = current, question.odds
    return 100.0 * best / len(judged), threshold


def tune(judged: Sequence[Judged]) -> float:
    """The lowest threshold that gives these questions their best F1; below all odds where no answer
    is best for all.
    """
    ordered = sorted(judged, key=lambda question: question.odds)
    if not ordered:
        return 0.0
    gain = best = 0.0
    threshold = ordered[0].odds - 1.0
    for question, after in zip(ordered, [*ordered[1:], None], strict=True):
        gain += question.f1 - (not question.has_answer)
        if gain > best and (after is None or after.odds > question.odds):
            best, threshold = gain, question.odds
    return threshold


def halves(judged: Sequence[Judged]) -> tuple[list[Judged], list[Judged]]:
    """The questions to tune on, and the others to report on: cut in two by the sha256 of
    their ids."""
    ordered = sorted(judged, key=lambda question: hashlib.sha256(question.id.encode()).digest())
    first = {question.id for question in ordered[: len(ordered) // 2]}
    return [q for q in judged if q.id in first], [q for q in judged if q.id not in first]
