"""The service over HTTP: its application in a server, its signals, and an end that finishes what it
took.
"""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from types import FrameType
from typing import TYPE_CHECKING, Any

import uvicorn
from starlette.middleware.cors import CORSMiddleware

from litebert.serve import logs
from litebert.serve.app import make_application
from litebert.serve.connection import Connection, count_connections
from litebert.serve.guard import LOOPBACK, Guard
from litebert.serve.server import refuse_address
from litebert.serve.service import Service

if TYPE_CHECKING:
    from litebert.serve.server import Settings

GRACE = 0.25
"""Seconds in which a stopping service still answers on open connections, and closes each then."""


def _hosts(settings: Settings, address: str) -> set[str]:
    """List the names that are served at an address; none if all are."""
    if not settings.hosts and not ip_address(address).is_loopback:
        return set()
    return {
        *settings.hosts,
        *LOOPBACK,
        *(f"[{name}]" if ":" in name else name for name in (settings.host, address)),
    }


def configure(settings: Settings, service: Service, address: str = "127.0.0.1") -> uvicorn.Config:
    """Configure the server.

    Args:
        address: what the socket is bound to, which decides the names that are served.
    """
    api, paths = make_application(service, settings.root_path)
    hosts, root = _hosts(settings, address), settings.root_path
    app: Any = Guard(api, service, settings.key, hosts, settings.origins, paths, root)
    if settings.origins:
        app = CORSMiddleware(
            app,
            allow_origins=settings.origins,
            allow_methods=["GET", "POST"],
            allow_headers=["*"],  # those that a page asks for
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
        timeout_keep_alive=settings.keep_alive,  # type: ignore[arg-type]  # seconds of any kind
        backlog=1024,
        loop="auto",
        timeout_graceful_shutdown=int(settings.limits.timeout_seconds) + 5,
    )


class Server(uvicorn.Server):
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
