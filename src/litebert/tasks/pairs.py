"""Pairs of texts for sentence vectors: texts that belong together, pairs with scores, or texts.

The columns of the training files decide how the model learns (tasks/similarity.py). A dev
split with scores is scored by the correlation of cosines with them. Without scores, the model must
find the second text of each pair among all; without pairs, the second half of each text.
"""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from litebert.base.errors import ConfigError, DataError, ModelError, nearest
from litebert.interop.sentence_modules import DENSE, read_sizes, read_vector_map, write_dense
from litebert.tasks.glue import Glue, GlueFiles
from litebert.tasks.outputs import restore_output
from litebert.tasks.rows import build_single_rows
from litebert.tasks.scores import compute_scores
from litebert.tasks.similarity import (
    TEMPERATURE,
    Similarity,
    Supervision,
    scale_to_unit,
    sort_sizes,
)
from litebert.tasks.splits import Source, SplitFiles, format_files, take_layout
from litebert.tasks.task import Task, TaskFiles, TaskOptions
from litebert.tasks.texts import (
    ColumnOptions,
    ColumnTask,
    Example,
    TextFiles,
    hash_texts,
    list_columns,
    make_example,
    parse_finite,
    require_columns,
)
from litebert.tasks.values import Compared, EncodedRow, Item
from litebert.text.records import IN_FOLDERS, Notes, Record
from litebert.tokenizer import Tokenizer

if TYPE_CHECKING:
    from litebert.config import Pooling
    from litebert.interop.loaded import LoadedModel
    from litebert.tasks.values import Logits

log = logging.getLogger("litebert")

POOLINGS: tuple[Pooling, ...] = ("mean", "cls")
_SUPERVISION_NAMES: Mapping[Supervision, str] = {
    "scores": "pairs with scores",
    "positives": "pairs that belong together",
    "texts": "texts without pairs, each against itself",
}


RANK_SCORES = ("mrr", "recall_at_1")
"""Over the first texts: the mean of 1/rank of the first right second text among all, and how often
that rank is 1.
"""
_BLOCK = 1024
"""First texts that are compared at once, which bounds the memory of their cosines."""


@dataclass(frozen=True, kw_only=True)
class VectorOptions(TaskOptions):
    """The options of how sentence vectors are made and learned."""

    pooling: Literal["mean", "cls"] = "mean"
    """Vector of a text: the mean of its states, or that of [CLS]."""
    temperature: float = TEMPERATURE
    """Divisor of the cosines in the loss."""
    matryoshka: tuple[int, ...] = ()
    """Sizes that vectors may be cut to, such as 64 128; they are trained too."""
    whiten: bool | None = None
    """Whiten the vectors after training; by default where it helps."""


@dataclass(frozen=True, kw_only=True)
class PairOptions(VectorOptions, ColumnOptions):
    """The options of pairs of texts."""

    label_column: str | None = None
    """Column of the score of a pair."""


class PairFiles(TextFiles):
    """Files of pairs of texts with named columns, or of texts alone."""

    suffixes = tuple(suffix for suffix in IN_FOLDERS if suffix != ".conll")
    task: Pairs

    @classmethod
    def of(
        cls,
        sources: Mapping[str, Source],
        *,
        seed: int = 0,
        task_class: type[Task[Example]] | None = None,
        **options: Any,
    ) -> PairFiles:
        """Open the files of pairs, and decide from them how texts are learned.

        Args:
            sources: the files, as `TableFiles.of` takes them, and plain text with a text on each
                line. If there is a dev split, the training files may lack the columns of the pair
                and the label.
            task_class: the class of the task, `Pairs` by default.
            options: as `PairOptions` has them. Without `label_column` all pairs belong together,
                and those with the same first text are never divided. Without `pair_column` the
                model learns from single texts.
        """
        layout = take_layout(options)
        sizes = sort_sizes(options.pop("matryoshka", None))
        given = PairOptions(**options)
        pair, label = given.pair_column, given.label_column
        if given.pooling not in POOLINGS:
            raise ConfigError(f"pooling is '{given.pooling}'; {nearest(given.pooling, POOLINGS)}")
        if not 0 < given.temperature < math.inf:
            raise ConfigError(f"temperature is {given.temperature}; it must be a number above 0")
        if label is not None and (pair is None or label in (given.text_column, pair)):
            problem = "there is no second column" if pair is None else "it is a column of texts"
            raise ConfigError(
                f"label is '{label}', but {problem}; name the texts with text and pair, and "
                "their score with label"
            )
        make = task_class or Pairs
        assert issubclass(make, Pairs)
        task = make(
            Similarity(),
            score_names=RANK_SCORES if label is None else Similarity.scores,
            texts=require_columns(given.text_column, pair),
            label=list_columns(label),
            header=layout.header,
        )
        files = cls(task, sources, heldout=given.heldout, seed=seed, layout=layout)
        files.group_column, files.weight_column = given.group_column, given.weight_column
        supervision = _tell_supervision(pair, label)
        if {"train", "dev"} <= sources.keys():  # the columns of the first training file tell it
            first = next(files._records(files._paths["train"][0], 1, Notes()), None)
            supervision = _tell_supervision(*first.values[1:]) if first is not None else "texts"
        whiten = given.whiten
        output = Similarity(
            pooling=given.pooling,
            supervision=supervision,
            temperature=given.temperature,
            sizes=sizes,
            whiten=supervision == "texts" and not sizes if whiten is None else whiten,
        )
        files.task = replace(files.task, output=output)
        return files

    @classmethod
    def open_labeled(
        cls, task: Task[Example], source: Source, **options: Any
    ) -> SplitFiles[Example]:
        assert isinstance(task, Pairs)
        if len(task.texts) == 1:
            task = replace(task, texts=(*task.texts, "pair"))
        files = super().open_labeled(task, source, **options)
        assert isinstance(files.task, Pairs)
        names = RANK_SCORES if not files.task.label else Similarity.scores
        files.task = replace(files.task, score_names=names)
        return files

    def read(self, split: str, notes: Notes | None = None) -> list[Example]:
        notes = Notes() if notes is None else notes
        examples = [
            example
            for path in self._find_files(split)
            for example in self._read_rows(split, path, notes)
        ]
        files = format_files(self._find_files(split))
        if split == "train" and len(examples) == 1:
            raise DataError(
                f"{files} has one row, and pairs are learned by comparing them; give two "
                "rows or more"
            )
        by_scores = split == "train" and self.task.output.supervision == "scores"
        if by_scores and len({example.label for example in examples}) == 1:
            raise DataError(
                f"{files} has the same score, {examples[0].label:g}, on every row; give "
                "rows that differ"
            )
        by_score = bool(self.task.label)
        keys = [
            hash_texts(*sorted((example.text, example.pair or "")))
            if by_score
            # Further answers to a question that was learned from would be known.
            else hash_texts(example.text)
            for example in examples
        ]
        examples = self._select_rows(split, examples, keys, notes)
        if split == "train":
            output = self.task.output
            what = _SUPERVISION_NAMES[output.supervision]
            if output.taught:
                what = f"{what.partition(',')[0]} by the vectors of a teacher"
            log.info(f"learning from {len(examples):,} {what}")
        elif len(self.task.texts) == 1:
            halved = [_halve(example) for example in examples]
            examples = [example for example in halved if example is not None]
            notes["texts were cut in two, to look for the second half of each, given the first"] = (
                len(examples)
            )
        return examples

    def _records(self, path: Path, needed: int, notes: Notes) -> Iterator[Record]:
        """Read text, pair and label of each row; beyond `needed`, None for missing ones."""
        names = [*self.task.texts, *self.task.label]
        rows = self._read_accepted(path, names[:needed], notes, names[needed:])
        return (Record(row.line, (*row.values, None, None)[:3]) for row in rows)

    def _read_rows(self, split: str, path: Path, notes: Notes) -> Iterator[Example]:
        several, with_label = len(self._find_files(split)) > 1, bool(self.task.label)
        needed = len(self.task.texts) + (with_label and split != "test")
        if split == "train" and "dev" in self._paths:
            needed = {"texts": 1, "positives": 2, "scores": 3}[self.task.output.supervision]
        paired = needed > 1 or (split != "train" and len(self.task.texts) > 1)
        columns = self.task.texts[: 1 + paired]
        for line, (*texts, label), _ in self._records(path, needed, notes):
            location = f"{path}:{line}"
            score = None
            if with_label and (label is not None or needed >= 3):
                score = parse_finite(label, location, self.task.label[0])
            example = make_example(texts[: 1 + paired], columns, location, notes)
            name = f"{path.name}:{line}" if several else str(line)
            yield example._replace(label=score, name=name)


@dataclass(frozen=True)
class Pairs(ColumnTask):
    """Vectors of texts, learned from pairs of texts or from texts alone."""

    name, files = "pairs", PairFiles
    options: ClassVar[type[TaskOptions]] = PairOptions

    output: Similarity
    pair: bool | None = True

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Pairs:
        columns = settings.get("columns") or {}
        vectors = settings.get("vectors") or {}
        pooling = vectors.get("pooling", "mean")
        if pooling not in POOLINGS:
            raise ModelError(
                f"the model's vectors have the pooling {pooling!r}; "
                f"{nearest(str(pooling), POOLINGS)}"
            )
        restore_output(settings)  # which checks the head
        return cls(
            Similarity(pooling=pooling),
            texts=require_columns(columns.get("text", "text"), columns.get("pair") or "pair"),
            label=list_columns(columns.get("label")),
            header=settings.get("header", True),
        )

    def settings(self) -> dict[str, Any]:
        vectors: dict[str, Any] = {"pooling": self.output.pooling, "normalized": True}
        if self.output.map is not None:
            vectors["map"] = DENSE
        if self.output.sizes:
            vectors["sizes"] = list(self.output.sizes)
        return {**super().settings(), "vectors": vectors}

    def closing(
        self, items: Sequence[Item], logits: Callable[[Sequence[Item]], Logits], seed: int
    ) -> dict[str, Pairs]:
        endings = self.output.closing(items, logits, seed)
        return {name: replace(self, output=output) for name, output in endings.items()}

    def with_teacher(self) -> Pairs:
        return replace(self, output=replace(self.output, taught=True))

    def for_unlabeled(self) -> Pairs:
        return replace(self, pair=False, texts=self.texts[:1], label=())

    def write_beside(self, folder: Path) -> None:
        if self.output.map is not None:
            write_dense(folder / DENSE, self.output.map)

    def complete(self, loaded: LoadedModel) -> Pairs:
        map_ = read_vector_map(loaded)
        width = loaded.config.encoder.hidden_size if map_ is None else len(map_.bias)
        sizes = read_sizes(loaded, width)
        return replace(self, output=replace(self.output, map=map_, sizes=sizes))

    def identity(self) -> dict[str, Any]:
        output = self.output
        return {
            "known": output.supervision,
            "pooling": output.pooling,
            "temperature": output.temperature,
            "whiten": output.whiten,
            **({"matryoshka": list(output.sizes)} if output.sizes else {}),
        }

    @property
    def point(self) -> str:
        if self.output.taught:
            return "taught"
        return "texts" if self.output.supervision == "texts" else self.full_name

    def encode(
        self, examples: Sequence[Example], tokenizer: Tokenizer, length: int, notes: Notes
    ) -> list[Item]:
        """Encode each example as two sequences of at most `length` tokens, and note what is cut. A
        text without a pair is its own second text; with a teacher it is read once, and has no
        target.
        """
        firsts, cut = build_single_rows(tokenizer, [example.text for example in examples], length)
        paired = [i for i, example in enumerate(examples) if example.pair is not None]
        pairs, cut_pairs = build_single_rows(
            tokenizer, [examples[i].pair or "" for i in paired], length
        )
        notes.add_cut(cut + cut_pairs, len(examples) + len(paired), length)
        seconds = {**dict(enumerate(firsts)), **dict(zip(paired, pairs, strict=True))}
        by_score = self.output.supervision == "scores"
        items = []
        for i, (example, first) in enumerate(zip(examples, firsts, strict=True)):
            if self.output.taught and example.pair is None:
                items.append(Item(i, (first,), None, group=example.group))
                continue
            second = seconds[i]
            # Keys tell equal texts in a batch, which must not count as wrong pairs.
            target = example.label if by_score else np.array([_hash_row(first), _hash_row(second)])
            both = (first, second)
            items.append(Item(i, both, target, group=example.group, weight=example.weight))
        return items

    # -------------------------------------------------------------------------------------- answers

    def score(self, examples: Sequence[Example], answers: Sequence[Any]) -> dict[str, float]:
        """Score cosines by their correlation with labels, or rank second texts. Vectors that are
        cut to a size have scores of their own.
        """
        scores = self._score_answers(examples, answers)
        is_counted = any(not isinstance(answer.vectors, np.ndarray) for answer in answers)
        for size in () if is_counted else self.output.sizes:
            pairs = [scale_to_unit(answer.vectors[:, :size]) for answer in answers]
            cut = [Compared(float(np.dot(*pair)), pair) for pair in pairs]
            scores |= {
                f"{name}_cut_to_{size}": value
                for name, value in self._score_answers(examples, cut).items()
            }
        return scores

    def _score_answers(
        self, examples: Sequence[Example], answers: Sequence[Any]
    ) -> dict[str, float]:
        if not self.label:
            firsts, seconds = zip(*((one.text, one.pair or "") for one in examples), strict=True)
            return rank_seconds([answer.vectors for answer in answers], firsts, seconds)
        examples, answers = self._select_labeled(examples, answers)
        labels = np.array([example.label for example in examples], np.float64)
        cosines = np.array([answer.value for answer in answers])
        return compute_scores(self.score_names, labels, cosines)


def rank_seconds(
    vectors: Sequence[Any], firsts: Sequence[str], seconds: Sequence[str]
) -> dict[str, float]:
    """Compute `RANK_SCORES` from unit vectors, (2, H) for each of N pairs, and their texts.

    Each first text is asked once; its right answers are the second texts of all its pairs. A wrong
    text as near as the right one counts before it, so a network that gives all texts the same
    vector scores nothing. Cosines closer than 1e-6 are ties, because equal vectors may differ by
    rounding. A vector with a NaN is as near as any. If all second texts are the same, both scores
    are 0.
    """
    numbers, places = [], []
    for texts in (firsts, seconds):
        number_of: dict[str, int] = {}
        numbers.append(np.array([number_of.setdefault(text, len(number_of)) for text in texts]))
        places.append(np.unique(numbers[-1], return_index=True)[1])
    if len(places[1]) == 1:
        return dict.fromkeys(RANK_SCORES, 0.0)
    queries, documents = (
        _stack([vectors[place][side] for place in places[side]]) for side in (0, 1)
    )
    ranks = []
    for start in range(0, len(places[0]), _BLOCK):
        cosines = queries[start : start + _BLOCK] @ documents.T
        cosines = cosines if isinstance(cosines, np.ndarray) else cosines.toarray()
        is_right = np.zeros(cosines.shape, bool)
        here = (numbers[0] >= start) & (numbers[0] < start + _BLOCK)
        is_right[numbers[0][here] - start, numbers[1][here]] = True
        nearest = np.where(is_right, cosines, -np.inf).max(1, keepdims=True)
        # Negated, so that a NaN, which compares as False, counts as nearer.
        ranks.append(1 + (~(cosines < nearest - 1e-6) & ~is_right).sum(1))
    all_ranks = np.concatenate(ranks)
    return {"mrr": float((1 / all_ranks).mean()), "recall_at_1": float((all_ranks == 1).mean())}


def _stack(vectors: Sequence[Any]) -> Any:
    if isinstance(vectors[0], np.ndarray):
        return np.stack(vectors)
    from scipy.sparse import csr_array, vstack

    return csr_array(vstack(vectors, format="csr"))


class StsbFiles(PairFiles):
    """The files of STS-B as GLUE has them."""

    _glue: TaskFiles[Example]

    @classmethod
    def open(
        cls, task_class: type[Task[Example]], name: str, data: Source, **options: Any
    ) -> StsbFiles:
        return cls.of_glue(GlueFiles.open(Glue, "stsb", data), **options)

    @classmethod
    def of_glue(cls, glue: TaskFiles[Example], **options: Any) -> StsbFiles:
        files = cls.of(
            {},
            text_column="sentence1",
            pair_column="sentence2",
            label_column="score",
            task_class=StsbVectors,
            **options,
        )
        assert isinstance(files, StsbFiles)
        files._glue = glue
        files.task = replace(files.task, dev=glue.task.dev, tests=glue.task.tests)
        return files

    @classmethod
    def open_labeled(
        cls, task: Task[Example], source: Source, **options: Any
    ) -> SplitFiles[Example]:
        assert isinstance(task, StsbVectors)
        files = cls.of_glue(GlueFiles.open_labeled(Glue.of("stsb"), source, **options))
        files.task = replace(files.task, output=task.output)
        return files

    @property
    def file_names(self) -> dict[str, list[str]]:
        return self._glue.file_names

    def read(self, split: str, notes: Notes | None = None) -> list[Example]:
        return self._glue.read(split, notes)


@dataclass(frozen=True)
class StsbVectors(Pairs):
    """STS-B scored by the cosine of two vectors; the task `stsb` reads both texts at once."""

    name, files, options = "stsb-vectors", StsbFiles, VectorOptions


def _tell_supervision(pair: Any, label: Any) -> Supervision:
    if pair is None:
        return "texts"
    return "positives" if label is None else "scores"


def _halve(example: Example) -> Example | None:
    """Cut a text at the space nearest to its middle, or there; None where a half is empty."""
    text = example.text.strip()
    middle = len(text) // 2
    spaces = [position for position, char in enumerate(text) if char.isspace()]
    cut = min(spaces, key=lambda position: abs(position - middle), default=middle)
    first, second = text[:cut].strip(), text[cut:].strip()
    return example._replace(text=first, pair=second) if first and second else None


def _hash_row(row: EncodedRow) -> int:
    return int.from_bytes(
        hashlib.blake2b(row.ids.tobytes(), digest_size=8).digest(), "little", signed=True
    )
