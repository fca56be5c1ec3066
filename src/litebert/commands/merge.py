"""`litebert merge`: one result of the parts that several machines made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from litebert.commands import console
from litebert.commands.options import Arg


@dataclass
class MergeArguments:
    """Join the parts in OUT.parts, bit for bit as one machine would have written them."""

    examples: ClassVar[tuple[str, ...]] = ("litebert merge answers.csv",)

    out: Annotated[str, Arg("OUT", positional=True)]
    """What --out was in the commands with --part."""


def merge(words: list[str]) -> int:
    arguments = console.parse(MergeArguments, words, "merge")
    with console.loading():
        from litebert.answer.merging import merge as run
        from litebert.remote.names import shorten
        from litebert.text.tally import format_count

    parts = run(arguments.out)
    console.ending(f"{format_count(len(parts), 'part')} to {shorten(arguments.out)}")
    return 0
