"""Who shares a room, who wants which language, who wants whose own voice. Pure.

Rooms live in the store; these are what an instance knows of the rooms its own sessions are in. A
session is in at most one. Who may enter is decided in the store (`room_enter.lua`); here is what
follows from who is in. Nothing is sent from here: `live/hall.py` asks, tells and keeps these up to
date.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from lingua_scheduler.errors import InvalidInput
from lingua_scheduler.languages import base_of, language
from lingua_scheduler.messages.codes import ErrorCode
from lingua_scheduler.messages.shared import Participant

if TYPE_CHECKING:
    from collections.abc import Iterable

CODE = re.compile(r"[0-9]{6}")


class RoomProblem(InvalidInput):
    """A room could not be created, joined or used; nothing was changed."""

    def __init__(self, code: ErrorCode, room_code: str = "") -> None:
        self.code = code
        # The room that the session is in, where that is the problem.
        self.room_code = room_code
        super().__init__(code.value)


@dataclass(slots=True)
class Member:
    """A session in a room."""

    session: str
    display_name: str | None
    # In the one form of `languages.language`; None: nothing is translated for this member.
    preferred_lang: str | None
    joined_at_ms: int
    # The instance that has its client, and the cell of its outbox.
    instance: str = ""
    home: str = ""
    # Whose own voice this member wants; who is not named here is wanted.
    raw_voice: dict[str, bool] = field(default_factory=dict)
    # Its client's socket is gone; it may come back, and hears then what was said meanwhile.
    is_away: bool = False

    def participant(self) -> Participant:
        """Return the member as the other members see it."""
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
    """What the other members want of one speaker's words."""

    # Each language to translate into and who listens to it: most listeners first, then by name.
    lanes: dict[str, tuple[str, ...]]
    # Who understands the speaker without a node.
    same_language: tuple[str, ...]
    # Who named no language.
    silent: tuple[str, ...]


@dataclass(slots=True)
class Room:
    """One room as it was at one version; a change makes another one."""

    code: str
    tenant: str
    # Grows with every change, also from a room to a later one under the same code.
    version: int
    created_at_ms: int
    # When somebody spoke last; a room nobody spoke in counts from its creation.
    spoke_at_ms: int
    # By session id, in the order they came.
    members: dict[str, Member]

    def participants(self) -> tuple[Participant, ...]:
        """Return the members as a `room_members` message lists them."""
        return tuple(member.participant() for member in self.members.values())

    def instances(self) -> set[str]:
        """Return where the members' clients are."""
        return {member.instance for member in self.members.values()}

    def places_of(self, names: Iterable[str]) -> str:
        """Return where members' outboxes are: `cell/session` of each, with spaces between."""
        return " ".join(f"{self.members[name].home}/{name}" for name in names)

    def hears(self, listener: str, speaker: str) -> bool:
        """Tell whether the speaker's own voice may reach the listener: both here, not muted."""
        if listener not in self.members or speaker not in self.members:
            return False
        return self.members[listener].raw_voice.get(speaker, True)

    def wanted_by_others(self, speaker: str, speaker_lang: str) -> Wanted:
        """Return who wants what of this speaker.

        Regions of one language understand each other, so `en` into `en-us` needs no node. The
        speaker's language is canonical, or `auto`, which is nobody's.
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
        return Wanted({lang: tuple(who) for lang, who in ranked}, tuple(same), tuple(silent))


class Rooms:
    """The rooms that sessions of this instance are in."""

    def __init__(self) -> None:
        # By code: the latest version seen. None of them is without a session of ours.
        self._rooms: dict[str, Room] = {}
        # By session id: the code of the one room each of our sessions is in.
        self._code_of: dict[str, str] = {}
        # By code: our sessions in it, in the order they came here.
        self._ours: dict[str, dict[str, None]] = {}

    def __len__(self) -> int:
        return len(self._rooms)

    def __contains__(self, code: object) -> bool:
        return code in self._rooms

    def codes(self) -> tuple[str, ...]:
        """Return the codes of all rooms known here."""
        return tuple(self._rooms)

    def at(self, code: str) -> Room | None:
        """Return a room as it was seen last."""
        return self._rooms.get(code)

    def room_of(self, session: str) -> Room | None:
        """Return the room one of our sessions is in."""
        code = self._code_of.get(session)
        return self._rooms[code] if code is not None else None

    def ours(self, code: str) -> tuple[str, ...]:
        """Return our sessions in a room."""
        return tuple(self._ours.get(code, ()))

    def entered(self, session: str, room: Room) -> None:
        """One of our sessions is in a room now, which it is told to be."""
        self.left(session)
        self._code_of[session] = room.code
        self._ours.setdefault(room.code, {})[session] = None
        self._rooms.setdefault(room.code, room)

    def left(self, session: str) -> None:
        """One of our sessions is in no room any more; a room without any of ours is forgotten."""
        code = self._code_of.pop(session, None)
        if code is None:
            return
        ours = self._ours[code]
        del ours[session]
        if not ours:
            del self._ours[code], self._rooms[code]

    def update(self, room: Room) -> bool:
        """Take a version of a room of ours; tells whether it is the latest one known."""
        known = self._rooms.get(room.code)
        if known is None or room.version < known.version:
            return False
        self._rooms[room.code] = room
        return True

    def doubt(self, code: str) -> None:
        """The store may have gone back: whatever version is seen next is the latest."""
        self._rooms[code] = replace(self._rooms[code], version=0)

    def end(self, code: str) -> tuple[str, ...]:
        """Forget a room; returns our sessions that were in it."""
        ours = self.ours(code)
        for session in ours:
            self.left(session)
        return ours


def check_code(code: str) -> str:
    """Return a code if a room may have it."""
    if CODE.fullmatch(code) is None:
        raise RoomProblem(ErrorCode.INVALID_ROOM_CODE)
    return code


def canonical(lang: str | None) -> str | None:
    """Return the one form of a language somebody wants to hear; none at all is allowed."""
    return language(lang) if lang else None
