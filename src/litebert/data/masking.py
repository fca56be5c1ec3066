"""Masked language modeling as independent axes: unit x length law x replacement.

- unit: a token, or a word (the tokens from one that begins a word to the next such one).
- length law: the number of units in a span (ALBERT section 4.1, SpanBERT section 3.1).
- replacement: what replaces a predicted token (BERT section 3.1), drawn for each token or for each
  run of tokens.

Special tokens, [UNK] included, are never predicted, and spans do not cross them. Every draw depends
on the key of its sequence and its position in it, so a sequence is masked alike in any batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from litebert.base.errors import DataError
from litebert.config import MaskingConfig
from litebert.data.random_keys import Keys, draw_uniforms, draw_uniforms_at

if TYPE_CHECKING:
    from litebert.tokenizer import Tokenizer

_BUDGET, _ORDER, _LENGTH, _REPLACE, _RANDOM = 11, 12, 13, 14, 15  # streams of draws


class Masked(NamedTuple):
    ids: NDArray[np.int64]
    """(B, S), corrupted."""
    positions: NDArray[np.int64]
    """(K,), the predicted positions in the flattened ids, ascending."""
    content: NDArray[np.bool_]
    """(B, S), True on tokens that are neither special nor padding."""

    def boundaries(self) -> NDArray[np.int64]:
        return find_span_boundaries(self.content, self.positions)


class Masker:
    def __init__(self, config: MaskingConfig, tokenizer: Tokenizer) -> None:
        self._config = config
        self._mask_id = tokenizer.mask_id
        self._special = np.isin(np.arange(tokenizer.vocab_size), tokenizer.special_ids)
        self._ordinary = np.flatnonzero(~self._special)
        self._law = compute_length_law(config)
        starts = (
            tokenizer.word_starts if config.unit == "word" else np.ones(tokenizer.vocab_size, bool)
        )
        if starts is None:
            fault = (
                f"masking.unit=word needs to know where words begin, and this {tokenizer.kind} "
                "tokenizer cannot tell"
            )
            raise DataError(f"{fault}; set masking.unit=token")
        self._starts = starts

    def __call__(self, ids: NDArray[np.int64], keys: Keys) -> Masked:
        """Mask the sequences `ids` (B, S), which stay unchanged, by their `keys` (B,).

        The share of predicted tokens, special tokens aside, is the config's rate on average. It is
        larger for a sequence with fewer than 1 / rate tokens or with a single word, because each
        sequence predicts at least one token.
        """
        content = ~self._special[ids]
        coins = draw_uniforms(keys, 2, _BUDGET)
        budgets = np.maximum(1, np.floor(self._config.rate * content.sum(1) + coins[:, 0])).astype(
            np.int64
        )
        if self._config.unit == "token" and self._config.span == "single":
            ranks = np.where(content, draw_uniforms(keys, ids.shape[1], _ORDER), 1.0)
            # The lowest ranks of each row, which all differ.
            counts = np.minimum(budgets, content.sum(1))
            limits = np.sort(ranks)[np.arange(len(ranks)), counts - 1]
            positions = np.flatnonzero((ranks <= limits[:, None]) & (counts > 0)[:, None])
        else:
            coins = coins[:, 1]
            size = ids.shape[1]
            units = find_units(content, self._starts[ids])
            lengths = draw_lengths(
                self._law, units.ahead, draw_uniforms_at(keys, units.start, size, _LENGTH)
            )
            ranks = draw_uniforms_at(keys, units.start, size, _ORDER)
            keeps_length = self._config.span == "geometric"

            # Lists, because the choice of spans is a loop over single numbers, where numpy is slow.
            start, end, length = units.start.tolist(), units.end.tolist(), lengths.tolist()
            rows = units.start.searchsorted(np.arange(len(ids) + 1) * size).tolist()
            taken = bytearray()
            for row, (budget, coin) in enumerate(
                zip(budgets.tolist(), coins.tolist(), strict=True)
            ):
                span = slice(rows[row], rows[row + 1])
                order = ranks[span].argsort().tolist()
                taken += choose_units(
                    start[span], end[span], length[span], order, budget, coin, keeps_length
                )

            chosen = np.frombuffer(taken, bool)
            sizes = (units.end - units.start)[chosen]
            positions = np.repeat(
                units.start[chosen] - (sizes.cumsum() - sizes), sizes
            ) + np.arange(sizes.sum())
        # Each predicted token becomes [MASK], a random ordinary token, or stays. There is one draw
        # for each token, or for each run of adjacent tokens. SpanBERT's code also merges spans that
        # touch. In a random run every token draws its own replacement, uniform over all ordinary
        # ids. SpanBERT's code draws tokens of the corpus, so frequent ones more often.
        draws = draw_uniforms_at(keys, positions, ids.shape[1], _REPLACE)
        if self._config.replace_per == "span":
            starts = _is_run_start(positions, ids.shape[1])
            draws = draws[starts][starts.cumsum() - 1]
        picks = draw_uniforms_at(keys, positions, ids.shape[1], _RANDOM)
        out = ids.flatten()
        masked = draws < self._config.replace_mask
        random = ~masked & (draws < self._config.replace_mask + self._config.replace_random)
        out[positions[masked]] = self._mask_id
        out[positions[random]] = self._ordinary[
            (picks[random] * len(self._ordinary)).astype(np.int64)
        ]
        return Masked(out.reshape(ids.shape), positions, content)


def _is_run_start(positions: NDArray[np.int64], size: int) -> NDArray[np.bool_]:
    starts: NDArray[np.bool_] = (np.diff(positions, prepend=-2) > 1) | (positions % size == 0)
    return starts


def find_span_boundaries(
    content: NDArray[np.bool_], positions: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Find the tokens just outside the span of each of the `positions` (K,), ascending.

    A span is the longest run of adjacent positions in a sequence; spans that touch are merged, as
    in SpanBERT's code. Returns (K, 2) flattened positions, -1 where there is no token that is
    `content` (B, S), neither special nor padding.
    """
    size = content.shape[1]
    starts = _is_run_start(positions, size)
    before, after = positions[starts] - 1, positions[np.roll(starts, -1)] + 1
    inside = content.ravel()
    before[(before % size == size - 1) | ~inside[before]] = -1
    after[(after % size == 0) | ~inside[after % inside.size]] = -1
    spans: NDArray[np.int64] = np.stack([before, after], 1)[starts.cumsum() - 1]
    return spans


class Units(NamedTuple):
    """The units that spans consist of: flattened positions start..end-1, each array (U,)."""

    start: NDArray[np.int64]
    end: NDArray[np.int64]
    ahead: NDArray[np.int64]
    """Number of units from this one, included, to the next special token."""


def find_units(content: NDArray[np.bool_], begins: NDArray[np.bool_]) -> Units:
    """Find the units of `content` (B, S): one begins where `begins`, and after other tokens."""
    follows = np.zeros_like(content)
    follows[:, 1:] = content[:, :-1]
    starts = (content & (begins | ~follows)).ravel()
    edges = np.flatnonzero(starts | ~content.ravel())
    opens = starts[edges]
    start, end = edges[opens], np.append(edges[1:], content.size)[opens]
    run = np.cumsum(~opens)[opens] + start // content.shape[1]
    return Units(start, end, run.searchsorted(run, "right") - np.arange(len(run)))


def compute_length_law(config: MaskingConfig) -> NDArray[np.float64]:
    if config.span == "single":
        return np.ones(1)
    units = np.arange(1, config.max_span + 1)
    weights = 1 / units if config.span == "ngram" else (1 - config.geometric_p) ** (units - 1)
    return np.asarray(weights / weights.sum())


def draw_lengths(
    law: NDArray[np.float64], ahead: NDArray[np.int64], draws: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Draw span lengths (U,) by `law`, renormalized over those that fit into `ahead` (U,)."""
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
    keeps_length: bool,
) -> bytearray:
    """Choose the units of a sequence to predict, as a byte each.

    Spans are taken in `order` until `budget` tokens are taken.

        a  bb  c  ddd  e      budget: 5 tokens; order: c (a span of 2 units), bb (1), a (1), ...
               ^^^^^^         taken, 1 token left
           ^^                 exceeds what is left, and cannot be shorter: skipped
        ^                     taken, nothing left

    A span that exceeds what is left is shortened until it fits. It is skipped if it meets a taken
    unit, as in the official ALBERT code. Where that leaves a part of the budget, single units fill
    it, the shortest first. The unit that no longer fits is taken with probability part / size,
    which keeps the mean exact.

    With `keeps_length`, only the first span may be shortened. A later span that exceeds what is
    left is the last, and is taken as a whole with that probability. Otherwise the law of long spans
    would be lost in short sequences. The price is that the number of predicted tokens varies
    between sequences by the size of a span.
    """
    taken = bytearray(len(start))
    left = budget
    for unit in order:
        if taken[unit]:
            continue
        length = lengths[unit]
        # With a law of long spans, a span that does not fit ends the choice.
        if keeps_length and left < min(budget, size := end[unit + length - 1] - start[unit]):
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
    free = (unit for unit in order if not taken[unit])
    for unit in sorted(free, key=lambda unit: end[unit] - start[unit]):
        size = end[unit] - start[unit]
        if left < budget and coin * size >= left:
            break
        taken[unit] = 1
        left -= size
        if left <= 0:
            break
    return taken
