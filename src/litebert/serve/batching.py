"""The queue of a model: bounded by how long a request would wait, and cut into batches by size and
a deadline.

Requests are counted in characters and what comes to them (costs.py), for only the workers know the
tokens; what these take is measured with every batch (pace.py). A request that is longer than a
batch waits apart. Such requests are computed in turns with each other, and short batches pass
between the steps of a turn (steps.py).
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from litebert.serve.costs import OVERHEAD, costs_of
from litebert.serve.pace import Pace
from litebert.serve.refusals import Refusal
from litebert.serve.wire import Group, Row

STEPS = 4
"""Steps of long requests, in the time that a request may have to wait."""
MOST_ROWS = 10_000
"""Inputs that may wait in all, so that memory is bounded."""


@dataclass(eq=False)
class Job:
    """A request in the queue."""

    group: Group
    input_name: str
    """The name of an input in the request, with {} for its index."""
    costs: list[float]
    """The cost of each input."""
    done: asyncio.Future[list[Row]]
    arrived: float = field(default_factory=time.monotonic)
    taken: float | None = None
    """When the first of its inputs left the queue."""
    next: int = 0
    """The first input that still waits."""
    waiting: float = 0.0
    """Cost of the inputs that wait."""
    rows: list[Row] = field(default_factory=list)
    missing: int = 0
    """Inputs without an answer."""

    def __post_init__(self) -> None:
        self.waiting, self.missing = sum(self.costs), len(self.costs)
        self.rows = [Row(b"", 0)] * self.missing


class Batch:
    """Inputs of some requests that go to a worker together."""

    def __init__(self) -> None:
        self.rows: list[tuple[Job, int]] = []
        self.cost = 0.0

    @property
    def groups(self) -> list[Group]:
        """The inputs by what is to be done, in the order of `_inputs_by_operation`."""
        return [
            Group(operation, options, [job.group.inputs[index] for job, index in inputs])
            for (operation, options), inputs in self._inputs_by_operation().items()
        ]

    def _inputs_by_operation(self) -> dict[Any, list[tuple[Job, int]]]:
        """Group the inputs, as (request, index), by their operation and its options."""
        groups: dict[Any, list[tuple[Job, int]]] = {}
        for job, index in self.rows:
            groups.setdefault((job.group.operation, job.group.options), []).append((job, index))
        return groups

    def answer(self, answers: Sequence[Sequence[Row]]) -> None:
        """Give the rows of each group to their requests. The last row of a request ends it."""
        for inputs, rows in zip(self._inputs_by_operation().values(), answers, strict=True):
            for (job, index), row in zip(inputs, rows, strict=True):
                if job.done.done():
                    continue
                if row.refusal:
                    status = {"too_large": 413, "validation": 422}.get(row.kind, 500)
                    name = job.input_name.format(index)
                    job.done.set_exception(Refusal(status, row.kind, name + row.refusal, name))
                    continue
                job.rows[index], job.missing = row, job.missing - 1
                if job.missing == 0:
                    job.done.set_result(job.rows)

    def fail(self, refusal: Refusal) -> None:
        """Refuse all requests in it."""
        for job, _ in self.rows:
            if not job.done.done():
                job.done.set_exception(refusal)


class Queue:
    """The requests of a model that wait.

    Args:
        most: characters of a batch.
        linger: most seconds for which the first request of a batch waits for others. The wait ends
            early once as many requests wait as waited or were computed when the last batch was
            formed. So a client that asks alone is answered at once.
        patience: seconds that a request may have to wait, but never less than twice the seconds of
            the longest step of a long request.
        watch: called with each batch and the seconds that it took.
    """

    def __init__(
        self,
        most: float,
        linger: float,
        patience: float,
        watch: Callable[[Batch, float], None] = lambda batch, seconds: None,
    ) -> None:
        self._most, self._linger, self._set_patience, self._watch = most, linger, patience, watch
        self.patience = self._slice = patience
        self._jobs: deque[Job] = deque()
        self._long: deque[Job] = deque()
        self._some_long, self._long_underway = asyncio.Event(), set[Batch]()
        self._more, self._full, self._turn = asyncio.Event(), asyncio.Event(), asyncio.Lock()
        self._underway, self._expected = set[Batch](), 1
        self._pace, self._workers = Pace(), 1
        self._first_room = 0.0
        """Characters of a batch by the measurements at the start."""
        self.closed: Refusal | None = None
        """The refusal of all requests now, if nothing is taken."""

    @property
    def rows(self) -> int:
        """Inputs that wait."""
        return sum(len(job.costs) - job.next for job in (*self._jobs, *self._long))

    @property
    def step(self) -> float:
        """Seconds after which short batches may pass a long request."""
        return self._slice / STEPS

    @property
    def _room(self) -> float:
        """Characters of the next batch, which shall not take longer than half of a slice."""
        return min(self._most, self._pace.size(self._slice / 2))

    def set_pace(
        self,
        trials: Sequence[tuple[int, float]],
        characters: float,
        workers: int,
        longest: float = 0.0,
    ) -> None:
        """Set the pace of the workers from measured requests, and the slice of their time that a
        batch and a step take a part of: four times a short request alone, or a hundredth of the
        patience. So a short request passes soon, however many wait.

        Args:
            trials: (inputs, seconds) of requests of short inputs, computed alone; the first decides
                the slices.
            characters: characters of each of their inputs.
            workers: number of workers.
            longest: seconds of the longest step of a long request, which nothing can pass.
        """
        self._workers, seconds = workers, trials[0][1]
        for rows, trial_seconds in trials:
            self._pace.add(rows * (characters + OVERHEAD), trial_seconds)
        few = max(4 * (seconds + 0.003), self._set_patience / 100)
        self._slice = max(min(few, self._set_patience), 2 * longest)
        self.patience = max(self._set_patience, self._slice)
        self._first_room = self._room

    def record_time(self, batch: Batch, seconds: float, long: bool = False) -> None:
        """Record the seconds that a batch took."""
        if not long:  # the cost of a long request says little about its time
            self._pace.add(batch.cost, seconds)
        self._watch(batch, seconds)

    def add(self, group: Group, input_name: str) -> Job:
        """Let a request wait for its answer.

        Raises:
            Refusal: it would wait for too long.
        """
        job = Job(group, input_name, costs_of(group), asyncio.get_running_loop().create_future())
        # A room that has shrunk in a slow time makes no request long: only short ones are measured,
        # and widen it again.
        long = job.waiting > max(self._room, self._first_room)
        if (refusal := self.refusal(long)) is not None:
            raise refusal
        if long:
            self._long.append(job)
            self._some_long.set()
        else:
            self._jobs.append(job)
            self._more.set()
            self._weigh()
        return job

    def _weigh(self) -> None:
        """Note whether a batch of full size waits."""
        if sum(job.waiting for job in self._jobs) >= self._room:
            self._full.set()
        else:
            self._full.clear()

    def refusal(self, long: bool = False) -> Refusal | None:
        """Return the refusal of a request that would come now; None if it would be taken."""
        if self.closed is not None:
            return self.closed
        wait = self._wait_long() if long else self._wait()
        if wait <= self.patience and self.rows <= MOST_ROWS:
            return None
        retry = max(1, math.ceil(wait - self.patience))
        reason = (
            f"{self.rows:,} inputs wait, and at most {MOST_ROWS:,} may"
            if self.rows > MOST_ROWS
            else f"requests wait for {wait:.3g} seconds now, and at most {self.patience:.3g} are "
            "allowed (--max-wait-ms)"
        )
        again = f"{reason}; send this one again in {retry} second{'s' * (retry > 1)}"
        return Refusal(429, "overloaded", again, retry=retry)

    def _wait(self) -> float:
        """Estimate the seconds that a short request would wait now; 0 if no other waits.

        A step of a long request comes before each batch.
        """
        if not self._jobs:
            return 0.0
        room = max(self._room, self._jobs[0].costs[0])
        ahead = sum(batch.cost for batch in self._underway) + sum(
            other.waiting for other in self._jobs
        )
        batches = math.ceil(ahead / room)
        steps = batches * self.step if self._long or self._long_underway else 0.0
        return (batches * self._pace.fixed + self._pace.slope * ahead + steps) / self._workers

    def _wait_long(self) -> float:
        """Estimate the seconds that a long request would wait now for its first turn; 0 if no other
        waits.
        """
        if not self._long:
            return 0.0
        room = self._room
        ahead = sum(batch.cost for batch in (*self._underway, *self._long_underway))
        ahead += sum(other.waiting for other in self._jobs)
        ahead += sum(min(other.waiting, max(room, other.costs[other.next])) for other in self._long)
        batches = math.ceil(ahead / max(room, 1.0))
        return (batches * self._pace.fixed + self._pace.slope * ahead) / self._workers

    def close(self, refusal: Refusal) -> None:
        """Refuse the requests that wait, and all that come until it is opened."""
        self.closed = refusal
        for job in (*self._jobs, *self._long):
            if not job.done.done():
                job.done.set_exception(refusal)
        self._jobs.clear()
        self._long.clear()
        self._weigh()

    def open(self) -> None:
        """Take requests again."""
        self.closed = None

    def leave(self, job: Job) -> None:
        """Take a request out whose client has gone."""
        job.done.cancel()
        for jobs in (self._jobs, self._long):
            if job in jobs:
                jobs.remove(job)

    async def full(self, before: Collection[asyncio.Task[Any]]) -> None:
        """Wait until there is a batch of full size, or one of the tasks is done."""
        waiting = asyncio.create_task(self._full.wait())
        try:
            await asyncio.wait({waiting, *before}, return_when="FIRST_COMPLETED")
        finally:
            waiting.cancel()

    async def take(self) -> Batch:
        """Return the next batch, when a request waits. Several workers take turns."""
        async with self._turn:
            while True:
                while not self._jobs:
                    self._more.clear()
                    await self._more.wait()
                left = self._jobs[0].arrived + self._linger - time.monotonic()
                few = (
                    len(self._jobs) < self._expected
                    and sum(job.waiting for job in self._jobs) < self._room
                )
                if left > 0 and few:
                    self._more.clear()
                    with suppress(asyncio.TimeoutError):
                        await asyncio.wait_for(self._more.wait(), left)
                    continue
                if batch := self._form_batch():
                    return batch

    async def take_long(self) -> Batch:
        """Return the next turn of the long request that waits longest, when there is a long
        request.
        """
        while True:
            while not self._long:
                self._some_long.clear()
                await self._some_long.wait()
            job, room, batch = self._long.popleft(), self._room, Batch()
            if job.done.done():
                continue
            self._fill(batch, job, room)
            if job.next < len(job.costs):
                self._long.append(job)
                self._some_long.set()  # for another worker
            self._long_underway.add(batch)
            return batch

    def _fill(self, batch: Batch, job: Job, room: float) -> None:
        """Put the inputs of a request that fit into a batch; an empty batch gets at least one."""
        while job.next < len(job.costs) and (
            not batch.rows or batch.cost + job.costs[job.next] <= room
        ):
            cost = job.costs[job.next]
            batch.rows.append((job, job.next))
            batch.cost, job.waiting, job.next = batch.cost + cost, job.waiting - cost, job.next + 1
            job.taken = job.taken or time.monotonic()

    def _form_batch(self) -> Batch | None:
        """Form a batch of the requests that wait longest. The rest of a request that does not fit
        comes after the others.
        """
        batch, room = Batch(), self._room
        self._expected = len(
            {*self._jobs, *(job for other in self._underway for job, _ in other.rows)}
        )
        while self._jobs and (not batch.rows or batch.cost < room):
            job = self._jobs.popleft()
            if job.done.done():
                continue
            first = job.next
            self._fill(batch, job, room)
            if job.next == first:
                self._jobs.appendleft(job)
                break
            if job.next < len(job.costs):
                self._jobs.append(job)
                break
        self._weigh()
        if not batch.rows:
            return None
        self._underway.add(batch)
        return batch

    def remove(self, batch: Batch) -> None:
        """Remove a batch that is computed or has failed."""
        self._underway.discard(batch)
        self._long_underway.discard(batch)
