"""One typed method per script about rooms; no logic.

A room lives in the cell its code hashes to; who wants something of it names the code only. The
methods about a session (`note`, `noted`) work in that session's home cell. Used by `live/hall.py`
and what belongs to it; what an answer means for people is decided there.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from lingua_scheduler.state.reply import Reply
from lingua_scheduler.state.scripts import load_scripts

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable

    from lingua_scheduler.config import Settings
    from lingua_scheduler.state.keys import Cell, Cells
    from lingua_scheduler.state.script import Connection, Word

# How often a room's members are looked at.
CHECK_MS = 10_000

pack = msgspec.msgpack.Encoder().encode


class RoomPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers the scripts about rooms work by."""

    members_max: int = 100
    idle_ms: int = 1_800_000
    check_ms: int = CHECK_MS

    @classmethod
    def of(cls, settings: Settings) -> RoomPolicy:
        """Take the numbers from the settings."""
        rooms = settings.rooms
        return cls(members_max=rooms.members_max, idle_ms=rooms.idle_ms)


class Entering(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who enters a room; the second part is for a room that the store has lost."""

    session: str
    home: str
    instance: str
    # '' if it wants to hear nothing translated.
    lang: str
    name: str | None = None
    joined_at: int | None = None
    created_at: int | None = None
    spoke_at: int | None = None
    voices: dict[str, bool] | None = None


class StoredMember(NamedTuple):
    """A member as the store knows it."""

    session: str
    # Members are listed by this.
    place: int
    joined_at_ms: int
    home: str
    name: str | None
    lang: str
    instance: str
    # Whose own voice it wants, as far as it said so.
    voices: dict[str, bool]
    # Its client's socket is gone.
    is_away: bool = False


class StoredRoom(NamedTuple):
    """A room as the store knows it, its members in the order they came."""

    code: str
    tenant: str
    version: int
    created_at_ms: int
    spoke_at_ms: int
    members: tuple[StoredMember, ...]


class RoomAnswer(NamedTuple):
    """What a script about a room answered."""

    reply: Reply
    # The server's clock.
    now_ms: int
    # None if there is no such room (any more).
    room: StoredRoom | None = None
    # Of a refusal: taken, no_room, full, not_in.
    why: str = ""


class Visit(NamedTuple):
    """A stay of a session in a room, by when it came; whichever there is if that is not known."""

    session: str
    joined_at_ms: int | None = None


class SessionNote(NamedTuple):
    """What a member's session says of itself."""

    # open, closed, missing
    state: str
    # The room it is noted in, '' if it left one; None if nothing is noted.
    room: str | None = None


class RoomStore:
    """The scripts about rooms of one deployment, over one connection."""

    def __init__(self, connection: Connection, cells: Cells, policy: RoomPolicy) -> None:
        self._connection = connection
        self._cells = cells
        self._scripts = load_scripts()
        # Packed once: it travels with every call that needs it.
        self._policy = pack(policy)
        self.idle_ms = policy.idle_ms
        # 0 asks the server; only tests set it.
        self.now_ms = 0

    @classmethod
    def of(cls, connection: Connection, cells: Cells, settings: Settings) -> RoomStore:
        """Take the numbers from the settings."""
        return cls(connection, cells, RoomPolicy.of(settings))

    def cell_of(self, code: str) -> Cell:
        """Return the cell where a room lives."""
        return self._cells.all[zlib.crc32(code.encode()) % len(self._cells.all)]

    def _run(self, name: str, cell: Cell, *args: Word) -> Awaitable[list[Any]]:
        script = self._scripts[name]
        return self._connection.run(script, cell.slot, cell.keys, (self.now_ms, *args))

    # Rooms

    async def enter(self, mode: str, code: str, tenant: str, member: Entering) -> RoomAnswer:
        """Let a session into a room; mode: create, join, restore."""
        raw = await self._run(
            "room_enter", self.cell_of(code), self._policy, mode, code, tenant, pack(member)
        )
        return read_room_answer(code, raw)

    async def leave(self, code: str, visits: Iterable[Visit], instance: str = "") -> RoomAnswer:
        """Take sessions out of a room; without a room in the answer it has ended.

        With an instance only those whose client is there.
        """
        words: list[Word] = []
        for visit in visits:
            words += (visit.session, "" if visit.joined_at_ms is None else visit.joined_at_ms)
        raw = await self._run("room_leave", self.cell_of(code), code, instance, *words)
        return read_room_answer(code, raw)

    async def set_language(self, code: str, session: str, lang: str) -> RoomAnswer:
        """Change what a member wants to hear."""
        return await self._change(code, session, "lang", lang)

    async def set_instance(self, code: str, session: str, instance: str) -> RoomAnswer:
        """Note where a member's client is now."""
        return await self._change(code, session, "instance", instance)

    async def set_voice(self, code: str, session: str, speaker: str, *, wanted: bool) -> RoomAnswer:
        """Note whether a member wants another's own voice."""
        return await self._change(code, session, "voice", int(wanted), speaker)

    async def set_away(self, code: str, session: str, *, is_away: bool) -> RoomAnswer:
        """Note whether a member's client is there."""
        return await self._change(code, session, "away", int(is_away))

    async def spoke(self, code: str, session: str) -> RoomAnswer:
        """Keep a room: somebody spoke. Not a change that others must hear of."""
        return await self._change(code, session, "spoke", "")

    async def _change(
        self, code: str, session: str, what: str, value: Word, speaker: str = ""
    ) -> RoomAnswer:
        raw = await self._run(
            "room_change", self.cell_of(code), code, session, what, value, speaker
        )
        return read_room_answer(code, raw)

    async def read(self, code: str) -> RoomAnswer:
        """Read a room."""
        return read_room_answer(code, await self._run("room_read", self.cell_of(code), code))

    async def version(self, code: str) -> int:
        """Return which version of a room is the latest, 0 if there is none."""
        cell = self.cell_of(code)
        key = cell.key("room", code)
        return int(await self._connection.command(cell.slot, "HGET", key, "version") or 0)

    async def check(self, code: str) -> RoomAnswer:
        """A room's timer rang; `GONE` brings the room as it was when it ended."""
        return read_room_answer(
            code, await self._run("room_check", self.cell_of(code), self._policy, code)
        )

    # Sessions

    async def note(self, home: Cell, session: str, code: str, fence: int = 0) -> Reply:
        """Note in a session, as its owner, which room it is about to enter, or that it leaves ('').

        FENCED if another instance owns it by now: then nothing of it may be changed.
        """
        return Reply((await self._run("room_note", home, session, fence, code))[0])

    async def noted(self, home: Cell, session: str) -> SessionNote:
        """Read whether a session is there, and the room it is noted in."""
        key = home.key("session", session)
        epoch, closed, room = await self._connection.command(
            home.slot, "HMGET", key, "epoch", "closed", "room"
        )
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
        code, fields["tenant"], int(fields["version"]), int(fields["created_at"]),
        int(fields["spoke_at"]), tuple(members),
    )  # fmt: skip


def read_member(session: str, fields: dict[str, str], voices: dict[str, bool]) -> StoredMember:
    """Read the fields of one member."""
    head, _, name = fields[f"m:{session}"].partition("\n")
    place, joined_at, home, is_named = head.split(" ")
    return StoredMember(
        session, int(place), int(joined_at), home, name if is_named == "1" else None,
        fields[f"l:{session}"], fields[f"i:{session}"], voices,
        fields.get(f"a:{session}") == "1",
    )  # fmt: skip
