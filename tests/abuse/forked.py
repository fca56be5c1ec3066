"""A command in a process of its own: with limits, signals, odd streams.

The processes are forked from a server that has loaded torch, and that runs no test itself: a fork
of a process of many threads inherits the locks that they hold.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from toys.preload import MODULES


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    status: int
    """The exit status of a shell: 128 and the signal's number where one ended it."""
    out: str
    err: str


def run(
    words: list[str],
    folder: Path,
    *,
    environment: Mapping[str, str] | None = None,
    before: Callable[[], object] = int,
    stop: tuple[signal.Signals, float] | None = None,
    patience: float = 60.0,
) -> Ended:
    """Run `litebert WORDS` in a folder.

    Args:
        environment: variables that are set for it.
        before: is called in the new process, for limits and streams; can be pickled.
        stop: a signal it gets, and after how many seconds.
    """
    logs = [folder.parent / f"{folder.name}.{name}" for name in ("out", "err")]
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(MODULES)
    begins, began = context.Pipe(duplex=False)
    process = context.Process(
        target=_child, args=(words, folder, environment or {}, logs, before, began)
    )
    process.start()
    began.close()
    begins.recv()
    begins.close()
    assert process.pid is not None
    if stop is not None:
        process.join(stop[1])
        with suppress(ProcessLookupError):  # it has come to its end
            os.kill(process.pid, stop[0])
    process.join(patience)
    if process.exitcode is None:
        os.kill(process.pid, signal.SIGUSR1)  # it writes where its threads are
        time.sleep(0.5)
        process.kill()
        process.join()
        stuck = f"litebert {' '.join(words)} did not end within {patience:.0f} seconds"
        raise AssertionError(f"{stuck}\n{logs[1].read_text(errors='replace')}")
    code = process.exitcode
    process.close()
    return Ended(
        128 - code if code < 0 else code, *(log.read_text(errors="replace") for log in logs)
    )


def _child(
    words: list[str],
    folder: Path,
    environment: Mapping[str, str],
    logs: list[Path],
    before: Callable[[], object],
    began: Connection,
) -> None:
    status = 70
    try:
        import torch

        from litebert.cli import main

        torch.set_num_threads(1)
        for number, log in enumerate(logs, 1):
            os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        # Not pytest's streams, but those of the process.
        sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        faulthandler.register(signal.SIGUSR1, file=2)
        os.chdir(folder)
        os.environ.update(environment)
        began.send(None)
        began.close()
        before()
        status = main(words)
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
    except BaseException:  # what `python -m litebert` would print
        import traceback

        os.write(2, traceback.format_exc().encode())
        status = 1
    finally:
        os._exit(status)
