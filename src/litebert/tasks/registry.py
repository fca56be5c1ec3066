"""A task from what a person names: a benchmark and its folder, or a table and its columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from litebert.errors import ConfigError, nearest
from litebert.finetune.task import Task
from litebert.tasks.choices import ChoiceTask
from litebert.tasks.glue import GLUE, glue_name
from litebert.tasks.glue import Glue as GlueTask
from litebert.tasks.parts import part_files
from litebert.tasks.race import RaceTask
from litebert.tasks.squad.task import Squad, Threshold
from litebert.tasks.table import Table, Target
from litebert.tasks.tagging import TaggingTask

Order = Literal["context", "question"]

TAKES: dict[str, tuple[str, ...]] = {
    "table": ("dev", "test", "text", "pair", "label", "target", "separator", "metric"),
    "squad": ("dev", "test", "threshold", "stride"),
    "race": ("order",),
    "choices": ("dev", "test", "order"),
    "tagging": ("dev", "test"),
}
"""The options of each task beside GLUE's, which take none."""


def task_of(
    name: str,
    data: str | Path,
    *,
    dev: str | Path | None = None,
    test: str | Path | None = None,
    text: str | None = None,
    pair: str | None = None,
    label: str | None = None,
    target: Target | None = None,
    separator: str | None = None,
    metric: str | None = None,
    order: Order | None = None,
    threshold: Threshold | None = None,
    stride: int | None = None,
) -> Task[Any]:
    """The task of a name. An option that is None is as the task has it by default.

    Args:
        name: a GLUE task (sst2, SST-2, ...), squad, race, choices, tagging, or table.
        data: the folder of the benchmark; or the training file, with `dev` and `test` beside it.
        text, pair, label, target, separator, metric: of a table, as `Table` takes them.
        order: of multiple choice: the context first, as in ALBERT and by default, or the question, as in RoBERTa.
        threshold, stride: of squad, as `Squad` takes them; the threshold in version 2 only.

    Raises:
        ConfigError: there is no such task, or it does not take an option that is given.
        DataError: a file is missing or malformed.
    """
    named = {"dev": dev, "test": test, "text": text, "pair": pair, "label": label, "target": target,
             "separator": separator, "metric": metric, "order": order, "threshold": threshold,
             "stride": stride}  # fmt: skip
    given: dict[str, Any] = {option: value for option, value in named.items() if value is not None}
    if name not in TAKES:
        try:
            name = glue_name(name)
        except ConfigError:
            raise ConfigError(f"there is no task '{name}'; {nearest(name, (*GLUE, *TAKES))}") from None
    for option in given:
        if option not in TAKES.get(name, ()):
            raise ConfigError(_refusal(name, option))
    if name == "table":
        return Table(data, **given)
    if name == "race":
        return RaceTask(data, **given)
    if name not in TAKES:
        if not GLUE[name].dev:
            raise ConfigError(f"{name} has no training part; fine-tune mnli, with the folder diagnostic beside MNLI")
        return GlueTask(name, data)
    files = part_files(data) if Path(data).is_dir() else {"train": Path(data)}
    files |= {part: Path(given.pop(part)) for part in ("dev", "test") if part in given}
    if name == "choices":
        return ChoiceTask(files, **given)
    if name == "tagging":
        return TaggingTask(files)
    squad = Squad(train=files.get("train"), dev=files.get("dev"), test=files.get("test"), **given)
    if threshold is not None and squad.version == 1:
        raise ConfigError(f"threshold is an option of SQuAD 2.0, and {data} is of 1.1; leave it out")
    return squad


def _refusal(name: str, option: str) -> str:
    """What is said of an option that a task does not take."""
    if option in ("dev", "test"):
        return f"the files of {name} are those of its folder; leave {option} out"
    takers = " and ".join(taker for taker, takes in TAKES.items() if option in takes)
    return f"{option} is an option of {takers}, and {name} does not take it; leave it out"
