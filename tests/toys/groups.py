"""`litebert` commands run by several processes at once, as torchrun starts them but without its
seconds of imports.

`Groups` is the client. Run as a script, this is its server, which has torch loaded: for every line
of JSON, `{"words": [...], "size": 2, "folder": FOLDER}`, it forks `size` processes with the
environment of torchrun and their output in FOLDER/0.txt, FOLDER/1.txt, ..., prints their process
ids, waits for all, and prints how each ended.
"""

from __future__ import annotations

import importlib
import json
import os
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Ended:
    """How the processes of a command ended, by rank."""

    statuses: list[int]
    outputs: list[str]

    @property
    def output(self) -> str:
        return "".join(self.outputs)


class Groups:
    """Starts a server; close it at the end."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._server = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            env={**os.environ, "OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"},
        )

    def start(self, size: int, *words: object, **environment: str) -> list[int]:
        """Start a command in a group; the process ids by rank."""
        message = {
            "words": [str(word) for word in words],
            "size": size,
            "folder": str(self._folder),
        }
        assert self._server.stdin is not None
        self._server.stdin.write(json.dumps({**message, "environment": environment}) + "\n")
        return self._read()

    def end(self) -> Ended:
        """Wait for all processes of the command; statuses are minus the number of a signal that
        ended a process.
        """
        statuses = self._read()
        texts = [(self._folder / f"{rank}.txt").read_text("utf-8") for rank in range(len(statuses))]
        return Ended(statuses, texts)

    def run(self, size: int, *words: object, **environment: str) -> Ended:
        self.start(size, *words, **environment)
        return self.end()

    def complete(self, size: int, *words: object, **environment: str) -> Ended:
        """Run a command that must succeed, and whose main process alone may speak."""
        ended = self.run(size, *words, **environment)
        assert ended.statuses == [0] * size, ended.output
        assert ended.outputs[1:] == [""] * (size - 1), "only the main process speaks"
        return ended

    def _read(self) -> list[int]:
        assert self._server.stdout is not None
        line = self._server.stdout.readline()
        assert line, "the server of groups has died"
        numbers: list[int] = json.loads(line)
        return numbers

    def close(self) -> None:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.close()
        self._server.wait(timeout=60)
        self._server.stdout.close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def serve() -> None:
    import torch.distributed
    from preload import MODULES  # type: ignore[import-not-found]  # beside this file, a script

    for module in MODULES:
        importlib.import_module(module)
    torch.set_num_threads(1)
    for line in sys.stdin:
        message = json.loads(line)
        size, port = message["size"], free_port()
        # torchrun keeps the store of a group in a process of its own, which outlives the group.
        store = torch.distributed.TCPStore(  # type: ignore[attr-defined]
            "127.0.0.1", port, is_master=True, wait_for_workers=False
        )
        children = [child(message, rank, port) for rank in range(size)]
        print(json.dumps(children), flush=True)  # noqa: T201
        ends = [os.waitstatus_to_exitcode(os.waitpid(number, 0)[1]) for number in children]
        print(json.dumps(ends), flush=True)  # noqa: T201
        del store


def child(message: dict[str, Any], rank: int, port: int) -> int:
    """Fork one process of a group."""
    from litebert.cli import main

    number = os.fork()
    if number:
        return number
    status = 70
    try:
        place = {
            "RANK": rank,
            "LOCAL_RANK": rank,
            "WORLD_SIZE": message["size"],
            "LOCAL_WORLD_SIZE": message["size"],
        }
        where = {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port,
            "TORCHELASTIC_USE_AGENT_STORE": True,
        }
        if message["size"] != 1:
            os.environ.update({name: str(value) for name, value in (place | where).items()})
        os.environ.update(message["environment"])
        log = os.open(f"{message['folder']}/{rank}.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        status = main(message["words"])
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(status)


if __name__ == "__main__":
    serve()
