"""`litebert convert`: other formats, longer texts and smaller models; and `litebert push`."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from litebert.commands import console
from litebert.commands.console import ModelPath
from litebert.config import Sharing
from litebert.config.finetuning import HeadName
from litebert.errors import ConfigError, ModelError, require
from litebert.json_reader import read_json

if TYPE_CHECKING:
    from litebert.change.shrinking import Shrunk

log = logging.getLogger("litebert")


@dataclass
class ConvertArguments:
    """Convert a model folder or an original TensorFlow checkpoint to Hugging Face or litebert; or
    give a model more positions and windows.

    For longer texts, --positions 4096 stretches the positions, and --window 256 lets most layers
    attend to their neighbourhood only, so that time and memory hardly grow with the square of the
    length. Train the new model further at that length: litebert pretrain --from.
    """

    source: ModelPath
    destination: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="DESTINATION")]
    """Folder to write."""
    to: str | None = None
    """The format to write, by a name in `FORMATS`: hf or litebert. Needed, except with the options
    for longer texts and for smaller models, which write litebert."""
    head: HeadName | None = None
    """To Hugging Face: the class to write, by default the one that holds most (mlm of a model
    trained with rtd is its generator). From Hugging Face or TensorFlow: what the classifier is for,
    if config.json does not say."""
    tokenizer: Path | None = None
    """The tokenizer of a SOURCE that lacks one, or whose tokenizer cannot be read: a folder,
    *.model, vocab.txt or tokenizer.json. It is written with the model."""
    positions: int | None = None
    """Longest text in tokens. Learned positions are repeated, rotary ones get a larger base."""
    window: int | None = None
    """Tokens that a token of a windowed layer reads, half of them on each side; 0 for no
    windows."""
    global_every: int | None = None
    """One layer in so many reads the whole text in spite of the window, beginning with the first; 0
    for none, by default 3."""
    global_tokens: int | None = None
    """Tokens at the beginning of a text, [CLS] first, that read all of it in spite of the window
    and are read by all tokens; 0 by default."""
    share: Sharing | None = None
    """Make the model smaller (docs/distillation.md): what its layers shall share, as in
    encoder.sharing. Blocks that become one are merged."""
    groups: int = 1
    """Number of blocks, with --share groups."""
    layers: int | None = None
    """Make the model smaller: the number of its layers."""
    embedding_size: int | None = None
    """Make the model smaller: the width of its embeddings, which are factorised by a truncated
    singular value decomposition."""
    merge: Literal["average", "first", "middle", "last"] = "average"
    """How blocks are merged: their mean, or the first, middle or last block."""
    hidden_size: int | None = None
    """New hidden size, a multiple of the head size. Keeps the heads and features that matter most
    on --shards.
    """
    intermediate_size: int | None = None
    """New inner width of the feed-forward blocks. Keeps the units that matter most on --shards."""
    shards: Path | None = None
    """Score the model before and after it was made smaller on the held-out text of this folder.
    What matters to a narrower one is measured on its training text."""


def convert(words: list[str]) -> int:
    """litebert convert SRC DST --to hf|litebert [--head mlm] [--share all --embedding-size 128]"""
    arguments = console.parse(ConvertArguments, words, "convert")
    with console.loading():
        from litebert.change.conversion import convert as run
        from litebert.change.narrowing import widths
        from litebert.change.shrinking import Shrinking
        from litebert.interop.models import config_of
        from litebert.train.evaluate import evaluate_pretrained as score
        from litebert.train.importance import measure_importance

    source, shards = arguments.source, arguments.shards
    longer = {name: getattr(arguments, name) for name in _LENGTHS}
    sizes = {name: getattr(arguments, name) for name in _SIZES}
    measure = None
    if shards is not None:
        measure = partial(measure_importance, source, shards, tokenizer=arguments.tokenizer)
    shrinking = Shrinking(**sizes, importance=measure)
    is_stretched = any(value is not None for value in longer.values())
    default = "litebert" if shrinking.is_active or is_stretched else None
    to = _check_conversion(arguments, arguments.to or default, shrinking.is_active)
    if shrinking.narrows:
        encoder = config_of(source).encoder
        widths(encoder, source, shrinking.hidden_size, shrinking.intermediate_size)
    # The model is scored before a smaller one is made, because the score may find a mistake.
    before = None if shards is None else score(source, shards, tokenizer=arguments.tokenizer)
    converted = run(
        source,
        arguments.destination,
        to=to,
        head=arguments.head,
        shrinking=shrinking,
        tokenizer=arguments.tokenizer,
        **longer,
    )
    for note in converted.notes:
        log.warning(note)
    if converted.shrunk is not None:
        rows = converted.shrunk.rows()
        if shards is not None and before is not None:
            rows += _loss_rows(before, score(arguments.destination, shards))
        console.table(("made smaller", Path(arguments.destination).name), rows)
    following = _steps_after_conversion(arguments, to, is_stretched, converted.shrunk)
    console.ending(arguments.destination, *following)
    return 0


_LENGTHS = ("positions", "window", "global_every", "global_tokens")
"""The options of `convert` that make a model read longer texts."""
_SIZES = (
    "share",
    "groups",
    "layers",
    "embedding_size",
    "merge",
    "hidden_size",
    "intermediate_size",
)
"""The options of `convert` that make a model smaller."""


def _check_conversion(arguments: ConvertArguments, to: str | None, shrinks: bool) -> str:
    """Refuse a conversion without a format, and options that would have no effect.

    Returns:
        The format to write.

    Raises:
        ConfigError: names the option.
    """
    if to is None:
        raise ConfigError(
            "nothing says what to convert to; give --to hf or --to litebert, or see --help"
        )
    if arguments.shards is not None and not shrinks:
        raise ConfigError(
            "--shards scores a model before and after it is made smaller; leave it out"
        )
    is_foreign = all(
        not Path(arguments.source, name).is_file() for name in ("recipe.json", "finetune.json")
    )
    require(
        arguments.head is None or to != "litebert" or is_foreign,
        f"--head is of Hugging Face folders, and {arguments.source} has its own; leave --head out",
    )
    return to


def _loss_rows(before: dict[str, float], after: dict[str, float]) -> list[tuple[str, str]]:
    """Make the rows of a table: each held-out loss before and after a model was made smaller."""
    return [
        (f"held-out {name.replace('_', ' ')}", f"{before[name]:.3f} -> {after[name]:.3f}")
        for name in after
        if name.endswith("_loss") and name in before
    ]


def _steps_after_conversion(
    arguments: ConvertArguments, to: str | None, is_stretched: bool, shrunk: Shrunk | None
) -> list[Sequence[object] | str]:
    """Choose what to show as next steps: how to open the model, and how to train it further."""
    destination = Path(arguments.destination)
    path = str(destination.resolve())
    opener = "litebert.load"
    if to == "hf":  # the class, because AutoModel would leave the head out
        (name,) = read_json(destination / "config.json", ModelError)["architectures"]
        opener = f"transformers.{name}.from_pretrained"
    steps: list[Sequence[object] | str] = [f"in Python, {opener}({path!r})"]
    has_head = (destination / "task.json").is_file() or (
        shrunk is not None and bool(shrunk.loaded.task)
    )
    if has_head or not (is_stretched or shrunk is not None):
        return steps
    length = () if arguments.positions is None else ("--sequences.length", arguments.positions)
    teacher = () if shrunk is None or is_stretched else ("--teacher", arguments.source)
    rest = ("--shards", arguments.shards or "DATA", "--out", "RUN", *length)
    steps.insert(0, ("pretrain", "--from", destination, *teacher, *rest))
    return steps


@dataclass
class PushArguments:
    """Write a model to the Hugging Face Hub, with its tokenizer and its model card, as one commit.

    The model is converted to a folder for transformers, or to a litebert folder where transformers
    has no class for it. The token of `hf auth login` or of HF_TOKEN must allow writing.
    """

    model: ModelPath
    destination: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="DESTINATION")]
    """The repository, hf:OWNER/NAME; it is created if need be."""
    private: bool = False
    """Create a private repository, and write to no public one."""
    message: str | None = None
    """Message of the commit."""


def push(words: list[str]) -> int:
    """litebert push MODEL hf:OWNER/NAME [--private] [--message TEXT]"""
    arguments = console.parse(PushArguments, words, "push")
    with console.loading():
        from litebert.change.conversion import push as run

    pushed = run(
        arguments.model,
        arguments.destination,
        private=arguments.private,
        message=arguments.message,
    )
    for note in pushed.notes:
        log.warning(note)
    console.ending(pushed.page, f"in Python, litebert.load({arguments.destination!r})")
    return 0
