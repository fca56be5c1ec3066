"""`litebert analyze`: what happens from layer to layer."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import tyro

from litebert.base.storage import check_output
from litebert.commands import console
from litebert.commands.console import DataPath, Json


@dataclass
class AnalyzeArguments:
    """Show what each layer does to the states of held-out text, for one model or several side by
    side.

    The page has distances and angles between the states before and after a layer (ALBERT, figure
    1), what heads attend to, and how early the masked words are known. It shows which layers
    resemble each other, and where the parameters are.
    """

    models: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="MODEL")]
    """Run folders, litebert model folders or Hugging Face folders."""
    shards: DataPath
    """A folder written by litebert prepare with the tokenizer of the models."""
    out: Path = Path("analysis.html")
    """The page to write."""
    sequences: int = 128
    """Held-out sequences to read."""
    length: int = 0
    """Tokens per sequence; 0 uses the length that the first model was trained with."""
    control: bool = True
    """Also analyze the untrained network of each model's shape, which shows what training has
    changed."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:N, or mps on a Mac; auto takes a GPU or mps if there is one."""
    json: Json = False


def analyze(words: list[str]) -> int:
    """litebert analyze MODEL... --shards D"""
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
