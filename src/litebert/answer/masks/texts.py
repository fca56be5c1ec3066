"""Texts with masks: the row that a model reads, and the guesses from its logits, without torch."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from litebert.answer.engines.runtime import Runtime
from litebert.answer.predicting import not_finite
from litebert.base.errors import ConfigError, DataError
from litebert.tasks.outputs import softmax
from litebert.tasks.rows import PaddedRows
from litebert.tasks.values import EncodedRow
from litebert.text.records import check_texts
from litebert.tokenizer import Tokenizer

_STAND_IN = "\u9fa5"
"""A letter for a mask while a text is tokenized: rare, and a word of its own everywhere."""


class Guess(NamedTuple):
    """A token that may stand behind a mask."""

    token: str
    probability: float
    """Its share among all tokens of the vocabulary."""
    id: int


@dataclass(frozen=True)
class MaskFiller:
    """Guesses for the masks of a text, from logits that a subclass computes.

    Shapes: V vocabulary.
    """

    tokenizer: Tokenizer
    name: str
    """The name of the model in messages."""
    length: int
    """Longest row in tokens, special ones included."""

    def fill(
        self, text: str, top: int = 5, targets: Sequence[str] | None = None
    ) -> list[list[Guess]]:
        """Guess the `top` likeliest tokens, or `targets` of the vocabulary, for each mask in order.

        A mask is [MASK], <mask>, as the tokenizer writes it, or three or more underscores. Each is
        guessed alone, while the others are masked. Special tokens are never guessed.
        """
        row = self.row(text)
        ids = None if targets is None else find_targets(self.tokenizer, targets)
        return self.fill_row(row, find_masks(self.tokenizer, row, text, top), top, ids)

    def fill_row(
        self,
        row: Sequence[int],
        positions: Sequence[int],
        top: int,
        targets: Sequence[int] | None = None,
        pause: Callable[[], None] = lambda: None,
    ) -> list[list[Guess]]:
        """Do the same for a row of `build_masked_row`; `pause` is called before each mask."""
        guesses = list[list[Guess]]()
        for logits in self.compute_logits(row, positions, pause):
            pause()
            if not np.isfinite(logits).all():
                raise not_finite(self.name)
            guesses.append(list_guesses(self.tokenizer, logits, top, targets))
        return guesses

    def row(self, text: str) -> list[int]:
        """Return the ids of `[CLS] text [SEP]`, with its masks; see `build_masked_row`."""
        return build_masked_row(self.tokenizer, text, self.length)

    def compute_logits(
        self, row: Sequence[int], positions: Sequence[int], pause: Callable[[], None]
    ) -> Iterator[NDArray[np.float32]]:
        """Yield the logits (V,) at each position of a row; `pause` may be called in between."""
        raise NotImplementedError


@dataclass(frozen=True)
class GraphFiller(MaskFiller):
    """The guesses of an exported graph."""

    runtime: Runtime

    def compute_logits(
        self, row: Sequence[int], positions: Sequence[int], pause: Callable[[], None]
    ) -> Iterator[NDArray[np.float32]]:
        whole = EncodedRow(np.array(row, np.int32), np.zeros(len(row), np.int32))
        logits = self.runtime.logits(PaddedRows([whole], self.tokenizer.pad_id, len(row)))
        yield from logits[0, positions]


def mask_pattern(token: str) -> re.Pattern[str]:
    """Return the pattern of a mask in a text: [MASK], <mask>, ___, or the mask `token`."""
    return re.compile(rf"\[MASK\]|<mask>|{re.escape(token)}|_{{3,}}")


def build_masked_row(tokenizer: Tokenizer, text: str, length: int) -> list[int]:
    """Return the ids of `[CLS] text [SEP]`, with a mask where the text has one (`mask_pattern`)."""
    before, *after = mask_pattern(tokenizer.get_token(tokenizer.mask_id)).split(text)
    inner = _encode_around(tokenizer, before, after) if after else tokenizer.encode([text])[0]
    if len(inner) + 2 > length:
        raise DataError(
            f"{text[:40]!r} has {len(inner) + 2:,} tokens, and the model reads {length}; shorten it"
        )
    return [tokenizer.cls_id, *inner, tokenizer.sep_id]


def _encode_around(tokenizer: Tokenizer, before: str, after: Sequence[str]) -> list[int]:
    """Return ids of texts with a mask between each two, tokenized together for their spaces."""
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
    """Return the positions of the masks in a text's row."""
    if not isinstance(top, int) or top < 1:
        raise ConfigError(f"top is {top!r}; give a whole number of at least 1")
    positions = [position for position, token in enumerate(row) if token == tokenizer.mask_id]
    if not positions:
        raise DataError(f"{text[:40]!r} has no mask; write [MASK] in the place of a word")
    return positions


def find_targets(tokenizer: Tokenizer, targets: Sequence[str]) -> list[int]:
    """Return the tokens of words, each once."""
    words = list(check_texts(targets))
    encoded = tokenizer.encode([tokenizer.space + word.strip() for word in words])
    vocabulary = tokenizer.engine.tokens
    for word, ids in zip(words, encoded, strict=True):
        if len(ids) != 1 and word in vocabulary:  # a part of a word
            ids[:] = {vocabulary.index(word)} - set(tokenizer.special_ids)
        if len(ids) != 1:
            pieces = " ".join(map(tokenizer.get_token, ids))
            raise DataError(
                f"the target {word!r} is not one token of this model ({pieces}); give other words"
            )
    if not words:
        raise DataError("targets is empty; give words, or leave it out")
    return list(dict.fromkeys(ids[0] for ids in encoded))


def list_guesses(
    tokenizer: Tokenizer,
    logits: NDArray[np.float32],
    top: int,
    targets: Sequence[int] | None = None,
) -> list[Guess]:
    """Return the `top` likeliest tokens of logits (V,), no special ones, or all of some targets."""
    likely = softmax(logits.astype(np.float64))
    if targets is not None:
        found = sorted(targets, key=lambda token: -likely[token])
        return [Guess(tokenizer.get_word(token), float(likely[token]), token) for token in found]
    likely[list(tokenizer.special_ids)] = -1
    likely[tokenizer.vocab_size :] = -1  # rows that make a published table longer
    few = min(top, tokenizer.vocab_size - len(tokenizer.special_ids))
    best = np.argpartition(-likely, few - 1)[:few]
    best = best[np.argsort(-likely[best], kind="stable")].tolist()
    return [Guess(tokenizer.get_word(token), float(likely[token]), token) for token in best]
