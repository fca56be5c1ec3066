"""The queue of a model: bounded by how long a request would wait, and cut into batches by size and
a deadline.

Requests are counted in characters, because only the workers know tokens; the time that these take
is measured with every batch. A request longer than a batch waits apart, and short batches pass
between its steps (steps.py).
"""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from litebert.serve.limits import Refusal, choices_of, count_characters
from litebert.serve.wire import Group, Row

STEPS = 4
"""Steps of long requests, in the time that a request may have to wait."""
MOST_ROWS = 10_000
"""Inputs that may wait in all, so that memory is bounded."""

# ------------------------------------------------------------- costs, in characters of a plain text

OVERHEAD = 32.0
"""What there is to do for each input, however short it is."""
WORD = 4.0
"""A word of a list, however short it is: its tag stands in the answer."""
MASK = 100.0
"""A mask: the logits of the whole vocabulary, and their order."""
QUERY = 4096
"""Characters of a query that count for every pair; more are read once, and then no pair holds
them."""
_MASKS = re.compile(r"\[MASK\]|<[^<>\s]{1,30}>|_{3,}")
"""Matches a mask of any tokenizer, and perhaps more."""


def count_masks(text: str) -> int:
    """Count the words of a text that may be masks."""
    return len(_MASKS.findall(text))


def costs_of(group: Group) -> list[float]:
    """Return the cost of each input: its text, and masks x predictions if masks are filled."""
    if group.operation == "fill-mask":
        each = MASK + dict(group.options).get("top", 5)
        return [OVERHEAD + len(text) + each * count_masks(text) for text in group.inputs]
    if group.operation in ("score", "cosine"):
        query, (first, _) = QUERY if group.operation == "score" else 0, group.inputs[0]
        costs = [OVERHEAD + min(len(first), query) + len(text) for _, text in group.inputs]
        return [costs[0] + len(first), *costs[1:]]  # the query is read once, with the first pair
    costs = []
    for value in group.inputs:
        if isinstance(value, str):
            costs.append(OVERHEAD + len(value))
        else:  # with a row for each of its choices
            words = WORD * sum(isinstance(part, str) for part in value)
            rows = max(1, len(choices_of(value)))
            costs.append(OVERHEAD * rows + words + count_characters(value))
    return costs


class Pace:
    """How long a batch will take: a line through the costs and times of batches, the newest of
    which count most (least squares).
    """

    DECAY = 0.95
    """How much of what was measured before a batch counts after it."""
    LEAST = 0.1
    """The least share of a mean batch's time that is ascribed to its cost: fewer would be noise."""

    def __init__(self) -> None:
        self._weight = self._sizes = self._times = self._squares = self._products = 0.0
        self.fixed, self.slope = 0.0, 1e-3
        """Seconds of any batch, and seconds for one more of its cost."""

    def add(self, size: float, seconds: float) -> None:
        self._weight = self.DECAY * self._weight + 1
        self._sizes = self.DECAY * self._sizes + size
        self._times = self.DECAY * self._times + seconds
        self._squares = self.DECAY * self._squares + size * size
        self._products = self.DECAY * self._products + size * seconds
        mean, duration = self._sizes / self._weight, self._times / self._weight
        spread = self._squares / self._weight - mean * mean
        slope = 0.0
        if spread > 1e-3 * mean * mean:
            slope = (self._products / self._weight - mean * duration) / spread
        self.slope = min(max(slope, self.LEAST * duration / mean), duration / mean)
        self.fixed = duration - self.slope * mean

    def size(self, seconds: float) -> float:
        """Estimate the cost of a batch that takes so many seconds; 0 if all batches take longer."""
        return max(0.0, seconds - self.fixed) / self.slope


# ------------------------------------------------------------------------------------- the queue


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

    A batch has `most` characters; its first request waits `linger` seconds for others, less once as
    many wait as when the last batch was formed, so that a client alone is answered at once. A
    request may have to wait `patience` seconds, or twice the longest step of a long one. `watch` is
    called with each batch and its seconds.
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
        self._jobs, self._long = deque[Job](), deque[Job]()
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
        """Set the pace of the workers from trials of (inputs, seconds), and the slice of their time
        that a batch and a step take a part of: four times a short request alone, or a hundredth of
        the patience. So a short request passes soon, however many wait.

        `characters` are those of each input; `longest` is the longest step of a long request.
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
        """Let a request wait for its answer."""
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
        wait = self._wait(long)
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

    def _wait(self, long: bool) -> float:
        """Estimate the seconds that a request, or a long one's first turn, would wait now."""
        if not (self._long if long else self._jobs):
            return 0.0
        ahead = sum(batch.cost for batch in self._underway)
        ahead += sum(other.waiting for other in self._jobs)
        room, steps = self._room, 0.0
        if long:
            ahead += sum(batch.cost for batch in self._long_underway)
            ahead += sum(min(job.waiting, max(room, job.costs[job.next])) for job in self._long)
            batches = math.ceil(ahead / max(room, 1.0))
        else:
            batches = math.ceil(ahead / max(room, self._jobs[0].costs[0]))
            if self._long or self._long_underway:  # a step of a long request precedes each batch
                steps = batches * self.step
        return (batches * self._pace.fixed + self._pace.slope * ahead + steps) / self._workers

    def close(self, refusal: Refusal) -> None:
        """Refuse the requests that wait, and all that come until `closed` is None again."""
        self.closed = refusal
        for job in (*self._jobs, *self._long):
            if not job.done.done():
                job.done.set_exception(refusal)
        self._jobs.clear()
        self._long.clear()
        self._weigh()

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
                waiting = sum(job.waiting for job in self._jobs)
                if left > 0 and len(self._jobs) < self._expected and waiting < self._room:
                    self._more.clear()
                    with suppress(asyncio.TimeoutError):
                        await asyncio.wait_for(self._more.wait(), left)
                elif batch := self._form_batch():
                    return batch

    async def take_long(self) -> Batch:
        """Return the next turn of the long request that waits longest, when there is one."""
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
        """Form a batch of the requests that wait longest; the rest of one that does not fit goes
        last.
        """
        batch, room = Batch(), self._room
        computed = {job for other in self._underway for job, _ in other.rows}
        self._expected = len({*self._jobs, *computed})
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
