"""GLUE (Wang et al. 2019, arXiv:1804.07461): ten tasks, their official files and submissions.

Columns, label orders and the deciding score are those of the official ALBERT code
(classifier_utils.py), which accepts whatever a column holds. Here a row of a wrong width and an
unknown label are refused; only QQP has broken rows in its official files, skipped and counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

from litebert.base.errors import ConfigError, DataError, nearest
from litebert.base.storage import atomic_text
from litebert.tasks.label_cells import parse_number
from litebert.tasks.outputs import restore_output
from litebert.tasks.splits import Source, require_one
from litebert.tasks.task import Task, TaskFiles
from litebert.tasks.text_outputs import Number, OneClass
from litebert.tasks.texts import Example, Label, TextTask, stream_texts
from litebert.tasks.values import Answer
from litebert.text.records import Notes, clean, format_value, read_lines, require_text
from litebert.text.sources import is_dataset_folder, open_dataset

_BINARY = ("0", "1")
_ENTAILS = ("entailment", "not_entailment")
_THREE_WAY = ("contradiction", "entailment", "neutral")
_ACCURACY = ("accuracy",)
_SENTENCES, _PREMISE = ("sentence1", "sentence2"), ("premise", "hypothesis")
_INDEX = 0
"""The column of the index in every test file."""
HUB = "nyu-mll/glue"
"""The name of GLUE on the Hugging Face hub."""


@dataclass(frozen=True)
class Spec:
    """The facts about a task of GLUE. Columns count from 0, negative ones from the end."""

    folder: str
    """The folder of its files in the official archive; also its name in a submission."""
    texts: tuple[int, ...]
    """Columns of the one or two texts in train and dev files."""
    label: int
    labels: tuple[str, ...]
    """Its labels in the order of the logits; empty for numbers from 0 to 5."""
    scores: tuple[str, ...]
    """Its scores; the first chooses checkpoints."""
    columns: tuple[str, ...]
    """Names of the texts in the `datasets` version."""
    test_texts: tuple[int, ...] = (1, 2)
    names: tuple[str, ...] = ()
    """The names of `labels` in the `datasets` version, in the same order; () for `labels`."""
    header: bool = True
    """True if train and dev files have a header line; test files always do."""
    skips: bool = False
    """True if rows of a wrong width are skipped in train and dev."""
    dev: tuple[str, ...] = ("dev",)
    files: Mapping[str, str] = field(default_factory=lambda: {"test": "test.tsv"})
    """The file of each test split."""
    submissions: tuple[str, ...] = ()
    """Names of the submissions by test split; () for FOLDER.tsv."""


GLUE: Mapping[str, Spec] = MappingProxyType(
    {
        "cola": Spec(
            *("CoLA", (3,), 1, _BINARY, ("matthews", "accuracy"), ("sentence",), (1,)),
            names=("unacceptable", "acceptable"),
            header=False,
        ),
        "sst2": Spec(
            *("SST-2", (0,), 1, _BINARY, _ACCURACY, ("sentence",), (1,)),
            names=("negative", "positive"),
        ),
        "mrpc": Spec(
            *("MRPC", (3, 4), 0, _BINARY, ("accuracy", "f1"), _SENTENCES, (3, 4)),
            names=("not_equivalent", "equivalent"),
        ),
        # Columns count from the end, as in ELECTRA's code.
        "stsb": Spec("STS-B", (-3, -2), -1, (), ("pearson", "spearman"), _SENTENCES, (-2, -1)),
        "qqp": Spec(
            *("QQP", (3, 4), 5, _BINARY, ("accuracy", "f1"), ("question1", "question2")),
            names=("not_duplicate", "duplicate"),
            skips=True,
        ),
        "mnli": Spec(
            *("MNLI", (8, 9), -1, _THREE_WAY, _ACCURACY, _PREMISE, (8, 9)),
            dev=("dev_matched", "dev_mismatched"),
            files={"test_matched": "test_matched.tsv", "test_mismatched": "test_mismatched.tsv"},
            submissions=("MNLI-m.tsv", "MNLI-mm.tsv"),
        ),
        "qnli": Spec("QNLI", (1, 2), -1, _ENTAILS, _ACCURACY, ("question", "sentence")),
        "rte": Spec("RTE", (1, 2), -1, _ENTAILS, _ACCURACY, _SENTENCES),
        "wnli": Spec(
            *("WNLI", (1, 2), -1, _BINARY, _ACCURACY, _SENTENCES),
            names=("not_entailment", "entailment"),
        ),
        "ax": Spec(
            *("diagnostic", (), -1, _THREE_WAY, ("matthews", "accuracy"), _PREMISE),
            dev=(),
            files={"test": "diagnostic.tsv"},
            submissions=("AX.tsv",),
        ),
    }
)
"""Name -> task. `ax` has a test split only, which `mnli` answers too if the file exists."""
_AX = "ax"


class GlueFiles(TaskFiles[Example]):
    """The official files of a task of GLUE in a folder, or a copy in the `datasets` library."""

    task: Glue
    stream = staticmethod(stream_texts)

    def __init__(self, task: Glue, source: str | Path) -> None:
        """Find the splits of a task.

        `source` is the task's folder or the folder above it; `hf:glue` for the hub,
        `hf:NAME[:CONFIG]` for a copy there, `hf:FOLDER` for a dataset that `datasets` saved; or an
        official train or dev file, to score a model on. `tests`, and all but the first of `dev`,
        hold only splits whose file exists.
        """
        self._spec, self._source = task.spec, source
        self._hub = _open_hub(str(source)[3:], task.name) if str(source).startswith("hf:") else None
        folder = Path(source)
        if self._hub is None and folder.is_file():
            self.task = replace(task, dev=task.spec.dev[:1] or ("dev",))
            return
        if self._hub is None and not folder.is_dir():
            raise DataError(
                f"{source} is not a folder; give the folder {self._spec.folder}, "
                "or the folder above it"
            )
        dev, tests = self._spec.dev, tuple(split for split in self._spec.files if self._has(split))
        dev = dev[:1] + tuple(split for split in dev[1:] if self._has(split))
        if task.name == "mnli" and self._hub is None:
            folder = folder.resolve()
            is_task_folder = _normalize(folder.name) == _normalize(self._spec.folder)
            self._ax = GlueFiles(Glue.of(_AX), folder.parent if is_task_folder else source)
            if self._ax.task.tests:
                tests += (_AX,)
        self.task = replace(task, dev=dev, tests=tests)

    @classmethod
    def open(
        cls, task_class: type[Task[Example]], name: str, data: Source, **options: Any
    ) -> GlueFiles:
        assert issubclass(task_class, Glue)
        folder = require_one(data, name)
        if Path(folder).is_file():
            raise DataError(
                f"{folder} is not a folder; give the folder {task_class.of(name).spec.folder}, or "
                "the folder above it"
            )
        files = cls(task_class.of(name), folder)
        if not files.task.spec.dev:
            raise ConfigError(
                f"{name} has no training split; fine-tune mnli, with the folder diagnostic "
                "next to MNLI"
            )
        return files

    @classmethod
    def open_labeled(cls, task: Task[Example], source: Source, **options: Any) -> GlueFiles:
        """Open the first dev split of a folder, or the rows of an official train or dev file."""
        assert isinstance(task, Glue)
        if options:
            raise ConfigError(
                f"{task.name} is scored on one folder or file, without options; give --data alone"
            )
        return cls(task, require_one(source, task.name))

    @property
    def file_names(self) -> dict[str, list[str]]:
        """The folder, or the name on the hub."""
        if self._hub is None and Path(self._source).is_file():
            return {}
        name = str(self._source) if self._hub is not None else Path(self._source).name
        return {"train": [name]} if name else {}

    def _has(self, split: str) -> bool:
        if self._hub is not None:
            return _name_hub_split(split) in self._hub
        return bool(_find_files(self._spec, Path(self._source), split))

    def read(self, split: str, notes: Notes | None = None) -> list[Example]:
        """Read a split; `test` is the first test split. A single file has one split."""
        notes, spec, source = Notes() if notes is None else notes, self._spec, Path(self._source)
        if self._hub is None and source.is_file():
            return list(_read_file(spec, source, False, notes))
        split = name_official_split(spec, split)
        splits = ["train"] * bool(spec.dev) + [*spec.dev, *spec.files]
        splits += [_AX] * (_AX in self.task.tests)
        if split not in splits:
            raise DataError(f"{self.task.name} has no split '{split}'; {nearest(split, splits)}")
        if self._hub is not None:
            return list(_read_dataset(spec, self._hub, str(self._source), split, notes))
        if split == _AX:
            return self._ax.read("test", notes)
        paths = _find_files(spec, source, split)
        if not paths:
            raise DataError(
                f"{self._source} holds no {_name_file(spec, split)}; give the folder "
                f"{spec.folder} with its official files, or the folder above it"
            )
        examples = list(_read_file(spec, paths[0], split in spec.files, notes))
        if not examples:
            raise DataError(f"{paths[0]} holds no examples; fetch the file again")
        return examples


@dataclass(frozen=True)
class Glue(TextTask):
    """A task of GLUE. A task with files of the same form is a subclass with other `specs`."""

    specs: ClassVar[Mapping[str, Spec]] = GLUE
    files = GlueFiles
    spec: Spec = GLUE["sst2"]

    @property
    def name(self) -> str:  # type: ignore[override]
        """Its name among `specs`."""
        return next(name for name, spec in self.specs.items() if spec is self.spec)

    @classmethod
    def of(cls, name: str) -> Glue:
        if name not in cls.specs:
            raise ConfigError(f"there is no GLUE task '{name}'; {nearest(name, cls.specs)}")
        spec = cls.specs[name]
        output = OneClass(spec.labels) if spec.labels else Number()
        task = cls(output, pair=len(spec.columns) == 2, score_names=spec.scores, spec=spec)
        return replace(task, dev=spec.dev, tests=tuple(spec.files))

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> TextTask:
        name = str(settings.get("task"))
        output, pair = restore_output(settings), settings.get("pair")
        if name not in cls.specs:
            return cls(output, pair=pair)
        spec = cls.specs[name]
        return cls(output, pair=pair, score_names=spec.scores, spec=spec)

    def file_name(self, split: str) -> str:
        """Name the predictions file of a test split as the GLUE site asks for; else SPLIT.tsv."""
        split = name_official_split(self.spec, split)
        if split == _AX:
            return GLUE[_AX].submissions[0]
        if split not in self.spec.files:
            return f"{split}.tsv"
        names = self.spec.submissions or (f"{self.spec.folder}.tsv",)
        return names[list(self.spec.files).index(split)]

    def write(self, examples: Sequence[Example], answers: Sequence[Answer], path: Path) -> None:
        """Write `index` and `prediction`, tab-separated; numbers in [0, 5] with three decimals."""
        with atomic_text(path) as file:
            file.write("index\tprediction\n")
            for example, answer in zip(examples, answers, strict=True):
                prediction = answer.value
                if isinstance(prediction, float):
                    prediction = f"{min(max(prediction, 0.0), 5.0):.3f}"
                file.write(f"{example.name}\t{prediction}\n")


def name_official_split(spec: Spec, split: str) -> str:
    return next(iter(spec.files)) if split == "test" else split


# ----------------------------------------------------------------------------------- official files


def _normalize(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")


def _name_file(spec: Spec, split: str) -> str:
    return spec.files.get(split, f"{split}.tsv")


def _find_files(spec: Spec, folder: Path, split: str) -> list[Path]:
    below = sorted(
        child
        for child in folder.iterdir()
        if child.is_dir() and _normalize(child.name) == _normalize(spec.folder)
    )
    paths = [parent / _name_file(spec, split) for parent in (*below, folder)]
    return [path for path in paths if path.is_file()]


def _read_file(spec: Spec, path: Path, test: bool, notes: Notes) -> Iterator[Example]:
    texts = spec.test_texts if test else spec.texts
    width = count = 0
    for number, line in read_lines(path, notes):
        if not line:
            notes["blank lines were skipped"] += 1
            continue
        row, location = line.split("\t"), f"{path}:{number}"
        if width == 0:
            width = len(row)
            columns = texts if test else (*texts, spec.label)
            if width < max(column + 1 if column >= 0 else -column for column in columns):
                raise DataError(
                    f"{location} has {width} columns, too few for {spec.folder}; put tabs between "
                    "them"
                )
            if test or spec.header:
                # A line with an index or a label is an example, and no header.
                try:
                    is_example = test or _parse_label(spec, row[spec.label], "") is not None
                except DataError:
                    is_example = False
                if not (row[_INDEX].isdigit() if test else is_example):
                    continue
                notes["the header is missing, so the first line was read as an example"] += 1
        if len(row) != width:
            if spec.skips and not test:
                notes["rows with a wrong number of columns were skipped"] += 1
                continue
            raise DataError(
                f"{location} has {len(row)} columns where the first line has {width}; fix the row"
            )
        pair = row[texts[1]] if len(texts) > 1 else None
        label = None if test else _parse_label(spec, row[spec.label], location)
        yield Example(row[texts[0]], pair, label, row[_INDEX] if test else str(count))
        count += 1


def _parse_label(spec: Spec, cell: str, location: str) -> Label:
    if spec.labels:
        if cell not in spec.labels:
            labels = ", ".join(spec.labels)
            raise DataError(
                f"{location} has the label {format_value(cell)}, which is not one of {labels}; "
                "fix the row"
            )
        return spec.labels.index(cell)
    number = parse_number(cell)
    if number is None or not 0 <= number <= 5:
        raise DataError(
            f"{location} has the score {format_value(cell)}, which is not a number from 0 to 5; "
            "fix the row"
        )
    return number


# --------------------------------------------------------------------------- the `datasets` library


def _read_dataset(
    spec: Spec, hub: Mapping[str, Any], name: str, split: str, notes: Notes
) -> Iterator[Example]:
    """Read a split of a dataset from the `datasets` library, whose splits are `hub`.

    Labels are read by their names, because the hub's order of MNLI's labels is not the official
    one.
    """
    hub_split = _name_hub_split(split)
    if hub_split not in hub:
        raise DataError(
            f"{name} has no split '{hub_split}' among {', '.join(hub)}; give a copy of {HUB}"
        )
    data, test = hub[hub_split], split in spec.files
    names = getattr(data.features.get("label"), "names", None)
    label_of_name = dict(zip(spec.names or spec.labels, spec.labels, strict=True))
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
        location = f"{name} {split} row {index + 1}"
        texts = [
            clean(require_text(row[i], column, location), notes)
            for i, column in enumerate(spec.columns)
        ]
        label: Label | None = None
        if not test:
            value = row[-1]
            if names is not None and isinstance(value, int):
                if not 0 <= value < len(names):
                    raise DataError(
                        f"{location} has the label {value}, which has no name; give a split with "
                        "labels"
                    )
                value = label_of_name.get(names[value], names[value])
            label = _parse_label(spec, str(value), location)
        yield Example(texts[0], texts[1] if len(texts) > 1 else None, label, str(index))


def _name_hub_split(split: str) -> str:
    return split.replace("dev", "validation")


def _open_hub(name: str, task: str) -> Mapping[str, Any]:
    repository, _, config = name.partition(":")
    # People write glue and glue/sst2, which are no repositories on the hub today.
    if repository.partition("/")[0] == "glue" and not is_dataset_folder(name):
        name = f"{HUB}:{config or repository.partition('/')[2] or task}"
    data = open_dataset(name, task)
    if not isinstance(data, dict):
        raise DataError(f"hf:{name} is one split without a name; give a copy of {HUB}")
    return data
