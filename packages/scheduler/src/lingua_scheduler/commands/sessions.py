"""`lingua sessions`: the sessions of a running scheduler, their languages and their coverage."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from lingua_cli.table import render_table
from lingua_scheduler.commands.scheduler_client import (
    add_limit,
    add_options,
    age_text,
    count_text,
    scheduler_of,
    short,
)
from lingua_scheduler.edge.answers import SessionAnswer, SessionPage

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from lingua_scheduler.commands.scheduler_client import SchedulerClient

HEADERS = (
    "session",
    "tenant",
    "languages",
    "age",
    "open",
    "waiting",
    "next",
    "spoken",
    "delivered",
    "lost",
    "room",
    "client",
)


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `lingua sessions`."""
    parser = subparsers.add_parser("sessions", help="show the sessions of a running scheduler")
    add_options(parser)
    add_limit(parser)
    parser.set_defaults(run=run_sessions)


def run_sessions(args: argparse.Namespace) -> int:
    """Print the sessions."""
    scheduler = scheduler_of(args)
    page = scheduler.get_list("/api/v1/sessions", SessionPage, "sessions", args.limit)
    print(msgspec.json.encode(page).decode() if args.json else shown(page, scheduler))
    return 0


def shown(page: SessionPage, scheduler: SchedulerClient) -> str:
    """Return a page of sessions as text."""
    if not page.sessions:
        return (
            f"no sessions are open on {page.instance}\n"
            f"clients connect to {scheduler.sockets}/ws/session"
        )
    more = " (there are more: --limit)" if page.next else ""
    head = f"{count_text(len(page.sessions), 'session')} on {page.instance}{more}"
    return f"{head}\n\n{table(page.sessions)}"


def table(sessions: Sequence[SessionAnswer]) -> str:
    """Return one row per session, the newest first."""
    newest_first = sorted(sessions, key=lambda session: session.age_ms)
    return render_table(HEADERS, [row(session) for session in newest_first])


def row(session: SessionAnswer) -> tuple[str | int | None, ...]:
    """Return the cells of one session."""
    coverage = session.coverage
    return (
        short(session.id),
        session.tenant or "-",
        languages(session),
        age_text(session.age_ms),
        session.open_utterances,
        session.backlog,
        session.next_index,
        age_text(coverage.admitted_ms),
        age_text(coverage.delivered_ms),
        age_text(coverage.failed_ms),
        session.room or "-",
        "here" if session.connected else "gone",
    )


def languages(session: SessionAnswer) -> str:
    """Return a session's languages in words."""
    if session.two_way is not None:
        return f"{session.two_way[0]} and {session.two_way[1]}"
    return f"{session.source} to {', '.join(session.targets)}"
