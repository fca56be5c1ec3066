"""Sentences to sequences: which tokens of which document stand in example i.

A format is an object with `examples`, the number of sequences in an epoch, and a call that gives the segments of
any examples from their random keys. Pairs of segments are the one format here (BERT appendix A.2 and
create_pretraining_data.py; ALBERT section 3.1). The official scripts walk each document from its start and write
every sequence to disk; here example i is found alone, from one number per document, so nothing is baked, a resumed
run skips nothing, and cut points differ from epoch to epoch. The price is that neighbouring chunks may share text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from litebert.config import SequenceConfig
from litebert.data.draws import Keys, uniforms
from litebert.errors import DataError

if TYPE_CHECKING:
    from litebert.data.shards import Split

Tokens = NDArray[np.integer]
_CHOICES = 1  # the stream of draws

UNLABELLED = -100
"""The sentence label that losses ignore."""


class Segments(NamedTuple):
    """The text of one sequence, special tokens aside."""

    first: Tokens
    second: Tokens | None
    label: int
    """0 in order (sop) or next (nsp), 1 swapped or random, -100 not labelled."""


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


class Pairs:
    """Two segments of one document, or a second one from elsewhere: [CLS] A [SEP] B [SEP].

    A document of n tokens has ceil(n / budget) chunks, budget = length - 3, one for each of as many windows of
    `budget` tokens, spread evenly from its first token to its last. A chunk grows from one end of its window, moved
    outwards to the end of its sentence, by whole sentences until it holds its target: the budget, or with
    `short_probability` a uniform number in [2, budget]. The first window grows from its start, the last from its
    end, the others from either with equal chance: so every token has its turn, and the two ends of a chunk follow one
    law, which keeps the lengths from telling the order. An end stays where it is, inside a sentence, if it would move
    by more than half a budget where the chunk starts to grow, or a whole one where it stops growing; with more, some
    text between the two chunks that a window may have would never be seen.

    The chunk is cut at a uniform choice of its sentence ends into A and B, and trimmed to its target one token at a
    time off the longer, as BERT does. BERT tosses a coin for each of these tokens, front or back, and so hardly ever
    shows the ends of long sentences; here the number that goes from the front is uniform. A chunk without a sentence
    end inside is one segment, never labelled.

    - sop: A and B are swapped with probability 1/2, before trimming. A chunk that ends inside a sentence stays in
      order, unlabelled: the broken end would tell which segment it belongs to.
    - nsp: with probability 1/2 B is text from a random sentence of another document on, drawn with weight by its
      chunks, so that random and real second segments come from documents of the same kind.
    """

    def __init__(self, split: Split, sequences: SequenceConfig, sentence: Literal["sop", "nsp"] | None) -> None:
        self._split = split
        self._short = sequences.short_probability
        self._sentence = sentence
        self._budget = sequences.length - 3
        chunks = -(-split.document_tokens.astype(np.int64) // self._budget)
        self._ends = np.cumsum(chunks)  # of the documents, in examples
        self.examples = int(self._ends[-1]) if len(chunks) else 0
        if not self.examples:
            raise DataError("this split of the shards holds no token; prepare more text, or more of it for this split")
        if sentence == "nsp" and np.count_nonzero(chunks) < 2:
            raise DataError(
                "objective nsp takes its random segments from another document, and this split of the shards has one "
                "document only; use sop, or separate the documents of the corpus"
            )

    def __call__(self, examples: NDArray[np.int64], keys: Keys) -> list[Segments]:
        """The segments of `examples` (B,), drawn from `keys` (B,)."""
        draws = uniforms(keys, 9, _CHOICES).tolist()
        return [self._segments(*row) for row in zip(examples.tolist(), draws, strict=True)]

    def _segments(self, example: int, u: list[float]) -> Segments:
        target = self._budget
        if u[0] < self._short:
            target = 2 + int(u[1] * (self._budget - 1))
        document, chunk, chunks = self._locate(example)
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
            return Segments(_trim(tokens[start:end], target, u[7]), None, UNLABELLED)
        cut = int(cuts[int(u[3] * len(cuts))])
        first, second = tokens[start:cut], tokens[cut:end]
        label = UNLABELLED
        if self._sentence == "sop" and clean_start and clean_end:
            label = int(u[4] < 0.5)
            if label:
                first, second = second, first
        elif self._sentence == "nsp":
            label = int(u[4] < 0.5)
            if label:
                second = self._random(document, max(target - len(first), 1), u[5], u[6])
        lengths = trimmed_lengths(len(first), len(second), target)
        return Segments(_trim(first, lengths[0], u[7]), _trim(second, lengths[1], u[8]), label)

    def _locate(self, example: int) -> tuple[int, int, int]:
        """The document of an example, its number within it, and how many the document has."""
        document = int(self._ends.searchsorted(example, "right"))
        before = int(self._ends[document - 1]) if document else 0
        return document, example - before, int(self._ends[document]) - before

    def _random(self, document: int, need: int, u: float, v: float) -> Tokens:
        """At least `need` tokens, where there are so many, from a random sentence on of another document."""
        before = int(self._ends[document - 1]) if document else 0
        chunks = int(self._ends[document]) - before
        example = int(u * (self.examples - chunks))
        other, _, _ = self._locate(example if example < before else example + chunks)
        text = _Document(*self._split.sentences_of(other))
        tokens, starts = text.tokens, text.starts
        # Sentences that leave enough text after them: a short second segment would tell that it is random.
        choices = max(1, int(starts[:-1].searchsorted(len(tokens) - need, "right")))
        start = int(starts[int(v * choices)])
        end, _ = text.forward(min(start + need, len(tokens)), self._budget)
        return tokens[start:end]


def trimmed_lengths(first: int, second: int, target: int) -> tuple[int, int]:
    """The lengths after dropping tokens one by one off the longer, off the second where they are equal."""
    excess = max(0, first + second - target)
    level = min(excess, abs(first - second))
    rest = excess - level
    if first > second:
        first -= level
    else:
        second -= level
    return first - rest // 2, second - (rest + 1) // 2


def _trim(tokens: Tokens, length: int, u: float) -> Tokens:
    """At most `length` tokens, from a uniform place on."""
    front = int(u * (max(0, len(tokens) - length) + 1))
    return tokens[front : front + length]
