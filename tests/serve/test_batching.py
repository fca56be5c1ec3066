"""How batches form: who is waited for and who is not, and that every input is computed once."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from litebert.serve.batching import OVERHEAD, Batch, Job, Queue
from litebert.serve.limits import Refusal
from litebert.serve.server import Settings
from litebert.serve.wire import Group, Row
from toys.refusals import names

LONG = 30.0
"""Seconds of lingering that no test would sit through."""


def queue(linger: float = LONG, most: float = 400.0, patience: float = 60.0) -> Queue:
    return Queue(most, linger, patience)


def ask(waiting: Queue, *texts: str) -> Job:
    return waiting.add(Group("predict", (), list(texts)), "texts[{}]")


async def take_batch(waiting: Queue, long: bool = False) -> Batch:
    """The next batch, of short requests or of a long one, which must be there at once."""
    return await asyncio.wait_for(waiting.take_long() if long else waiting.take(), 5)


def texts_of(batch: Batch) -> list[str]:
    return [text for group in batch.groups for text in group.inputs]


def test_a_client_that_asks_alone_is_answered_at_once() -> None:
    async def check() -> None:
        waiting, began = queue(), time.monotonic()
        for number in range(5):
            ask(waiting, f"text {number}")
            batch = await take_batch(waiting)
            assert texts_of(batch) == [f"text {number}"]
            waiting.remove(batch)
        assert time.monotonic() - began < LONG / 6

    asyncio.run(check())


def test_as_many_are_waited_for_as_asked_when_the_last_batch_was_formed() -> None:
    async def check() -> None:
        waiting = queue()
        ask(waiting, "a")
        ask(waiting, "b")
        waiting.remove(await take_batch(waiting))
        ask(waiting, "c")
        with pytest.raises(
            asyncio.TimeoutError
        ):  # two asked before, and one of them is still to come
            await asyncio.wait_for(waiting.take(), 0.1)
        ask(waiting, "d")
        assert texts_of(await take_batch(waiting)) == ["c", "d"]

    asyncio.run(check())


def test_those_that_are_computed_are_expected_to_ask_again() -> None:
    async def check() -> None:
        waiting = queue()
        ask(waiting, "a")
        first = await take_batch(waiting)
        ask(waiting, "b")
        second = await take_batch(waiting)  # one waits and one is computed: two from now on
        waiting.remove(first)
        waiting.remove(second)
        ask(waiting, "c")
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(waiting.take(), 0.1)

    asyncio.run(check())


def test_the_deadline_ends_the_waiting() -> None:
    async def check() -> None:
        waiting = queue(linger=0.05)
        ask(waiting, "a")
        ask(waiting, "b")
        waiting.remove(await take_batch(waiting))
        ask(waiting, "c")
        assert texts_of(await take_batch(waiting)) == ["c"]

    asyncio.run(check())


def test_a_full_batch_waits_for_nobody() -> None:
    async def check() -> None:
        waiting = queue(most=3 * OVERHEAD)
        ask(waiting, "a")
        ask(waiting, "b")
        waiting.remove(await take_batch(waiting))
        ask(waiting, "c" * 60)
        ask(waiting, "d")
        assert texts_of(await take_batch(waiting)) == ["c" * 60]

    asyncio.run(check())


def test_long_requests_take_turns_and_hold_up_no_short_one() -> None:
    async def check() -> None:
        waiting = queue(most=3 * OVERHEAD)
        first = ask(waiting, *(f"first {place}" for place in range(5)))
        second = ask(waiting, "second 0" * 100, "second 1")
        turns = [texts_of(await take_batch(waiting, long=True)) for _ in range(2)]
        assert turns == [["first 0", "first 1"], ["second 0" * 100]]
        ask(waiting, "short")
        assert texts_of(await take_batch(waiting)) == ["short"]
        turns = [texts_of(await take_batch(waiting, long=True)) for _ in range(2)]
        assert turns == [["first 2", "first 3"], ["second 1"]]
        waiting.leave(first)
        waiting.leave(second)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(waiting.take_long(), 0.1)

    asyncio.run(check())


def test_a_long_request_that_waits_lets_short_ones_in() -> None:
    async def check() -> None:
        waiting = queue(most=3 * OVERHEAD, patience=0.1)
        waiting.set_pace([(1, 0.02), (4, 0.05)], 10.0, 1)  # 45 ms a batch
        ask(waiting, *(["long"] * 1000))
        await take_batch(waiting, long=True)
        for _ in range(2):
            ask(waiting, "short")
        refusals = 0
        for _ in range(50):
            try:
                ask(waiting, "short")
            except Refusal:
                refusals += 1
        assert 0 < refusals < 50

    asyncio.run(check())


@pytest.mark.thorough
@given(
    st.lists(st.lists(st.integers(1, 300), min_size=1, max_size=6), min_size=1, max_size=8),
    st.lists(st.booleans(), max_size=8),
    st.integers(40, 500),
)
def test_every_input_is_computed_once_and_in_its_place(
    sizes: list[list[int]], gone: list[bool], most: int
) -> None:
    async def check() -> None:
        waiting, jobs = queue(linger=0.0, most=float(most)), list[Job]()
        for number, lengths in enumerate(sizes):
            texts = [f"{number}.{place} " + "x" * size for place, size in enumerate(lengths)]
            with suppress(Refusal):  # many batches would each wait for a step of a long request
                jobs.append(ask(waiting, *texts))
        assert jobs, "the first request is always taken"
        left = [job for job, leaves in zip(jobs, gone, strict=False) if leaves]
        for job in left:
            waiting.leave(job)
        computed: list[str] = []
        while waiting.rows:
            batch = await take_batch(waiting, long=not waiting._jobs)
            texts = texts_of(batch)
            assert len(texts) == 1 or batch.cost <= most
            computed += texts
            batch.answer(
                [[Row(text.encode(), 1) for text in group.inputs] for group in batch.groups]
            )
            waiting.remove(batch)
        stayed = [job for job in jobs if job not in left]
        assert sorted(computed) == sorted(text for job in stayed for text in job.group.inputs)
        for job in stayed:
            assert [row.payload.decode() for row in job.done.result()] == job.group.inputs

    asyncio.run(check())


def test_a_closed_queue_refuses_what_waits_and_what_comes() -> None:
    async def check() -> None:
        waiting = queue()
        job = ask(waiting, "a")
        waiting.close(Refusal(503, "closing", "the server ends"))
        assert isinstance(job.done.exception(), Refusal)
        with pytest.raises(Refusal):
            ask(waiting, "b")
        waiting.closed = None
        ask(waiting, "c")
        assert texts_of(await take_batch(waiting)) == ["c"]

    asyncio.run(check())


def test_a_slow_time_makes_no_short_request_long() -> None:
    async def check() -> None:
        waiting = queue(linger=0.0, most=8192.0, patience=0.1)
        waiting.set_pace([(1, 0.005), (4, 0.008)], 100.0, 1)
        for seconds in [0.3] * 60 + [0.005] * 200:
            ask(waiting, "a short text")
            batch = await take_batch(waiting)
            waiting.remove(batch)
            waiting.record_time(batch, seconds)
        for _ in range(4):
            ask(waiting, "a short text")
        assert len((await take_batch(waiting)).rows) == 4, "they are computed together again"

    asyncio.run(check())


def test_seconds_are_waited_for_and_a_refusal_says_how_long() -> None:
    """However fast the model is; and what computes stays short, so that others pass."""

    async def check() -> None:
        waiting = queue(linger=0.0, most=8192.0, patience=Settings({}).patience)
        waiting.set_pace([(1, 0.002), (4, 0.005)], 100.0, 1)
        jobs = [ask(waiting, *["a text of some words"] * 32) for _ in range(64)]
        assert waiting.step < 0.1
        batch = await take_batch(waiting)
        assert batch.cost * 0.005 / (4 * 132) < 0.1
        while (refusal := waiting.refusal()) is None:
            jobs.append(ask(waiting, *["a text of some words"] * 32))
        names(refusal.message, "10,000", f"{refusal.retry} second")
        waiting.leave(jobs.pop())
        waiting.remove(batch)
        waiting.set_pace([(1, 1.0), (4, 4.0)], 100.0, 1)  # now they take a second each
        refusal = waiting.refusal()
        assert refusal is not None
        assert refusal.retry is not None
        assert refusal.retry > 100
        names(refusal.message, "--max-wait-ms", "10", f"{refusal.retry} seconds")
        assert refusal.headers["retry-after"] == str(refusal.retry)

    asyncio.run(check())
