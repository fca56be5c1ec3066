"""A connection: heads and bodies in time and in bounds, requests for other protocols, and what is
no HTTP.
"""

from __future__ import annotations

import asyncio
import time
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

from litebert.serve.guard import BUSY, CLOSING
from litebert.serve.limits import HEAD, HEADERS, LARGE_HEAD, SENDING
from litebert.serve.refusals import Refusal
from litebert.serve.service import Service

try:
    import httptools
except ImportError:  # h11 parses then
    httptools = None  # type: ignore[assignment]


def count_connections() -> int:
    """Count the clients that may be connected at a time: each takes a file descriptor."""
    try:
        import resource
    except ImportError:  # not on Windows
        return 400
    return max(64, min(4096, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 128))


class Connection(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """A connection whose client must send the head of a request, and read its answer, in time.

    The bytes of a head are bounded here for httptools, which holds all of it; h11 has the same
    bound of its own.

    A request that asks for another protocol (`Upgrade`) is answered in this one (RFC 9110, section
    7.8). httptools stops at the head of such a request and takes what follows for the other
    protocol, so its body would be lost and read as the next request. Here a new parser reads the
    request again, without that header.
    """

    service: Service
    most: int
    """Clients that may be connected at a time."""
    parser: Any
    _held = 0
    """Bytes of the reads since a head or a part of a body was complete."""
    _deaf = False
    """True if no more is read, and the answers that are underway are the last."""
    _late: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._late = self.loop.call_later(HEADERS, transport.abort)

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return
        self._held += len(data)
        self.app_state = {CLOSING: self.transport.is_closing}
        if len(self.connections) > self.most:
            self.app_state[BUSY] = True
        if hasattr(AutoHTTPProtocol, "on_body"):  # of httptools
            self._parse(data)
        else:
            super().data_received(data)
        if self._held > HEAD and hasattr(AutoHTTPProtocol, "on_body"):
            self._refuse(LARGE_HEAD)
        if self.cycle is not None and not self.cycle.response_complete:
            _cancel(self._late)
            self._late = None
        elif self._late is None:
            self._late = self.loop.call_later(HEADERS, self.transport.abort)

    def _parse(self, data: bytes) -> None:
        """Parse as the class above does with httptools, and also requests for other protocols."""
        self._unset_keepalive_if_required()
        while data:
            try:
                try:
                    self.parser.feed_data(data)
                    return
                except httptools.HttpParserUpgrade as pause:
                    data = self._without_upgrade() + data[pause.args[0] :]
                    self.parser = httptools.HttpRequestParser(self)
                    self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
            except httptools.HttpParserError:
                self.send_400_response(
                    "what was sent is no HTTP request; check its first line and its headers"
                )
                return

    def _without_upgrade(self) -> bytes:
        """Return the head that was just read, without the header Upgrade."""
        headers = [b"%b: %b\r\n" % header for header in self.headers if header[0] != b"upgrade"]
        if any(b"\n" in value or b"\r" in value for _, value in self.headers):
            raise httptools.HttpParserError("a header of several lines")
        line = b"%b %b HTTP/%b\r\n" % (
            self.parser.get_method(),
            self.url,
            self.parser.get_http_version().encode(),
        )
        return line + b"".join(headers) + b"\r\n"

    def on_headers_complete(self) -> None:
        self._held = 0
        if self.parser.should_upgrade():
            if self.parser.get_method() == b"CONNECT":
                raise ValueError(
                    "no method of this service"
                )  # httptools says that the request is malformed
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
        """Answer what is no request, log and count it, and end the connection.

        Where whole requests came before it, they are answered, and the last of these answers ends
        the connection: a refusal in front of them would be read as the answer to the first.
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
            others = getattr(self, "pipeline", ())
            if cycle.response_started or others:  # answers are underway to them
                self.transport.abort()
                return
        body, phrase = refusal.body("/"), HTTPStatus(refusal.status).phrase
        head = f"HTTP/1.1 {refusal.status} {phrase}\r\nconnection: close\r\n"
        head += "content-type: application/json\r\n"
        self.transport.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        self.transport.close()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self._unread or self.loop.call_later(SENDING, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        _cancel(self._unread)
        self._unread = None

    def connection_lost(self, exc: Exception | None) -> None:
        _cancel(self._late)
        _cancel(self._unread)
        super().connection_lost(exc)


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
