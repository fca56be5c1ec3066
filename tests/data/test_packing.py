from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats

from litebert.base.errors import DataError
from litebert.config import SequenceConfig
from litebert.data.random_keys import derive
from litebert.data.segments import DocumentSentences, FullSentences, Segments
from toys.refusals import refused
from toys.shards import SPECIAL, ToySplit, prose

Kind = type[DocumentSentences] | type[FullSentences]
KINDS = [DocumentSentences, FullSentences]
SEPARATOR = -1
some_documents = st.lists(st.lists(st.integers(1, 40), max_size=10), min_size=1, max_size=6).filter(
    lambda documents: any(documents)
)
few_tokens = st.lists(
    st.lists(st.sampled_from([1, 1, 2, 4, 5, 12]), max_size=3), min_size=5, max_size=20
).filter(any)
tiny_documents = st.lists(
    st.lists(st.integers(1, 16), min_size=1, max_size=2), min_size=15, max_size=40
)
lengths = st.integers(8, 40)


def pack(
    kind: Kind, split: ToySplit, length: int, short: float = 0.0
) -> DocumentSentences | FullSentences:
    toy: Any = split
    return kind(toy, SequenceConfig(length=length, short_probability=short), None)


def epoch(format_: DocumentSentences | FullSentences, epoch: int, seed: int = 0) -> list[Segments]:
    examples = np.arange(format_.examples)
    return format_(examples, derive(seed, epoch, examples))


def texts(kind: Kind, split: ToySplit) -> list[tuple[list[int], list[tuple[int, int]]]]:
    """Tokens of each text that is packed, with separators, and where its sentences start and
    end.
    """
    documents: list[tuple[list[int], list[tuple[int, int]]]] = []
    for document in range(split.documents):
        tokens, starts = split.read_document(document)
        if not len(tokens):
            continue
        if not documents or kind is DocumentSentences:
            documents.append(([], []))
        else:
            documents[0][0].append(SEPARATOR)
        base = len(documents[-1][0])
        documents[-1][0].extend(tokens.tolist())
        documents[-1][1].extend(
            (base + a, base + b)
            for a, b in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)
        )
    return documents


def join_parts(item: Segments) -> list[int]:
    tokens: list[int] = []
    for part in item.parts:
        tokens += [SEPARATOR, *part.tolist()] if tokens else part.tolist()
    return tokens


@pytest.mark.parametrize("kind", KINDS)
@given(some_documents, lengths, st.sampled_from([0.0, 0.5, 1.0]), st.integers(0, 2**32))
def test_sequences_are_passages_of_whole_sentences(
    kind: Kind, documents: list[list[int]], length: int, short: float, seed: int
) -> None:
    split = ToySplit(documents)
    budget = length - 2
    format_ = pack(kind, split, length, short)
    wanted = [text for text in texts(kind, split) for _ in range(-(-len(text[0]) // budget))]
    assert format_.examples == len(wanted)
    for item, (tokens, sentences) in zip(epoch(format_, 0, seed), wanted, strict=True):
        assert item.label == -100
        assert not item.paired
        assert all(len(part) for part in item.parts)
        shown = join_parts(item)
        start = tokens.index(shown[0])
        end = start + len(shown)
        assert shown == tokens[start:end]
        assert 1 <= len(shown) <= budget
        cut = [(a, b) for a, b in sentences if a < start < b or a < end < b]
        if short == 0:
            assert 2 * len(shown) >= min(budget, len(tokens))
            assert all(b - a > budget // 2 for a, b in cut), "a sentence that is cut is a long one"
            if len(tokens) <= budget:
                assert shown == tokens


def strip(passage: list[int]) -> list[int]:
    return passage[passage[0] == SEPARATOR : len(passage) - (passage[-1] == SEPARATOR)]


def passages(
    tokens: list[int], sentences: list[tuple[int, int]], tile: int, budget: int
) -> list[list[int]]:
    """The two passages that a tile may give, forwards and backwards, word for word after the law of
    the module.
    """
    size = len(tokens)

    def edge(number: int) -> int:
        place = number * size // -(-size // budget)
        start = max([a for a, _ in sentences if a <= place] if place < size else [size])
        return start if place - start <= budget // 2 else place + (tokens[place] == SEPARATOR)

    def forwards(start: int) -> int:
        end = max([b for _, b in sentences if start < b <= start + budget], default=start)
        return end if end - start >= budget / 2 else min(start + budget, size)

    def backwards(end: int) -> int:
        start = min([a for a, _ in sentences if end - budget <= a < end], default=end)
        return start if end - start >= budget / 2 else max(end - budget, 0)

    start, end = edge(tile), edge(tile + 1)
    end -= end > 0 and tokens[end - 1] == SEPARATOR
    ahead, back = (start, forwards(start)), (backwards(end), end)
    if ahead[1] == size:
        ahead = min(start, backwards(size)), size
    if back[0] == 0:
        back = 0, max(end, forwards(0))
    return [tokens[slice(*ahead)], tokens[slice(*back)]]


ON_A_SEPARATOR = [[5], [12], [1, 4], [1, 1, 4]]
"""The fourth tile of length 9 starts on a separator, and a sentence of one token ends what fits
after it.
"""


@pytest.mark.thorough
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=100)
@given(some_documents | tiny_documents | few_tokens, lengths, st.integers(0, 2**32))
@example(ON_A_SEPARATOR, 9, 0)
@example(ON_A_SEPARATOR, 9, 1)
@example(ON_A_SEPARATOR, 9, 2)
@example(ON_A_SEPARATOR, 9, 3)
@example(
    [[5], [6, 3]], 8, 0
)  # a place on a separator, over half a budget from the start of its sentence
@example([[5], [6, 3]], 8, 1)
@example([[5], [6, 3]], 8, 2)
@example([[5], [6, 3]], 8, 3)
def test_sequences_grow_by_the_law(
    kind: Kind, documents: list[list[int]], length: int, seed: int
) -> None:
    split = ToySplit(documents)
    sequences = iter(epoch(pack(kind, split, length), 0, seed))
    for tokens, sentences in texts(kind, split):
        for tile in range(-(-len(tokens) // (length - 2))):
            wanted = passages(tokens, sentences, tile, length - 2)
            # A passage that is cut may end with a separator, or begin with one, which are not
            # shown.
            assert join_parts(next(sequences)) in [strip(passage) for passage in wanted]


@pytest.mark.parametrize("kind", KINDS)
def test_every_token_has_about_its_share(kind: Kind) -> None:
    split = ToySplit([*prose(30, seed=1), [1], [400], [5, 50, 5]])
    format_ = pack(kind, split, 66)
    seen = np.zeros(split.tokens + len(SPECIAL), int)
    for number in range(200):
        once = np.concatenate([part for item in epoch(format_, number) for part in item.parts])
        seen += np.bincount(once, minlength=len(seen)) > 0
    chances = seen[len(SPECIAL) :] / 200
    assert chances.min() > 0.5 - 5 * 0.5 / 200**0.5
    assert (chances == 1).mean() > 0.4


@pytest.mark.parametrize(
    ("kind", "length", "longest", "fill", "missed"),
    [
        (FullSentences, 512, 60, 0.96, 0.04),
        (FullSentences, 128, 60, 0.87, 0.13),
        (FullSentences, 64, 60, 0.83, 0.175),
        (FullSentences, 512, 6, 0.96, 0.04),
        (DocumentSentences, 512, 60, 0.87, 0.01),
        (DocumentSentences, 128, 60, 0.87, 0.09),
        (DocumentSentences, 512, 6, 0.15, 0.0),
    ],
)
def test_an_epoch_of_prose(
    kind: Kind, length: int, longest: int, fill: float, missed: float
) -> None:
    """How full sequences are, and which share of the tokens an epoch misses, in documents of up to
    `longest` sentences of 24 tokens: what whole sentences leave of the budgets, hardly more."""
    split = ToySplit(prose(400, seed=3, longest=longest))
    items = epoch(pack(kind, split, length), 0)
    seen = np.concatenate([part for item in items for part in item.parts])
    assert np.mean([len(join_parts(item)) for item in items]) / (length - 2) > fill
    assert 1 - len(np.unique(seen)) / split.tokens <= missed
    if kind is FullSentences:
        assert len(np.unique(seen)) / len(seen) > 0.985, "hardly a token twice"


def test_a_full_sequence_reads_its_neighborhood_only(monkeypatch: pytest.MonkeyPatch) -> None:
    split = ToySplit([[5, 5]] * 20_000)
    format_ = pack(FullSentences, split, 64)
    read: list[int] = []
    whole = split.read

    def note_and_read(documents: Any) -> Any:
        read.extend(documents)
        return whole(documents)

    monkeypatch.setattr(split, "read", note_and_read)
    for number in (0, format_.examples // 2, format_.examples - 1):
        read.clear()
        format_(np.array([number]), derive(0, np.array([number])))
        assert len(read) < 25
        assert abs(np.mean(read) - 20_000 * number / format_.examples) < 25


@pytest.mark.parametrize("kind", KINDS)
def test_short_targets_are_uniform(kind: Kind) -> None:
    split = ToySplit([[1] * 40_000])  # one-token sentences show the target as it was drawn
    sizes = np.array([len(item.parts[0]) for item in epoch(pack(kind, split, 22, short=0.1), 0)])
    assert stats.binomtest(int((sizes < 20).sum()), len(sizes), 0.1 * 18 / 19).pvalue > 0.001
    sizes = np.array([len(item.parts[0]) for item in epoch(pack(kind, split, 22, short=1.0), 0)])
    assert stats.chisquare(np.bincount(sizes)[2:]).pvalue > 0.001
    assert sizes.max() == 20


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("documents", [[], [[], [0]]])
def test_a_split_without_text_is_refused(kind: Kind, documents: list[list[int]]) -> None:
    with refused(DataError):
        pack(kind, ToySplit(documents), 16)


def draw_tokens(format_: DocumentSentences | FullSentences, example: int, coin: float) -> list[int]:
    """The tokens of an example, which grows forwards if the coin is below a half."""
    (item,) = format_._make_segments(np.array([example]), np.array([[1.0], [0.0], [coin]]))
    return join_parts(item)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=40)
@given(some_documents | tiny_documents | few_tokens, lengths)
@example(ON_A_SEPARATOR, 9)
def test_what_no_sequence_shows_did_not_fit(
    kind: Kind, documents: list[list[int]], length: int
) -> None:
    """Every token is in what its tile gives forwards or backwards, and between two sequences that
    grow forwards lies only what does not fit into the first."""
    split, budget = ToySplit(documents), length - 2
    format_ = pack(kind, split, length)
    examples = iter(range(format_.examples))
    for tokens, sentences in texts(kind, split):
        seen, places = {SEPARATOR}, []
        for _ in range(-(-len(tokens) // budget)):
            example = next(examples)
            ahead, back = (draw_tokens(format_, example, coin) for coin in (0.0, 0.9))
            seen.update(ahead, back)
            places.append((tokens.index(ahead[0]), len(ahead)))
        assert seen >= set(tokens)
        ends = dict(sentences)
        for (start, count), (following, _) in pairwise([*places, (len(tokens), 0)]):
            after = start + count
            after += after < len(tokens) and tokens[after] == SEPARATOR
            if after < following:
                assert count == budget or ends[after] > start + budget
