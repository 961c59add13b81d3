"""The rooms of this instance's sessions as they are known here, and how they stay current.

The store has the rooms. The instance that changes one informs the instances of its members
(`RoomChanged`), which read the room again and inform their own members; a lost message costs the
time until the next `refresh`. A room that the store lost while it has members is restored by their
instances. The timer of a room (`sweep`) removes members whose session has ended, and ends rooms
without speech.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lingua_scheduler.peers.messages import RoomChanged
from lingua_scheduler.session.rooms import LocalRooms, Room, RoomMember
from lingua_scheduler.state.reply import Reply
from lingua_scheduler.state.room_scripts import RoomEntry, RoomVisit
from lingua_scheduler.tasks import all_of
from lingua_wire.to_client import RoomExpired, RoomMembers

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lingua_cli.logs import EventLog
    from lingua_scheduler.clock import Clock
    from lingua_scheduler.rooms.member import MemberSession, PeerLink, RoomWatcher
    from lingua_scheduler.state.keys import Cells
    from lingua_scheduler.state.room_scripts import RoomScripts, StoredRoom
    from lingua_scheduler.tasks import Tasks
    from lingua_wire.to_client import ToClient

# How long a member's session may be missing in the store before the member is removed: after the
# store has lost its data, sessions are opened again one by one.
MISSING_MS = 30_000


@dataclass(slots=True, kw_only=True, eq=False)
class RoomCache:
    """The rooms of this instance's sessions, as they are known here."""

    store: RoomScripts
    sessions: Mapping[str, MemberSession]
    peers: PeerLink
    cells: Cells
    clock: Clock
    tasks: Tasks
    log: EventLog
    # The readers of captions here.
    watcher: RoomWatcher
    rooms: LocalRooms = field(default_factory=LocalRooms)
    # (code, session) of members whose session was missing at the last check -> since when.
    missing_since_ms: dict[tuple[str, str], float] = field(default_factory=dict)

    # Announcing

    def send(self, names: Iterable[str], message: ToClient) -> None:
        """Send a message to those of these sessions that are on this instance."""
        for name in names:
            session = self.sessions.get(name)
            if session is not None:
                session.notifier.send(message)

    def announce_members(self, code: str) -> None:
        """Send the list of members, as it is known here, to our members of a room."""
        room = self.rooms.at(code)
        if room is not None:
            self.send(self.rooms.ours(code), members_message(room))

    def nudge(self, code: str, instances: Iterable[str]) -> None:
        """Inform other instances that a room has changed."""
        others = {name for name in instances if name != self.peers.instance}
        if others:
            self.tasks.start(self._nudge(code, others))

    async def _nudge(self, code: str, instances: set[str]) -> None:
        for name in instances:
            await self.peers.send(name, RoomChanged(code))

    # Changes

    def changed(self, room: Room, also: Iterable[str] = ()) -> None:
        """Announce a room that a session of ours changed, here and to other instances."""
        self.rooms.update(room)
        self.watcher.room_changed(room.code)
        self.announce_members(room.code)
        self.nudge(room.code, room.instances().union(also))

    def ended(self, code: str) -> None:
        """Report that a room has ended for lack of speech."""
        gone = RoomExpired(room_code=code, message="nobody spoke for a long time")
        self.watcher.room_changed(code)
        self.send(self.rooms.end(code), gone)

    async def reread(self, code: str) -> None:
        """Read a room again; our members are informed if its participants changed."""
        self.watcher.room_changed(code)
        known = self.rooms.at(code)
        if known is None:
            return
        answer = await self.store.read(code)
        if answer.room is not None:
            await self._seen(room_from(answer.room))
        elif self.rooms.at(code) is known:
            if answer.now_ms - known.spoke_at_ms >= self.store.idle_ms:
                self.ended(code)
            else:
                await self._restore(known, self.rooms.ours(code))

    async def latest(self, known: Room) -> Room:
        """Return a room as it is in the store; as it is known if the store has lost it."""
        answer = await self.store.read(known.code)
        if answer.room is None:
            return known
        room = room_from(answer.room)
        await self._seen(room)
        return room

    async def refresh(self) -> None:
        """Read all rooms again: messages about them may have been lost."""
        await all_of(self.reread(code) for code in self.rooms.codes())

    async def verify(self) -> None:
        """Read all rooms again and accept any version: the store may have lost the latest."""
        self.watcher.verify()
        for code in self.rooms.codes():
            self.rooms.accept_any_version(code)
        await self.refresh()

    async def _seen(self, room: Room) -> None:
        before = self.rooms.at(room.code)
        if before is None or room.version < before.version:
            return
        absent = [name for name in self.rooms.ours(room.code) if name not in room.members]
        if absent:
            # Members are restored from the known room, perhaps by several tasks at once: it is kept
            # until all of ours are restored.
            await self._restore(before, absent)
        elif self.rooms.update(room) and (before.participants(), before.readers) != (
            room.participants(),
            room.readers,
        ):
            self.announce_members(room.code)

    async def _restore(self, known: Room, names: Iterable[str]) -> None:
        """Restore members of ours in a room, if the store lost them or the whole room."""
        latest: Room | None = None
        for name in names:
            session, member = self.sessions.get(name), known.members.get(name)
            if session is None or member is None or _is_leaving(session):
                self.rooms.left(name)
                continue
            record = session.record
            noted = await self.store.note(record.home, name, known.code, record.fence)
            if noted is Reply.FENCED:
                # Another instance owns the session, or is about to, and knows whether it has left.
                # It is dropped here when that instance informs us.
                continue
            if noted is Reply.SESSION_CLOSED:
                self.rooms.left(name)
                continue
            answer = await self.store.enter(
                "restore", known.code, known.tenant, entering_again(known, member)
            )
            if answer.room is not None:
                latest = room_from(answer.room)
                continue
            self.rooms.left(name)
            gone = RoomExpired(room_code=known.code, message="the room is not there any more")
            session.notifier.send(gone)
        if latest is not None:
            self.log("room.restored", members=len(latest.members))
            self.changed(latest, known.instances())

    # The timer

    async def sweep(self, code: str) -> None:
        """Handle a room's timer: remove members whose session ended; end a room without speech."""
        answer = await self.store.check(code)
        if answer.room is None:
            self._forget_missing(code, ())
            return
        room = room_from(answer.room)
        if answer.reply is Reply.GONE:
            self._forget_missing(code, ())
            self.ended(code)
            self.nudge(code, room.instances())
            return
        gone = await self._gone_of(room)
        if not gone:
            return
        left = await self.store.leave(code, gone)
        if left.room is not None:
            await self._seen(room_from(left.room))
        self.nudge(code, room.instances())

    async def _gone_of(self, room: Room) -> list[RoomVisit]:
        members = list(room.members.values())
        named = self.cells.named
        notes = await asyncio.gather(
            *(self.store.noted(named(member.home), member.session) for member in members)
        )
        now, missing = self.clock.now_ms(), []
        gone: list[RoomVisit] = []
        for member, note in zip(members, notes, strict=True):
            if note.state == "missing":
                missing.append(member.session)
                since = self.missing_since_ms.setdefault((room.code, member.session), now)
                if now - since >= MISSING_MS:
                    gone.append(RoomVisit(member.session, member.joined_at_ms))
            elif note.state == "closed" or note.room not in (None, room.code):
                gone.append(RoomVisit(member.session, member.joined_at_ms))
        self._forget_missing(room.code, missing)
        return gone

    def _forget_missing(self, code: str, still: Iterable[str]) -> None:
        kept = set(still)
        over = [key for key in self.missing_since_ms if key[0] == code and key[1] not in kept]
        for key in over:
            del self.missing_since_ms[key]


def _is_leaving(session: MemberSession) -> bool:
    return session.record.is_closing or session.record.is_over


def room_from(stored: StoredRoom) -> Room:
    """Convert a room of the store."""
    members = {
        member.session: RoomMember(
            session=member.session,
            display_name=member.name,
            preferred_lang=member.lang or None,
            joined_at_ms=member.joined_at_ms,
            instance=member.instance,
            home=member.home,
            raw_voice=member.voices,
            is_away=member.is_away,
        )
        for member in stored.members
    }
    return Room(
        code=stored.code,
        tenant=stored.tenant,
        version=stored.version,
        created_at_ms=stored.created_at_ms,
        spoke_at_ms=stored.spoke_at_ms,
        members=members,
        feeds=stored.feeds,
    )


def members_message(room: Room) -> RoomMembers:
    """Return the message that lists the members of a room."""
    return RoomMembers(
        room_code=room.code, members=room.participants(), readers=room.readers or None
    )


def entering_again(room: Room, member: RoomMember) -> RoomEntry:
    """Return the entry with which a member is restored in a room."""
    return RoomEntry(
        session=member.session,
        home=member.home,
        instance=member.instance,
        lang=member.preferred_lang or "",
        name=member.display_name,
        joined_at=member.joined_at_ms,
        created_at=room.created_at_ms,
        spoke_at=room.spoke_at_ms,
        voices=member.raw_voice,
    )
