"""Requests to leave: SIGTERM and Ctrl-C."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

LEAVING = (signal.SIGTERM, signal.SIGINT)


class Signals:
    """The signal that this process has received. SIGTERM and the first Ctrl-C ask to save and
    leave; a second Ctrl-C stops at once.
    """

    def __init__(self) -> None:
        self.received: int | None = None

    @contextmanager
    def listen(self) -> Iterator[None]:
        """Listen for signals meanwhile; earlier ones are forgotten."""
        self.received = None

        def handle(number: int, frame: FrameType | None) -> None:
            if self.received is not None and number == signal.SIGINT:
                raise KeyboardInterrupt
            self.received = number

        before = {}
        with suppress(
            ValueError
        ):  # not the main thread, where Python delivers signals: leave them alone
            before = {number: signal.signal(number, handle) for number in LEAVING}
        try:
            yield
        finally:
            for number, old in before.items():
                signal.signal(number, old)
