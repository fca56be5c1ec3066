from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn.ensemble import HistGradientBoostingClassifier
from toy_shards import SPECIAL, ToySplit, prose

from litebert.config import SequenceConfig
from litebert.data.draws import derive
from litebert.data.segments import Pairs, Segments, trimmed_lengths
from litebert.errors import DataError

sentence_lengths = st.lists(st.lists(st.integers(0, 30), max_size=12), min_size=1, max_size=6)
tasks = st.sampled_from([None, "sop", "nsp"])


def pairs(split: ToySplit, length: int, short: float, task: Any) -> Pairs:
    return Pairs(split, SequenceConfig(length=length, short_probability=short), task)  # type: ignore[arg-type]


def epoch(format_: Pairs, epoch: int, seed: int = 0) -> list[Segments]:
    examples = np.arange(format_.examples)
    return format_(examples, derive(seed, epoch, examples))


def document_of(split: ToySplit, tokens: np.ndarray) -> int:
    return int(np.searchsorted(split.bounds, tokens[0] - len(SPECIAL), "right")) - 1


@given(sentence_lengths, st.integers(8, 40), st.sampled_from([0.0, 0.1, 1.0]), tasks, st.integers(0, 2**32))
def test_segments_are_runs_of_the_documents_in_the_order_the_label_says(
    documents: list[list[int]], length: int, short: float, task: str | None, seed: int
) -> None:
    split = ToySplit(documents)
    texts = np.count_nonzero(split.document_tokens)
    if texts < (2 if task == "nsp" else 1):
        with pytest.raises(DataError):
            pairs(split, length, short, task)
        return
    format_ = pairs(split, length, short, task)
    chunks = [document for document, n in enumerate(split.document_tokens) for _ in range(-(-n // (length - 3)))]
    assert format_.examples == len(chunks)
    boundaries = np.concatenate([split.starts[d] + split.bounds[d] for d in range(split.documents)]) + len(SPECIAL)
    for document, (first, second, label) in zip(chunks, epoch(format_, 0, seed), strict=True):
        parts = [first] if second is None else [first, second]
        for part in parts:
            assert len(part) >= 1
            assert (np.diff(part.astype(int)) == 1).all()
            assert document_of(split, part[:1]) == document_of(split, part[-1:])
        total = sum(map(len, parts))
        assert total <= length - 3
        assert document_of(split, first) == document or (task, label) == ("sop", 1)
        if short == 0 and not (task == "nsp" and label == 1):
            assert total == min(length - 3, split.document_tokens[document])
        if second is None:
            assert label == -100
            assert not np.isin(first[1:], boundaries).any()
        elif task == "nsp" and label == 1:
            assert document_of(split, second) != document
        else:
            assert document_of(split, second) == document
            assert (first[-1] < second[0]) == (label != 1)
            assert label in {None: (-100,), "sop": (-100, 0, 1), "nsp": (0, 1)}[task]
            early, late = (first, second) if label != 1 else (second, first)
            assert np.isin(np.arange(early[-1] + 1, late[0] + 1), boundaries).any()


@given(sentence_lengths, tasks, st.integers(0, 2**32))
def test_an_example_does_not_depend_on_its_company(documents: list[list[int]], task: str | None, seed: int) -> None:
    split = ToySplit([*documents, [3, 4], [5]])
    format_ = pairs(split, 12, 0.3, task)
    together = epoch(format_, 0, seed)
    for example in range(format_.examples):
        alone = format_(np.array([example]), derive(seed, 0, np.array([example])))[0]
        for one, other in zip(alone, together[example], strict=True):
            assert np.array_equal(one, other)


def test_every_token_has_its_turn() -> None:
    split = ToySplit([*prose(12, seed=1), [1], [400], [0, 5, 0]])
    format_ = pairs(split, 35, 0.0, "sop")
    seen = np.zeros(split.tokens + len(SPECIAL), int)
    for number in range(150):
        for first, second, _ in epoch(format_, number):
            seen[first] += 1
            if second is not None:
                seen[second] += 1
    assert seen[len(SPECIAL) :].min() > 0
    assert np.median(seen) == pytest.approx(150, rel=0.15)


def test_labels_cannot_be_told_from_the_shape() -> None:
    """Lengths, sentence counts and whether segments begin and end with their sentences say nothing about order."""
    split = ToySplit(prose(1500, seed=2))
    starts, ends = np.zeros(split.tokens, bool), np.zeros(split.tokens, bool)
    for offsets, base in zip(split.starts, split.bounds, strict=False):
        starts[offsets[:-1] + base] = True
        ends[offsets[1:] + base - 1] = True
    features, labels = [], []
    for first, second, label in epoch(pairs(split, 64, 0.1, "sop"), 0):
        if label >= 0 and second is not None:
            shape: list[int] = []
            for part in (first - len(SPECIAL), second - len(SPECIAL)):
                shape += [len(part), starts[part[0]], ends[part[-1]], starts[part].sum()]
            features.append(shape)
            labels.append(label)
    x, y, half = np.array(features), np.array(labels), len(labels) // 2  # the halves hold different documents
    assert half > 7000
    assert stats.binomtest(int(y.sum()), len(y)).pvalue > 0.001
    accuracy = HistGradientBoostingClassifier(max_iter=40).fit(x[:half], y[:half]).score(x[half:], y[half:])
    assert accuracy == pytest.approx(0.5, abs=3.3 * 0.5 / half**0.5)
    assert stats.ttest_ind(x[y == 0, 0], x[y == 1, 0]).pvalue > 0.001


def test_most_chunks_of_prose_are_labelled() -> None:
    split = ToySplit(prose(300, seed=3))
    for length, share in ((64, 0.75), (128, 0.94), (512, 0.95)):
        labels = np.array([item.label for item in epoch(pairs(split, length, 0.1, "sop"), 0)])
        assert (labels >= 0).mean() > share


def test_nsp_labels_are_balanced_and_random_documents_weighted_by_their_text() -> None:
    split = ToySplit([[5] * 40, [4] * 5, [0], [5] * 20, [5] * 60])
    format_ = pairs(split, 23, 0.0, "nsp")
    labels, sources = [], []
    for number in range(400):
        for first, second, label in epoch(format_, number):
            assert second is not None
            labels.append(label)
            if label == 1 and document_of(split, first) == 0:
                sources.append(document_of(split, second))
    assert stats.binomtest(sum(labels), len(labels)).pvalue > 0.001
    assert stats.chisquare(np.bincount(sources)[[1, 3, 4]], len(sources) * np.array([1, 5, 15]) / 21).pvalue > 0.001


def test_random_segments_fill_the_sequence_where_their_document_can() -> None:
    split = ToySplit([[5] * 200, [7] * 200])
    for first, second, _ in epoch(pairs(split, 64, 0.0, "nsp"), 0):
        assert second is not None
        assert len(first) + len(second) == 61


def test_short_targets_and_cuts_are_uniform() -> None:
    # One-token sentences: nothing is trimmed, the text shows the target and the cut as they were drawn.
    format_ = pairs(ToySplit([[1] * 100_000]), 24, 0.1, None)
    examples = [item for number in range(4) for item in epoch(format_, number)]
    totals = np.array([len(first) + len(second) for first, second, _ in examples if second is not None])
    share = 0.1 * 19 / 20  # a uniform target in [2, 21] may be the longest
    assert stats.binomtest(int((totals < 21).sum()), len(totals), share).pvalue > 0.001
    cuts = [len(item.first) for item in examples if len(item.first) + len(item.second) == 21]  # type: ignore[arg-type]
    assert stats.chisquare(np.bincount(cuts)[1:]).pvalue > 0.001
    assert len(np.bincount(cuts)) == 21
    examples = epoch(pairs(ToySplit([[1] * 100_000]), 24, 1.0, None), 0)
    totals = np.array([len(first) + len(second) for first, second, _ in examples if second is not None])
    assert stats.chisquare(np.bincount(totals)[2:]).pvalue > 0.001
    assert totals.max() == 21


def test_trimming_takes_from_both_ends_alike() -> None:
    split = ToySplit([[15, 15]])  # both chunks are the whole document, trimmed to 11 and 10 tokens
    pairs_ = [item for number in range(2000) for item in epoch(pairs(split, 24, 0.0, None), number)]
    for places, spare in (([item.first[0] for item in pairs_], 4), ([item.second[0] - 15 for item in pairs_], 5)):
        fronts = np.bincount(np.array(places, int) - len(SPECIAL))
        assert len(fronts) == spare + 1
        assert stats.chisquare(fronts).pvalue > 0.001


@given(st.integers(1, 60), st.integers(1, 60), st.integers(2, 60))
def test_trimmed_lengths_are_those_of_the_loop(first: int, second: int, target: int) -> None:
    a, b = first, second
    while a + b > target:
        if a > b:
            a -= 1
        else:
            b -= 1
    assert trimmed_lengths(first, second, target) == (a, b)


def test_long_sentences_are_cut_and_never_labelled_for_their_order() -> None:
    split = ToySplit([[300, 20, 300]])
    for first, second, label in [item for number in range(50) for item in epoch(pairs(split, 64, 0.0, "sop"), number)]:
        assert label == -100
        assert second is None or first[-1] < second[0]


@pytest.mark.parametrize(
    ("documents", "task", "words"),
    [([], "sop", "no token"), ([[], [0]], None, "no token"), ([[4, 4], [], [0]], "nsp", "use sop")],
)
def test_a_split_that_cannot_serve_is_refused(documents: list[list[int]], task: str | None, words: str) -> None:
    with pytest.raises(DataError, match=words):
        pairs(ToySplit(documents), 16, 0.1, task)
