"""Modules that the servers of processes load before they fork: no command waits for an import."""

from __future__ import annotations

MODULES = [
    "torch",
    "torch._dynamo",  # what the first optimizer of a process would import
    "litebert.analysis.compare",
    "litebert.commands.answers",
    "litebert.commands.models",
    "litebert.commands.tasks",
    "litebert.commands.text",
    "litebert.commands.tokenizer",
    "litebert.finetuning.run",
    "litebert.train.checkpoint",
    "litebert.train.evaluate",
    "litebert.train.pretrain",
    "filelock",
    "pandas",  # for pyarrow
    "pytest",
    "rich.console",
    "rich.progress",
    "rich.table",
    "sklearn.metrics",
]
