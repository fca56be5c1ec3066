from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn.ensemble import HistGradientBoostingClassifier

from litebert.base.errors import DataError
from litebert.config import PAIR_FORMATS, Format, SequenceConfig
from litebert.data.random_keys import derive
from litebert.data.segments import (
    SEQUENCE_FORMATS,
    SegmentPairs,
    Segments,
    SentencePairs,
    trim_lengths,
)
from toys.refusals import refused
from toys.shards import SPECIAL, ToySplit, prose

pytestmark = pytest.mark.thorough


sentence_lengths = st.lists(st.lists(st.integers(0, 30), max_size=12), min_size=1, max_size=6)
tasks = st.sampled_from([None, "sop", "nsp"])


def pairs(
    split: ToySplit, length: int, short: float, task: Any, separators: int = 1
) -> SegmentPairs:
    sequences = SequenceConfig(length=length, short_probability=short)
    toy: Any = split
    return SegmentPairs(toy, sequences, task, separators)


def sentence_pairs(split: ToySplit, length: int, task: Any, separators: int = 1) -> SentencePairs:
    toy: Any = split
    return SentencePairs(toy, SequenceConfig(length=length), task, separators)


def epoch(format_: Any, epoch: int, seed: int = 0) -> list[Segments]:
    examples = np.arange(format_.examples)
    sequences: list[Segments] = format_(examples, derive(seed, epoch, examples))
    assert all(item.paired == (len(item.parts) == 2) for item in sequences)
    return sequences


def two(items: list[Segments]) -> list[tuple[np.ndarray, np.ndarray, int]]:
    """Those of two segments, with their labels."""
    return [(item.parts[0], item.parts[1], item.label) for item in items if item.paired]


def document_of(split: ToySplit, tokens: np.ndarray) -> int:
    return int(np.searchsorted(split.bounds, tokens[0] - len(SPECIAL), "right")) - 1


@given(
    sentence_lengths,
    st.integers(8, 40),
    st.sampled_from([0.0, 0.1, 1.0]),
    tasks,
    st.integers(1, 2),
    st.integers(0, 2**32),
)
def test_segments_are_runs_of_the_documents_in_the_order_the_label_says(
    documents: list[list[int]],
    length: int,
    short: float,
    task: str | None,
    separators: int,
    seed: int,
) -> None:
    split = ToySplit(documents)
    texts = np.count_nonzero(split.document_tokens)
    if texts < (2 if task == "nsp" else 1):
        with pytest.raises(DataError):
            pairs(split, length, short, task, separators)
        return
    format_ = pairs(split, length, short, task, separators)
    budget = length - 2 - separators
    chunks = [
        document for document, n in enumerate(split.document_tokens) for _ in range(-(-n // budget))
    ]
    assert format_.examples == len(chunks)
    boundaries = np.concatenate(
        [split.starts[d] + split.bounds[d] for d in range(split.documents)]
    ) + len(SPECIAL)
    for document, (parts, label, paired) in zip(chunks, epoch(format_, 0, seed), strict=True):
        for part in parts:
            assert len(part) >= 1
            assert (np.diff(part.astype(int)) == 1).all()
            assert document_of(split, part[:1]) == document_of(split, part[-1:])
        total = sum(map(len, parts))
        assert total <= budget
        assert document_of(split, parts[0]) == document or (task, label) == ("sop", 1)
        if short == 0 and not (task == "nsp" and label == 1):
            assert total == min(budget, split.document_tokens[document])
        if not paired:
            assert label == -100
            assert not np.isin(parts[0][1:], boundaries).any()
            continue
        first, second = parts
        if task == "nsp" and label == 1:
            assert document_of(split, second) != document
        else:
            assert document_of(split, second) == document
            assert (first[-1] < second[0]) == (label != 1)
            assert label in {None: (-100,), "sop": (-100, 0, 1), "nsp": (0, 1)}[task]
            early, late = (first, second) if label != 1 else (second, first)
            assert np.isin(np.arange(early[-1] + 1, late[0] + 1), boundaries).any()


@pytest.mark.parametrize("name", SEQUENCE_FORMATS)
@given(sentence_lengths, tasks, st.integers(0, 2**32))
def test_an_example_does_not_depend_on_its_company(
    name: Format, documents: list[list[int]], task: Any, seed: int
) -> None:
    documents = [[n for n in document if n] for document in documents]
    split: Any = ToySplit([*documents, [3, 4], [5], [7, 1]])
    sequences = SequenceConfig(length=12, short_probability=0.3, format=name)
    format_ = SEQUENCE_FORMATS[name](split, sequences, task if name in PAIR_FORMATS else None)
    examples = np.arange(format_.examples)
    together = format_(examples, derive(seed, 0, examples))
    for example in range(format_.examples):
        (alone,) = format_(np.array([example]), derive(seed, 0, np.array([example])))
        assert alone[1:] == together[example][1:]
        for part, other in zip(alone.parts, together[example].parts, strict=True):
            assert np.array_equal(part, other)


def test_every_token_has_its_turn() -> None:
    split = ToySplit([*prose(12, seed=1), [1], [400], [0, 5, 0]])
    format_ = pairs(split, 35, 0.0, "sop")
    seen = np.zeros(split.tokens + len(SPECIAL), int)
    for number in range(150):
        for item in epoch(format_, number):
            for part in item.parts:
                seen[part] += 1
    assert seen[len(SPECIAL) :].min() > 0
    assert np.median(seen) == pytest.approx(150, rel=0.15)


def check_that_shapes_tell_nothing(split: ToySplit, items: list[Segments], at_least: int) -> None:
    """Lengths, sentence counts and whether segments begin and end with their sentences say nothing
    about the label.
    """
    starts, ends = np.zeros(split.tokens, bool), np.zeros(split.tokens, bool)
    for offsets, base in zip(split.starts, split.bounds, strict=False):
        starts[offsets[:-1] + base] = True
        ends[offsets[1:] + base - 1] = True
    features, labels = [], []
    for first, second, label in two(items):
        if label >= 0:
            shape: list[int] = []
            for part in (first - len(SPECIAL), second - len(SPECIAL)):
                shape += [len(part), starts[part[0]], ends[part[-1]], starts[part].sum()]
            features.append(shape)
            labels.append(label)
    x, y = np.array(features), np.array(labels)
    half = len(labels) // 2  # the halves hold different documents
    assert half > at_least
    assert stats.binomtest(int(y.sum()), len(y)).pvalue > 0.001
    model = HistGradientBoostingClassifier(max_iter=40).fit(x[:half], y[:half])
    accuracy = model.score(x[half:], y[half:])
    assert accuracy == pytest.approx(0.5, abs=3.3 * 0.5 / half**0.5)
    assert stats.ttest_ind(x[y == 0, 0], x[y == 1, 0]).pvalue > 0.001


def test_order_cannot_be_told_from_the_shape() -> None:
    split = ToySplit(prose(1500, seed=2))
    check_that_shapes_tell_nothing(split, epoch(pairs(split, 64, 0.1, "sop"), 0), 7000)


def test_most_chunks_of_prose_are_labeled() -> None:
    split = ToySplit(prose(300, seed=3))
    for length, share in ((64, 0.75), (128, 0.94), (512, 0.95)):
        labels = np.array([item.label for item in epoch(pairs(split, length, 0.1, "sop"), 0)])
        assert (labels >= 0).mean() > share


def test_nsp_labels_are_balanced_and_random_documents_weighted_by_their_text() -> None:
    split = ToySplit([[5] * 40, [4] * 5, [0], [5] * 20, [5] * 60])
    format_ = pairs(split, 23, 0.0, "nsp")
    labels, sources = [], []
    for number in range(400):
        items = epoch(format_, number)
        assert all(item.paired for item in items)
        for first, second, label in two(items):
            labels.append(label)
            if label == 1 and document_of(split, first) == 0:
                sources.append(document_of(split, second))
    assert stats.binomtest(sum(labels), len(labels)).pvalue > 0.001
    seen, expected = np.bincount(sources)[[1, 3, 4]], len(sources) * np.array([1, 5, 15]) / 21
    assert stats.chisquare(seen, expected).pvalue > 0.001


def test_random_segments_fill_the_sequence_where_their_document_can() -> None:
    split = ToySplit([[5] * 200, [7] * 200])
    items = epoch(pairs(split, 64, 0.0, "nsp"), 0)
    assert len(two(items)) == len(items)
    for first, second, _ in two(items):
        assert len(first) + len(second) == 61


def test_short_targets_and_cuts_are_uniform() -> None:
    # One-token sentences: nothing is trimmed, the text shows the target and the cut as they were
    # drawn.
    format_ = pairs(ToySplit([[1] * 100_000]), 24, 0.1, None)
    examples = [item for number in range(4) for item in epoch(format_, number)]
    totals = np.array([len(first) + len(second) for first, second, _ in two(examples)])
    share = 0.1 * 19 / 20  # a uniform target in [2, 21] may be the longest
    assert stats.binomtest(int((totals < 21).sum()), len(totals), share).pvalue > 0.001
    cuts = [len(first) for first, second, _ in two(examples) if len(first) + len(second) == 21]
    assert stats.chisquare(np.bincount(cuts)[1:]).pvalue > 0.001
    assert len(np.bincount(cuts)) == 21
    examples = epoch(pairs(ToySplit([[1] * 100_000]), 24, 1.0, None), 0)
    totals = np.array([len(first) + len(second) for first, second, _ in two(examples)])
    assert stats.chisquare(np.bincount(totals)[2:]).pvalue > 0.001
    assert totals.max() == 21


def test_trimming_takes_from_both_ends_alike() -> None:
    split = ToySplit([[15, 15]])  # both chunks are the whole document, trimmed to 11 and 10 tokens
    pairs_ = two(
        [item for number in range(2000) for item in epoch(pairs(split, 24, 0.0, None), number)]
    )
    for places, spare in (
        ([first[0] for first, _, _ in pairs_], 4),
        ([second[0] - 15 for _, second, _ in pairs_], 5),
    ):
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
    assert trim_lengths(first, second, target) == (a, b)


@pytest.mark.parametrize(
    ("documents", "task", "names"),
    [([], "sop", []), ([[], [0]], None, []), ([[4, 4], [], [0]], "nsp", ["nsp", "sop"])],
)
def test_a_split_that_cannot_serve_is_refused(
    documents: list[list[int]], task: str | None, names: list[str]
) -> None:
    with refused(DataError, *names):
        pairs(ToySplit(documents), 16, 0.1, task)


# --------------------------------------------------------------------------------- single sentences

whole_sentences = st.lists(st.lists(st.integers(1, 30), max_size=8), min_size=1, max_size=6)


@given(whole_sentences, st.integers(8, 40), tasks, st.integers(1, 2), st.integers(0, 2**32))
def test_sentence_pairs_are_two_sentences_in_the_order_the_label_says(
    documents: list[list[int]], length: int, task: str | None, separators: int, seed: int
) -> None:
    split = ToySplit(documents)
    if sum(len(document) > 1 for document in documents) < (2 if task == "nsp" else 1):
        with pytest.raises(DataError):
            sentence_pairs(split, length, task, separators)
        return
    budget = length - 2 - separators
    expected = [(d, n) for d, document in enumerate(documents) for n in range(len(document) - 1)]
    items = epoch(sentence_pairs(split, length, task, separators), 0, seed)
    assert all(item.paired for item in items)
    for (document, number), (first, second, label) in zip(expected, two(items), strict=True):
        assert label in ((-100,) if task is None else (0, 1))
        places = []
        for part in (first, second):
            assert len(part) >= 1
            assert (np.diff(part.astype(int)) == 1).all()
            holder = document_of(split, part)
            place = part[0] - len(SPECIAL) - split.bounds[holder]
            places.append((holder, int(split.starts[holder].searchsorted(place, "right")) - 1))
        if (task, label) == ("nsp", 1):
            assert places[0] == (document, number)
            assert places[1][0] != document
            assert places[1][1] >= 1, "one that begins a document would tell that it is random"
        else:
            in_order = [(document, number), (document, number + 1)]
            assert places == in_order[:: -1 if label == 1 else 1]
        former, latter = (documents[holder][sentence] for holder, sentence in places)
        wanted = trim_lengths(former, latter, budget)
        assert (len(first), len(second)) == wanted
        assert sum(wanted) <= budget


@pytest.mark.parametrize(("task", "heading"), [("sop", []), ("nsp", [4])])
def test_labels_of_sentence_pairs_cannot_be_told_from_the_shape(
    task: str, heading: list[int]
) -> None:
    """Not even where each document begins with a short heading, which of course comes before what
    follows it.
    """
    split = ToySplit([heading + document for document in prose(4500, seed=6, longest=8)])
    check_that_shapes_tell_nothing(split, epoch(sentence_pairs(split, 48, task), 0), 7000)


def test_random_sentences_are_drawn_alike_from_all_other_documents() -> None:
    split = ToySplit([[2] * 3, [2] * 11, [9], [2] * 6])
    sources = [
        (document_of(split, second), int(second[0]))
        for number in range(3000)
        for first, second, label in two(epoch(sentence_pairs(split, 16, "nsp"), number))
        if label == 1 and document_of(split, first) == 0
    ]
    assert {document for document, _ in sources} == {1, 3}
    counts = np.unique([token for _, token in sources], return_counts=True)[1]
    assert len(counts) == 10 + 5
    assert stats.chisquare(counts).pvalue > 0.001


@pytest.mark.parametrize(
    ("documents", "task", "names"),
    [
        ([[4], [5]], None, ["1 document", 0]),
        ([[4], [5]], "sop", ["sequences.format=segment-pair"]),
        ([[4, 4], [5]], "nsp", ["nsp", "2 documents", 1]),
    ],
)
def test_a_split_without_pairs_of_sentences_is_refused(
    documents: list[list[int]], task: Any, names: list[Any]
) -> None:
    with refused(DataError, *names):
        sentence_pairs(ToySplit(documents), 16, task)


def test_every_token_of_paired_sentences_has_its_turn() -> None:
    split = ToySplit([*prose(5, seed=1), [60, 1, 50]])
    seen = np.zeros(split.tokens + len(SPECIAL), int)
    for number in range(400):
        for first, second, _ in two(epoch(sentence_pairs(split, 35, "sop"), number)):
            seen[first] += 1
            seen[second] += 1
    assert seen[len(SPECIAL) :].min() > 0
