"""`lingua jobs`: the jobs under way on a running scheduler, and their nodes.

`show` prints the history of one job, utterance or trace, attempt by attempt, also after its end.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from lingua_cli.table import render_table
from lingua_scheduler.commands.scheduler_client import (
    add_limit,
    add_options,
    count_text,
    scheduler_of,
    short,
)
from lingua_scheduler.edge.answers import HistoryAnswer, JobAnswer, JobPage

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from lingua_scheduler.edge.answers import AttemptAnswer, JobStory
    from lingua_wire.shared import Timeline

HEADERS = ("job", "session", "utterance", "into", "state", "attempt", "node", "age", "queued")


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `lingua jobs`."""
    parser = subparsers.add_parser("jobs", help="show the jobs under way, or the history of one")
    add_options(parser)
    add_limit(parser)
    parser.set_defaults(run=run_jobs)
    actions = parser.add_subparsers(title="actions", metavar="ACTION")
    show = actions.add_parser("show", help="show the history of a job, also after its end")
    show.add_argument("id", metavar="ID", help="job id, SESSION:INDEX of an utterance, or trace id")
    add_options(show, is_nested=True)
    show.set_defaults(run=run_show)


def run_jobs(args: argparse.Namespace) -> int:
    """Print the jobs."""
    page = scheduler_of(args).get_list("/api/v1/jobs", JobPage, "jobs", args.limit)
    print(msgspec.json.encode(page).decode() if args.json else shown(page))
    return 0


def run_show(args: argparse.Namespace) -> int:
    """Print the history of the jobs that an id stands for; exit code 1 if there are none."""
    found = scheduler_of(args).get("/api/v1/history", HistoryAnswer, of=args.id)
    if args.json:
        print(msgspec.json.encode(found).decode())
    else:
        print("\n\n".join(map(history, found.jobs)) if found.jobs else unknown(args.id, found))
    return 0 if found.jobs else 1


def unknown(wanted: str, found: HistoryAnswer) -> str:
    """Return the text for a job that is not found, with hints."""
    return (
        f"nothing is known of {wanted[:80]} on {found.instance}\n"
        "a job is kept for jobs.binding_ms (90 s) after its outcome; an utterance or a trace is "
        "found where its session was:\nask that instance (--url), or ask for the job's own id, "
        "which every outcome and every log line has"
    )


def history(job: JobStory) -> str:
    """Return the history of a job as text."""
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
    """Return the state of a job: its outcome and reason, or its node."""
    if job.outcome:
        return f"{job.outcome} ({job.reason})" if job.reason else job.outcome
    return f"{job.state} on {job.node}" if job.node else f"{job.state}: waits for a node"


def attempt_text(one: AttemptAnswer) -> str:
    """Return one attempt: its start, node, duration, and the reason of its end."""
    lasted = f", {seconds_text(one.lasted_ms)}" if one.lasted_ms is not None else ""
    ended = f": {one.reason}" if one.reason else ""
    return f"  try {one.attempt:<4} {moment(one.placed_at_ms)} on {one.node}{lasted}{ended}"


def timeline_text(parts: Timeline) -> str:
    """Return how long each part took, without the parts that took no time."""
    named = msgspec.structs.asdict(parts)
    total = named.pop("total_ms")
    spent = [f"{name.removesuffix('_ms')} {took}" for name, took in named.items() if took]
    return f"{total} ms since the end of speech" + (f": {', '.join(spent)}" if spent else "")


def moment(at_ms: int) -> str:
    """Return a time in the format of log lines: UTC, with milliseconds."""
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def shown(page: JobPage) -> str:
    """Return a page of jobs as text."""
    if not page.jobs:
        return (
            f"no jobs are under way on {page.instance}\n"
            "a job lasts from the end of an utterance until its result is delivered; "
            "`lingua sessions` shows the open sessions"
        )
    more = " (there are more: --limit)" if page.next else ""
    head = f"{count_text(len(page.jobs), 'job')} under way on {page.instance}{more}"
    return f"{head}\n\n{table(page.jobs)}"


def table(jobs: Sequence[JobAnswer]) -> str:
    """Return one row per job, the oldest first: it is the most likely to be stuck."""
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
    """Return a duration with tenths of seconds: jobs take only seconds."""
    return f"{duration_ms / 1000:.1f}s"
