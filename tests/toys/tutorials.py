"""Reads the commands of a tutorial, runs them in a shell, and compares what they print."""

from __future__ import annotations

import re
import subprocess
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

NUMBER = re.compile(r"(?<![\w/.-])-?\d[\d,]*(?:\.\d+)?(?:e-?\d+)?(?![\w/]*[A-Za-z_])")
"""A number that stands alone, and is no part of a name such as `int8`."""
MEASURED = re.compile(
    r"\d[\d,.]*(?=\s*(?:ms|s|min|h|seconds|minutes|tokens/s|texts/s|MB|MiB)\b)|\d+(?=% of the mach)"
)
"""Times, speeds and sizes, which differ from machine to machine."""
POINTS = 0.1
"""How far a share or a score between 0 and 1 may be from the page: ten points."""
RELATIVE = 0.3
"""How far any other number may be from the page, relative to it, where it may differ at all."""
_FENCED = re.compile(r"^```(sh|python|text)\n(.*?)^```\n?", re.M | re.S)


@dataclass(frozen=True)
class Block:
    """Commands of a page, with what it shows as printed."""

    kind: str
    """`sh` or `python`."""
    text: str
    printed: str = ""


def read_blocks(page: str) -> Iterator[Block]:
    """Read the commands of a page, each with the block `text` that follows it, or none.

    Raises:
        ValueError: printed text follows no command.
    """
    block = None
    for kind, text in _FENCED.findall(page):
        if kind == "text":
            if block is None:
                raise ValueError(f"no command printed this: {text}")
            yield Block(block.kind, block.text, text)
            block = None
        else:
            if block is not None:
                yield block
            block = Block(kind, text)
    if block is not None:
        yield block


@dataclass(frozen=True)
class Law:
    """How near a printed line must be to the page."""

    values: bool = True
    """False compares the words alone, for runs of another size."""
    counts: bool = True
    """False lets whole numbers differ, for text that depends on what is installed."""


def find_missing(printed: str, lines: Sequence[str], law: Law) -> list[str]:
    """Return the printed lines of a page that are not among the lines of a run, in this order.

    `...` stands for any number of lines. At the end of a line it stands for the rest of the line.
    """
    lines = [line for line in lines if line.strip()]
    missing, place, gap = [], 0, True
    for line in filter(None, map(str.strip, printed.splitlines())):
        if line == "...":
            gap = True
            continue
        rest = range(place, len(lines)) if gap else range(place, min(place + 1, len(lines)))
        match = next((i for i in rest if is_same(line, lines[i], law)), None)
        if match is None:
            missing.append(line)
            gap = True
        else:
            place, gap = match + 1, False
    return missing


def is_same(page: str, line: str, law: Law) -> bool:
    """Say whether a line of a run is what the page shows, as near as the law asks."""
    open_end = page.endswith("...")
    page = page.removesuffix("...").rstrip()
    page, line = (MEASURED.sub("<measured>", text.strip()) for text in (page, line))
    words, other_words = (_simplify(text) for text in (page, line))
    same = other_words.startswith(words) if open_end else words == other_words
    if not same or not law.values:
        return same
    pairs = zip(NUMBER.finditer(page), NUMBER.finditer(line), strict=False)
    return all(
        _is_near(expected[0], actual[0], page, expected.end(), law) for expected, actual in pairs
    )


def _simplify(text: str) -> str:
    """Leave out the numbers, and the widths of columns and rules."""
    return " ".join(re.sub(r"─+", "─", NUMBER.sub("#", text)).split())


def _is_near(expected: str, actual: str, page: str, end: int, law: Law) -> bool:
    number, other = (float(text.replace(",", "")) for text in (expected, actual))
    if page[end : end + 1] == "%" or page[end : end + 2] == " %":
        return abs(number - other) <= 100 * POINTS
    if "." in expected + actual and abs(number) <= 1:
        return abs(number - other) <= POINTS
    if "." in expected or not law.counts:
        return abs(number - other) <= RELATIVE * abs(number)
    return number == other


class Shell:
    """A shell that stays open, so that commands can run in the background and be ended."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            ["bash"],
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
        )
        assert self._process.stdin is not None
        self._process.stdin.write("trap 'status=$?' ERR\n")

    def run(self, commands: str) -> tuple[int, list[str]]:
        """Run commands, and return the status of the first that failed and the lines printed."""
        mark = uuid.uuid4().hex
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"status=0\n{commands.rstrip()}\necho; echo {mark} $status\n")
        self._process.stdin.flush()
        lines: list[str] = []
        for line in self._process.stdout:
            if line.startswith(mark):
                return int(line.split()[1]), lines
            lines.append(line.rstrip("\n"))
        raise AssertionError(f"the shell ended: {lines}")

    def close(self) -> None:
        """End the shell, and with it what still runs in it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("kill $(jobs -p) 2>/dev/null\n")
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()
