"""The log: one JSON object on each line of standard error, without a text, a key or an address.

An exception is logged by its kind and the places it passed: its message may quote a text.
"""

from __future__ import annotations

import json
import logging
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    _StreamHandler = logging.StreamHandler[Any]
else:
    _StreamHandler = logging.StreamHandler  # which Python 3.10 cannot subscript

LOG = logging.getLogger("litebert.serve")
REQUESTS = LOG.getChild("requests")
PRECISION = logging.getLogger("litebert.precision")
"""Says at the start how far an engine is from float32 (answer/engines/precision.py)."""
FETCHING = tuple(logging.getLogger(f"litebert.{name}") for name in ("hub", "progress"))
"""Say which models are fetched, and how far that is."""
OTHERS = tuple(logging.getLogger(name) for name in ("uvicorn", "uvicorn.error", "asyncio"))


class Lines(logging.Formatter):
    """A record as JSON: its message as `event`, and the fields it was logged with."""

    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, Any] = {
            "time": f"{moment}.{record.msecs:03.0f}Z",
            "level": record.levelname.lower(),
            "event": record.getMessage(),
        }
        line.update(getattr(record, "fields", {}))
        if record.exc_info and record.exc_info[1] is not None:
            line.update(failure(record.exc_info[1]))
        return json.dumps(line, default=str)


class _Quietly(_StreamHandler):
    """Goes on where nobody reads the log any more."""

    def handleError(self, record: logging.LogRecord) -> None:
        pass


def set_up(requests: bool = True) -> None:
    """Write the service's log to standard error, with a line for each request or without."""
    handler = _Quietly(sys.stderr)
    handler.setFormatter(Lines())
    for logger in (LOG, PRECISION, *FETCHING):
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(logging.INFO)
    REQUESTS.setLevel(logging.INFO if requests else logging.WARNING)
    for logger in OTHERS:
        logger.handlers, logger.propagate = [handler], False
        # All that they know is logged by this package, and they would quote requests.
        logger.setLevel(logging.CRITICAL)


@contextmanager
def restore_loggers() -> Iterator[None]:
    """Give all loggers that `set_up` changes back as they were, for what this process does next."""
    loggers = (LOG, REQUESTS, PRECISION, *FETCHING, *OTHERS)
    before = [(logger, logger.handlers, logger.propagate, logger.level) for logger in loggers]
    try:
        yield
    finally:
        for logger, handlers, propagate, level in before:
            logger.handlers, logger.propagate = handlers, propagate
            logger.setLevel(level)


def event(name: str, level: int = logging.INFO, to: logging.Logger = LOG, **fields: Any) -> None:
    """Log something that happened."""
    if to.isEnabledFor(level):
        to.log(level, name, extra={"fields": fields})


def failure(error: BaseException) -> dict[str, Any]:
    """Describe an exception by its kind and the lines it passed."""
    frames = traceback.extract_tb(error.__traceback__)
    return {
        "kind": type(error).__name__,
        "at": [f"{frame.filename}:{frame.lineno}" for frame in frames[-8:]],
    }
