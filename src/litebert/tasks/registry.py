"""Make a task from its name and its files, or restore the task of a saved model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from litebert.base.errors import ConfigError, ModelError
from litebert.base.registry import TASKS
from litebert.remote.names import require_local
from litebert.tasks.outputs import restore_output
from litebert.tasks.splits import Source
from litebert.tasks.task import Task, TaskFiles


def open_task(name: str, data: Source, **options: Any) -> TaskFiles[Any]:
    """Open the files of a task, with its options. An option that is None keeps the task's default.

    Args:
        name: a GLUE task (sst2, SST-2, ...), squad, race, choices, tagging, or table; or a
            registered task of yours.
        data: the folder of the benchmark; or the training split, with `dev` and `test` as options.
            A split is a file, several files, a folder of them or a pattern.
        options: the options of the task, as its `options` describe them; `dev` and `test` as
            `data`, and `header` False for files without one.

    Raises:
        ConfigError: there is no such task, or it does not take an option.
        DataError: a file is missing or malformed.
    """
    set_options = {option: value for option, value in options.items() if value is not None}
    name, task_class = find_task(name)
    for option in set_options:
        require_option(name, option)
    if {"dev", "heldout"} <= set_options.keys():
        raise ConfigError(
            "heldout is a share of the training split to use as dev, which is given too; "
            "leave out heldout or dev"
        )
    if isinstance(data, (str, Path)):
        require_local(data, any_bytes=True)
    files: TaskFiles[Any] = task_class.files.open(task_class, name, data, **set_options)
    return files


def find_task(name: str) -> tuple[str, type[Task[Any]]]:
    """Return the registered name of a task, which people write in several ways, and the task."""
    plain_name = str(name).lower().replace("-", "").replace("_", "")
    if name not in TASKS and plain_name in TASKS:
        name = plain_name
    return name, TASKS[name]


def list_takers(option: str) -> list[str]:
    return [name for name in TASKS if option in TASKS[name].options.list_names()]


def require_option(name: str, option: str) -> None:
    """Refuse an option that a task does not take, and name the tasks that take it."""
    if option in TASKS[name].options.list_names():
        return
    if option in ("dev", "test"):
        raise ConfigError(
            f"{option} is not an option of {name}, whose files come from its folder; leave it out"
        )
    takers = " and ".join(list_takers(option)) or "no task"
    raise ConfigError(
        f"{option} is an option of {takers}, which {name} does not take; leave it out"
    )


def restore_task(settings: Mapping[str, Any], folder: Path) -> Task[Any]:
    """Return the task that a model was fine-tuned for, without its files and before
    `Task.complete`: the one its task.json in `folder` names, or else the usual task of its output.
    """
    name = str(settings.get("task"))
    task_class = TASKS[name if name in TASKS else restore_output(settings).task]
    for key, value in settings.items():
        if wanted := _describe_wanted(key, value, task_class.usual):
            raise ModelError(f"{folder / 'task.json'} has {key} {value!r}; it must be {wanted}")
    task: Task[Any] = task_class.from_settings(settings)
    return replace(task, apart=settings.get("pooling") == "apart")


def _describe_wanted(key: str, value: Any, usual: Mapping[str, Any]) -> str:
    if key == "columns":
        return "" if _are_columns(value) else "a name for each of text, pair and label"
    if key == "vectors":
        return "" if isinstance(value, Mapping) else "an object with pooling and normalized"
    if key in ("pair", "header"):
        return "" if isinstance(value, bool) or value is None else "true or false"
    if key in ("separator", "metric"):
        return "" if isinstance(value, str) or value is None else "a text"
    if key not in usual:
        return ""
    default = usual[key]
    if default is None:  # a number that may be absent
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return "" if value is None or is_number else "a number or null"
    types = (int, float) if isinstance(default, float) else (type(default),)
    # A bool is an int in Python, but true is no number in a file.
    both_bool = isinstance(value, bool) == isinstance(default, bool)
    return "" if isinstance(value, types) and both_bool else f"of the type of {default!r}"


def _are_columns(value: Any) -> bool:
    if value is None:
        return True
    if not isinstance(value, Mapping):
        return False
    names = [*value.values()]
    if isinstance(value.get("label"), list):  # a column for each label
        names = [*value["label"], *(name for key, name in value.items() if key != "label")]
    return all(isinstance(name, str | None) for name in names)
