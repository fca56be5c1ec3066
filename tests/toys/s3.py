"""An S3 server on this machine, behind a proxy of ours that fails as networks do.

    tool -> proxy (faults) -> moto's server

A `Fault` says what happens to some requests. `Store.requests` lists what was asked.
"""

from __future__ import annotations

import http.client
import socketserver
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

BUCKET = "texts"
SECRET = "the-secret-key"
"""The secret key of the tests, which no message may hold."""


@dataclass
class Fault:
    """What happens to the requests of a method whose path has a text in it."""

    kind: str
    """`slow`, `cut` (the body ends in the middle), `short` (a whole answer of fewer bytes than
    asked for), `busy` (status 503), `reset` (no answer)."""
    times: int = 1
    """How often; -1 for always."""
    method: str = "GET"
    part: str = ""


@dataclass
class Store:
    """The server, seen through the proxy."""

    url: str
    """The address of the proxy."""
    direct: str
    """The address of the server itself."""
    faults: list[Fault] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    """Method and path of each request."""

    @cached_property
    def client(self) -> Any:
        """A client that speaks to the server itself, by another library than the tool's."""
        import boto3

        return boto3.client(
            "s3",
            endpoint_url=self.direct,
            aws_access_key_id="the-key",
            aws_secret_access_key=SECRET,
            region_name="us-east-1",
        )

    def put(self, key: str, content: bytes) -> None:
        """Put an object into the bucket."""
        self.client.put_object(Bucket=BUCKET, Key=key, Body=content)

    def content(self, prefix: str = "") -> dict[str, bytes]:
        """The objects below a prefix, by the rest of their keys."""
        client = self.client
        pages = client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
        keys = [entry["Key"] for page in pages for entry in page.get("Contents", [])]
        return {
            key[len(prefix) :]: client.get_object(Bucket=BUCKET, Key=key)["Body"].read()
            for key in sorted(keys)
        }

    def clear(self) -> None:
        """Delete all objects."""
        for entry in self.client.list_objects_v2(Bucket=BUCKET).get("Contents", []):
            self.client.delete_object(Bucket=BUCKET, Key=entry["Key"])

    def environment(self) -> dict[str, str]:
        """What a process needs to find the proxy."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "the-key",
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": "/dev/null",
            "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
        }

    def take_fault(self, method: str, path: str) -> str:
        """The fault of a request; "" for none."""
        for fault in self.faults:
            if fault.times and fault.method == method and fault.part in path:
                fault.times -= 1
                return fault.kind
        return ""


class _Proxy(socketserver.ThreadingTCPServer):
    """The proxy in front of a store's server."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, store: Store) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.store = store

    def handle_error(self, *arguments: object) -> None:
        """A client that was killed is no error."""


class _Handler(BaseHTTPRequestHandler):
    """One connection to the proxy."""

    protocol_version = "HTTP/1.1"
    server: _Proxy

    def pass_on(self) -> None:
        """Answer a request as the server does, or with a fault."""
        store = self.server.store
        store.requests.append(f"{self.command} {self.path}")
        fault = store.take_fault(self.command, self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = _read_chunks(self.rfile)
        if fault == "reset":
            self.close_connection = True
        elif fault == "busy":
            self.answer(503, {}, b"<Error><Code>SlowDown</Code><Message>busy</Message></Error>")
        else:
            if fault == "slow":
                time.sleep(1)
            status, fields, content = self.ask_server(body)
            if fault == "short":
                content = content[: len(content) // 2]
            self.answer(status, fields, content, is_cut=fault == "cut")

    def ask_server(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        """The status, the headers and the body of the server's answer."""
        connection = http.client.HTTPConnection(self.server.store.direct.removeprefix("http://"))
        headers = {
            key: value
            for key, value in self.headers.items()
            if key.lower() not in ("transfer-encoding", "content-length")
        }
        connection.request(
            self.command, self.path, body, {**headers, "Content-Length": str(len(body))}
        )
        reply = connection.getresponse()
        content = reply.read()
        connection.close()
        hidden = ("transfer-encoding", "connection")
        fields = {key: value for key, value in reply.getheaders() if key.lower() not in hidden}
        return reply.status, fields, content

    def answer(
        self, status: int, fields: dict[str, str], content: bytes, is_cut: bool = False
    ) -> None:
        self.send_response_only(status)
        size = str(len(content))
        for key, value in fields.items():
            if key.lower() != "content-length":
                self.send_header(key, value)
            elif self.command == "HEAD":
                size = value
        if status != 204:
            self.send_header("Content-Length", size)
        self.end_headers()
        self.wfile.write(content[: len(content) // 2] if is_cut else content)
        if is_cut:
            self.close_connection = True

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = pass_on

    def log_message(self, *arguments: object) -> None:
        """Print nothing."""


def _read_chunks(file: Any) -> bytes:
    """The body of a request that comes in chunks."""
    content = b""
    while size := int(file.readline().split(b";")[0], 16):
        content += file.read(size)
        file.readline()
    file.readline()
    return content


@contextmanager
def s3_server() -> Iterator[Store]:
    """An empty bucket on this machine; the test is skipped where moto or s3fs is not installed."""
    server = pytest.importorskip("moto.server", reason="moto is not installed")
    pytest.importorskip("s3fs", reason="s3fs is not installed")
    moto = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    moto.start()
    host, port = moto.get_host_and_port()
    store = Store("", f"http://{host}:{port}")
    with _Proxy(store) as proxy:
        store.url = f"http://127.0.0.1:{proxy.server_address[1]}"
        thread = threading.Thread(target=proxy.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        store.client.create_bucket(Bucket=BUCKET)
        try:
            yield store
        finally:
            proxy.shutdown()
            moto.stop()


def forget_connections() -> None:
    """Forget the connections that were made with another environment."""
    from s3fs import S3FileSystem

    S3FileSystem.clear_instance_cache()
