"""Who shares a room, who wants which language, who wants whose own voice. Pure.

One instance's rooms, in memory. A session is in at most one room; a room is deleted with its last
member, or after a time without speech. Nothing is sent from here: the caller tells the members,
draws the random code and gives the time, which members see as `joined_at` (so: a wall clock).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from lingua_scheduler.errors import InvalidInput
from lingua_scheduler.languages import base_of, language
from lingua_scheduler.messages.codes import ErrorCode
from lingua_scheduler.messages.shared import Participant

IDLE_MS = 30 * 60 * 1000
CODE = re.compile(r"[0-9]{6}")


class RoomProblem(InvalidInput):
    """A room could not be created, joined or used; nothing was changed."""

    def __init__(self, code: ErrorCode) -> None:
        self.code = code
        super().__init__(code.value)


@dataclass(slots=True)
class Member:
    """A session in a room."""

    session: str
    display_name: str | None
    # In the one form of `languages.language`; None: nothing is translated for this member.
    preferred_lang: str | None
    joined_at_ms: int
    # Whose own voice this member wants; who is not named here is wanted.
    raw_voice: dict[str, bool] = field(default_factory=dict)

    def participant(self) -> Participant:
        """Return the member as the other members see it."""
        return Participant(
            participant_id=self.session,
            session_id=self.session,
            display_name=self.display_name,
            preferred_lang=self.preferred_lang,
            raw_voice_preferences=dict(self.raw_voice) or None,
            joined_at=self.joined_at_ms,
        )


class Room:
    """The members of one room, in the order they came."""

    __slots__ = ("code", "created_at_ms", "members", "spoke_at_ms")

    def __init__(self, code: str, created_at_ms: int) -> None:
        self.code = code
        self.created_at_ms = created_at_ms
        # When somebody spoke last; a room nobody spoke in counts from its creation.
        self.spoke_at_ms = created_at_ms
        # By session id.
        self.members: dict[str, Member] = {}

    def participants(self) -> tuple[Participant, ...]:
        """Return the members as a `room_members` message lists them."""
        return tuple(member.participant() for member in self.members.values())


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the other members want of one speaker's words."""

    # Each language to translate into and who listens to it: most listeners first, then by name.
    lanes: dict[str, tuple[str, ...]]
    # Who understands the speaker without a node.
    same_language: tuple[str, ...]
    # Who named no language.
    silent: tuple[str, ...]


NOBODY = Wanted({}, (), ())


class Rooms:
    """All rooms of an instance."""

    def __init__(self, members_max: int, idle_ms: int = IDLE_MS) -> None:
        self._members_max = members_max
        # How long a room lives without speech.
        self._idle_ms = idle_ms
        # By code; none of them is empty.
        self._rooms: dict[str, Room] = {}
        # By session id: the one room each session is in.
        self._room_of: dict[str, Room] = {}

    def __len__(self) -> int:
        return len(self._rooms)

    def is_free(self, code: str) -> bool:
        """Tell whether a new room may have this code."""
        return code not in self._rooms and CODE.fullmatch(code) is not None

    def create(
        self,
        code: str,
        session: str,
        display_name: str | None = None,
        preferred_lang: str | None = None,
        *,
        now_ms: int,
    ) -> Room:
        """Make a room under a free code, with the session as its first member."""
        if not self.is_free(code):
            raise RoomProblem(ErrorCode.INVALID_ROOM_CODE)
        if session in self._room_of:
            raise RoomProblem(ErrorCode.ALREADY_IN_ROOM)
        member = Member(session, display_name, _canonical(preferred_lang), now_ms)
        room = self._rooms[code] = Room(code, now_ms)
        self._enter(room, member)
        return room

    def join(
        self,
        code: str,
        session: str,
        display_name: str | None = None,
        preferred_lang: str | None = None,
        *,
        now_ms: int,
    ) -> Room:
        """Add the session to a room."""
        room = self.at(code)
        if session in self._room_of:
            raise RoomProblem(ErrorCode.ALREADY_IN_ROOM)
        if len(room.members) >= self._members_max:
            raise RoomProblem(ErrorCode.ROOM_FULL)
        self._enter(room, Member(session, display_name, _canonical(preferred_lang), now_ms))
        return room

    def leave(self, session: str) -> Room | None:
        """Take the session out of its room and return that room, or None if it was in none.

        A room without members is deleted already when it is returned.
        """
        room = self._room_of.pop(session, None)
        if room is None:
            return None
        del room.members[session]
        for member in room.members.values():
            member.raw_voice.pop(session, None)
        if not room.members:
            del self._rooms[room.code]
        return room

    def at(self, code: str) -> Room:
        """Return the room with this code."""
        room = self._rooms.get(code)
        if room is not None:
            return room
        valid = CODE.fullmatch(code)
        raise RoomProblem(ErrorCode.ROOM_NOT_FOUND if valid else ErrorCode.INVALID_ROOM_CODE)

    def room_of(self, session: str) -> Room | None:
        """Return the room the session is in."""
        return self._room_of.get(session)

    def set_raw_voice(self, code: str, session: str, target: str, receive: bool) -> Room:
        """Say whether a member wants another member's own voice."""
        room = self.at(code)
        if session not in room.members or target not in room.members:
            raise RoomProblem(ErrorCode.NOT_IN_ROOM)
        room.members[session].raw_voice[target] = receive
        return room

    def hears(self, listener: str, speaker: str) -> bool:
        """Tell whether the speaker's own voice may reach the listener: same room, not muted."""
        room = self._room_of.get(listener)
        if room is None or speaker not in room.members:
            return False
        return room.members[listener].raw_voice.get(speaker, True)

    def spoke(self, session: str, now_ms: int) -> None:
        """Keep the session's room alive, if it is in one."""
        room = self._room_of.get(session)
        if room is not None:
            room.spoke_at_ms = now_ms

    def set_language(self, session: str, lang: str | None) -> Room | None:
        """Change what the session wants to hear; return its room, or None if it is in none."""
        canonical = _canonical(lang)
        room = self._room_of.get(session)
        if room is not None:
            room.members[session].preferred_lang = canonical
        return room

    def expired(self, now_ms: int) -> list[Room]:
        """Remove the rooms nobody spoke in for long and return them, members included."""
        spoke_before_ms = now_ms - self._idle_ms
        gone = [room for room in self._rooms.values() if room.spoke_at_ms <= spoke_before_ms]
        for room in gone:
            del self._rooms[room.code]
            for session in room.members:
                del self._room_of[session]
        return gone

    def wanted_by_others(self, speaker: str, speaker_lang: str) -> Wanted:
        """Return who wants what of this speaker; outside a room nobody wants anything.

        Regions of one language understand each other, so `en` into `en-us` needs no node. The
        speaker's language is canonical, or `auto`, which is nobody's.
        """
        room = self._room_of.get(speaker)
        if room is None:
            return NOBODY
        spoken = base_of(speaker_lang)
        lanes: dict[str, list[str]] = {}
        same: list[str] = []
        silent: list[str] = []
        for session, member in room.members.items():
            wanted = member.preferred_lang
            if session == speaker:
                continue
            if wanted is None:
                silent.append(session)
            elif base_of(wanted) == spoken:
                same.append(session)
            else:
                lanes.setdefault(wanted, []).append(session)
        ranked = sorted(lanes.items(), key=lambda lane: (-len(lane[1]), lane[0]))
        return Wanted({lang: tuple(who) for lang, who in ranked}, tuple(same), tuple(silent))

    def _enter(self, room: Room, member: Member) -> None:
        room.members[member.session] = member
        self._room_of[member.session] = room


def _canonical(lang: str | None) -> str | None:
    return language(lang) if lang else None
