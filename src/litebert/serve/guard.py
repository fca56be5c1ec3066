"""The guard before the routes: who may ask, how large and how slow a body may be, and what is
logged and counted.

Pages of other origins: a browser sends their `Origin` with every POST, which is refused unless it
is allowed. DNS rebinding: bound to the loopback address, only the names of that address are served.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
import time
import zlib
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from litebert.serve import logs
from litebert.serve.limits import BODY, HEAD, LARGE_HEAD, STOPPED, Refusal
from litebert.serve.service import ABOUT, Service

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

OPEN = ("/", "/health", "/docs", "/openapi.json")
"""Pages and routes that need no key to be read: they hold nothing of the models."""
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
SINGLE = b"host origin authorization content-type content-length content-encoding".split()
SINGLE += [b"transfer-encoding"]
"""Headers of which two would be read differently (RFC 9112, section 3.2; RFC 9110, 5.3)."""
HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^\[\]:/@\s]+)(?::[0-9]{0,5})?")
"""A name or an address, and a port."""
ENDING = (400, 408, 501)
"""Statuses of requests whose end is unknown, or may never come: the connection ends with them."""
BUSY = "busy"
"""The key in the `state` of a request's scope if too many clients are connected."""
CLOSING = "closing"
"""The key in that `state` of a function that is true if the connection has ended, or will soon."""


class Guard:
    """An ASGI application around another.

    `key` is what `Authorization: Bearer` must hold; `hosts` are the names that are served, or all;
    `origins` may call beside the service's (`*` is all); `paths` are routes as the log and the
    metrics name them, behind a proxy's `root_path`.
    """

    def __init__(
        self,
        app: Any,
        service: Service,
        key: bytes | None,
        hosts: Collection[str],
        origins: Collection[str],
        paths: Collection[str] = (),
        root_path: str = "",
    ) -> None:
        self._app, self._service, self._key = app, service, key
        self._paths, self._root_path = {"/", "/docs", *paths}, root_path
        self._hosts, self._origins = {host.lower() for host in hosts}, set(origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        about: dict[str, Any] = {"start": time.monotonic()}
        method = scope["method"]
        path = re.sub("/+", "/", scope["path"])
        if f"{path}/".startswith(f"{self._root_path}/"):
            path = path.removeprefix(self._root_path)
        if path != "/docs/":  # the link of that page is relative to its path
            path = path.rstrip("/") or "/"
        # The server needs the original scope to leave the body of the answer to HEAD out.
        scope = {**scope, "method": "GET" if method == "HEAD" else method}
        scope |= {"path": path, "raw_path": path.encode()}
        scope[ABOUT] = about

        async def answer(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                about["status"] = message["status"]
                message["headers"] = [
                    *message.get("headers", []),
                    (b"x-content-type-options", b"nosniff"),
                ]
                if self._service.draining:
                    message["headers"].append((b"connection", b"close"))
            await send(message)

        headers = dict(scope["headers"])
        state = scope.get("state", {})
        # A client that waits for leave to send its body may send another request instead, which
        # would be read as that body (RFC 9110, section 10.1.1).
        ending = BUSY in state or b"expect" in headers
        try:
            try:
                self._check(scope, headers, about)
            except Refusal as refusal:
                # A client that sends all before it reads would only see the connection break.
                if not (ending or refusal.status in ENDING):
                    with suppress(Refusal):
                        await _read_body(receive, 0)
                raise
            body = await _read_body(receive, self._service.limits.body_bytes)
            if body and headers.get(b"content-encoding", b"").strip().lower() == b"gzip":
                body = _unzip(body, self._service.limits.body_bytes)
            is_sent = False

            async def next_message() -> MutableMapping[str, Any]:
                nonlocal is_sent
                if is_sent:
                    return await receive()
                is_sent = True
                return {"type": "http.request", "body": body, "more_body": False}

            await self._app(scope, next_message, answer)
        except Refusal as refusal:
            await _refuse(answer, refusal, scope["path"], ending)
        except asyncio.CancelledError:
            # The service ends at once, at a second signal or after its last deadline.
            if "status" not in about:
                await _refuse(answer, STOPPED, scope["path"], True)
            raise
        except Exception as error:
            if state.get(CLOSING, bool)():  # nobody is there to answer
                about["status"] = 499
                return
            logs.event("a request failed", logging.ERROR, **logs.failure(error))
            if "status" not in about:
                failed = Refusal(500, "internal", "the request failed; the log names the reason")
                await _refuse(answer, failed, scope["path"])
        finally:
            # The path of a route holds no client's words.
            route = scope.get("route", scope["path"])
            self._service.note(method, route if route in self._paths else "other", about)

    def _check(self, scope: Scope, headers: dict[bytes, bytes], about: dict[str, Any]) -> None:
        """Refuse a request for what its head says, before its body is read; a model named in the
        path moves to the facts.
        """
        if scope["path"].startswith("/models/"):
            about["named"], _, rest = scope["path"].removeprefix("/models/").partition("/")
            scope["path"] = f"/{rest}"
            scope["raw_path"] = scope["path"].encode()
        if headers.get(b"transfer-encoding", b"chunked").strip().lower() != b"chunked":
            message = "the Transfer-Encoding is not read here; send the body plain or chunked"
            raise Refusal(501, "not_implemented", message)
        if BUSY in scope.get("state", ()):
            advice = "connect again later, or keep fewer connections"
            raise Refusal(503, "unavailable", f"too many clients are connected; {advice}", retry=1)
        names = [name for name, _ in scope["headers"]]
        for name in SINGLE if len(headers) < len(names) else ():
            if names.count(name) > 1:
                message = f"the header {name.decode().title()} stands more than once; send it once"
                raise Refusal(400, "bad_request", message)
        if b"host" not in headers and scope["http_version"] == "1.1":
            message = "the header Host is missing; send it, as HTTP/1.1 asks for"
            raise Refusal(400, "bad_request", message)
        # A head that came in one read was not bounded by the connection.
        if sum(len(name) + len(value) for name, value in scope["headers"]) > HEAD:
            raise LARGE_HEAD
        host = headers.get(b"host", b"").decode("latin-1").lower()
        match = HOST.fullmatch(host)  # None of an ill-formed one
        # Browsers always send a Host, and health checks in HTTP/1.0 may not.
        if self._hosts and b"host" in headers and (match is None or match[1] not in self._hosts):
            message = "this Host is not served here; the service allows it with --allow-host"
            raise Refusal(403, "forbidden", message)
        origin = headers.get(b"origin")
        if origin is not None and not self._is_allowed(origin.decode("latin-1").lower(), host):
            message = "pages of this Origin may not call; the service allows it with --allow-origin"
            raise Refusal(403, "forbidden", message)
        is_open = scope["path"] in OPEN and scope["method"] == "GET" and "named" not in about
        if self._key is not None and not is_open:
            kind, _, key = headers.get(b"authorization", b"").partition(b" ")
            if not hmac.compare_digest(key.strip(), self._key) or kind.lower() != b"bearer":
                message = "the key is missing or wrong; send Authorization: Bearer KEY"
                raise Refusal(401, "unauthorized", message)
        if (named := about.get("named")) is not None and named not in self._service.pools:
            raise self._service.refuse_name(named)
        # RFC 9112, section 6.3
        if b"content-length" in headers and b"transfer-encoding" in headers:
            message = "Content-Length and Transfer-Encoding exclude each other; send one"
            raise Refusal(400, "bad_request", message)
        announced = headers.get(b"content-length", b"0")
        if announced.isdigit() and int(announced[:20]) > self._service.limits.body_bytes:
            raise _too_large(self._service.limits.body_bytes)
        if scope["method"] == "POST":
            self._service.refuse_early(about)
            kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
            encoding = headers.get(b"content-encoding", b"identity").strip().lower()
            if kind != b"application/json":
                message = "the body must be sent as Content-Type: application/json"
                raise Refusal(415, "unsupported_media_type", message)
            if encoding not in (b"identity", b"gzip"):
                message = "the Content-Encoding is not read here; send the body plain or in gzip"
                raise Refusal(415, "unsupported_media_type", message)

    def _is_allowed(self, origin: str, host: str) -> bool:
        if "*" in self._origins or origin in self._origins:
            return True
        try:
            address = urlsplit(origin)
        except ValueError:
            return False
        port = {"http": ":80", "https": ":443"}.get(address.scheme)
        return port is not None and address.netloc.removesuffix(port) == host.removesuffix(port)


async def _read_body(receive: Receive, most: int) -> bytes:
    """Read all of a body, and keep it if it has at most `most` bytes."""
    late, task = asyncio.Event(), asyncio.current_task()
    assert task is not None

    def end() -> None:
        late.set()
        task.cancel()

    # asyncio.wait_for would read in another task.
    timer = asyncio.get_running_loop().call_later(BODY, end)
    chunks, size, more = [], 0, True
    try:
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Refusal(499, "cancelled", "the client has gone")
            chunks.append(message.get("body", b""))
            size, more = size + len(chunks[-1]), message.get("more_body", False)
            if size > most:
                chunks.clear()
    except asyncio.CancelledError:
        if not late.is_set():
            raise
        if hasattr(task, "uncancel"):  # since Python 3.11, the task would stay cancelled
            task.uncancel()
        slow = f"the body was not there within {BODY:g} seconds; send it again"
        raise Refusal(408, "timeout", slow) from None
    finally:
        timer.cancel()
    if size > most:
        raise _too_large(most)
    return b"".join(chunks)


def _too_large(most: int) -> Refusal:
    message = f"the body is larger than {most:,} bytes; send less in a request"
    return Refusal(413, "too_large", message, "body")


def _unzip(body: bytes, most: int) -> bytes:
    stream = zlib.decompressobj(wbits=31)
    with suppress(zlib.error):
        plain = stream.decompress(body, most + 1)
        if len(plain) > most:
            raise _too_large(most)
        if stream.eof and not stream.unused_data:
            return plain
    raise Refusal(400, "bad_request", "the body is no gzip, though its Content-Encoding says so")


async def _refuse(send: Send, refusal: Refusal, path: str, close: bool = False) -> None:
    body = refusal.body(path)
    headers = [(name.encode(), value.encode()) for name, value in refusal.headers.items()]
    headers += [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
    ]
    if close or refusal.status in ENDING:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
