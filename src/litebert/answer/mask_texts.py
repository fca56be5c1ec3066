"""Texts with masks: the row that a model reads, and the guesses from its logits. Nothing here needs
torch.
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
"""A letter that stands for a mask while a text is cut into pieces: rare, and a word of its own in
every tokenizer.
"""


class Guess(NamedTuple):
    """What may stand behind a mask."""

    token: str
    probability: float
    """Among all pieces."""
    id: int


def mask_pattern(own: str) -> re.Pattern[str]:
    """What a mask is written as in a text: [MASK], <mask>, `own`, which is the tokenizer's,
    or ___."""
    return re.compile(rf"\[MASK\]|<mask>|{re.escape(own)}|_{{3,}}")


def masked_row(tokenizer: Tokenizer, text: str, length: int) -> list[int]:
    """The ids of `[CLS] text [SEP]`, with a mask where the text has one: [MASK], <mask>, the
    tokenizer's own, or ___.

    Raises:
        DataError: it is longer than `length` tokens.
    """
    before, *after = mask_pattern(tokenizer.get_token(tokenizer.mask_id)).split(text)
    inner = _around(tokenizer, before, after) if after else tokenizer.encode([text])[0]
    if len(inner) + 2 > length:
        raise DataError(
            f"{text[:40]!r} has {len(inner) + 2:,} tokens, and the model reads {length}; shorten it"
        )
    return [tokenizer.cls_id, *inner, tokenizer.sep_id]


def _around(tokenizer: Tokenizer, before: str, after: Sequence[str]) -> list[int]:
    """The ids of texts with a mask between each two. The texts are cut together, so that spaces
    count as ever.
    """
    parts, places, length = [before], list[int](), len(before)
    for piece in after:
        joint = " " * (parts[-1][-1:] == _STAND_IN)  # two masks are two words
        places.append(length + len(joint))
        parts.append(joint + _STAND_IN + piece)
        length += len(parts[-1])
    ids, spans = tokenizer.encode_offsets(["".join(parts)])[0]
    out: list[int] = []
    waiting = set(places)
    for token, (begin, end) in zip(ids.tolist(), spans.tolist(), strict=True):
        number = bisect_left(places, begin)
        place = places[number] if number < len(places) and places[number] < end else None
        if place is None:
            out.append(token)
        elif end - begin > 1:  # the tokenizer knows the letter: cut the texts apart
            apart = iter(tokenizer.encode([before, *after]))
            return [*next(apart), *(token for one in apart for token in (tokenizer.mask_id, *one))]
        elif place in waiting:
            waiting.remove(place)
            # The mark of a word belongs to what is masked, as in training.
            while out and out[-1] != tokenizer.mask_id and not tokenizer.decode([out[-1]]).strip():
                out.pop()
            out.append(tokenizer.mask_id)
    return out


def places_of(tokenizer: Tokenizer, row: Sequence[int], text: str, top: int) -> list[int]:
    """Where the masks of a text's row are.

    Raises:
        DataError: there is none.
        ConfigError: `top` guesses for each are less than 1.
    """
    if top < 1:
        raise ConfigError(f"top is {top}; give at least 1 guess")
    places = [place for place, token in enumerate(row) if token == tokenizer.mask_id]
    if not places:
        raise DataError(f"{text[:40]!r} has no mask; write [MASK] where a word should be guessed")
    return places


def guesses(tokenizer: Tokenizer, logits: NDArray[np.float32], top: int) -> list[Guess]:
    """The `top` likeliest pieces of logits (V,), the likeliest first, special ones not among
    them."""
    likely = softmax(logits.astype(np.float64))
    likely[list(tokenizer.special_ids)] = -1
    few = min(top, len(likely) - len(tokenizer.special_ids))
    best = np.argpartition(-likely, few - 1)[:few]
    best = best[np.argsort(-likely[best], kind="stable")].tolist()
    return [Guess(word_of(tokenizer, piece), float(likely[piece]), piece) for piece in best]


def word_of(tokenizer: Tokenizer, piece: int) -> str:
    """What a piece says, without the mark of a word."""
    return tokenizer.get_word(piece)
