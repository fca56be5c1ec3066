"""A command in a process of its own, forked from this one so that torch is there: with limits, signals, odd streams."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    status: int
    """As a shell has it: 128 and the signal's number where one ended it."""
    out: str
    err: str


def run(
    words: list[str],
    folder: Path,
    *,
    environment: Mapping[str, str] | None = None,
    before: Callable[[], object] = lambda: None,
    stop: tuple[signal.Signals, float] | None = None,
    patience: float = 60.0,
) -> Ended:
    """Run `litebert WORDS` in a folder.

    Args:
        environment: variables that are set for it.
        before: is called in the new process, for limits and streams.
        stop: a signal it gets, and after how many seconds.
    """
    import torch
    import torch._dynamo  # what the first optimizer of a process would import

    import litebert.commands.models
    import litebert.commands.tasks
    import litebert.commands.text
    import litebert.finetuning.run
    import litebert.train.pretrain  # noqa: F401

    torch.set_num_threads(1)
    logs = [folder.parent / f"{folder.name}.{name}" for name in ("out", "err")]
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        _child(words, folder, environment or {}, logs, before)
    began, sent = time.monotonic(), stop is None
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            return Ended(128 - code if code < 0 else code, *(log.read_text(errors="replace") for log in logs))
        if stop is not None and not sent and time.monotonic() - began > stop[1]:
            os.kill(child, stop[0])
            sent = True
        if time.monotonic() - began > patience:
            os.kill(child, signal.SIGUSR1)  # it writes where its threads are
            time.sleep(0.5)
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            stuck = f"litebert {' '.join(words)} did not end within {patience:.0f} seconds"
            raise AssertionError(f"{stuck}\n{logs[1].read_text(errors='replace')}")
        time.sleep(0.005)


def _child(
    words: list[str], folder: Path, environment: Mapping[str, str], logs: list[Path], before: Callable[[], object]
) -> None:
    status = 70
    try:
        from litebert.cli import main

        for number, log in enumerate(logs, 1):
            os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115 - not pytest's
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        faulthandler.register(signal.SIGUSR1, file=2)
        os.chdir(folder)
        os.environ.update(environment)
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
