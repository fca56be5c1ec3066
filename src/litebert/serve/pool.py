"""The worker processes of a model: they take batches from its queue, and one that dies is
replaced."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any

from litebert.base.errors import ModelError
from litebert.serve import logs, wire
from litebert.serve.batching import Batch, Queue
from litebert.serve.limits import STOPPED, Refusal

STARTING = 600.0
"""Seconds in which a model must be opened."""
STOPPING = 5.0
"""Seconds in which a worker without work must end."""
PASSING = 0.001
"""Seconds for a batch to reach a worker and its answer to come back."""
PAUSES = (0.0, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Seconds before a worker that has died again without answering is replaced."""
WATCHING = 0.05
"""Seconds between two looks at a worker that is being replaced."""
IRREPLACEABLE = "the worker has ended and cannot be replaced yet; the log says why"
RETRY = 10
"""Seconds after which to come again where a worker cannot be replaced."""


class Worker:
    """A process with an open model."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = dict(settings)
        self._process: asyncio.subprocess.Process | None = None
        self._pending: dict[int, asyncio.Future[Any]] = {}
        self._numbers, self._writing = itertools.count(), asyncio.Lock()
        self._reader: asyncio.Task[None] | None = None
        self.ended: asyncio.Future[int] | None = None
        """Done when the process has ended."""
        self.ready = False
        """True if its model has been opened."""

    @property
    def pid(self) -> int | None:
        """The number of the process; None while no process lives."""
        process = self._process
        return process.pid if process is not None and process.returncode is None else None

    async def start(self) -> tuple[dict[str, Any], list[tuple[int, float]], float, float]:
        """Open the model; return its info, and what `Queue.set_pace` takes."""
        self.ready = False
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": str(self._settings["threads"]),
            "TOKENIZERS_PARALLELISM": "false",
        }
        code = f"import sys; sys.path[:] = {sys.path!r}; from litebert.serve.worker import main"
        code += "; main()"
        pipe = asyncio.subprocess.PIPE
        try:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", code, stdin=pipe, stdout=pipe, env=environment
            )
        except OSError as error:  # no more processes or files, say
            raise ModelError(
                f"no worker process can be started for {self._settings['path']}: {error}"
            ) from None
        self.ended = asyncio.create_task(self._process.wait())
        try:
            await self._send(self._settings)
            reply = await asyncio.wait_for(self._receive(), STARTING)
        except (OSError, RuntimeError, asyncio.IncompleteReadError, asyncio.TimeoutError):
            await self.kill()  # uvloop raises RuntimeError for a pipe that is closed
            raise ModelError(
                f"the worker for {self._settings['path']} did not start; its error stands above"
            ) from None
        if reply[0] == "failed":
            await self.stop()
            raise ModelError(reply[1])
        self._pending = {}
        self._reader, self.ready = asyncio.create_task(self._read()), True
        return reply[1], reply[2], reply[3], reply[4]

    async def compute(
        self, groups: Sequence[wire.Group], step: float = 0.0
    ) -> tuple[list[list[wire.Row]], float]:
        """Compute the rows of each group, and their seconds; short batches pass after `step`
        seconds.
        """
        if self._reader is None or self._reader.done():  # nobody would give this batch its answer
            raise ConnectionError("the worker has ended")
        number, pending = next(self._numbers), self._pending
        reply = pending[number] = asyncio.get_running_loop().create_future()
        try:
            await self._send((number, step, [tuple(group) for group in groups]))
            answers, seconds = await reply
        finally:
            pending.pop(number, None)
        return [[wire.Row(*row) for row in rows] for rows in answers], seconds

    async def _send(self, value: Any) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        async with self._writing:
            self._process.stdin.write(wire.pack(value))
            await self._process.stdin.drain()

    async def _receive(self) -> Any:
        assert self._process is not None
        assert self._process.stdout is not None
        size = int.from_bytes(await self._process.stdout.readexactly(wire.LENGTH), "big")
        return wire.unpack(await self._process.stdout.readexactly(size))

    async def _read(self) -> None:
        """Give each batch its answer, until the process ends."""
        pending = self._pending
        try:
            while True:
                number, answers, seconds = await self._receive()
                reply = pending.get(number)
                if reply is not None and not reply.done():
                    reply.set_result((answers, seconds))
        except Exception:  # the process has ended, or what it wrote is no answer
            for reply in pending.values():
                if not reply.done():
                    reply.set_exception(ConnectionError("the worker has ended"))

    async def stop(self) -> None:
        """Let the process end."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._process.wait(), STOPPING)
        await self.kill()

    async def kill(self) -> None:
        """End the process now, if it lives."""
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()


class Pool:
    """A model with its queue and its workers."""

    def __init__(
        self, name: str, settings: Mapping[str, Any], queue: Queue, workers: int, timeout: float
    ) -> None:
        self.name, self.queue = name, queue
        self.info: dict[str, Any] = {}
        """The abilities of the model, once it is open."""
        self.restarts = 0
        self._settings, self._timeout = settings, timeout
        self._workers = [Worker(settings) for _ in range(workers)]
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def pids(self) -> list[int]:
        """The processes of the workers that live."""
        return [worker.pid for worker in self._workers if worker.pid is not None]

    @property
    def healthy(self) -> bool:
        """True if a worker lives and its model is open."""
        return any(worker.ready and worker.pid is not None for worker in self._workers)

    async def start(self) -> None:
        """Open the model in every worker."""
        for worker in self._workers:
            self.info, trials, characters, step = await worker.start()
            self.queue.set_pace(trials, characters, len(self._workers), step)
        self._tasks = [asyncio.create_task(self._run(worker)) for worker in self._workers]
        self._tasks += [asyncio.create_task(self._run_long(worker)) for worker in self._workers]

    async def stop(self) -> None:
        """End the workers, and refuse what still waits."""
        self.queue.close(STOPPED)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(worker.stop() for worker in self._workers))

    async def _run(self, worker: Worker) -> None:
        """Keep a worker alive and busy; a full second batch goes to it during the first."""
        deaths, underway = 0, set[asyncio.Task[bool]]()
        held: Batch | None = None  # taken, and not sent because the worker died
        try:
            while True:
                if worker.pid is None:
                    if underway:
                        await asyncio.wait(underway)
                    await asyncio.sleep(PAUSES[min(deaths, len(PAUSES) - 1)])
                    deaths += 1
                    if not await self._replace_worker(worker):
                        refusal = Refusal(503, "unavailable", IRREPLACEABLE, retry=RETRY)
                        if held is not None:
                            held.fail(refusal)
                            self.queue.remove(held)
                            held = None
                        if not self.healthy:
                            self.queue.close(refusal)
                        continue
                    self.queue.closed = None
                if underway:
                    if len(underway) == 1:
                        await self.queue.full(underway)
                    else:
                        await asyncio.wait(underway, return_when="FIRST_COMPLETED")
                    done = {task for task in underway if task.done()}
                    underway -= done
                    deaths = 0 if any(task.result() for task in done) else deaths
                    if worker.pid is None:
                        continue
                held = held or await self._take_batch(worker, self.queue.take)
                if worker.pid is None:
                    if not underway:
                        logs.event("a worker died", logging.ERROR, model=self.name, rows=0)
                elif held is not None:
                    underway.add(asyncio.create_task(self._answer(worker, held)))
                    held = None
        finally:
            for task in underway:
                task.cancel()

    async def _run_long(self, worker: Worker) -> None:
        """Keep a worker busy with long requests, a turn at a time, which short batches pass."""
        while True:
            if worker.pid is None or not worker.ready:
                await asyncio.sleep(WATCHING)
            elif (batch := await self._take_batch(worker, self.queue.take_long)) is not None:
                await self._answer(worker, batch, self.queue.step)

    async def _take_batch(
        self, worker: Worker, take: Callable[[], Coroutine[Any, Any, Batch]]
    ) -> Batch | None:
        assert worker.ended is not None
        taking = asyncio.create_task(take())
        try:
            waiting: set[asyncio.Future[Any]] = {taking, worker.ended}
            await asyncio.wait(waiting, return_when="FIRST_COMPLETED")
            return taking.result() if taking.done() else None
        finally:
            taking.cancel()

    async def _replace_worker(self, worker: Worker) -> bool:
        """Start a process in place of an ended one, and return True if it opened the model."""
        try:
            info, *_ = await worker.start()
            # The texts may be deleted at any time.
            if {**info, "examples": []} != {**self.info, "examples": []}:
                raise ModelError(
                    f"{self._settings['path']} holds another model than when the service started; "
                    "start the service again to serve it"
                )
        except Exception as error:  # it is tried again, whatever it was
            await worker.kill()
            about = logs.failure(error)
            if isinstance(error, ModelError):
                about["reason"] = str(error)  # opening a model reads no client's text
            logs.event("a worker cannot be replaced", logging.ERROR, model=self.name, **about)
            return False
        self.restarts += 1
        logs.event("a worker was replaced", logging.WARNING, model=self.name, pid=worker.pid)
        return True

    async def _answer(self, worker: Worker, batch: Batch, step: float = 0.0) -> bool:
        pid = worker.pid
        try:
            answers, seconds = await asyncio.wait_for(
                worker.compute(batch.groups, step), self._timeout
            )
        except Exception as error:  # the process has died, or what it wrote is no answer
            slow = isinstance(error, asyncio.TimeoutError)
            if worker.pid == pid:  # and not its successor
                await worker.kill()
            name = "a worker took too long and was ended" if slow else "a worker died"
            logs.event(name, logging.ERROR, model=self.name, rows=len(batch.rows))
            reason = "the worker ended while it computed"
            reason = "the computation took too long" if slow else reason
            batch.fail(Refusal(503, "unavailable", f"{reason}; send the request again", retry=1))
            return False
        except asyncio.CancelledError:
            batch.fail(STOPPED)
            raise
        finally:
            self.queue.remove(batch)
        self.queue.record_time(batch, seconds + PASSING, long=step > 0)
        batch.answer(answers)
        return True
