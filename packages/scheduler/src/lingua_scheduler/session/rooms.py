"""The members of rooms, their languages and their choice of original voices. Pure.

Rooms are in the store; this is what an instance knows of the rooms of its own sessions. A session
is in at most one room. The store decides which sessions may enter (`room_enter.lua`). Nothing is
sent from here: `rooms/` reads the rooms, informs the members and keeps this state up to date.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from lingua_wire.codes import ErrorCode
from lingua_wire.errors import InvalidInput
from lingua_wire.languages import base_of, language
from lingua_wire.shared import Participant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

CODE = re.compile(r"[0-9]{6}")


class RoomProblem(InvalidInput):
    """A room could not be created, joined or used; nothing was changed."""

    def __init__(self, code: ErrorCode, room_code: str = "") -> None:
        self.code = code
        # The room that the session is in, where that is the problem.
        self.room_code = room_code
        super().__init__(code.value)


@dataclass(slots=True)
class RoomMember:
    """A session in a room."""

    session: str
    display_name: str | None
    # In the canonical form of `languages.language`; None: nothing is translated for this member.
    preferred_lang: str | None
    joined_at_ms: int
    # The instance of its client, and the cell of its outbox.
    instance: str = ""
    home: str = ""
    # Whether this member wants a speaker's original voice; the default is yes.
    raw_voice: dict[str, bool] = field(default_factory=dict)
    # Its client is disconnected; after a resume it receives what was said meanwhile.
    is_away: bool = False

    def participant(self) -> Participant:
        """Return the member as shown to the other members."""
        return Participant(
            participant_id=self.session,
            session_id=self.session,
            display_name=self.display_name,
            preferred_lang=self.preferred_lang,
            raw_voice_preferences=dict(self.raw_voice) or None,
            joined_at=self.joined_at_ms,
            is_away=self.is_away or None,
        )


@dataclass(frozen=True, slots=True)
class Wanted:
    """The other members of a room, by what they need of one speaker."""

    # Target language -> its listeners: most listeners first, then by name.
    lanes: dict[str, tuple[str, ...]]
    # Those that understand the speaker without a translation.
    same_language: tuple[str, ...]
    # Those without a language.
    silent: tuple[str, ...]
    # Languages of captions that are a translation of the speaker's, and those that are not.
    read: tuple[str, ...] = ()
    read_same: tuple[str, ...] = ()


@dataclass(slots=True)
class Room:
    """One version of a room."""

    code: str
    tenant: str
    # Increases with every change, also between two rooms with the same code.
    version: int
    created_at_ms: int
    # The time of the last speech, or of the creation.
    spoke_at_ms: int
    # By session id, in the order of entry.
    members: dict[str, RoomMember]
    # Language -> instance -> its readers of captions, who are no members.
    feeds: dict[str, dict[str, int]] = field(default_factory=dict)

    def participants(self) -> tuple[Participant, ...]:
        """Return the members for a `room_members` message."""
        return tuple(member.participant() for member in self.members.values())

    def instances(self) -> set[str]:
        """Return the instances of the members' clients and of readers."""
        reading = {name for instances in self.feeds.values() for name in instances}
        return {member.instance for member in self.members.values()} | reading

    @property
    def readers(self) -> int:
        """Return how many read the captions, as far as it is known."""
        return sum(count for instances in self.feeds.values() for count in instances.values())

    def places_of(self, names: Iterable[str]) -> str:
        """Return the places of members' outboxes: `cell/session`, separated by spaces."""
        return " ".join(f"{self.members[name].home}/{name}" for name in names)

    def hears(self, listener: str, speaker: str) -> bool:
        """Tell whether the listener gets the speaker's original voice: both present, not muted."""
        if listener not in self.members or speaker not in self.members:
            return False
        return self.members[listener].raw_voice.get(speaker, True)

    def wanted_by_others(self, speaker: str, speaker_lang: str) -> Wanted:
        """Return what the other members need of this speaker.

        Regions of one language need no translation, so `en` into `en-us` needs no node. The
        speaker's language is canonical, or `auto`, which equals no member's language.
        """
        spoken = base_of(speaker_lang)
        lanes: dict[str, list[str]] = {}
        same: list[str] = []
        silent: list[str] = []
        for session, member in self.members.items():
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
        read = sorted(self.feeds)
        return Wanted(
            {lang: tuple(who) for lang, who in ranked},
            tuple(same),
            tuple(silent),
            tuple(lang for lang in read if base_of(lang) != spoken),
            tuple(lang for lang in read if base_of(lang) == spoken),
        )


class LocalRooms:
    """The rooms that sessions of this instance are in."""

    def __init__(self) -> None:
        # By code: the latest known version. Each room has at least one session of this instance.
        self._rooms: dict[str, Room] = {}
        # By session id of this instance: the code of its room.
        self._code_of: dict[str, str] = {}
        # Tells whether a session of this instance is in a room, without a call of ours.
        self.has_member: Callable[[str], bool] = self._code_of.__contains__
        # By code: the sessions of this instance in it, in the order of entry.
        self._ours: dict[str, dict[str, None]] = {}

    def __len__(self) -> int:
        return len(self._rooms)

    def __contains__(self, code: object) -> bool:
        return code in self._rooms

    def codes(self) -> tuple[str, ...]:
        """Return the codes of all known rooms."""
        return tuple(self._rooms)

    def at(self, code: str) -> Room | None:
        """Return the latest known version of a room."""
        return self._rooms.get(code)

    def room_of(self, session: str) -> Room | None:
        """Return the room of a session of this instance."""
        code = self._code_of.get(session)
        return self._rooms[code] if code is not None else None

    def ours(self, code: str) -> tuple[str, ...]:
        """Return the sessions of this instance in a room."""
        return tuple(self._ours.get(code, ()))

    def entered(self, session: str, room: Room) -> None:
        """Record that a session of this instance entered a room."""
        self.left(session)
        self._code_of[session] = room.code
        self._ours.setdefault(room.code, {})[session] = None
        self._rooms.setdefault(room.code, room)

    def left(self, session: str) -> None:
        """Record that a session left its room; a room without other local sessions is forgotten."""
        code = self._code_of.pop(session, None)
        if code is None:
            return
        ours = self._ours[code]
        del ours[session]
        if not ours:
            del self._ours[code], self._rooms[code]

    def update(self, room: Room) -> bool:
        """Store a version of a known room; tells whether it is the latest."""
        known = self._rooms.get(room.code)
        if known is None or room.version < known.version:
            return False
        self._rooms[room.code] = room
        return True

    def accept_any_version(self, code: str) -> None:
        """Accept any next version, because the store may have lost writes."""
        self._rooms[code] = replace(self._rooms[code], version=0)

    def end(self, code: str) -> tuple[str, ...]:
        """Forget a room; returns the local sessions that were in it."""
        ours = self.ours(code)
        for session in ours:
            self.left(session)
        return ours


def captions_of(code: str, lang: str) -> str:
    """Return the listener that stands for a room's captions in a language."""
    return f"@{code}|{lang}"


def check_code(code: str) -> str:
    """Return a code if it is valid."""
    if CODE.fullmatch(code) is None:
        raise RoomProblem(ErrorCode.INVALID_ROOM_CODE)
    return code


def canonical(lang: str | None) -> str | None:
    """Return the canonical form of a wanted language; None is allowed."""
    return language(lang) if lang else None
