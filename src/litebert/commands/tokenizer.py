"""`litebert tokenizer train` and `inspect`, and `litebert adapt`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from litebert.base.errors import ConfigError, ModelError, require, suggest
from litebert.base.json_reader import read_json
from litebert.commands import console
from litebert.commands.console import Json, ModelPath
from litebert.commands.options import Arg, list_changes, require_beside
from litebert.commands.text import Text, TextOptions
from litebert.hub import is_hub_name

if TYPE_CHECKING:
    from litebert.change.vocabulary import Moved
    from litebert.config import Config
    from litebert.tokenizer import Tokenizer
    from litebert.tokenizer.extension import Added

_SHOWN = 20
"""New tokens in a table."""
_TASK_OF = {"tokens": "tagging", "span": "squad", "choice": "choices"}
"""The task to train a model on by its head; `table` for texts as a whole."""


@dataclass
class TrainTokenizerArguments(Text):
    """Train a tokenizer on a sample of text."""

    examples: ClassVar[tuple[str, ...]] = (
        "litebert tokenizer train my-texts/ --vocab-size 16000 --out tokenizer",
        "litebert tokenizer train texts.csv --text-column body --kind wordpiece",
    )

    out: Path = Path("tokenizer")
    """Folder to write, for litebert and transformers; a tokenizer there is replaced."""
    kind: Literal["unigram", "wordpiece", "bpe"] = "unigram"
    """Kind of ALBERT, of BERT or of RoBERTa."""
    vocab_size: int = 8192
    """Tokens in the vocabulary."""
    shrink: bool = False
    """Learn fewer tokens where the text is too small for --vocab-size."""
    lower_case: bool | None = None
    """Convert to lower case; by default for all but bpe."""
    strip_accents: bool = False
    """Remove accents (unigram and wordpiece only)."""
    sample_mib: int = 64
    """MiB of text to sample."""
    seed: int = 0
    """Seed of the sample."""
    json: Json = False


@dataclass
class InspectTokenizerArguments(Text):
    """Show what a tokenizer does to a text, or what another vocabulary would gain on it."""

    examples: ClassVar[tuple[str, ...]] = (
        "litebert tokenizer inspect my-texts/ --tokenizer tokenizer",
        "litebert tokenizer inspect my-texts/ --tokenizer MODEL --add-tokens 2000",
    )

    tokenizer: str = "tokenizer"
    """A folder of a tokenizer or a model, *.model, vocab.txt or tokenizer.json."""
    add_tokens: int | None = None
    """Compare with this tokenizer and so many tokens of this text."""
    other_tokenizer: Path | None = None
    """Compare with another tokenizer."""
    sample_mib: int = 64
    """MiB of text to compare on."""
    json: Json = False


@dataclass(kw_only=True)
class ExtendTokenizerArguments:
    """Add tokens by name to a tokenizer, such as [USR]; litebert adapt moves a model to it."""

    examples: ClassVar[tuple[str, ...]] = (
        "litebert tokenizer extend MODEL --tokens [USR] [SYS] --out tokenizer",
    )

    tokenizer: Annotated[str, Arg("TOKENIZER", positional=True)]
    """A folder of a tokenizer or a model, *.model, vocab.txt or tokenizer.json."""
    tokens: Annotated[tuple[str, ...], Arg("TOKEN")]
    """New tokens."""
    out: Path
    """Folder to write; a tokenizer there is replaced."""
    json: Json = False


@dataclass(kw_only=True)
class AdaptArguments(TextOptions):
    """Give a model the tokens that a text needs most, or another tokenizer; then train it further
    with litebert pretrain --from.
    """

    examples: ClassVar[tuple[str, ...]] = (
        "litebert adapt MODEL --source my-texts/ --add-tokens 2000 --out adapted",
        "litebert adapt MODEL --tokenizer tokenizer --out adapted",
    )

    model: ModelPath
    out: Path
    """Folder to write, of the model and its tokenizer."""
    source: tuple[str, ...] = ()
    """Text of the domain: files, folders, patterns, hf:NAME or - for standard input."""
    add_tokens: int = 2000
    """Tokens to add."""
    tokenizer: str | None = None
    """Tokenizer to move to: a folder, *.model, vocab.txt or tokenizer.json."""
    sample_mib: int = 64
    """MiB of --source to sample."""
    seed: int = 0
    """Seed of the sample."""
    json: Json = False


def adapt(words: list[str]) -> int:
    arguments = console.parse(AdaptArguments, words, "adapt")
    if bool(arguments.source) == (arguments.tokenizer is not None):
        raise ConfigError(
            "a model is adapted to a text or to another tokenizer; give --source or --tokenizer"
        )
    require_beside("source", arguments, "add_tokens", "sample_mib", "seed")
    with console.loading():
        from litebert.change.vocabulary import require_tokenizer, with_tokenizer
        from litebert.interop import read_folder
        from litebert.interop.files import require_new
        from litebert.tokenizer import Tokenizer

    size = arguments.add_tokens
    _check_memory(arguments.sample_mib)
    require(size >= 1, f"--add-tokens is {size}; give at least 1")
    require_new(arguments.out, arguments.model)
    if arguments.tokenizer is not None:
        new = Tokenizer.load(arguments.tokenizer)
        moved = with_tokenizer(read_folder(arguments.model), new)
        _save(moved, arguments.out)
        if arguments.json:
            console.print_json(
                {name: getattr(moved, name) for name in ("same", "averaged", "drawn")}
            )
    else:
        loaded = read_folder(arguments.model)
        old = require_tokenizer(loaded)
        lines = _lines(arguments, arguments.source, arguments.sample_mib, arguments.seed)
        new, added = _extend_tokenizer(old, lines, size)
        moved = with_tokenizer(loaded, new)
        _save(moved, arguments.out)
        _report(old, new, lines, loaded.config, added, arguments.json)
    drawn = f", and {moved.drawn:,} that the old tokenizer cannot spell start at random"
    console.say(
        f"{moved.same:,} tokens keep their weights, {moved.averaged:,} start from the mean of "
        f"their old tokens{drawn if moved.drawn else ''}"
    )

    record, out = arguments.out / "task.json", arguments.out
    if record.is_file():  # further pretraining would drop its head
        from litebert.base.registry import TASKS

        facts = read_json(record, ModelError)
        name = str(facts.get("task"))
        task = name if name in TASKS else _TASK_OF.get(str(facts.get("kind")), "table")
        console.ending(out, ("finetune", out, "--task", task, "--data", "DATA", "--out", "RUN"))
        return 0
    sources = arguments.words(arguments.source) if arguments.source else ["TEXT"]
    console.ending(
        out,
        ("prepare", *sources, "--tokenizer", out, "--out", "DATA"),
        ("pretrain", "--from", out, "--shards", "DATA", "--out", "RUN"),
    )
    return 0


def tokenizer(words: list[str]) -> int:
    actions: dict[str, Callable[[list[str]], int]] = {
        "train": _train,
        "extend": _extend_by_name,
        "inspect": _inspect,
    }
    action = words[0] if words else ""
    if action in ("-h", "--help"):
        console.show("litebert tokenizer train        train a tokenizer on text")
        console.show("litebert tokenizer extend       add tokens by name, such as [USR]")
        console.show(
            "litebert tokenizer inspect      show what a tokenizer does to a text, or what "
            "another would gain"
        )
        console.show("\nlitebert tokenizer train --help shows the options.")
        console.show("Every verb takes --quiet, --verbose.")
        return 0
    if action not in actions:
        commands = [f"litebert tokenizer {name}" for name in actions]
        hint = suggest(f"litebert tokenizer {action}", commands) if action else ""
        raise ConfigError(
            f"there is no action '{action}'; {hint or 'choose one of: ' + ', '.join(commands)}"
        )
    return actions[action](words[1:])


def _train(words: list[str]) -> int:
    arguments = console.parse(TrainTokenizerArguments, words, "tokenizer train")
    from litebert.text.sources import read_documents
    from litebert.text.tally import format_count, format_counts
    from litebert.tokenizer.tokenizer import check_folder
    from litebert.tokenizer.training import MAX_VOCABULARY, train_tokenizer

    check_folder(arguments.out)
    if not 1 <= arguments.vocab_size <= MAX_VOCABULARY:
        raise ConfigError(
            f"--vocab-size is {arguments.vocab_size}; give a number from 1 to {MAX_VOCABULARY}"
        )
    _check_memory(arguments.sample_mib)
    reading = replace(arguments.reading(), out=arguments.out)
    trained = train_tokenizer(
        (document.text for document in read_documents(arguments.sources, reading)),
        kind=arguments.kind,
        vocab_size=arguments.vocab_size,
        lower_case=arguments.lower_case,
        strip_accents=arguments.strip_accents,
        memory=arguments.sample_mib * 2**20,
        seed=arguments.seed,
        shrink=arguments.shrink,
    )
    replaced = trained.write(arguments.out)
    console.say(
        f"read {format_count(reading.tally.documents, 'document')} "
        f"from {format_counts(reading.tally.files)}"
    )
    if arguments.json:
        about = {"kind": trained.kind, "vocab_size": trained.vocab_size}
        console.print_json({"path": str(arguments.out), **about})
    sources = arguments.words(arguments.sources)
    console.ending(
        f"{arguments.out}: a {trained.kind} tokenizer of {trained.vocab_size:,} tokens"
        + (", replacing the one that was there" if replaced else ""),
        ("prepare", *sources, "--tokenizer", arguments.out, "--out", "DATA"),
    )
    return 0


def _extend_by_name(words: list[str]) -> int:
    arguments = console.parse(ExtendTokenizerArguments, words, "tokenizer extend")
    from litebert.tokenizer import Tokenizer
    from litebert.tokenizer.tokenizer import add_named_tokens, check_folder

    check_folder(arguments.out)
    new = add_named_tokens(Tokenizer.load(arguments.tokenizer), arguments.tokens)
    new.write(arguments.out)
    if arguments.json:
        console.print_json(
            {"path": str(arguments.out), "kind": new.kind, "vocab_size": new.vocab_size}
        )
    console.ending(
        f"{arguments.out}: a {new.kind} tokenizer of {new.vocab_size:,} tokens, "
        f"{len(arguments.tokens)} of them new",
        ("adapt", "MODEL", "--tokenizer", arguments.out, "--out", "BIGGER"),
    )
    return 0


def _inspect(words: list[str]) -> int:
    arguments = console.parse(InspectTokenizerArguments, words, "tokenizer inspect")
    if arguments.add_tokens is not None and arguments.other_tokenizer is not None:
        raise ConfigError(
            "--add-tokens and --other-tokenizer compare with two different tokenizers; give one "
            "of them"
        )
    compares = arguments.add_tokens is not None or arguments.other_tokenizer is not None
    _check_memory(arguments.sample_mib)
    require(
        compares or "sample_mib" not in list_changes(arguments),
        "--sample-mib is of --add-tokens and --other-tokenizer; give one of them, or leave "
        "--sample-mib out",
    )
    from litebert.text.sources import read_documents
    from litebert.tokenizer import Tokenizer
    from litebert.tokenizer.inspection import inspect

    tokenizer = Tokenizer.load(arguments.tokenizer)
    if compares:
        lines = _lines(arguments, arguments.sources, arguments.sample_mib)
        new = tokenizer
        added: tuple[Added, ...] = ()
        if arguments.add_tokens is not None:
            new, added = _extend_tokenizer(tokenizer, lines, arguments.add_tokens)
        elif arguments.other_tokenizer is not None:
            new = Tokenizer.load(arguments.other_tokenizer)
        _report(tokenizer, new, lines, _config_of(arguments.tokenizer), added, arguments.json)
        return 0
    texts = (document.text for document in read_documents(arguments.sources, arguments.reading()))
    report = inspect(tokenizer, texts)
    if arguments.json:
        console.print_json(report.to_dict())
    else:
        console.table(("", arguments.tokenizer), report.rows())
    console.ending(
        None, ("prepare", *arguments.sources, "--tokenizer", arguments.tokenizer, "--out", "DATA")
    )
    return 0


def _save(moved: Moved, out: Path) -> None:
    from litebert.interop import save_litebert

    console.warn(*moved.model.notes, *save_litebert(moved.model, out))


def _extend_tokenizer(
    tokenizer: Tokenizer, lines: list[str], size: int
) -> tuple[Tokenizer, tuple[Added, ...]]:
    from litebert.tokenizer.extension import extend

    extension = extend(tokenizer, lines, size)
    if len(extension.added) < size:
        console.say(
            f"only {len(extension.added):,} of {size:,} new tokens would save tokens on this text"
        )
    return extension.tokenizer, extension.added


def _lines(options: TextOptions, sources: tuple[str, ...], memory: int, seed: int = 0) -> list[str]:
    from litebert.base.errors import DataError
    from litebert.base.progress import track
    from litebert.text.sentences import split_lines
    from litebert.text.sources import read_documents
    from litebert.tokenizer.training import sample_lines

    def lines() -> Iterator[str]:
        with track(
            read_documents(sources, options.reading()), "reading text", unit="documents"
        ) as read:
            for document in read:
                yield from split_lines(document.text)

    sample = sample_lines(lines(), memory * 2**20, seed)
    if not sample:
        raise DataError(f"{' '.join(sources)} holds no text; give files with text in them")
    return sample


def _config_of(folder: str) -> Config | None:
    """The config of a model folder; None of a tokenizer alone."""
    if not is_hub_name(folder) and not any(
        Path(folder, name).is_file() for name in ("recipe.json", "config.json", "finetune.json")
    ):
        return None
    with console.loading():
        from litebert.interop.models import config_of
    return config_of(folder)


def _report(
    old: Tokenizer,
    new: Tokenizer,
    lines: list[str],
    config: Config | None,
    added: tuple[Added, ...],
    as_json: bool,
) -> None:
    from litebert.config.cost import model_parameters
    from litebert.tokenizer.inspection import inspect

    text = ["\n".join(lines)]  # at once, which is faster than line by line
    inspections = (inspect(old, text, warns=False), inspect(new, text, warns=True))
    rates = [
        {
            "tokens": each.tokens,
            "tokens_per_character": 1 / each.characters_per_token if each.tokens else 0.0,
            "tokens_per_word": each.tokens_per_word,
            "unknown_rate": each.unknown_rate,
        }
        for each in inspections
    ]
    sizes = [tokenizer.vocab_size for tokenizer in (old, new)]
    parameters: list[int | None] = [None, None]
    if config is not None:
        shapes = (replace(config.encoder, vocab_size=size) for size in sizes)
        configs = [replace(config, encoder=encoder) for encoder in shapes]
        parameters = [sum(model_parameters(each).values()) for each in configs]
    if as_json:
        before, after = (
            {**rate, "vocab_size": size, "parameters": count}
            for rate, size, count in zip(rates, sizes, parameters, strict=True)
        )
        console.print_json(
            {"before": before, "after": after, "added": [asdict(token) for token in added]}
        )
        return
    formats = dict.fromkeys(rates[0], ".3f") | {"tokens": ",", "unknown_rate": ".2%"}
    rows = [
        (name.replace("_", " "), *(format(rate[name], formats[name]) for rate in rates))
        for name in rates[0]
    ]
    rows.append(("vocabulary", *(f"{size:,}" for size in sizes)))
    if parameters[0] is not None:
        rows.append(("parameters", *(f"{count:,}" for count in parameters)))
    console.table(("on this text", "before", "after"), rows)
    if added:
        tokens = [(token.token, f"{token.saved:,}") for token in added[:_SHOWN]]
        console.table(("new token", "tokens saved"), tokens)


def _check_memory(memory: int) -> None:
    if memory < 1:
        raise ConfigError(f"--sample-mib is {memory} MiB; give at least 1")
