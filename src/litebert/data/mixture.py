"""Several sets of shards that a run reads by weight, such as books:2 web:1.

A weight is a number of sequences, so the shares are exact (`Turns` in batches.py). The weights and
the fingerprints of the sets, in their order, are the identity of a mixture.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

import numpy as np

from litebert.base.errors import DataError
from litebert.data.cooccurrence import count_tokens
from litebert.data.segments import MixedSplit
from litebert.data.shards import Shards
from litebert.remote.names import shorten
from litebert.tokenizer import Tokenizer

LONGEST_ROUND = 100_000
"""Most sequences after which the turns of the sets repeat."""

DataSource: TypeAlias = str | Path | Mapping[str, float]

_HOST = re.compile(r"[a-z][a-z0-9+.-]*://[^/]*", re.IGNORECASE)
_WEIGHTED = re.compile(r"(.+):([+-]?(?:\d{1,9}(?:\.\d{0,9})?|\.\d{1,9}))", re.DOTALL)


def parse_weights(words: Sequence[str]) -> str | dict[str, float]:
    """Read FOLDER or FOLDER:WEIGHT, once or several times; a weight is 1 by default."""
    weights: dict[str, float] = {}
    for word in words:
        match = None if os.path.exists(word) else _WEIGHTED.fullmatch(word)
        if match and _HOST.fullmatch(match[1]):
            match = None  # what follows is a port
        before, colon, text = word.rpartition(":")
        if match is None and colon and os.path.isdir(before) and not os.path.exists(word):
            raise DataError(
                f"the weight of {before} is '{text}'; give a plain number of at most nine digits, "
                f"such as {before}:2"
            )
        folder, weight = (match[1], float(match[2])) if match else (word, 1.0)
        if folder in weights:
            raise DataError(f"{shorten(folder)} is named twice; give it once, with one weight")
        weights[folder] = weight
    if not weights:
        raise DataError("no data is named; give a folder written by litebert prepare")
    only = next(iter(weights))
    return only if len(weights) == 1 and words[0] == only else weights


def reduce_weights(weights: Mapping[str, float]) -> dict[str, int]:
    fractions = {}
    for folder, weight in weights.items():
        if not isinstance(weight, (int, float, Fraction)) or not 0 < weight < math.inf:
            shown = f"{weight:g}" if isinstance(weight, (int, float)) else repr(weight)
            raise DataError(
                f"the weight of {shorten(folder)} is {shown}; give a number above 0, or leave "
                "the set out"
            )
        fractions[folder] = Fraction(str(weight))
    scale = math.lcm(*(value.denominator for value in fractions.values()))
    whole = {folder: int(value * scale) for folder, value in fractions.items()}
    factor = math.gcd(*whole.values())
    reduced = {folder: value // factor for folder, value in whole.items()}
    if sum(reduced.values()) > LONGEST_ROUND:
        raise DataError(
            f"the weights repeat only after {sum(reduced.values()):,} sequences, and "
            f"{LONGEST_ROUND:,} are the most; give them with fewer digits"
        )
    return reduced


@dataclass(frozen=True)
class Mixture:
    """Several sets that are read by weight; it has what a run reads of `Shards`."""

    sets: tuple[Shards, ...]
    weights: tuple[int, ...]

    @property
    def name(self) -> str:
        pairs = zip(self.sets, self.weights, strict=True)
        return " ".join(shlex.quote(f"{shards.name}:{weight}") for shards, weight in pairs)

    @property
    def location(self) -> dict[str, float]:
        pairs = zip(self.sets, self.weights, strict=True)
        return {shards.location: weight for shards, weight in pairs}

    @property
    def path(self) -> Path:
        """The folder of the first set, which has the tokenizer."""
        return self.sets[0].path

    @property
    def tokenizer(self) -> Tokenizer:
        return self.sets[0].tokenizer

    @property
    def shares(self) -> tuple[float, ...]:
        return tuple(weight / sum(self.weights) for weight in self.weights)

    @property
    def fingerprint(self) -> str:
        identity = [[shards.fingerprint for shards in self.sets], self.weights]
        return hashlib.sha256(json.dumps(identity).encode()).hexdigest()

    @cached_property
    def train(self) -> MixedSplit:
        return MixedSplit(tuple(shards.train for shards in self.sets), self.weights)

    @cached_property
    def heldout(self) -> MixedSplit:
        return MixedSplit(tuple(shards.heldout for shards in self.sets), self.weights)

    @cached_property
    def unigram_entropy(self) -> float:
        """Nats per token: the loss of a model that knows only how frequent each token is."""
        counts = count_tokens(self.train, self.tokenizer.vocab_size)
        shares = counts[counts > 0] / counts.sum()
        return float(-(shares * np.log(shares)).sum()) + 0.0


TrainingData: TypeAlias = Shards | Mixture


def list_sets(data: TrainingData) -> tuple[Shards, ...]:
    return data.sets if isinstance(data, Mixture) else (data,)


def open_data(source: DataSource, verify: bool = False) -> TrainingData:
    """Open a set, or several by weight. `verify` also reads every byte for its checksum."""
    if isinstance(source, (str, Path)):
        return Shards.open(source, verify)
    if not source or not isinstance(source, Mapping):
        raise DataError(f"the data is {source!r}; give folders written by litebert prepare")
    weights = reduce_weights({str(folder): weight for folder, weight in source.items()})
    sets = tuple(Shards.open(folder, verify) for folder in weights)
    if len(sets) == 1:
        return sets[0]
    first = sets[0]
    by_fingerprint: dict[str, Shards] = {}
    for shards in sets:
        if shards.tokenizer.fingerprint != first.tokenizer.fingerprint:
            raise DataError(
                f"{shards.name} was not prepared with the tokenizer of {first.name}; to read both, "
                f"prepare it again with --tokenizer {first.path / 'tokenizer'}"
            )
        other = by_fingerprint.setdefault(shards.fingerprint, shards)
        if other is not shards:
            raise DataError(
                f"{shards.name} and {other.name} hold the same set; name it once, with one weight"
            )
    return Mixture(sets, tuple(weights.values()))
