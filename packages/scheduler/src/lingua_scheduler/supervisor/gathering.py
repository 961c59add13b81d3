"""Answers of all workers to a question of one, and the metrics of the whole service.

The last metrics of a worker that ended are kept: a counter of the service must not decrease, or
Prometheus would take it for a restart of the service.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING

from lingua_scheduler.metrics import MetricTotals, ProcessMetrics, Registry, ServiceMetrics
from lingua_scheduler.supervisor.messages import PageAnswered, PageAsked, PagesAnswered

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lingua_scheduler.supervisor.service_worker import ServiceWorker

ANSWER_S = 0.5
METRICS = "metrics"


class Gathering:
    """Questions of workers that their siblings answer."""

    def __init__(self) -> None:
        self._registry = Registry()
        # Of the supervisor; the workers count themselves.
        self.service = ServiceMetrics(self._registry)
        ProcessMetrics(self._registry)
        self._past = MetricTotals()
        self._ids = itertools.count()
        self._waiting: dict[int, asyncio.Future[bytes]] = {}

    def answered(self, answer: PageAnswered) -> None:
        """Use the answer of a worker."""
        future = self._waiting.get(answer.id)
        if future is not None and not future.done():
            future.set_result(answer.body)

    def ended(self, worker: ServiceWorker) -> None:
        """Keep the counters of a worker that has ended."""
        self._past.add(worker.metrics, lasting_only=True)

    async def answer(
        self, asking: ServiceWorker, question: PageAsked, workers: Iterable[ServiceWorker]
    ) -> None:
        """Ask all workers, for metrics also the asking one, and send it what they answer."""
        if question.page == METRICS:
            bodies: tuple[bytes, ...] = (await self._metrics(list(workers)),)
        else:
            siblings = [worker for worker in workers if worker is not asking]
            found = await asyncio.gather(*(self._ask(one, question) for one in siblings))
            bodies = tuple(body for body in found if body is not None)
        asking.send(PagesAnswered(id=question.id, bodies=bodies))

    async def _metrics(self, workers: list[ServiceWorker]) -> bytes:
        question = PageAsked(id=0, page=METRICS, about={})
        found = await asyncio.gather(*(self._ask(worker, question) for worker in workers))
        totals = MetricTotals()
        for worker, text in zip(workers, found, strict=True):
            worker.note_metrics(text)
            if not worker.has_ended():  # then it is in the past already
                totals.add(worker.metrics)
        totals.add(self._past.render())
        totals.add(self._registry.render())
        return totals.render()

    async def _ask(self, worker: ServiceWorker, question: PageAsked) -> bytes | None:
        if worker.is_quiet:
            return None
        number = next(self._ids)
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        worker.send(PageAsked(id=number, page=question.page, about=question.about))
        try:
            async with asyncio.timeout(ANSWER_S):
                return await future
        except TimeoutError:
            return None
        finally:
            del self._waiting[number]
