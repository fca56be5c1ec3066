from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from litebert.data.random_keys import _GOLDEN, derive, draw_uniforms, mix_bits, permute


def test_the_mixer_is_splitmix64() -> None:
    # The first outputs of the reference implementation for seed 1234567.
    state = np.uint64(1234567) + np.arange(1, 6, dtype=np.uint64) * _GOLDEN
    assert mix_bits(state).tolist() == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]


def test_keys_tell_their_parts_and_order_apart() -> None:
    keys = [
        derive(*parts)[0] for parts in ((), (0,), (0, 0), (1, 2), (2, 1), (-1,), (2**64 - 1, 0))
    ]
    assert len(set(keys)) == len(keys)
    several = derive(5, np.array([1, 2, 3]))
    assert several.tolist() == [derive(5, k)[0] for k in (1, 2, 3)]


@given(st.integers(0, 2**63 - 1), st.integers(1, 50), st.integers(1, 50))
def test_a_draw_depends_on_its_key_stream_and_column_alone(seed: int, some: int, more: int) -> None:
    keys = derive(seed, np.arange(4))
    wide, narrow = draw_uniforms(keys, some + more, 3), draw_uniforms(keys[2:3], some, 3)
    assert (wide[2:3, :some] == narrow).all()
    assert (wide >= 0).all()
    assert (wide < 1).all()
    assert (draw_uniforms(keys, some, 4) != wide[:, :some]).all()


def test_draws_are_uniform_and_independent() -> None:
    keys = derive(1, np.arange(2000))
    draws = draw_uniforms(keys, 50, 1)
    bins = (draws * 16).astype(int)
    assert stats.chisquare(np.bincount(bins.ravel(), minlength=16)).pvalue > 0.001
    other = (draw_uniforms(keys, 50, 2) * 16).astype(int)
    for first, two in ((bins[:, 1:], bins[:, :-1]), (bins[1:], bins[:-1]), (bins, other)):
        assert (
            stats.chisquare(np.bincount((first * 16 + two).ravel(), minlength=256)).pvalue > 0.001
        )


@given(st.integers(1, 3000), st.integers(0, 2**63 - 1))
def test_a_permutation_is_a_bijection(size: int, seed: int) -> None:
    everywhere = permute(np.arange(size), size, derive(seed))
    assert sorted(everywhere.tolist()) == list(range(size))


def test_elements_of_several_permutations_at_once() -> None:
    place, keys = np.array([3, 3, 8, 0]), derive(np.array([1, 2, 1, 7]))
    alone = [permute(place[i : i + 1], 11, keys[i : i + 1])[0] for i in range(4)]
    assert permute(place, 11, keys).tolist() == alone


@pytest.mark.parametrize("size", [2, 3, 5, 7, 64])
def test_the_keys_permutations_are_uniform(size: int) -> None:
    keys = derive(4, np.arange(6000))
    zero = permute(np.zeros(6000, np.int64), size, keys)
    last = permute(np.full(6000, size - 1), size, keys)
    assert stats.chisquare(np.bincount(zero, minlength=size)).pvalue > 0.001
    if 2 < size < 10:
        pairs = np.bincount(zero * size + last, minlength=size * size).reshape(size, size)
        assert stats.chisquare(pairs[~np.eye(size, dtype=bool)]).pvalue > 0.001


def test_a_permutation_of_billions_takes_no_memory() -> None:
    size = 5_000_000_011
    images = permute(np.arange(20_000), size, derive(9))
    assert len(set(images.tolist())) == 20_000
    assert stats.kstest(images / size, "uniform").pvalue > 0.001
