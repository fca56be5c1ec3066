"""Token vectors from counts: every count beside a loop over pairs, every step beside numpy's dense
algebra.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litebert.base.errors import DataError
from litebert.config import TableConfig
from litebert.data import cooccurrence
from litebert.data.cooccurrence import compute_token_vectors, count_neighbors, keep_nonzero
from litebert.data.encoding import Encoded
from litebert.data.shard_files import write_shard
from toys.refusals import refused
from toys.shards import ToySplit, prose

VOCABULARY = 12


def count_by_hand(split: ToySplit, table: TableConfig) -> np.ndarray:
    """(V, V): the weight of each neighbor, by a loop over all pairs of tokens of a sentence or
    document.
    """
    pairs = np.zeros((VOCABULARY, VOCABULARY))
    for number in range(split.documents):
        ids, starts = split.read_document(number)
        edges = starts.tolist() if table.context == "sentence" else [0, len(ids)]
        for first, last in itertools.pairwise(edges):
            for i in range(first, last):
                for j in range(max(first, i - table.window), min(last, i + table.window + 1)):
                    if i != j:
                        pairs[ids[i], ids[j]] += 1 / abs(i - j)
    return pairs


@settings(max_examples=60)
@given(
    sentences=st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=4), min_size=1, max_size=8),
    window=st.integers(1, 6),
    context=st.sampled_from(["sentence", "document"]),
    passage=st.integers(1, 40),
)
def test_every_pair_within_the_window_counts(
    sentences: list[list[int]], window: int, context: Literal["sentence", "document"], passage: int
) -> None:
    split = ToySplit(sentences, VOCABULARY)
    table = TableConfig(start="cooccurrence", window=window, context=context)
    expected = count_by_hand(split, table)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cooccurrence, "PASSAGE", passage)
        if not expected.any():
            with refused(DataError, "table.start=random"):
                count_neighbors(split, VOCABULARY, table)
            return
        counts = count_neighbors(split, VOCABULARY, table)
    order = np.argsort(-counts.tokens, kind="stable")
    assert counts.tokens.tolist() == np.bincount(split.ids, minlength=VOCABULARY).tolist()
    assert counts.pairs.toarray() == pytest.approx(expected[:, order], rel=1e-5)
    assert counts.token_sums == pytest.approx(expected.sum(1), rel=1e-5)
    assert counts.neighbor_sums == pytest.approx(expected.sum(0)[order], rel=1e-5)
    assert counts.pairs.nnz == np.count_nonzero(expected)


def test_a_large_vocabulary_counts_its_most_frequent_neighbors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    split = ToySplit([[5, 3], [7], [4, 4, 1]], VOCABULARY)
    table = TableConfig(start="cooccurrence")
    monkeypatch.setattr(cooccurrence, "MOST_CELLS", 5 * VOCABULARY)
    counts = count_neighbors(split, VOCABULARY, table)
    frequent = np.argsort(-counts.tokens, kind="stable")[:5]
    assert counts.pairs.toarray() == pytest.approx(
        count_by_hand(split, table)[:, frequent], rel=1e-5
    )


def test_a_long_text_is_counted_in_passages_spread_over_it(monkeypatch: pytest.MonkeyPatch) -> None:
    split = ToySplit([[10] * 10] * 20)
    monkeypatch.setattr(cooccurrence, "PASSAGE", 100)
    monkeypatch.setattr(cooccurrence, "MOST_TOKENS", 500)
    counts = count_neighbors(split, int(split.ids.max()) + 1, TableConfig(start="cooccurrence"))
    places = np.flatnonzero(counts.tokens) - 5
    assert counts.tokens.sum() == 500
    assert sorted(set(places // 400)) == [0, 1, 2, 3, 4]


def test_information_is_that_of_the_formula() -> None:
    pairs = np.array([[0, 3, 1], [3, 0, 0], [1, 0, 2], [0, 0, 0]], np.float32)
    given_token = pairs / np.maximum(pairs.sum(1, keepdims=True), 1)
    smoothed = pairs.sum(0) ** 0.75 / (pairs.sum(0) ** 0.75).sum()
    with np.errstate(divide="ignore"):
        expected = np.maximum(np.log(given_token / smoothed), 0)
    counts = keep_nonzero(np.full(4, 1), pairs)
    assert cooccurrence._compute_positive_information(counts).toarray() == pytest.approx(
        expected, abs=1e-6
    )


def test_vectors_are_the_truncated_decomposition_centered_and_scaled() -> None:
    split = ToySplit(prose(30, seed=1), 60)
    counts = count_neighbors(split, 60, TableConfig(start="cooccurrence", window=3))
    vectors = compute_token_vectors(counts, 8, 0.1)
    left, values, _ = np.linalg.svd(cooccurrence._compute_positive_information(counts).toarray())
    expected = left[:, :8] * np.sqrt(values[:8])
    counted = counts.pairs.toarray().any(axis=1)
    expected[counted] -= expected[counted].mean(axis=0)
    expected[~counted] = 0
    expected *= 0.1 / expected[counted].std()
    # The signs of the columns are free, so inner products are compared.
    assert vectors @ vectors.T == pytest.approx(expected @ expected.T, abs=1e-3)
    assert vectors[counted].std() == pytest.approx(0.1, rel=1e-5)
    assert vectors[counted].mean(axis=0) == pytest.approx(np.zeros(8), abs=1e-6)
    assert not vectors[~counted].any()


def test_vectors_are_the_same_bits_each_time_and_wider_than_their_rank() -> None:
    split = ToySplit([[6, 4, 9]] * 5, VOCABULARY)
    counts = count_neighbors(split, VOCABULARY, TableConfig(start="cooccurrence"))
    first, second = (compute_token_vectors(counts, 20, 0.1) for _ in range(2))
    assert first.tobytes() == second.tobytes()
    assert first.shape == (VOCABULARY, 20)
    assert not first[:, VOCABULARY:].any()


def test_tokens_with_equal_neighbors_have_near_vectors() -> None:
    """Tokens 0 and 1 stand beside 2 and 3, tokens 4 and 5 beside 6 and 7."""
    pairs = np.zeros((8, 8), np.float32)
    for group, sides in (((0, 1), (2, 3)), ((4, 5), (6, 7))):
        for token in group:
            pairs[token, sides] = pairs[sides, token] = 1
    vectors = compute_token_vectors(keep_nonzero(np.full(8, 4), pairs), 3, 0.1)
    lengths = np.linalg.norm(vectors, axis=1)
    cosines = vectors @ vectors.T / lengths / lengths[:, None]
    assert cosines[0, 1] > 0.99
    assert cosines[0, 4] < 0.5


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak memory from /proc")
def test_a_corpus_of_a_gigabyte_is_counted_in_less_memory(tmp_path: Path) -> None:
    """250 million tokens, which are about a gigabyte of text, in a process of its own."""
    script = """
import sys
import numpy as np
from pathlib import Path
from litebert.config import TableConfig
from litebert.data.cooccurrence import count_neighbors, compute_token_vectors
from litebert.data.shard_files import read_blocks
from litebert.data.shards import Split
split = Split(read_blocks(Path(sys.argv[1])))
counts = count_neighbors(split, 30_000, TableConfig(start="cooccurrence"))
compute_token_vectors(counts, 128, 0.1)
# Not ru_maxrss, which begins with the memory of the parent process.
status = Path("/proc/self/status").read_text()
print(split.tokens, counts.tokens.sum(), status.split("VmHWM:")[1].split()[0])
"""
    draw = np.random.default_rng(0)
    chunks = []
    for _ in range(25):
        lengths = np.full(400_000, 25, np.int32)
        ids = np.minimum(draw.zipf(1.2, int(lengths.sum())), 29_999).astype(np.uint16)
        chunks.append(Encoded(ids, lengths, np.full(4_000, 100, np.int32)))
    write_shard(tmp_path / "shard.arrow", chunks, 30_000)
    del chunks
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "shard.arrow")],
        capture_output=True,
        text=True,
        check=True,
    )
    tokens, counted, kibibytes = map(int, done.stdout.split())
    assert tokens == 250_000_000
    # The last passage of a stored block may be short.
    assert 0.95 * cooccurrence.MOST_TOKENS < counted <= cooccurrence.MOST_TOKENS
    # About half of it is the mapped file itself, whose pages the system takes back when it needs
    # them.
    assert kibibytes * 1024 < 1e9
