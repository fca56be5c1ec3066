"""The options of a verb that learns a task: beside its arguments, those of the task that --task
names.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, make_dataclass, replace
from typing import Annotated, Any, TypeVar

from litebert.base.errors import require
from litebert.commands import console
from litebert.commands.console import ModelPath
from litebert.commands.options import Arg, ShortForms
from litebert.config.finetuning import FinetuneConfig
from litebert.tasks.task import TaskOptions
from litebert.text.records import TableFormat

CHOSEN = replace(
    FinetuneConfig(length=None, epochs=None, head_reads=None, fit_head=None),
    train=replace(
        (_LOOP := FinetuneConfig().train),
        batch=None,
        optimizer=replace(_LOOP.optimizer, learning_rate=None),
    ),
)
"""What litebert chooses where nothing is given has no default that help could show."""
A = TypeVar("A")
"""The arguments of a verb, a frozen dataclass."""


@dataclass(kw_only=True)
class LabeledFiles:
    """The options that `evaluate` and `export` share: how labeled files are read."""

    model: ModelPath
    text_column: str | None = None
    """Column of the text; by default as in training."""
    pair_column: str | None = None
    """Column of a second text; by default as in training."""
    label_column: tuple[str, ...] = ()
    """Column of the labels, or columns of 0 and 1; by default as in training."""
    separator: str | None = None
    """Separator of several labels in a cell; by default as in training."""
    header: bool | None = None
    """The first line of CSV names the columns; by default as in training."""
    delimiter: str | None = None
    """Delimiter of CSV, such as ; or tab; by default found."""
    input_format: TableFormat | None = None
    """Format of the files; by default the suffix decides."""
    encoding: str | None = None
    """Encoding of the files, such as latin-1; by default utf-8."""

    def reading_options(self) -> dict[str, Any]:
        options = {name: getattr(self, name) for name in READING}
        options["label_column"] = join_source(self.label_column)
        return {name: value for name, value in options.items() if value is not None}


READING = tuple(option.name for option in fields(LabeledFiles) if option.name != "model")


def parse_with_task(
    cls: type[A], words: Sequence[str], verb: str
) -> tuple[A, TaskOptions, list[str]]:
    """Return the arguments of a verb; the options of its task, which is the default of `cls` where
    the words name none; and the other words, which are fields of the recipe.
    """
    task_name, options = _find_task(cls, words)
    with_options = make_dataclass(
        cls.__name__,
        [("options", Annotated[options, Arg(flat=True)], field(default_factory=options))],
        bases=(cls,),
        namespace={"__doc__": cls.__doc__},
        frozen=True,
    )

    def refuse_unknown(name: str) -> None:
        option = name.removeprefix("--").removeprefix("no-").replace("-", "_")
        if list_takers(option):
            require_option(task_name, option)

    from litebert.tasks.registry import list_takers, require_option

    arguments: Any
    arguments, rest = console.parse_known(
        with_options, words, verb, CHOSEN, refuse_unknown=refuse_unknown
    )
    return arguments, arguments.options, arguments.short.expand("--length", rest)


def _find_task(cls: type[Any], words: Sequence[str]) -> tuple[str, type[TaskOptions]]:
    from litebert.tasks.registry import find_task

    value = cls.task
    for place, word in enumerate(words):
        flag, equals, task = word.partition("=")
        task = task if equals else "".join(words[place + 1 : place + 2])
        if flag == "--task" and (equals or task):
            value = task or value
            break
    name, task_class = find_task(value)
    options: type[TaskOptions] = task_class.options
    others = {
        option.name for group in (cls, ShortForms, FinetuneConfig) for option in fields(group)
    }
    for option in fields(options):
        require(
            option.name not in others,
            f"the task {name} has the option {option.name}, and the command has another of "
            "that name; rename the field",
        )
    return name, options


def collect_options(options: TaskOptions, words: Collection[str]) -> dict[str, Any]:
    """Return the options of a task that differ from their defaults or stand among the words, as
    `open_task` takes them. The task refuses what contradicts another option, such as a --heldout
    beside --dev, whatever its value.
    """
    names = {word.removeprefix("--").replace("-", "_") for word in words if word[:2] == "--"}
    typed = {
        option.name: getattr(options, option.name)
        for option in fields(options)
        if option.name in names
    }
    changes = typed | options.collect_changes()
    for split in {"dev", "test"} & changes.keys():
        changes[split] = join_source(changes[split])
    return changes


def join_source(paths: tuple[str, ...]) -> Any:
    return paths[0] if len(paths) == 1 else paths or None


def read_unlabeled(
    task: Any, paths: tuple[str, ...], options: Mapping[str, Any]
) -> list[Any] | None:
    """Read the files of --unlabeled, whose columns are named as in the training files; `options`
    are those of `open_task`. None without a file.
    """
    if not paths:
        return None
    from litebert.answer.inputs import Columns, expand, open_input, read_rows
    from litebert.tasks.splits import take_layout
    from litebert.text.records import Notes

    task = task.for_unlabeled()
    pair_column = options.get("pair_column") if task.pair else None
    columns = Columns(options.get("text_column"), pair_column)
    layout = replace(take_layout(dict(options)), form=None)  # each file tells its own
    files = expand(paths, task)
    inputs = [
        open_input(path, f"the task {task.name}", task, task.settings(), columns, layout)
        for path in files
    ]
    return [row.example for row in read_rows(inputs, task.files, Notes())]
