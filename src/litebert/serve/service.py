"""The models that are served: which one answers a request, and waiting for its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import Request

from litebert.errors import nearest
from litebert.serve.limits import Limits
from litebert.serve.metrics import Metrics
from litebert.serve.pool import Pool
from litebert.serve.refusals import Refusal
from litebert.serve.wire import Group, Row

ABOUT = "litebert"
"""Where a request's `scope` holds what the log says about it."""


class Service:
    """Models by name, the first of them for requests that name none."""

    def __init__(self, pools: Mapping[str, Pool], limits: Limits, metrics: Metrics) -> None:
        self.pools, self.limits, self.metrics = pools, limits, metrics
        self.draining = False
        """Whether it is about to stop, and finishes what it took."""

    def refusal(self) -> Refusal | None:
        """Why no model would take a request now, if none would: said before its body is parsed, which takes longer."""
        refusals = [pool.queue.refusal() for pool in self.pools.values()]
        return refusals[0] if all(refusals) else None

    def choose(self, request: Request, name: str | None, route: str) -> Pool:
        """The model that a request names in its path or its body, or the first that has the route.

        Raises:
            Refusal: there is none, or it cannot do that.
        """
        name = request.scope[ABOUT].get("named") or name
        if name is None:
            found = [pool for pool in self.pools.values() if route in pool.info["routes"]]
            if not found:
                raise Refusal(
                    422, "validation", f"no model here has the route /{route}; GET /info lists what they have"
                )
            return found[0]
        if name not in self.pools:
            raise Refusal(404, "not_found", f"there is no model {name!r}; {nearest(name, self.pools)}", "model")
        if route not in self.pools[name].info["routes"]:
            has = ", ".join(f"/{one}" for one in self.pools[name].info["routes"])
            raise Refusal(422, "validation", f"the model {name!r} does not have /{route}; it has {has}", "model")
        return self.pools[name]

    async def ask(
        self, request: Request, pool: Pool, operation: str, inputs: Sequence[Any], field: str, **options: Any
    ) -> list[Row]:
        """The answer to each input.

        Args:
            field: what the request calls an input, with {} for its place.

        Raises:
            Refusal: the request is beyond a limit, the queue is full, or there is no answer in time.
        """
        name = field.replace("[{}]", "")
        if operation == "score":  # pairs of one query with each text
            self.limits.check(name, [text for _, text in inputs], inputs[0][0])
        else:
            self.limits.check(name, inputs)
        group = Group(
            operation, tuple((name, value) for name, value in options.items() if value is not None), list(inputs)
        )
        job = pool.queue.put(group, field)
        about = request.scope[ABOUT]
        about.update(model=pool.name, rows=len(inputs))
        gone = asyncio.ensure_future(_disconnected(request))
        gone.add_done_callback(lambda _: _end(job.done, Refusal(499, "cancelled", "the client has gone")))
        late = Refusal(504, "timeout", f"there was no answer in {self.limits.timeout_seconds:g} seconds; send less "
                                       "text, or come again later", retry=1)  # fmt: skip
        timer = asyncio.get_running_loop().call_later(self.limits.timeout_seconds, _end, job.done, late)
        try:
            rows = await job.done
        except Refusal as refusal:
            about.update({"cancelled": True} if refusal.status == 499 else {})
            raise
        finally:
            timer.cancel()
            gone.cancel()
            pool.queue.leave(job)
            if job.taken is not None:
                about["queue_ms"] = round(1000 * (job.taken - job.arrived), 2)
        about["tokens"] = sum(row.tokens for row in rows)
        return rows


def _end(answer: asyncio.Future[Any], refusal: Refusal) -> None:
    """Let a request end without its answer, if it waits."""
    if not answer.done():
        answer.set_exception(refusal)


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
