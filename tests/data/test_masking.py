"""Laws of every mask: whole units, no special token, the chooser, the tokens around
spans."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from litebert.base.errors import DataError
from litebert.data.masking import choose_units, find_span_boundaries
from litebert.data.random_keys import derive
from toys.masks import BEGINS, VOCABULARY, masker, sequences
from toys.refusals import refused
from toys.shards import MASK, PAD, SPECIAL


def words_of(row: np.ndarray) -> list[list[int]]:
    """The words of a sequence, by an independent walk over its tokens."""
    words: list[list[int]] = []
    inside = False
    for place, token in enumerate(row.tolist()):
        if token in SPECIAL:
            inside = False
        elif inside and not BEGINS[token]:
            words[-1].append(place)
        else:
            words.append([place])
            inside = True
    return words


def spans_of(mask: np.ndarray) -> list[list[int]]:
    """The runs of masked places of a sequence, by an independent walk."""
    spans: list[list[int]] = []
    for place in np.flatnonzero(mask).tolist():
        if spans and spans[-1][-1] == place - 1:
            spans[-1].append(place)
        else:
            spans.append([place])
    return spans


@given(
    st.lists(
        st.lists(st.integers(0, VOCABULARY - 1), min_size=9, max_size=9), min_size=1, max_size=5
    ),
    st.sampled_from(["token", "word"]),
    st.sampled_from(["single", "ngram", "geometric"]),
    st.sampled_from(["token", "span"]),
    st.floats(0.01, 0.95),
    st.integers(0, 2**32),
)
def test_masks_of_any_batch(
    rows: list[list[int]], unit: Any, span: Any, replace_per: Any, rate: float, seed: int
) -> None:
    ids = np.array(rows)
    before = ids.copy()
    masks = masker(unit=unit, span=span, replace_per=replace_per, rate=rate)(
        ids, derive(seed, np.arange(len(ids)))
    )
    corrupted, positions = masks.ids, masks.positions
    assert (ids == before).all()
    assert (np.diff(positions) > 0).all()
    masked = np.zeros(ids.shape, bool)
    masked.reshape(-1)[positions] = True
    assert not masked[np.isin(ids, SPECIAL)].any()
    assert (corrupted == ids)[~masked].all()
    assert ((corrupted[masked] == MASK) | (corrupted[masked] >= len(SPECIAL))).all()
    for row, mask, new in zip(ids, masked, corrupted, strict=True):
        content = int((~np.isin(row, SPECIAL)).sum())
        assert mask.any() == (content > 0)
        words = (
            words_of(row)
            if unit == "word"
            else [[place] for place in np.flatnonzero(~np.isin(row, SPECIAL))]
        )
        for word in words:
            assert mask[word].all() or not mask[word].any()
        # Only the last thing that is taken may pass the budget: a word, or of the geometric law a
        # span.
        longest = max(map(len, words), default=1) * (3 if span == "geometric" else 1)
        assert mask.sum() <= max(1, np.floor(rate * content) + 1) + longest - 1
        for places in spans_of(mask) if replace_per == "span" else []:
            assert (new[places] == MASK).all() or not (new[places] == MASK).any()
    assert masks.boundaries().tolist() == around(~np.isin(ids, SPECIAL), masked)


def around(content: np.ndarray, masked: np.ndarray) -> list[list[int]]:
    """The tokens around the span of each masked one, walking outwards."""
    pairs = []
    for row, place in zip(*np.nonzero(masked), strict=True):
        pair = []
        for step in (-1, 1):
            beside = place
            while 0 <= beside < masked.shape[1] and masked[row, beside]:
                beside += step
            is_content = 0 <= beside < masked.shape[1] and content[row, beside]
            pair.append(int(row * masked.shape[1] + beside) if is_content else -1)
        pairs.append(pair)
    return pairs


@given(st.integers(1, 4), st.integers(1, 12), st.data())
def test_boundaries_are_the_tokens_just_outside_the_span(
    rows: int, width: int, data: st.DataObject
) -> None:
    kinds = data.draw(
        st.lists(st.sampled_from("tmm#"), min_size=rows * width, max_size=rows * width)
    )
    grid = np.array(kinds).reshape(rows, width)  # text, masked text, special
    content, masked = grid != "#", grid == "m"
    assert find_span_boundaries(content, np.flatnonzero(masked)).tolist() == around(content, masked)


@given(
    st.integers(0, 2**32),
    st.integers(1, 40),
    st.integers(0, 9),
    st.sampled_from(["ngram", "geometric"]),
)
def test_a_sequence_is_masked_alike_in_any_batch(
    seed: int, length: int, padding: int, span: Any
) -> None:
    ids, keys = sequences(3, length, seed), derive(seed, np.arange(3))
    hide = masker(span=span, replace_per="span")
    together = hide(ids, keys)
    padded = np.hstack([ids[1:2], np.full((1, padding), PAD)])
    alone = hide(padded, keys[1:2])
    width = ids.shape[1]
    in_second_row = together.positions // width == 1
    assert (alone.ids[0, :width] == together.ids[1]).all()
    assert alone.positions.tolist() == (together.positions[in_second_row] - width).tolist()
    shifted = np.where(together.boundaries() < 0, -1, together.boundaries() - width)
    assert alone.boundaries().tolist() == shifted[in_second_row].tolist()


def official(sizes: list[int], lengths: list[int], order: list[int], budget: int) -> set[int]:
    """The loop of ALBERT's create_pretraining_data.py as the facts describe it, over units."""
    covered: set[int] = set()
    masked = 0
    for unit in order:
        if masked >= budget:
            break
        n = lengths[unit]
        while n > 0 and masked + sum(sizes[unit : unit + n]) > budget:
            n -= 1
        span = range(unit, unit + n)
        if n == 0 or any(place in covered for place in span):
            continue
        covered.update(span)
        masked += sum(sizes[unit : unit + n])
    return covered


def choose_tokens(
    sizes: list[int], lengths: list[int], order: list[int], budget: int, coin: float, whole: bool
) -> set[int]:
    """Tokens that `choose_units` takes of units with these sizes."""
    end = np.cumsum(sizes).tolist()
    start = [stop - size for stop, size in zip(end, sizes, strict=True)]
    chosen = choose_units(start, end, lengths, order, budget, coin, whole)
    return {unit for unit, yes in enumerate(chosen) if yes}


@st.composite
def choices(draw: st.DrawFn, largest: int) -> tuple[list[int], list[int], list[int], int]:
    """Sizes of units up to `largest`, lengths of spans up to 3, an order, and a budget."""
    sizes = draw(st.lists(st.integers(1, largest), min_size=1, max_size=20))
    lengths = [draw(st.integers(1, min(3, len(sizes) - unit))) for unit in range(len(sizes))]
    order = list(draw(st.permutations(range(len(sizes)))))
    return sizes, lengths, order, draw(st.integers(1, sum(sizes)))


@given(choices(4))
def test_spans_are_chosen_as_in_the_official_loop_and_the_rest_filled(
    choice: tuple[list[int], list[int], list[int], int],
) -> None:
    sizes, lengths, order, budget = choice
    reference = official(sizes, lengths, order, budget)
    left = budget - sum(sizes[unit] for unit in reference)
    for coin in (0.0, 0.5, 0.999):
        chosen = choose_tokens(sizes, lengths, order, budget, coin, whole=False)
        assert chosen >= reference
        if left == 0:
            assert chosen == reference
        total = sum(sizes[unit] for unit in chosen)
        spare = [sizes[unit] for unit in range(len(sizes)) if unit not in chosen]
        if total < budget:  # only by the coin, and only where nothing fits
            assert all(size > budget - total for size in spare)
            assert coin * min(spare) >= budget - total
        if total > budget:
            last = total - budget
            assert any(
                sizes[unit] > last and coin * sizes[unit] < sizes[unit] - last
                for unit in chosen - reference
            ) or (len(chosen) == 1)


@given(choices(2), st.booleans())
def test_the_budget_is_met_in_the_mean_over_the_coin(
    choice: tuple[list[int], list[int], list[int], int], whole: bool
) -> None:
    sizes, _, _, budget = choice
    coins = (np.arange(60) + 0.5) / 60  # no span is larger than 6, and 60 is a multiple of 1 to 6
    totals = [
        sum(sizes[unit] for unit in choose_tokens(*choice, coin, whole)) for coin in coins.tolist()
    ]
    assert min(totals) > 0
    assert sum(totals) == 60 * max(budget, min(sizes))


@given(choices(4), st.floats(0, 0.999))
def test_whole_spans_are_cut_only_where_they_are_the_first(
    choice: tuple[list[int], list[int], list[int], int], coin: float
) -> None:
    sizes, lengths, order, budget = choice
    expected: set[int] = set()
    for unit in order:
        span = set(range(unit, unit + lengths[unit]))
        if not expected:
            while sum(sizes[place] for place in span) > budget:
                span -= {max(span)}
        left = budget - sum(sizes[place] for place in expected)
        size = sum(sizes[place] for place in span)
        if not left:
            break
        if span & expected:
            continue
        if size > left:
            expected |= span if coin * size < left else set()
            break
        expected |= span
    else:
        return  # nothing more fits: single units fill the rest
    assert choose_tokens(sizes, lengths, order, budget, coin, whole=True) == expected


def test_whole_words_are_refused_where_the_tokenizer_cannot_tell_them() -> None:
    with refused(DataError, "masking.unit=word", "unigram", "masking.unit=token"):
        masker(word_starts=None)
    masker(word_starts=None, unit="token")
