"""`litebert merge`: one result of the parts that several machines made."""

from __future__ import annotations

from dataclasses import dataclass

import tyro

from litebert.commands import console


@dataclass
class MergeArguments:
    """Make one result of the parts in OUT.parts: what one machine would have written, bit for bit.

    The parts stay; delete OUT.parts when you no longer need them.
    """

    out: tyro.conf.Positional[console.DataPath]
    """The --out of the commands with --part."""


def merge(words: list[str]) -> int:
    """litebert merge OUT"""
    arguments = console.parse(MergeArguments, words, "merge")
    with console.loading():
        from litebert.answer.merging import merge as run
        from litebert.remote.names import shorten
        from litebert.text.tally import format_count

    parts = run(arguments.out)
    console.ending(f"{format_count(len(parts), 'part')} to {shorten(arguments.out)}")
    return 0
