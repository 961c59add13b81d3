"""`lingua jobs`: what is being translated on a running scheduler right now, and where."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from lingua_scheduler.cli.ask import PAGE, add_limit, add_options, count_text, scheduler_of, short
from lingua_scheduler.cli.table import render_table
from lingua_scheduler.edge.answers import JobAnswer, JobPage

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from lingua_scheduler.cli.ask import Scheduler

HEADERS = ("job", "session", "utterance", "into", "state", "attempt", "node", "age", "queued")


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `lingua jobs`."""
    parser = subparsers.add_parser("jobs", help="show the jobs under way on a running scheduler")
    add_options(parser)
    add_limit(parser)
    parser.set_defaults(run=run_jobs)


def run_jobs(args: argparse.Namespace) -> int:
    """Print the jobs."""
    page = fetch(scheduler_of(args), args.limit)
    print(msgspec.json.encode(page).decode() if args.json else shown(page))
    return 0


def fetch(scheduler: Scheduler, limit: int) -> JobPage:
    """Read so many jobs, page by page."""
    found: list[JobAnswer] = []
    after: str | None = ""
    page = None
    while after is not None and len(found) < limit:
        size = min(PAGE, limit - len(found))
        page = scheduler.get("/api/v1/jobs", JobPage, limit=size, after=after)
        found += page.jobs
        after = page.next
    assert page is not None, "the limit is at least 1"
    return msgspec.structs.replace(page, jobs=tuple(found))


def shown(page: JobPage) -> str:
    """Return what a person reads."""
    if not page.jobs:
        return (
            f"no jobs are under way on {page.instance}\n"
            "a job lasts from the end of an utterance until its result is delivered; "
            "`lingua sessions` shows who could speak"
        )
    more = " (there are more: --limit)" if page.next else ""
    head = f"{count_text(len(page.jobs), 'job')} under way on {page.instance}{more}"
    return f"{head}\n\n{table(page.jobs)}"


def table(jobs: Sequence[JobAnswer]) -> str:
    """Return one row per job, the oldest first: it is the one that may be stuck."""
    oldest_first = sorted(jobs, key=lambda job: -job.age_ms)
    return render_table(HEADERS, [row(job) for job in oldest_first])


def row(job: JobAnswer) -> tuple[str | int | None, ...]:
    """Return the cells of one job."""
    return (
        short(job.id),
        short(job.session),
        job.utterance_index,
        job.lane,
        job.state,
        job.attempt,
        job.node or "-",
        seconds_text(job.age_ms),
        seconds_text(job.timeline.queue_ms),
    )


def seconds_text(duration_ms: int) -> str:
    """Return a short time: jobs live for seconds, and tenths of them matter."""
    return f"{duration_ms / 1000:.1f}s"
