"""A task from what a person names: a benchmark and its folder, or a table and its columns; or from
a saved model.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from litebert.errors import ConfigError, ModelError
from litebert.finetuning.outputs import saved_output
from litebert.finetuning.task import Task
from litebert.registry import TASKS
from litebert.tasks.parts import Source


def task_of(name: str, data: Source, **options: Any) -> Task[Any]:
    """The task of a name. An option that is None is as the task has it by default.

    Args:
        name: a GLUE task (sst2, SST-2, ...), squad, race, choices, tagging, or table; or one of
            yours.
        data: the folder of the benchmark; or the training part, with `dev` and `test` beside it. A
            part is a file, several files, a folder of them or a pattern.
        options: dev and test, of table, squad, choices and tagging; text, pair, label, target,
            separator and metric, as `Table` takes them; order of choices and race, as `ChoiceTask`
            takes it; threshold, stride, answer_tokens, question_tokens and answer_unit of squad, as
            `Squad` takes them; heldout, the share of the training part that takes the place of a
            dev part; encoding, input_format and header (False: there is none) of files.

    Raises:
        ConfigError: there is no such task, or it does not take an option that is given.
        DataError: a file is missing or malformed.
    """
    given = {option: value for option, value in options.items() if value is not None}
    plain = name.lower().replace("-", "").replace("_", "")
    if name not in TASKS and plain in TASKS:
        name = plain
    kind = TASKS[name]
    for option in given:
        if option in kind.takes:
            continue
        if option in ("dev", "test"):
            raise ConfigError(
                f"{option} is not an option of {name}, whose files are those of its "
                "folder; leave it out"
            )
        takers = " and ".join(taker for taker in TASKS if option in TASKS[taker].takes) or "no task"
        raise ConfigError(
            f"{option} is an option of {takers}, which {name} does not take; leave it out"
        )
    if {"dev", "heldout"} <= given.keys():
        raise ConfigError(
            "heldout is a share of the training part to use as dev, which is given too; "
            "leave one out"
        )
    task: Task[Any] = kind.from_data(name, data, **given)
    return task


def saved_task(settings: Mapping[str, Any], folder: Path) -> Task[Any]:
    """The task a model was fine-tuned for, without its files: the one its folder names, or the
    usual one of its output.

    Args:
        settings: what a task.json holds: the `kind` of the head and the number of its `classes` at
            least.
        folder: of the model.

    Raises:
        ModelError: no task has such a head, a setting is of another kind, or a file is missing or
            damaged.
    """
    name = str(settings.get("task"))
    kind = TASKS[name if name in TASKS else saved_output(settings).task]
    for key, value in settings.items():
        if wanted := _wanted(key, value, kind.usual):
            raise ModelError(f"{folder / 'task.json'} has {key} {value!r}; it must be {wanted}")
    restored: Task[Any] = kind.from_settings(settings)
    return restored.opened(folder)


def _wanted(key: str, value: Any, usual: Mapping[str, Any]) -> str:
    """What a setting of a task must be instead; empty where it is right, or no task reads it.

    Args:
        usual: the defaults of settings that the task of the model has alone.
    """
    if key == "columns":
        names = list(value.values()) if isinstance(value, Mapping) else [value]
        right = value is None or (
            isinstance(value, Mapping) and all(isinstance(name, str | None) for name in names)
        )
        return "" if right else "a name for each of text, pair and label"
    if key == "vectors":
        return "" if isinstance(value, Mapping) else "an object with pooling and normalized"
    if key in _SWITCHES:
        return "" if isinstance(value, bool) or value is None else "true or false"
    if key in _NAMES:
        return "" if isinstance(value, str) or value is None else "a text"
    default = usual.get(key)
    if default is None or key not in usual:  # None: a number that may be absent
        right = (
            key not in usual
            or value is None
            or (isinstance(value, (int, float)) and not isinstance(value, bool))
        )
        return "" if right else "a number or null"
    kinds = (int, float) if isinstance(default, float) else (type(default),)
    right = isinstance(value, kinds) and isinstance(value, bool) == isinstance(default, bool)
    return "" if right else f"of the kind of {default!r}"


_SWITCHES = ("pair", "header")
_NAMES = ("separator", "metric")
