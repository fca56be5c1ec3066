from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from toy_shards import CLS, MASK, PAD, SEP, SPECIAL, UNK, toy_tokenizer

from litebert.config import MaskingConfig
from litebert.data.draws import derive
from litebert.data.masking import Masker, choose_units, draw_lengths, find_units, length_law
from litebert.errors import DataError

VOCABULARY = 105
BEGINS = np.arange(VOCABULARY) % 3 > 0  # two pieces of three begin a word


def masker(word_starts: Any = BEGINS, **config: Any) -> Masker:
    return Masker(MaskingConfig(**config), toy_tokenizer(VOCABULARY, word_starts))


def sequences(batch: int, length: int, seed: int = 0, low: int = len(SPECIAL)) -> np.ndarray:
    """[CLS] A [SEP] B [SEP] [PAD] with `length` tokens in A and B."""
    tokens = np.random.default_rng(seed).integers(low, VOCABULARY, (batch, length))
    special = [np.full((batch, 1), id_) for id_ in (CLS, SEP, SEP, PAD)]
    return np.hstack(
        [special[0], tokens[:, : length // 2], special[1], tokens[:, length // 2 :], special[2], special[3]]
    )


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


@given(
    st.lists(st.lists(st.integers(0, VOCABULARY - 1), min_size=9, max_size=9), min_size=1, max_size=5),
    st.sampled_from(["token", "word"]),
    st.sampled_from(["single", "ngram"]),
    st.floats(0.01, 0.95),
    st.integers(0, 2**32),
)
def test_masks_of_any_batch(rows: list[list[int]], unit: Any, span: Any, rate: float, seed: int) -> None:
    ids = np.array(rows)
    before = ids.copy()
    corrupted, positions = masker(unit=unit, span=span, rate=rate)(ids, derive(seed, np.arange(len(ids))))
    assert (ids == before).all()
    assert (np.diff(positions) > 0).all()
    masked = np.zeros(ids.size, bool)
    masked[positions] = True
    masked = masked.reshape(ids.shape)
    assert not masked[np.isin(ids, SPECIAL)].any()
    assert (corrupted == ids)[~masked].all()
    assert ((corrupted[masked] == MASK) | (corrupted[masked] >= len(SPECIAL))).all()
    for row, mask in zip(ids, masked, strict=True):
        content = int((~np.isin(row, SPECIAL)).sum())
        assert mask.any() == (content > 0)
        for word in words_of(row) if unit == "word" else []:
            assert mask[word].all() or not mask[word].any()
        longest = max(map(len, words_of(row)), default=1) if unit == "word" else 1
        assert mask.sum() <= max(1, np.floor(rate * content) + 1) + longest - 1


@given(st.integers(0, 2**32), st.integers(1, 40), st.integers(0, 9))
def test_a_sequence_is_masked_alike_in_any_batch(seed: int, length: int, padding: int) -> None:
    ids, keys = sequences(3, length, seed), derive(seed, np.arange(3))
    together, positions = masker()(ids, keys)
    padded = np.hstack([ids[1:2], np.full((1, padding), PAD)])
    alone, own = masker()(padded, keys[1:2])
    assert (alone[0, : ids.shape[1]] == together[1]).all()
    width = ids.shape[1]
    assert own.tolist() == [p - width for p in positions.tolist() if width <= p < 2 * width]


@pytest.mark.parametrize("length", [10, 17, 64, 128, 509])
@pytest.mark.parametrize(
    "config", [{"unit": "token", "span": "single"}, {"unit": "word", "span": "ngram"}, {"unit": "word", "rate": 0.4}]
)
def test_the_rate_is_the_rate_at_every_length(length: int, config: dict[str, Any]) -> None:
    ids = sequences(120_000 // length, length, seed=length)
    _, positions = masker(**config)(ids, derive(length, np.arange(len(ids))))
    counts = np.bincount(positions // ids.shape[1], minlength=len(ids))
    expected = config.get("rate", 0.15) * length
    assert counts.mean() == pytest.approx(expected, abs=3.3 * counts.std() / len(ids) ** 0.5 + 1e-9)


def test_the_rate_holds_where_no_word_fits_the_rest() -> None:
    # Words of two tokens: half of the budgets are odd.
    begins = np.arange(VOCABULARY) % 2 == 0
    words = np.random.default_rng(0).integers(3, VOCABULARY // 2, (3000, 30)) * 2
    ids = np.hstack([np.full((3000, 1), CLS), np.stack([words, words + 1], 2).reshape(3000, 60)])
    _, positions = masker(begins)(ids, derive(np.arange(3000)))
    counts = np.bincount(positions // 61, minlength=3000)
    assert set(counts.tolist()) <= {8, 10}
    assert stats.binomtest(int((counts == 10).sum()), 3000, 0.5).pvalue > 0.001


def test_a_lone_word_is_masked_although_it_exceeds_the_budget() -> None:
    ids = np.tile([CLS, 7, 9, 9, 9, SEP], (200, 1))
    assert masker()(ids, derive(np.arange(200)))[1].size == 800


def test_replacement_shares_and_random_tokens() -> None:
    ids = sequences(600, 200)
    for unit, config in (("token", {}), ("word", {"replace_mask": 0.5, "replace_random": 0.3})):
        corrupted, positions = masker(unit=unit, **config)(ids, derive(5, np.arange(600)))
        old, new = ids.ravel()[positions], corrupted.ravel()[positions]
        mask, random = config.get("replace_mask", 0.8), config.get("replace_random", 0.1)
        ordinary = VOCABULARY - len(SPECIAL)
        counts = [(new == MASK).sum(), ((new != MASK) & (new != old)).sum(), (new == old).sum()]
        shares = np.array([mask, random * (1 - 1 / ordinary), 1 - mask - random + random / ordinary])
        assert stats.chisquare(counts, shares * len(positions)).pvalue > 0.001
        assert not np.isin(new[new != MASK], SPECIAL).any()
        drawn = np.bincount(new[(new != MASK) & (new != old)], minlength=VOCABULARY)[len(SPECIAL) :]
        assert stats.chisquare(drawn).pvalue > 0.001


def test_no_place_is_preferred() -> None:
    ids = sequences(4000, 40)
    _, positions = masker(unit="token", span="single")(ids, derive(6, np.arange(4000)))
    counts = np.bincount(positions % ids.shape[1], minlength=ids.shape[1])
    assert (counts[[0, 21, 42, 43]] == 0).all()
    assert stats.chisquare(np.delete(counts, [0, 21, 42, 43])).pvalue > 0.001


def test_span_lengths_follow_their_law() -> None:
    law = length_law(MaskingConfig())
    assert law == pytest.approx([6 / 11, 3 / 11, 2 / 11])
    assert length_law(MaskingConfig(span="single")).tolist() == [1]
    draws = (np.arange(60_000) + 0.5) / 60_000
    for ahead, shares in ((1, [1]), (2, [2 / 3, 1 / 3]), (3, [6 / 11, 3 / 11, 2 / 11]), (9, [6 / 11, 3 / 11, 2 / 11])):
        lengths = draw_lengths(law, np.full(60_000, ahead), draws)
        assert np.bincount(lengths)[1:] / 60_000 == pytest.approx(shares, abs=1e-4)
    assert draw_lengths(law, np.array([1, 2, 3]), np.full(3, 1 - 2.0**-53)).tolist() == [1, 2, 3]


def test_masked_ngrams_follow_the_law() -> None:
    # At a low rate spans hardly meet; the last of a sequence is cut by its budget, so there are many in one.
    ids = sequences(60, 6000)
    _, positions = masker(unit="token", rate=0.01)(ids, derive(8, np.arange(60)))
    runs = np.diff(np.flatnonzero(np.diff(positions, prepend=-2, append=positions[-1] + 2) > 1))
    shares = np.bincount(runs)[1:4] / len(runs)
    assert shares == pytest.approx([6 / 11, 3 / 11, 2 / 11], abs=0.03)


def test_units_stop_at_special_tokens_and_rows() -> None:
    ids = np.array([[CLS, 7, 9, SEP, 9, 12, SEP, PAD], [10, 9, UNK, 9, 7, 8, 9, 11]])
    units = find_units(~np.isin(ids, SPECIAL), BEGINS[ids])
    assert units.start.tolist() == [1, 4, 8, 11, 12, 13, 15]
    assert units.end.tolist() == [3, 6, 10, 12, 13, 15, 16]
    assert units.ahead.tolist() == [1, 1, 1, 4, 3, 2, 1]


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


@given(st.data())
def test_spans_are_chosen_as_in_the_official_loop_and_the_rest_filled(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=20))
    lengths = [data.draw(st.integers(1, min(3, len(sizes) - unit))) for unit in range(len(sizes))]
    order = data.draw(st.permutations(range(len(sizes))))
    budget = data.draw(st.integers(1, sum(sizes)))
    end = np.cumsum(sizes).tolist()
    start = [stop - size for stop, size in zip(end, sizes, strict=True)]
    reference = official(sizes, lengths, list(order), budget)
    left = budget - sum(sizes[unit] for unit in reference)
    for coin in (0.0, 0.5, 0.999):
        taken = {
            u for u, is_taken in enumerate(choose_units(start, end, lengths, list(order), budget, coin)) if is_taken
        }
        assert taken >= reference
        if left == 0:
            assert taken == reference
        total = sum(sizes[unit] for unit in taken)
        spare = [sizes[unit] for unit in range(len(sizes)) if unit not in taken]
        if total < budget:  # only by the coin, and only where nothing fits
            assert all(size > budget - total for size in spare)
            assert coin * min(spare) >= budget - total
        if total > budget:
            last = total - budget
            assert any(
                sizes[unit] > last and coin * sizes[unit] < sizes[unit] - last for unit in taken - reference
            ) or (len(taken) == 1)


def test_whole_words_are_refused_where_the_tokenizer_cannot_tell_them() -> None:
    with pytest.raises(DataError, match=r"unigram tokenizer cannot tell; set masking\.unit=token"):
        masker(word_starts=None)
    masker(word_starts=None, unit="token")
