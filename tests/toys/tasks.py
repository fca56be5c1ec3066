"""Tasks with their files, which remember their notes, for tests that read, encode and score.

A test names the class of a task, `Table(train, dev)`, and gets its files with the task that they
decide. All that the files do not have is the task's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from litebert.tasks import choices, glue, pairs, race, table
from litebert.tasks.registry import open_task
from litebert.tasks.squad import task as squad
from litebert.tasks.tagging import task as tagging
from litebert.tasks.task import Row, Task, TaskFiles
from litebert.text.records import Notes

SPLITS = ("train", "dev", "test")
# To a type checker it is both the files and their task, as it is to the code that it is given to.
_FilesAndTask: Any = Any if TYPE_CHECKING else object


class Opened(_FilesAndTask):  # type: ignore[misc]
    """The files of a task, as `finetune` takes them, with its last notes."""

    def __init__(self, files: TaskFiles[Any] | None, task: Task[Any] | None = None) -> None:
        self.opened, self._notes = files, Notes()
        self._task = task

    @property
    def task(self) -> Task[Any]:
        task = self._task if self.opened is None else self.opened.task
        assert task is not None
        return task

    @property
    def file_names(self) -> dict[str, list[str]]:
        assert self.opened is not None
        return self.opened.file_names

    @property
    def notes(self) -> list[str]:
        """The notes since the last reading."""
        return self._notes.notes()

    def read(self, split: str, notes: Notes | None = None) -> list[Any]:
        assert self.opened is not None
        self._notes = Notes() if notes is None else notes
        return self.opened.read(split, self._notes)

    def encode(self, examples: Any, tokenizer: Any, length: int) -> list[Any]:
        return self.task.encode(examples, tokenizer, length, self._notes)

    def stream(self, source: Any, **columns: Any) -> Iterator[Row[Any]]:
        self._notes = Notes()
        return self.task.files.stream(source, self._notes, **columns)

    def open_labeled(self, source: Any, **options: Any) -> Opened:
        return Opened(self.task.files.open_labeled(self.task, source, **options))

    @property
    def remarks(self) -> Any:
        assert self.opened is not None
        return self.opened.remarks

    @property
    def unlabeled(self) -> Any:
        assert self.opened is not None
        return self.opened.unlabeled

    def with_task(self, task: Any) -> Opened:
        assert self.opened is not None
        return Opened(self.opened.with_task(task))

    def with_unlabeled(self, examples: Any) -> Opened:
        assert self.opened is not None
        return Opened(self.opened.with_unlabeled(examples))

    def __getattr__(self, name: str) -> Any:
        if "opened" not in vars(self):  # a copy that is being made
            raise AttributeError(name)
        return getattr(self.task, name)


def _open_files(files: Any, *data: Any, **options: Any) -> Any:
    """The files of the splits in order or by their names."""
    named = {name: options.pop(name) for name in SPLITS if name in options}
    sources = dict(zip(SPLITS, data, strict=False)) | named
    given = {name: source for name, source in sources.items() if source is not None}
    return files.of(given, **options)


def _open_splits(files: Any, data: Any = None, **options: Any) -> Any:
    """The files of each split by its name, or of a folder."""
    if data is None or isinstance(data, Mapping):
        return _open_files(files, **(data or {}), **options)
    return files.open(None, "", data, **options)


class Table(Opened):
    def __init__(self, *files: Any, **options: Any) -> None:
        super().__init__(_open_files(table.TableFiles, *files, **options))


class Squad(Opened):
    def __init__(self, **options: Any) -> None:
        super().__init__(_open_files(squad.SquadFiles, **options))


class ChoiceTask(Opened):
    def __init__(self, *data: Any, **options: Any) -> None:
        super().__init__(_open_splits(choices.ChoiceFiles, *data, **options))


class TaggingTask(Opened):
    def __init__(self, data: Any, **options: Any) -> None:
        super().__init__(_open_splits(tagging.TaggingFiles, data, **options))


class Pairs(Opened):
    def __init__(self, *files: Any, **options: Any) -> None:
        super().__init__(_open_files(pairs.PairFiles, *files, **options))


class RaceTask(Opened):
    def __init__(self, folder: str | Path | None = None, **options: Any) -> None:
        if folder is None:
            super().__init__(None, race.RaceTask(vars(race)["OneChoice"](), **options))
        else:
            super().__init__(race.RaceFiles.open(race.RaceTask, "race", folder, **options))


class Glue(Opened):
    def __init__(self, name: str, source: str | Path | None = None) -> None:
        task = glue.Glue.of(name)
        super().__init__(None if source is None else glue.GlueFiles(task, source), task)


_CLASSES: dict[type[TaskFiles[Any]], type[Opened]] = {
    table.TableFiles: Table,
    squad.SquadFiles: Squad,
    choices.ChoiceFiles: ChoiceTask,
    tagging.TaggingFiles: TaggingTask,
    pairs.PairFiles: Pairs,
    race.RaceFiles: RaceTask,
    glue.GlueFiles: Glue,
}


def task_of(name: str, data: Any, **options: Any) -> Any:
    """Open the files of a task by its name."""
    files = open_task(name, data, **options)
    opened = object.__new__(_CLASSES.get(type(files), Opened))
    Opened.__init__(opened, files)
    return opened
