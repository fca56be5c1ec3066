"""What the service tells of itself, without a text, a key or an address: a log, one JSON object on
each line of standard error, and metrics in the text format of Prometheus.

An exception is logged by its kind and the places it passed: its message may quote a text.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
import traceback
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

LOG = logging.getLogger("litebert.serve")
REQUESTS = LOG.getChild("requests")
PRECISION = logging.getLogger("litebert.precision")
"""Says at the start how far an engine is from float32 (answer/engines/precision.py)."""
FETCHING = tuple(logging.getLogger(f"litebert.{name}") for name in ("hub", "progress"))
"""Say which models are fetched, and how far that is."""
OTHERS = tuple(logging.getLogger(name) for name in ("uvicorn", "uvicorn.error", "asyncio"))


_encode = json.JSONEncoder(default=str).encode


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
        return _encode(line)


def set_up(requests: bool = True) -> None:
    """Write the service's log to standard error, with a line for each request or without."""
    handler = logging.StreamHandler(sys.stderr)
    handler.handleError = lambda record: None  # type: ignore[method-assign]  # nobody reads the log
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
    at = [f"{frame.filename}:{frame.lineno}" for frame in frames[-8:]]
    return {"kind": type(error).__name__, "at": at}


# ----------------------------------------------------------------------------------------- metrics

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)

Labels = tuple[tuple[str, str], ...]


class Counter:
    """Numbers that only rise, one for each set of labels."""

    def __init__(self, name: str, about: str) -> None:
        self.name, self.about = name, about
        self._values: dict[Labels, float] = {}

    def add(self, amount: float = 1, **labels: str) -> None:
        key = tuple(labels.items())
        self._values[key] = self._values.get(key, 0) + amount

    def lines(self) -> Iterable[str]:
        yield from _head(self.name, self.about, "counter")
        for labels, value in self._values.items():
            yield f"{self.name}{_braces(labels)} {value:g}"


class Histogram:
    """How often a quantity fell under each of some bounds, for each set of labels."""

    def __init__(self, name: str, about: str, bounds: Sequence[float]) -> None:
        self.name, self.about, self._bounds = name, about, bounds
        self._counts: dict[Labels, list[int]] = {}
        self._sums: dict[Labels, float] = {}

    def add(self, value: float, **labels: str) -> None:
        key = tuple(labels.items())
        counts = self._counts.setdefault(key, [0] * (len(self._bounds) + 1))
        counts[bisect_left(self._bounds, value)] += 1
        self._sums[key] = self._sums.get(key, 0.0) + value

    def lines(self) -> Iterable[str]:
        yield from _head(self.name, self.about, "histogram")
        for labels, counts in self._counts.items():
            total = 0
            for bound, count in zip([*map(str, self._bounds), "+Inf"], counts, strict=True):
                total += count
                yield f"{self.name}_bucket{_braces((*labels, ('le', bound)))} {total}"
            yield f"{self.name}_sum{_braces(labels)} {self._sums[labels]:.6f}"
            yield f"{self.name}_count{_braces(labels)} {total}"


class Metrics:
    """All metrics of the service."""

    def __init__(self) -> None:
        self.requests = Counter("litebert_requests_total", "Requests by route, model and status.")
        self.seconds = Histogram(
            "litebert_request_seconds", "Time from the head of a request to its answer.", SECONDS
        )
        self.queued = Histogram(
            "litebert_queue_seconds", "Time that a request waited for its batch.", SECONDS
        )
        self.computed = Histogram(
            "litebert_batch_seconds", "Time that a batch took in a worker.", SECONDS
        )
        self.batches = Histogram("litebert_batch_rows", "Inputs of a batch.", ROWS)
        self.rows = Counter("litebert_rows_total", "Inputs that were answered.")
        self.tokens = Counter("litebert_tokens_total", "Tokens that were read.")
        self.cancelled = Counter(
            "litebert_cancelled_total", "Requests whose client left before the answer."
        )

    def text(self, gauges: Iterable[tuple[str, str, Mapping[str, float]]]) -> str:
        """Format all metrics, with gauges: a name, a description, and the value of each model."""
        lines = [line for metric in vars(self).values() for line in metric.lines()]
        for name, about, values in gauges:
            lines += _head(name, about, "gauge")
            for model, value in values.items():
                lines.append(f"{name}{_braces((('model', model),) if model else ())} {value:g}")
        return "\n".join(lines) + "\n"


def resident(pids: Iterable[int]) -> float:
    """Sum the bytes of memory that processes hold; 0 if the system does not say."""
    pages = 0
    for pid in pids:
        try:
            pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        except (OSError, ValueError, IndexError):
            continue
    return float(pages * (os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096))


def _head(name: str, about: str, kind: str) -> list[str]:
    return [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]


def _braces(labels: Labels) -> str:
    escaped = (
        (name, value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n"))
        for name, value in labels
    )
    inside = ",".join(f'{name}="{value}"' for name, value in escaped)
    return f"{{{inside}}}" if inside else ""
