"""Checks of a cell's queue: `pending`, one `queue:` per demand and `waiting` must agree.

A job that is being offered to other cells is in none of them; that is correct.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lingua_scheduler.maintenance.check_jobs import read_jobs
from lingua_scheduler.maintenance.finding import Finding

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lingua_scheduler.maintenance.check_jobs import JobView
    from lingua_scheduler.maintenance.context import ScanContext
    from lingua_scheduler.state.keys import Cell


async def check_pending(context: ScanContext, cell: Cell, _: Sequence[str]) -> list[Finding]:
    """Find jobs that are listed as waiting but do not wait, or are in no queue."""
    found = []
    async for page in context.reader.scores(cell.slot, cell.key("pending")):
        jobs = [job for job, _ in page]
        views = await read_jobs(context, cell, jobs)
        demands = [view.spec.demand if view and view.spec else "" for view in views]
        queued = await context.reader.ask(
            cell.slot,
            [
                ("ZSCORE", cell.key("queue", demand or "-"), job)
                for job, demand in zip(jobs, demands, strict=True)
            ],
        )
        for job, view, demand, score in zip(jobs, views, demands, queued, strict=True):
            why = _not_waiting(view) or ("it is in no queue" if score is None else "")
            if why:
                found.append(Finding("pending_broken", cell.name, job, why, args=(demand, job)))
    return found


async def check_queues(context: ScanContext, cell: Cell, demands: Sequence[str]) -> list[Finding]:
    """Find queued jobs that do not wait or are not counted, and queues that are not listed."""
    found = []
    for demand in demands:
        count = 0
        async for page in context.reader.scores(cell.slot, cell.key("queue", demand)):
            count += len(page)
            jobs = [job for job, _ in page]
            views = await read_jobs(context, cell, jobs)
            listed = await context.reader.ask(
                cell.slot, [("ZSCORE", cell.key("pending"), job) for job in jobs]
            )
            for job, view, score in zip(jobs, views, listed, strict=True):
                why = _not_waiting(view) or _misplaced(view, demand, is_listed=score is not None)
                if why:
                    found.append(Finding("queue_broken", cell.name, job, why, args=(demand, job)))
        listed = await context.reader.ask(cell.slot, [("ZSCORE", cell.key("waiting"), demand)])
        if count and listed[0] is None:
            about = f"{count} in the queue, which is not listed"
            found.append(Finding("waiting_broken", cell.name, demand, about, args=(demand, "")))
    return found


async def check_waiting(context: ScanContext, cell: Cell, _: Sequence[str]) -> list[Finding]:
    """Find listed demands without a queue."""
    found = []
    async for page in context.reader.scores(cell.slot, cell.key("waiting")):
        demands = [demand for demand, _ in page]
        existing = await context.reader.ask(
            cell.slot, [("EXISTS", cell.key("queue", demand)) for demand in demands]
        )
        found += [
            Finding("waiting_broken", cell.name, demand, "no such queue", args=(demand, ""))
            for demand, exists in zip(demands, existing, strict=True)
            if not exists
        ]
    return found


def _not_waiting(view: JobView | None) -> str:
    if view is None:
        return "the job does not exist"
    if view.is_over:
        return "the job has ended"
    return "" if view.waits else f"the job is on {view.node}"


def _misplaced(view: JobView | None, demand: str, *, is_listed: bool) -> str:
    if view and view.spec and view.spec.demand != demand:
        return "it is in the queue of another demand"
    return "" if is_listed else "it is queued and not counted as waiting"
