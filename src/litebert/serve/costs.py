"""The costs of the inputs of a request, in characters of a text that is read once."""

from __future__ import annotations

import re
from typing import Any

from litebert.serve.limits import choices_of, count_characters
from litebert.serve.wire import Group

OVERHEAD = 32.0
"""Characters that an input counts for, however short it is: what there is to do for each."""
WORD = 4.0
"""Characters that a word of a list counts for, however short it is: its tag stands in the
answer."""
MASK = 100.0
"""Characters that a mask counts for: the logits of the whole vocabulary, and their order."""
QUERY = 4096
"""Characters of a query that count for every pair; more are read once, and then no pair holds
them."""
_MASKS = re.compile(r"\[MASK\]|<[^<>\s]{1,30}>|_{3,}")
"""Matches a mask of any tokenizer, and perhaps more."""


def count_masks(text: str) -> int:
    """Count the words of a text that may be masks."""
    return len(_MASKS.findall(text))


def costs_of(group: Group) -> list[float]:
    """Return the cost of each input: its text, and masks x predictions if masks are filled.

    Vectors are made of a query once, with the first of its pairs.
    """
    options = dict(group.options)
    if group.operation == "fill-mask":
        each = MASK + options.get("top", 5)
        return [OVERHEAD + len(text) + each * count_masks(text) for text in group.inputs]
    if group.operation in ("score", "cosine"):
        query, (first, _) = QUERY if group.operation == "score" else 0, group.inputs[0]
        costs = [OVERHEAD + min(len(first), query) + len(text) for _, text in group.inputs]
        return [costs[0] + len(first), *costs[1:]]
    return [_cost(value) for value in group.inputs]


def _cost(value: Any) -> float:
    """Return the cost of a text, its tokens, a pair, the words of a sentence, or a question with
    choices, each of which is a row.
    """
    if isinstance(value, str):
        return OVERHEAD + len(value)
    words = sum(isinstance(part, str) for part in value)
    return OVERHEAD * max(1, len(choices_of(value))) + WORD * words + count_characters(value)
