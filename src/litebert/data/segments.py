"""Sentences to sequences: which tokens of which documents make up example i.

There are four formats (RoBERTa section 4.2): the two with two segments are here, those with one are in `packing`. The
official scripts walk each document from its start and write every sequence to disk; here example i is found alone, so
nothing is stored, a resumed run skips nothing, and cut points differ from epoch to epoch. The price is that
neighbouring sequences may share text, and that an epoch may leave some out.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from litebert.config import Format
from litebert.data import IGNORED
from litebert.data.packing import PACKING, DocumentSentences, FullSentences, FullSentencesOfVersion1
from litebert.data.passages import Segments, SequenceFormat, Tokens, trimmed_lengths
from litebert.errors import DataError


class _Document(NamedTuple):
    tokens: Tokens
    starts: NDArray[np.int64]  # of the sentences, and the end

    def back(self, place: int, limit: int) -> tuple[int, bool]:
        """The start of the sentence that holds `place`, and True; `place` and False where it is over `limit` away."""
        start = int(self.starts[self.starts.searchsorted(place, "right") - 1])
        return (start, True) if place - start <= limit else (place, False)

    def forward(self, place: int, limit: int) -> tuple[int, bool]:
        """The end of the sentence that holds the token before `place`, in the same way."""
        end = int(self.starts[self.starts.searchsorted(place, "left")])
        return (end, True) if end - place <= limit else (place, False)


class SegmentPairs(SequenceFormat):
    """Two runs of sentences of one document, or the second from elsewhere (BERT appendix A.2; ALBERT section 3.1).

        sentences   |----1----|-2-|------3------|--4--|-----5-----|
        windows     [.. budget ..]
                            [.. budget ..]
                                             [.. budget ..]          ceil(n / budget) of them, spread evenly
        chunk                 |-2-|------3------|                    grown back from the end of the second window
        A, B                  |-2-|                                  cut at a sentence end, each in equal chance
                                  |------3------|

    The budget is the length less the special tokens. The chunk of a window grows from one end of it, moved outwards to
    the end of its sentence, by whole sentences until it holds its target. The first grows from the start of its window,
    the last from the end, the others from either with equal chance: so every token has its turn, and the two ends of a
    chunk follow one law, which keeps the lengths from telling the order. An end stays where it is, inside a sentence,
    if it would move by more than half a budget where the chunk starts to grow, or a whole one where it stops; with
    more, some text between the two chunks that a window may have would never be seen.

    The chunk is trimmed to its target one token at a time off the longer segment, as BERT does, but where BERT tosses a
    coin for each, front or back, and so hardly ever shows the ends of long sentences, here the number that goes from
    the front is uniform. A chunk without a sentence end inside is one segment, never labelled.

    - sop: A and B are swapped with probability 1/2, before trimming. A chunk that ends inside a sentence stays in
      order, unlabelled: the broken end would tell which segment it belongs to.
    - nsp: with probability 1/2 B is text from a random sentence of another document on, drawn with weight by its
      chunks, so that random and real second segments come from documents of the same kind.
    """

    def _counts(self) -> NDArray[np.int64]:
        chunks = -(-self._split.document_tokens // self._budget)
        if self._sentence == "nsp" and np.count_nonzero(chunks) == 1:
            need = "objective nsp takes its random segments from another document"
            raise DataError(f"{need}, and this split of the shards has only one; use sop, or separate the documents")
        return chunks

    def _segments(self, example: int, u: list[float]) -> Segments:
        target = self._target(u)
        document, chunk, chunks = self._index.locate(example)
        text = _Document(*self._split.sentences_of(document))
        tokens, starts = text.tokens, text.starts

        # Integer division spreads the windows by at most `budget`, and puts the last one at the document's end.
        anchor = chunk * (len(tokens) - self._budget) // (chunks - 1) if chunks > 1 else 0
        forwards = chunk == 0 if chunks > 1 and chunk in (0, chunks - 1) else u[2] < 0.5
        if forwards:
            start, clean_start = text.back(anchor, self._budget // 2)
            end, clean_end = text.forward(min(start + target, len(tokens)), self._budget)
        else:
            end, clean_end = text.forward(min(anchor + self._budget, len(tokens)), self._budget // 2)
            start, clean_start = text.back(max(end - target, 0), self._budget)

        cuts = starts[starts.searchsorted(start, "right") : starts.searchsorted(end, "left")]
        if not len(cuts):
            return Segments((_trim(tokens[start:end], target, u[7]),), IGNORED, paired=False)
        cut = int(cuts[int(u[3] * len(cuts))])
        first, second = tokens[start:cut], tokens[cut:end]
        label = IGNORED
        if self._sentence == "sop" and clean_start and clean_end:
            label = int(u[4] < 0.5)
            if label:
                first, second = second, first
        elif self._sentence == "nsp":
            label = int(u[4] < 0.5)
            if label:
                second = self._random(document, max(target - len(first), 1), u[5], u[6])
        return Segments(_trimmed(first, second, target, u[7], u[8]), label, paired=True)

    def _random(self, document: int, need: int, u: float, v: float) -> Tokens:
        """At least `need` tokens, where there are so many, from a random sentence on of another document."""
        other, _ = self._index.elsewhere(document, u)
        text = _Document(*self._split.sentences_of(other))
        tokens, starts = text.tokens, text.starts
        # Sentences that leave enough text after them: a short second segment would tell that it is random.
        choices = max(1, int(starts[:-1].searchsorted(len(tokens) - need, "right")))
        start = int(starts[int(v * choices)])
        end, _ = text.forward(min(start + need, len(tokens)), self._budget)
        return tokens[start:end]


class SentencePairs(SequenceFormat):
    """Two single sentences, one after the other or the second from elsewhere (RoBERTa section 4.2).

    There is an example for every sentence that another follows in its document. Two that exceed the budget are trimmed
    as segments are; `short_probability` is not read. The sequences are short: as many tokens need larger batches.

    - sop: the two are swapped with probability 1/2, before trimming.
    - nsp: with probability 1/2 the second is the second sentence of a random example of another document. So random
      and real second sentences follow one law; the first sentence of a document, often a heading, is never a second.
    """

    def _counts(self) -> NDArray[np.int64]:
        pairs = np.maximum(self._split.document_sentences - 1, 0)
        documents, nsp = np.count_nonzero(pairs), self._sentence == "nsp"
        if documents < 1 + nsp:
            need = "with objective nsp needs 2 documents" if nsp else "needs 1 document"
            raise DataError(
                f"sequences.format=sentence-pair {need} of two sentences or more, and this split of the shards has "
                f"{documents}; set sequences.format=segment-pair, or prepare more text"
            )
        return pairs

    def _segments(self, example: int, u: list[float]) -> Segments:
        document, number, _ = self._index.locate(example)
        first, second = self._read(document, number), self._read(document, number + 1)
        label = IGNORED if self._sentence is None else int(u[0] < 0.5)
        if label == 1 and self._sentence == "sop":
            first, second = second, first
        elif label == 1:
            other, place = self._index.elsewhere(document, u[1])
            second = self._read(other, place + 1)
        return Segments(_trimmed(first, second, self._budget, u[2], u[3]), label, paired=True)

    def _read(self, document: int, sentence: int) -> Tokens:
        tokens, starts = self._split.sentences_of(document)
        return tokens[starts[sentence] : starts[sentence + 1]]


SEQUENCE_FORMATS: dict[Format, type[SequenceFormat]] = {
    "segment-pair": SegmentPairs,
    "sentence-pair": SentencePairs,
    "full-sentences": FullSentences,
    "doc-sentences": DocumentSentences,
}


def sequence_format(name: Format, packing: int = PACKING) -> type[SequenceFormat]:
    """The format of a name, as the version `packing` had it."""
    if packing == 1 and name == "full-sentences":
        return FullSentencesOfVersion1
    return SEQUENCE_FORMATS[name]


def _trimmed(first: Tokens, second: Tokens, target: int, u: float, v: float) -> tuple[Tokens, Tokens]:
    """The two segments in `target` tokens."""
    lengths = trimmed_lengths(len(first), len(second), target)
    return _trim(first, lengths[0], u), _trim(second, lengths[1], v)


def _trim(tokens: Tokens, length: int, u: float) -> Tokens:
    """At most `length` tokens, from a uniform place on."""
    front = int(u * (max(0, len(tokens) - length) + 1))
    return tokens[front : front + length]
