"""Sequences made of sentences: which tokens of which documents make up example i.

There are four formats (RoBERTa section 4.2). The two with two segments are here, those with one are
in `packing`. The official scripts walk each document from its start and write every sequence to
disk. Here example i is found alone, so nothing is stored, a resumed run skips nothing, and cut
points differ from epoch to epoch. The price is that neighboring sequences may share text, and that
an epoch may leave some out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from litebert.config import Format
from litebert.data import IGNORED
from litebert.data.packing import DocumentSentences, FullSentences
from litebert.data.passages import (
    Chosen,
    Draws,
    Numbers,
    Segments,
    SequenceFormat,
    Tokens,
    trim_lengths,
)
from litebert.errors import DataError

if TYPE_CHECKING:
    from litebert.data.shards import Documents


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
        """Return the `second` segments. The `chosen` ones are text of another document.

        That text begins at a random sentence. It has as many tokens as needed, if there are so
        many, and the rest of its last sentence.
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


SEQUENCE_FORMATS: dict[Format, type[SequenceFormat]] = {
    "segment-pair": SegmentPairs,
    "sentence-pair": SentencePairs,
    "full-sentences": FullSentences,
    "doc-sentences": DocumentSentences,
}


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
    """Move each point to the start of its sentence.

    Where `ahead`, move it to the end of the sentence that holds the token before it. A point that
    would move by more than `limit` stays. Returns the points, and True for those at the edge of a
    sentence.
    """
    edges = text.find_starts(text.count_starts(points - ahead) - ~ahead)
    clean = abs(edges - points) <= limit
    return np.where(clean, edges, points), clean
