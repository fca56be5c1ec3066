"""Pairs of texts for sentence vectors: texts that belong together, pairs with scores, or texts.

The columns of the training files decide how the model learns (finetuning/similarity.py). A dev
split with scores is scored by the correlation of cosines with them. Without scores, the model must
find the second text of each pair among all. Without pairs, it must find the second half of each
text from the first.
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

from litebert.errors import ConfigError, DataError, ModelError, nearest
from litebert.finetuning.outputs import restore_output
from litebert.finetuning.rows import build_single_rows
from litebert.finetuning.similarity import (
    TEMPERATURE,
    Similarity,
    Supervision,
    sort_sizes,
)
from litebert.finetuning.task import Task, TaskFiles, TaskOptions
from litebert.finetuning.values import EncodedRow, Item
from litebert.interop.sentence_modules import (
    DENSE,
    read_sizes,
    read_vector_map,
    write_dense,
)
from litebert.tasks.glue import Glue, GlueFiles
from litebert.tasks.pair_scores import RANK_SCORES, rank_seconds, truncate_answer
from litebert.tasks.scores import compute_scores
from litebert.tasks.splits import (
    LAYOUT_OPTIONS,
    Layout,
    Source,
    SplitFiles,
    format_files,
    take_files,
    take_layout,
)
from litebert.tasks.texts import (
    COLUMN_OPTIONS,
    ColumnOptions,
    Example,
    TextFiles,
    TextTask,
    hash_texts,
    make_example,
    parse_finite,
    require_columns,
)
from litebert.text.records import IN_FOLDERS, Notes, Record, read_records
from litebert.tokenizer import Tokenizer

if TYPE_CHECKING:
    from litebert.config import Pooling
    from litebert.finetuning.values import Logits
    from litebert.interop.loaded import LoadedModel

log = logging.getLogger("litebert")

POOLINGS: tuple[Pooling, ...] = ("mean", "cls")
_SUPERVISION_NAMES: Mapping[Supervision, str] = {
    "scores": "pairs with scores",
    "positives": "pairs that belong together",
    "texts": "texts without pairs, each against itself",
}


@dataclass(frozen=True, kw_only=True)
class VectorOptions(TaskOptions):
    """The options of how sentence vectors are made and learned."""

    pooling: Literal["mean", "cls"] = "mean"
    """How the vector of a text is made: the mean of its hidden states, or the state of [CLS]."""
    temperature: float = TEMPERATURE
    """Divisor of the cosines in the loss."""
    matryoshka: tuple[int, ...] = ()
    """Sizes that the vectors may be cut to afterwards, such as 64 128; they are trained too."""
    whiten: bool | None = None
    """Whiten the vectors after training; by default for texts without pairs, with a teacher where
    it helps."""


@dataclass(frozen=True, kw_only=True)
class PairOptions(VectorOptions, ColumnOptions):
    """The options of pairs of texts."""

    label_column: str | None = None
    """Column that holds the score of a pair."""


class PairFiles(TextFiles):
    """Files of pairs of texts with named columns, or of texts alone."""

    suffixes = tuple(suffix for suffix in IN_FOLDERS if suffix != ".conll")
    task: Pairs

    @classmethod
    def of(
        cls,
        train: Source | None = None,
        dev: Source | None = None,
        test: Source | None = None,
        *,
        text_column: str = "text",
        pair_column: str | None = None,
        label_column: str | None = None,
        pooling: Pooling = "mean",
        temperature: float = TEMPERATURE,
        matryoshka: Sequence[int] | None = None,
        whiten: bool | None = None,
        heldout: float = 0.1,
        seed: int = 0,
        group_column: str | None = None,
        weight_column: str | None = None,
        layout: Layout | None = None,
        task_class: type[Task[Example]] | None = None,
    ) -> PairFiles:
        """Open the files of pairs, and decide from them how texts are learned.

        Args:
            train, dev, test: their files, as `TableFiles.of` takes them, and plain text with a text
                on each line.
            text_column, pair_column, label_column: names of the columns, or their numbers from 0:
                the two texts, and how alike they are. With `label_column` None all pairs belong
                together. With `pair_column` None the model learns from single texts. If there is a
                dev split, the training files may lack the columns of the pair and the label.
            pooling: makes a sentence vector of the hidden states of a text: `mean` of all, or `cls`
                for the hidden state of [CLS].
            temperature: divides the cosines in the losses.
            matryoshka: sizes that the vectors may be cut to, by leaving out all but their first
                numbers; none by default.
            whiten: True to whiten the vectors when training has ended; by default only if the model
                learns from single texts, and with no such sizes.
            heldout, seed, group_column, weight_column, layout: as in `TableFiles.of`. Of pairs that
                belong together, those with the same first text are never divided.
            task_class: the class of the task, `Pairs` by default.

        Raises:
            ConfigError: options that contradict each other.
            DataError: a training file that is missing or malformed; the message names the line.
        """
        sizes = sort_sizes(matryoshka)
        task = _make_pairs(
            task_class, text_column, pair_column, label_column, pooling, temperature, layout
        )
        sources = {"train": train, "dev": dev, "test": test}
        files = cls(task, sources, heldout=heldout, seed=seed, layout=layout)
        files.group_column, files.weight_column = group_column, weight_column
        supervision = _tell_supervision(pair_column, label_column)
        if train is not None and dev is not None:
            supervision = files._survey()
        output = Similarity(
            pooling=pooling,
            supervision=supervision,
            temperature=temperature,
            sizes=sizes,
            whiten=supervision == "texts" and not sizes if whiten is None else whiten,
        )
        files.task = replace(files.task, output=output)
        return files

    @classmethod
    def open(
        cls, task_class: type[Task[Example]], name: str, data: Source, **options: Any
    ) -> PairFiles:
        """Open a folder, or training files with `dev` and `test` as options."""
        options |= take_files(data, options)
        # A subclass may take no layout, so none is passed without such an option.
        if options.keys() & {*LAYOUT_OPTIONS}:
            options["layout"] = take_layout(options)
        return cls.of(task_class=task_class, **options)

    @classmethod
    def open_labeled(
        cls, task: Task[Example], source: Source, **options: Any
    ) -> SplitFiles[Example]:
        """Open labeled files to score a model on.

        `text_column`, `pair_column` and `label_column` name the columns; by default those of the
        training files.
        """
        assert isinstance(task, Pairs)
        text, *pair = task.texts
        # Naming columns implies a header, even if the training files had none.
        options.setdefault(
            "header",
            task.header or not options.keys().isdisjoint(COLUMN_OPTIONS),
        )
        texts = require_columns(
            options.pop("text_column", text),
            options.pop("pair_column", pair[0] if pair else "pair"),
        )
        label = options.pop("label_column", task.label)
        if label in texts:
            raise ConfigError(
                f"label is '{label}', a column that the model reads; name the column of the scores"
            )
        names = RANK_SCORES if label is None else Similarity.scores
        task = replace(task, texts=texts, label=label, score_names=names)
        return super().open_labeled(task, source, **options)

    def read(self, split: str, notes: Notes | None = None) -> list[Example]:
        """Read the examples of train, dev or test, in the order of their files."""
        notes = Notes() if notes is None else notes
        examples = [
            example
            for path in self._find_files(split)
            for example in self._read_rows(split, path, notes)
        ]
        if split == "train":
            self._check_train(examples)
        by_score = self.task.label is not None
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

    def _survey(self) -> Supervision:
        """Tell the supervision of the training files by the columns of the first file."""
        first = self._paths["train"][0]
        for _, (_, pair, label), _ in self._records(first, 1, Notes()):
            return _tell_supervision(pair, label)
        return "texts"

    def _count_needed(self, split: str) -> int:
        """Count the columns, of text, pair and label, that the files of a split must have."""
        if split == "train" and "dev" in self._paths:
            return {"texts": 1, "positives": 2, "scores": 3}[self.task.output.supervision]
        return len(self.task.texts) + (self.task.label is not None and split != "test")

    def _records(self, path: Path, needed: int, notes: Notes) -> Iterator[Record]:
        """Read the text, the pair and the label of each row.

        Beyond the first `needed` columns, a value is None if the file lacks its column.
        """
        names = (
            [*self.task.texts] if self.task.label is None else [*self.task.texts, self.task.label]
        )
        layout = self._layout._asdict()
        rows = read_records(path, names[:needed], notes, optional=names[needed:], **layout)
        return (Record(row.line, (*row.values, None, None)[:3]) for row in rows)

    def _read_rows(self, split: str, path: Path, notes: Notes) -> Iterator[Example]:
        """Read the examples of a file."""
        needed, several = self._count_needed(split), len(self._find_files(split)) > 1
        paired = needed > 1 or (split != "train" and len(self.task.texts) > 1)
        columns = self.task.texts[: 1 + paired]
        for line, (*texts, label), _ in self._records(path, needed, notes):
            location = f"{path}:{line}"
            score = None
            if self.task.label is not None and (label is not None or needed >= 3):
                score = parse_finite(label, location, self.task.label)
            example = make_example(texts[: 1 + paired], columns, location, notes)
            name = f"{path.name}:{line}" if several else str(line)
            yield example._replace(label=score, name=name)

    def _check_train(self, examples: Sequence[Example]) -> None:
        """Refuse training files from which nothing can be learned.

        Raises:
            DataError: there is one row only, or one score only.
        """
        files = format_files(self._find_files("train"))
        if len(examples) < 2:
            raise DataError(
                f"{files} has one row, and pairs are learned by comparing them; give two "
                "rows or more"
            )
        if (
            self.task.output.supervision == "scores"
            and len({example.label for example in examples}) == 1
        ):
            raise DataError(
                f"{files} has the same score, {examples[0].label:g}, on every row; give "
                "rows that differ"
            )


def _make_pairs(
    task_class: type[Task[Example]] | None,
    text: str,
    pair: str | None,
    label: str | None,
    pooling: Pooling,
    temperature: float,
    layout: Layout | None,
) -> Pairs:
    """Check the options of pairs, and make the task of them.

    Raises:
        ConfigError: options that contradict each other.
    """
    if pooling not in POOLINGS:
        raise ConfigError(f"pooling is '{pooling}'; {nearest(pooling, POOLINGS)}")
    if not 0 < temperature < math.inf:
        raise ConfigError(f"temperature is {temperature}; it must be a number above 0")
    if label is not None and (pair is None or label in (text, pair)):
        problem = "there is no second column" if pair is None else "it is a column of texts"
        raise ConfigError(
            f"label is '{label}', but {problem}; name the texts with text and pair, and "
            "their score with label"
        )
    make = task_class or Pairs
    assert issubclass(make, Pairs)
    return make(
        Similarity(),
        score_names=RANK_SCORES if label is None else Similarity.scores,
        texts=require_columns(text, pair),
        label=label,
        header=(layout or Layout()).header,
    )


@dataclass(frozen=True)
class Pairs(TextTask):
    """Vectors of texts, learned from pairs of texts or from texts alone."""

    name: ClassVar[str] = "pairs"
    files: ClassVar[type[TaskFiles[Any]]] = PairFiles
    options: ClassVar[type[TaskOptions]] = PairOptions

    output: Similarity
    pair: bool | None = True
    texts: tuple[str, ...] = ("text",)
    """The columns of the one or two texts."""
    label: str | None = None
    """The column of the scores."""
    header: bool = True
    """True if the training files have a header line."""

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Pairs:
        """Return the task with the model's pooling and columns."""
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
            label=columns.get("label"),
            header=settings.get("header", True),
        )

    def settings(self) -> dict[str, Any]:
        """Return the columns, and the settings that make a vector."""
        text, *pair = self.texts
        columns = {"text": text, "pair": pair[0] if pair else None, "label": self.label}
        vectors: dict[str, Any] = {"pooling": self.output.pooling, "normalized": True}
        if self.output.map is not None:
            vectors["map"] = DENSE
        if self.output.sizes:
            vectors["sizes"] = list(self.output.sizes)
        settings = {**super().settings(), "columns": columns, "vectors": vectors}
        if not self.header:
            settings["header"] = False
        return settings

    def closing(
        self, items: Sequence[Item], logits: Callable[[Sequence[Item]], Logits], seed: int
    ) -> dict[str, Pairs]:
        """Return the task with each map that training may end with."""
        endings = self.output.closing(items, logits, seed)
        return {name: replace(self, output=output) for name, output in endings.items()}

    def with_teacher(self) -> Pairs:
        """Return the task as it learns the vectors of a teacher."""
        return replace(self, output=replace(self.output, taught=True))

    def for_unlabeled(self) -> Pairs:
        """Return the task with single texts, of the column of the first text."""
        return replace(self, pair=False, texts=self.texts[:1], label=None)

    def write_beside(self, folder: Path) -> None:
        """Write the map of the vectors, if there is one."""
        if self.output.map is not None:
            write_dense(folder / DENSE, self.output.map)

    def complete(self, loaded: LoadedModel) -> Pairs:
        """Return the task with the map of the vectors and the sizes that they may be cut to."""
        map_ = read_vector_map(loaded)
        width = loaded.config.encoder.hidden_size if map_ is None else len(map_.bias)
        sizes = read_sizes(loaded, width)
        return replace(self, output=replace(self.output, map=map_, sizes=sizes))

    def identity(self) -> dict[str, Any]:
        """Return the settings that change what the model learns."""
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
        """The name of its hyper-parameters."""
        if self.output.taught:
            return "taught"
        return "texts" if self.output.supervision == "texts" else self.full_name

    def encode(
        self,
        examples: Sequence[Example],
        tokenizer: Tokenizer,
        length: int,
        notes: Notes | None = None,
    ) -> list[Item]:
        """Encode each example as two sequences of at most `length` tokens, and note what is cut.

        A text without a pair is its own second text. With a teacher it is read once, and has no
        target.
        """
        notes = Notes() if notes is None else notes
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
        """Score cosines by their correlation with labels; without labels, rank second texts. The
        scores of vectors that are cut to a size have names of their own.
        """
        scores = self._score_answers(examples, answers)
        is_counted = any(not isinstance(answer.vectors, np.ndarray) for answer in answers)
        for size in () if is_counted else self.output.sizes:
            cut = [truncate_answer(answer, size) for answer in answers]
            scores |= {
                f"{name}_cut_to_{size}": value
                for name, value in self._score_answers(examples, cut).items()
            }
        return scores

    def _score_answers(
        self, examples: Sequence[Example], answers: Sequence[Any]
    ) -> dict[str, float]:
        if self.label is None:
            firsts, seconds = zip(*((one.text, one.pair or "") for one in examples), strict=True)
            return rank_seconds([answer.vectors for answer in answers], firsts, seconds)
        examples, answers = self._select_labeled(
            examples, answers, lambda example: example.label is not None
        )
        labels = np.array([example.label for example in examples], np.float64)
        cosines = np.array([answer.value for answer in answers])
        return compute_scores(self.score_names, labels, cosines)


class StsbFiles(PairFiles):
    """The files of STS-B as GLUE has them."""

    _glue: TaskFiles[Example]

    @classmethod
    def open(
        cls, task_class: type[Task[Example]], name: str, data: Source, **options: Any
    ) -> StsbFiles:
        """Open the folder of STS-B."""
        return cls.of_glue(GlueFiles.open(Glue, "stsb", data), **options)

    @classmethod
    def of_glue(cls, glue: TaskFiles[Example], **options: Any) -> StsbFiles:
        """Read the files of GLUE's task for vectors; `options` as `PairFiles.of` takes them."""
        files = cls.of(
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
        """Open the dev split of a folder, or the rows of an official train or dev file."""
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
    """STS-B scored by the cosine of two vectors, from the files of GLUE.

    The task `stsb`, in contrast, reads both texts as one sequence.
    """

    name: ClassVar[str] = "stsb-vectors"
    files: ClassVar[type[TaskFiles[Any]]] = StsbFiles
    options: ClassVar[type[TaskOptions]] = VectorOptions


def _tell_supervision(pair: Any, label: Any) -> Supervision:
    """Tell how texts are learned from the columns that are not None."""
    if pair is None:
        return "texts"
    return "positives" if label is None else "scores"


def _halve(example: Example) -> Example | None:
    """Cut a text at the space nearest to its middle, or in the middle if there is no space.

    Returns:
        The two halves as a pair; None if one of them is empty.
    """
    text = example.text.strip()
    middle = len(text) // 2
    spaces = [position for position, char in enumerate(text) if char.isspace()]
    cut = min(spaces, key=lambda position: abs(position - middle), default=middle)
    first, second = text[:cut].strip(), text[cut:].strip()
    return example._replace(text=first, pair=second) if first and second else None


def _hash_row(row: EncodedRow) -> int:
    """Return a number that is the same for equal sequences."""
    return int.from_bytes(
        hashlib.blake2b(row.ids.tobytes(), digest_size=8).digest(), "little", signed=True
    )
