"""The client: N connections, each of which sends its next request when the last one is answered.
One that is refused (429) first waits as long as `Retry-After` says.

    python client.py PORT PATH BODIES ANSWERS CONNECTIONS SECONDS

BODIES is a JSON list of bodies; ANSWERS takes the last answer to each, to be checked later. Prints
what it counted as JSON. It knows only as much HTTP as these servers speak, so that it leaves the
processor to them.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path

WARM = 0.5
"""Seconds that are not counted."""


class Connection(asyncio.Protocol):
    """One request after the other."""

    def __init__(self, load: Load) -> None:
        self._load, self._received, self._size = load, b"", -1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._send()

    def _send(self) -> None:
        if self._load.over():
            self._transport.close()
            return
        self._number, self._begun = self._load.next(), time.perf_counter()
        self._transport.write(self._load.requests[self._number])

    def data_received(self, data: bytes) -> None:
        self._received += data
        if self._size < 0 and (end := self._received.find(b"\r\n\r\n")) >= 0:
            head = self._received[:end].lower()
            assert b"content-length: " in head, f"an answer without its length: {head!r}"
            self._size = end + 4 + int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
        if 0 <= self._size <= len(self._received):
            wait = self._load.count_answer(self._number, self._begun, self._received)
            self._received, self._size = b"", -1
            if wait:
                asyncio.get_running_loop().call_later(wait, self._send)
            else:
                self._send()

    def connection_lost(self, error: Exception | None) -> None:
        self._load.lost += not self._load.over()
        self._load.gone()


class Load:
    """The requests that all connections send, and the counts of their answers."""

    def __init__(
        self, port: int, path: str, bodies: list[object], connections: int, seconds: float
    ) -> None:
        self.requests, self.answers = [_request(path, body) for body in bodies], dict[int, bytes]()
        self.times, self.refused, self.others, self.lost = list[float](), 0, 0, 0
        self._port, self._connections, self._seconds, self._sent = port, connections, seconds, 0

    async def run(self) -> dict[str, float]:
        """Load the server, and what was counted."""
        loop = asyncio.get_running_loop()
        self._open, self._all_gone = self._connections, loop.create_future()
        self._start = time.perf_counter() + WARM
        processor = time.process_time()
        for _ in range(self._connections):
            await loop.create_connection(lambda: Connection(self), "127.0.0.1", self._port)
        await self._all_gone
        processor = time.process_time() - processor
        times = sorted(self.times) or [float("inf")]
        return {
            "connections": self._connections,
            "requests_per_second": len(self.times) / self._seconds,
            "p50_ms": 1000 * times[len(times) // 2],
            "p99_ms": 1000 * times[int(0.99 * (len(times) - 1) + 0.5)],
            "refused_per_second": self.refused / self._seconds,
            "others": self.others,
            "lost": self.lost,
            "client_processor": processor / (WARM + self._seconds),
        }

    def next(self) -> int:
        """The number of the next body."""
        self._sent += 1
        return (self._sent - 1) % len(self.requests)

    def over(self) -> bool:
        """True once the time is up."""
        return time.perf_counter() > self._start + self._seconds

    def count_answer(self, number: int, begun: float, answer: bytes) -> float:
        """Count an answer; those of other statuses apart.

        Returns:
            The seconds to wait before the next request.
        """
        now = time.perf_counter()
        is_counted = begun >= self._start and now <= self._start + self._seconds
        if answer.startswith(b"HTTP/1.1 429"):
            self.refused += is_counted
            wait = answer.lower().partition(b"\r\nretry-after: ")[2].partition(b"\r\n")[0]
            return float(wait)
        if not answer.startswith(b"HTTP/1.1 200"):
            self.others += 1
        elif is_counted:
            self.times.append(now - begun)
        self.answers[number] = answer
        return 0.0

    def gone(self) -> None:
        """A connection has ended."""
        self._open -= 1
        if not self._open:
            self._all_gone.set_result(None)


def _request(path: str, body: object) -> bytes:
    data = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: "
        f"application/json\r\nContent-Length: {len(data)}"
    )
    return f"{head}\r\n\r\n".encode() + data


if __name__ == "__main__":
    port, path, bodies, answers, connections, seconds = sys.argv[1:]
    load = Load(
        int(port), path, json.loads(Path(bodies).read_text()), int(connections), float(seconds)
    )
    print(json.dumps(asyncio.run(load.run())))
    answer_bodies = {
        number: answer.partition(b"\r\n\r\n")[2].decode() for number, answer in load.answers.items()
    }
    Path(answers).write_text(json.dumps(answer_bodies))
