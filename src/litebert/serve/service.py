"""The models that are served: which one answers a request, and waiting for its answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from litebert.base.errors import nearest
from litebert.serve import logs
from litebert.serve.limits import Limits, Refusal, invalid, shorten_name
from litebert.serve.logs import Metrics
from litebert.serve.pool import Pool
from litebert.serve.wire import Group, Row

if TYPE_CHECKING:
    from starlette.requests import Request

METHODS = ("GET", "POST", "HEAD", "OPTIONS", "PUT", "DELETE", "PATCH")
"""Methods that the log names; others are clients' own words."""
ABOUT = "litebert"
"""The key in a request's `scope` of the facts for the log."""


class Service:
    """Models by name, the first of them for requests that name none."""

    def __init__(self, pools: Mapping[str, Pool], limits: Limits, metrics: Metrics) -> None:
        self.pools, self.limits, self.metrics = pools, limits, metrics
        self.draining = False
        """True if it is about to stop, and finishes the requests that it took."""

    def note(self, method: str, route: str, about: Mapping[str, Any]) -> None:
        """Log and count a request that has been answered, refused or left. `about` has `start` (by
        `time.monotonic`), `status`, and further facts.
        """
        metrics, seconds = self.metrics, time.monotonic() - about["start"]
        status, model = about.get("status", 499), about.get("model", "")
        metrics.requests.add(route=route, model=model, status=str(status))
        metrics.seconds.add(seconds, route=route)
        if "queue_ms" in about:
            metrics.queued.add(about["queue_ms"] / 1000, model=model)
        if about.get("cancelled"):
            metrics.cancelled.add(model=model)
        if status == 200 and "tokens" in about:
            metrics.rows.add(about["rows"], model=model)
            metrics.tokens.add(about["tokens"], model=model)
        names = ("model", "rows", "tokens", "queue_ms")
        fields: dict[str, Any] = {
            "method": method if method in METHODS else "other",
            "route": route,
        }
        fields |= {"status": int(status), "ms": round(1000 * seconds, 2)}
        fields |= {name: about[name] for name in names if name in about}
        logs.event("request", to=logs.REQUESTS, **fields)

    def refuse_name(self, name: str) -> Refusal:
        name = shorten_name(name)
        message = f"there is no model {name!r}; {nearest(name, self.pools)}"
        return Refusal(404, "not_found", message, "model")

    def refuse_early(self, about: dict[str, Any]) -> None:
        """Refuse a request to a busy model before its body is parsed, which takes longer."""
        name = about.get("named") or (next(iter(self.pools)) if len(self.pools) == 1 else "")
        if name in self.pools and (refusal := self.pools[name].queue.refusal()) is not None:
            about["model"] = name
            raise refusal

    def choose(self, request: Request, name: str | None, route: str) -> Pool:
        """Choose the model that a request names, or the first with the route."""
        about = request.scope[ABOUT]
        name = about.get("named") or name
        if name is None:
            able = (name for name, pool in self.pools.items() if route in pool.info["routes"])
            if (name := next(able, None)) is None:
                message = f"no model here has the route /{route}; GET /info lists what they have"
                raise invalid(message)
        if name not in self.pools:
            raise self.refuse_name(name)
        about["model"] = name
        if route not in self.pools[name].info["routes"]:
            has = ", ".join(f"/{path}" for path in self.pools[name].info["routes"])
            message = f"the model {name!r} does not have /{route}; it has {has}"
            raise invalid(message, "model")
        return self.pools[name]

    async def ask(
        self,
        request: Request,
        pool: Pool,
        operation: str,
        inputs: Sequence[Any],
        field: str,
        **options: Any,
    ) -> list[Row]:
        """Wait for the answer to each input; `field` is its name in the request, {} the index."""
        name = field.replace("[{}]", "")
        if operation in ("score", "cosine"):  # pairs of one query with each text
            self.limits.check(name, [text for _, text in inputs], inputs[0][0])
        else:
            self.limits.check(name, inputs)
        given = tuple((name, value) for name, value in options.items() if value is not None)
        job = pool.queue.add(Group(operation, given, list(inputs)), field)
        about = request.scope[ABOUT]
        about["rows"] = len(inputs)
        left = Refusal(499, "cancelled", "the client has gone")

        async def wait_for_disconnect() -> None:
            while (await request.receive())["type"] != "http.disconnect":
                pass

        gone = asyncio.ensure_future(wait_for_disconnect())
        gone.add_done_callback(lambda _: _end(job.done, left))
        most, again = self.limits.timeout_seconds, "send less text, or come again later"
        late = Refusal(504, "timeout", f"there was no answer in {most:g} seconds; {again}", retry=1)
        timer = asyncio.get_running_loop().call_later(most, _end, job.done, late)
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
    if not answer.done():
        answer.set_exception(refusal)
