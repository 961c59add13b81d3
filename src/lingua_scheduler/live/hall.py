"""Rooms, as sessions on this instance see them: what members ask, who hears whom, what is relayed.

The rooms are in the store and span instances. Who hears an utterance is asked once, when it is cut
(`audience_of`), and answered from what is known here (`room_keeper.py`); it stays with the job.
Asks go to the store one after the other (`room_desk.py`).
"""

from __future__ import annotations

import asyncio
import secrets
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from lingua_scheduler.between.letters import Relay
from lingua_scheduler.errors import InvalidInput, StoreUnavailable
from lingua_scheduler.live.guesses import Guesses
from lingua_scheduler.live.profile import Target
from lingua_scheduler.live.room_desk import MovedAway, RoomDesk
from lingua_scheduler.live.room_keeper import RoomKeeper, members_message, room_from
from lingua_scheduler.live.tasks import all_of
from lingua_scheduler.messages.codec import SERVER_MESSAGES
from lingua_scheduler.messages.codes import ErrorCode
from lingua_scheduler.messages.from_client import WebrtcAnswer, WebrtcOffer
from lingua_scheduler.messages.to_client import (
    RoomCreateAck,
    RoomExpired,
    WebrtcAnswerRelay,
    WebrtcIceRelay,
    WebrtcOfferRelay,
)
from lingua_scheduler.session.rooms import RoomProblem, canonical, check_code
from lingua_scheduler.state.policy import HEAR_AT_ONCE
from lingua_scheduler.state.reply import Reply
from lingua_scheduler.state.room_store import Entering, Visit

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from lingua_scheduler.config import Settings
    from lingua_scheduler.live.profile import Profile
    from lingua_scheduler.live.room_keeper import RoomBoard
    from lingua_scheduler.live.session import LiveSession
    from lingua_scheduler.messages.from_client import (
        RoomCreate,
        RoomJoin,
        RoomRawVoicePreference,
        WebrtcIce,
    )
    from lingua_scheduler.session.rooms import Room
    from lingua_scheduler.state.keys import Cell
    from lingua_scheduler.state.room_store import RoomAnswer, RoomStore

CODE_TRIES = 50
# How often the store is told that a room is spoken in, at most.
SPOKE_EVERY_MS = 5_000
# Who is back sooner was never away, as far as others are told.
AWAY_AFTER_MS = 2_000
PROBLEMS = {
    "no_room": ErrorCode.ROOM_NOT_FOUND,
    "full": ErrorCode.ROOM_FULL,
    "not_in": ErrorCode.NOT_IN_ROOM,
}

_signals = SERVER_MESSAGES[1]


class Audience(NamedTuple):
    """Who an utterance is for."""

    targets: tuple[Target, ...]
    # Members who understand the speaker, as a job's spec names them: they read the transcript and
    # need no node.
    readers: str = ""
    is_room: bool = False


class Hall:
    """The rooms of one instance's sessions."""

    def __init__(self, board: RoomBoard, store: RoomStore, settings: Settings) -> None:
        self._board = board
        self._store = store
        self._clock = board.clock
        self._guesses = Guesses(self._clock)
        self._keeper = RoomKeeper(board, store)
        self._desk = RoomDesk(board.tasks, settings.jobs.retry_after_ms)
        self.rooms = self._keeper.rooms
        # Room -> when the store was told last that it is spoken in.
        self._spoke_at_ms: dict[str, float] = {}
        self._spoke_every_ms = min(SPOKE_EVERY_MS, store.idle_ms // 4)
        # Session -> a room it may be in although it was told that it could not enter.
        self._doubtful: dict[str, str] = {}

    # Who hears what

    def is_in_room(self, speaker: LiveSession) -> bool:
        """Tell whether others may hear what is said."""
        return self.rooms.room_of(speaker.id) is not None

    async def audience_of(self, speaker: LiveSession, profile: Profile) -> Audience:
        """Return who hears an utterance now, and in which languages.

        As the store knows it: whoever was told that it is in, or out, on another instance, is. If
        the store is away, as it is known here: who comes in when it is back was not there now.
        """
        room = self.rooms.room_of(speaker.id)
        if room is None:
            return Audience(profile.own_targets())
        self._spoke(speaker.id, room)
        with suppress(StoreUnavailable):
            if await self._store.version(room.code) != room.version:
                room = await self._keeper.latest(room)
        wanted = room.wanted_by_others(speaker.id, profile.source)
        if not wanted.lanes and not wanted.same_language:
            return Audience(profile.own_targets())
        targets = tuple(
            Target(code, code, room.places_of(self._readiest_first(heard_by)))
            for code, heard_by in wanted.lanes.items()
        )
        readers = room.places_of(self._readiest_first(wanted.same_language))
        return Audience(targets, readers, is_room=True)

    def _readiest_first(self, names: tuple[str, ...]) -> Sequence[str]:
        """Return listeners with those last who are behind with reading, as far as that is known.

        In a large room outcomes come to the first ones first.
        """
        if len(names) <= HEAR_AT_ONCE:
            return names
        return sorted(names, key=self._is_behind)

    def _is_behind(self, name: str) -> bool:
        session = self._board.sessions.get(name)
        return session is not None and session.outlet is not None and session.outlet.is_behind

    def _spoke(self, speaker: str, room: Room) -> None:
        now = self._clock.now_ms()
        if now - self._spoke_at_ms.get(room.code, -self._spoke_every_ms) >= self._spoke_every_ms:
            self._spoke_at_ms[room.code] = now
            self._board.tasks.start(self._note_speech(room.code, speaker))

    async def _note_speech(self, code: str, speaker: str) -> None:
        answer = await self._store.spoke(code, speaker)
        if answer.room is not None:
            self.rooms.update(room_from(answer.room))

    # What members ask for

    def create(self, session: LiveSession, ask: RoomCreate) -> None:
        """Make a room with its creator in it."""
        self._move(session, partial(self._create, session, ask))

    def join(self, session: LiveSession, ask: RoomJoin) -> None:
        """Let a session into a room."""
        self._move(session, partial(self._join, session, ask))

    def _move(self, session: LiveSession, step: Callable[[], Awaitable[None]]) -> None:
        """Change where a session is: what it said so far is for those who heard it until now.

        It is cut here, and in the store before anything changes: should this instance die, the
        next owner takes what is not there yet from the client again, for those who are there then.
        """
        session.cut_here()

        async def after_what_was_said() -> None:
            if session.is_resumable:
                await session.admission.taken.wait()
            await step()

        self._desk.ask(session, after_what_was_said)

    def leave(self, session: LiveSession, code: str | None = None) -> None:
        """Take a session out of its room, if it is in one (and in this one).

        Without a code the session ends: nobody waits for an answer, and the store is asked until
        it has taken it.
        """
        if code is None:
            self._desk.ask(session, partial(self._go, session))
        else:
            self._move(session, partial(self._leave, session, code))

    def prefer_raw_voice(self, session: LiveSession, ask: RoomRawVoicePreference) -> None:
        """Note whether a member wants another's own voice."""
        self._desk.ask(session, partial(self._prefer_raw_voice, session, ask))

    def set_language(self, session: LiveSession, code: str) -> None:
        """A member wants to hear another language from now on."""
        self._desk.ask(session, partial(self._set_language, session, canonical(code)))

    def relay(self, session: LiveSession, signal: WebrtcOffer | WebrtcAnswer | WebrtcIce) -> None:
        """Pass signalling to another member, unless that one does not want this voice."""
        self._desk.ask(session, partial(self._relay, session, signal))

    async def _create(self, session: LiveSession, ask: RoomCreate) -> None:
        room = self.rooms.room_of(session.id)
        if room is not None:
            raise RoomProblem(ErrorCode.ALREADY_IN_ROOM, room.code)
        canonical(ask.preferred_lang)
        for _ in range(CODE_TRIES):
            code = f"{secrets.randbelow(1_000_000):06d}"
            answer = await self._enter(session, "create", code, ask)
            if answer.room is not None:
                session.teller.tell(RoomCreateAck(room_code=code, room_id=code))
                self._entered(session, room_from(answer.room))
                return
        raise RuntimeError("no free room code was found: far too many rooms")

    async def _join(self, session: LiveSession, ask: RoomJoin) -> None:
        self._guesses.check(session.id)
        code = self._checked(session, ask.room_code)
        # That there is no such room is said before anything else.
        room = self.rooms.room_of(session.id)
        if room is not None:
            await self._find(session, code)
            raise RoomProblem(ErrorCode.ALREADY_IN_ROOM, room.code)
        try:
            canonical(ask.preferred_lang)
        except InvalidInput:
            await self._find(session, code)
            raise
        answer = await self._enter(session, "join", code, ask)
        if answer.room is None:
            await self._note(session, "")
            raise self._problem_of(session, answer)
        self._entered(session, room_from(answer.room))

    async def _enter(
        self, session: LiveSession, mode: str, code: str, ask: RoomCreate | RoomJoin
    ) -> RoomAnswer:
        await self._leave_doubtful(session.id)
        member = Entering(
            session=session.id, home=session.home.name, instance=self._board.instance,
            lang=canonical(ask.preferred_lang) or "", name=ask.display_name,
        )  # fmt: skip
        await self._note(session, code)
        try:
            return await self._store.enter(mode, code, session.tenant, member)
        except StoreUnavailable:
            self._doubtful[session.id] = code
            raise

    async def _note(self, session: LiveSession, code: str) -> None:
        """Note in a session which room it is in or about to enter, or that it leaves.

        Before anything of it is changed there: it shows that the session is still ours.
        """
        reply = await self._store.note(session.home, session.id, code, session.fence)
        if reply is Reply.FENCED:
            raise MovedAway

    def _entered(self, session: LiveSession, room: Room) -> None:
        if self._board.sessions.get(session.id) is not session:
            # It ended or went on elsewhere while the store was asked.
            self._doubtful[session.id] = room.code
            return
        self.rooms.entered(session.id, room)
        self._keeper.changed(room)

    async def _leave_doubtful(self, session: str) -> None:
        """Leave a room that the session may have entered although the answer was lost."""
        code = self._doubtful.get(session)
        if code is None:
            return
        # If it went on elsewhere and is in the room there, it stays.
        answer = await self._store.leave(code, (Visit(session),), self._board.instance)
        self._doubtful.pop(session, None)
        if answer.room is not None:
            self._keeper.changed(room_from(answer.room))

    async def _find(self, session: LiveSession, code: str) -> None:
        """Raise if there is no such room for this session."""
        self._guesses.check(session.id)
        answer = await self._store.read(code)
        if answer.room is None or answer.room.tenant != session.tenant:
            self._guesses.wrong(session.id)
            raise RoomProblem(ErrorCode.ROOM_NOT_FOUND)

    def _checked(self, session: LiveSession, code: str) -> str:
        try:
            return check_code(code)
        except RoomProblem:
            self._guesses.wrong(session.id)
            raise

    def _problem_of(self, session: LiveSession, answer: RoomAnswer) -> RoomProblem:
        if answer.why == "no_room":
            self._guesses.wrong(session.id)
        return RoomProblem(PROBLEMS[answer.why])

    async def _leave(self, session: LiveSession, code: str) -> None:
        room = self.rooms.room_of(session.id)
        if room is None or room.code != code:
            raise RoomProblem(ErrorCode.NOT_IN_ROOM)
        await self._note(session, "")
        answer = await self._store.leave(code, (visit_of(room, session.id),))
        self._left(session, room, answer)

    async def _go(self, session: LiveSession) -> None:
        insist, store = self._board.insist, self._store
        # Its last words are for this room; who is in it is asked when they are cut.
        await session.admission.addressed()
        await insist(partial(self._leave_doubtful, session.id))
        room = self.rooms.room_of(session.id)
        if room is None:
            return
        await insist(partial(self._note, session, ""))
        visit = visit_of(room, session.id)
        answer = await insist(partial(store.leave, room.code, (visit,)))
        self._left(session, room, answer)

    def _left(self, session: LiveSession, room: Room, answer: RoomAnswer) -> None:
        self.rooms.left(session.id)
        if answer.room is not None:
            self._keeper.changed(room_from(answer.room), room.instances())

    async def _prefer_raw_voice(self, session: LiveSession, ask: RoomRawVoicePreference) -> None:
        room = self.rooms.room_of(session.id)
        if room is None or room.code != ask.room_code:
            await self._find(session, self._checked(session, ask.room_code))
            raise RoomProblem(ErrorCode.NOT_IN_ROOM)
        answer = await self._store.set_voice(
            room.code, session.id, ask.target_session_id, wanted=ask.receive_raw_voice
        )
        if answer.room is None:
            raise RoomProblem(PROBLEMS[answer.why])
        self._keeper.changed(room_from(answer.room))

    async def _set_language(self, session: LiveSession, code: str | None) -> None:
        room = self.rooms.room_of(session.id)
        if room is None:
            return
        await self._note(session, room.code)
        answer = await self._store.set_language(room.code, session.id, code or "")
        if answer.room is not None:
            self._keeper.changed(room_from(answer.room))

    async def _relay(
        self, session: LiveSession, signal: WebrtcOffer | WebrtcAnswer | WebrtcIce
    ) -> None:
        room = self.rooms.room_of(session.id)
        if room is None or room.code != signal.room_code:
            raise RoomProblem(ErrorCode.NOT_IN_ROOM)
        other = room.members.get(signal.to)
        if other is None:
            raise RoomProblem(ErrorCode.ROOM_NOT_FOUND)
        if not room.hears(signal.to, session.id):
            return
        message = relayed(signal, session.id)
        if signal.to in self._board.sessions:
            self._keeper.tell((signal.to,), message)
        elif other.instance != self._board.instance:
            letter = Relay(signal.to, _signals.encode(message))
            await self._board.post.send(other.instance, letter)

    # What other instances tell

    async def room_changed(self, code: str) -> None:
        """Another instance changed a room."""
        await self._keeper.reread(code)

    def relayed(self, session: str, message: bytes) -> None:
        """Signalling of a member on another instance, for one that is here."""
        self._keeper.tell((session,), _signals.decode(message))

    # Sessions that come and go between instances

    async def take_over(self, session: LiveSession) -> None:
        """A session came here from another instance; the store has noted which room it is in."""
        insist, store = self._board.insist, self._store
        code = (await insist(partial(store.noted, session.home, session.id))).room
        if not code:
            return
        answer = await insist(partial(store.set_instance, code, session.id, self._board.instance))
        if self._board.sessions.get(session.id) is not session:
            return
        if answer.room is None:
            gone = RoomExpired(room_code=code, message="the room is not there any more")
            session.teller.tell(gone)
            return
        room = room_from(answer.room)
        self.rooms.entered(session.id, room)
        self.rooms.update(room)
        self._keeper.nudge(code, room.instances())

    def returned(self, session: LiveSession) -> None:
        """A client is there again: it is told who is in its room by now."""
        room = self.rooms.room_of(session.id)
        if room is not None:
            session.teller.tell(members_message(room))
            if room.members[session.id].is_away:
                self._desk.ask(session, partial(self._set_away, session, is_away=False))

    def detached(self, session: LiveSession) -> None:
        """A client's socket is gone and may come back: it stays in its room, as one who is away."""
        if self.rooms.room_of(session.id) is not None:
            self._board.tasks.start(self._away_soon(session))

    async def _away_soon(self, session: LiveSession) -> None:
        await asyncio.sleep(AWAY_AFTER_MS / 1000)
        if session.outlet is None and not session.closing:
            self._desk.ask(session, partial(self._set_away, session, is_away=True))

    async def _set_away(self, session: LiveSession, *, is_away: bool) -> None:
        room = self.rooms.room_of(session.id)
        if room is None or is_away is not (session.outlet is None):
            return
        await self._note(session, room.code)
        answer = await self._store.set_away(room.code, session.id, is_away=is_away)
        if answer.room is not None:
            self._keeper.changed(room_from(answer.room))

    async def replace(self, home: Cell, session: str) -> None:
        """A client began anew in place of a session that it will not come back to."""
        code = (await self._store.noted(home, session)).room
        if code:
            answer = await self._store.leave(code, (Visit(session),))
            if answer.room is not None:
                room = room_from(answer.room)
                self._keeper.changed(room, room.instances())

    def dropped(self, session: LiveSession) -> None:
        """A session is another instance's now: it stays in its room, which is not ours to know."""
        self.rooms.left(session.id)

    # What the clock asks for

    async def refresh(self) -> None:
        """Look at all rooms again, and forget what belongs to sessions that are gone."""
        self._guesses.forget(self._board.sessions)
        for code in [code for code in self._spoke_at_ms if code not in self.rooms]:
            del self._spoke_at_ms[code]
        try:
            await all_of(self._leave_doubtful(name) for name in tuple(self._doubtful))
        finally:
            await self._keeper.refresh()

    async def verify(self) -> None:
        """The store may have lost what it confirmed last: rooms may be what they were before."""
        await self._keeper.verify()

    async def sweep(self, code: str) -> None:
        """A room's timer rang."""
        await self._keeper.sweep(code)


def visit_of(room: Room, session: str) -> Visit:
    """Return a session's stay in a room, as it is known here."""
    member = room.members.get(session)
    return Visit(session, member.joined_at_ms if member is not None else None)


def relayed(
    signal: WebrtcOffer | WebrtcAnswer | WebrtcIce, sender: str
) -> WebrtcOfferRelay | WebrtcAnswerRelay | WebrtcIceRelay:
    """Return signalling as its receiver gets it: `to` names who sent it."""
    if isinstance(signal, WebrtcOffer):
        return WebrtcOfferRelay(room_code=signal.room_code, to=sender, sdp=signal.sdp)
    if isinstance(signal, WebrtcAnswer):
        return WebrtcAnswerRelay(room_code=signal.room_code, to=sender, sdp=signal.sdp)
    return WebrtcIceRelay(room_code=signal.room_code, to=sender, candidate=signal.candidate)
