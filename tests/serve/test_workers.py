"""Worker processes that end, and services that end before them."""

from __future__ import annotations

import asyncio
import io
import os
from types import SimpleNamespace
from typing import Any

import pytest

from litebert.serve import wire
from litebert.serve.batching import Queue
from litebert.serve.pool import Pool
from litebert.serve.steps import Steps
from litebert.serve.wire import Group, Row
from litebert.serve.worker import _serve


def answer_groups(groups: Any) -> list[list[Row]]:
    return [[Row(str(text).encode(), 1) for text in Group(*group).inputs] for group in groups]


def test_a_worker_ends_where_its_service_was_killed_inside_of_a_frame() -> None:
    whole = wire.pack((0, 0.0, [("predict", (), ["a" * 1000])]))
    served: Any = SimpleNamespace(steps=Steps(), answer=lambda group: answer_groups([group])[0])
    for size in (0, 5, wire.LENGTH, wire.LENGTH + 1, len(whole) - 1):
        out = io.BytesIO()
        _serve(served, io.BytesIO(whole + whole[:size]), out)
        assert wire.read(io.BytesIO(out.getvalue()))[0] == 0, "the batch before is answered"


@pytest.mark.parametrize("step", [0.0, 0.1])
def test_a_worker_whose_service_was_killed_ends_without_a_word(step: float) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    source = io.BytesIO(wire.pack((0, step, [("predict", (), ["a"])])))
    served: Any = SimpleNamespace(steps=Steps(), answer=lambda group: answer_groups([group])[0])
    with os.fdopen(writing, "wb", 0) as out:
        _serve(served, source, out)
    assert source.read() == b"", "the batch was taken"


class Alive:
    """A worker that answers at once."""

    pid, ready = 1, True

    def __init__(self) -> None:
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def compute(self, groups: Any, step: float = 0.0) -> tuple[list[list[Row]], float]:
        return answer_groups(groups), 0.001


class Dead(Alive):
    """A worker that cannot be replaced."""

    pid, ready = None, False  # type: ignore[assignment]


def test_a_worker_that_is_gone_takes_no_long_request() -> None:
    async def check() -> None:
        queue = Queue(400.0, 0.0, 60.0)
        pool = Pool("colors", {}, queue, 0, 30)
        workers: list[Any] = [Dead(), Alive()]
        tasks = [asyncio.create_task(pool._run_long(worker)) for worker in workers]
        await asyncio.sleep(0)
        for number in range(4):
            texts = [f"{number}.{place} " * 20 for place in range(9)]
            job = queue.add(Group("predict", (), texts), "texts[{}]")
            rows = await asyncio.wait_for(asyncio.shield(job.done), 5)
            assert [row.payload.decode() for row in rows] == texts
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(check())
