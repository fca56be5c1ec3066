"""A worker process: one model, batches in on standard input, answers out on what was standard
output.

It ignores the signals that end the service, and ends when its standard input does: whatever it
took, it answers.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import threading
import time
import warnings
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any, BinaryIO

from litebert.errors import DataError, LitebertError
from litebert.machine import return_freed_memory
from litebert.registry import pause_collection
from litebert.serve import logs, wire


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


def _serve(served: Any, source: BinaryIO, out: BinaryIO) -> None:
    """Answer batches until there are no more: short ones in this thread, long ones in another, in
    steps.
    """
    from litebert.serve.steps import Turns

    turns, writing = Turns(), threading.Lock()
    long: SimpleQueue[Any] = SimpleQueue()

    def answer(number: int, groups: Any) -> None:
        start, paused = time.perf_counter(), turns.paused
        answers = [
            [tuple(row) for row in _answer_group(served, wire.Group(*group))] for group in groups
        ]
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


def _open(settings: dict[str, Any]) -> tuple[Any, tuple[Any, ...]]:
    """Open and warm a model, and return it with the reply of `Worker.start`."""
    with pause_collection():
        from litebert.registry import load_extensions
        from litebert.serve.served import Served
        from litebert.serve.warming import warm

    load_extensions()
    served = Served(Path(settings["path"]), settings)
    trials, characters, step = warm(served)
    _give_back()
    return served, (served.info(), trials, characters, step)


def _give_back() -> None:
    """Return to the system what opening a model took and freed again: half as much as a small model
    itself.
    """
    gc.collect()
    return_freed_memory()


def _answer_group(served: Any, group: wire.Group) -> list[wire.Row]:
    """Answer the inputs of a group; each alone, if they cannot be answered together."""
    try:
        return list(served.answer(group))
    except Exception as error:  # whatever a text sets off in a library
        if len(group.inputs) > 1:
            return [
                row
                for value in group.inputs
                for row in _answer_group(served, group._replace(inputs=[value]))
            ]
        if isinstance(error, DataError):  # half a character, say; the message quotes it
            message, kind = " cannot be read as text; send whole characters", "validation"
        else:
            about = logs.failure(error)
            logs.event("an input failed", logging.ERROR, operation=group.operation, **about)
            message = " could not be answered; the log of the service names the reason"
            kind = "internal"
        return [wire.Row(b"", 0, message, kind)]
