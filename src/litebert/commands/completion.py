"""`litebert completion`: a script that completes verbs and options in a shell.

The script knows every option itself, so pressing TAB does not import litebert. The fields of a
recipe are left out.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, make_dataclass
from typing import Annotated, Any, ClassVar, Literal, get_args, get_origin

import litebert.commands
from litebert.base.registry import TASKS
from litebert.commands.console import parse
from litebert.commands.distill import DistillArguments
from litebert.commands.options import Arg, Option, list_options, name_verb
from litebert.commands.tasks import FinetuneArguments

BASH = """_litebert() {
    local verb="${COMP_WORDS[1]}" previous="${COMP_WORDS[COMP_CWORD - 1]}" offered=""
    [ "$COMP_CWORD" -gt 2 ] && [ "$verb" = tokenizer ] && verb="$verb ${COMP_WORDS[2]}"
    [ "$COMP_CWORD" -eq 1 ] && verb=""
%s
    COMPREPLY=($(compgen -W "$offered" -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _litebert litebert
"""
ZSH = """#compdef litebert
local verb="$words[2]" previous="$words[CURRENT - 1]" offered=""
[ "$CURRENT" -gt 3 ] && [ "$verb" = tokenizer ] && verb="$verb $words[3]"
[ "$CURRENT" -eq 2 ] && verb=""
%s
compadd -- ${=offered}
[ -n "$verb" ] && _files
"""


@dataclass
class CompletionArguments:
    """Print a script that completes verbs, options and their values in a shell.

    For bash, write eval "$(litebert completion bash)" in ~/.bashrc; for zsh, the script in a file
    _litebert in a folder of $fpath; for fish, in ~/.config/fish/completions/litebert.fish.
    """

    examples: ClassVar[tuple[str, ...]] = ("litebert completion bash",)

    shell: Annotated[
        Literal["bash", "zsh", "fish"], Arg("SHELL", "bash, zsh or fish.", positional=True)
    ]


def completion(words: list[str]) -> int:
    shell = parse(CompletionArguments, words, "completion").shell
    offers: dict[str, list[str]] = {"": []}
    values: dict[str, list[str]] = {}
    for verb, arguments in verbs():
        name, _, action = verb.partition(" ")
        offers[""] += [name] if name not in offers[""] else []
        if action:
            offers.setdefault(name, []).append(action)
        named = [option for option in list_options(arguments) if not option.arg.positional]
        offers[verb] = [each for option in named for each in _spellings(option)]
        values |= {
            f"{verb} {option.name}": choices for option in named if (choices := _choices(option))
        }
    if shell == "fish":
        sys.stdout.write("\n".join(_write_fish(offers, values)) + "\n")
        return 0
    cases = [
        f"        '{place}') offered='{' '.join(words)}' ;;" for place, words in values.items()
    ]
    others = [
        f"            '{verb}') offered='{' '.join(words)}' ;;" for verb, words in offers.items()
    ]
    lines = ['    case "$verb $previous" in', *cases, '        *) case "$verb" in', *others]
    body = "\n".join([*lines, "        esac ;;", "    esac"])
    sys.stdout.write((BASH if shell == "bash" else ZSH) % body)
    return 0


def _spellings(option: Option) -> list[str]:
    return [option.name, option.opposite] if option.is_flag else [option.name]


def _choices(option: Option) -> list[str]:
    """The words that an option takes, as far as they are known."""
    kinds = [get_args(kind)[0] if get_origin(kind) is tuple else kind for kind in option.kinds]
    return [word for kind in kinds if get_origin(kind) is Literal for word in get_args(kind)]


def _write_fish(offers: Mapping[str, list[str]], values: Mapping[str, list[str]]) -> Iterator[str]:
    for verb, words in offers.items():
        seen = "; and ".join(f"__fish_seen_subcommand_from {word}" for word in verb.split())
        for word in words:
            what = f"-a {word}" if word[:2] != "--" else f"-l {word[2:]}"
            if f"{verb} {word}" in values:
                what += f" -x -a '{' '.join(values[f'{verb} {word}'])}'"
            yield f"complete -c litebert -n '{seen or '__fish_use_subcommand'}' {what}"


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
