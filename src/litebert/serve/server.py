"""The service as a process: its socket, and its workers, which open models during imports."""

from __future__ import annotations

import asyncio
import gc
import logging
import re
import socket
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any

from litebert import hub
from litebert.base.errors import ConfigError, MissingExtraError, require
from litebert.base.machine import count_cores, return_freed_memory
from litebert.base.registry import pause_collection
from litebert.demo import locate
from litebert.serve import logs
from litebert.serve.batching import Batch, Queue
from litebert.serve.limits import Limits
from litebert.serve.logs import Metrics
from litebert.serve.pool import Pool
from litebert.serve.service import Service

if TYPE_CHECKING:  # the service itself needs no NumPy, which takes 10 MB and a tenth of a second
    from litebert.kernels.packing import Dtype
    from litebert.serve.http import Server

PACKAGES = ("httptools", "pydantic", "starlette", "uvicorn")
"""The packages of the extra that answer HTTP."""


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
    patience: float = 10.0
    """Seconds that a request may have to wait; see `Queue`."""
    keep_alive: float = 75.0
    """Seconds for which a connection without a request stays open."""
    root_path: str = ""
    """The path under which a proxy offers the service, such as /litebert."""
    log_requests: bool = True
    min_precision: float | None = None
    dtype: Dtype | None = None
    """The precision of the answers of each fine-tuned model; see `load`."""


def serve(settings: Settings) -> None:
    """Serve until a signal ends it."""
    with logs.restore_loggers():
        logs.set_up(settings.log_requests)
        run: Callable[[Coroutine[Any, Any, None]], None] = asyncio.run
        with suppress(ImportError):  # which is not for Windows
            from uvloop import run  # takes less of the processor
        with _bind(settings.host, settings.port) as listening:
            run(_serve(settings, listening))


@contextmanager
def _bind(host: str, port: int) -> Iterator[socket.socket]:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM
        )[0]
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
    except (OSError, OverflowError) as error:
        raise refuse_address(host, port, error) from None
    with listening:
        yield listening


def refuse_address(host: str, port: int, error: Exception) -> ConfigError:
    """Return the error that an address cannot be listened at."""
    return ConfigError(f"cannot listen at {host}:{port} ({error}); give another --host or --port")


async def _serve(settings: Settings, listening: socket.socket) -> None:
    metrics = Metrics()

    def watch(name: str, batch: Batch, seconds: float) -> None:
        metrics.batches.add(len(batch.rows), model=name)
        metrics.computed.add(seconds, model=name)

    pools: dict[str, Pool] = {}
    for name, path in settings.models.items():
        most, wait, patience = settings.batch_characters, settings.linger, settings.patience
        opening = {
            "path": str(path),
            "engine": settings.engine,
            "dtype": settings.dtype,
            "device": settings.device,
            "exit_confidence": settings.exit_confidence,
            "threads": settings.threads or max(1, count_cores() // settings.workers),
            "tokens": settings.limits.tokens,
            "min_precision": settings.min_precision,
        }
        queue = Queue(most, wait, patience, partial(watch, name))
        pools[name] = Pool(name, opening, queue, settings.workers, settings.limits.timeout_seconds)
    service, address = Service(pools, settings.limits, metrics), listening.getsockname()[0]
    # This takes a tenth of a second, in which the workers open their models.
    making = asyncio.create_task(asyncio.to_thread(_make_server, settings, service, address))
    try:
        for pool in pools.values():  # one after the other: each measures its speed alone
            await pool.start()
            about = {name: pool.info[name] for name in ("kind", "engine", "dtype")}
            about["patience_ms"] = round(1000 * pool.queue.patience)
            logs.event("a model is ready", model=pool.name, pids=pool.pids, **about)
        is_known = any(pool.info["min_precision"] is not None for pool in pools.values())
        require(
            settings.min_precision is None or is_known,
            "--min-precision is of a model for classes or labels, and none is served; leave it out",
        )
        if settings.key is None and not ip_address(address).is_loopback:
            advice = "give --key-file FILE or set LITEBERT_KEY"
            logs.event("no key is set", logging.WARNING, address=address, advice=advice)
        server = await making
        # What stays to the end needs no look at every collection, which stops all requests.
        gc.freeze()
        return_freed_memory()
        await server.serve(sockets=[listening])
    finally:
        await asyncio.gather(*(pool.stop() for pool in pools.values()))


def _make_server(settings: Settings, service: Service, address: str) -> Server:
    with pause_collection():
        for package in PACKAGES:
            try:
                import_module(package)
            except Exception as error:  # half a package fails in its own ways
                reason = str(error).partition("\n")[0] or type(error).__name__
                raise MissingExtraError(package, "serve", reason) from None
        from litebert.serve.http import Server, configure

        server = Server(configure(settings, service, address), service)
    gc.collect()
    return server


def parse_models(words: Sequence[str]) -> dict[str, Path]:
    """Parse models by name, from NAME=MODEL or MODEL; those of the Hub and of the package are
    fetched."""
    models: dict[str, Path] = {}
    for word in words:
        name, equals, path = word.partition("=")
        if hub.is_hub_name(word):
            path, name = word, hub.parse_name(word).repository.rpartition("/")[2]
        elif not equals or "/" in name or Path(word).exists():
            resolved = Path(word).resolve()
            path, name = word, resolved.parent.name if resolved.name == "model" else resolved.name
            name = re.sub(r"[^\w.-]+", "-", name, flags=re.ASCII)
        if re.fullmatch(r"[\w.-]+", name, re.ASCII) is None:
            raise ConfigError(
                f"'{name}' cannot be the name of a model in a path; give another one, as "
                f"in name={path}"
            )
        folder = hub.locate(locate(path))  # here, where its progress is shown
        if not folder.is_dir():
            raise hub.refuse_missing(Path(path))
        if name in models:
            raise ConfigError(
                f"two models are called '{name}'; name one of them, as in other={path}"
            )
        models[name] = folder
    if not models:
        raise ConfigError("there is no model to serve; give a folder")
    return models


def read_key(file: str | None, variable: str | None) -> bytes | None:
    """Read the key that clients must send: the first line of a file, or an environment variable."""
    if file is not None:
        try:
            with open(file, encoding="utf-8") as lines:
                key, source = lines.readline(1 << 12).strip(), file  # a device may have no end
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"the key file {file} cannot be read ({error}); check --key-file"
            ) from None
    elif variable is not None:
        key, source = variable.strip(), "LITEBERT_KEY"
    else:
        return None
    if not key or not key.isascii() or not key.isprintable():
        raise ConfigError(
            f"the key in {source} must be printable ASCII and not empty; write another one"
        )
    return key.encode()
