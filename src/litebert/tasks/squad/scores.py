"""Exact match and F1 of extracted answers, and the threshold above which there is no answer.

The rules are those of the official scripts `evaluate-v1.1.py` and `evaluate-v2.0.py`
(rajpurkar.github.io/SQuAD-explorer), with the same sums in the same order. All scores are
percentages. The rules are English; for languages without spaces, F1 may be counted over characters
instead, as in the evaluation of CMRC 2018 (Cui et al. 2019).
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
    """Lowercase a text, remove ASCII punctuation and then articles, and put single spaces."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def exact_match(answer: str, gold: str) -> float:
    """Return 1 if both texts are the same after `simplify`, else 0."""
    return float(simplify(answer) == simplify(gold))


AnswerUnit = Literal["words", "characters"]
"""The units over which F1 is counted."""


def split_units(text: str, unit: AnswerUnit) -> list[str]:
    """Return the words of a text after `simplify`, or its characters but spaces and punctuation."""
    simple = simplify(text)
    if unit == "words":
        return simple.split()
    return [char for char in simple if not char.isspace() and unicodedata.category(char)[0] != "P"]


def has_no_spaces(text: str) -> bool:
    """Return True if a text is mostly in a script that puts no spaces between words."""
    return 2 * len(_UNSPACED.findall(text)) > len("".join(text.split()))


def unit_f1(answer: str, gold: str, empty_match: bool, unit: AnswerUnit = "words") -> float:
    """Compute F1 of two bags of units; of empty ones 1 if `empty_match` (2.0), else 0 (1.1)."""
    answer_units, gold_units = split_units(answer, unit), split_units(gold, unit)
    shared = sum((Counter(answer_units) & Counter(gold_units)).values())
    if shared == 0:
        return float(empty_match and not answer_units and not gold_units)
    precision, recall = shared / len(answer_units), shared / len(gold_units)
    return (2 * precision * recall) / (precision + recall)


def score_1(
    answers: Sequence[str], golds: Sequence[Sequence[str]], unit: AnswerUnit = "words"
) -> dict[str, float]:
    """Compute `exact_match` and `f1` of SQuAD 1.1; the gold answer with the best score counts."""
    exact = f1 = 0.0
    for answer, texts in zip(answers, golds, strict=True):
        exact += max(exact_match(answer, text) for text in texts)
        f1 += max(unit_f1(answer, text, empty_match=False, unit=unit) for text in texts)
    return {"exact_match": 100.0 * exact / len(answers), "f1": 100.0 * f1 / len(answers)}


class Judged(NamedTuple):
    """A question of SQuAD 2.0 with the scores of its predicted text, before any threshold."""

    id: str
    answered: bool
    """True if the model predicted a text at all."""
    odds: float
    """The score of no answer minus the score of the predicted text."""
    has_answer: bool
    exact: float
    f1: float

    def score(self, threshold: float) -> tuple[float, float]:
        """Return exact match and F1, where odds above the threshold mean no answer."""
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
    """Score the predicted text of a question against its gold texts, () if it has no answer.

    If no gold text holds a word, the question is scored as if it had no answer, but still counts as
    one with an answer, as in the official script.
    """
    texts = [text for text in golds if simplify(text)] or [""]
    exact = max(exact_match(answer, text) for text in texts)
    f1 = max(unit_f1(answer, text, empty_match=True, unit=unit) for text in texts)
    return Judged(id, bool(answer), odds, bool(golds), exact, f1)


def score_2(judged: Sequence[Judged], threshold: float) -> dict[str, float]:
    """Compute `exact`, `f1` and `total` of SQuAD 2.0; with the prefix HasAns_ over questions with
    an answer, and NoAns_ over those without.
    """
    scores = {}
    for prefix, group in (("", (True, False)), ("HasAns_", (True,)), ("NoAns_", (False,))):
        pairs = [question.score(threshold) for question in judged if question.has_answer in group]
        if pairs:
            scores[f"{prefix}exact"] = 100.0 * sum(exact for exact, _ in pairs) / len(pairs)
            scores[f"{prefix}f1"] = 100.0 * sum(f1 for _, f1 in pairs) / len(pairs)
            scores[f"{prefix}total"] = float(len(pairs))
    return scores


def find_best_threshold(judged: Sequence[Judged], score: str) -> tuple[float, float]:
    """Compute `best_exact` or `best_f1` of the official script, and the threshold it prints.

    The script starts at threshold 0, where nothing is answered, and adds the answers in the order
    of their odds. So its threshold may not give its best score; that of `tune` gives its best F1.
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
    """Return the lowest threshold of the best F1; below all odds if no answer is best for all."""
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


def halve(judged: Sequence[Judged]) -> tuple[list[Judged], list[Judged]]:
    """Halve questions by the sha256 of their ids: those to tune on, and those to report on."""
    ordered = sorted(judged, key=lambda question: hashlib.sha256(question.id.encode()).digest())
    first_half = {question.id for question in ordered[: len(ordered) // 2]}
    to_tune = [question for question in judged if question.id in first_half]
    to_report = [question for question in judged if question.id not in first_half]
    return to_tune, to_report
