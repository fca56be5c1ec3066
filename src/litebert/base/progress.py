"""How long-running work reports its progress: lines through `logging`, or bars where a display is
set.

    with task("training", total=steps, unit="steps") as bar:
        for step in range(steps):
            ...
            bar.advance()

Work that ends within two seconds shows nothing. For the rest, a line is logged at least every half
minute, even while a call into another library does not return, and even where several shorter tasks
follow one another. Training logs a line at every tenth of a run too. The command line sets a
`Display`, which draws bars on a terminal.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

log = logging.getLogger("litebert.progress")

T = TypeVar("T")

EVERY = 25.0
"""Seconds between two lines, so that no output is silent for half a minute."""

LONG = 2.0
"""Work that takes fewer seconds is not worth a bar."""


@dataclass
class Task:
    """Work under way. Set its fields, or call `advance`, at will: nothing is printed."""

    name: str
    total: float | None = None
    """How much there is to do, in `unit`s; None while that is not known."""
    unit: str = ""
    done: float = 0
    text: str = ""
    """More about it, such as a rate or a loss."""
    began: float = field(default_factory=time.monotonic)
    start: float = 0
    """The amount that was done before this call; the time left is judged by the rest."""
    work: Callable[[float], float] | None = None
    """The work behind a number of unequal `unit`s, by which the time left is judged."""
    tenths: bool = False
    """True where a line is logged at every tenth of `total`, too."""

    def advance(self, by: float = 1) -> None:
        """More of it is done."""
        self.done += by

    def tenth(self) -> int:
        """How many tenths are done, where they are reported."""
        return int(10 * self.done / self.total) if self.tenths and self.total else 0

    def state(self) -> str:
        """How much is done, the time left, or so far where that is not known, and its text."""
        amount, left = self._parts()
        return ", ".join(filter(None, (amount, left or self._so_far(), self.text)))

    def line(self) -> str:
        """The progress as one line of a log."""
        amount, left = self._parts()
        return f"{self.name}: {', '.join(filter(None, (amount, self._so_far(), left, self.text)))}"

    def _parts(self) -> tuple[str, str]:
        done = self._amount(self.done)
        if not self.total:
            return (f"{done} {self.unit}".strip() if self.done else ""), ""
        share = min(1.0, self.done / self.total)
        left = ""
        if self.start < self.done < self.total:
            seconds = time.monotonic() - self.began
            start, now, end = (
                self.work(amount) if self.work else amount
                for amount in (self.start, self.done, self.total)
            )
            left = f"{duration((end - now) / (now - start) * seconds)} left"
        return f"{done} of {self._amount(self.total)} {self.unit}".strip() + f" ({share:.0%})", left

    def _so_far(self) -> str:
        return f"{duration(time.monotonic() - self.began)} so far"

    def _amount(self, number: float) -> str:
        return f"{number / 1e6:,.1f} M" if self.unit == "bytes" else f"{number:,.0f}"


def duration(seconds: float) -> str:
    """A span of time as a person says it: 42 s, 3 min 20 s, 2 h 5 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min" + (f" {whole % 60} s" if whole % 60 else "")
    minutes = round(seconds / 60)
    return f"{minutes // 60:,} h" + (f" {minutes % 60} min" if minutes % 60 else "")


class Display(Protocol):
    """Draws tasks; called from a thread of its own."""

    def update(self, task: Task) -> None:
        """Show where a task stands; the first time, that it is there."""

    def remove(self, task: Task) -> None:
        """It has ended."""


_display: Display | None = None


_last_line = time.monotonic()
"""When a line was last logged, of whichever task."""
_line_lock = threading.Lock()


def set_display(display: Display | None) -> None:
    """Draw tasks from now on instead of logging lines of them; None logs again."""
    global _display
    _display = display


@contextmanager
def task(
    name: str,
    total: float | None = None,
    unit: str = "",
    start: float = 0,
    tenths: bool = False,
    work: Callable[[float], float] | None = None,
) -> Iterator[Task]:
    """Report the work of this block. One within another is reported beside it."""
    job, ended = (
        Task(name, total, unit, done=start, start=start, work=work, tenths=tenths),
        threading.Event(),
    )
    reporter = threading.Thread(
        target=_report, args=(job, ended), name=f"progress of {name}", daemon=True
    )
    reporter.start()
    try:
        yield job
    finally:
        ended.set()
        reporter.join(2.0)  # it ends at once, unless a signal came where a lock of the log was held
        log.debug(f"{name}: took {time.monotonic() - job.began:.2f} s")


@contextmanager
def track(
    items: Iterable[T],
    name: str,
    total: float | None = None,
    unit: str = "",
    size: Callable[[T], float] = lambda _: 1,
) -> Iterator[Iterator[T]]:
    """The items, for the block to read and be reported, each `size` of `total`.

    The report ends with the block: a loop that fails would leave a generator open for as long as
    somebody holds the exception.
    """

    def each() -> Iterator[T]:
        for item in items:
            yield item
            job.advance(size(item))

    with task(name, total, unit) as job:
        yield each()


def _report(job: Task, ended: threading.Event) -> None:
    global _last_line
    display = _display
    if display is None:
        least, tenth = min(LONG, EVERY), job.tenth()
        while not ended.wait(
            least if job.tenths else max(least, _last_line + EVERY - time.monotonic())
        ):
            with _line_lock:  # of tasks at the same time one speaks
                if time.monotonic() - _last_line >= EVERY or job.tenth() > tenth:
                    log.info(job.line())
                    _last_line, tenth = time.monotonic(), job.tenth()
        return
    if ended.wait(LONG):
        return
    try:
        while True:
            display.update(job)
            if ended.wait(0.2):
                break
    finally:
        display.remove(job)
