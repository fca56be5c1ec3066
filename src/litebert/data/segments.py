"""Sequences made of sentences: which tokens of which documents make up example i.

There are four formats (RoBERTa section 4.2), two with two segments and two with one. Example i is
found alone, from the running sum of the examples of each document, so nothing is stored, a resumed
run skips nothing, and cut points differ from epoch to epoch. The price is that neighboring
sequences may share text, and that an epoch may leave some out.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from litebert.base.errors import DataError
from litebert.config import Format, SequenceConfig
from litebert.data import IGNORED
from litebert.data.random_keys import Keys, draw_uniforms

if TYPE_CHECKING:
    from litebert.data.shards import Documents, Split

Tokens = NDArray[np.integer]
Numbers = NDArray[np.int64]
Draws = NDArray[np.float64]
Chosen = NDArray[np.bool_]
SentenceTask = Literal["sop", "nsp"]

_CHOICES = 1
"""Stream of draws that formats read."""
_DRAWS = 9
"""Draws of the format that reads most."""


@dataclass(frozen=True)
class MixedSplit:
    splits: tuple[Split, ...]
    weights: tuple[int, ...]

    @property
    def tokens(self) -> int:
        return sum(split.tokens for split in self.splits)


AnySplit: TypeAlias = "Split | MixedSplit"


def list_splits(split: AnySplit) -> list[tuple[Split, int]]:
    if isinstance(split, MixedSplit):
        return list(zip(split.splits, split.weights, strict=True))
    return [(split, 1)]


class Segments(NamedTuple):
    """The text of one sequence without special tokens."""

    parts: tuple[Tokens, ...]
    """Laid out as [CLS] part [SEP] part [SEP] ...; no part is empty."""
    label: int
    """0 in order (sop) or next (nsp), 1 swapped or random, -100 not labeled."""
    paired: bool
    """Two segments, of token types 0 and 1; else one, with [SEP] between documents."""


class SequenceFormat(ABC):
    """Decides which tokens of which documents make up example i."""

    two_segments = True

    def __init__(
        self,
        split: Split,
        sequences: SequenceConfig,
        sentence: SentenceTask | None,
        pair_separators: int = 1,
    ) -> None:
        self._split = split
        self._sentence = sentence
        self._short = sequences.short_probability
        # [CLS] and the last [SEP] take two positions.
        self._budget = sequences.length - 2 - pair_separators * self.two_segments
        self._index = CumulativeIndex(self._count())

    @property
    def examples(self) -> int:
        return self._index.total

    def __call__(self, examples: NDArray[np.int64], keys: Keys) -> list[Segments]:
        """Return the segments of `examples` (B,), drawn from `keys` (B,)."""
        return self._make_segments(examples, draw_uniforms(keys, _DRAWS, _CHOICES).T)

    def _draw_targets(self, u: Draws) -> Numbers:
        """Return the tokens to fill: the budget, or with `short_probability` any of [2, budget]."""
        return np.where(
            u[0] < self._short, 2 + (u[1] * (self._budget - 1)).astype(np.int64), self._budget
        )

    @abstractmethod
    def _count(self) -> NDArray[np.int64]:
        """Return how many things that `_index` numbers, such as examples, each document has."""

    @abstractmethod
    def _make_segments(self, examples: Numbers, u: Draws) -> list[Segments]:
        """Return the segments of `examples` (B,) by `u` (_DRAWS, B), the first two for targets."""


class CumulativeIndex:
    """Things of which each document has some (examples, tokens), numbered through the split.

    document     0   1       2
    its things   3   0       2
    numbers      0 1 2       3 4        locate(4) = (2, 1, 2)
    """

    def __init__(self, counts: NDArray[np.int64]) -> None:
        self._ends = np.cumsum(counts)
        self.total = int(self._ends[-1]) if len(counts) else 0
        if not self.total:
            raise DataError(
                "this split of the shards holds no tokens; prepare more text, or more for "
                "this split"
            )

    def locate(self, numbers: Numbers) -> tuple[Numbers, Numbers, Numbers]:
        """Return each number's document (B,), its number there, and the count of the document."""
        documents = self._ends.searchsorted(numbers, "right")
        before, counts = self._count_things(documents)
        return documents, numbers - before, counts

    def locate_elsewhere(
        self, documents: Numbers, u: NDArray[np.float64]
    ) -> tuple[Numbers, Numbers]:
        """Draw for each document (B,) a thing of another: its document, and its number there."""
        before, counts = self._count_things(documents)
        numbers = (u * (self.total - counts)).astype(np.int64)
        return self.locate(np.where(numbers < before, numbers, numbers + counts))[:2]

    def count_before(self, documents: Numbers) -> Numbers:
        return np.where(documents > 0, self._ends[documents - 1], 0)

    def _count_things(self, documents: Numbers) -> tuple[Numbers, Numbers]:
        before = self.count_before(documents)
        return before, self._ends[documents] - before


Length = TypeVar("Length", int, NDArray[np.int64])


def trim_lengths(first: Length, second: Length, target: Length) -> tuple[Length, Length]:
    """Return the lengths of two segments that are trimmed to `target` tokens together.

    Tokens are taken one at a time off the longer segment, off the second where they are equal. So
    do the official BERT and ALBERT code (truncate_seq_pair).
    """
    excess = np.maximum(0, first + second - target)
    level = np.minimum(excess, abs(first - second))
    rest = excess - level
    longer = first > second
    return first - level * longer - rest // 2, second - level * (1 - longer) - (rest + 1) // 2


# ------------------------------------------------------------------------------------- two segments


class SegmentPairs(SequenceFormat):
    """Two runs of sentences of one document, or the second from another (BERT appendix A.2; ALBERT
    section 3.1).

        sentences   |----1----|-2-|------3------|--4--|-----5-----|
        windows     [.. budget ..]
                            [.. budget ..]
                                             [.. budget ..]  ceil(n / budget) of them, spread evenly
        chunk                 |-2-|------3------|      grown back from the end of the second window
        A, B                  |-2-|                    cut at a sentence end, each in equal chance
                                  |------3------|

    The budget is the length less the special tokens. The chunk of a window grows from one end of
    the window, moved outwards to the end of its sentence. It grows by whole sentences until it
    holds its target. The first chunk grows from the start of its window, the last from the end, and
    the others from either with equal chance. So every token has its turn. Both ends of a chunk
    follow one law, so that lengths do not tell the order.

    An end stays inside a sentence if it would move too far: by more than half a budget where the
    chunk starts to grow, or by more than a whole one where it stops. Without this limit, some text
    between the two chunks of a window would never be seen.

    The chunk is trimmed to its target one token at a time off the longer segment, as in BERT. BERT
    tosses a coin for each token, front or back, and so hardly ever shows the ends of long
    sentences. Here the number of tokens that go from the front is uniform. A chunk without a
    sentence end inside is one segment, never labeled.

    - sop: A and B are swapped with probability 1/2, before trimming. A chunk that ends inside a
      sentence stays in order, unlabeled, for the broken end would tell which segment it belongs to.
    - nsp: with probability 1/2, B is text of another document, from a random sentence on. The
      document is drawn with weight by its chunks, so random and real second segments come from
      documents of the same kind.
    """

    def _count(self) -> NDArray[np.int64]:
        chunks = -(-self._split.document_tokens // self._budget)
        if self._sentence == "nsp" and np.count_nonzero(chunks) == 1:
            fault = "objective nsp takes its random segments from another document"
            raise DataError(
                f"{fault}, and this split of the shards has only one; use sop, or separate "
                "the documents"
            )
        return chunks

    def _make_segments(self, examples: Numbers, u: Draws) -> list[Segments]:
        targets = self._draw_targets(u)
        documents, chunk, chunks = self._index.locate(examples)
        text = self._split.read(documents)

        # Integer division spreads the windows by at most `budget`, and the last window ends with
        # the document.
        anchors = np.where(
            chunks > 1, chunk * (text.tokens - self._budget) // np.maximum(chunks - 1, 1), 0
        )
        at_an_end = (chunks > 1) & ((chunk == 0) | (chunk == chunks - 1))
        forwards = np.where(at_an_end, chunk == 0, u[2] < 0.5)
        points = np.where(forwards, anchors, np.minimum(anchors + self._budget, text.tokens))
        near, clean = _move_outwards(text, points, ~forwards, self._budget // 2)
        points = np.where(
            forwards, np.minimum(near + targets, text.tokens), np.maximum(near - targets, 0)
        )
        far, also_clean = _move_outwards(text, points, forwards, self._budget)
        starts, ends = np.where(forwards, near, far), np.where(forwards, far, near)

        sentences_begun = text.count_starts(starts)
        # Sentences that start between the two ends.
        inside = text.count_starts(ends - 1) - sentences_begun
        paired = inside > 0
        cuts = np.where(
            paired,
            text.find_starts(sentences_begun + (u[3] * inside * paired).astype(np.int64) - ~paired),
            ends,
        )
        first, second = _Runs(text, starts, cuts), _Runs(text, cuts, ends)
        labels = np.full(len(examples), IGNORED)
        if self._sentence == "sop":
            labels = np.where(paired & clean & also_clean, u[4] < 0.5, IGNORED)
            first, second = (
                first.replace_where(labels == 1, second),
                second.replace_where(labels == 1, first),
            )
        elif self._sentence == "nsp":
            labels = np.where(paired, u[4] < 0.5, IGNORED)
            needs = np.maximum(targets - (cuts - starts), 1)
            second = self._draw_second(labels == 1, second, documents, needs, u[5], u[6])
        return _trim_pairs(first, second, targets, labels, paired, u[7], u[8])

    def _draw_second(
        self, chosen: Chosen, second: _Runs, documents: Numbers, needs: Numbers, u: Draws, v: Draws
    ) -> _Runs:
        """Return the `second` segments, of which the `chosen` ones are text of another document,
        from a random sentence on: as many tokens as needed, if there are so many, and the rest of
        the last sentence.
        """
        text = self._split.read(
            np.where(chosen, self._index.locate_elsewhere(documents, u)[0], documents)
        )
        # Only sentences with enough text after them are drawn, for a short second segment would
        # tell that it is random.
        choices = np.maximum(1, np.minimum(text.count_starts(text.tokens - needs), text.sentences))
        starts = text.find_starts((v * choices).astype(np.int64))
        ends, _ = _move_outwards(
            text,
            np.minimum(starts + needs, text.tokens),
            np.full(len(documents), True),
            self._budget,
        )
        return _Runs(text, second.starts, second.ends).replace_where(
            chosen, _Runs(text, starts, ends)
        )


class SentencePairs(SequenceFormat):
    """Two single sentences, consecutive or the second from another document (RoBERTa section 4.2).

    Every sentence that another one follows in its document is an example. Two sentences that exceed
    the budget are trimmed as segments are. `short_probability` has no effect. The sequences are
    short, so as many tokens need larger batches.

    - sop: the two are swapped with probability 1/2, before trimming.
    - nsp: with probability 1/2, the second is the second sentence of a random example of another
      document. So random and real second sentences follow one law. The first sentence of a
      document, often a heading, is never a second.
    """

    def _count(self) -> NDArray[np.int64]:
        pairs = np.maximum(self._split.document_sentences - 1, 0)
        documents, nsp = np.count_nonzero(pairs), self._sentence == "nsp"
        if documents < 1 + nsp:
            requirement = "with objective nsp needs 2 documents" if nsp else "needs 1 document"
            raise DataError(
                f"sequences.format=sentence-pair {requirement} of two sentences or more, and this "
                "split of the shards has "
                f"{documents}; set sequences.format=segment-pair, or prepare more text"
            )
        return pairs

    def _make_segments(self, examples: Numbers, u: Draws) -> list[Segments]:
        documents, numbers, _ = self._index.locate(examples)
        first, second = self._read(documents, numbers), self._read(documents, numbers + 1)
        labels = (
            np.full(len(examples), IGNORED)
            if self._sentence is None
            else (u[0] < 0.5).astype(np.int64)
        )
        if self._sentence == "sop":
            first, second = (
                first.replace_where(labels == 1, second),
                second.replace_where(labels == 1, first),
            )
        elif self._sentence == "nsp":
            others, numbers_elsewhere = self._index.locate_elsewhere(documents, u[1])
            chosen = labels == 1
            second = self._read(
                np.where(chosen, others, documents),
                np.where(chosen, numbers_elsewhere, numbers) + 1,
            )
        targets = np.full(len(examples), self._budget)
        return _trim_pairs(first, second, targets, labels, np.full(len(examples), True), u[2], u[3])

    def _read(self, documents: Numbers, sentences: Numbers) -> _Runs:
        text = self._split.read(documents)
        return _Runs(text, text.find_starts(sentences), text.find_starts(sentences + 1))


class _Runs(NamedTuple):
    """A run of tokens in each of B documents."""

    text: Documents
    starts: Numbers
    ends: Numbers

    def replace_where(self, chosen: Chosen, others: _Runs) -> _Runs:
        """Take the others where `chosen`. Both are runs of the same text."""
        return _Runs(
            self.text,
            np.where(chosen, others.starts, self.starts),
            np.where(chosen, others.ends, self.ends),
        )

    def trim(self, lengths: Numbers, u: Draws) -> list[Tokens]:
        """Return `lengths` (B,) tokens of each run, from a uniform position on."""
        starts = self.starts + (u * (self.ends - self.starts - lengths + 1)).astype(np.int64)
        return self.text.read_passages(starts, starts + lengths)


def _trim_pairs(
    first: _Runs,
    second: _Runs,
    targets: Numbers,
    labels: Numbers,
    paired: Chosen,
    u: Draws,
    v: Draws,
) -> list[Segments]:
    """Trim both segments to `targets` tokens together, and return the sequences.

    Where `paired` is False, the second segment is empty and is left out.
    """
    lengths = trim_lengths(first.ends - first.starts, second.ends - second.starts, targets)
    rows = zip(
        first.trim(lengths[0], u),
        second.trim(lengths[1], v),
        labels.tolist(),
        paired.tolist(),
        strict=True,
    )
    return [
        Segments((first_ids, second_ids) if pair else (first_ids,), label, pair)
        for first_ids, second_ids, label, pair in rows
    ]


def _move_outwards(
    text: Documents, points: Numbers, ahead: Chosen, limit: int
) -> tuple[Numbers, Chosen]:
    """Move each point to the start of its sentence or, where `ahead`, to the end of the sentence
    that holds the token before it. A point that would move by more than `limit` stays. Returns the
    points, and True for those at the edge of a sentence.
    """
    edges = text.find_starts(text.count_starts(points - ahead) - ~ahead)
    clean = abs(edges - points) <= limit
    return np.where(clean, edges, points), clean


# -------------------------------------------------------------------------------------- one segment


class DocumentSentences(SequenceFormat):
    """Whole sentences of one document, which is a text of its own, so the last is short (RoBERTa
    section 4.2; SpanBERT section 3.3).
    """

    two_segments = False

    def _count(self) -> NDArray[np.int64]:
        return -(-self._split.document_tokens // self._budget)

    def _make_segments(self, examples: Numbers, u: Draws) -> list[Segments]:
        documents, tile, tiles = self._index.locate(examples)
        text, forwards = self._split.read(documents), u[2] < 0.5
        points = np.where(forwards, tile, tile + 1) * text.tokens // tiles
        runs = _grow_passages(
            _SeparateTexts(text), points, self._budget // 2, self._draw_targets(u), forwards
        )
        return [Segments((tokens,), IGNORED, paired=False) for tokens in text.read_passages(*runs)]


class FullSentences(SequenceFormat):
    """Whole sentences across the ends of documents, so sequences are full (RoBERTa section 4.2).

    The text is the stream of all documents in stored order, with a separator between two. It counts
    as a token, but no sequence begins or ends with one. As in fairseq, sequences are shuffled and
    documents are not.
    """

    two_segments = False

    @property
    def examples(self) -> int:
        return -(-self._size // self._budget)

    @property
    def _size(self) -> int:
        """Tokens of the stream. The last document has no separator after it."""
        return self._index.total - 1

    def _count(self) -> NDArray[np.int64]:
        tokens = self._split.document_tokens
        return tokens + (tokens > 0)

    def _make_segments(self, examples: Numbers, u: Draws) -> list[Segments]:
        forwards = u[2] < 0.5
        points = np.where(forwards, examples, examples + 1) * self._size // self.examples
        # The edge of a passage is at most half a budget before its point, and its two ends are at
        # most a budget apart.
        low = np.maximum(points - 3 * self._budget // 2, 0)
        low -= self._index.locate(low)[1]
        # One more, for a passage may start after the separator that is at its point.
        high = np.minimum(points + self._budget + 1, self._size)
        text = _DocumentStream(self._split, self._index, self._size, low, high)
        starts, ends = _grow_passages(
            text, points, self._budget // 2, self._draw_targets(u), forwards
        )
        # A passage consists of a part of each of its documents.
        documents = self._index.locate(starts)[0]
        counts = self._index.locate(ends)[0] - documents + 1
        rows = np.arange(len(examples)).repeat(counts)
        documents = np.arange(len(rows)) - (counts.cumsum() - counts - documents)[rows]
        parts, begins = self._split.read(documents), self._index.count_before(documents)
        tokens = parts.read_passages(
            np.clip(starts[rows] - begins, 0, parts.tokens),
            np.clip(ends[rows] - begins, 0, parts.tokens),
        )
        parts_of_row: list[list[Tokens]] = [[] for _ in range(len(examples))]
        for row, ids in zip(rows.tolist(), tokens, strict=True):
            if len(ids):
                parts_of_row[row].append(ids)
        return [Segments(tuple(parts), IGNORED, paired=False) for parts in parts_of_row]


def _grow_passages(
    text: _SeparateTexts | _DocumentStream,
    points: Numbers,
    reach: int,
    targets: Numbers,
    forwards: Chosen,
) -> tuple[Numbers, Numbers]:
    """Grow a passage of at most `targets` (B,) tokens from the edge between two tiles at each
    point.

        sentences   |--1--|-----2-----|-3-|----4----|--5--|
        points      .              .              .      ceil(n / budget), spread evenly
        tiles       |==1==|=======2=======|=======3=======|  each starts at its point

    A tile starts with the sentence of its point, or at the point itself if that sentence starts
    more than half a budget before it. A sequence grows forwards from the start of its tile, or
    backwards from its end. A coin decides. It grows by whole sentences as long as they fit. Where
    it meets an end of the text with space left, it grows at its other end. A sentence that does not
    fit is left to others, unless more than half of the target would stay empty. Then it is cut, and
    so is a sentence that is longer than the budget (SpanBERT drops those).

    A tile may be larger than the budget, by at most a half. An epoch then misses the text at its
    other end: in prose of 24 tokens a sentence 4% of a stream at length 512, 17% at 64. The coin
    makes up for that over the epochs: each shows every token with a chance of one half or more,
    apart from short targets.

    Returns the starts and ends (B,).
    """

    def find_end(starts: Numbers) -> Numbers:
        """Return the last end of a sentence that fits, or a cut where that fills less than half."""
        ends = text.find_last_end(starts + targets)
        return np.where(
            2 * (ends - starts) >= targets, ends, np.minimum(starts + targets, text.size)
        )

    def find_start(ends: Numbers) -> Numbers:
        starts = text.find_first_start(ends - targets)
        return np.where(2 * (ends - starts) >= targets, starts, np.maximum(ends - targets, 0))

    before, after = text.find_edges(points, reach)
    ends, starts = find_end(after), find_start(before)
    after = np.where(ends == text.size, np.minimum(after, find_start(ends)), after)
    before = np.where(starts == 0, np.maximum(before, find_end(starts)), before)
    return np.where(forwards, after, starts), np.where(forwards, ends, before)


class _SeparateTexts:
    def __init__(self, documents: Documents) -> None:
        self._documents, self.size = documents, documents.tokens

    def find_edges(self, points: Numbers, reach: int) -> tuple[Numbers, Numbers]:
        """Return the end of the tile before each point, and the start of the next: the same."""
        number = np.minimum(self._documents.count_starts(points), self._documents.sentences) - 1
        starts = self._documents.find_starts(number)
        edges = np.where((points == self.size) | (points - starts > reach), points, starts)
        return edges, edges

    def find_last_end(self, points: Numbers) -> Numbers:
        """Return the last end of a sentence that is not beyond the point; 0 where there is none."""
        return self._documents.find_starts(
            self._documents.count_starts(np.minimum(points, self.size)) - 1
        )

    def find_first_start(self, points: Numbers) -> Numbers:
        """Return the first start of a sentence from the point on, or else the end of the text."""
        number = self._documents.count_starts(np.minimum(points, self.size) - 1)
        return self._documents.find_starts(np.minimum(number, self._documents.sentences))


class _DocumentStream:
    """The stream of all documents, B times. Sentences count if their document begins from `low` on,
    where a document begins, and before `high`.
    """

    def __init__(
        self, split: Split, index: CumulativeIndex, size: int, low: Numbers, high: Numbers
    ) -> None:
        self._split, self._index, self.size, self._low, self._high = split, index, size, low, high

    def find_edges(self, points: Numbers, reach: int) -> tuple[Numbers, Numbers]:
        text, inside, begin = self._read(points)
        number = np.minimum(text.count_starts(inside), text.sentences) - 1
        starts, ends = begin + text.find_starts(number), begin + text.find_starts(number + 1)
        near, on_separator = points - starts <= reach, points >= ends
        before = np.where(near, np.where((number == 0) & (begin > 0), begin - 1, starts), points)
        after = np.where(near, starts, points + on_separator)
        at_end = points == self.size
        return np.where(at_end, points, before), np.where(at_end, points, after)

    def find_last_end(self, points: Numbers) -> Numbers:
        text, inside, begin = self._read(np.minimum(points, self.size))
        number = text.count_starts(inside) - 1
        return np.where(
            (number < 1) | (begin >= self._high), begin - 1, begin + text.find_starts(number)
        )

    def find_first_start(self, points: Numbers) -> Numbers:
        text, inside, begin = self._read(np.maximum(points, self._low))
        number = text.count_starts(inside - 1)
        following = begin + text.tokens + 1
        following = np.where(following < self._high, following, self.size + 1)
        number_inside = np.minimum(number, text.sentences)
        return np.where(number < text.sentences, begin + text.find_starts(number_inside), following)

    def _read(self, points: Numbers) -> tuple[Documents, Numbers, Numbers]:
        documents, inside, _ = self._index.locate(points)
        return self._split.read(documents), inside, points - inside


SEQUENCE_FORMATS: dict[Format, type[SequenceFormat]] = {
    "segment-pair": SegmentPairs,
    "sentence-pair": SentencePairs,
    "full-sentences": FullSentences,
    "doc-sentences": DocumentSentences,
}
