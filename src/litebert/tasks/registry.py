"""A task from what a person names: a benchmark and its folder, or a table and its columns; or from a saved model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from litebert.errors import ConfigError
from litebert.finetuning.outputs import saved_output
from litebert.finetuning.task import Task
from litebert.registry import TASKS
from litebert.tasks.parts import Source


def task_of(name: str, data: Source, **options: Any) -> Task[Any]:
    """The task of a name. An option that is None is as the task has it by default.

    Args:
        name: a GLUE task (sst2, SST-2, ...), squad, race, choices, tagging, or table; or one of yours.
        data: the folder of the benchmark; or the training part, with `dev` and `test` beside it. A part is a file,
            several files, a folder of them or a pattern.
        options: dev and test, of table, squad, choices and tagging; text, pair, label, target, separator and metric, as
            `Table` takes them; order of choices and race, as `ChoiceTask` takes it; threshold, stride, answer_tokens,
            question_tokens and answer_unit of squad, as `Squad` takes them; heldout, the share of the training part
            that takes the place of a dev part; encoding, input_format and header (False: there is none) of files.

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
            raise ConfigError(f"{option} is not an option of {name}, whose files are those of its folder; leave it out")
        takers = " and ".join(taker for taker in TASKS if option in TASKS[taker].takes) or "no task"
        raise ConfigError(f"{option} is an option of {takers}, which {name} does not take; leave it out")
    if {"dev", "heldout"} <= given.keys():
        raise ConfigError("heldout is a share of the training part to use as dev, which is given too; leave one out")
    task: Task[Any] = kind.from_data(name, data, **given)
    return task


def saved_task(settings: Mapping[str, Any], folder: Path) -> Task[Any]:
    """The task a model was fine-tuned for, without its files: the one its folder names, or the usual one of its output.

    Args:
        settings: what a task.json holds: the `kind` of the head and the number of its `classes` at least.
        folder: of the model.

    Raises:
        ModelError: no task has such a head, or a file that it needs is missing or damaged.
    """
    name = str(settings.get("task"))
    restored: Task[Any] = TASKS[name if name in TASKS else saved_output(settings).task].from_settings(settings)
    return restored.opened(folder)
