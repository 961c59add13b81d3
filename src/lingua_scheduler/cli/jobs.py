"""`lingua jobs`: what is being translated on a running scheduler right now, and where.

`show` tells what became of one job, utterance or trace, attempt by attempt, also after its end.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from lingua_scheduler.cli.ask import PAGE, add_limit, add_options, count_text, scheduler_of, short
from lingua_scheduler.cli.table import render_table
from lingua_scheduler.edge.answers import HistoryAnswer, JobAnswer, JobPage

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from lingua_scheduler.cli.ask import Scheduler
    from lingua_scheduler.edge.answers import AttemptAnswer, JobStory
    from lingua_scheduler.messages.shared import Timeline

HEADERS = ("job", "session", "utterance", "into", "state", "attempt", "node", "age", "queued")


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `lingua jobs`."""
    parser = subparsers.add_parser("jobs", help="show the jobs under way, or what became of one")
    add_options(parser)
    add_limit(parser)
    parser.set_defaults(run=run_jobs)
    acts = parser.add_subparsers(title="acts", metavar="ACT")
    act = acts.add_parser("show", help="what became of a job, also after its end")
    act.add_argument("id", metavar="ID", help="the job, SESSION:INDEX of an utterance, or a trace")
    add_options(act, is_nested=True)
    act.set_defaults(run=run_show)


def run_jobs(args: argparse.Namespace) -> int:
    """Print the jobs."""
    page = fetch(scheduler_of(args), args.limit)
    print(msgspec.json.encode(page).decode() if args.json else shown(page))
    return 0


def run_show(args: argparse.Namespace) -> int:
    """Print what became of the jobs that an id stands for; 1 if there are none."""
    found = scheduler_of(args).get("/api/v1/history", HistoryAnswer, of=args.id)
    if args.json:
        print(msgspec.json.encode(found).decode())
    else:
        print("\n\n".join(map(story, found.jobs)) if found.jobs else unknown(args.id, found))
    return 0 if found.jobs else 1


def unknown(wanted: str, found: HistoryAnswer) -> str:
    """Return what a person reads of a job that is not found, and what may help."""
    return (
        f"nothing is known of {wanted[:80]} on {found.instance}\n"
        "a job is kept for jobs.binding_ms (90 s) after its outcome; an utterance or a trace is "
        "found where its session was:\nask that instance (--url), or ask for the job's own id, "
        "which every outcome and every log line has"
    )


def story(job: JobStory) -> str:
    """Return what became of a job, as a person reads it."""
    lines = [
        f"{job.id}: utterance {job.utterance_index} of {job.session} into {job.lane}",
        f"  trace    {job.trace}",
        f"  state    {state_text(job)}",
        f"  came     {moment(job.created_at_ms)}",
        *(attempt_text(one) for one in job.attempts),
    ]
    if job.deadline_at_ms:
        lines.append(f"  due      {moment(job.deadline_at_ms)}")
    if job.ended_at_ms:
        lines.append(f"  ended    {moment(job.ended_at_ms)}, after {seconds_text(job.age_ms)}")
    if job.timeline is not None:
        lines.append(f"  time     {timeline_text(job.timeline)}")
    return "\n".join(lines)


def state_text(job: JobStory) -> str:
    """Return how a job stands: how it ended and why, or who has it."""
    if job.outcome:
        return f"{job.outcome} ({job.reason})" if job.reason else job.outcome
    return f"{job.state} on {job.node}" if job.node else f"{job.state}: waits for a node"


def attempt_text(one: AttemptAnswer) -> str:
    """Return one attempt: who, since when, how long, why no longer."""
    lasted = f", {seconds_text(one.lasted_ms)}" if one.lasted_ms is not None else ""
    ended = f": {one.reason}" if one.reason else ""
    return f"  try {one.attempt:<4} {moment(one.placed_at_ms)} on {one.node}{lasted}{ended}"


def timeline_text(parts: Timeline) -> str:
    """Return where the time went: the parts that took any."""
    named = msgspec.structs.asdict(parts)
    total = named.pop("total_ms")
    spent = [f"{name.removesuffix('_ms')} {took}" for name, took in named.items() if took]
    return f"{total} ms since the end of speech" + (f": {', '.join(spent)}" if spent else "")


def moment(at_ms: int) -> str:
    """Return a time as log lines have it: UTC, to the millisecond."""
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


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
