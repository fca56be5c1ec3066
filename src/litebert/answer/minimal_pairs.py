"""Minimal pairs: how often a model finds the grammatical one of two sentences likelier, as in
BLiMP.

BLiMP (Warstadt et al. 2020, arXiv:1912.00582) has 67 paradigms of 1,000 pairs each, in files of
JSON Lines. No label is learned: a pair is right where the pseudo-log-likelihood of its good
sentence is strictly higher.
"""

from __future__ import annotations

import logging
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from litebert import progress
from litebert.answer.predicting import not_finite
from litebert.answer.predictor import Model, load
from litebert.errors import ConfigError, DataError
from litebert.text.files import list_files
from litebert.text.lines import COMPRESSIONS, find_suffix
from litebert.text.records import SUFFIXES, Notes, read_records, require_text
from litebert.tokenizer import Tokenizer

log = logging.getLogger("litebert")

SENTENCES = ("sentence_good", "sentence_bad")


@dataclass(frozen=True)
class Accuracy:
    """A share of right pairs."""

    accuracy: float
    standard_error: float
    """Binomial over the pairs of a paradigm; of a mean, propagated from those of its paradigms."""


@dataclass(frozen=True)
class ParadigmScore:
    """The pairs of one file; of one `UID` in it, where its lines have any."""

    name: str
    """The `UID`, else the name of the file."""
    file: str
    phenomenon: str
    """The `linguistics_term`, else `name`."""
    field: str
    """Such as syntax; empty where the lines have none."""
    pairs: int
    plain: Accuracy
    """Each token masked alone."""
    within_word: Accuracy | None
    """Each token masked with the later pieces of its word; None where the tokenizer does not know
    words.
    """


@dataclass(frozen=True)
class MeanScore:
    """The mean over paradigms, each of the same weight, as BLiMP reports it."""

    name: str
    paradigms: int
    pairs: int
    plain: Accuracy
    within_word: Accuracy | None


@dataclass(frozen=True)
class PairScores:
    """What a model knows of minimal pairs."""

    overall: MeanScore
    phenomena: tuple[MeanScore, ...]
    """By name."""
    paradigms: tuple[ParadigmScore, ...]
    """In the order of the files."""
    in_parts: int
    """Sentences that are longer than the model reads, and were scored in parts."""

    def rows(self) -> list[tuple[str, ...]]:
        """As a table: phenomenon, paradigms, pairs, and the accuracy of both forms."""
        return [
            (
                one.name,
                f"{one.paradigms:,}",
                f"{one.pairs:,}",
                _shown(one.plain),
                _shown(one.within_word),
            )
            for one in (*self.phenomena, self.overall)
        ]


COLUMNS = ("phenomenon", "paradigms", "pairs", "accuracy", "within words")
"""Of `PairScores.rows`."""


def evaluate_blimp(
    model: str | Path, blimp: str | Path, *, pairs: int | None = None, device: str = "auto"
) -> PairScores:
    """Score a model with a head for masked tokens on BLiMP, or on other pairs of a good and a bad
    sentence.

    Computed in float32, in both forms of `MaskReader.log_likelihoods`. The pieces of a longer
    sentence are masked in parts that the model can read.

    Args:
        model: a run folder, a litebert model folder or a Hugging Face folder.
        blimp: a file with `sentence_good` and `sentence_bad`, or a folder of JSON Lines. `UID`,
            `linguistics_term` and `field` may be there.
        pairs: most pairs to score of each paradigm, the first ones; all by default.

    Raises:
        ModelError: it cannot be opened, or has no trained head for masked tokens.
        DataError: there is no such file, or it is malformed; the message names the line.
        ConfigError: a size or a device that cannot be.
    """
    paradigms = read_paradigms(blimp, pairs)  # first, for it is quick and may find a mistake
    return score_paradigms(load(model, device=device), paradigms)


# -------------------------------------------------------------------------------------------- files


class Pair(NamedTuple):
    """Two sentences and where they stand, as `file:line`."""

    good: str
    bad: str
    place: str


@dataclass(frozen=True)
class Paradigm:
    """Pairs of one kind; the fields are those of `ParadigmScore`."""

    name: str
    file: str
    phenomenon: str
    field: str
    pairs: list[Pair]


def read_paradigms(source: str | Path, pairs: int | None = None) -> list[Paradigm]:
    """The paradigms of a file, a folder or a pattern, with up to so many `pairs` each; all lines
    are checked.

    Raises:
        DataError: as in `evaluate_blimp`.
    """
    if pairs is not None and pairs < 1:
        raise ConfigError(f"pairs is {pairs}; it must be at least 1")
    found: dict[tuple[str, ...], Paradigm] = {}
    for file in list_files([source], _inside):
        notes, stem = Notes(), _stem(Path(file))
        for line, (good, bad, *about) in read_records(
            file, SENTENCES, notes, optional=("UID", "linguistics_term", "field")
        ):
            place = f"{file}:{line}"
            for name, sentence in zip(SENTENCES, (good, bad), strict=True):
                if not require_text(sentence, name, place).strip():
                    raise DataError(
                        f"{place}: {name} is blank; write a sentence, or leave the line out"
                    )
            uid, term, kind = ("" if value is None else str(value) for value in about)
            key = (file, uid or stem, term or uid or stem, kind)
            one = found.setdefault(key, Paradigm(key[1], file, *key[2:], []))
            if pairs is None or len(one.pairs) < pairs:
                one.pairs.append(Pair(good, bad, place))
        for note in notes.notes():
            log.info(f"{file}: {note}")
    return list(found.values())


def _inside(folder: Path) -> list[Path]:
    """The JSON Lines of a folder and of the folders in it, but what is hidden."""
    there = [
        path for path in sorted(folder.rglob("*")) if SUFFIXES.get(find_suffix(path)) == "jsonl"
    ]
    shown = [
        path
        for path in there
        if path.is_file() and not any(p[0] == "." for p in path.relative_to(folder).parts)
    ]
    if not shown:
        raise DataError(
            f"{folder} holds no file ending in .jsonl (or .jsonl.gz, .xz, .zst); give a "
            "folder or a file "
            f"of lines with {' and '.join(SENTENCES)}"
        )
    return shown


def _stem(path: Path) -> str:
    """The name of a file without the suffixes of its format and its compression."""
    return (path.with_suffix("") if path.suffix.lower() in COMPRESSIONS else path).stem


# ------------------------------------------------------------------------------------------- scores


def score_paradigms(model: Model, paradigms: Sequence[Paradigm]) -> PairScores:
    """The scores of an opened model; errors as in `evaluate_blimp`."""
    reader = model.mask_reader
    if model.config.generator is not None:
        log.info(
            f"{model.path} was trained with a generator, whose head for masked tokens is "
            "the one that is scored"
        )
    knows_words = reader.tokenizer.word_starts is not None
    if not knows_words:
        log.info(
            f"the tokenizer of {model.path} does not mark words, so only single tokens are masked"
        )
    pairs = [pair for paradigm in paradigms for pair in paradigm.pairs]
    with progress.task("scoring pairs", len(pairs), "pairs") as bar:
        encoded = _encoded(pairs, reader.tokenizer)

        def sentences() -> Iterator[Sequence[int]]:
            for ids in encoded:
                yield ids
                bar.advance(0.5)

        found = reader.log_likelihoods(sentences(), within_word=True)
    sums = [tuple(float(form.sum(dtype="float64")) for form in forms) for forms in found]
    if not all(math.isfinite(value) for forms in sums for value in forms):
        raise not_finite(model.path)
    in_parts = sum(len(ids) > reader.length - 2 for ids in encoded)
    if in_parts:
        log.warning(
            f"sentences longer than the {reader.length} tokens that {model.path} reads "
            "were scored in parts "
            f"({in_parts:,})"
        )
    scored, start = [], 0
    for one in paradigms:
        own = sums[start : (start := start + 2 * len(one.pairs))]
        plain, within = (
            _binomial(
                [good[form] > bad[form] for good, bad in zip(own[::2], own[1::2], strict=True)]
            )
            for form in range(2)
        )
        scored.append(
            ParadigmScore(
                one.name,
                one.file,
                one.phenomenon,
                one.field,
                len(one.pairs),
                plain,
                within if knows_words else None,
            )
        )
    by_phenomenon: defaultdict[str, list[ParadigmScore]] = defaultdict(list)
    for score in scored:
        by_phenomenon[score.phenomenon].append(score)
    phenomena = tuple(_mean(name, by_phenomenon[name]) for name in sorted(by_phenomenon))
    return PairScores(_mean("mean of the paradigms", scored), phenomena, tuple(scored), in_parts)


def _encoded(pairs: Sequence[Pair], tokenizer: Tokenizer) -> list[list[int]]:
    """The ids of the good and the bad sentence of each pair in turn."""
    encoded = tokenizer.encode([sentence for pair in pairs for sentence in (pair.good, pair.bad)])
    empty = next((i for i, ids in enumerate(encoded) if not ids), None)
    if empty is not None:
        raise DataError(
            f"{pairs[empty // 2].place}: {SENTENCES[empty % 2]} has no piece that the "
            "tokenizer of the "
            "model can read; write a sentence, or leave the line out"
        )
    return encoded


def _binomial(right: Sequence[bool]) -> Accuracy:
    share = sum(right) / len(right)
    return Accuracy(share, math.sqrt(share * (1 - share) / len(right)))


def _mean(name: str, scored: Sequence[ParadigmScore]) -> MeanScore:
    def mean(values: Sequence[Accuracy]) -> Accuracy:
        error = math.sqrt(sum(value.standard_error**2 for value in values)) / len(values)
        return Accuracy(sum(value.accuracy for value in values) / len(values), error)

    within = [one.within_word for one in scored if one.within_word is not None]
    return MeanScore(
        name,
        len(scored),
        sum(one.pairs for one in scored),
        mean([one.plain for one in scored]),
        mean(within) if within else None,
    )


def _shown(score: Accuracy | None) -> str:
    return "-" if score is None else f"{score.accuracy:.1%} ± {score.standard_error:.1%}"
