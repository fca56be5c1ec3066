"""Bars on a terminal: one live display on standard error for all running work."""

from __future__ import annotations

from threading import Lock

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Column

from litebert.base.progress import Task


class Bars:
    """A `progress.Display`. Lines printed through the same console appear above the bars."""

    def __init__(self, console: Console) -> None:
        self._console, self._lock = console, Lock()
        self._shown: dict[int, TaskID] = {}
        self._progress: Progress | None = None

    def update(self, task: Task) -> None:
        with self._lock:
            if self._progress is None:
                self._progress = Progress(
                    TextColumn("{task.description}", markup=False),
                    BarColumn(bar_width=10),
                    TextColumn(
                        "{task.fields[state]}",
                        markup=False,
                        table_column=Column(no_wrap=True, ratio=1),
                    ),
                    console=self._console,
                    transient=True,
                    expand=True,
                    redirect_stdout=False,
                    redirect_stderr=False,
                )
                self._progress.start()
            if id(task) not in self._shown:
                self._shown[id(task)] = self._progress.add_task(task.name, total=None, state="")
            self._progress.update(
                self._shown[id(task)], total=task.total, completed=task.done, state=task.state()
            )

    def remove(self, task: Task) -> None:
        with self._lock:
            shown = self._shown.pop(id(task), None)
            if self._progress is None or shown is None:
                return
            self._progress.remove_task(shown)
            if not self._shown:
                self._progress.stop()
                self._progress = None
