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
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from litebert.serve import logs
from litebert.serve.limits import BODY, HEAD
from litebert.serve.refusals import STOPPED, Refusal
from litebert.serve.service import ABOUT, Service

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

OPEN = ("/", "/health", "/docs", "/openapi.json")
"""Routes that need no key: they hold nothing of the models."""
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
SINGLE = (b"host", b"origin", b"authorization", b"content-type", b"content-length")
"""Headers of which two would be read differently by different programs (RFC 9112, section 3.2; RFC
9110, 5.3).
"""
HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^\[\]:/@\s]+)(?::[0-9]{0,5})?")
"""A name or an address, and a port."""
BUSY = "busy"
"""The key in the `state` of a request's scope if too many clients are connected."""
CLOSING = "closing"
"""The key in that `state` of a function that is true if the connection has ended, or will soon."""


class Guard:
    """An ASGI application around another.

    Args:
        key: what `Authorization: Bearer` must hold, if anything.
        hosts: names that are served; all where there are none.
        origins: pages that may call beside the service's; `*` is all.
        paths: routes, as the log and the metrics name them.
    """

    def __init__(
        self,
        app: Any,
        service: Service,
        key: bytes | None,
        hosts: Collection[str],
        origins: Collection[str],
        paths: Collection[str] = (),
    ) -> None:
        self._app, self._service, self._key = app, service, key
        self._paths = {"/", "/docs", *paths}
        self._hosts, self._origins = {host.lower() for host in hosts}, set(origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        about: dict[str, Any] = {"start": time.monotonic()}
        method = scope["method"]
        if method == "HEAD":
            # The server needs the original scope to leave the body of the answer out.
            scope = {**scope, "method": "GET"}
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
        # A client that waits for leave to send its body may send another request instead, which
        # would be read as that body (RFC 9110, section 10.1.1).
        ending = BUSY in scope.get("state", ()) or b"expect" in headers
        try:
            self._check(scope, headers, about)
            body = await self._body(scope, headers, receive)
            await self._app(scope, _replay(body, receive), answer)
        except Refusal as refusal:
            await _refuse(answer, refusal, scope["path"], ending)
        except asyncio.CancelledError:
            # The service ends at once, at a second signal or after its last deadline.
            if "status" not in about:
                await _refuse(answer, STOPPED, scope["path"], True)
            raise
        except Exception as error:
            if scope.get("state", {}).get(CLOSING, bool)():  # nobody is there to answer
                about["status"] = 499
                return
            logs.event("a request failed", logging.ERROR, **logs.failure(error))
            if "status" not in about:
                await _refuse(
                    answer,
                    Refusal(500, "internal", "the request failed; the log names the reason"),
                    scope["path"],
                )
        finally:
            self._note(method, scope, about)

    def _check(self, scope: Scope, headers: dict[bytes, bytes], about: dict[str, Any]) -> None:
        """Refuse a request for what its head says, before its body is read.

        Raises:
            Refusal: it is refused.
        """
        self._take_model_name(scope, about)
        if BUSY in scope.get("state", ()):
            message = (
                "too many clients are connected; connect again later, or keep fewer connections"
            )
            raise Refusal(503, "unavailable", message, retry=1)
        self._check_headers(scope, headers)
        # A head that came in one read was not bounded by the connection.
        if sum(len(name) + len(value) for name, value in scope["headers"]) > HEAD:
            raise Refusal(
                431,
                "too_large",
                f"the headers have more than {HEAD:,} bytes; send less in them",
            )
        self._admit(scope, headers)
        if (name := about.get("named")) is not None and name not in self._service.pools:
            raise self._service.refuse_name(name)
        # RFC 9112, section 6.3
        if b"content-length" in headers and b"transfer-encoding" in headers:
            raise Refusal(
                400,
                "bad_request",
                "Content-Length and Transfer-Encoding exclude each other; send one",
            )
        if scope["method"] == "POST":
            self._service.refuse_early(about)

    def _check_headers(self, scope: Scope, headers: dict[bytes, bytes]) -> None:
        """Refuse headers that may stand once and stand twice, and HTTP/1.1 without a Host."""
        if len(headers) < len(scope["headers"]):
            names = [name for name, _ in scope["headers"]]
            for name in SINGLE:
                if names.count(name) > 1:
                    title = name.decode().title()
                    raise Refusal(
                        400,
                        "bad_request",
                        f"the header {title} stands more than once; send it once",
                    )
        if b"host" not in headers and scope["http_version"] == "1.1":
            raise Refusal(
                400, "bad_request", "the header Host is missing; send it, as HTTP/1.1 asks for"
            )

    def _take_model_name(self, scope: Scope, about: dict[str, Any]) -> None:
        """Take the model out of a path such as /models/NAME/predict."""
        if scope["path"].startswith("/models/"):
            name, slash, rest = scope["path"].removeprefix("/models/").partition("/")
            if name and rest:
                scope["path"], about["named"] = slash + rest, name
                scope["raw_path"] = scope["path"].encode()

    def _admit(self, scope: Scope, headers: dict[bytes, bytes]) -> None:
        host = headers.get(b"host", b"").decode("latin-1").lower()
        if self._hosts and _without_port(host) not in self._hosts:  # an ill-formed one has no name
            raise Refusal(
                403,
                "forbidden",
                "this Host is not served here; the service allows it with --allow-host",
            )
        origin = headers.get(b"origin")
        if origin is not None and not self._is_allowed(origin.decode("latin-1").lower(), host):
            raise Refusal(
                403,
                "forbidden",
                "pages of this Origin may not call; the service allows it with --allow-origin",
            )
        if self._key is not None and scope["path"] not in OPEN:
            kind, _, key = headers.get(b"authorization", b"").partition(b" ")
            if not hmac.compare_digest(key.strip(), self._key) or kind.lower() != b"bearer":
                raise Refusal(
                    401,
                    "unauthorized",
                    "the key is missing or wrong; send Authorization: Bearer KEY",
                )

    def _is_allowed(self, origin: str, host: str) -> bool:
        if "*" in self._origins or origin in self._origins:
            return True
        try:
            address = urlsplit(origin)
        except ValueError:
            return False
        default = {"http": ":80", "https": ":443"}.get(address.scheme)
        return default is not None and address.netloc.removesuffix(default) == host.removesuffix(
            default
        )

    async def _body(self, scope: Scope, headers: dict[bytes, bytes], receive: Receive) -> bytes:
        """Read all of the body.

        Raises:
            Refusal: it is too large, too slow or not JSON.
        """
        most = self._service.limits.body_bytes
        too_large = Refusal(
            413,
            "too_large",
            f"the body is larger than {most:,} bytes; send less in a request",
            "body",
        )
        announced = headers.get(b"content-length", b"0")
        if announced.isdigit() and int(announced[:20]) > most:
            raise too_large
        if scope["method"] == "POST":
            kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
            if kind != b"application/json":
                raise Refusal(
                    415,
                    "unsupported_media_type",
                    "the body must be sent as Content-Type: application/json",
                )
            if headers.get(b"content-encoding", b"identity").strip().lower() != b"identity":
                raise Refusal(
                    415,
                    "unsupported_media_type",
                    "the body must not be compressed; send it without Content-Encoding",
                )
        late, task = asyncio.Event(), asyncio.current_task()
        assert task is not None

        def end() -> None:
            late.set()
            task.cancel()

        # asyncio.wait_for would read in another task.
        timer = asyncio.get_running_loop().call_later(BODY, end)
        try:
            return await _read_body(receive, most, too_large)
        except asyncio.CancelledError:
            if not late.is_set():
                raise
            if hasattr(task, "uncancel"):  # since Python 3.11, the task would stay cancelled
                task.uncancel()
            raise Refusal(
                408, "timeout", f"the body was not there within {BODY:g} seconds; send it again"
            ) from None
        finally:
            timer.cancel()

    def _note(self, method: str, scope: Scope, about: dict[str, Any]) -> None:
        """Log and count a request, by the path of its route, which holds no client's words."""
        path = getattr(scope.get("route"), "path", None) or scope["path"]
        if path not in self._paths:
            path = "other"
        self._service.note(method, path, about)


async def _read_body(receive: Receive, most: int, too_large: Refusal) -> bytes:
    """Read a body of at most `most` bytes, or raise `too_large`."""
    chunks, size, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Refusal(499, "cancelled", "the client has gone")
        chunks.append(message.get("body", b""))
        size, more = size + len(chunks[-1]), message.get("more_body", False)
        if size > most:
            raise too_large
    return b"".join(chunks)


def _without_port(host: str) -> str:
    """Return the name or the address of a Host; empty if it is ill-formed."""
    parts = HOST.fullmatch(host)
    return "" if parts is None else parts[1]


def _replay(body: bytes, receive: Receive) -> Receive:
    """Make a `receive` that gives the body at once, and then the messages of the server."""
    is_sent = False

    async def next_message() -> MutableMapping[str, Any]:
        nonlocal is_sent
        if is_sent:
            return await receive()
        is_sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return next_message


async def _refuse(send: Send, refusal: Refusal, path: str, close: bool = False) -> None:
    body = refusal.body(path)
    headers = [(name.encode(), value.encode()) for name, value in refusal.headers.items()]
    headers += [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
    ]
    if close or refusal.status in (400, 408, 413, 415):
        headers.append((b"connection", b"close"))  # the rest of the body is not read
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
