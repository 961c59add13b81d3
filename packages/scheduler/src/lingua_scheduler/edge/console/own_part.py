"""What one worker knows by itself: its sessions, its rooms, and its last hour.

It is asked every second while a console is open, so it reads a bounded number of the newest
sessions and rooms, not all of them.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from lingua_scheduler.edge.console.documents import ConsoleRoom, ConsoleSession
from lingua_scheduler.metrics import MetricBucket  # noqa: TC001 msgspec reads it at run time

if TYPE_CHECKING:
    from lingua_scheduler.runtime.instance import Instance
    from lingua_scheduler.runtime.session import LiveSession
    from lingua_scheduler.session.rooms import Room

SHOWN_MAX = 50


class ConsolePart(msgspec.Struct, frozen=True, kw_only=True):
    """The part of one worker."""

    instance: str
    started_at_ms: int
    draining: bool
    jobs: int
    sessions: int
    rooms: int
    newest_sessions: tuple[ConsoleSession, ...]
    newest_rooms: tuple[ConsoleRoom, ...]
    buckets: tuple[MetricBucket, ...]


def own_part(instance: Instance, started_at_ms: int, after: int) -> ConsolePart:
    """Return the part of an instance; of its history the buckets after a number."""
    rooms = instance.rooms.cache.rooms
    # Both are kept in the order in which they were opened.
    sessions = islice(reversed(instance.sessions.values()), SHOWN_MAX)
    codes = rooms.codes()[-SHOWN_MAX:]
    known = (room for code in reversed(codes) if (room := rooms.at(code)) is not None)
    return ConsolePart(
        instance=instance.id,
        started_at_ms=started_at_ms,
        draining=instance.lifecycle.is_draining,
        jobs=len(instance.jobs),
        sessions=len(instance.sessions),
        rooms=len(rooms),
        newest_sessions=tuple(_session(instance, session) for session in sessions),
        newest_rooms=tuple(_room(room) for room in known),
        buckets=instance.loops.history.buckets(after, instance.clock.wall_ms()),
    )


def _session(instance: Instance, session: LiveSession) -> ConsoleSession:
    profile, room = session.languages.profile, instance.rooms.cache.rooms.room_of(session.id)
    return ConsoleSession(
        id=session.id,
        tenant=session.record.tenant,
        source=profile.source,
        targets=profile.targets,
        room=room.code if room is not None else None,
        connected=session.notifier.is_attached,
        opened_at_ms=session.opened_at_ms,
        backlog=len(session.admission.parts.backlog),
        instance=instance.id,
    )


def _room(room: Room) -> ConsoleRoom:
    members = room.members.values()
    return ConsoleRoom(
        code=room.code,
        members=len(members),
        away=sum(member.is_away for member in members),
        languages=tuple(sorted({m.preferred_lang for m in members if m.preferred_lang})),
        created_at_ms=room.created_at_ms,
        spoke_at_ms=room.spoke_at_ms,
    )
