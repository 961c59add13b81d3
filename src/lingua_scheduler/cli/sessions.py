"""`lingua sessions`: who speaks on a running scheduler, into what, and what became of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from lingua_scheduler.cli.ask import (
    PAGE,
    add_limit,
    add_options,
    age_text,
    count_text,
    scheduler_of,
    short,
)
from lingua_scheduler.cli.table import render_table
from lingua_scheduler.edge.answers import SessionAnswer, SessionPage

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from lingua_scheduler.cli.ask import Scheduler

HEADERS = (
    "session", "tenant", "languages", "age", "open", "waiting", "next", "spoken", "delivered",
    "lost", "room", "client",
)  # fmt: skip


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `lingua sessions`."""
    parser = subparsers.add_parser("sessions", help="show the sessions of a running scheduler")
    add_options(parser)
    add_limit(parser)
    parser.set_defaults(run=run_sessions)


def run_sessions(args: argparse.Namespace) -> int:
    """Print the sessions."""
    scheduler = scheduler_of(args)
    page = fetch(scheduler, args.limit)
    print(msgspec.json.encode(page).decode() if args.json else shown(page, scheduler))
    return 0


def fetch(scheduler: Scheduler, limit: int) -> SessionPage:
    """Read so many sessions, page by page."""
    found: list[SessionAnswer] = []
    after: str | None = ""
    page = None
    while after is not None and len(found) < limit:
        size = min(PAGE, limit - len(found))
        page = scheduler.get("/api/v1/sessions", SessionPage, limit=size, after=after)
        found += page.sessions
        after = page.next
    assert page is not None, "the limit is at least 1"
    return msgspec.structs.replace(page, sessions=tuple(found))


def shown(page: SessionPage, scheduler: Scheduler) -> str:
    """Return what a person reads."""
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
    said = session.coverage
    return (
        short(session.id),
        session.tenant or "-",
        languages(session),
        age_text(session.age_ms),
        session.open_utterances,
        session.backlog,
        session.next_index,
        age_text(said.admitted_ms),
        age_text(said.delivered_ms),
        age_text(said.failed_ms),
        session.room or "-",
        "here" if session.connected else "gone",
    )


def languages(session: SessionAnswer) -> str:
    """Return a session's languages as people say them."""
    if session.two_way is not None:
        return f"{session.two_way[0]} and {session.two_way[1]}"
    return f"{session.source} to {', '.join(session.targets)}"
