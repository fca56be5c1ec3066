"""Counters, gauges and histograms in the text format of Prometheus."""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)

Labels = tuple[tuple[str, str], ...]


class Counter:
    """Numbers that only rise, one for each set of labels."""

    def __init__(self, name: str, about: str) -> None:
        self.name, self.about = name, about
        self._values: dict[Labels, float] = {}

    def add(self, amount: float = 1, **labels: str) -> None:
        """Count."""
        key = tuple(labels.items())
        self._values[key] = self._values.get(key, 0) + amount

    def lines(self) -> Iterable[str]:
        """Yield the lines that Prometheus reads."""
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
        """Count a value."""
        key = tuple(labels.items())
        counts = self._counts.setdefault(key, [0] * (len(self._bounds) + 1))
        counts[bisect_left(self._bounds, value)] += 1
        self._sums[key] = self._sums.get(key, 0.0) + value

    def lines(self) -> Iterable[str]:
        """Yield the lines that Prometheus reads."""
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

    def text(self, gauges: Mapping[str, tuple[str, Mapping[str, float]]]) -> str:
        """Format all metrics, with gauges by name: a description, and the value of each model."""
        lines = [line for metric in vars(self).values() for line in metric.lines()]
        for name, (about, values) in gauges.items():
            lines += _head(name, about, "gauge")
            lines += [
                f"{name}{_braces((('model', model),) if model else ())} {value:g}"
                for model, value in values.items()
            ]
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
