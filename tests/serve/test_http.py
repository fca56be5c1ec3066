"""Harm that HTTP itself may do to a service: heads, hosts, keys, other protocols, and how many may
be connected.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from select import select
from typing import Any

import httpx
import pytest
import uvloop

from litebert.base.errors import ConfigError
from litebert.serve.guard import CLOSING
from litebert.serve.http import Server, configure
from litebert.serve.limits import Limits
from litebert.serve.logs import Metrics
from litebert.serve.server import Settings, _bind
from litebert.serve.service import Service as Serving
from toys.refusals import names, refused
from toys.serving import SOURCE, Service, open_connection, raw, read_answer, serving, until

JSON = {"content-type": "application/json"}
HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
CHUNKED = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
CHUNKED += b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n"
PREDICT = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def test_an_unknown_transfer_encoding_is_refused(service: Service) -> None:
    for coding in (b"gzip, chunked", b"deflate"):
        head = PREDICT + b"Transfer-Encoding: " + coding + b"\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
        answer = raw(service, head)
        assert b" 501 " in answer.splitlines()[0] or b" 400 " in answer.splitlines()[0], answer
        assert b"connection: close" in answer.lower()
    assert b" 501 " in raw(service, PREDICT + b"Transfer-Encoding: gzip, chunked\r\n\r\n")
    assert b" 422 " in raw(service, CHUNKED.replace(b": chunked", b": Chunked") + b"\r\n")


def test_two_lengths_of_a_body_are_refused(service: Service) -> None:
    head = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    lengths = b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"
    answer = raw(service, head + lengths + b"0\r\n\r\n").lower()
    assert b" 400 " in answer.splitlines()[0]
    assert b"connection: close" in answer


def endless(service: Service, before: bytes, part: bytes) -> tuple[int, bytes]:
    """Bytes of parts that a connection took before it ended, and what it answered last."""
    host, port = service.url.removeprefix("http://").split(":")
    sent, received = 0, b"" if before.startswith(b"GET") else b'"ok"'
    with socket.create_connection((host, int(port)), 30) as connection, suppress(ConnectionError):
        connection.sendall(before)
        while b'"ok"' not in received:  # the first of two requests is answered
            more = connection.recv(65536)
            assert more
            received += more
        received = b""
        while (
            sent < 16 << 20 and not select([connection], [], [], 0.001)[0]
        ):  # so that it comes in many reads
            connection.sendall(part)
            sent += len(part)
        received = connection.recv(65536)
    return sent, received


def check_upgrades(service: Service) -> None:
    """Bodies whose request asks for another protocol belong to that request, however they come."""
    body = json.dumps({"inputs": "ba"}).encode()
    hidden = HEALTH + b"\r\n"
    for upgrade in (
        b"Upgrade: h2c\r\n",
        b"upgrade: websocket\r\nSec-WebSocket-Key: a\r\n",
        b"UPGRADE:x\r\n",
    ):
        head = PREDICT + b"Connection: Upgrade, HTTP2-Settings\r\n" + upgrade
        for content in (body, hidden):
            whole = head + b"Content-Length: %d\r\n\r\n" % len(content) + content
            chunks = head + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (
                len(content),
                content,
            )
            for sent, cut in (
                (whole, whole.index(b"\r\n\r\n") + 4),
                (whole, len(whole)),
                (whole, 40),
                (chunks, 300),
            ):
                with open_connection(service) as connection:
                    connection.sendall(sent[:cut])
                    time.sleep(0.02)
                    connection.sendall(sent[cut:])
                    status, answer = read_answer(connection)
                    assert (status, "predictions" in json.loads(answer)) == (
                        (200, True) if content == body else (400, False)
                    )
                    connection.sendall(CHUNKED.replace(b"2\r\n{}", b"2\r\n[]") + b"\r\n")
                    assert (
                        read_answer(connection)[0] == 422
                    )  # the next answer is to the next request


def test_a_request_for_another_protocol_keeps_its_body(service: Service) -> None:
    check_upgrades(service)
    assert (
        b" 400 "
        in raw(
            service, b"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost:80\r\n\r\n"
        ).splitlines()[0]
    )
    with open_connection(service) as connection:  # several in one packet
        body = b'{"inputs": "ba"}'
        head = PREDICT + b"Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: %d\r\n\r\n" % len(
            body
        )
        connection.sendall((head + body) * 3 + HEALTH + b"\r\n")
        file = connection.makefile("rb")
        statuses = [int(file.readline().split()[1])]
        connection.settimeout(0.5)
        rest = b""
        with suppress(TimeoutError):
            while more := connection.recv(65536):
                rest += more
        assert statuses == [200]
        assert (file.peek() + rest).count(b"HTTP/1.1 200 OK") == 3


def test_a_head_without_end_is_refused(service: Service) -> None:
    for before in (HEALTH.replace(b"GET", b"POST"), HEALTH + b"\r\n" + HEALTH, CHUNKED):
        sent, answer = endless(service, before, b"x: " + b"y" * 8000 + b"\r\n")
        assert sent < 1 << 20
        assert not answer or answer.split()[1] in (b"400", b"431")

    with service.client() as client:
        for _ in range(20):  # of one connection, each with a bound of its own
            assert client.get("/health", headers={"x": "y" * 9000}).status_code == 200
        assert client.get("/health", headers={"x": "y" * 70_000}).status_code in (400, 431)
        assert client.post(
            "/predict", content=b'{"inputs": "a"}' + b" " * (1 << 20), headers=JSON
        ).is_success


@pytest.mark.parametrize(
    ("host", "hosts", "statuses"),
    [
        ("0.0.0.0", ("reviews",), [200, 200, 403, 403, 403]),
        ("0.0.0.0", (), [200, 200, 200, 200, 200]),
        ("127.0.0.2", (), [200, 403, 403, 200, 403]),
        ("127.1", (), [200, 403, 403, 403, 200]),
        ("localhost", (), [200, 403, 403, 403, 403]),
    ],
)
def test_the_address_decides_which_hosts_are_served(
    host: str, hosts: tuple[str, ...], statuses: list[int]
) -> None:
    with _bind(host, 0) as listening:
        address = listening.getsockname()[0]
    app: Any = configure(
        Settings({}, host=host, hosts=hosts), Serving({}, Limits(), Metrics()), address
    ).app

    async def ask() -> list[int]:
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://x"
        ) as asking:
            names = (
                "127.0.0.1:8000",
                "reviews:8000",
                "example.org",
                "127.0.0.2:8000",
                "127.1:8000",
            )
            return [
                (await asking.get("/health", headers={"host": name})).status_code for name in names
            ]

    assert asyncio.run(ask()) == statuses


def test_headers_that_stand_twice_or_not_at_all_are_refused(service: Service) -> None:
    for more in (
        b"Host: localhost\r\n",
        b"Host: evil\r\n",
        b"Origin: a\r\nOrigin: b\r\n",
        b"Authorization: a\r\nauthorization: b\r\n",
    ):
        assert b" 400 " in raw(service, HEALTH + more + b"\r\n").splitlines()[0], more
    assert b" 400 " in raw(service, b"GET /health HTTP/1.1\r\n\r\n").splitlines()[0]
    assert b" 200 " in raw(service, b"GET /health HTTP/1.0\r\n\r\n").splitlines()[0]
    evil = b"GET /health HTTP/1.0\r\nHost: evil\r\n\r\n"
    assert b" 403 " in raw(service, evil).splitlines()[0]
    assert b" 200 " in raw(service, HEALTH + b"X: a\r\nX: b\r\n\r\n").splitlines()[0]
    trailer = CHUNKED.replace(b"2\r\n{}", b"10\r\n" + b'{"inputs": "ba"}') + b"Host: evil\r\n\r\n"
    assert b" 200 " in raw(service, trailer).splitlines()[0], (
        "what comes behind the body is no header"
    )


def test_head_is_answered_without_a_body(client: httpx.Client, service: Service) -> None:
    for path in (
        "/",
        "/health",
        "/info",
        "/metrics",
        "/docs",
        "/openapi.json",
        "/v1/models",
        "/v1/models/base",
    ):
        head, whole = client.head(path), client.get(path)
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["content-type"] == whole.headers["content-type"]
    assert client.head("/predict").status_code == 405
    until(lambda: any(event["method"] == "HEAD" for event in service.events("request")))


def test_a_service_without_a_key_at_all_networks_is_warned_about(
    models: Path, tmp_path: Path
) -> None:
    with serving(tmp_path, models / "x-colors", "--host", "0.0.0.0") as service:
        (warned,) = [event for event in service.events() if event["level"] == "warning"]
        assert warned["address"] == "0.0.0.0"
        names(warned["advice"], "--key-file", "LITEBERT_KEY")


@pytest.mark.thorough
def test_half_a_package_is_named(models: Path, tmp_path: Path) -> None:
    """Pydantic is there, and what it needs is not."""
    (tmp_path / "pydantic").mkdir()
    (tmp_path / "pydantic" / "__init__.py").write_text("import core_of_another_version\n")
    path = os.pathsep.join([str(tmp_path), str(SOURCE)])
    done = subprocess.run(
        [sys.executable, "-m", "litebert", "serve", models / "x-colors", "--port", "0"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    names(done.stderr.splitlines()[-1], "pydantic", "core_of_another_version", "[serve]")


def test_a_connection_without_a_request_stays_open_for_so_long(
    models: Path, tmp_path: Path
) -> None:
    assert Settings({}).keep_alive > 60, "what balancers wait before they close theirs"
    with (
        serving(tmp_path, models / "x-colors", "--keep-alive-s", 0.5) as service,
        open_connection(service) as connection,
    ):
        for _ in range(2):
            connection.sendall(HEALTH + b"\r\n")
            assert read_answer(connection)[0] == 200
            time.sleep(0.3)
        begun = time.monotonic()
        connection.settimeout(5)
        assert connection.recv(10) == b""
        assert time.monotonic() - begun < 4


def test_too_many_connections_are_refused_in_json(models: Path, tmp_path: Path) -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 192), hard))
    try:
        with ExitStack() as ending:
            service = ending.enter_context(serving(tmp_path, models / "x-colors"))
            for _ in range(70):
                connection = ending.enter_context(open_connection(service))
            connection.sendall(HEALTH + b"\r\n")
            status, body = read_answer(connection)
            assert (status, json.loads(body)["error_type"]) == (503, "unavailable")
            assert connection.recv(10) == b""
            until(lambda: [event for event in service.events("request") if event["status"] == 503])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_an_address_that_is_taken_while_the_models_open_is_named(run: Callable[..., None]) -> None:
    service = Serving({}, Limits(), Metrics())
    with _bind("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with _bind("127.0.0.1", port) as second:
            first.listen()
            with refused(ConfigError, f"127.0.0.1:{port}", "--port"):
                run(Server(configure(Settings({}), service), service).serve(sockets=[second]))


def test_only_our_own_pages_may_call(client: httpx.Client, service: Service) -> None:
    body, url = {"inputs": "a"}, service.url
    assert client.post("/predict", json=body, headers={"origin": url}).status_code == 200
    for origin in (
        "https://example.org",
        "null",
        url.replace("127.0.0.1", "127.0.0.2"),
        "http://[",
        f"{url}.org",
    ):
        refused = client.post("/predict", json=body, headers={"origin": origin})
        assert (refused.status_code, "access-control-allow-origin" in refused.headers) == (
            403,
            False,
        ), origin
    for host in (
        "example.org",
        "localhost.example.org",
        "",
        "127.0.0.1.example.org:80",
        "[::1",
        "[::1]evil",
        "[::1]:evil",
        "[::1]evil:80",
        "localhost:80:80",
        "localhost:80.evil",
        "user@localhost",
        "evil/localhost",
        "127.0.0.2",
    ):
        assert client.get("/info", headers={"host": host}).status_code == 403, host
    for host in ("[::1]", "[::1]:80", "LOCALHOST", "localhost:"):
        assert client.get("/info", headers={"host": host}).status_code == 200, host
    assert client.get("/info", headers={"host": "localhost:1234"}).status_code == 200


def test_a_key_is_asked_for(models: Path, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("open sesame\n")
    words = (
        models / "x-colors",
        "--key-file",
        key,
        "--allow-origin",
        "https://example.org",
        "--quiet",
    )
    with serving(tmp_path, *words) as service, service.client() as client:
        body = {"inputs": "a"}
        for wrong_headers in (
            {},
            {"authorization": "Bearer open"},
            {"authorization": "Basic open sesame"},
        ):
            refused = client.post("/predict", json=body, headers=wrong_headers)
            assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
        assert client.get("/health").status_code == 200
        for path in ("/models/x-colors/health", "/models/none/health", "/models/none/docs"):
            assert client.get(path).status_code == 401, "the key guards the names of models too"
        assert client.post("/", json=body).status_code == 401
        right = {"authorization": "Bearer open sesame", "origin": "https://example.org"}
        answered = client.post("/predict", json=body, headers=right)
        assert answered.status_code == 200
        assert answered.headers["access-control-allow-origin"] == "https://example.org"
        preflight = {
            "access-control-request-method": "POST",
            "access-control-request-headers": "authorization,content-type,x-stainless-lang",
        }
        allowed = client.options("/predict", headers={**preflight, "origin": "https://example.org"})
        assert allowed.status_code == 200
        assert "x-stainless-lang" in allowed.headers["access-control-allow-headers"]
        other = client.options("/predict", headers={**preflight, "origin": "https://example.com"})
        assert "access-control-allow-origin" not in other.headers
        assert "sesame" not in service.log.read_text()
        assert not service.events("request")  # --quiet


def test_what_follows_a_whole_request_does_not_take_its_answer(service: Service) -> None:
    body = b'{"inputs": "ba"}'
    whole = PREDICT + b"Content-Length: %d\r\n\r\n" % len(body) + body
    for rest in (b"\0 nonsense\r\n\r\n", b"GET / HTTP/1.1\r\nx: " + b"y" * 600_000):
        with open_connection(service) as connection:
            connection.sendall(whole + whole + rest)
            file = connection.makefile("rb")
            answer = b""
            with suppress(ConnectionError):
                answer = file.read()
        assert answer.count(b"HTTP/1.1 200 OK") == 2, answer
        assert b" 400 " not in answer
    half = whole.replace(b"Content-Length: 16", b"Transfer-Encoding: chunked")[:-16] + b"z\r\n"
    assert b" 400 " in raw(service, half).splitlines()[0]


def test_a_refused_request_that_waits_to_send_its_body_ends_the_connection(
    service: Service,
) -> None:
    waits = b"Expect: 100-continue\r\nContent-Length: 16\r\n\r\n"
    assert b"connection: close" in raw(service, PREDICT.replace(b"localhost", b"evil") + waits)
    assert b" 100 " in raw(service, PREDICT + waits).splitlines()[0]


def test_a_client_that_goes_in_its_answer_is_no_failure() -> None:
    metrics = Metrics()
    service = Serving({}, Limits(), metrics)
    app: Any = configure(Settings({}), service).app

    async def lose(message: Any) -> None:
        raise RuntimeError("the handler is closed")

    async def ask() -> str:
        async def receive() -> Any:
            return {"type": "http.request", "body": b"", "more_body": False}

        scope = {
            "type": "http",
            "method": "GET",
            "path": "/health",
            "raw_path": b"/health",
            "query_string": b"",
            "http_version": "1.1",
            "headers": [(b"host", b"localhost")],
            "root_path": "",
            "scheme": "http",
            "state": {CLOSING: lambda: True},
        }
        with suppress(RuntimeError):
            await app(scope, receive, lose)
        return metrics.text({})

    assert 'status="499"' in asyncio.run(ask())
