"""The program in which a tokenizer learns, started by `training.py` as a process of its own.

The libraries learn in C++ and Rust, where Python does not notice Ctrl-C. A process can be ended at
once. This file imports nothing of litebert, so it starts in a tenth of a second. It reads a pickled
task from standard input. It writes the pickled result to standard output: (True, what was learned)
or (False, what the library reports).
"""

from __future__ import annotations

import io
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any


def train_unigram(lines: list[str], options: dict[str, Any]) -> bytes:
    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, **options
    )
    return model.getvalue()


def train_portable(lines: list[str], options: dict[str, Any], untrained: str, trainer: str) -> str:
    import tokenizers

    learner = tokenizers.Tokenizer.from_str(untrained)
    learner.train_from_iterator(
        lines, getattr(tokenizers.trainers, trainer)(show_progress=False, **options)
    )
    return learner.to_str()


LEARN: dict[str, Callable[..., Any]] = {"unigram": train_unigram, "portable": train_portable}


def main() -> None:
    folder = os.path.dirname(os.path.abspath(__file__))
    # The libraries must not import the modules of this folder, which have names like `words`.
    sys.path[:] = [entry for entry in sys.path if entry != folder]
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    # Ctrl-C reaches the whole group of processes, and the parent decides what happens.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Libraries print to standard output too, so their output goes to standard error.
    result = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    name, task = pickle.load(sys.stdin.buffer)
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    try:
        learned = True, LEARN[name](**task)
    except Exception as error:  # the libraries raise plain Exception
        learned = False, str(error)
    with result:
        pickle.dump(learned, result)


def _leave_with_parent() -> None:
    # The parent never closes its end of the pipe while it waits: an end means that it was killed.
    sys.stdin.buffer.read()
    os._exit(1)


if __name__ == "__main__":
    main()
