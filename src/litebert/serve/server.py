"""The service as a process: its socket, its workers, its signals, and an end that finishes what it
took.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import socket
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from starlette.middleware.cors import CORSMiddleware

from litebert import hub
from litebert.errors import ConfigError, ModelError, require
from litebert.machine import count_cores
from litebert.serve import logs
from litebert.serve.app import make_application
from litebert.serve.batching import Batch, Queue
from litebert.serve.connection import Connection, count_connections
from litebert.serve.guard import LOOPBACK, Guard
from litebert.serve.limits import Limits
from litebert.serve.metrics import Metrics
from litebert.serve.pool import Pool
from litebert.serve.service import Service

GRACE = 0.25
"""Seconds in which a stopping service still answers on open connections, and closes each then."""


@dataclass(frozen=True)
class Settings:
    """How to serve."""

    models: dict[str, Path]
    host: str = "127.0.0.1"
    port: int = 8000
    engine: str | None = None
    device: str = "auto"
    exit_confidence: str | float = "auto"
    workers: int = 1
    """Processes for each model."""
    threads: int | None = None
    """Threads of each worker; None shares the cores among the workers of a model."""
    key: bytes | None = field(default=None, repr=False)
    origins: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)
    batch_characters: float = 8192
    linger: float = 0.002
    """Seconds for which the first request of a batch waits for others."""
    patience: float | None = None
    """Seconds that a request may have to wait; see `Queue`."""
    log_requests: bool = True
    min_precision: float | None = None
    """The precision of the answers of each fine-tuned model; see `load`."""


def serve(settings: Settings) -> None:
    """Serve until a signal ends it.

    Raises:
        ConfigError: the address is taken or cannot be.
        ModelError: a model cannot be opened.
    """
    with logs.restore_loggers():
        logs.set_up(settings.log_requests)
        with _bind(settings.host, settings.port) as listening:
            _run(_serve(settings, listening))


def _run(service: Coroutine[Any, Any, None]) -> None:
    """Run a service with uvloop if it is installed, because it takes less of the processor."""
    try:
        from uvloop import run
    except ImportError:  # an extra, and not for Windows
        asyncio.run(service)
    else:
        run(service)


@contextmanager
def _bind(host: str, port: int) -> Iterator[socket.socket]:
    """Bind a socket to an address, which nobody can reach before the models are ready."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM
        )[0]
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
    except (OSError, OverflowError) as error:
        raise _refuse_address(host, port, error) from None
    with listening:
        yield listening


def _refuse_address(host: str, port: int, error: Exception) -> ConfigError:
    """Return the error that an address cannot be listened at."""
    return ConfigError(f"cannot listen at {host}:{port} ({error}); give another --host or --port")


async def _serve(settings: Settings, listening: socket.socket) -> None:
    metrics = Metrics()
    threads = settings.threads or max(1, count_cores() // settings.workers)
    pools: dict[str, Pool] = {}
    for name, path in settings.models.items():
        queue = Queue(
            settings.batch_characters,
            settings.linger,
            settings.patience,
            partial(_watch, metrics, name),
        )
        opening = {
            "path": str(path),
            "engine": settings.engine,
            "device": settings.device,
            "exit_confidence": settings.exit_confidence,
            "threads": threads,
            "tokens": settings.limits.tokens,
            "min_precision": settings.min_precision,
        }
        pools[name] = Pool(name, opening, queue, settings.workers, settings.limits.timeout_seconds)
    try:
        for pool in pools.values():  # one after the other: each measures its speed alone
            await pool.start()
            logs.event(
                "a model is ready",
                model=pool.name,
                pids=pool.pids,
                kind=pool.info["kind"],
                engine=pool.info["engine"],
                patience_ms=round(1000 * pool.queue.patience),
            )
        is_known = any(pool.info["min_precision"] is not None for pool in pools.values())
        require(
            settings.min_precision is None or is_known,
            "--min-precision is of a model for classes or labels, and none is served; leave it out",
        )
        service, address = Service(pools, settings.limits, metrics), listening.getsockname()[0]
        if settings.key is None and not ip_address(address).is_loopback:
            logs.event(
                "whoever reaches this address may ask",
                logging.WARNING,
                address=address,
                advice="give --key-file FILE or set LITEBERT_KEY",
            )
        gc.collect()
        # What stays to the end needs no look at every collection, which stops all requests.
        gc.freeze()
        await _Server(_configure(settings, service, address), service).serve(sockets=[listening])
    finally:
        await asyncio.gather(*(pool.stop() for pool in pools.values()))


def _watch(metrics: Metrics, name: str, batch: Batch, seconds: float) -> None:
    metrics.batches.add(len(batch.rows), model=name)
    metrics.computed.add(seconds, model=name)


def _hosts(settings: Settings, address: str) -> set[str]:
    """List the names that are served at an address; none if all are."""
    if not settings.hosts and not ip_address(address).is_loopback:
        return set()
    return {
        *settings.hosts,
        *LOOPBACK,
        *(f"[{name}]" if ":" in name else name for name in (settings.host, address)),
    }


def _configure(settings: Settings, service: Service, address: str = "127.0.0.1") -> uvicorn.Config:
    """Configure the server.

    Args:
        address: what the socket is bound to, which decides the names that are served.
    """
    api = make_application(service)
    paths = api.openapi()["paths"]
    app: Any = Guard(api, service, settings.key, _hosts(settings, address), settings.origins, paths)
    if settings.origins:
        app = CORSMiddleware(
            app,
            allow_origins=settings.origins,
            allow_methods=["GET", "POST"],
            allow_headers=["authorization", "content-type"],
            expose_headers=["x-compute-tokens", "x-truncated-tokens", "retry-after"],
        )
    serving = service

    class ServiceConnection(Connection):
        """A connection of this service."""

        service = serving
        most = count_connections()

    return uvicorn.Config(
        app,
        http=ServiceConnection,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=30,
        backlog=1024,
        loop="auto",
        timeout_graceful_shutdown=int(settings.limits.timeout_seconds) + 5,
    )


class _Server(uvicorn.Server):
    """Ends with status 0 at SIGTERM and Ctrl-C, after all that was taken is answered.

    A second signal ends it at once.
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
            raise _refuse_address(host, port, error) from None
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


def parse_models(words: Sequence[str]) -> dict[str, Path]:
    """Parse models by name, from NAME=MODEL or MODEL; those of the Hub are fetched.

    Raises:
        ConfigError: two have the same name, or a name has other characters than those of a path.
        ModelError: there is no such folder, or no such model on the Hub.
    """
    models: dict[str, Path] = {}
    for word in words:
        name, equals, path = word.partition("=")
        if hub.is_hub_name(word):
            path, name = word, hub.parse_name(word).repository.rpartition("/")[2]
        elif not equals or "/" in name or Path(word).exists():
            resolved = Path(word).resolve()
            path, name = word, resolved.parent.name if resolved.name == "model" else resolved.name
        if (
            not name
            or not all(char.isalnum() or char in "._-" for char in name)
            or not name.isascii()
        ):
            raise ConfigError(
                f"'{name}' cannot be the name of a model in a path; give another one, as "
                f"in name={path}"
            )
        folder = hub.locate(path)  # here, where its progress is shown
        if not folder.is_dir():
            raise ModelError(
                f"there is no folder {path}; give a run, a litebert model or a Hugging Face folder"
                + hub.suggest_name(path)
            )
        if name in models:
            raise ConfigError(
                f"two models are called '{name}'; name one of them, as in other={path}"
            )
        models[name] = folder
    if not models:
        raise ConfigError("there is no model to serve; give a folder")
    return models
