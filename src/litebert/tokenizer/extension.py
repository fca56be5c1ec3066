"""More pieces for a tokenizer that is kept: those that save the most tokens on a text.

A word of the text is the pieces that the tokenizer cuts it into. Joining adjacent pieces into one
saves tokens, and a piece for a character that the tokenizer does not know counts as one saved token
each time. The best piece is added, the words that hold it are joined, and what the others would
save is counted again: a greedy choice. In byte-level BPE a piece is made of two others, so there
the choice is the training of BPE gone on with.

Old pieces keep their ids and scores, so text without new pieces is cut as before. A new piece of a
unigram model gets the logarithm of its frequency, and at least so much that it beats the pieces it
was joined from. WordPiece takes the longest piece that matches, wherever it stands, so there a new
piece may also cut another word less well.
"""

from __future__ import annotations

import heapq
import itertools
import json
import math
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from litebert.errors import DataError
from litebert.progress import task
from litebert.tokenizer.engines import Engine, SentencePieceEngine, TokenizersEngine, model_pb2
from litebert.tokenizer.spelling import Speller
from litebert.tokenizer.tokenizer import Tokenizer

_LONGEST_RUN = 16
"""Pieces joined at once."""
_LONGEST_PIECE = 32
"""Characters of a new piece."""
_MOST_WORDS = 100_000
"""Different words that are looked at, the most frequent ones."""


@dataclass(frozen=True)
class Added:
    """A new piece."""

    piece: str
    saved: int
    """Tokens that it saved on the text when it was chosen, unknown characters that it made known
    among them.
    """


@dataclass(frozen=True)
class Extension:
    """A tokenizer with new pieces behind its old ones, in the order in which they were chosen."""

    tokenizer: Tokenizer
    added: tuple[Added, ...]


_Key = tuple[str, ...]
"""What is joined: a piece's text, or in BPE the two pieces."""


def extend(tokenizer: Tokenizer, lines: Iterable[str], size: int) -> Extension:
    """Add the `size` pieces that save the most tokens on the lines; fewer where no more save any.

    Raises:
        DataError: `size` is not positive, or nothing can be saved.
    """
    if size < 1:
        raise DataError(f"the number of new pieces is {size}; give at least 1")
    speller = Speller(tokenizer)
    with task("choosing pieces"):
        counts = Counter(word for line in lines for word in speller.words(line))
        words = _Words(speller, dict(counts.most_common(_MOST_WORDS)))
        chosen = words.choose(size)
    if not chosen:
        raise DataError(
            "no new piece would save a token on this text; give more text, or keep the tokenizer"
        )
    added = tuple(Added(speller.joined(key), saved) for key, saved in chosen)
    if tokenizer.kind == "bpe":
        engine: Engine = _more_merges(tokenizer.engine, [key for key, _ in chosen])
    elif tokenizer.kind == "wordpiece":
        engine = _more_words(tokenizer.engine, [one.piece for one in added])
    else:
        engine = _more_scored(tokenizer.engine, words.frequencies([one.piece for one in added]))
    return Extension(Tokenizer(engine), added)


class _Run(NamedTuple):
    """Adjacent pieces of a word that one piece could replace."""

    key: _Key
    saved: int
    start: int
    stop: int


class _Words:
    """The words of a text as pieces, and what joining each run of pieces would save."""

    def __init__(self, speller: Speller, counts: dict[str, int]) -> None:
        self._speller, self._counts, self._pairs = speller, counts, speller.kind == "bpe"
        self._known = {*speller.ids}
        self._kinds: dict[str, str | None] = {}
        self._pieces = {word: speller.cut(word) for word in counts}
        self._found = {word: self._runs(pieces) for word, pieces in self._pieces.items()}
        self._gains: Counter[_Key] = Counter()
        self._places: defaultdict[_Key, set[str]] = defaultdict(set)
        for word in counts:
            self._count(word, 1)
        self._heap = [(-gain, key) for key, gain in self._gains.items()]
        heapq.heapify(self._heap)

    def choose(self, size: int) -> list[tuple[_Key, int]]:
        """The runs to join, best first, and what each saves; a piece that saves one token at most
        is left out.
        """
        chosen: list[tuple[_Key, int]] = []
        while self._heap and len(chosen) < size:
            negative, key = heapq.heappop(self._heap)
            gain = self._gains[key]
            if (
                -negative != gain
            ):  # counted before another run was joined, since when it can only have become less
                if gain > 0:
                    heapq.heappush(self._heap, (-gain, key))
                continue
            if gain < 2:
                break
            piece = self._speller.joined(key)
            if piece in self._known:
                continue
            chosen.append((key, -negative))
            self._join(key, piece)
        return chosen

    def frequencies(self, pieces: Sequence[str]) -> dict[str, float]:
        """The natural logarithm of each piece's share of the tokens."""
        counts: Counter[str] = Counter()
        for word, count in self._counts.items():
            for piece in self._pieces[word]:
                counts[piece] += count
        total = counts.total()
        return {piece: math.log(max(1, counts[piece]) / total) for piece in pieces}

    def _join(self, key: _Key, piece: str) -> None:
        words = [
            word
            for word in self._places.pop(key)
            if any(run.key == key for run in self._found[word])
        ]
        for word in words:
            self._count(word, -1)
        self._known.add(piece)
        new: set[_Key] = set()
        for word in words:
            self._pieces[word] = self._joined(word, key)
            self._found[word] = self._runs(self._pieces[word])
            new.update(self._count(word, 1))
        for one in new:  # in BPE, pairs with the new piece
            heapq.heappush(self._heap, (-self._gains[one], one))

    def _count(self, word: str, sign: int) -> list[_Key]:
        """Count, or with -1 forget, what the runs of a word would save; the keys that were never
        met before.
        """
        times, new = sign * self._counts[word], []
        for run in self._found[word]:
            if run.key not in self._gains:
                new.append(run.key)
            self._gains[run.key] += run.saved * times
            if sign > 0:
                self._places[run.key].add(word)
        return new

    def _joined(self, word: str, key: _Key) -> list[str]:
        pieces, result, end = self._pieces[word], list[str](), 0
        found = [(run.start, -run.stop) for run in self._found[word] if run.key == key]
        for start, stop in sorted(found):
            if start >= end:
                result += [*pieces[end:start], self._speller.joined(pieces[start:-stop])]
                end = -stop
        return result + pieces[end:]

    def _runs(self, pieces: list[str]) -> list[_Run]:
        """Every run of pieces that one piece could replace."""
        if self._pairs:
            return [_Run(pair, 1, i, i + 2) for i, pair in enumerate(itertools.pairwise(pieces))]
        runs = []
        unknown, kinds = (
            [piece not in self._known for piece in pieces],
            [self._kind(piece) for piece in pieces],
        )
        for start, kind in enumerate(kinds):
            if kind == "mixed":
                continue
            text, saved = pieces[start], int(unknown[start])
            if saved:
                runs.append(_Run((text,), 1, start, start + 1))
            for stop in range(start + 1, min(len(pieces), start + _LONGEST_RUN)):
                # A unigram model may have the mark of a word as a piece, which stands before any
                # kind.
                kind = kind or kinds[stop]
                if kinds[stop] not in (kind, None) or len(text) > _LONGEST_PIECE:
                    break
                text, saved = (
                    text + self._speller.continued(pieces[stop]),
                    saved + 1 + unknown[stop],
                )
                runs.append(_Run((text,), saved, start, stop + 1))
        return runs

    def _kind(self, piece: str) -> str | None:
        """What the characters of a piece are, mixed where they differ: no piece joins letters with
        digits or signs.
        """
        if piece not in self._kinds:
            names = {"L": "letters", "M": "letters", "N": "digits"}
            kinds = {
                names.get(unicodedata.category(char)[0], "signs")
                for char in self._speller.body(piece)
            }
            self._kinds[piece] = "mixed" if len(kinds) > 1 else next(iter(kinds), None)
        return self._kinds[piece]


# ------------------------------------------------------------------------------------------ engines


def _more_words(engine: Engine, pieces: Sequence[str]) -> Engine:
    spec = _spec(engine)
    vocabulary = spec["model"]["vocab"]
    vocabulary.update({piece: i for i, piece in enumerate(pieces, len(engine.pieces))})
    return _rebuilt(spec)


def _more_merges(engine: Engine, pairs: Sequence[_Key]) -> Engine:
    spec = _spec(engine)
    model = spec["model"]
    model["vocab"].update({"".join(pair): i for i, pair in enumerate(pairs, len(engine.pieces))})
    as_text = bool(model["merges"]) and isinstance(model["merges"][0], str)
    model["merges"] += [" ".join(pair) if as_text else list(pair) for pair in pairs]
    return _rebuilt(spec)


def _more_scored(engine: Engine, frequencies: dict[str, float]) -> Engine:
    if isinstance(engine, SentencePieceEngine):
        proto = model_pb2.ModelProto.FromString(engine.files()["spiece.model"])
        normal = [one for one in proto.pieces if one.type in (one.NORMAL, one.USER_DEFINED)]
        for piece, score in _scored(frequencies, {one.piece: one.score for one in normal}):
            proto.pieces.add(
                piece=piece, score=score, type=model_pb2.ModelProto.SentencePiece.NORMAL
            )
        proto.trainer_spec.vocab_size = len(proto.pieces)
        return SentencePieceEngine(
            proto.SerializeToString(deterministic=True), "the extended tokenizer"
        )
    spec = _spec(engine)
    vocabulary = spec["model"]["vocab"]
    known = dict(vocabulary)
    # Ids are places in this list, so tokens that were added behind it get their place in it first.
    vocabulary += [[piece, 0.0] for piece in engine.pieces[len(vocabulary) :]]
    vocabulary += [[piece, score] for piece, score in _scored(frequencies, known)]
    return _rebuilt(spec)


def _scored(frequencies: dict[str, float], scores: dict[str, float]) -> Iterator[tuple[str, float]]:
    """Each new piece with its score: that of its frequency, or more where the pieces it is made of
    would win.
    """
    known, margin = dict(scores), 0.1
    least = min(scores.values())
    for piece in sorted(frequencies, key=len):
        # The best cut of the piece into shorter ones: best[i] of its first i characters.
        best = [0.0, *[-math.inf] * len(piece)]
        for end in range(1, len(piece) + 1):
            cuts = (best[i] + known[piece[i:end]] for i in range(end) if piece[i:end] in known)
            best[end] = max(cuts, default=-math.inf)
        whole = best[-1] + margin if best[-1] > -math.inf else least
        known[piece] = max(frequencies[piece], whole)
    for piece in frequencies:
        yield piece, known[piece]


def _spec(engine: Engine) -> dict[str, Any]:
    """A copy of what its tokenizer.json says."""
    spec: dict[str, Any] = json.loads(json.dumps(engine.portable()))
    return spec


def _rebuilt(spec: dict[str, Any]) -> Engine:
    return TokenizersEngine(json.dumps(spec), "the extended tokenizer")
