"""The command line: a table of verbs, each imported only when chosen. Errors are one sentence and exit status 2."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from litebert.errors import ConfigError, LitebertError, nearest

VERBS = {
    "quickstart": ("models", "raw text to a pretrained model with scores and a report, in minutes"),
    "recipes": ("points", "the named points of the space"),
    "plan": ("points", "parameters, FLOPs and memory of a recipe; with --measure, hours on this machine"),
    "tokenizer": ("text", "train a tokenizer on text, or inspect one"),
    "prepare": ("text", "text to token shards"),
    "pretrain": ("models", "train a recipe; the same command again continues"),
    "evaluate": ("models", "held-out scores of a model"),
    "compare": ("models", "runs side by side in one table"),
    "finetune": ("tasks", "a model on GLUE, SQuAD, RACE, tags or your own table"),
    "predict": ("tasks", "answers of a fine-tuned model to a file"),
    "score": ("tasks", "scores of a fine-tuned model on a labelled file"),
    "convert": ("models", "to Hugging Face folders and back"),
}
"""Each verb: the file of `commands/` with the function of its name, and what it does."""


def help_text() -> str:
    """What `litebert --help` prints."""
    width = max(map(len, VERBS))
    verbs = "\n".join(f"  {name:<{width}}  {line}" for name, (_, line) in VERBS.items())
    return f"litebert: small text encoders, trained on your own text\n\n{verbs}\n\nlitebert VERB --help says more.\n"


def _extend(file: Path) -> None:
    """Run a Python file that registers parts of its own (registry.py)."""
    from litebert.registry import python_file

    try:
        python_file(file.resolve())
    except (Exception, SystemExit) as error:
        raise ConfigError(f"LITEBERT_EXTENSIONS={file} cannot be run: {type(error).__name__}: {error}") from error


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a verb; the exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("-h", "--help", "help"):
        sys.stdout.write(help_text())
        return 0
    if words[0] == "--version":
        from importlib.metadata import version

        sys.stdout.write(f"litebert {version('litebert')}\n")
        return 0
    if words[0] not in VERBS:
        sys.stderr.write(f"litebert: no verb '{words[0]}'; {nearest(words[0], VERBS)}\n")
        return 2
    # Worker threads that wait must sleep, not spin: beside any other busy program, spinning makes a step five times
    # as long (docs/decisions.md). Read by OpenMP when torch is loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        module = importlib.import_module(f"litebert.commands.{VERBS[words[0]][0]}")
        verb: Callable[[list[str]], int] = getattr(module, words[0])
        from litebert.commands.console import show_log

        show_log()
        for name in filter(None, os.environ.get("LITEBERT_EXTENSIONS", "").split(os.pathsep)):
            _extend(Path(name))
        return verb(words[1:])
    except LitebertError as error:
        sys.stderr.write(f"litebert {words[0]}: {error}\n")
        return 2
    except KeyboardInterrupt:
        sys.stderr.write(f"litebert {words[0]}: interrupted\n")
        return 130
    except BrokenPipeError:  # the reader of our output has gone, as in `litebert recipes | head -1`
        sys.stderr.close()
        return 0
    except OSError as error:  # a folder that cannot be written, a full disk
        place = f"{error.filename}: " if error.filename is not None else ""
        sys.stderr.write(f"litebert {words[0]}: {place}{error.strerror or error}\n")
        return 2
    except SystemExit as stop:  # how the argument parser leaves
        return stop.code if isinstance(stop.code, int) else 1
