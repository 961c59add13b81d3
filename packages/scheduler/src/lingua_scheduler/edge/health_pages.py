"""The HTTP pages about the instance itself: probes, health, metrics and counts."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiohttp import web

from lingua_scheduler.edge import answers, views
from lingua_scheduler.edge.api_call import json_response
from lingua_scheduler.edge.routes import API, JSON, ApiRoute
from lingua_scheduler.edge.sibling_pages import Counts, counts, decoded, one_statistic
from lingua_scheduler.errors import StoreRejected, StoreUnavailable
from lingua_scheduler.metrics import CONTENT_TYPE
from lingua_wire import __version__

if TYPE_CHECKING:
    from lingua_scheduler.edge.api_call import ApiCall
    from lingua_scheduler.edge.sibling_pages import Siblings
    from lingua_scheduler.runtime.instance import Instance
    from lingua_scheduler.state.keys import Cell

PROBE_S = 0.5
# How long a probe's result is reused, so that a flood of checks is one call to the store.
PROBE_FRESH_MS = 100
# How many cells are probed. One that responds is enough: the instance can serve that cell.
PROBED_CELLS = 4
PLAIN = "text/plain; charset=utf-8"


class HealthPages:
    """The pages about one instance, or about the service that it is a worker of."""

    def __init__(self, instance: Instance, siblings: Siblings) -> None:
        self._instance = instance
        self._siblings = siblings
        self._probe = StoreProbe(instance)
        self._started_ms = instance.clock.now_ms()
        self.routes = (
            ApiRoute(
                path="/livez",
                summary="Whether the process runs.",
                handler=self.alive,
                access="open",
                answer=answers.LiveAnswer,
            ),
            ApiRoute(
                path="/readyz",
                summary="Whether this instance accepts new sessions.",
                handler=self.ready,
                access="open",
                answer=answers.ReadyAnswer,
            ),
            ApiRoute(
                path="/health",
                summary="The state of the instance: `OK`, or JSON if the caller accepts that.",
                handler=self.health,
                access="near",
                answer=answers.HealthAnswer,
                content_type=PLAIN,
            ),
            ApiRoute(
                path="/metrics",
                summary="Metrics for Prometheus.",
                handler=self.metrics,
                access="near",
                content_type=CONTENT_TYPE,
            ),
            ApiRoute(
                path=f"{API}/stats",
                summary="Counts of this instance.",
                handler=self.stats,
                answer=answers.StatsAnswer,
            ),
        )

    async def alive(self, _: ApiCall) -> answers.LiveAnswer:
        """Respond while the event loop runs."""
        return answers.LiveAnswer(alive=True)

    async def ready(self, _: ApiCall) -> web.Response:
        """Tell whether this instance accepts new sessions and nodes."""
        reason = ""
        if self._instance.lifecycle.is_draining:
            reason = "draining"
        elif not await self._probe.is_available():
            reason = "the store does not answer"
        answer = answers.ReadyAnswer(ready=not reason, reason=reason)
        return json_response(answer, 503 if reason else 200)

    async def health(self, call: ApiCall) -> web.Response:
        """Return `OK`, or a summary if the caller accepts JSON."""
        if JSON not in call.request.headers.get("Accept", ""):
            return web.Response(body=b"OK", headers={"Content-Type": PLAIN})
        is_up = await self._probe.is_available()
        own = counts(self._instance, self._started_ms)
        workers = [own, *decoded(await self._siblings.ask("counts"), Counts)]
        return json_response(
            answers.HealthAnswer(
                version=__version__,
                instance=self._siblings.service,
                uptime_ms=max(one.uptime_ms for one in workers),
                sessions=sum(one.sessions for one in workers),
                nodes=sum(one.nodes for one in workers),
                jobs=sum(one.jobs for one in workers),
                store="up" if is_up else "down",
                draining=all(one.draining for one in workers),
            )
        )

    async def metrics(self, _: ApiCall) -> web.Response:
        """Return the metrics in the format of Prometheus."""
        text = await self._siblings.metrics(self._instance.metrics.render())
        return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE})

    async def stats(self, call: ApiCall) -> answers.StatsAnswer:
        """Return the counts."""
        others = await self._siblings.ask("stats", seen_by=call.seen_by)
        own = views.stats_answer(self._instance, call.seen_by)
        return one_statistic([own, *decoded(others, answers.StatsAnswer)], self._siblings.service)


class StoreProbe:
    """Asks the store whether it responds, at most once in a short interval."""

    def __init__(self, instance: Instance) -> None:
        self._store = instance.store
        self._clock = instance.clock
        cells = instance.cells.all
        self._cells = cells[:: max(1, len(cells) // PROBED_CELLS)][:PROBED_CELLS]
        # Held during a probe; concurrent callers then use its result.
        self._lock = asyncio.Lock()
        self._was_available = False
        self._asked_at_ms = float("-inf")

    async def is_available(self) -> bool:
        """Tell whether the store responded just now."""
        async with self._lock:
            if self._clock.now_ms() - self._asked_at_ms > PROBE_FRESH_MS:
                replies = await asyncio.gather(*(self._ask(cell) for cell in self._cells))
                self._was_available = any(replies)
                self._asked_at_ms = self._clock.now_ms()
            return self._was_available

    async def _ask(self, cell: Cell) -> bool:
        try:
            async with asyncio.timeout(PROBE_S):
                await self._store.cells.nodes(cell, "", 1)
        except (StoreUnavailable, StoreRejected, TimeoutError):
            return False
        return True
