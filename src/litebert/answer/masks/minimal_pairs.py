"""Minimal pairs: how often a model finds the grammatical one of two sentences likelier, by the
pseudo-log-likelihood, as in BLiMP (Warstadt et al. 2020, arXiv:1912.00582).
"""

from __future__ import annotations

import logging
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from litebert.answer.model import Model, load
from litebert.answer.predicting import not_finite
from litebert.base import progress
from litebert.base.errors import ConfigError, DataError
from litebert.text.files import list_files
from litebert.text.lines import COMPRESSIONS, find_suffix
from litebert.text.records import SUFFIXES, Notes, read_records, require_text

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
    """Each token masked with the later ones of its word; None if the tokenizer knows no words."""


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
    """The scores of a model on minimal pairs."""

    overall: MeanScore
    phenomena: tuple[MeanScore, ...]
    """The mean of each phenomenon, sorted by name."""
    paradigms: tuple[ParadigmScore, ...]
    """The score of each paradigm, in the order of the files."""
    in_parts: int
    """Sentences that are longer than the model reads, and were scored in parts."""

    def rows(self) -> list[tuple[str, ...]]:
        """Return the rows of a table: phenomenon, paradigms, pairs, the accuracy of both forms."""
        return [
            (
                mean.name,
                f"{mean.paradigms:,}",
                f"{mean.pairs:,}",
                *(
                    "-" if form is None else f"{form.accuracy:.1%} ± {form.standard_error:.1%}"
                    for form in (mean.plain, mean.within_word)
                ),
            )
            for mean in (*self.phenomena, self.overall)
        ]


COLUMNS = ("phenomenon", "paradigms", "pairs", "accuracy", "within words")
"""The columns of `PairScores.rows`."""


def evaluate_blimp(
    model: str | Path, blimp: str | Path, *, max_pairs: int | None = None, device: str = "auto"
) -> PairScores:
    """Score a model with a head for masked tokens on BLiMP, or on other pairs of a good and a bad
    sentence.

    All is computed in float32, in both forms of `MaskReader.log_likelihoods`. A sentence longer
    than the model reads is scored in parts.

    Args:
        model: a run folder, a litebert model folder or a Hugging Face folder.
        blimp: a file with `sentence_good` and `sentence_bad`, or a folder of JSON Lines. `UID`,
            `linguistics_term` and `field` may be there.
        max_pairs: most pairs to score of each paradigm, the first ones; all by default.

    Raises:
        ModelError: it cannot be opened, or has no trained head for masked tokens.
        DataError: there is no such file, or it is malformed; the message names the line.
        ConfigError: a size or a device that cannot be.
    """
    paradigms = read_paradigms(blimp, max_pairs)  # first, for it is quick and may find a mistake
    return score_paradigms(load(model, device=device), paradigms)


# -------------------------------------------------------------------------------------------- files


class Pair(NamedTuple):
    """Two sentences and their location, `file:line`."""

    good: str
    bad: str
    location: str


@dataclass(frozen=True)
class Paradigm:
    """Pairs of one kind; the fields are those of `ParadigmScore`."""

    name: str
    file: str
    phenomenon: str
    field: str
    pairs: list[Pair]


def read_paradigms(source: str | Path, max_pairs: int | None = None) -> list[Paradigm]:
    """Read the paradigms of files, with up to `max_pairs` pairs each; all lines are checked."""
    if max_pairs is not None and max_pairs < 1:
        raise ConfigError(f"max_pairs is {max_pairs}; it must be at least 1")
    paradigms: dict[tuple[str, ...], Paradigm] = {}
    for file in list_files([source], _list_json_lines):
        notes, path = Notes(), Path(file)
        stem = (path.with_suffix("") if path.suffix.lower() in COMPRESSIONS else path).stem
        for line, (good, bad, *about), _ in read_records(
            file, SENTENCES, notes, optional=("UID", "linguistics_term", "field")
        ):
            location = f"{file}:{line}"
            for name, sentence in zip(SENTENCES, (good, bad), strict=True):
                if not require_text(sentence, name, location).strip():
                    raise DataError(
                        f"{location}: {name} is blank; write a sentence, or leave the line out"
                    )
            uid, term, kind = ("" if value is None else str(value) for value in about)
            key = (file, uid or stem, term or uid or stem, kind)
            paradigm = paradigms.setdefault(key, Paradigm(key[1], file, *key[2:], []))
            if max_pairs is None or len(paradigm.pairs) < max_pairs:
                paradigm.pairs.append(Pair(good, bad, location))
        for note in notes.notes():
            log.info(f"{file}: {note}")
    return list(paradigms.values())


def _list_json_lines(folder: Path) -> list[Path]:
    files = [
        path
        for path in sorted(folder.rglob("*"))
        if SUFFIXES.get(find_suffix(path)) == "jsonl"
        and path.is_file()
        and not any(part[0] == "." for part in path.relative_to(folder).parts)
    ]
    if not files:
        raise DataError(
            f"{folder} holds no file ending in .jsonl (or .jsonl.gz, .xz, .zst); give a folder or "
            f"a file of lines with {' and '.join(SENTENCES)}"
        )
    return files


# ------------------------------------------------------------------------------------------- scores


def score_paradigms(model: Model, paradigms: Sequence[Paradigm]) -> PairScores:
    """Score an opened model; errors as in `evaluate_blimp`."""
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
        sentences_of_pairs = [text for pair in pairs for text in (pair.good, pair.bad)]
        encoded = reader.tokenizer.encode(sentences_of_pairs)
        empty = next((i for i, ids in enumerate(encoded) if not ids), None)
        if empty is not None:
            raise DataError(
                f"{pairs[empty // 2].location}: {SENTENCES[empty % 2]} has no token that the "
                "tokenizer of the model can read; write a sentence, or leave the line out"
            )

        def sentences() -> Iterator[Sequence[int]]:
            for ids in encoded:
                yield ids
                bar.advance(0.5)

        values = reader.log_likelihoods(sentences(), within_word=True)
    sums = [tuple(float(form.sum(dtype="float64")) for form in forms) for forms in values]
    if not all(math.isfinite(value) for forms in sums for value in forms):
        raise not_finite(model.path)
    in_parts = sum(len(ids) > reader.length - 2 for ids in encoded)
    if in_parts:
        log.warning(
            f"sentences longer than the {reader.length} tokens that {model.path} reads were scored "
            f"in parts ({in_parts:,})"
        )
    scored, start = [], 0
    for paradigm in paradigms:
        part = sums[start : (start := start + 2 * len(paradigm.pairs))]
        plain, within = (
            _binomial(
                [good[form] > bad[form] for good, bad in zip(part[::2], part[1::2], strict=True)]
            )
            for form in range(2)
        )
        scored.append(
            ParadigmScore(
                paradigm.name,
                paradigm.file,
                paradigm.phenomenon,
                paradigm.field,
                len(paradigm.pairs),
                plain,
                within if knows_words else None,
            )
        )
    by_phenomenon: defaultdict[str, list[ParadigmScore]] = defaultdict(list)
    for score in scored:
        by_phenomenon[score.phenomenon].append(score)
    phenomena = tuple(_mean(name, by_phenomenon[name]) for name in sorted(by_phenomenon))
    return PairScores(_mean("mean of the paradigms", scored), phenomena, tuple(scored), in_parts)


def _binomial(right: Sequence[bool]) -> Accuracy:
    share = sum(right) / len(right)
    return Accuracy(share, math.sqrt(share * (1 - share) / len(right)))


def _mean(name: str, scored: Sequence[ParadigmScore]) -> MeanScore:
    def mean(values: Sequence[Accuracy]) -> Accuracy:
        error = math.sqrt(sum(value.standard_error**2 for value in values)) / len(values)
        return Accuracy(sum(value.accuracy for value in values) / len(values), error)

    within = [score.within_word for score in scored if score.within_word is not None]
    return MeanScore(
        name,
        len(scored),
        sum(score.pairs for score in scored),
        mean([score.plain for score in scored]),
        mean(within) if within else None,
    )
