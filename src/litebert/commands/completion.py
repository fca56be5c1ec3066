"""`litebert completion`: a script that completes verbs and options in a shell.

The script knows every option itself, so pressing TAB does not import litebert. The fields of a
recipe are left out.
"""

from __future__ import annotations

import importlib
import io
import pkgutil
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass, make_dataclass
from functools import reduce
from operator import or_
from typing import Annotated, Any, Literal

import tyro

import litebert.commands
from litebert.base.registry import TASKS
from litebert.commands.console import parse
from litebert.commands.distill import DistillArguments
from litebert.commands.options import READING, name_verb
from litebert.commands.tasks import FinetuneArguments


@dataclass
class CompletionArguments:
    """Print a script that completes verbs and options in a shell.

    bash: eval "$(litebert completion bash)" in ~/.bashrc. zsh: write it to a file _litebert in a
    folder of $fpath. fish: write it to ~/.config/fish/completions/litebert.fish.
    """

    shell: Annotated[
        tyro.conf.Positional[Literal["bash", "zsh", "fish"]],
        tyro.conf.arg(metavar="SHELL", help="bash, zsh or fish."),
    ]


def completion(words: list[str]) -> int:
    """litebert completion bash|zsh|fish"""
    shell = parse(CompletionArguments, words, "completion").shell
    tree: dict[str, Any] = {}
    actions: dict[str, dict[str, Any]] = defaultdict(dict)
    for verb, arguments in verbs():
        name, _, action = verb.partition(" ")
        if action:
            actions[name][action] = arguments
        else:
            tree[name] = arguments
    tree |= {name: _choice(parts) for name, parts in actions.items()}
    flags = (tyro.conf.OmitArgPrefixes,)
    script, args = io.StringIO(), ["--tyro-print-completion", shell]
    with READING, suppress(SystemExit), redirect_stdout(script):  # so tyro ends after printing
        tyro.cli(_choice(tree), prog="litebert", args=args, config=flags)
    sys.stdout.write(script.getvalue())
    return 0


def verbs() -> Iterator[tuple[str, type[Any]]]:
    """Each verb, with its action where it has some, and the dataclass of its arguments."""
    for module in pkgutil.iter_modules(litebert.commands.__path__, "litebert.commands."):
        for name, cls in vars(importlib.import_module(module.name)).items():
            if name.endswith("Arguments") and cls.__module__ == module.name:
                has_task = cls in (DistillArguments, FinetuneArguments)
                yield name_verb(cls), with_task_options(cls) if has_task else cls


def with_task_options(cls: type[Any]) -> type[Any]:
    options = list(dict.fromkeys(TASKS[name].options for name in TASKS))
    newest = [
        group
        for group in options
        if not any(group is not other and issubclass(other, group) for other in options)
    ]
    return make_dataclass(
        cls.__name__, (), bases=(*newest, cls), namespace={"__doc__": cls.__doc__}, frozen=True
    )


def _choice(parts: Mapping[str, Any]) -> Any:
    """One of several subcommands, as tyro writes it."""
    kinds = []
    for name, part in parts.items():
        about = (getattr(part, "__doc__", None) or name).partition("\n")[0]
        kinds.append(Annotated[part, tyro.conf.subcommand(name, description=about)])
    return reduce(or_, kinds)
