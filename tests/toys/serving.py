"""A service as a user starts it, and a client that loads it: plain HTTP over connections that stay
open.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

import litebert

SOURCE = Path(litebert.__file__).parents[1]


@dataclass
class Service:
    """A running `litebert serve`."""

    process: subprocess.Popen[bytes]
    url: str
    log: Path

    def events(self, name: str | None = None) -> list[dict[str, Any]]:
        """Events that it logged, of one kind or all; every line must be JSON."""
        records = [json.loads(line) for line in self.log.read_text().splitlines()]
        return [record for record in records if name in (None, record["event"])]

    def stop(self) -> int:
        """Ask it to end, and its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)

    def client(self, **options: Any) -> httpx.Client:
        """A client of it."""
        return httpx.Client(base_url=self.url, timeout=30, **options)

    def resident(self) -> int:
        """Kilobytes of memory of it and its workers."""
        pids = [
            self.process.pid,
            *(pid for event in self.events("a model is ready") for pid in event["pids"]),
        ]
        matches = (
            re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text()) for pid in pids
        )
        return sum(int(match[1]) for match in matches if match)


@contextmanager
def serving(
    folder: Path,
    *words: object,
    command: Sequence[str] = (sys.executable, "-m", "litebert"),
    **environment: str,
) -> Iterator[Service]:
    """Start it, and end it if the test did not."""
    log = folder / f"serve-{time.monotonic_ns()}.log"
    path = os.pathsep.join([str(SOURCE), os.environ.get("PYTHONPATH", "")])
    with open(log, "wb") as file:
        words = (*command, "serve", "--port", "0", *words)
        process = subprocess.Popen(
            list(map(str, words)),
            stderr=file,
            env={**os.environ, "PYTHONPATH": path, **environment},
        )
    service = Service(process, "", log)
    try:
        deadline = time.monotonic() + 60
        while not (ready := log.read_text().rpartition('"listening"')[2]) or '"url"' not in ready:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.02)
        service.url = service.events("listening")[0]["url"]
        yield service
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def raw(service: Service, content: bytes, wait: float = 10) -> bytes:
    """The answer to bytes as they are."""
    host, port = service.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), wait) as connection:
        connection.sendall(content)
        connection.settimeout(wait)
        received = b""
        while b"\r\n\r\n" not in received and (more := connection.recv(65536)):
            received += more
        return received


def until(true: Callable[[], Any]) -> None:
    """Wait for something that comes soon."""
    deadline = time.monotonic() + 30
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def open_connection(service: Service) -> socket.socket:
    host, port = service.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), 10)


def read_answer(connection: socket.socket) -> tuple[int, bytes]:
    """The status and the body of the next answer."""
    file = connection.makefile("rb")
    status, length = int(file.readline().split()[1]), 0
    while (line := file.readline().strip().lower()) != b"":
        length = int(line.partition(b":")[2]) if line.startswith(b"content-length:") else length
    return status, file.read(length)


@dataclass
class Tally:
    """The outcomes of many requests."""

    seconds: list[float] = field(default_factory=list)
    """Seconds of those that were answered."""
    refused: int = 0
    """Requests refused with 429 and when to come again."""
    wrong: list[Any] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    """Sent whole, and not answered."""
    unsent: int = 0
    """The service had closed the connection, or did not take it."""

    def percentile(self, share: float) -> float:
        """A percentile of the seconds."""
        return sorted(self.seconds)[min(len(self.seconds) - 1, int(share * len(self.seconds)))]


async def exchange(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str, body: Any
) -> tuple[int, dict[str, str], bytes]:
    """A POST over an open connection: status, headers and body."""
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    head += f"Content-Length: {len(data)}\r\n\r\n"
    writer.write(head.encode() + data)
    lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = {
        name.lower(): value
        for name, _, value in (line.partition(": ") for line in lines[1:])
        if name
    }
    return (
        int(lines[0].split()[1]),
        headers,
        await reader.readexactly(int(headers.get("content-length", 0))),
    )


async def load(
    url: str,
    path: str,
    requests: Sequence[tuple[Any, Callable[[Any], bool]]],
    rate: float | None,
    seconds: float,
    connections: int,
    stopped: Callable[[], bool] = lambda: False,
) -> Tally:
    """Requests at a rate, whatever becomes of them (or, where it is None, one after the other on
    each connection).

    Args:
        asked: bodies, with what says whether an answer is right.
    """
    host, port = url.removeprefix("http://").split(":")
    tally, start = Tally(), time.monotonic()
    sent = 0

    async def one_connection() -> None:
        nonlocal sent
        reader = writer = None
        while time.monotonic() - start < seconds and not stopped():
            number, sent = sent, sent + 1
            if rate is not None and (wait := start + number / rate - time.monotonic()) > 0:
                await asyncio.sleep(wait)
            body, right = requests[number % len(requests)]
            begun = time.monotonic()
            try:
                if writer is None:
                    reader, writer = await asyncio.open_connection(host, int(port))
                assert reader is not None
                status, headers, answer = await exchange(reader, writer, path, body)
            except (OSError, asyncio.IncompleteReadError) as error:
                none_came = isinstance(error, asyncio.IncompleteReadError) and not error.partial
                if isinstance(error, ConnectionError) or none_came:
                    tally.unsent += 1
                else:
                    tally.lost.append(repr(error))
                writer = None
                continue
            if status == 200:
                tally.seconds.append(time.monotonic() - begun)
                if not right(json.loads(answer)):
                    tally.wrong.append((body, answer[:200]))
            elif status == 429 and int(headers["retry-after"]) >= 1:
                tally.refused += 1
            else:
                tally.wrong.append((body, status, answer[:200]))
            if headers.get("connection") == "close":
                writer.close()
                writer = None
        if writer is not None:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    await asyncio.gather(*(one_connection() for _ in range(connections)))
    return tally
