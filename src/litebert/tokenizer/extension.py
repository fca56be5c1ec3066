"""New tokens for an existing tokenizer: those that save the most tokens on a text.

Each word of the text is split into the old tokens. Joining adjacent tokens into one saves tokens. A
token for a character that the tokenizer does not know counts as one saved token each time. The
choice is greedy: add the best token, join it in the words that hold it, and count again what the
others would save. In byte-level BPE a token is made of two others, so the choice continues the
training of BPE.

Old tokens keep their ids and scores, so text without new tokens is split as before. A new token of
a unigram model gets the logarithm of its frequency as its score. It gets at least enough to beat
the tokens that it was joined from. WordPiece takes the longest token that matches at any position,
so there a new token may also split another word less well.
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

from litebert.base.errors import DataError
from litebert.base.progress import task
from litebert.tokenizer.engines import (
    Engine,
    SentencePieceEngine,
    TokenizersEngine,
    import_model_types,
)
from litebert.tokenizer.kinds import ByteBPE, WordPiece
from litebert.tokenizer.spelling import Speller
from litebert.tokenizer.tokenizer import Tokenizer

_LONGEST_RUN = 16
_LONGEST_TOKEN = 32
_MOST_WORDS = 100_000


@dataclass(frozen=True)
class Added:
    token: str
    saved: int
    """Tokens that it saved on the text when it was chosen. Unknown characters that it spells count
    too.
    """


@dataclass(frozen=True)
class Extension:
    """A tokenizer with new tokens after its old ones, in the order in which they were chosen."""

    tokenizer: Tokenizer
    added: tuple[Added, ...]


_Key = tuple[str, ...]
"""The token that a run is joined to: its text, or in BPE the two tokens."""


def extend(tokenizer: Tokenizer, lines: Iterable[str], size: int) -> Extension:
    """Add the `size` tokens that save most on the lines, or fewer if no more save any."""
    if size < 1:
        raise DataError(f"the number of new tokens is {size}; give at least 1")
    speller = Speller(tokenizer)
    with task("choosing tokens"):
        counts = Counter(word for line in lines for word in speller.split_words(line))
        words = _Words(speller, dict(counts.most_common(_MOST_WORDS)))
        chosen = words.choose(size)
    if not chosen:
        raise DataError(
            "no new token would save a token on this text; give more text, or keep the tokenizer"
        )
    added = tuple(Added(speller.join(key), saved) for key, saved in chosen)
    new_tokens = [new.token for new in added]
    if isinstance(tokenizer.engine.kind, ByteBPE):
        engine: Engine = _add_merges(tokenizer.engine, [key for key, _ in chosen])
    elif isinstance(tokenizer.engine.kind, WordPiece):
        engine = _add_words(tokenizer.engine, new_tokens)
    else:
        engine = _add_unigrams(tokenizer.engine, words.compute_log_frequencies(new_tokens))
    return Extension(Tokenizer(engine), added)


class _Run(NamedTuple):
    """Adjacent tokens of a word that a single token could replace."""

    key: _Key
    saved: int
    start: int
    stop: int


class _Words:
    """The words of a text as tokens, and the tokens that joining each run would save."""

    def __init__(self, speller: Speller, counts: dict[str, int]) -> None:
        self._speller, self._counts, self._pairs = speller, counts, speller.kind.is_bytes
        self._vocabulary = {*speller.ids}
        self._classes: dict[str, str | None] = {}
        self._tokens = {word: speller.split_word(word) for word in counts}
        self._runs_of_word = {
            word: self._find_runs(tokens) for word, tokens in self._tokens.items()
        }
        self._gains: Counter[_Key] = Counter()
        self._words_with: defaultdict[_Key, set[str]] = defaultdict(set)
        for word in counts:
            self._count(word, 1)
        self._heap = [(-gain, key) for key, gain in self._gains.items()]
        heapq.heapify(self._heap)

    def choose(self, size: int) -> list[tuple[_Key, int]]:
        """Choose the runs to join, best first, and return the tokens that each saves.

        A run that saves a single token at most is left out.
        """
        chosen: list[tuple[_Key, int]] = []
        while self._heap and len(chosen) < size:
            negative, key = heapq.heappop(self._heap)
            gain = self._gains[key]
            # The gain was counted before another run was joined, and can only have fallen since.
            if -negative != gain:
                if gain > 0:
                    heapq.heappush(self._heap, (-gain, key))
                continue
            if gain < 2:
                break
            token = self._speller.join(key)
            if token in self._vocabulary:
                continue
            chosen.append((key, -negative))
            self._join(key, token)
        return chosen

    def compute_log_frequencies(self, tokens: Sequence[str]) -> dict[str, float]:
        counts: Counter[str] = Counter()
        for word, count in self._counts.items():
            for token in self._tokens[word]:
                counts[token] += count
        total = counts.total()
        return {token: math.log(max(1, counts[token]) / total) for token in tokens}

    def _join(self, key: _Key, token: str) -> None:
        words = [
            word
            for word in self._words_with.pop(key)
            if any(run.key == key for run in self._runs_of_word[word])
        ]
        for word in words:
            self._count(word, -1)
        self._vocabulary.add(token)
        new: set[_Key] = set()
        for word in words:
            self._tokens[word] = self._join_word(word, key)
            self._runs_of_word[word] = self._find_runs(self._tokens[word])
            new.update(self._count(word, 1))
        # In BPE there are new pairs, with the new token.
        for pair in new:
            heapq.heappush(self._heap, (-self._gains[pair], pair))

    def _count(self, word: str, sign: int) -> list[_Key]:
        """Count what the runs of a word would save, or with `sign` -1 subtract it.

        Returns the keys that were not counted before.
        """
        times, new = sign * self._counts[word], []
        for run in self._runs_of_word[word]:
            if run.key not in self._gains:
                new.append(run.key)
            self._gains[run.key] += run.saved * times
            if sign > 0:
                self._words_with[run.key].add(word)
        return new

    def _join_word(self, word: str, key: _Key) -> list[str]:
        tokens, result, end = self._tokens[word], list[str](), 0
        spans = [(run.start, -run.stop) for run in self._runs_of_word[word] if run.key == key]
        for start, stop in sorted(spans):
            if start >= end:
                result += [*tokens[end:start], self._speller.join(tokens[start:-stop])]
                end = -stop
        return result + tokens[end:]

    def _find_runs(self, tokens: list[str]) -> list[_Run]:
        if self._pairs:
            return [_Run(pair, 1, i, i + 2) for i, pair in enumerate(itertools.pairwise(tokens))]
        runs = []
        unknown = [token not in self._vocabulary for token in tokens]
        classes = [self._classify(token) for token in tokens]
        for start, word_class in enumerate(classes):
            if word_class == "mixed":
                continue
            text, saved = tokens[start], int(unknown[start])
            if saved:
                runs.append(_Run((text,), 1, start, start + 1))
            for stop in range(start + 1, min(len(tokens), start + _LONGEST_RUN)):
                # The mark of a word may be a token of a unigram model. Any class may follow it.
                word_class = word_class or classes[stop]
                if classes[stop] not in (word_class, None) or len(text) > _LONGEST_TOKEN:
                    break
                text += self._speller.kind.strip_continuation(tokens[stop])
                saved += 1 + unknown[stop]
                runs.append(_Run((text,), saved, start, stop + 1))
        return runs

    def _classify(self, token: str) -> str | None:
        """Return the class of a token's characters: letters, digits, signs, or mixed.

        No new token joins characters of different classes. The mark of a word alone has no class.
        """
        if token not in self._classes:
            names = {"L": "letters", "M": "letters", "N": "digits"}
            kinds = {
                names.get(unicodedata.category(char)[0], "signs")
                for char in self._speller.kind.strip_mark(token)
            }
            self._classes[token] = "mixed" if len(kinds) > 1 else next(iter(kinds), None)
        return self._classes[token]


# ------------------------------------------------------------------------------------------ engines


def _add_words(engine: Engine, tokens: Sequence[str]) -> Engine:
    spec = _copy_spec(engine)
    vocabulary = spec["model"]["vocab"]
    vocabulary.update({token: i for i, token in enumerate(tokens, len(engine.tokens))})
    return _build_engine(spec)


def _add_merges(engine: Engine, pairs: Sequence[_Key]) -> Engine:
    spec = _copy_spec(engine)
    model = spec["model"]
    model["vocab"].update({"".join(pair): i for i, pair in enumerate(pairs, len(engine.tokens))})
    as_text = bool(model["merges"]) and isinstance(model["merges"][0], str)
    model["merges"] += [" ".join(pair) if as_text else list(pair) for pair in pairs]
    return _build_engine(spec)


def _add_unigrams(engine: Engine, frequencies: dict[str, float]) -> Engine:
    if isinstance(engine, SentencePieceEngine):
        model_pb2 = import_model_types()
        proto = model_pb2.ModelProto.FromString(engine.make_files()["spiece.model"])
        scores = {
            piece.piece: piece.score
            for piece in proto.pieces
            if piece.type in (piece.NORMAL, piece.USER_DEFINED)
        }
        for token, score in _score_tokens(frequencies, scores):
            proto.pieces.add(
                piece=token, score=score, type=model_pb2.ModelProto.SentencePiece.NORMAL
            )
        proto.trainer_spec.vocab_size = len(proto.pieces)
        return SentencePieceEngine(
            proto.SerializeToString(deterministic=True), "the extended tokenizer"
        )
    spec = _copy_spec(engine)
    vocabulary = spec["model"]["vocab"]
    scores = dict(vocabulary)
    # Ids are indices of this list, so added tokens, whose ids follow it, are put into it first.
    vocabulary += [[token, 0.0] for token in engine.tokens[len(vocabulary) :]]
    vocabulary += [[token, score] for token, score in _score_tokens(frequencies, scores)]
    return _build_engine(spec)


def _score_tokens(
    frequencies: dict[str, float], scores: dict[str, float]
) -> Iterator[tuple[str, float]]:
    """Yield each new token with its score.

    The score is the token's log frequency, or more where the tokens that it is made of would win.
    """
    all_scores, margin = dict(scores), 0.1
    least = min(scores.values())
    for token in sorted(frequencies, key=len):
        # The best cut of the token into shorter ones: best[i] of its first i characters.
        best = [0.0, *[-math.inf] * len(token)]
        for end in range(1, len(token) + 1):
            cuts = (
                best[i] + all_scores[token[i:end]] for i in range(end) if token[i:end] in all_scores
            )
            best[end] = max(cuts, default=-math.inf)
        needed = best[-1] + margin if best[-1] > -math.inf else least
        all_scores[token] = max(frequencies[token], needed)
    for token in frequencies:
        yield token, all_scores[token]


def _copy_spec(engine: Engine) -> dict[str, Any]:
    spec: dict[str, Any] = json.loads(json.dumps(engine.to_portable()))
    return spec


def _build_engine(spec: dict[str, Any]) -> Engine:
    return TokenizersEngine(json.dumps(spec), "the extended tokenizer")
