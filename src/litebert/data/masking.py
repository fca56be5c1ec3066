"""Masked language modeling as independent axes: unit x length law x replacement; the key decides
static or dynamic.

- unit: a token, or a word (a run of pieces from one that begins a word to the next).
- length law: how many units a span has (ALBERT section 4.1, SpanBERT section 3.1).
- replacement: what replaces a predicted token (BERT section 3.1), drawn for each token or each run
  of them.

Special tokens, [UNK] too, are never predicted, and spans do not cross them. Spans of words, or of
several tokens, are chosen one by one in Python, all else for the whole batch in numpy; every draw
depends on its sequence's key and its place in it, so a sequence is masked in the same way in any
batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from litebert.config import MaskingConfig
from litebert.data.random_keys import Keys, uniforms, uniforms_at
from litebert.errors import DataError

if TYPE_CHECKING:
    from litebert.tokenizer import Tokenizer

_BUDGET, _ORDER, _LENGTH, _REPLACE, _RANDOM = 11, 12, 13, 14, 15  # streams of draws


class Masked(NamedTuple):
    """What masking makes of B sequences of S tokens, K of which are to be predicted."""

    ids: NDArray[np.int64]
    """(B, S), corrupted."""
    positions: NDArray[np.int64]
    """(K,), the predicted positions in the flattened ids, ascending."""
    content: NDArray[np.bool_]
    """(B, S), True on tokens that are neither special nor padding."""

    def boundaries(self) -> NDArray[np.int64]:
        """(K, 2), as `span_boundaries` gives them."""
        return span_boundaries(self.content, self.positions)


class Masker:
    """Chooses the predicted positions of a batch and corrupts them."""

    def __init__(self, config: MaskingConfig, tokenizer: Tokenizer) -> None:
        """Raises DataError for whole words with a tokenizer that cannot tell words."""
        self._config = config
        self._mask_id = tokenizer.mask_id
        self._special = np.isin(np.arange(tokenizer.vocab_size), tokenizer.special_ids)
        self._ordinary = np.flatnonzero(~self._special)
        self._law = length_law(config)
        starts = (
            tokenizer.word_starts if config.unit == "word" else np.ones(tokenizer.vocab_size, bool)
        )
        if starts is None:
            need = (
                f"masking.unit=word needs to know where words begin, and this {tokenizer.kind} "
                "tokenizer cannot tell"
            )
            raise DataError(f"{need}; set masking.unit=token")
        self._starts = starts

    def __call__(self, ids: NDArray[np.int64], keys: Keys) -> Masked:
        """Mask the sequences `ids` (B, S), which stay as they are, by their `keys` (B,).

        The share of predicted tokens is the rate in the mean, special tokens aside; more where a
        sequence has fewer than 1 / rate tokens or one word only, for each has something to predict.
        """
        content = ~self._special[ids]
        coins = uniforms(keys, 2, _BUDGET)
        budgets = np.maximum(1, np.floor(self._config.rate * content.sum(1) + coins[:, 0])).astype(
            np.int64
        )
        if self._config.unit == "token" and self._config.span == "single":
            ranks = np.where(content, uniforms(keys, ids.shape[1], _ORDER), 1.0)
            positions = _lowest(ranks, np.minimum(budgets, content.sum(1)))
        else:
            positions = self._spans(ids, content, budgets, coins[:, 1], keys)
        return Masked(self._replace(ids, positions, keys), positions, content)

    def _spans(
        self,
        ids: NDArray[np.int64],
        content: NDArray[np.bool_],
        budgets: NDArray[np.int64],
        coins: NDArray[np.float64],
        keys: Keys,
    ) -> NDArray[np.int64]:
        """The positions of the units that `choose_units` takes, in an order at random."""
        size = ids.shape[1]
        units = find_units(content, self._starts[ids])
        lengths = draw_lengths(
            self._law, units.ahead, uniforms_at(keys, units.start, size, _LENGTH)
        )
        ranks = uniforms_at(keys, units.start, size, _ORDER)
        whole = self._config.span == "geometric"

        # Lists, because the choice of spans is a loop over single numbers, where numpy is slow.
        start, end, length = units.start.tolist(), units.end.tolist(), lengths.tolist()
        rows = units.start.searchsorted(np.arange(len(ids) + 1) * size).tolist()
        taken = bytearray()
        for row, (budget, coin) in enumerate(zip(budgets.tolist(), coins.tolist(), strict=True)):
            here = slice(rows[row], rows[row + 1])
            order = ranks[here].argsort().tolist()
            taken += choose_units(start[here], end[here], length[here], order, budget, coin, whole)

        chosen = np.frombuffer(taken, bool)
        sizes = (units.end - units.start)[chosen]
        return np.repeat(units.start[chosen] - (sizes.cumsum() - sizes), sizes) + np.arange(
            sizes.sum()
        )

    def _replace(
        self, ids: NDArray[np.int64], positions: NDArray[np.int64], keys: Keys
    ) -> NDArray[np.int64]:
        """[MASK], a random ordinary token, or the token itself: one draw per token, or per run of
        adjacent ones.

        SpanBERT's code too merges spans that touch. In a random run every token draws its own, from
        all ordinary ids alike; that code takes tokens of the corpus, so frequent ones more often.
        """
        draws = uniforms_at(keys, positions, ids.shape[1], _REPLACE)
        if self._config.replace_per == "span":
            starts = _starts_run(positions, ids.shape[1])
            draws = draws[starts][starts.cumsum() - 1]
        picks = uniforms_at(keys, positions, ids.shape[1], _RANDOM)
        out = ids.flatten()
        masked = draws < self._config.replace_mask
        random = ~masked & (draws < self._config.replace_mask + self._config.replace_random)
        out[positions[masked]] = self._mask_id
        out[positions[random]] = self._ordinary[
            (picks[random] * len(self._ordinary)).astype(np.int64)
        ]
        return out.reshape(ids.shape)


def _lowest(ranks: NDArray[np.float64], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """The flattened positions of the `counts` (B,) lowest ranks of each row (B, S); all ranks of a
    row differ.
    """
    limits = np.sort(ranks)[np.arange(len(ranks)), counts - 1]
    return np.flatnonzero((ranks <= limits[:, None]) & (counts > 0)[:, None])


def _starts_run(positions: NDArray[np.int64], size: int) -> NDArray[np.bool_]:
    """Which of the ascending `positions` (K,) in flattened rows of `size` begin a run of adjacent
    ones; bool (K,).
    """
    starts: NDArray[np.bool_] = (np.diff(positions, prepend=-2) > 1) | (positions % size == 0)
    return starts


def span_boundaries(content: NDArray[np.bool_], positions: NDArray[np.int64]) -> NDArray[np.int64]:
    """The tokens around the span of each of the `positions` (K,) in the flattened tokens,
    ascending.

    A span is the longest run of adjacent positions in one sequence: those that touch are one, as in
    SpanBERT's code.

    Returns:
        (K, 2) flattened positions of the token before the span and the one after it; -1 where there
        is none or it is not `content` (B, S), which is True on tokens that are neither special nor
        padding.
    """
    size = content.shape[1]
    starts = _starts_run(positions, size)
    before, after = positions[starts] - 1, positions[np.roll(starts, -1)] + 1
    inside = content.ravel()
    before[(before % size == size - 1) | ~inside[before]] = -1
    after[(after % size == 0) | ~inside[after % inside.size]] = -1
    spans: NDArray[np.int64] = np.stack([before, after], 1)[starts.cumsum() - 1]
    return spans


class Units(NamedTuple):
    """What spans are made of: flattened positions start..end-1, each array (U,)."""

    start: NDArray[np.int64]
    end: NDArray[np.int64]
    ahead: NDArray[np.int64]
    """How many units follow each other from this one on, itself included, before a special
    token."""


def find_units(content: NDArray[np.bool_], begins: NDArray[np.bool_]) -> Units:
    """Units of the maskable tokens `content` (B, S), new ones where `begins` says and after what is
    not content.
    """
    follows = np.zeros_like(content)
    follows[:, 1:] = content[:, :-1]
    starts = (content & (begins | ~follows)).ravel()
    edges = np.flatnonzero(starts | ~content.ravel())
    opens = starts[edges]
    start, end = edges[opens], np.append(edges[1:], content.size)[opens]
    run = np.cumsum(~opens)[opens] + start // content.shape[1]
    return Units(start, end, run.searchsorted(run, "right") - np.arange(len(run)))


def length_law(config: MaskingConfig) -> NDArray[np.float64]:
    """Probabilities of 1, 2, ... units in a span."""
    if config.span == "single":
        return np.ones(1)
    units = np.arange(1, config.max_span + 1)
    weights = 1 / units if config.span == "ngram" else (1 - config.geometric_p) ** (units - 1)
    return np.asarray(weights / weights.sum())


def draw_lengths(
    law: NDArray[np.float64], ahead: NDArray[np.int64], draws: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Span lengths (U,) by `law`, renormalised over the lengths that fit into `ahead` (U,)
    units."""
    below = np.cumsum(law)
    lengths: NDArray[np.int64] = 1 + below.searchsorted(
        draws * below[np.minimum(ahead, len(law)) - 1], "right"
    )
    return lengths


def choose_units(
    start: list[int],
    end: list[int],
    lengths: list[int],
    order: list[int],
    budget: int,
    coin: float,
    whole: bool,
) -> bytearray:
    """Which units of one sequence are predicted, as a byte each: spans in `order` until `budget`
    tokens are taken.

        a  bb  c  ddd  e      budget: 5 tokens; order: c (a span of 2 units), bb (1), a (1), ...
               ^^^^^^         taken, 1 token left
           ^^                 exceeds what is left, and cannot be shorter: skipped
        ^                     taken, nothing left

    A span that exceeds what is left is tried shorter, and skipped if it meets a taken one, as in
    the official ALBERT code. Where that leaves a part of the budget, single units fill it, the
    shortest first, and the one that no longer fits is taken with probability part / size, which
    keeps the mean exact.

    With `whole`, the first span alone is tried shorter. A later one that exceeds what is left is
    the last, and taken whole with that probability. Else the law of long spans would be lost in
    short sequences; the price is that the number of predicted tokens varies between sequences, by
    the size of a span.
    """
    taken = bytearray(len(start))
    left = budget
    for unit in order:
        if taken[unit]:
            continue
        length = lengths[unit]
        if whole and left < min(budget, size := end[unit + length - 1] - start[unit]):
            if 1 in taken[unit : unit + length]:
                continue
            if coin * size < left:
                taken[unit : unit + length] = b"\1" * length
            return taken
        while length and end[unit + length - 1] - start[unit] > left:
            length -= 1
        if length and 1 not in taken[unit : unit + length]:
            taken[unit : unit + length] = b"\1" * length
            left -= end[unit + length - 1] - start[unit]
            if not left:
                return taken
    for unit in sorted(
        (unit for unit in order if not taken[unit]), key=lambda unit: end[unit] - start[unit]
    ):
        size = end[unit] - start[unit]
        if left < budget and coin * size >= left:
            break
        taken[unit] = 1
        left -= size
        if left <= 0:
            break
    return taken
