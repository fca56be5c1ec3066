"""`litebert demo`: the models that stand in the package."""

from __future__ import annotations

import socket
import tempfile
import threading
import time
import webbrowser
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from litebert.base.errors import ConfigError, MissingExtraError, require
from litebert.commands import console
from litebert.commands.answers import show_answers
from litebert.commands.options import Arg

TEXTS = (
    "The battery died after two days, and nobody answered my letters.",
    "What a delightful little film!",
    "She put the [MASK] on the table and went to bed.",
)
"""Texts for the terminal, where none are given."""
MASK = "[MASK]"


@dataclass
class DemoArguments:
    """Try three small models, offline: sentiment of reviews, masked words and sentence vectors.

    Without TEXT, a playground opens in the browser.
    """

    examples: ClassVar[tuple[str, ...]] = (
        "litebert demo",
        'litebert demo "It broke after a week." "She put the [MASK] on the table."',
    )

    texts: Annotated[tuple[str, ...], Arg("TEXT", positional=True)] = ()
    """Texts to answer in the terminal."""
    out: Path | None = None
    """Folder to keep the models in."""
    port: int = 8000
    """Port of the playground; 0 takes a free one."""
    browser: bool = True
    """Open the playground in a browser."""


def demo(words: list[str]) -> int:
    arguments = console.parse(DemoArguments, words, "demo")
    require(0 <= arguments.port < 1 << 16, f"--port is {arguments.port}; give one from 0 to 65535")
    if any(not text.strip() for text in arguments.texts):
        raise ConfigError("TEXT is empty; write a sentence")
    with _open_models(arguments.out) as models:
        if arguments.out is not None:
            console.say(f"the models are in {', '.join(map(str, models.values()))}")
        if arguments.texts:
            return _answer(models, arguments.texts)
        try:
            from litebert.commands.serve import require_packages

            require_packages()
        except MissingExtraError as error:
            status = _answer(models, TEXTS)
            console.say(f"for the playground, {error}")
            return status
        return _serve(models, arguments)


@contextmanager
def _open_models(out: Path | None) -> Iterator[Mapping[str, Path]]:
    with console.loading():
        from litebert.demo import unpack

    if out is not None:
        yield unpack(out)
        return
    with tempfile.TemporaryDirectory(prefix="litebert-demo-") as folder:
        yield unpack(folder)


def _answer(models: Mapping[str, Path], texts: Sequence[str]) -> int:
    import numpy as np

    from litebert.answer.model import load

    whole = [text for text in texts if MASK not in text]
    if whole:
        answers = load(models["sentiment"], device="cpu").predict(whole)
        show_answers(whole, answers, "sentiment")
    if len(whole) > 1:
        vectors = load(models["vectors"], device="cpu").encode(whole)
        norms = np.linalg.norm(vectors, axis=1)
        rows = [
            (first, second, f"{vectors[i] @ vectors[i + j + 1] / norms[i] / norms[i + j + 1]:.2f}")
            for i, first in enumerate(whole)
            for j, second in enumerate(whole[i + 1 :])
        ]
        console.table(("text", "another text", "similarity"), rows)
    for text in (text for text in texts if MASK in text):
        (guesses, *_) = load(models["words"], device="cpu").fill_mask(text)
        rows = [(text, guess.token, f"{guess.probability:.0%}") for guess in guesses]
        console.table(("text", "word", "probability"), rows)
    return 0


def _serve(models: Mapping[str, Path], arguments: DemoArguments) -> int:
    from litebert.serve.server import Settings, serve

    port = arguments.port
    if not port:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
    console.say(f"the playground opens at http://127.0.0.1:{port}; Ctrl-C ends it")
    if arguments.browser:
        threading.Thread(target=_open_browser, args=(port,), daemon=True).start()
    serve(Settings(dict(models), port=port, log_requests=False))
    return 0


def _open_browser(port: int) -> None:
    """Open the playground as soon as the service answers."""
    for _ in range(600):
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            webbrowser.open(f"http://127.0.0.1:{port}/")
            return
        time.sleep(0.1)
