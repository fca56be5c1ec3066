"""Runs that are killed at an instant, and paths that a killed process leaves unfinished."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from litebert.base.storage import write_whole


class Killed(BaseException):
    """Ends a run at an instant, with nothing saved."""


def kill(*_: Any, **__: Any) -> None:
    """Put in the place of a function, it ends the run there."""
    raise Killed


def kill_at(step: int) -> Callable[[Any], None]:
    """For `on_step`."""

    def stop(loop: Any) -> None:
        if loop.step == step:
            raise Killed

    return stop


def leave_unfinished(path: Path, is_reaped: bool = True) -> Path:
    """Let a process die while it writes a folder that is to become `path`; the folder that it
    leaves. A process that nobody reaps stays a zombie.
    """
    before = set(path.parent.iterdir())
    if not (child := os.fork()):
        with write_whole(path) as aside:
            aside.mkdir()
            (aside / "half").write_text("left by a kill")
            os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | (0 if is_reaped else os.WNOWAIT))
    (left,) = set(path.parent.iterdir()) - before
    return left
