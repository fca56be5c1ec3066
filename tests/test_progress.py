"""How long work reports itself: nothing of short work, lines of long, also while a call does not
return.
"""

from __future__ import annotations

import logging
import threading
import time

import pytest

from litebert.base import progress


def test_short_work_is_silent(caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.INFO, "litebert"),
        progress.track(range(5), "counting") as counted,
    ):
        assert list(counted) == [0, 1, 2, 3, 4]
    assert not caplog.records


def test_the_report_of_a_loop_that_fails_ends() -> None:
    def count() -> None:
        with progress.track([1, 0], "counting badly") as counted:
            for number in counted:
                assert 1 // number

    with pytest.raises(ZeroDivisionError) as held:
        count()
    assert held.traceback  # whoever holds it keeps the frames, and with them an open generator
    assert not any("counting badly" in thread.name for thread in threading.enumerate())


def test_a_call_that_does_not_return_is_reported(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "EVERY", 0.05)
    with (
        caplog.at_level(logging.INFO, "litebert"),
        progress.task("training a tokenizer", 200, "lines") as task,
    ):
        task.done = 50
        time.sleep(0.3)
    assert 3 <= len(caplog.records) <= (time.monotonic() - task.began) / 0.05
    assert caplog.messages[0].startswith(
        "training a tokenizer: 50 of 200 lines (25%), 0 s so far, "
    )


def test_the_time_left_is_judged_by_the_work_where_steps_differ() -> None:
    """One step took two minutes; eight are left, and each of the last five is nine times as much
    work.
    """
    task = progress.Task("training", 10, "steps", 2, began=time.monotonic() - 120, start=1)
    assert "16 min left" in task.line()
    task.work = lambda steps: steps + 8 * max(0.0, steps - 5)
    assert (
        "1 h 36 min left" in task.line()
    )  # 48 times the work of the one step that took two minutes


def test_every_tenth_of_a_run_is_reported(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "LONG", 0.01)
    monkeypatch.setattr(progress, "_last_line", time.monotonic())
    with caplog.at_level(logging.INFO, "litebert"):
        with progress.task("training", 30, "steps", start=15, tenths=True) as task:
            for _ in range(14):
                time.sleep(0.05)
                task.advance()
        with progress.task("scoring", 30, "rows") as other:
            other.done = 29
            time.sleep(0.1)
    assert [message.split("(")[1].split(")")[0] for message in caplog.messages] == [
        "60%",
        "70%",
        "80%",
        "90%",
    ]


def test_short_tasks_in_a_row_are_not_silent(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "EVERY", 0.2)
    monkeypatch.setattr(progress, "LONG", 0.01)
    monkeypatch.setattr(progress, "_last_line", time.monotonic())
    with caplog.at_level(logging.INFO, "litebert"):
        for number in range(6):
            with progress.task(f"part {number}"), progress.task("a part of it"):
                time.sleep(0.12)
    assert 2 <= len(caplog.records) <= 4


def test_a_display_takes_the_place_of_lines(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[str] = []

    class Display:
        def update(self, task: progress.Task) -> None:
            seen.append(task.line())

        def remove(self, task: progress.Task) -> None:
            seen.append("removed")

    monkeypatch.setattr(progress, "LONG", 0.05)
    progress.set_display(Display())
    try:
        with caplog.at_level(logging.INFO, "litebert"), progress.task("preparing"):
            time.sleep(0.15)
    finally:
        progress.set_display(None)
    assert seen[0].startswith("preparing: ")
    assert seen[-1] == "removed"
    assert not caplog.records


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(3.4, "3 s"), (60, "1 min"), (200, "3 min 20 s"), (7500, "2 h 5 min"), (3600, "1 h")],
)
def test_durations(seconds: float, words: str) -> None:
    assert progress.duration(seconds) == words
