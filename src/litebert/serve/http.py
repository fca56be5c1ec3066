"""The service over HTTP: bounded connections, a server, and an end that finishes what it took."""

from __future__ import annotations

import asyncio
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from ipaddress import ip_address
from types import FrameType
from typing import TYPE_CHECKING, Any

import httptools
import uvicorn
from starlette.middleware.cors import CORSMiddleware
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from litebert.serve import logs
from litebert.serve.guard import BUSY, CLOSING, LOOPBACK, Guard
from litebert.serve.limits import HEAD, HEADERS, LARGE_HEAD, SENDING, Refusal
from litebert.serve.routes import make_application
from litebert.serve.server import refuse_address
from litebert.serve.service import Service

if TYPE_CHECKING:
    from litebert.serve.server import Settings

GRACE = 0.25
"""Seconds in which a stopping service still answers on open connections, and closes each then."""


def _count_most() -> int:
    try:
        import resource
    except ImportError:  # not on Windows
        return 400
    return max(64, min(4096, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 128))


class Connection(HttpToolsProtocol):
    """A connection whose client must send the head of a request, and read its answer, in time.

    A request that asks for another protocol (`Upgrade`) is answered in this one (RFC 9110, section
    7.8). The parser would take its body for the other protocol, so a new parser reads the request
    again, without that header.
    """

    service: Service
    most: int
    """Clients that may be connected at a time."""
    parser: Any
    _held = 0
    """Bytes of the reads since a head or a part of a body was complete."""
    _deaf = False
    """True if no more is read, and the answers that are underway are the last."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._start("head", HEADERS)

    def _start(self, name: str, seconds: float) -> None:
        if name not in self._timers:
            self._timers[name] = self.loop.call_later(seconds, self.transport.abort)

    def _stop(self, name: str) -> None:
        if (timer := self._timers.pop(name, None)) is not None:
            timer.cancel()

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return
        self._held += len(data)
        self.app_state = {CLOSING: self.transport.is_closing}
        if len(self.connections) > self.most:
            self.app_state[BUSY] = True
        self._parse(data)
        if self._held > HEAD:  # the parser holds all of a head
            self._refuse(LARGE_HEAD)
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop("head")
        else:
            self._start("head", HEADERS)

    def _parse(self, data: bytes) -> None:
        """Parse as the class above does, and also requests for other protocols."""
        self._unset_keepalive_if_required()
        while data:
            try:
                try:
                    self.parser.feed_data(data)
                    return
                except httptools.HttpParserUpgrade as pause:
                    headers = [
                        b"%b: %b\r\n" % header for header in self.headers if header[0] != b"upgrade"
                    ]
                    if any(b"\n" in value or b"\r" in value for _, value in self.headers):
                        raise httptools.HttpParserError("a header of several lines") from None
                    line = b"%b %b HTTP/%b\r\n" % (
                        self.parser.get_method(),
                        self.url,
                        self.parser.get_http_version().encode(),
                    )
                    data = (line + b"".join(headers) + b"\r\n") + data[pause.args[0] :]
                    self.parser = httptools.HttpRequestParser(self)
                    self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
            except httptools.HttpParserError:
                self.send_400_response(
                    "what was sent is no HTTP request; check its first line and its headers"
                )
                return

    def on_headers_complete(self) -> None:
        self._held = 0
        if self.parser.should_upgrade():
            if self.parser.get_method() == b"CONNECT":
                raise ValueError("no method of this service")  # so the request is malformed
            return  # and stops, and `_parse` goes on
        super().on_headers_complete()
        # What comes behind a body in chunks is no head of it (RFC 9110, section 6.5.1).
        self.headers: list[tuple[bytes, bytes]] = []

    def on_message_complete(self) -> None:
        if not self.parser.should_upgrade():
            super().on_message_complete()

    def on_body(self, body: bytes) -> None:
        self._held = 0
        super().on_body(body)

    def send_400_response(self, msg: str) -> None:
        self._refuse(Refusal(400, "bad_request", msg))

    def _refuse(self, refusal: Refusal) -> None:
        """Answer what is no request, log and count it, and end the connection, after the answers to
        the whole requests before it: ahead of them it would be read as the first's answer.
        """
        if self._deaf or self.transport.is_closing():
            return
        self._deaf = True
        self.service.note("other", "other", {"start": time.monotonic(), "status": refusal.status})
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            if not cycle.more_body:
                cycle.keep_alive = False
                return
            if cycle.response_started or self.pipeline:  # answers are underway to them
                self.transport.abort()
                return
        body, phrase = refusal.body("/"), HTTPStatus(refusal.status).phrase
        head = f"HTTP/1.1 {refusal.status} {phrase}\r\nconnection: close\r\n"
        head += "content-type: application/json\r\n"
        self.transport.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        self.transport.close()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._start("answer", SENDING)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop("answer")

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop("head")
        self._stop("answer")
        super().connection_lost(exc)


def configure(settings: Settings, service: Service, address: str = "127.0.0.1") -> uvicorn.Config:
    """Configure the server; the `address` of the socket decides the names that are served."""
    api, paths = make_application(service, settings.root_path)
    hosts: set[str] = set()  # all
    if settings.hosts or ip_address(address).is_loopback:
        bound = {f"[{name}]" if ":" in name else name for name in (settings.host, address)}
        hosts = {*settings.hosts, *LOOPBACK, *bound}
    app: Any = Guard(api, service, settings.key, hosts, settings.origins, paths, settings.root_path)
    if settings.origins:
        app = CORSMiddleware(
            app,
            allow_origins=settings.origins,
            allow_methods=["GET", "POST"],
            allow_headers=["*"],  # those that a page asks for
            expose_headers=["x-compute-tokens", "x-truncated-tokens", "retry-after"],
        )
    return uvicorn.Config(
        app,
        http=type("ServiceConnection", (Connection,), {"service": service, "most": _count_most()}),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=settings.keep_alive,  # type: ignore[arg-type]  # seconds of any kind
        backlog=1024,
        loop="auto",
        timeout_graceful_shutdown=int(settings.limits.timeout_seconds) + 5,
    )


class Server(uvicorn.Server):
    """Ends with status 0 at SIGTERM and Ctrl-C, after all that was taken is answered; a second
    signal ends it at once.
    """

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        before = {
            number: signal.signal(number, self._stop) for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            yield
        finally:
            for number, old in before.items():
                signal.signal(number, old)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        if self.should_exit:
            self.force_exit = True
        self.should_exit = self._service.draining = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        assert sockets is not None
        host, port = sockets[0].getsockname()[:2]
        try:
            # uvloop does not report it if the system refuses to listen.
            sockets[0].listen(self.config.backlog)
        except OSError as error:  # another service that was starting too has it
            raise refuse_address(host, port, error) from None
        await super().startup(sockets)
        url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        logs.event("listening", url=url, models=list(self._service.pools))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        logs.event(
            "stopping", waiting=sum(pool.queue.rows for pool in self._service.pools.values())
        )
        self._service.draining = True
        for server in self.servers:
            server.close()
        await asyncio.sleep(GRACE)
        await super().shutdown(sockets)
        logs.event("stopped")
