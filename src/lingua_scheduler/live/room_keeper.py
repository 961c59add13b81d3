"""What this instance knows of its sessions' rooms, and how it stays true.

The store has the rooms. Whoever changes one tells the instances of its members (`RoomChanged`),
which read it again and tell their own; a letter that is lost costs until the next `refresh`. A
room that the store lost while people are in it is made again by those who have them. The timer of
a room (`sweep`) takes out members whose session is gone and ends rooms nobody spoke in.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol, TypeVar

from lingua_scheduler.between.letters import RoomChanged
from lingua_scheduler.live.tasks import all_of
from lingua_scheduler.messages.to_client import RoomExpired, RoomMembers
from lingua_scheduler.session.rooms import Member, Room, Rooms
from lingua_scheduler.state.reply import Reply
from lingua_scheduler.state.room_store import Entering, Visit

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from lingua_scheduler.between.letters import Letter
    from lingua_scheduler.live.board import Report
    from lingua_scheduler.live.clock import Clock
    from lingua_scheduler.live.session import LiveSession
    from lingua_scheduler.live.tasks import Tasks
    from lingua_scheduler.messages.to_client import ToClient
    from lingua_scheduler.state.keys import Cells
    from lingua_scheduler.state.room_store import RoomStore, StoredRoom

T = TypeVar("T")

# How long a member's session may be missing in the store before the member is taken out: after the
# store was emptied, sessions are opened again one by one.
MISSING_MS = 30_000


class Sender(Protocol):
    """The way to other instances."""

    async def send(self, to: str, letter: Letter) -> bool:
        """Send a letter; False if that instance is not there."""


class RoomBoard(Protocol):
    """What rooms need of the instance."""

    instance: str
    sessions: dict[str, LiveSession]
    cells: Cells
    clock: Clock
    tasks: Tasks
    log: Report

    @property
    def post(self) -> Sender:
        """Return the way to other instances."""

    async def insist(self, step: Callable[[], Awaitable[T]]) -> T:
        """Take a step until the store takes it."""


class RoomKeeper:
    """The rooms of this instance's sessions."""

    def __init__(self, board: RoomBoard, store: RoomStore) -> None:
        self._board = board
        self._store = store
        self.rooms = Rooms()
        # (code, session) of members whose session was missing at the last look, and since when.
        self._missing: dict[tuple[str, str], float] = {}

    # Telling

    def tell(self, names: Iterable[str], message: ToClient) -> None:
        """Send a message to those of these sessions that are here."""
        for name in names:
            session = self._board.sessions.get(name)
            if session is not None:
                session.teller.tell(message)

    def tell_members(self, code: str) -> None:
        """Tell our members of a room who is in it, as far as is known."""
        room = self.rooms.at(code)
        if room is not None:
            self.tell(self.rooms.ours(code), members_message(room))

    def nudge(self, code: str, instances: Iterable[str]) -> None:
        """Let other instances know that a room is not what it was."""
        others = {name for name in instances if name != self._board.instance}
        if others:
            self._board.tasks.start(self._nudge(code, others))

    async def _nudge(self, code: str, instances: set[str]) -> None:
        for name in instances:
            await self._board.post.send(name, RoomChanged(code))

    # Changes

    def changed(self, room: Room, also: Iterable[str] = ()) -> None:
        """A session of ours changed a room: tell everybody, here and elsewhere."""
        self.rooms.update(room)
        self.tell_members(room.code)
        self.nudge(room.code, room.instances().union(also))

    def ended(self, code: str) -> None:
        """A room has ended because nobody spoke."""
        gone = RoomExpired(room_code=code, message="nobody spoke for a long time")
        self.tell(self.rooms.end(code), gone)

    async def reread(self, code: str) -> None:
        """Look at a room again; our members are told if others see each other differently now."""
        known = self.rooms.at(code)
        if known is None:
            return
        answer = await self._store.read(code)
        if answer.room is not None:
            await self._seen(room_from(answer.room))
        elif self.rooms.at(code) is known:
            if answer.now_ms - known.spoke_at_ms >= self._store.idle_ms:
                self.ended(code)
            else:
                await self._restore(known, self.rooms.ours(code))

    async def latest(self, known: Room) -> Room:
        """Return a room as it is in the store; as it is known if the store has lost it."""
        answer = await self._store.read(known.code)
        if answer.room is None:
            return known
        room = room_from(answer.room)
        await self._seen(room)
        return room

    async def refresh(self) -> None:
        """Look at all rooms again: letters about them may have been lost."""
        await all_of(self.reread(code) for code in self.rooms.codes())

    async def verify(self) -> None:
        """Look at all rooms again: any version of them may be the latest now."""
        for code in self.rooms.codes():
            self.rooms.doubt(code)
        await self.refresh()

    async def _seen(self, room: Room) -> None:
        before = self.rooms.at(room.code)
        if before is None or room.version < before.version:
            return
        absent = [name for name in self.rooms.ours(room.code) if name not in room.members]
        if absent:
            # The room that is known has what its members are restored from, and others may be
            # looking at the same time: it stays until all of ours are back.
            await self._restore(before, absent)
        elif self.rooms.update(room) and before.participants() != room.participants():
            self.tell_members(room.code)

    async def _restore(self, known: Room, names: Iterable[str]) -> None:
        """Bring members of ours back into a room that lost them, or the store lost."""
        latest: Room | None = None
        for name in names:
            session, member = self._board.sessions.get(name), known.members.get(name)
            if session is None or session.closing or session.lapsed or member is None:
                self.rooms.left(name)
                continue
            noted = await self._store.note(session.home, name, known.code, session.fence)
            if noted is Reply.FENCED:
                # Another instance has it, or is about to: that one knows whether it has left. It is
                # dropped here when we are told.
                continue
            if noted is Reply.SESSION_CLOSED:
                self.rooms.left(name)
                continue
            answer = await self._store.enter(
                "restore", known.code, known.tenant, entering_again(known, member)
            )
            if answer.room is not None:
                latest = room_from(answer.room)
                continue
            self.rooms.left(name)
            gone = RoomExpired(room_code=known.code, message="the room is not there any more")
            session.teller.tell(gone)
        if latest is not None:
            self._board.log("room.restored", members=len(latest.members))
            self.changed(latest, known.instances())

    # The timer

    async def sweep(self, code: str) -> None:
        """A room's timer rang: who is gone is taken out, a room nobody speaks in ends."""
        answer = await self._store.check(code)
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
        left = await self._store.leave(code, gone)
        if left.room is not None:
            await self._seen(room_from(left.room))
        self.nudge(code, room.instances())

    async def _gone_of(self, room: Room) -> list[Visit]:
        members = list(room.members.values())
        named = self._board.cells.named
        notes = await asyncio.gather(
            *(self._store.noted(named(member.home), member.session) for member in members)
        )
        now, missing = self._board.clock.now_ms(), []
        gone: list[Visit] = []
        for member, note in zip(members, notes, strict=True):
            if note.state == "missing":
                missing.append(member.session)
                since = self._missing.setdefault((room.code, member.session), now)
                if now - since >= MISSING_MS:
                    gone.append(Visit(member.session, member.joined_at_ms))
            elif note.state == "closed" or note.room not in (None, room.code):
                gone.append(Visit(member.session, member.joined_at_ms))
        self._forget_missing(room.code, missing)
        return gone

    def _forget_missing(self, code: str, still: Iterable[str]) -> None:
        kept = set(still)
        over = [key for key in self._missing if key[0] == code and key[1] not in kept]
        for key in over:
            del self._missing[key]


def room_from(stored: StoredRoom) -> Room:
    """Return a room of the store as its members see it."""
    members = {
        member.session: Member(
            member.session, member.name, member.lang or None, member.joined_at_ms,
            member.instance, member.home, member.voices, member.is_away,
        )
        for member in stored.members
    }  # fmt: skip
    return Room(
        stored.code, stored.tenant, stored.version, stored.created_at_ms, stored.spoke_at_ms,
        members,
    )  # fmt: skip


def members_message(room: Room) -> RoomMembers:
    """Return who is in a room, for its members."""
    return RoomMembers(room_code=room.code, members=room.participants())


def entering_again(room: Room, member: Member) -> Entering:
    """Return a member as it comes back into a room that was lost."""
    return Entering(
        session=member.session, home=member.home, instance=member.instance,
        lang=member.preferred_lang or "", name=member.display_name,
        joined_at=member.joined_at_ms, created_at=room.created_at_ms, spoke_at=room.spoke_at_ms,
        voices=member.raw_voice,
    )  # fmt: skip
