"""Sets read by weight: exact shares, an order that the step decides, and what is refused."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litebert.base.errors import DataError
from litebert.config import MaskingConfig, SequenceConfig, TableConfig
from litebert.data.batches import Batches, Turns
from litebert.data.cooccurrence import count_neighbors, count_tokens
from litebert.data.mixture import (
    LONGEST_ROUND,
    Mixture,
    list_sets,
    open_data,
    parse_weights,
    reduce_weights,
)
from litebert.data.prepare import PrepareConfig, prepare
from litebert.data.segments import MixedSplit
from toys.refusals import refused
from toys.shards import SPECIAL, ToySplit, prose, toy_tokenizer

weight_lists = st.lists(st.integers(1, 60), min_size=1, max_size=6)


@given(weight_lists, st.integers(0, 10**12), st.integers(1, 400))
def test_shares_are_exact_over_time(weights: list[int], first: int, count: int) -> None:
    turns = Turns(weights)
    splits, numbers = turns.locate(np.arange(first, first + count))
    before, after = turns.count(first), turns.count(first + count)
    assert sum(after) == first + count
    for split, weight in enumerate(weights):
        chosen = numbers[splits == split]
        assert chosen.tolist() == list(range(before[split], after[split]))
        share = Fraction(weight, sum(weights))
        most = Fraction(1, 2) * (1 + share * (len(weights) - 2)) if len(weights) > 1 else 0
        assert abs(after[split] - share * (first + count)) <= most


def test_two_weights_alternate_as_evenly_as_they_can() -> None:
    splits, _ = Turns([2, 1]).locate(np.arange(6))
    assert splits.tolist() == [0, 1, 0, 0, 1, 0]


def make_batches(split: ToySplit | MixedSplit, seed: int = 0, batch: int = 9) -> Batches:
    sequences, masking = (
        SequenceConfig(length=32, format="full-sentences"),
        MaskingConfig(rate=0.15),
    )
    return Batches(split, toy_tokenizer(5000), sequences, masking, None, batch, seed)


def make_split(documents: int, seed: int) -> ToySplit:
    return ToySplit(prose(documents, seed, longest=5), 5000)


@settings(max_examples=25)
@given(
    st.lists(st.integers(1, 7), min_size=2, max_size=3), st.integers(0, 10**6), st.integers(1, 8)
)
def test_any_rows_of_a_mixed_batch_are_those_of_the_whole(
    weights: list[int], step: int, cut: int
) -> None:
    splits = tuple(make_split(6, number) for number in range(len(weights)))
    make = make_batches(MixedSplit(splits, tuple(weights)))
    whole, parts = make(step), [make(step, slice(0, cut)), make(step, slice(cut, 9))]
    labels = np.concatenate([part.masked_labels.numpy() for part in parts])
    assert labels.tolist() == whole.masked_labels.tolist()
    rows = [row for part in parts for row in part.input_ids.tolist()]
    for row, expected in zip(rows, whole.input_ids.tolist(), strict=True):
        width = min(len(row), len(expected))
        assert row[:width] == expected[:width]


def test_a_set_gives_the_sequences_that_it_gives_alone() -> None:
    alone, other = make_split(20, 1), make_split(9, 2)
    mixed = make_batches(MixedSplit((alone, other), (2, 1)), batch=6)
    first = make_batches(alone, batch=4)
    for step in range(5):
        rows, expected = mixed(step).input_ids, first(step).input_ids
        assert rows[[0, 2, 3, 5], :8].tolist() == expected[:, :8].tolist()


def test_two_equal_sets_draw_other_sequences() -> None:
    split = make_split(20, 1)
    batch = make_batches(MixedSplit((split, split), (1, 1)), batch=8)(0)
    assert batch.input_ids[0::2].tolist() != batch.input_ids[1::2].tolist()


def test_each_set_has_epochs_of_its_length() -> None:
    small, large = make_split(5, 1), make_split(50, 2)
    batches = make_batches(MixedSplit((small, large), (3, 1)))
    epochs = batches.count_epochs(4000)
    assert epochs[0] == 3000 / make_batches(small).examples
    assert epochs[1] == 1000 / make_batches(large).examples
    # In an epoch of its own, every sequence of a set comes once.
    starts = {tuple(row[1:3]) for step in range(8) for row in make_batches(large)(step).input_ids}
    assert len(starts) > 8


def test_tokens_and_neighbors_count_by_weight() -> None:
    first, second = make_split(12, 1), make_split(40, 2)
    mixed, scale = MixedSplit((first, second), (3, 1)), 3 * second.tokens / first.tokens
    alone = [np.bincount(split.ids, minlength=5000) for split in (first, second)]
    counts = count_tokens(mixed, 5000)
    assert counts.tolist() == (np.rint(alone[0] * scale) + alone[1]).tolist()
    table = TableConfig(start="cooccurrence", window=2)
    sums = [count_neighbors(split, 5000, table).token_sums for split in (mixed, first, second)]
    assert sums[0] == pytest.approx(sums[1] * scale + sums[2], rel=1e-5)


@given(st.lists(st.fractions(Fraction(1, 20), 50, max_denominator=20), min_size=1, max_size=4))
def test_weights_in_lowest_terms_keep_their_ratios(weights: list[Fraction]) -> None:
    named = {f"set{number}": weight for number, weight in enumerate(weights)}
    try:
        reduced = list(reduce_weights(named).values())  # type: ignore[arg-type]
    except DataError:
        assert sum(weights) * 20**4 > LONGEST_ROUND
        return
    assert math.gcd(*reduced) == 1
    assert all(a * weights[0] == reduced[0] * b for a, b in zip(reduced, weights, strict=True))


def test_weights_are_read_from_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert parse_weights(["data"]) == "data"
    assert parse_weights(["books:2", "web"]) == {"books": 2.0, "web": 1.0}
    assert parse_weights(["s3://bucket/a:0.5", "b:.25"]) == {"s3://bucket/a": 0.5, "b": 0.25}
    assert parse_weights(["s3://bucket/a"]) == "s3://bucket/a"
    (tmp_path / "2024:1").mkdir()
    monkeypatch.chdir(tmp_path)
    assert parse_weights(["2024:1"]) == "2024:1"
    with refused(DataError, "books", "twice"):
        parse_weights(["books:2", "books:1"])
    assert parse_weights(["http://localhost:8000"]) == "http://localhost:8000"
    assert parse_weights(["http://localhost:8000/a:2"]) == {"http://localhost:8000/a": 2.0}
    (tmp_path / "books").mkdir()
    for weight in ("1e9", "nan", "1000000000000", ""):
        with refused(DataError, "the weight of books", f"'{weight}'"):
            parse_weights([f"books:{weight}"])


@pytest.mark.parametrize(
    ("weights", "place"),
    [
        ({"books": 0, "web": 1}, "0"),
        ({"books": 0, "web": 0}, "0"),
        ({"books": -2, "web": 1}, "-2"),
        ({"books": math.nan, "web": 1}, "nan"),
        ({"books": math.inf, "web": 1}, "inf"),
    ],
)
def test_weights_that_mean_nothing_are_refused(weights: dict[str, float], place: str) -> None:
    with refused(DataError, "books", place):
        open_data(weights)


def test_weights_of_too_many_digits_are_refused() -> None:
    with refused(DataError, "fewer digits"):
        reduce_weights({"books": 0.333333, "web": 0.666668})


def test_a_mixture_opens_with_the_sets_in_order(
    tiny_data: Path, tiny_corpus: Path, tiny_tokenizer: Path, tmp_path: Path
) -> None:
    half = tmp_path / "half.txt"
    half.write_text(tiny_corpus.read_text().split("\n\n", 100)[100])
    config = PrepareConfig(heldout=0.1)
    prepare([str(half)], tmp_path / "b", tokenizer=tiny_tokenizer, processes=1, config=config)
    mixture = open_data({tiny_data: 0.5, tmp_path / "b": 0.25})  # type: ignore[dict-item]
    assert isinstance(mixture, Mixture)
    assert mixture.weights == (2, 1)
    assert mixture.name == f"{tiny_data}:2 {tmp_path / 'b'}:1"
    again = open_data(mixture.location)
    other = open_data({str(tiny_data): 1, str(tmp_path / "b"): 1})
    assert again.fingerprint == mixture.fingerprint != other.fingerprint
    entropies = [shards.unigram_entropy for shards in list_sets(mixture)]
    assert min(entropies) - 0.01 < mixture.unigram_entropy < max(entropies) + 0.1
    assert open_data({str(tiny_data): 3}).fingerprint == mixture.sets[0].fingerprint
    with refused(DataError, tmp_path / "b", "same set"):
        copy = tmp_path / "copy"
        copy.symlink_to(tmp_path / "b")
        open_data({str(copy): 1, str(tmp_path / "b"): 1})


def test_a_set_of_another_tokenizer_is_refused(
    tiny_data: Path, tiny_corpus: Path, other_tokenizer: Path, tmp_path: Path
) -> None:
    prepare([str(tiny_corpus)], tmp_path / "b", tokenizer=other_tokenizer, processes=1)
    with refused(DataError, tmp_path / "b", tiny_data, "--tokenizer"):
        open_data({str(tiny_data): 2, str(tmp_path / "b"): 1})
    with refused(DataError, "no-such-set"):
        open_data({str(tiny_data): 2, "no-such-set": 1})


def test_special_tokens_of_the_toy_are_no_text() -> None:
    assert int(make_split(3, 1).ids.min()) == len(SPECIAL)
