"""Makes the notebooks of docs/tutorials from its pages, which are their only source.

A block of commands becomes a cell of bash, a block of Python a cell of Python. The block `text`
that follows is what the page shows as printed, and becomes the output of that cell.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TUTORIALS = Path(__file__).with_name("tutorials")
_FENCED = re.compile(r"^```(sh|python|text)\n(.*?)^```\n?", re.M | re.S)


@dataclass(frozen=True)
class Block:
    """A part of a page: prose, or commands with what they print."""

    kind: str
    """`prose`, `sh` or `python`."""
    text: str
    printed: str = ""
    """What the page shows as printed, or nothing."""


def read_blocks(page: str) -> list[Block]:
    """Cut a page into its blocks.

    Raises:
        ValueError: printed text follows no command.
    """
    blocks: list[Block] = []
    for kind, text in _split(page):
        if kind != "text":
            blocks.append(Block(kind, text))
        elif not blocks or blocks[-1].kind == "prose" or blocks[-1].printed:
            raise ValueError(f"no command printed this: {text}")
        else:
            blocks[-1] = Block(blocks[-1].kind, blocks[-1].text, text)
    return blocks


def _split(page: str) -> Iterator[tuple[str, str]]:
    end = 0
    for match in _FENCED.finditer(page):
        if prose := page[end : match.start()].strip():
            yield "prose", prose
        yield match[1], match[2]
        end = match.end()
    if prose := page[end:].strip():
        yield "prose", prose


def write_notebook(page: str) -> str:
    """Return the notebook of a page, as JSON."""
    import nbformat
    from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

    cells = []
    for i, block in enumerate(read_blocks(page)):
        if block.kind == "prose":
            cells.append(new_markdown_cell(block.text, id=f"cell-{i}"))
            continue
        outputs = [new_output("stream", name="stdout", text=block.printed)] if block.printed else []
        cells.append(new_code_cell(_make_source(block), id=f"cell-{i}", outputs=outputs))
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return str(nbformat.writes(new_notebook(cells=cells, metadata=metadata))) + "\n"


def _make_source(block: Block) -> str:
    """Return the source of a cell. A command that stays in the background is a process of its own
    there, because each cell of bash is a shell of its own.
    """
    text = block.text.rstrip()
    if block.kind == "python":
        return text
    if text == "kill %1":
        return "service.terminate()"
    if text.endswith(" &"):
        return f"%%bash --bg --proc service\n{text.removesuffix(' &')}"
    return f"%%bash\n{text}"
