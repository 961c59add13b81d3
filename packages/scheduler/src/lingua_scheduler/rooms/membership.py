"""Members whose sessions move, disconnect, come back or are replaced."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from lingua_scheduler.rooms.cache import members_message, room_from
from lingua_scheduler.rooms.command_queue import MovedAway
from lingua_scheduler.state.reply import Reply
from lingua_scheduler.state.room_scripts import RoomVisit
from lingua_wire.to_client import RoomExpired

if TYPE_CHECKING:
    from lingua_scheduler.rooms.cache import RoomCache
    from lingua_scheduler.rooms.command_queue import RoomCommandQueue
    from lingua_scheduler.rooms.member import MemberSession
    from lingua_scheduler.state.keys import Cell
    from lingua_scheduler.state.retry import StoreRetry

# A client that is back sooner is not shown as away to others.
AWAY_AFTER_MS = 2_000


class RoomMembership:
    """Keeps members in their rooms while their sessions move."""

    def __init__(self, cache: RoomCache, queue: RoomCommandQueue, retry: StoreRetry) -> None:
        self._cache = cache
        self._queue = queue
        self._retry = retry
        self._store = cache.store
        self._rooms = cache.rooms

    async def restore(self, session: MemberSession) -> None:
        """Restore the room of a session that moved here; the store has noted which one it is."""
        until_stored, store, record = self._retry.until_stored, self._store, session.record
        code = (await until_stored(partial(store.noted, record.home, record.id))).room
        if not code:
            return
        instance = self._cache.peers.instance
        answer = await until_stored(partial(store.set_instance, code, record.id, instance))
        if self._cache.sessions.get(record.id) is not session:
            return
        if answer.room is None:
            gone = RoomExpired(room_code=code, message="the room is not there any more")
            session.notifier.send(gone)
            return
        room = room_from(answer.room)
        self._rooms.entered(record.id, room)
        self._rooms.update(room)
        self._cache.nudge(code, room.instances())

    def returned(self, session: MemberSession) -> None:
        """Send the present members of its room to a client that is connected again."""
        name = session.record.id
        room = self._rooms.room_of(name)
        if room is not None:
            session.notifier.send(members_message(room))
            if room.members[name].is_away:
                self._queue.add(session, partial(self._set_away, session, is_away=False))

    def disconnected(self, session: MemberSession) -> None:
        """Keep a member whose socket is lost in its room; after a while others see it as away."""
        if self._rooms.room_of(session.record.id) is not None:
            self._cache.tasks.start(self._away_soon(session))

    async def replace(self, home: Cell, session: str) -> None:
        """Remove a session from its room because its client opened another in its place."""
        code = (await self._store.noted(home, session)).room
        if code:
            answer = await self._store.leave(code, (RoomVisit(session),))
            if answer.room is not None:
                room = room_from(answer.room)
                self._cache.changed(room, room.instances())

    def taken(self, session: MemberSession) -> None:
        """Forget a session that another instance owns now; it stays in its room."""
        self._rooms.left(session.record.id)

    async def _away_soon(self, session: MemberSession) -> None:
        await asyncio.sleep(AWAY_AFTER_MS / 1000)
        if session.record.is_disconnected:
            self._queue.add(session, partial(self._set_away, session, is_away=True))

    async def _set_away(self, session: MemberSession, *, is_away: bool) -> None:
        record = session.record
        room = self._rooms.room_of(record.id)
        if room is None or is_away is not record.is_disconnected:
            return
        noted = await self._store.note(record.home, record.id, room.code, record.fence)
        if noted is Reply.FENCED:
            raise MovedAway
        answer = await self._store.set_away(room.code, record.id, is_away=is_away)
        if answer.room is not None:
            self._cache.changed(room_from(answer.room))
