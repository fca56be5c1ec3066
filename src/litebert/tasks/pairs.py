"""Pairs of texts that are alike, for sentence vectors: texts that belong together, pairs with
scores, or texts alone.

What the columns of the training files hold decides how it learns (finetuning/similarity.py). A dev
part with scores is scored by the correlation of cosines with them. Without scores, the second of
each pair is looked for among all; and without pairs, the second half of each text is looked for,
given the first.
"""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from litebert.errors import ConfigError, DataError, ModelError, nearest
from litebert.finetuning.items import EncodedRow, Item, single_rows
from litebert.finetuning.similarity import TEMPERATURE, Known, Similarity
from litebert.interop.sentence_modules import DENSE, read_dense, write_dense
from litebert.tasks.glue import Glue
from litebert.tasks.parts import Layout, Source, given_files, layout_of, named
from litebert.tasks.scores import scores
from litebert.tasks.texts import Example, TextTask, columns
from litebert.text.records import SUFFIXES, Notes, Record, format_value, read_records
from litebert.tokenizer import Tokenizer

if TYPE_CHECKING:
    from litebert.finetuning.scoring import Logits
    from litebert.model.heads import Pooling

log = logging.getLogger("litebert")

POOLINGS: tuple[Pooling, ...] = ("mean", "cls")
_FOUND = ("mrr", "recall_at_1")
"""Of pairs without scores: the mean of 1/rank of the right second among all, and how often that
rank is 1.
"""
_BLOCK = 1024
_WORDS: Mapping[Known, str] = {
    "scores": "pairs with scores",
    "positives": "pairs that belong together",
    "texts": "texts without pairs, each against itself",
}


class Pairs(TextTask):
    """Pairs of texts from files with named columns, or texts alone.

    Args:
        train, dev, test: their files, as `Table` takes them, and plain text with a text on each
            line.
        text, pair, label: names of the columns, or their numbers from 0: the two texts, and how
            alike they are. With `label` None all pairs belong together; with `pair` None, texts are
            learned from alone. Where a dev part is given, the training files may lack the columns
            of `pair` and `label`.
        pooling: what makes a vector of the states of a text: their mean, or the state of [CLS]
            (cls).
        temperature: what cosines are divided by in the losses.
        whiten: whether the vectors are whitened when training has ended; by default where texts are
            learned from alone.
        heldout, seed, layout: as in `Table`.

    Raises:
        ConfigError: options that contradict each other.
        DataError: a training file that is missing or malformed; the message names the line.
    """

    name = "pairs"
    suffixes = tuple(suffix for suffix, form in SUFFIXES.items() if form != "conll")
    takes: ClassVar[tuple[str, ...]] = (
        "dev",
        "test",
        "text",
        "pair",
        "label",
        "heldout",
        "input_format",
        "header",
        "encoding",
        "pooling",
        "temperature",
        "whiten",
    )
    pair = True
    output: Similarity
    _map: str | None = None
    """The folder of the map, in that of a model."""

    def __init__(
        self,
        train: Source | None = None,
        dev: Source | None = None,
        test: Source | None = None,
        *,
        text: str = "text",
        pair: str | None = None,
        label: str | None = None,
        pooling: Pooling = "mean",
        temperature: float = TEMPERATURE,
        whiten: bool | None = None,
        heldout: float = 0.1,
        seed: int = 0,
        layout: Layout | None = None,
    ) -> None:
        if pooling not in POOLINGS:
            raise ConfigError(f"pooling is '{pooling}'; {nearest(pooling, POOLINGS)}")
        if not 0 < temperature < math.inf:
            raise ConfigError(f"temperature is {temperature}; it must be a number above 0")
        if label is not None and (pair is None or label in (text, pair)):
            wrong = "there is no second column" if pair is None else "it is a column of texts"
            raise ConfigError(
                f"label is '{label}', but {wrong}; name the texts with text and pair, and "
                "their score "
                "with label"
            )
        self._texts, self._label = columns(text, pair), label
        known: Known = "texts" if pair is None else "positives" if label is None else "scores"
        by = _FOUND if label is None else Similarity.scores
        files = {"train": train, "dev": dev, "test": test}
        super().__init__(Similarity(), by, files=files, heldout=heldout, seed=seed, layout=layout)
        if train is not None and dev is not None:
            known = self._survey()
        whiten = known == "texts" if whiten is None else whiten
        self.output = Similarity(
            pooling=pooling, known=known, temperature=temperature, whiten=whiten
        )

    @classmethod
    def from_data(cls, name: str, data: Source, **options: Any) -> Pairs:
        """Of a folder's files, or of training files with `dev` and `test` beside them."""
        options |= given_files(data, options)
        if options.keys() & {
            "input_format",
            "header",
            "encoding",
        }:  # a task of one's own may have no layout
            options["layout"] = layout_of(options)
        return cls(**options)

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Pairs:
        """With the model's pooling and columns."""
        task = super().from_settings(settings)
        assert isinstance(task, Pairs)
        task.pair, there = True, settings.get("columns") or {}
        pooling = (settings.get("vectors") or {}).get("pooling", "mean")
        if pooling not in POOLINGS:
            raise ModelError(
                f"its vectors have the pooling {pooling!r}; {nearest(str(pooling), POOLINGS)}"
            )
        task.output, task._map = (
            Similarity(pooling=pooling),
            (settings.get("vectors") or {}).get("map"),
        )
        task._texts = columns(there.get("text", "text"), there.get("pair") or "pair")
        task._label = there.get("label")
        task._layout = Layout(header=settings.get("header", True))
        return task

    def settings(self) -> dict[str, Any]:
        """How a vector is made, and the columns."""
        text, *pair = self._texts
        there = {"text": text, "pair": pair[0] if pair else None, "label": self._label}
        more: dict[str, Any] = {} if self._layout.header else {"header": False}
        vectors: dict[str, Any] = {"pooling": self.output.pooling, "normalized": True}
        if self.output.map is not None:
            vectors["map"] = DENSE
        return {**super().settings(), "columns": there, "vectors": vectors, **more}

    def closing(
        self, items: Sequence[Item], logits: Callable[[Sequence[Item]], Logits], seed: int
    ) -> Pairs:
        """With the map that whitens."""
        return self._with(self.output.closing(items, logits, seed))

    def write_beside(self, folder: Path) -> None:
        """The map."""
        if self.output.map is not None:
            write_dense(folder / DENSE, self.output.map)

    def opened(self, folder: Path) -> Pairs:
        """With the map."""
        return (
            self
            if self._map is None
            else self._with(replace(self.output, map=read_dense(folder, self._map)))
        )

    def _with(self, output: Similarity) -> Pairs:
        task = copy(self)
        task.output = output
        return task

    def identity(self) -> dict[str, Any]:
        """How it learns."""
        out = self.output
        return {
            "known": out.known,
            "pooling": out.pooling,
            "temperature": out.temperature,
            "whiten": out.whiten,
        }

    @property
    def point(self) -> str:
        """Texts alone are learned with hyper-parameters of their own."""
        return "texts" if self.output.known == "texts" else self.full_name

    # ------------------------------------------------------------------------------------- examples

    def labelled(self, source: Source, **options: Any) -> list[Example]:
        """The rows of files with scores; without `text`, `pair` and `label` in the columns that
        were learned from.
        """
        text, *pair = self._texts
        options.setdefault(
            "header",
            self._layout.header or not options.keys().isdisjoint(("text", "pair", "label")),
        )
        self._texts = columns(
            options.pop("text", text), options.pop("pair", pair[0] if pair else "pair")
        )
        self._label = options.pop("label", self._label)
        if self._label in self._texts:
            raise ConfigError(
                f"label is '{self._label}', a column that the model reads; name the column "
                "of the scores"
            )
        self._score_names = _FOUND if self._label is None else Similarity.scores
        return super().labelled(source, **options)

    def read(self, part: str) -> list[Example]:
        """The examples of train, dev or test, in the order of their files."""
        self._found = Notes()
        examples = [example for path in self._of(part) for example in self._rows(part, path)]
        if part == "train":
            self._check(examples)
        examples = self._own(part, examples, lambda i: i, "rows")
        if part == "train":
            log.info(f"learning from {len(examples):,} {_WORDS[self.output.known]}")
        elif len(self._texts) == 1:
            examples = [half for one in examples if (half := _halves(one)) is not None]
            self._found[
                "texts were cut in two, to look for the second half of each, given the first"
            ] = len(examples)
        return examples

    def _survey(self) -> Known:
        """What is known of the pairs of the training files: which of the columns the first of them
        has.
        """
        first = self._paths["train"][0]
        for _, (_, pair, label) in self._records(first, 1, Notes()):
            return "texts" if pair is None else "positives" if label is None else "scores"
        return "texts"

    def _needed(self, part: str) -> int:
        """How many of the columns text, pair and label the files of a part must have."""
        if part == "train" and "dev" in self._paths:
            return {"texts": 1, "positives": 2, "scores": 3}[self.output.known]
        return len(self._texts) + (self._label is not None and part != "test")

    def _records(self, path: Path, needed: int, found: Notes) -> Iterator[Record]:
        """The text, the pair and the label of each row; beyond the columns `needed`, None for what
        the file lacks.
        """
        names, layout = (
            [*self._texts, *([] if self._label is None else [self._label])],
            self._layout,
        )
        rows = read_records(
            path,
            names[:needed],
            found,
            optional=names[needed:],
            form=layout.form,
            header=layout.header,
            encoding=layout.encoding,
        )
        return (Record(row.line, (*row.values, None, None)[:3]) for row in rows)

    def _rows(self, part: str, path: Path) -> Iterator[Example]:
        """The examples of a file."""
        needed, several = self._needed(part), len(self._of(part)) > 1
        paired = needed > 1 or (part != "train" and len(self._texts) > 1)
        for line, (*texts, label) in self._records(path, needed, self._found):
            place = f"{path}:{line}"
            score = (
                None
                if self._label is None or (label is None and needed < 3)
                else _score(label, place, self._label)
            )
            one = self._of_cells(texts[: 1 + paired], self._texts[: 1 + paired], place)
            yield one._replace(label=score, name=f"{path.name}:{line}" if several else str(line))

    def _check(self, examples: Sequence[Example]) -> None:
        """Refuse training files that nothing can be learned from.

        Raises:
            DataError: there is one row only, or one score only.
        """
        files = named(self._of("train"))
        if len(examples) < 2:
            raise DataError(
                f"{files} has one row, and pairs are learned by comparing them; give two "
                "rows or more"
            )
        if self.output.known == "scores" and len({one.label for one in examples}) == 1:
            raise DataError(
                f"{files} has the same score, {examples[0].label:g}, on every row; give "
                "rows that differ"
            )

    def encode(self, examples: Sequence[Example], tokenizer: Tokenizer, length: int) -> list[Item]:
        """Two rows per example, of at most `length` tokens each; what is longer is truncated,
        counted and noted.
        """
        firsts, cut = single_rows(tokenizer, [one.text for one in examples], length)
        paired = [i for i, one in enumerate(examples) if one.pair is not None]
        others, more = single_rows(tokenizer, [examples[i].pair or "" for i in paired], length)
        self._found.add_cut(cut + more, len(examples) + len(paired), length)
        seconds = {**dict(enumerate(firsts)), **dict(zip(paired, others, strict=True))}
        by_score = self.output.known == "scores"
        return [
            Item(
                i,
                (first, seconds[i]),
                one.label if by_score else np.array([_key(first), _key(seconds[i])]),
            )
            for i, (one, first) in enumerate(zip(examples, firsts, strict=True))
        ]

    # -------------------------------------------------------------------------------------- answers

    def score(self, examples: Sequence[Example], answers: Sequence[Any]) -> dict[str, float]:
        """Correlations of cosines with scores, or how well the second of each pair is found among
        all.
        """
        if self._label is None:
            seconds = [example.pair or "" for example in examples]
            return _rank_seconds([answer.vectors for answer in answers], seconds)
        examples, answers = self._known(
            examples, answers, lambda example: example.label is not None
        )
        truth = np.array([example.label for example in examples], np.float64)
        return scores(self._score_names, truth, np.array([answer.value for answer in answers]))


class StsbVectors(Pairs):
    """STS-B scored by the cosine of two vectors, from the files of GLUE; `stsb` reads both texts as
    one row.

    Args:
        source: as `Glue` takes it.
        pooling, temperature, whiten: as `Pairs` takes them.
    """

    name = "stsb-vectors"
    takes = ("pooling", "temperature", "whiten")

    def __init__(self, source: str | Path | None = None, **options: Any) -> None:
        super().__init__(text="sentence1", pair="sentence2", label="score", **options)
        self._glue = Glue("stsb", source)
        self.dev, self.tests = self._glue.dev, self._glue.tests

    @classmethod
    def from_data(cls, name: str, data: Source, **options: Any) -> StsbVectors:
        """Of the folder of STS-B."""
        return cls(Glue.from_data("stsb", data)._source, **options)

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Pairs:
        task = super().from_settings(settings)
        assert isinstance(task, StsbVectors)
        task._glue = Glue("stsb")
        return task

    @property
    def file_names(self) -> dict[str, list[str]]:
        return self._glue.file_names

    def labelled(self, source: Source, **options: Any) -> list[Example]:
        """The dev part of a folder, or the rows of an official training or dev file."""
        return self._glue.labelled(source, **options)

    def read(self, part: str) -> list[Example]:
        examples = self._glue.read(part)
        self._found = self._glue._found
        return examples


def _score(value: Any, place: str, column: str | None) -> float:
    """How alike two texts are."""
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise DataError(
            f"{place}: '{column}' is {format_value(value)}, not a finite number; correct it, or "
            "leave the row out"
        )
    return number


def _halves(example: Example) -> Example | None:
    """A text cut at the space nearest to its middle, or where there is none in the middle; None of
    less than that.
    """
    text, middle = example.text.strip(), len(example.text.strip()) // 2
    spaces = [place for place, char in enumerate(text) if char.isspace()]
    cut = min(spaces, key=lambda place: abs(place - middle), default=middle)
    first, second = text[:cut].strip(), text[cut:].strip()
    return example._replace(text=first, pair=second) if first and second else None


def _key(row: EncodedRow) -> int:
    """The same for equal rows."""
    return int.from_bytes(
        hashlib.blake2b(row.ids.tobytes(), digest_size=8).digest(), "little", signed=True
    )


def _rank_seconds(vectors: Sequence[Any], texts: Sequence[str]) -> dict[str, float]:
    """The scores of `_FOUND`, from unit vectors, (2, H) of each of N pairs, and the second texts
    (N,).

    The rank of a second counts every other text that is as near to the first, so a tie is wrong and
    a network that gives all texts one vector finds nothing. Cosines that differ by less than 1e-6
    are ties, because equal vectors may differ by rounding. A vector with a NaN is as near as any.
    Where all seconds are one text, there is nothing to find, and both scores are 0.
    """
    number_of = {text: number for number, text in enumerate(dict.fromkeys(texts))}
    numbers = np.array([number_of[text] for text in texts])
    if len(number_of) == 1:
        return dict.fromkeys(_FOUND, 0.0)
    firsts, seconds = (_stacked([both[side] for both in vectors]) for side in (0, 1))
    likeness_to_second = np.asarray((firsts * seconds).sum(-1))
    ranks = []
    for start in range(0, len(vectors), _BLOCK):
        block = slice(start, start + _BLOCK)
        likeness = firsts[block] @ seconds.T
        likeness = likeness if isinstance(likeness, np.ndarray) else likeness.toarray()
        behind = likeness < likeness_to_second[block, None] - 1e-6
        ranks.append(1 + (~behind & (numbers[block, None] != numbers)).sum(1))
    ranked = np.concatenate(ranks)
    return {"mrr": float((1 / ranked).mean()), "recall_at_1": float((ranked == 1).mean())}


def _stacked(vectors: Sequence[Any]) -> Any:
    """(N, H) of N vectors: an array, or a sparse array where a baseline gave them."""
    if isinstance(vectors[0], np.ndarray):
        return np.stack(vectors)
    from scipy.sparse import csr_array, vstack

    return csr_array(vstack(vectors, format="csr"))
