"""A store for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from litebert.remote import reading, stores
from toys.s3 import Store, s3_server


@pytest.fixture(scope="session")
def server() -> Iterator[Store]:
    with s3_server() as running:
        yield running


@pytest.fixture
def store(server: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """An S3 server with an empty bucket, which this process and its children find, and a cache of
    its own.
    """
    server.faults.clear()
    server.clear()
    server.requests.clear()
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("LITEBERT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(stores, "PAUSES", (0.01,) * 5)
    reading._entries.clear()
    return server
