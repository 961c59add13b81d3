"""Rooms on this instance: who is in them, who hears whom, and what they are told.

The rules are in `session/rooms.py`; here are the messages. A room lives on one instance.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, NamedTuple

from lingua_scheduler.errors import InvalidInput
from lingua_scheduler.live.profile import Target
from lingua_scheduler.messages.codes import ErrorCode
from lingua_scheduler.messages.from_client import WebrtcAnswer, WebrtcOffer
from lingua_scheduler.messages.to_client import (
    RoomCreateAck,
    RoomError,
    RoomExpired,
    RoomMembers,
    WebrtcAnswerRelay,
    WebrtcIceRelay,
    WebrtcOfferRelay,
)
from lingua_scheduler.session.rate import TokenBucket
from lingua_scheduler.session.rooms import RoomProblem, Rooms

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lingua_scheduler.config import Settings
    from lingua_scheduler.live.clock import Clock
    from lingua_scheduler.live.profile import Profile
    from lingua_scheduler.live.session import LiveSession
    from lingua_scheduler.messages.from_client import (
        RoomCreate,
        RoomJoin,
        RoomRawVoicePreference,
        WebrtcIce,
    )
    from lingua_scheduler.messages.to_client import ToClient
    from lingua_scheduler.session.rooms import Room

CODE_TRIES = 50
# Wrong room codes, all sessions together: a million codes outlast any room.
GUESSES_PER_S = 20
GUESSES_AT_ONCE = 200


class Audience(NamedTuple):
    """Who an utterance is for."""

    targets: tuple[Target, ...]
    # Members who understand the speaker: they read the transcript and need no node.
    same_language: tuple[str, ...] = ()
    is_room: bool = False


class Hall:
    """The rooms of one instance."""

    def __init__(
        self, sessions: Mapping[str, LiveSession], settings: Settings, clock: Clock
    ) -> None:
        self._sessions = sessions
        self._clock = clock
        self._guesses = TokenBucket(GUESSES_PER_S, GUESSES_AT_ONCE)
        self.rooms = Rooms(settings.rooms.members_max, settings.rooms.idle_ms)

    def audience_of(self, speaker: LiveSession, profile: Profile) -> Audience:
        """Return who hears an utterance now, and in which languages."""
        room = self.rooms.room_of(speaker.id)
        if room is None:
            return Audience(profile.own_targets())
        self.rooms.spoke(speaker.id, self._clock.wall_ms())
        wanted = self.rooms.wanted_by_others(speaker.id, profile.source)
        if not wanted.lanes and not wanted.same_language:
            return Audience(profile.own_targets())
        targets = tuple(Target(code, code, heard_by) for code, heard_by in wanted.lanes.items())
        return Audience(targets, wanted.same_language, is_room=True)

    def listeners_of(self, speaker: LiveSession, lane: str) -> tuple[str, ...] | None:
        """Return who in the speaker's room wants a language now; None if there is no room."""
        if self.rooms.room_of(speaker.id) is None:
            return None
        wanted = self.rooms.wanted_by_others(speaker.id, speaker.profile.source)
        return wanted.lanes.get(lane)

    def send_to(self, listeners: Iterable[str], message: ToClient) -> None:
        """Send an outcome to those of its listeners who have not left meanwhile."""
        self._tell((name for name in listeners if self.rooms.room_of(name) is not None), message)

    def _tell(self, names: Iterable[str], message: ToClient) -> None:
        for name in names:
            session = self._sessions.get(name)
            if session is not None:
                session.teller.tell(message)

    # What members ask for

    def create(self, session: LiveSession, ask: RoomCreate) -> None:
        """Make a room with its creator in it."""
        code = self._free_code()
        try:
            room = self.rooms.create(
                code, session.id, display_name=ask.display_name,
                preferred_lang=ask.preferred_lang, now_ms=self._clock.wall_ms(),
            )  # fmt: skip
        except InvalidInput as problem:
            self._refuse(session, problem)
            return
        session.teller.tell(RoomCreateAck(room_code=code, room_id=code))
        self._tell_members(room)

    def join(self, session: LiveSession, ask: RoomJoin) -> None:
        """Let a session into a room."""
        try:
            self._check_code(session, ask.room_code)
            room = self.rooms.join(
                ask.room_code, session.id, display_name=ask.display_name,
                preferred_lang=ask.preferred_lang, now_ms=self._clock.wall_ms(),
            )  # fmt: skip
        except InvalidInput as problem:
            self._refuse(session, problem)
            return
        self._tell_members(room)

    def _check_code(self, session: LiveSession, code: str) -> None:
        """Another tenant's room is none at all; wrong codes are few, so that none is guessed."""
        if self._guesses.wait_ms(self._clock.now_ms()):
            raise RoomProblem(ErrorCode.RATE_LIMITED)
        try:
            room = self.rooms.at(code)
        except RoomProblem:
            self._guesses.take(self._clock.now_ms())
            raise
        member = self._sessions.get(next(iter(room.members)))
        if member is not None and member.tenant != session.tenant:
            self._guesses.take(self._clock.now_ms())
            raise RoomProblem(ErrorCode.ROOM_NOT_FOUND)

    def leave(self, session: LiveSession, code: str | None = None) -> None:
        """Take a session out of its room, if it is in one (and in this one)."""
        room = self.rooms.room_of(session.id)
        if room is None or (code is not None and room.code != code):
            if code is not None:
                self._refuse(session, RoomProblem(ErrorCode.NOT_IN_ROOM))
            return
        self.rooms.leave(session.id)
        self._tell_members(room)

    def prefer_raw_voice(self, session: LiveSession, ask: RoomRawVoicePreference) -> None:
        """Note whether a member wants another's own voice."""
        try:
            self.rooms.set_raw_voice(
                ask.room_code, session.id, ask.target_session_id, ask.receive_raw_voice
            )
        except RoomProblem as problem:
            self._refuse(session, problem)
            return
        room = self.rooms.room_of(session.id)
        assert room is not None
        self._tell_members(room)

    def set_language(self, session: LiveSession, code: str) -> None:
        """A member wants to hear another language from now on."""
        self.rooms.set_language(session.id, code)
        room = self.rooms.room_of(session.id)
        if room is not None:
            self._tell_members(room)

    def relay(self, session: LiveSession, signal: WebrtcOffer | WebrtcAnswer | WebrtcIce) -> None:
        """Pass signalling to another member, unless that one does not want this voice."""
        room = self.rooms.room_of(session.id)
        other = self.rooms.room_of(signal.to)
        if room is None or room.code != signal.room_code:
            self._refuse(session, RoomProblem(ErrorCode.NOT_IN_ROOM))
        elif other is not room:
            self._refuse(session, RoomProblem(ErrorCode.ROOM_NOT_FOUND))
        elif self.rooms.hears(signal.to, session.id):
            self._tell((signal.to,), relayed(signal, session.id))

    def expire(self) -> None:
        """End rooms in which nobody spoke for long."""
        for room in self.rooms.expired(self._clock.wall_ms()):
            gone = RoomExpired(room_code=room.code, message="nobody spoke for a long time")
            self._tell(room.members, gone)

    def _tell_members(self, room: Room) -> None:
        members = RoomMembers(room_code=room.code, members=room.participants())
        self._tell(tuple(room.members), members)

    def _free_code(self) -> str:
        for _ in range(CODE_TRIES):
            code = f"{secrets.randbelow(1_000_000):06d}"
            if self.rooms.is_free(code):
                return code
        raise RuntimeError("no free room code was found: far too many rooms")

    def _refuse(self, session: LiveSession, problem: InvalidInput) -> None:
        code = problem.code if isinstance(problem, RoomProblem) else ErrorCode.INVALID_MESSAGE
        session.teller.tell(RoomError(code=code, message=str(problem)))


def relayed(
    signal: WebrtcOffer | WebrtcAnswer | WebrtcIce, sender: str
) -> WebrtcOfferRelay | WebrtcAnswerRelay | WebrtcIceRelay:
    """Return signalling as its receiver gets it: `to` names who sent it."""
    if isinstance(signal, WebrtcOffer):
        return WebrtcOfferRelay(room_code=signal.room_code, to=sender, sdp=signal.sdp)
    if isinstance(signal, WebrtcAnswer):
        return WebrtcAnswerRelay(room_code=signal.room_code, to=sender, sdp=signal.sdp)
    return WebrtcIceRelay(room_code=signal.room_code, to=sender, candidate=signal.candidate)
