"""Paths that a process leaves unfinished because it was killed."""

from __future__ import annotations

import os
from pathlib import Path

from litebert.base.storage import write_whole


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
