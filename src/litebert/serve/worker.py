"""A worker process: one model, batches in on standard input, answers out on what was standard
output. It ignores signals, and ends with its input, after answering what it took.
"""

from __future__ import annotations

import gc
import logging
import math
import os
import signal
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, BinaryIO

from litebert.base.errors import DataError, LitebertError
from litebert.base.machine import return_freed_memory
from litebert.base.registry import pause_collection
from litebert.serve import logs, wire
from litebert.serve.wire import Group

if TYPE_CHECKING:
    from litebert.serve.served import Served

EXAMPLE = (
    "the quick brown fox jumps over the lazy dog and runs back to the river before the sun "
    "goes down again"
)
"""The text on which the speed of a model is first measured."""
LONGEST = 8192
"""The tokens of the longest row on which it is."""
VARIANTS = 16
"""Forms of the example on which an engine of fewer bits is compared with float32."""


def main() -> None:
    """Serve until the service closes the pipe."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    source, out = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb", 0)
    os.dup2(2, 1)  # what a library prints must not stand among the answers
    settings = wire.read(source)
    if settings is None:
        return
    logs.set_up()
    warnings.simplefilter("ignore")
    try:
        served, ready = _open(settings)
    except LitebertError as error:
        out.write(wire.pack(("failed", str(error))))
        return
    except Exception as error:  # of a library that is broken or missing
        logs.event("a model cannot be opened", logging.ERROR, **logs.failure(error))
        message = f"{settings['path']} cannot be opened: {type(error).__name__}: {error}"
        out.write(wire.pack(("failed", message)))
        return
    # From this point on, messages may quote texts.
    logging.getLogger("litebert").setLevel(logging.CRITICAL)
    logs.LOG.setLevel(logging.ERROR)
    out.write(wire.pack(("ready", *ready)))
    _serve(served, source, out)


def _open(settings: dict[str, Any]) -> tuple[Served, tuple[Any, ...]]:
    with pause_collection():
        from litebert.base.registry import load_extensions
        from litebert.serve.served import Served

    load_extensions()
    served = Served(Path(settings["path"]), settings)
    # In a thread of its own, with which the working memory for the longest row goes.
    with ThreadPoolExecutor(1) as pool:
        trials, characters, step = pool.submit(warm, served).result()
    # Opening a model took, and freed again, half as much as a small model itself.
    gc.collect()
    return_freed_memory()
    return served, (served.info(), trials, characters, step)


# --------------------------------------------------------------------------------------- answering


def _serve(served: Served, source: BinaryIO, out: BinaryIO) -> None:
    """Answer all batches: short ones in this thread, long ones in another, in steps."""
    from litebert.serve.steps import Turns

    turns, writing = Turns(), threading.Lock()
    long: SimpleQueue[Any] = SimpleQueue()

    def answer(number: int, groups: Any) -> None:
        start, paused = time.perf_counter(), turns.paused
        answers = [[tuple(row) for row in _answer_group(served, Group(*group))] for group in groups]
        seconds = time.perf_counter() - start - (turns.paused - paused)
        with writing, suppress(BrokenPipeError):  # a service that was killed reads no answers
            out.write(wire.pack((number, answers, seconds)))

    def answer_long() -> None:
        while (batch := long.get()) is not None:
            number, step_seconds, groups = batch
            with turns.long(), served.steps.of(step_seconds, turns.step, turns.aside):
                answer(number, groups)

    thread = threading.Thread(target=answer_long)
    thread.start()
    try:
        while (batch := wire.read(source)) is not None:
            if batch[1] > 0:
                long.put(batch)
            else:
                with turns.short():
                    answer(batch[0], batch[2])
    finally:  # the process lives as long as this thread does
        long.put(None)
        thread.join()


def _answer_group(served: Served, group: Group) -> list[wire.Row]:
    """Answer the inputs of a group; each alone, if they cannot be answered together."""
    try:
        return served.answer(group)
    except Exception as error:  # whatever a text sets off in a library
        if len(group.inputs) > 1:
            alone = (group._replace(inputs=[value]) for value in group.inputs)
            return [row for part in alone for row in _answer_group(served, part)]
        if isinstance(error, DataError):  # half a character, say; the message quotes it
            return [wire.refuse(" cannot be read as text; send whole characters")]
        about = logs.failure(error)
        logs.event("an input failed", logging.ERROR, operation=group.operation, **about)
        message = " could not be answered; the log of the service names the reason"
        return [wire.refuse(message, "internal")]


# ----------------------------------------------------------------------------------------- warming


def warm(served: Served) -> tuple[list[tuple[int, float]], float, float]:
    """Make the engines, and measure requests, so that no client waits for it.

    Returns how many short inputs took how many seconds, each the best of three; the characters of
    one; and the longest step, in seconds, of a request that fills a row.
    """
    value, operation = _make_example(served)
    if served.engine == "onnx" or served.model.dtype not in ("float32", served.model.packed):
        for made in ("predict", "embed"):
            values = [
                _make_example(served, turn)[0] if made == "predict" else _turn(turn)
                for turn in range(VARIANTS)
            ]
            if made in served.does:
                served.answer(Group(made, (), values))
    trials = []
    for rows in (1, 1, 4):  # what is done once is not counted
        best = math.inf
        for _ in range(3):
            start = time.perf_counter()
            served.answer(Group(operation, (), [value] * rows))
            best = min(best, time.perf_counter() - start)
        trials.append((rows, best))
    if "fill-mask" in served.does:
        for token in range(served.tokenizer.vocab_size):
            served.tokenizer.get_word(token)  # a table, so that no answer decodes
    # The least that a request of long texts takes at a time: one row of full length. TF-IDF models
    # have no such length.
    length = min(served.length, LONGEST)
    long = " ".join([EXAMPLE] * (1 + length // len(EXAMPLE.split())))
    texts: Any = [long, value[1], *value[2:]] if isinstance(value, list) else f"{long} [MASK]"
    if operation == "fill-mask":
        most = max(1, served.length // 3)  # in the length, whatever the tokenizer
        texts = f"{' '.join(long.split()[:most])} [MASK]"
    best = math.inf
    for _ in range(2):
        longest, last = 0.0, time.perf_counter()

        def step() -> None:
            nonlocal longest, last
            now = time.perf_counter()
            longest, last = max(longest, now - last), now

        with served.steps.of(1e-9, step):
            served.answer(Group(operation, (), [texts]))
        best = min(best, longest)
    return trials[1:], float(len(EXAMPLE)), best


def _make_example(served: Served, turn: int = 0) -> tuple[Any, str]:
    text = _turn(turn)
    if served.predictor is not None:
        words = text.split()
        forms: list[Any] = [
            text,
            [" ".join(words[:10]), " ".join(words[10:])],
            [" ".join(words[:8]), " ".join(words[8:12]), words[12:14]],
        ]
        for value in forms:
            with suppress(TypeError, ValueError):
                served.predictor.task.example(value, "")
                return value, "predict"
    if "embed" in served.does:
        return text, "embed"
    return (f"{text} [MASK]", "fill-mask") if "fill-mask" in served.does else (text, "tokenize")


def _turn(turn: int) -> str:
    words = EXAMPLE.split()
    return " ".join(words[turn % len(words) :] + words[: turn % len(words)])
