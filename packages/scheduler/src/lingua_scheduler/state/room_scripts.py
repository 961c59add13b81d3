"""The scripts about rooms: one typed method for each, without logic.

A room is in the cell that its code hashes to, so callers give only the code. The methods about a
session (`note`, `noted`) use that session's home cell. `rooms/` decides what an answer means for
the members.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from lingua_scheduler.state.packing import pack
from lingua_scheduler.state.reply import Reply
from lingua_scheduler.state.script_runner import ScriptRunner

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lingua_scheduler.config import Settings
    from lingua_scheduler.state.connection import Connection
    from lingua_scheduler.state.keys import Cell, Cells
    from lingua_scheduler.state.script import Word

# How often a room's members are checked.
CHECK_MS = 10_000
# How long an instance with readers of captions may be silent before it is forgotten.
FEED_MS = 30_000


class RoomPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers that the scripts about rooms use."""

    members_max: int = 100
    idle_ms: int = 1_800_000
    check_ms: int = CHECK_MS
    feed_ms: int = FEED_MS
    feeds_max: int = 8

    @classmethod
    def of(cls, settings: Settings) -> RoomPolicy:
        """Return the numbers of the settings."""
        rooms = settings.rooms
        return cls(members_max=rooms.members_max, idle_ms=rooms.idle_ms, feeds_max=rooms.feeds_max)


class RoomEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A session that enters a room; the last fields restore a room that the store has lost."""

    session: str
    home: str
    instance: str
    # '' if nothing is translated for it.
    lang: str
    name: str | None = None
    joined_at: int | None = None
    created_at: int | None = None
    spoke_at: int | None = None
    voices: dict[str, bool] | None = None


class StoredMember(NamedTuple):
    """A member in the store."""

    session: str
    # The order of members.
    place: int
    joined_at_ms: int
    home: str
    name: str | None
    lang: str
    instance: str
    # The speakers whose original voice it chose or refused.
    voices: dict[str, bool]
    # Its client is disconnected.
    is_away: bool = False


class StoredRoom(NamedTuple):
    """A room in the store, its members in the order of entry."""

    code: str
    tenant: str
    version: int
    created_at_ms: int
    spoke_at_ms: int
    members: tuple[StoredMember, ...]
    # Language -> instance -> its readers of captions.
    feeds: dict[str, dict[str, int]] = {}  # noqa: RUF012 the default of a tuple, never changed
    # The languages that have captions.
    captioned: tuple[str, ...] = ()


class RoomAnswer(NamedTuple):
    """The answer of a script about a room."""

    reply: Reply
    # The server's clock.
    now_ms: int
    # None if the room does not exist (any more).
    room: StoredRoom | None = None
    # The reason of a refusal: taken, no_room, full, not_in.
    why: str = ""


class RoomVisit(NamedTuple):
    """A stay of a session in a room, by its time of entry; None: whichever stay there is."""

    session: str
    joined_at_ms: int | None = None


class SessionNote(NamedTuple):
    """The state of a member's session."""

    # open, closed, missing
    state: str
    # The room of the session, '' after it left one; None if it had no room.
    room: str | None = None


class RoomScripts:
    """The scripts about rooms of one deployment, over one connection."""

    def __init__(self, connection: Connection, cells: Cells, policy: RoomPolicy) -> None:
        self.runner = ScriptRunner(connection)
        self._cells = cells
        # Packed once, because the policy is sent with every call that needs it.
        self._policy = pack(policy)
        self.idle_ms = policy.idle_ms

    @classmethod
    def of(cls, connection: Connection, cells: Cells, settings: Settings) -> RoomScripts:
        """Return the scripts with the numbers of the settings."""
        return cls(connection, cells, RoomPolicy.of(settings))

    def cell_of(self, code: str) -> Cell:
        """Return the cell of a room."""
        return self._cells.all[zlib.crc32(code.encode()) % len(self._cells.all)]

    # Rooms

    async def enter(self, mode: str, code: str, tenant: str, member: RoomEntry) -> RoomAnswer:
        """Let a session into a room; mode: create, join, restore."""
        raw = await self.runner.run(
            "room_enter", self.cell_of(code), (self._policy, mode, code, tenant, pack(member))
        )
        return read_room_answer(code, raw)

    async def leave(self, code: str, visits: Iterable[RoomVisit], instance: str = "") -> RoomAnswer:
        """Take sessions out of a room; without a room in the answer it has ended.

        With an instance: only those whose client is connected to it.
        """
        words: list[Word] = []
        for visit in visits:
            words += (visit.session, "" if visit.joined_at_ms is None else visit.joined_at_ms)
        raw = await self.runner.run("room_leave", self.cell_of(code), (code, instance, *words))
        return read_room_answer(code, raw)

    async def set_language(self, code: str, session: str, lang: str) -> RoomAnswer:
        """Change the language of a member."""
        return await self._change(code, session, "lang", lang)

    async def set_instance(self, code: str, session: str, instance: str) -> RoomAnswer:
        """Store the instance of a member's client."""
        return await self._change(code, session, "instance", instance)

    async def set_voice(self, code: str, session: str, speaker: str, *, wanted: bool) -> RoomAnswer:
        """Store whether a member wants another member's original voice."""
        return await self._change(code, session, "voice", int(wanted), speaker)

    async def set_away(self, code: str, session: str, *, is_away: bool) -> RoomAnswer:
        """Store whether a member's client is disconnected."""
        return await self._change(code, session, "away", int(is_away))

    async def spoke(self, code: str, session: str) -> RoomAnswer:
        """Store the time of speech, which keeps the room; members need not be informed."""
        return await self._change(code, session, "spoke", "")

    async def _change(
        self, code: str, session: str, what: str, value: Word, speaker: str = ""
    ) -> RoomAnswer:
        raw = await self.runner.run(
            "room_change", self.cell_of(code), (code, session, what, value, speaker)
        )
        return read_room_answer(code, raw)

    async def read(self, code: str) -> RoomAnswer:
        """Read a room."""
        return read_room_answer(
            code, await self.runner.run("room_read", self.cell_of(code), (code,))
        )

    async def version(self, code: str) -> int:
        """Return the latest version of a room, 0 if the room does not exist."""
        cell = self.cell_of(code)
        key = cell.key("room", code)
        return int(await self.runner.command(cell, ("HGET", key, "version")) or 0)

    async def feed(
        self, code: str, tenant: str, language: str, instance: str, readers: int
    ) -> RoomAnswer:
        """Note how many readers of captions an instance has; -1: it has no feed any more."""
        words = (self._policy, code, tenant, language, instance, readers)
        raw = await self.runner.run("room_feed", self.cell_of(code), words)
        return read_room_answer(code, raw)

    async def check(self, code: str) -> RoomAnswer:
        """Check a room whose timer is due; `GONE` returns the room as it was when it ended."""
        return read_room_answer(
            code, await self.runner.run("room_check", self.cell_of(code), (self._policy, code))
        )

    # Sessions

    async def note(self, home: Cell, session: str, code: str, fence: int = 0) -> Reply:
        """Store in a session, as its owner, the room it is about to enter, or '' when it leaves.

        FENCED if another instance owns the session: then it must not be changed.
        """
        return Reply((await self.runner.run("room_note", home, (session, fence, code)))[0])

    async def noted(self, home: Cell, session: str) -> SessionNote:
        """Read whether a session exists, and its room."""
        key = home.key("session", session)
        words = ("HMGET", key, "epoch", "closed", "room")
        epoch, closed, room = await self.runner.command(home, words)
        if epoch is None:
            return SessionNote("missing")
        if closed is not None:
            return SessionNote("closed")
        return SessionNote("open", room.decode() if room is not None else None)


def read_room_answer(code: str, raw: list[Any]) -> RoomAnswer:
    """Read the answer of a script about a room."""
    reply = Reply(raw[0])
    if reply is Reply.FENCED:
        return RoomAnswer(reply, raw[1], why=raw[2].decode())
    return RoomAnswer(reply, raw[1], read_room(code, raw[2]) if raw[2] else None)


def read_room(code: str, raw: list[bytes]) -> StoredRoom:
    """Read the fields of a room."""
    fields = dict(zip(map(bytes.decode, raw[::2]), map(bytes.decode, raw[1::2]), strict=True))
    voices: dict[str, dict[str, bool]] = {}
    for name, value in fields.items():
        if name.startswith("v:"):
            listener, _, speaker = name[2:].partition("|")
            voices.setdefault(listener, {})[speaker] = value == "1"
    members = [
        read_member(name[2:], fields, voices.get(name[2:], {}))
        for name in fields
        if name.startswith("m:")
    ]
    members.sort(key=lambda member: member.place)
    return StoredRoom(
        code,
        tenant=fields["tenant"],
        version=int(fields["version"]),
        created_at_ms=int(fields["created_at"]),
        spoke_at_ms=int(fields["spoke_at"]),
        members=tuple(members),
        feeds={
            name[2:]: read_feeds(value) for name, value in fields.items() if name.startswith("r:")
        },
        captioned=tuple(sorted(name[2:] for name in fields if name.startswith("c:"))),
    )


def read_feeds(text: str) -> dict[str, int]:
    """Read `instance until readers ...`: the readers of each instance."""
    words = text.split(" ")
    return {words[at]: int(words[at + 2]) for at in range(0, len(words), 3)}


def read_member(session: str, fields: dict[str, str], voices: dict[str, bool]) -> StoredMember:
    """Read the fields of one member."""
    head, _, name = fields[f"m:{session}"].partition("\n")
    place, joined_at, home, is_named = head.split(" ")
    return StoredMember(
        session,
        place=int(place),
        joined_at_ms=int(joined_at),
        home=home,
        name=name if is_named == "1" else None,
        lang=fields[f"l:{session}"],
        instance=fields[f"i:{session}"],
        voices=voices,
        is_away=fields.get(f"a:{session}") == "1",
    )
