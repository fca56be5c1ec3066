"""A task from what a person names: a benchmark and its folder, or a table and its columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from litebert.errors import ConfigError, nearest
from litebert.tasks.choices import ChoiceTask
from litebert.tasks.glue import GLUE, glue_name
from litebert.tasks.glue import Glue as GlueTask
from litebert.tasks.parts import part_files
from litebert.tasks.race import RaceTask
from litebert.tasks.squad import Squad
from litebert.tasks.table import Table, Target
from litebert.tasks.tagging import TaggingTask
from litebert.tasks.task import Task

OTHERS = ("table", "squad", "race", "choices", "tagging")
Order = Literal["context", "question"]


def task_of(
    name: str,
    data: str | Path,
    *,
    dev: str | Path | None = None,
    test: str | Path | None = None,
    text: str = "text",
    pair: str | None = None,
    label: str = "label",
    target: Target = "auto",
    separator: str | None = None,
    metric: str | None = None,
    order: Order = "context",
) -> Task[Any]:
    """The task of a name.

    Args:
        name: a GLUE task (sst2, SST-2, ...), squad, race, choices, tagging, or table.
        data: the folder of the benchmark; or the training file, with `dev` and `test` beside it.
        text, pair, label, target, separator, metric: of a table, as `Table` takes them.
        order: of multiple choice: the context first, as in ALBERT, or the question, as in RoBERTa.

    Raises:
        ConfigError: there is no such task.
        DataError: a file is missing or malformed.
    """
    if name == "table":
        return Table(
            data, dev, test, text=text, pair=pair, label=label, target=target, separator=separator, metric=metric
        )
    if name in OTHERS:
        named = {"train": data, "dev": dev, "test": test}
        files = {part: Path(path) for part, path in named.items() if path is not None}
        if Path(data).is_dir() and name != "race":
            files = part_files(data) | {part: path for part, path in files.items() if part != "train"}
        if name == "choices":
            return ChoiceTask(files, order=order)
        if name == "tagging":
            return TaggingTask(files)
        if name == "race":
            _refuse(name, dev, test)
            return RaceTask(data, order=order)
        return Squad(train=files.get("train"), dev=files.get("dev"), test=files.get("test"))
    try:
        name = glue_name(name)
    except ConfigError:
        raise ConfigError(f"there is no task '{name}'; {nearest(name, (*GLUE, *OTHERS))}") from None
    _refuse(name, dev, test)
    return GlueTask(name, data)


def _refuse(name: str, *files: str | Path | None) -> None:
    if any(file is not None for file in files):
        raise ConfigError(f"the files of {name} are those of its folder; leave dev and test out")


def recipe_key(task: Task[Any]) -> str:
    """What the hyper-parameters of `finetuning.POINTS` call a task."""
    if isinstance(task, Squad):
        return f"squad{task.version}"
    return task.name
