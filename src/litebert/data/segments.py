"""Sentences to sequences: which tokens of which documents make up example i.

There are four formats (RoBERTa section 4.2): the two with two segments are here, those with one are
in `packing`. The official scripts walk each document from its start and write every sequence to
disk; here example i is found alone, so nothing is stored, a resumed run skips nothing, and cut
points differ from epoch to epoch. The price is that neighbouring sequences may share text, and that
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
    trimmed_lengths,
)
from litebert.errors import DataError

if TYPE_CHECKING:
    from litebert.data.shards import Documents


class SegmentPairs(SequenceFormat):
    """Two runs of sentences of one document, or the second from elsewhere (BERT appendix A.2;
    ALBERT section 3.1).

        sentences   |----1----|-2-|------3------|--4--|-----5-----|
        windows     [.. budget ..]
                            [.. budget ..]
                                             [.. budget ..]  ceil(n / budget) of them, spread evenly
        chunk                 |-2-|------3------|      grown back from the end of the second window
        A, B                  |-2-|                    cut at a sentence end, each in equal chance
                                  |------3------|

    The budget is the length less the special tokens. The chunk of a window grows from one end of
    it, moved outwards to the end of its sentence, by whole sentences until it holds its target. The
    first grows from the start of its window, the last from the end, the others from either with
    equal chance: so every token has its turn, and the two ends of a chunk follow one law, which
    keeps the lengths from telling the order. An end stays where it is, inside a sentence, if it
    would move by more than half a budget where the chunk starts to grow, or a whole one where it
    stops; with more, some text between the two chunks that a window may have would never be seen.

    The chunk is trimmed to its target one token at a time off the longer segment, as BERT does, but
    where BERT tosses a coin for each, front or back, and so hardly ever shows the ends of long
    sentences, here the number that goes from the front is uniform. A chunk without a sentence end
    inside is one segment, never labelled.

    - sop: A and B are swapped with probability 1/2, before trimming. A chunk that ends inside a
      sentence stays in order, unlabelled: the broken end would tell which segment it belongs to.
    - nsp: with probability 1/2 B is text from a random sentence of another document on, drawn with
      weight by its chunks, so that random and real second segments come from documents of the same
      kind.
    """

    def _counts(self) -> NDArray[np.int64]:
        chunks = -(-self._split.document_tokens // self._budget)
        if self._sentence == "nsp" and np.count_nonzero(chunks) == 1:
            need = "objective nsp takes its random segments from another document"
            raise DataError(
                f"{need}, and this split of the shards has only one; use sop, or separate "
                "the documents"
            )
        return chunks

    def _segments(self, examples: Numbers, u: Draws) -> list[Segments]:
        targets = self._targets(u)
        documents, chunk, chunks = self._index.locate(examples)
        text = self._split.read(documents)

        # Integer division spreads the windows by at most `budget`, and puts the last one at the
        # document's end.
        anchors = np.where(
            chunks > 1, chunk * (text.tokens - self._budget) // np.maximum(chunks - 1, 1), 0
        )
        at_an_end = (chunks > 1) & ((chunk == 0) | (chunk == chunks - 1))
        forwards = np.where(at_an_end, chunk == 0, u[2] < 0.5)
        places = np.where(forwards, anchors, np.minimum(anchors + self._budget, text.tokens))
        near, clean = _outwards(text, places, ~forwards, self._budget // 2)
        places = np.where(
            forwards, np.minimum(near + targets, text.tokens), np.maximum(near - targets, 0)
        )
        far, also_clean = _outwards(text, places, forwards, self._budget)
        starts, ends = np.where(forwards, near, far), np.where(forwards, far, near)

        begun = text.starts_until(starts)
        inside = text.starts_until(ends - 1) - begun  # the sentences that start between both
        paired = inside > 0
        cuts = np.where(
            paired, text.starts(begun + (u[3] * inside * paired).astype(np.int64) - ~paired), ends
        )
        first, second = _Runs(text, starts, cuts), _Runs(text, cuts, ends)
        labels = np.full(len(examples), IGNORED)
        if self._sentence == "sop":
            labels = np.where(paired & clean & also_clean, u[4] < 0.5, IGNORED)
            first, second = first.where(labels == 1, second), second.where(labels == 1, first)
        elif self._sentence == "nsp":
            labels = np.where(paired, u[4] < 0.5, IGNORED)
            needs = np.maximum(targets - (cuts - starts), 1)
            second = self._random(labels == 1, second, documents, needs, u[5], u[6])
        return _segments(first, second, targets, labels, paired, u[7], u[8])

    def _random(
        self, chosen: Chosen, second: _Runs, documents: Numbers, needs: Numbers, u: Draws, v: Draws
    ) -> _Runs:
        """The `second` segments; those `chosen` are from a random sentence on of another document,
        as many tokens as needed where there are so many, and more."""
        text = self._split.read(np.where(chosen, self._index.elsewhere(documents, u)[0], documents))
        # Sentences that leave enough text after them: a short second segment would tell that it is
        # random.
        choices = np.maximum(1, np.minimum(text.starts_until(text.tokens - needs), text.sentences))
        starts = text.starts((v * choices).astype(np.int64))
        ends, _ = _outwards(
            text,
            np.minimum(starts + needs, text.tokens),
            np.full(len(documents), True),
            self._budget,
        )
        return _Runs(text, second.starts, second.ends).where(chosen, _Runs(text, starts, ends))


class SentencePairs(SequenceFormat):
    """Two single sentences, one after the other or the second from elsewhere (RoBERTa section 4.2).

    There is an example for every sentence that another follows in its document. Two that exceed the
    budget are trimmed as segments are; `short_probability` is not read. The sequences are short: as
    many tokens need larger batches.

    - sop: the two are swapped with probability 1/2, before trimming.
    - nsp: with probability 1/2 the second is the second sentence of a random example of another
      document. So random and real second sentences follow one law; the first sentence of a
      document, often a heading, is never a second.
    """

    def _counts(self) -> NDArray[np.int64]:
        pairs = np.maximum(self._split.document_sentences - 1, 0)
        documents, nsp = np.count_nonzero(pairs), self._sentence == "nsp"
        if documents < 1 + nsp:
            need = "with objective nsp needs 2 documents" if nsp else "needs 1 document"
            raise DataError(
                f"sequences.format=sentence-pair {need} of two sentences or more, and this "
                "split of the shards has "
                f"{documents}; set sequences.format=segment-pair, or prepare more text"
            )
        return pairs

    def _segments(self, examples: Numbers, u: Draws) -> list[Segments]:
        documents, numbers, _ = self._index.locate(examples)
        first, second = self._read(documents, numbers), self._read(documents, numbers + 1)
        labels = (
            np.full(len(examples), IGNORED)
            if self._sentence is None
            else (u[0] < 0.5).astype(np.int64)
        )
        if self._sentence == "sop":
            first, second = first.where(labels == 1, second), second.where(labels == 1, first)
        elif self._sentence == "nsp":
            others, places = self._index.elsewhere(documents, u[1])
            chosen = labels == 1
            second = self._read(
                np.where(chosen, others, documents), np.where(chosen, places, numbers) + 1
            )
        targets = np.full(len(examples), self._budget)
        return _segments(first, second, targets, labels, np.full(len(examples), True), u[2], u[3])

    def _read(self, documents: Numbers, sentences: Numbers) -> _Runs:
        text = self._split.read(documents)
        return _Runs(text, text.starts(sentences), text.starts(sentences + 1))


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

    def where(self, chosen: Chosen, others: _Runs) -> _Runs:
        """The others where `chosen`, in the same text."""
        return _Runs(
            self.text,
            np.where(chosen, others.starts, self.starts),
            np.where(chosen, others.ends, self.ends),
        )

    def trimmed(self, lengths: Numbers, u: Draws) -> list[Tokens]:
        """So many tokens of each, from a uniform place on."""
        starts = self.starts + (u * (self.ends - self.starts - lengths + 1)).astype(np.int64)
        return self.text.passages(starts, starts + lengths)


def _segments(
    first: _Runs,
    second: _Runs,
    targets: Numbers,
    labels: Numbers,
    paired: Chosen,
    u: Draws,
    v: Draws,
) -> list[Segments]:
    """Both segments in `targets` tokens; those not paired have an empty second one, which is left
    out.
    """
    lengths = trimmed_lengths(first.ends - first.starts, second.ends - second.starts, targets)
    rows = zip(
        first.trimmed(lengths[0], u),
        second.trimmed(lengths[1], v),
        labels.tolist(),
        paired.tolist(),
        strict=True,
    )
    return [Segments((one, two) if pair else (one,), label, pair) for one, two, label, pair in rows]


def _outwards(
    text: Documents, places: Numbers, ahead: Chosen, limit: int
) -> tuple[Numbers, Chosen]:
    """Places moved to the start of the sentence that holds them, or `ahead` to the end of the one
    that holds the token before; and whether they were: those that would move by more than `limit`
    stay."""
    edges = text.starts(text.starts_until(places - ahead) - ~ahead)
    clean = abs(edges - places) <= limit
    return np.where(clean, edges, places), clean
