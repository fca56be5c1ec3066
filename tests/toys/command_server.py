"""Run litebert's command line in fresh processes that need not import torch again: a server that
forks.

Reads lines of JSON from standard input, `{"words": [...], "log": FILE}`. For each it forks a child
that runs `litebert WORDS` with its output in FILE, prints the child's process id, waits, and prints
how it ended as `subprocess` would: the exit status, or minus the number of the signal.
"""

from __future__ import annotations

import importlib
import json
import os
import sys


def serve() -> None:
    import torch
    from preload import MODULES  # type: ignore[import-not-found]  # beside this file, a script

    from litebert.cli import main

    for module in MODULES:
        importlib.import_module(module)
    torch.set_num_threads(1)
    for line in sys.stdin:
        command = json.loads(line)
        child = os.fork()
        if child == 0:
            log = os.open(command["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(log, 1)
            os.dup2(log, 2)
            status = 70
            try:
                status = main(command["words"])
                sys.stdout.flush()
                sys.stderr.flush()
            finally:
                os._exit(status)
        print(child, flush=True)  # noqa: T201
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)  # noqa: T201


if __name__ == "__main__":
    serve()
