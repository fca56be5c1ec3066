"""`litebert convert`: other formats; `resize`: other shapes; and `push`: the Hugging Face Hub."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from litebert.base.errors import ConfigError, ModelError, require
from litebert.base.json_reader import read_json
from litebert.commands import console
from litebert.commands.console import DataPath, Json, ModelPath, ModelTokenizer, VectorSize
from litebert.commands.options import Arg, require_beside
from litebert.config import Sharing
from litebert.config.finetuning import HeadName

if TYPE_CHECKING:
    from litebert.change.shrinking import Shrunk


@dataclass(kw_only=True)
class ConvertArguments:
    """Convert a model or a TensorFlow checkpoint to a Hugging Face or a litebert folder."""

    examples: ClassVar[tuple[str, ...]] = (
        "litebert convert run --to hf --out converted",
        "litebert convert hf:albert/albert-base-v2 --to litebert --out albert",
    )

    model: ModelPath
    out: Path
    """Folder to write."""
    to: str | None = None
    """Format to write, by a name in `FORMATS`."""
    head: HeadName | None = None
    """Head to write; or what a classifier is for, if config.json does not say."""
    tokenizer: ModelTokenizer = None
    vector_size: VectorSize = None
    json: Json = False


def convert(words: list[str]) -> int:
    arguments = console.parse(ConvertArguments, words, "convert")
    with console.loading():
        from litebert.change.conversion import convert as run

    if arguments.to is None:
        raise ConfigError(
            "nothing says what to convert to; give --to hf or --to litebert, or see --help"
        )
    to = arguments.to
    is_foreign = not any(
        Path(arguments.model, name).is_file() for name in ("recipe.json", "finetune.json")
    )
    require(
        arguments.head is None or to != "litebert" or is_foreign,
        f"--head is of Hugging Face folders, and {arguments.model} has its own; leave --head out",
    )
    converted = run(
        arguments.model,
        arguments.out,
        to=to,
        head=arguments.head,
        tokenizer=arguments.tokenizer,
        vector_size=arguments.vector_size,
    )
    console.warn(*converted.notes)
    if arguments.json:
        console.print_json({"path": str(converted.path), "to": to, "notes": converted.notes})
    console.ending(arguments.out, _describe_opening(arguments.out, to))
    return 0


def _describe_opening(out: Path, to: str) -> str:
    opener = "litebert.load"
    if to == "hf":  # the class, because AutoModel would leave the head out
        (name,) = read_json(out / "config.json", ModelError)["architectures"]
        opener = f"transformers.{name}.from_pretrained"
    return f"in Python, {opener}({str(out.resolve())!r})"


@dataclass(kw_only=True)
class ResizeArguments:
    """Change the shape of a model, then train it further with litebert pretrain --from."""

    examples: ClassVar[tuple[str, ...]] = (
        "litebert resize MODEL --positions 4096 --window 128 --out longer",
        "litebert resize MODEL --share all --embedding-size 128 --out smaller",
        "litebert resize MODEL --hidden-size 384 --shards data --out narrower",
    )

    model: ModelPath
    out: Path
    """Folder to write, in litebert's format."""
    positions: int | None = None
    """Longest text in tokens."""
    window: int | None = None
    """Tokens that a token of a windowed layer reads; 0 for no windows."""
    global_every: int | None = None
    """One layer in so many reads the whole text; by default 3, 0 for none."""
    global_tokens: int | None = None
    """First tokens that read all tokens, and are read by all; by default 0."""
    share: Sharing | None = None
    """Blocks that the new layers share; those that become one are merged."""
    groups: int = 1
    """Number of blocks, with --share groups."""
    layers: int | None = None
    """Number of layers of the smaller model."""
    embedding_size: int | None = None
    """Width of the embeddings, which are factorized."""
    merge: Literal["average", "first", "middle", "last"] = "average"
    """How blocks become one: their mean, or the first, middle or last."""
    hidden_size: int | None = None
    """Hidden size, of the heads and features that matter most on --shards."""
    intermediate_size: int | None = None
    """Inner width of feed-forward blocks, of what matters most on --shards."""
    shards: DataPath | None = None
    """Folder of litebert prepare, to score the model and measure what matters."""
    tokenizer: ModelTokenizer = None
    device: str = "auto"
    """Device that scores --shards, as in litebert finetune."""
    json: Json = False


_LENGTHS = ("positions", "window", "global_every", "global_tokens")
"""The options of `resize` that make a model read longer texts."""
_SIZES = ("share", "groups", "layers", "embedding_size", "merge")
_WIDTHS = ("hidden_size", "intermediate_size")
"""The options of `resize` that make a model smaller."""


def resize(words: list[str]) -> int:
    arguments = console.parse(ResizeArguments, words, "resize")
    with console.loading():
        from litebert.change.conversion import resize as run
        from litebert.change.narrowing import widths
        from litebert.change.shrinking import Shrinking
        from litebert.demo import locate
        from litebert.interop.models import config_of
        from litebert.train.evaluate import evaluate_pretrained
        from litebert.train.importance import measure_importance

    model, shards = locate(arguments.model), arguments.shards
    measure = None
    if shards is not None:
        measure = partial(measure_importance, model, shards, tokenizer=arguments.tokenizer)
    sizes = {name: getattr(arguments, name) for name in (*_SIZES, *_WIDTHS)}
    shrinking = Shrinking(**sizes, importance=measure)
    require_beside("shards", arguments, "device")
    require(
        shards is None or shrinking.is_active,
        "--shards scores a model before and after it is made smaller; leave it out",
    )
    if shrinking.narrows:
        encoder = config_of(model).encoder
        widths(encoder, model, shrinking.hidden_size, shrinking.intermediate_size)
    before = after = None
    if shards is not None:  # before a smaller model is made, because the score may find a mistake
        device, tokenizer = arguments.device, arguments.tokenizer
        before = evaluate_pretrained(model, shards, tokenizer=tokenizer, device=device)
    resized = run(
        model,
        arguments.out,
        shrinking=shrinking,
        tokenizer=arguments.tokenizer,
        **{name: getattr(arguments, name) for name in _LENGTHS},
    )
    console.warn(*resized.notes)
    if shards is not None:
        after = evaluate_pretrained(arguments.out, shards, device=arguments.device)
    shrunk = resized.shrunk
    if arguments.json:
        parameters = None if shrunk is None else list(shrunk.parameters)
        summary = {"path": str(resized.path), "parameters": parameters, "notes": resized.notes}
        console.print_json({**summary, "before": before, "after": after})
    elif shrunk is not None:
        rows = shrunk.rows()
        if before is not None and after is not None:
            rows += [
                (f"held-out {name.replace('_', ' ')}", f"{before[name]:.3f} -> {after[name]:.3f}")
                for name in after
                if name.endswith("_loss") and name in before
            ]
        console.table(("made smaller", arguments.out.name), rows)
    console.ending(arguments.out, *_steps_after_resizing(arguments, shrunk))
    return 0


def _steps_after_resizing(
    arguments: ResizeArguments, shrunk: Shrunk | None
) -> list[Sequence[object] | str]:
    opening = _describe_opening(arguments.out, "litebert")
    if (arguments.out / "task.json").is_file() or (shrunk is not None and bool(shrunk.loaded.task)):
        return [opening]
    is_stretched = any(getattr(arguments, name) is not None for name in _LENGTHS)
    length = () if arguments.positions is None else ("--sequences.length", arguments.positions)
    teacher = () if shrunk is None or is_stretched else ("--teacher", arguments.model)
    rest = ("--shards", arguments.shards or "DATA", "--out", "RUN", *length)
    return [("pretrain", "--from", arguments.out, *teacher, *rest), opening]


@dataclass
class PushArguments:
    """Write a model to the Hugging Face Hub, with its tokenizer and its card, as one commit. The
    token of `hf auth login` or of HF_TOKEN must allow writing.
    """

    examples: ClassVar[tuple[str, ...]] = ("litebert push classifier hf:OWNER/NAME --private",)

    model: ModelPath
    destination: Annotated[str, Arg("DESTINATION", positional=True)]
    """Repository, hf:OWNER/NAME; it is created if needed."""
    private: bool = False
    """Create a private repository, and write to no public one."""
    message: str | None = None
    """Message of the commit."""
    json: Json = False


def push(words: list[str]) -> int:
    arguments = console.parse(PushArguments, words, "push")
    with console.loading():
        from litebert.change.conversion import push as run

    pushed = run(
        arguments.model, arguments.destination, private=arguments.private, message=arguments.message
    )
    console.warn(*pushed.notes)
    if arguments.json:
        console.print_json({"page": pushed.page, "notes": pushed.notes})
    console.ending(pushed.page, f"in Python, litebert.load({arguments.destination!r})")
    return 0
