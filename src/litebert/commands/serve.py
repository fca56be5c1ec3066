"""`litebert serve`: answers over HTTP."""

from __future__ import annotations

import logging
import os
import re
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, ClassVar

from litebert.base.errors import MissingExtraError, require
from litebert.base.machine import count_cores
from litebert.commands import console
from litebert.commands.engines import AnswerOptions
from litebert.commands.options import Arg

if TYPE_CHECKING:
    from litebert.serve.server import Settings

MOST_EACH = 16
"""Workers, or threads of each, for a core: more would only take memory."""
_HOST = r"\[[0-9a-f:.]+\]|[a-z0-9._-]+"
"""Matches a host as clients name it, without a port."""
_ORIGIN = re.compile(
    rf"(?!http://.*:80$|https://.*:443$)https?://({_HOST})(:[0-9]+)?", re.IGNORECASE
)


@dataclass(kw_only=True)
class ServeArguments(AnswerOptions):
    """Serve models over HTTP until Ctrl-C or SIGTERM, each in a process of its own.

    The log is JSON, a line for each request, and holds no texts.
    """

    examples: ClassVar[tuple[str, ...]] = (
        "litebert serve classifier",
        "litebert serve mood=classifier words=run --port 8080 --workers 2",
        "litebert serve classifier --host 0.0.0.0 --key-file key.txt",
    )

    common: ClassVar[str] = (
        "host port key-file workers threads dtype engine min-precision exit-confidence max-rows "
        "timeout-s allow-origin allow-host device"
    )

    models: Annotated[tuple[str, ...], Arg("MODEL", positional=True)]
    """Folders of models or hf:OWNER/NAME; NAME=MODEL gives one a name."""
    host: str = "127.0.0.1"
    """Address to listen at; 0.0.0.0 is all networks of this machine."""
    port: int = 8000
    """Port to listen at; 0 takes a free one, which the log names."""
    key_file: Annotated[str | None, Arg("FILE")] = None
    """File of the key of clients; by default the variable LITEBERT_KEY."""
    allow_origin: Annotated[tuple[str, ...], Arg("URL")] = ()
    """Web pages that may call, such as https://example.org, or *."""
    allow_host: Annotated[tuple[str, ...], Arg("HOST")] = ()
    """Names of the service behind a proxy, other than localhost."""
    min_precision: float | None = None
    """Answer null where the model is unsure, so that this share of the rest is right."""
    workers: int = 1
    """Processes for each model."""
    threads: int | None = None
    """Threads of each process; by default its share of the cores."""
    max_rows: int = 256
    """Most inputs of a request."""
    max_characters: int = 200_000
    """Most characters of a request."""
    max_tokens: int = 8192
    """Most tokens of an input, after truncation."""
    max_body_bytes: int = 4 << 20
    """Most bytes of a request."""
    timeout_s: float = 30.0
    """Seconds after which a request is refused and its worker replaced."""
    max_wait_ms: float = 10_000.0
    """Refuse requests that would wait longer, in ms."""
    keep_alive_s: float = 75.0
    """Seconds for which an idle connection stays; more than the balancer's."""
    root_path: str = ""
    """Path under which a proxy offers the service, such as /litebert."""
    batch_wait_ms: float = 2.0
    """Milliseconds for which the first request of a batch waits for others."""
    batch_characters: int = 8192
    """Most characters of a batch."""


def serve(words: list[str]) -> int:
    arguments = console.parse(ServeArguments, words, "serve")
    with console.loading():
        require_packages()
        from litebert.serve import logs
        from litebert.serve.server import serve as run

    _check_options(arguments)
    with logs.restore_loggers():
        run(_make_settings(arguments))
    return 0


def _make_settings(arguments: ServeArguments) -> Settings:
    from litebert.serve import logs
    from litebert.serve.limits import Limits
    from litebert.serve.server import Settings, parse_models, read_key

    log_requests = logging.getLogger("litebert").level <= logging.INFO
    logs.set_up(log_requests)  # before models are fetched, which is logged
    same = "host", "port", "engine", "dtype", "device", "exit_confidence", "min_precision"
    names = (*same, "workers", "threads", "batch_characters")
    return Settings(
        parse_models(arguments.models),
        **{name: getattr(arguments, name) for name in names},
        key=read_key(arguments.key_file, os.environ.get("LITEBERT_KEY")),
        origins=tuple(origin.lower() for origin in arguments.allow_origin),
        hosts=arguments.allow_host,
        limits=Limits(
            arguments.max_rows,
            arguments.max_characters,
            arguments.max_tokens,
            arguments.max_body_bytes,
            arguments.timeout_s,
        ),
        linger=arguments.batch_wait_ms / 1000,
        patience=arguments.max_wait_ms / 1000,
        keep_alive=arguments.keep_alive_s,
        root_path=arguments.root_path.rstrip("/"),
        log_requests=log_requests,
    )


def require_packages() -> None:
    for name in ("starlette", "uvicorn"):
        if find_spec(name) is None:
            raise MissingExtraError(name, "serve")


def _check_options(arguments: ServeArguments) -> None:
    most = MOST_EACH * count_cores()
    for name, low, high in (
        ("port", 0, 65535),
        ("workers", 1, most),
        ("threads", 1, most),
        ("batch-wait-ms", 0, 1e6),
        ("batch-characters", 1, 1e9),
        ("max-wait-ms", 1e-3, 1e9),
        ("keep-alive-s", 1e-3, 1e6),
    ):
        value = getattr(arguments, name.replace("-", "_"))
        is_good = value is None or low <= value <= high
        require(is_good, f"--{name} is {value}; give {low:g} to {high:,.0f} on this machine")
    require(
        re.fullmatch(r"(/[\w.~-]+)*/?", arguments.root_path, re.ASCII) is not None,
        f"--root-path is '{arguments.root_path}'; give a path such as /litebert",
    )
    for origin in arguments.allow_origin:
        require(
            origin == "*" or _ORIGIN.fullmatch(origin) is not None,
            f"--allow-origin is '{origin}'; give it as browsers write it, such as "
            "https://example.org, without the port if it is the usual one",
        )
    for host in arguments.allow_host:
        require(
            re.fullmatch(_HOST, host, re.IGNORECASE) is not None,
            f"--allow-host is '{host}'; give a name or an address alone, such as example.org "
            "or [::1]",
        )
