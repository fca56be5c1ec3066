"""`litebert analyze`: what happens from layer to layer."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from litebert.base.storage import check_output
from litebert.commands import console
from litebert.commands.console import DataPath, DeviceName, Json
from litebert.commands.options import Arg


@dataclass
class AnalyzeArguments:
    """Write a page of what each layer does to held-out text: how far it moves the states (ALBERT,
    figure 1), what its heads attend to, and how early the masked words are known.
    """

    examples: ClassVar[tuple[str, ...]] = (
        "litebert analyze run --shards data",
        "litebert analyze run-1 run-2 --shards data --out layers.html",
    )

    models: Annotated[tuple[str, ...], Arg("MODEL", positional=True)]
    """Folders of runs or models."""
    shards: DataPath
    """Folder of litebert prepare with the tokenizer of the models."""
    out: Path = Path("analysis.html")
    """Page to write."""
    sequences: int = 128
    """Held-out sequences to read."""
    length: int = 0
    """Tokens of a sequence; 0 is as in the training of the first model."""
    control: bool = True
    """Also analyze an untrained network of each shape."""
    device: DeviceName = "auto"
    json: Json = False


def analyze(words: list[str]) -> int:
    arguments = console.parse(AnalyzeArguments, words, "analyze")
    check_output(arguments.out, "--out")
    with console.loading():
        from litebert.analysis.layers import analyze as run
        from litebert.analysis.layers_page import make_summary, write_page
        from litebert.train.device import choose

    analysis = run(
        arguments.models,
        arguments.shards,
        sequences=arguments.sequences,
        length=arguments.length or None,
        control=arguments.control,
        device=arguments.device,
    )
    command = f"litebert analyze {shlex.join(words)}"
    write_page(arguments.out, analysis, choose("float32", arguments.device).describe(), command)
    if arguments.json:
        console.print_json([asdict(layer) for layer in analysis])
    else:
        table = make_summary(analysis)
        console.table(table.columns, table.rows, title=table.title)
        console.show(table.note)
    console.ending(arguments.out)
    return 0
