"""A `litebert` that starts at once, for tests of scripts: each command is forked from a server that
has torch loaded.

`start` writes an executable `litebert` into a folder. It hands its words, its folder and its three
standard streams to the server over a socket, and ends with the status that the command ends with in
the server's fork.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path

_CLIENT = """#!/bin/sh
exec "{python}" -SE -c '
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect(os.path.join(sys.argv[1], "socket"))
    message = json.dumps([os.getcwd(), sys.argv[2:]]).encode()
    socket.send_fds(server, [message], [0, 1, 2])
    server.shutdown(socket.SHUT_WR)
    sys.exit(int(server.recv(9) or b"70"))
' "$(dirname "$0")" "$@"
"""


def start(folder: Path) -> subprocess.Popen[str]:
    """Write `folder`/litebert and start what answers it; kill the process at the end."""
    program = folder / "litebert"
    program.write_text(_CLIENT.format(python=sys.executable), encoding="utf-8")
    program.chmod(0o755)
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, __file__, "socket"],
        cwd=folder,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def serve(name: str) -> None:
    """Fork for every message, until standard input ends: with the process that started this one,
    however that ends.
    """
    import torch
    from preload import MODULES  # type: ignore[import-not-found]  # beside this file, a script

    for module in MODULES:
        importlib.import_module(module)
    torch.set_num_threads(1)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no zombies
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(name)
        server.listen()
        print("ready", flush=True)  # noqa: T201
        while server in select.select([server, sys.stdin], [], [])[0]:
            connection, _ = server.accept()
            if os.fork() == 0:
                _run(connection)
            connection.close()


def _run(connection: socket.socket) -> None:
    from litebert.cli import main

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    status = 70
    try:
        message, streams, *_ = socket.recv_fds(connection, 1 << 16, 3)
        folder, words = json.loads(message)
        os.chdir(folder)
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        status = main(words)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        connection.sendall(str(status).encode())
        os._exit(status)


if __name__ == "__main__":
    serve(sys.argv[1])
