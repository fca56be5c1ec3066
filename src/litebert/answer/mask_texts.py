"""Texts with masks: the row that a model reads, and the guesses from its logits. This module
needs no torch.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from litebert.errors import ConfigError, DataError
from litebert.finetuning.outputs import softmax
from litebert.tokenizer import Tokenizer

_STAND_IN = "\u9fa5"
"""A letter that stands for a mask while a text is cut into tokens: rare, and a separate word in
every tokenizer.
"""


class Guess(NamedTuple):
    """A token that may stand behind a mask."""

    token: str
    probability: float
    """Its share among all tokens of the vocabulary."""
    id: int


def mask_pattern(token: str) -> re.Pattern[str]:
    """Return the pattern of a mask in a text: [MASK], <mask>, ___, or the mask `token`."""
    return re.compile(rf"\[MASK\]|<mask>|{re.escape(token)}|_{{3,}}")


def build_masked_row(tokenizer: Tokenizer, text: str, length: int) -> list[int]:
    """Return the ids of `[CLS] text [SEP]`, with a mask where the text has one (`mask_pattern`).

    Raises:
        DataError: it is longer than `length` tokens.
    """
    before, *after = mask_pattern(tokenizer.get_token(tokenizer.mask_id)).split(text)
    inner = _encode_around(tokenizer, before, after) if after else tokenizer.encode([text])[0]
    if len(inner) + 2 > length:
        raise DataError(
            f"{text[:40]!r} has {len(inner) + 2:,} tokens, and the model reads {length}; shorten it"
        )
    return [tokenizer.cls_id, *inner, tokenizer.sep_id]


def _encode_around(tokenizer: Tokenizer, before: str, after: Sequence[str]) -> list[int]:
    """Return the ids of texts with a mask between each two.

    The texts are tokenized together, so that spaces count as ever.
    """
    parts, starts, length = [before], list[int](), len(before)
    for text in after:
        joint = " " * (parts[-1][-1:] == _STAND_IN)  # two masks are two words
        starts.append(length + len(joint))
        parts.append(joint + _STAND_IN + text)
        length += len(parts[-1])
    ids, spans = tokenizer.encode_offsets(["".join(parts)])[0]
    out: list[int] = []
    waiting = set(starts)
    for token, (begin, end) in zip(ids.tolist(), spans.tolist(), strict=True):
        number = bisect_left(starts, begin)
        start = starts[number] if number < len(starts) and starts[number] < end else None
        if start is None:
            out.append(token)
        elif end - begin > 1:  # the tokenizer knows the letter: cut the texts apart
            first, *rest = tokenizer.encode([before, *after])
            return [*first, *(token for part in rest for token in (tokenizer.mask_id, *part))]
        elif start in waiting:
            waiting.remove(start)
            # The mark of a word belongs to what is masked, as in training.
            while out and out[-1] != tokenizer.mask_id and not tokenizer.decode([out[-1]]).strip():
                out.pop()
            out.append(tokenizer.mask_id)
    return out


def find_masks(tokenizer: Tokenizer, row: Sequence[int], text: str, top: int) -> list[int]:
    """Return the positions of the masks in a text's row.

    Raises:
        DataError: there is none.
        ConfigError: `top` guesses for each are less than 1.
    """
    if top < 1:
        raise ConfigError(f"top is {top}; give at least 1 guess")
    positions = [position for position, token in enumerate(row) if token == tokenizer.mask_id]
    if not positions:
        raise DataError(f"{text[:40]!r} has no mask; write [MASK] where a word should be guessed")
    return positions


def list_guesses(tokenizer: Tokenizer, logits: NDArray[np.float32], top: int) -> list[Guess]:
    """Return the `top` likeliest tokens of logits (V,), the likeliest first, no special ones."""
    likely = softmax(logits.astype(np.float64))
    likely[list(tokenizer.special_ids)] = -1
    few = min(top, len(likely) - len(tokenizer.special_ids))
    best = np.argpartition(-likely, few - 1)[:few]
    best = best[np.argsort(-likely[best], kind="stable")].tolist()
    return [Guess(tokenizer.get_word(token), float(likely[token]), token) for token in best]
