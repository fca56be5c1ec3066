"""The laws of masking, each by a test that a true law fails at most once in 16,000 seeds; the seeds
are fixed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from litebert.config import MaskingConfig
from litebert.data.masking import Masker, compute_length_law, draw_lengths
from litebert.data.random_keys import derive, draw_uniforms
from toys.masks import BEGINS, VOCABULARY, masker, runs, sequences
from toys.shards import CLS, MASK, PAD, SEP, SPECIAL, toy_tokenizer

pytestmark = pytest.mark.thorough


UNLIKELY = 6.3e-5  # two-sided probability beyond four standard errors
LARGE = 2_000_005  # vocabulary in which a random token is hardly ever the one it replaces
SINGLE: dict[str, Any] = {"unit": "token", "span": "single"}
NGRAM: dict[str, Any] = {"unit": "word", "span": "ngram"}
GEOMETRIC: dict[str, Any] = {"unit": "word", "span": "geometric", "max_span": 10}
# SpanBERT, figure 2.
OF_TEN = [0.2241, 0.1792, 0.1434, 0.1147, 0.0918]
OF_TEN += [0.0734, 0.0587, 0.0470, 0.0376, 0.0301]


def assert_mean(values: np.ndarray, expected: float) -> None:
    """The mean is as expected, within four standard errors."""
    assert values.mean() == pytest.approx(
        expected, abs=4 * values.std() / len(values) ** 0.5 + 1e-9
    )


def counts_of(positions: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """How many tokens of each sequence are predicted."""
    return np.bincount(positions // ids.shape[1], minlength=len(ids))


# ----------------------------------------------------------------------------------------- how many


@pytest.mark.parametrize("length", [10, 17, 61, 125, 509])
@pytest.mark.parametrize("rate", [0.15, 0.25])
@pytest.mark.parametrize(
    "config", [SINGLE, NGRAM, GEOMETRIC], ids=lambda config: str(config["span"])
)
def test_the_rate_is_the_rate_at_every_length(
    length: int, rate: float, config: dict[str, Any]
) -> None:
    ids = sequences(120_000 // length, length, seed=length)
    counts = counts_of(
        masker(**config, rate=rate)(ids, derive(length, np.arange(len(ids)))).positions, ids
    )
    assert counts.min() >= 1
    assert_mean(counts, rate * length)


@pytest.mark.parametrize(("rate", "budget"), [(0.15, 9.15), (0.25, 15.25)])
def test_predicted_tokens_of_a_sequence(rate: float, budget: float) -> None:
    ids = sequences(3000, 61)
    keys = derive(3, np.arange(3000))
    low = int(budget)
    for config in (
        SINGLE,
        {"unit": "token", "span": "ngram"},
    ):  # the whole number below or above, by its share
        counts = counts_of(masker(**config, rate=rate)(ids, keys).positions, ids)
        assert set(counts.tolist()) == {low, low + 1}
        assert stats.binomtest(int((counts == low + 1).sum()), 3000, budget - low).pvalue > UNLIKELY
    counts = counts_of(masker(**GEOMETRIC, rate=rate)(ids, keys).positions, ids)
    assert counts.std() < 4  # the size of a span, and no more


# ------------------------------------------------------------------------------------- span lengths


def test_the_laws_of_span_lengths() -> None:
    assert compute_length_law(MaskingConfig(span="single")).tolist() == [1]
    assert compute_length_law(MaskingConfig()) == pytest.approx([6 / 11, 3 / 11, 2 / 11])
    geometric = compute_length_law(MaskingConfig(**GEOMETRIC))
    assert geometric == pytest.approx(OF_TEN, abs=5e-5)
    assert geometric @ np.arange(1, 11) == pytest.approx(3.797, abs=5e-4)
    assert compute_length_law(MaskingConfig(span="geometric", geometric_p=0.5)) == pytest.approx(
        [4 / 7, 2 / 7, 1 / 7]
    )


def lengths_in_words(ids: np.ndarray, begins: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Words in each run of masked tokens."""
    return np.array(
        [1 + begins[ids.ravel()[run]][1:].sum() for run in runs(positions, ids.shape[1])]
    )


@pytest.mark.parametrize(
    ("config", "mean"), [(NGRAM, 18 / 11), (GEOMETRIC, 3.797)], ids=["ngram", "geometric"]
)
def test_masked_spans_follow_the_law_in_long_sequences(config: dict[str, Any], mean: float) -> None:
    # At a low rate spans hardly meet; the last of a sequence is decided by its budget, so there are
    # many in one.
    ids = sequences(60, 12_000)
    masks = masker(**{**config, "unit": "token"}, rate=0.02)(ids, derive(8, np.arange(60)))
    lengths = lengths_in_words(ids, np.ones(VOCABULARY, bool), masks.positions)
    law = compute_length_law(MaskingConfig(**config))
    assert np.bincount(lengths)[1 : len(law) + 1] / len(lengths) == pytest.approx(law, abs=0.02)
    assert lengths.mean() == pytest.approx(mean, abs=0.1)


@pytest.mark.parametrize(
    ("length", "whole", "pieces"),
    [(62, 3.25, 3.05), (126, 3.50, 3.40), (510, 3.75, 3.70)],
    ids=["64", "128", "512"],
)
def test_geometric_spans_keep_most_of_their_length_in_short_sequences(
    length: int, whole: float, pieces: float
) -> None:
    # Cutting what exceeds the budget and filling the rest with shorter spans would give 3.0 and 2.5
    # words at 64.
    tokens = np.random.default_rng(length).integers(
        len(SPECIAL), VOCABULARY, (300_000 // length, length)
    )
    ids = np.hstack([np.full((len(tokens), 1), CLS), tokens, np.full((len(tokens), 1), SEP)])
    for begins, mean in ((np.ones(VOCABULARY, bool), whole), (BEGINS, pieces)):
        positions = masker(begins, **GEOMETRIC)(ids, derive(length, np.arange(len(ids)))).positions
        assert lengths_in_words(ids, begins, positions).mean() == pytest.approx(mean, abs=0.1)


# -------------------------------------------------------------------------------------------- where


def test_no_place_is_preferred() -> None:
    for config in (SINGLE, {**SINGLE, "rate": 0.25}):
        ids = sequences(4000, 40)
        positions = masker(**config)(ids, derive(6, np.arange(4000))).positions
        counts = np.bincount(positions % ids.shape[1], minlength=ids.shape[1])
        special = [0, 21, 42, 43]
        assert (counts[special] == 0).all()
        assert stats.chisquare(np.delete(counts, special)).pvalue > UNLIKELY


def test_spans_favor_no_place_but_the_ends() -> None:
    # A span starts at any word and must fit: the first words can be reached from few starts, the
    # last by short spans.
    ids = sequences(4000, 250)[:, 126:]
    shares = np.bincount(
        masker(np.ones(VOCABULARY, bool), **GEOMETRIC)(ids, derive(6, np.arange(4000))).positions
        % ids.shape[1],
        minlength=ids.shape[1],
    )[1:125] / (4000 * 0.15)
    assert 0.2 < shares[0] < 0.4 < shares[1] < 0.7
    assert 0.6 < shares[-1] < 0.9
    assert shares[9:-5] == pytest.approx(1, abs=0.2)  # four standard errors are 0.15
    assert shares[9:62].mean() == pytest.approx(shares[62:-5].mean(), abs=0.03)


@pytest.mark.parametrize(
    "config", [SINGLE, NGRAM, GEOMETRIC], ids=lambda config: str(config["span"])
)
def test_no_special_token_is_predicted_and_no_span_crosses_one(config: dict[str, Any]) -> None:
    # Documents of two words with separators between them, as RoBERTa's full sentences have: `<s> a
    # b </s> c d </s>`, and two separators between segments.
    words = np.random.default_rng(2).integers(len(SPECIAL), VOCABULARY, (3000, 30, 2))
    ids = np.hstack(
        [
            np.full((3000, 1), CLS),
            np.insert(words, 2, SEP, 2).reshape(3000, -1),
            np.full((3000, 1), SEP),
        ]
    )
    ids = np.hstack([ids[:, :46], np.full((3000, 1), SEP), ids[:, 46:], np.full((3000, 5), PAD)])
    masks = masker(np.ones(VOCABULARY, bool), **config)(ids, derive(9, np.arange(3000)))
    assert not np.isin(ids.ravel()[masks.positions], SPECIAL).any()
    assert (masks.ids == ids)[np.isin(ids, SPECIAL)].all()
    neighbors = masks.boundaries()[masks.boundaries() >= 0]
    assert not np.isin(ids.ravel()[neighbors], SPECIAL).any()
    # Documents are masked independently: both sides of a separator as often as chance has it.
    masked = np.zeros(ids.size, bool)
    masked[masks.positions] = True
    grid = masked.reshape(ids.shape)[:, 1:46].reshape(3000, 15, 3)
    both = (grid[:, :-1, 1] & grid[:, 1:, 0]).sum(1)
    chance = (grid[:, :-1, 1].mean() * grid[:, 1:, 0].mean()) * 14
    assert both.mean() == pytest.approx(chance, abs=0.15 * chance + 4 * both.std() / 3000**0.5)


# -------------------------------------------------------------------------------- what stands there


@pytest.mark.parametrize(
    ("mask", "random"),
    [(0.8, 0.1), (0.85, 0.0), (1.0, 0.0), (0.5, 0.3)],
    ids=["BERT", "ELECTRA", "all", "other"],
)
@pytest.mark.parametrize(
    "config", [SINGLE, NGRAM, GEOMETRIC], ids=lambda config: str(config["span"])
)
def test_replacement_of_tokens(mask: float, random: float, config: dict[str, Any]) -> None:
    ids = sequences(400, 200, vocabulary=LARGE)
    begins = np.arange(LARGE) % 3 > 0
    hide = masker(begins, LARGE, replace_mask=mask, replace_random=random, **config)
    masks = hide(ids, derive(5, np.arange(400)))
    old, new = ids.ravel()[masks.positions], masks.ids.ravel()[masks.positions]
    kind = np.select([new == MASK, new == old], [0, 1], 2)
    shares = np.array([mask, 1 - mask - random, random])
    seen = np.bincount(kind, minlength=3)
    assert (seen[shares < 1e-9] == 0).all()
    possible = shares > 1e-9
    if possible.sum() > 1:
        assert stats.chisquare(seen[possible], shares[possible] * len(kind)).pvalue > UNLIKELY
        # Neighbors draw independently.
        near = np.flatnonzero(np.diff(masks.positions) == 1)
        pairs = np.histogram2d(kind[near], kind[near + 1], bins=3, range=[[-0.5, 2.5]] * 2)[0][
            np.ix_(possible, possible)
        ]
        assert stats.chi2_contingency(pairs).pvalue > UNLIKELY


@pytest.mark.parametrize("config", [NGRAM, GEOMETRIC], ids=lambda config: str(config["span"]))
def test_replacement_of_spans(config: dict[str, Any]) -> None:
    ids = sequences(1500, 200, vocabulary=LARGE)
    hide = masker(np.arange(LARGE) % 3 > 0, LARGE, replace_per="span", **config)
    masks = hide(ids, derive(5, np.arange(1500)))
    seen = np.zeros(3, int)
    tokens = distinct = 0
    before, after = ids.ravel(), masks.ids.ravel()
    kind = np.select([after == MASK, after == before], [0, 1], 2)
    for run in runs(masks.positions, ids.shape[1]):
        kinds, new = kind[run], after[run]
        assert (kinds == kinds[0]).all()
        seen[kinds[0]] += 1
        tokens += (kinds[0] == 2) * len(run)
        distinct += (kinds[0] == 2) * len(np.unique(new))
    assert distinct > 0.99 * tokens > 1000  # each token of a random span draws its own
    assert stats.chisquare(seen, np.array([0.8, 0.1, 0.1]) * seen.sum()).pvalue > UNLIKELY


@pytest.mark.parametrize("replace_per", ["token", "span"])
def test_random_tokens_are_uniform_over_the_ordinary_ids(replace_per: str) -> None:
    # Special ids at both ends of the vocabulary, as in RoBERTa's.
    special = (0, 1, 2, 3, VOCABULARY - 1)
    tokenizer = toy_tokenizer(VOCABULARY)
    tokenizer.special_ids, tokenizer.mask_id = special, VOCABULARY - 1
    tokens = np.random.default_rng(0).integers(4, 10, (300, 200))  # of a text with ten words
    config: dict[str, Any] = {"replace_mask": 0.2, "replace_random": 0.8}
    config |= {**GEOMETRIC, "replace_per": replace_per}
    masks = Masker(MaskingConfig(**config), tokenizer)(tokens, derive(7, np.arange(300)))
    new = masks.ids.ravel()[masks.positions]
    drawn = np.bincount(new[new != VOCABULARY - 1], minlength=VOCABULARY)
    assert (drawn[list(special)] == 0).all()
    assert stats.chisquare(np.delete(drawn, special)).pvalue > UNLIKELY


@pytest.mark.parametrize(
    ("config", "shares"),
    [(NGRAM, [6 / 11, 3 / 11, 2 / 11]), (GEOMETRIC, OF_TEN)],
    ids=["ngram", "geometric"],
)
def test_drawn_lengths_follow_their_law(config: dict[str, Any], shares: list[float]) -> None:
    law = compute_length_law(MaskingConfig(**config))
    draws = draw_uniforms(derive(4, np.arange(600)), 100, 13).ravel()
    for ahead in (1, 2, len(law), 500):  # renormalized over the lengths that fit
        lengths = draw_lengths(law, np.full(60_000, ahead), draws)
        fit = np.array(shares[:ahead]) / sum(shares[:ahead])
        if len(fit) > 1:
            assert stats.chisquare(np.bincount(lengths)[1:], fit * 60_000).pvalue > UNLIKELY
        assert_mean(lengths, float(fit @ np.arange(1, len(fit) + 1)))
    assert (
        abs(lengths.mean() - 4.463) > 20 * lengths.std() / 60_000**0.5 or config is NGRAM
    )  # what clipping would give
    ends = draw_lengths(law, np.array([1, 2, 3]), np.full(3, 1 - 2.0**-53))
    assert ends.tolist() == [1, 2, 3]


def test_single_words_are_drawn_alone() -> None:
    # Words of one token, of which a tenth is masked: neighbors are masked as often as by chance.
    ids = sequences(2000, 100)
    positions = masker(np.ones(VOCABULARY, bool), unit="word", span="single", rate=0.1)(
        ids, derive(np.arange(2000))
    )[1]
    touching = int((np.diff(positions) == 1).sum())
    assert touching / 2000 == pytest.approx(98 * 0.1 * 9 / 99, abs=4 * (0.9 / 2000) ** 0.5)


def test_the_rate_holds_where_no_word_fits_the_rest() -> None:
    # Words of two tokens: half of the budgets are odd.
    begins = np.arange(VOCABULARY) % 2 == 0
    words = np.random.default_rng(0).integers(3, VOCABULARY // 2, (3000, 30)) * 2
    ids = np.hstack([np.full((3000, 1), CLS), np.stack([words, words + 1], 2).reshape(3000, 60)])
    counts = counts_of(masker(begins)(ids, derive(np.arange(3000))).positions, ids)
    assert set(counts.tolist()) <= {8, 10}
    assert stats.binomtest(int((counts == 10).sum()), 3000, 0.5).pvalue > UNLIKELY
