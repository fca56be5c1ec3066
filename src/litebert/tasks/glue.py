"""GLUE (Wang et al. 2019, arXiv:1804.07461): ten tasks as rows of one table, their official files
and submissions.

Columns, label orders and the deciding score are those of the official ALBERT code
(classifier_utils.py). The files are tab-separated without quoting: a quote is an ordinary
character. Where the official code accepts whatever a column holds, here a row of a wrong width or
an unknown label stops the reading; only QQP, whose files are known for broken rows, passes over
them, and counts them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

from litebert.errors import ConfigError, DataError, nearest
from litebert.finetuning.outputs import Answer
from litebert.finetuning.text_outputs import Number, OneClass
from litebert.storage import atomic_text
from litebert.tasks.parts import Source
from litebert.tasks.texts import Example, Label, TextTask
from litebert.text.records import Notes, clean, format_value, read_lines, require_text
from litebert.text.sources import is_dataset_folder, open_dataset

_BINARY = ("0", "1")
_ENTAILS = ("entailment", "not_entailment")
_THREE_WAY = ("contradiction", "entailment", "neutral")
_ACCURACY = ("accuracy",)
_INDEX = 0
"""Column of the index in every test file."""
HUB = "nyu-mll/glue"
"""GLUE on the Hugging Face hub."""


@dataclass(frozen=True)
class Spec:
    """One task. Columns count from 0, negative ones from the end."""

    folder: str
    """Of its files in the official archive; also its name in a submission."""
    texts: tuple[int, ...]
    """Columns of the one or two texts in train and dev files."""
    label: int
    labels: tuple[str, ...]
    """In the order of the logits; empty for numbers from 0 to 5."""
    scores: tuple[str, ...]
    """The first chooses checkpoints."""
    columns: tuple[str, ...]
    """Names of the texts in the `datasets` version."""
    test_texts: tuple[int, ...] = (1, 2)
    names: tuple[str, ...] = ()
    """What the `datasets` version calls `labels`, in our order; () where it calls them the same."""
    header: bool = True
    """Whether train and dev files have one; test files always do."""
    skips: bool = False
    """Whether rows of a wrong width are passed over in train and dev."""
    dev: tuple[str, ...] = ("dev",)
    files: Mapping[str, str] = field(default_factory=lambda: {"test": "test.tsv"})
    """Test part -> its file."""
    submissions: tuple[str, ...] = ()
    """Names of the submissions by test part; () for FOLDER.tsv."""


GLUE: Mapping[str, Spec] = MappingProxyType(
    {
        "cola": Spec(
            "CoLA",
            (3,),
            1,
            _BINARY,
            ("matthews", "accuracy"),
            ("sentence",),
            (1,),
            names=("unacceptable", "acceptable"),
            header=False,
        ),
        "sst2": Spec(
            "SST-2",
            (0,),
            1,
            _BINARY,
            _ACCURACY,
            ("sentence",),
            (1,),
            names=("negative", "positive"),
        ),
        "mrpc": Spec(
            "MRPC",
            (3, 4),
            0,
            _BINARY,
            ("accuracy", "f1"),
            ("sentence1", "sentence2"),
            (3, 4),
            names=("not_equivalent", "equivalent"),
        ),
        # From the end, as ELECTRA's code reads it.
        "stsb": Spec(
            "STS-B", (-3, -2), -1, (), ("pearson", "spearman"), ("sentence1", "sentence2"), (-2, -1)
        ),
        "qqp": Spec(
            "QQP",
            (3, 4),
            5,
            _BINARY,
            ("accuracy", "f1"),
            ("question1", "question2"),
            names=("not_duplicate", "duplicate"),
            skips=True,
        ),
        "mnli": Spec(
            "MNLI",
            (8, 9),
            -1,
            _THREE_WAY,
            _ACCURACY,
            ("premise", "hypothesis"),
            (8, 9),
            dev=("dev_matched", "dev_mismatched"),
            files={"test_matched": "test_matched.tsv", "test_mismatched": "test_mismatched.tsv"},
            submissions=("MNLI-m.tsv", "MNLI-mm.tsv"),
        ),
        "qnli": Spec("QNLI", (1, 2), -1, _ENTAILS, _ACCURACY, ("question", "sentence")),
        "rte": Spec("RTE", (1, 2), -1, _ENTAILS, _ACCURACY, ("sentence1", "sentence2")),
        "wnli": Spec(
            "WNLI",
            (1, 2),
            -1,
            _BINARY,
            _ACCURACY,
            ("sentence1", "sentence2"),
            names=("not_entailment", "entailment"),
        ),
        "ax": Spec(
            "diagnostic",
            (),
            -1,
            _THREE_WAY,
            ("matthews", "accuracy"),
            ("premise", "hypothesis"),
            dev=(),
            files={"test": "diagnostic.tsv"},
            submissions=("AX.tsv",),
        ),
    }
)
"""Name -> task. `ax` has a test part only: `mnli` answers it as one more of its own, where the file
is there.
"""
_AX = "ax"


class Glue(TextTask):
    """A task of GLUE from a folder or from the `datasets` library.

    Args:
        name: a key of `specs`.
        source: the task's folder or the one above it; `hf:glue` for the hub, `hf:NAME[:CONFIG]` for
            a copy of it there, `hf:FOLDER` for what `datasets` saved. None where nothing is to be
            read: an `Answer` needs no file.

    A task with files of the same form is a subclass with `specs` of its own.

    Attributes: as `Task`. Of the official parts, `tests` and all but the first of `dev` leave out
    those whose file is not in the folder: test files, and MNLI's second dev file, are often left
    out of copies. MNLI has one more test part, `ax`, where the folder `diagnostic` with
    diagnostic.tsv lies beside its own.

    Raises:
        ConfigError: there is no such task.
        DataError: there is no such folder.
    """

    specs: ClassVar[Mapping[str, Spec]] = GLUE

    def __init__(self, name: str, source: str | Path | None = None) -> None:
        if name not in self.specs:
            raise ConfigError(f"there is no task '{name}' here; {nearest(name, self.specs)}")
        self.name, self.spec = name, self.specs[name]
        super().__init__(
            OneClass(self.spec.labels) if self.spec.labels else Number(), self.spec.scores
        )
        self.pair = len(self.spec.columns) == 2
        self._source = source
        self._hub = _opened(str(source)[3:], name) if str(source).startswith("hf:") else None
        if source is not None and self._hub is None and not Path(source).is_dir():
            raise DataError(
                f"{source} is not a folder; give the one of {self.spec.folder}, or the one above it"
            )
        self.dev = tuple(
            part for part in self.spec.dev if part == self.spec.dev[0] or self._has(part)
        )
        self.tests = tuple(part for part in self.spec.files if self._has(part))
        if name == "mnli" and source is not None and self._hub is None:
            inside = Path(source).resolve()
            self._ax = Glue(
                _AX, inside.parent if _plain(inside.name) == _plain(self.spec.folder) else source
            )
            self.tests += (_AX,) * len(self._ax.tests)

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> TextTask:
        """The task that the settings name, with the labels as the model has them."""
        task = super().from_settings(settings)
        name = str(settings.get("task"))
        if isinstance(task, Glue) and name in cls.specs:
            task.name, task.spec, task._source, task._hub = name, cls.specs[name], None, None
            task._score_names, task.metric = task.spec.scores, task.spec.scores[0]
        return task

    @property
    def file_names(self) -> dict[str, list[str]]:
        """The folder, or the name on the hub."""
        name = str(self._source) if self._hub is not None else Path(self._source or "").name
        return {"train": [name]} if name else {}

    def labelled(self, source: Source, **options: Any) -> list[Example]:
        """The first dev part of a folder, or the rows of an official training or dev file."""
        (one,) = (
            [source] if isinstance(source, (str, Path)) else source if len(source) == 1 else [None]
        )
        if one is None or options:
            raise ConfigError(
                f"{self.name} is scored on one folder or file, without options; give --data alone"
            )
        if not Path(one).is_file():
            task = type(self)(self.name, one)
            examples, self._found = task.read(task.dev[0]), task._found
            return examples
        self._found = Notes()
        return list(_from_file(self.spec, Path(one), False, self._found))

    @classmethod
    def from_data(cls, name: str, data: Source, **options: Any) -> Glue:
        """A task that has a training part."""
        if not isinstance(data, (str, Path)):
            if len(data) != 1:
                raise ConfigError(
                    f"{name} is read from one folder, and {len(data)} are given; name the folder"
                )
            data = data[0]
        task = cls(name, data)
        if not task.spec.dev:
            raise ConfigError(
                f"{name} has no training part; fine-tune mnli, with the folder diagnostic "
                "beside MNLI"
            )
        return task

    def _has(self, part: str) -> bool:
        """Whether an official part can be read; without a source all count."""
        if self._hub is not None:
            return _split(part) in self._hub
        return self._source is None or bool(_places(self.spec, Path(self._source), part))

    def read(self, part: str) -> list[Example]:
        """The examples of train, or of an official dev or test part; `test` is the first of these.

        Raises:
            DataError: a part that the task has not, or a file that is missing or malformed.
            MissingExtraError: `hf:` without the `datasets` library.
        """
        spec, part = self.spec, self._official(part)
        parts = (*["train"] * bool(spec.dev), *spec.dev, *spec.files, *[_AX] * (_AX in self.tests))
        if part not in parts:
            raise DataError(f"{self.name} has no part '{part}'; {nearest(part, parts)}")
        if self._source is None:
            raise DataError(
                f"{self.name} was made without data to read; give the folder of {spec.folder}"
            )
        self._found = Notes()
        if self._hub is not None:
            return list(_from_datasets(spec, self._hub, str(self._source), part, self._found))
        if part == _AX:
            examples, self._found = self._ax.read("test"), self._ax._found
            return examples
        paths = _places(spec, Path(self._source), part)
        if not paths:
            raise DataError(
                f"{self._source} holds no {_file_of(spec, part)}; give the folder of "
                f"{spec.folder} with its official "
                "files, or the one above it"
            )
        examples = list(_from_file(spec, paths[0], part in spec.files, self._found))
        if not examples:
            raise DataError(f"{paths[0]} holds no examples; fetch the file again")
        return examples

    def file_name(self, part: str) -> str:
        """What the GLUE site wants the predictions of a test part to be called; PART.tsv for any
        other part.
        """
        part = self._official(part)
        if part == _AX:
            return GLUE[_AX].submissions[0]
        if part not in self.spec.files:
            return f"{part}.tsv"
        names = self.spec.submissions or (f"{self.spec.folder}.tsv",)
        return names[list(self.spec.files).index(part)]

    def write(self, examples: Sequence[Example], answers: Sequence[Answer], path: Path) -> None:
        """A submission: `index` and `prediction`, tab-separated; numbers from 0 to 5 with three
        decimals.
        """
        with atomic_text(path) as file:
            file.write("index\tprediction\n")
            for example, answer in zip(examples, answers, strict=True):
                value = answer.value
                said = f"{min(max(value, 0.0), 5.0):.3f}" if isinstance(value, float) else value
                file.write(f"{example.name}\t{said}\n")

    def _official(self, part: str) -> str:
        return next(iter(self.spec.files)) if part == "test" else part


# ----------------------------------------------------------------------------------- official files


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")


def _file_of(spec: Spec, part: str) -> str:
    return spec.files.get(part, f"{part}.tsv")


def _places(spec: Spec, folder: Path, part: str) -> list[Path]:
    """Where a part's file is: in the task's folder below, else in the folder itself."""
    below = sorted(
        child
        for child in folder.iterdir()
        if child.is_dir() and _plain(child.name) == _plain(spec.folder)
    )
    paths = [place / _file_of(spec, part) for place in (*below, folder)]
    return [path for path in paths if path.is_file()]


def _from_file(spec: Spec, path: Path, test: bool, found: Notes) -> Iterator[Example]:
    texts = spec.test_texts if test else spec.texts
    width = count = 0
    for number, line in read_lines(path, found):
        if not line:
            found["blank lines were passed over"] += 1
            continue
        row = line.split("\t")
        if width == 0:
            width = len(row)
            places = (*texts, *(() if test else (spec.label,)))
            if width < max(place + 1 if place >= 0 else -place for place in places):
                raise DataError(
                    f"{path}:{number} has {width} columns, too few for {spec.folder}; put "
                    "tabs between them"
                )
            if test or spec.header:
                if not _is_example(spec, row, test):
                    continue
                found["the header is missing, so the first line was read as an example"] += 1
        if len(row) != width:
            if spec.skips and not test:
                found["rows with a wrong number of columns were passed over"] += 1
                continue
            raise DataError(
                f"{path}:{number} has {len(row)} columns where the first line has {width}; "
                "fix the row"
            )
        pair = row[texts[1]] if len(texts) > 1 else None
        label = None if test else _label(spec, row[spec.label], f"{path}:{number}")
        yield Example(row[texts[0]], pair, label, row[_INDEX] if test else str(count))
        count += 1


def _is_example(spec: Spec, row: Sequence[str], test: bool) -> bool:
    """Whether a first line is an example: it has an index, or a label."""
    if test:
        return row[_INDEX].isdigit()
    try:
        _label(spec, row[spec.label], "")
    except DataError:
        return False
    return True


def _label(spec: Spec, said: str, place: str) -> Label:
    if spec.labels:
        if said not in spec.labels:
            known = ", ".join(spec.labels)
            raise DataError(
                f"{place} has the label {format_value(said)}, which is not one of {known}; "
                "fix the row"
            )
        return spec.labels.index(said)
    try:
        number = float(said)
    except ValueError:
        number = math.nan
    if not 0 <= number <= 5:
        raise DataError(
            f"{place} has the score {format_value(said)}, which is not a number from 0 to 5; "
            "fix the row"
        )
    return number


# --------------------------------------------------------------------------- the `datasets` library


def _from_datasets(
    spec: Spec, hub: Mapping[str, Any], name: str, part: str, found: Notes
) -> Iterator[Example]:
    if _split(part) not in hub:
        raise DataError(
            f"{name} has no split '{_split(part)}' among {', '.join(hub)}; give a copy of {HUB}"
        )
    data = hub[_split(part)]
    names = getattr(data.features.get("label"), "names", None)
    test = part in spec.files
    wanted = spec.columns if test else (*spec.columns, "label")
    for column in wanted:
        if column not in data.column_names:
            raise DataError(
                f"{name} has no column '{column}'; give a copy of {HUB} with its columns"
            )
    batches = data.select_columns(list(wanted)).iter(batch_size=1000)
    rows = (
        row for batch in batches for row in zip(*(batch[column] for column in wanted), strict=True)
    )
    for index, row in enumerate(rows):
        place = f"{name} {part} row {index + 1}"
        texts = [
            clean(require_text(row[i], column, place), found)
            for i, column in enumerate(spec.columns)
        ]
        label = None if test else _hub_label(spec, row[-1], names, place)
        yield Example(texts[0], texts[1] if len(texts) > 1 else None, label, str(index))


def _hub_label(spec: Spec, said: Any, names: Sequence[str] | None, place: str) -> Label:
    """By name, never by number: the hub's order of MNLI is not the official one."""
    if names is None or not isinstance(said, int):
        return _label(spec, str(said), place)
    if not 0 <= said < len(names):
        raise DataError(f"{place} has the label {said}, which has no name; give a part with labels")
    ours = dict(zip(spec.names or spec.labels, spec.labels, strict=True))
    return _label(spec, ours.get(names[said], names[said]), place)


def _split(part: str) -> str:
    """What the hub calls a part."""
    return part.replace("dev", "validation")


def _opened(name: str, task: str) -> Mapping[str, Any]:
    """The splits of a dataset by name."""
    repository, _, config = name.partition(":")
    if repository.partition("/")[0] == "glue" and not is_dataset_folder(
        name
    ):  # as people know it: glue, glue/sst2
        name = f"{HUB}:{config or repository.partition('/')[2] or task}"
    data = open_dataset(name, task)
    if not isinstance(data, dict):
        raise DataError(f"hf:{name} is one split without a name; give a copy of {HUB}")
    return data
