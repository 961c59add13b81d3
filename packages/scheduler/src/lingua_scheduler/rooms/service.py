"""What members of rooms ask for: create, join, leave, languages, voices, signalling.

Commands go to the store one after the other (`command_queue.py`). A session that changes its room
ends its utterance first: speech up to then is for its former audience.
"""

from __future__ import annotations

import secrets
from functools import partial
from typing import TYPE_CHECKING

from lingua_scheduler.errors import StoreUnavailable
from lingua_scheduler.peers.messages import ClientMessage
from lingua_scheduler.rooms.cache import room_from
from lingua_scheduler.rooms.command_queue import MovedAway
from lingua_scheduler.rooms.guesses import Guesses
from lingua_scheduler.session.rooms import RoomProblem, canonical, check_code
from lingua_scheduler.state.reply import Reply
from lingua_scheduler.state.room_scripts import RoomEntry, RoomVisit
from lingua_scheduler.tasks import all_of
from lingua_wire.codec import SERVER_MESSAGES
from lingua_wire.codes import ErrorCode
from lingua_wire.errors import InvalidInput
from lingua_wire.from_client import WebrtcAnswer, WebrtcOffer
from lingua_wire.to_client import (
    RoomCreateAck,
    WebrtcAnswerRelay,
    WebrtcIceRelay,
    WebrtcOfferRelay,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lingua_scheduler.rooms.cache import RoomCache
    from lingua_scheduler.rooms.command_queue import RoomCommandQueue
    from lingua_scheduler.rooms.member import MemberSession
    from lingua_scheduler.session.rooms import Room
    from lingua_scheduler.state.retry import StoreRetry
    from lingua_scheduler.state.room_scripts import RoomAnswer
    from lingua_wire.from_client import (
        RoomCreate,
        RoomJoin,
        RoomRawVoicePreference,
        WebrtcIce,
    )

    Signal = WebrtcOffer | WebrtcAnswer | WebrtcIce

CODE_TRIES = 50
PROBLEMS = {
    "no_room": ErrorCode.ROOM_NOT_FOUND,
    "full": ErrorCode.ROOM_FULL,
    "not_in": ErrorCode.NOT_IN_ROOM,
}

_signals = SERVER_MESSAGES[1]


class RoomService:
    """The commands of this instance's sessions about rooms."""

    def __init__(self, cache: RoomCache, queue: RoomCommandQueue, retry: StoreRetry) -> None:
        self._cache = cache
        self._queue = queue
        self._retry = retry
        self._store = cache.store
        self._rooms = cache.rooms
        self._guesses = Guesses(cache.clock)
        # Session -> a room it may be in although its client got an error.
        self._doubtful: dict[str, str] = {}

    # Commands

    def create(self, session: MemberSession, command: RoomCreate) -> None:
        """Make a room with its creator in it."""
        self._move(session, partial(self._create, session, command))

    def join(self, session: MemberSession, command: RoomJoin) -> None:
        """Let a session into a room."""
        self._move(session, partial(self._join, session, command))

    def leave(self, session: MemberSession, code: str) -> None:
        """Take a session out of this room.

        A client repeats it after a lost connection, to be sure. If there is nothing to leave, what
        is being said is not cut for it.
        """
        step, room = partial(self._leave, session, code), self._room_of(session)
        is_elsewhere = room is None or room.code != code
        if is_elsewhere and self._queue.is_idle(session):
            self._queue.add(session, step)
        else:
            self._move(session, step)

    def end(self, session: MemberSession) -> None:
        """Remove a session that ends from its room; repeated until it is stored."""
        self._queue.add(session, partial(self._end, session))

    def prefer_raw_voice(self, session: MemberSession, command: RoomRawVoicePreference) -> None:
        """Note whether a member wants the original voice of another."""
        self._queue.add(session, partial(self._prefer_raw_voice, session, command))

    def set_language(self, session: MemberSession, code: str) -> None:
        """Change the language that a member listens in."""
        self._queue.add(session, partial(self._set_language, session, canonical(code)))

    def relay(self, session: MemberSession, signal: Signal) -> None:
        """Pass signalling to another member, unless that member does not want this voice."""
        self._queue.add(session, partial(self._relay, session, signal))

    def code_of(self, session: MemberSession) -> str:
        """Return the code of a session's room, '' if it is in none."""
        room = self._room_of(session)
        return room.code if room is not None else ""

    def receive_relayed(self, session: str, message: bytes) -> None:
        """Pass on signalling of a member on another instance to a member here."""
        self._cache.send((session,), _signals.decode(message))

    async def refresh(self) -> None:
        """Leave rooms that were entered by an answer that was lost; forget ended sessions."""
        self._guesses.forget(self._cache.sessions)
        await all_of(self._leave_doubtful(name) for name in tuple(self._doubtful))

    def _move(self, session: MemberSession, step: Callable[[], Awaitable[None]]) -> None:
        """Change the room of a session, after its speech so far is cut and stored.

        If this instance dies before, the next owner asks the client for speech that is not stored,
        which is then for the members of that time.
        """
        session.input.cut_here()

        async def after_what_was_said() -> None:
            if session.record.is_resumable:
                await session.input.until_taken()
            await step()

        self._queue.add(session, after_what_was_said)

    # Entering

    async def _create(self, session: MemberSession, command: RoomCreate) -> None:
        room = self._room_of(session)
        if room is not None:
            raise RoomProblem(ErrorCode.ALREADY_IN_ROOM, room.code)
        canonical(command.preferred_lang)
        for _ in range(CODE_TRIES):
            code = f"{secrets.randbelow(1_000_000):06d}"
            answer = await self._enter(session, "create", code, command)
            if answer.room is not None:
                session.notifier.send(RoomCreateAck(room_code=code, room_id=code))
                self._entered(session, room_from(answer.room))
                return
        raise RuntimeError("no free room code was found: far too many rooms")

    async def _join(self, session: MemberSession, command: RoomJoin) -> None:
        self._guesses.check(session.record.id)
        code = self._checked(session, command.room_code)
        # A missing room is reported before anything else.
        room = self._room_of(session)
        if room is not None:
            await self._find(session, code)
            raise RoomProblem(ErrorCode.ALREADY_IN_ROOM, room.code)
        try:
            canonical(command.preferred_lang)
        except InvalidInput:
            await self._find(session, code)
            raise
        answer = await self._enter(session, "join", code, command)
        if answer.room is None:
            await self._note(session, "")
            raise self._problem_of(session, answer)
        self._entered(session, room_from(answer.room))

    async def _enter(
        self, session: MemberSession, mode: str, code: str, command: RoomCreate | RoomJoin
    ) -> RoomAnswer:
        record = session.record
        await self._leave_doubtful(record.id)
        member = RoomEntry(
            session=record.id,
            home=record.home.name,
            instance=self._cache.peers.instance,
            lang=canonical(command.preferred_lang) or "",
            name=command.display_name,
        )
        await self._note(session, code)
        try:
            return await self._store.enter(mode, code, record.tenant, member)
        except StoreUnavailable:
            self._doubtful[record.id] = code
            raise

    def _entered(self, session: MemberSession, room: Room) -> None:
        name = session.record.id
        if self._cache.sessions.get(name) is not session:
            # It ended or moved to another instance while the store was asked.
            self._doubtful[name] = room.code
            return
        self._rooms.entered(name, room)
        self._cache.changed(room)

    async def _leave_doubtful(self, session: str) -> None:
        """Leave a room that the session may have entered although the answer was lost."""
        code = self._doubtful.get(session)
        if code is None:
            return
        # If it moved to another instance and is in the room there, it stays.
        answer = await self._store.leave(code, (RoomVisit(session),), self._cache.peers.instance)
        self._doubtful.pop(session, None)
        if answer.room is not None:
            self._cache.changed(room_from(answer.room))

    async def _find(self, session: MemberSession, code: str) -> None:
        """Raise if there is no such room for this session."""
        name = session.record.id
        self._guesses.check(name)
        answer = await self._store.read(code)
        if answer.room is None or answer.room.tenant != session.record.tenant:
            self._guesses.wrong(name)
            raise RoomProblem(ErrorCode.ROOM_NOT_FOUND)

    def _checked(self, session: MemberSession, code: str) -> str:
        try:
            return check_code(code)
        except RoomProblem:
            self._guesses.wrong(session.record.id)
            raise

    def _problem_of(self, session: MemberSession, answer: RoomAnswer) -> RoomProblem:
        if answer.why == "no_room":
            self._guesses.wrong(session.record.id)
        return RoomProblem(PROBLEMS[answer.why])

    # Leaving

    async def _leave(self, session: MemberSession, code: str) -> None:
        room = self._room_of(session)
        if room is None or room.code != code:
            raise RoomProblem(ErrorCode.NOT_IN_ROOM)
        await self._note(session, "")
        answer = await self._store.leave(code, (visit_of(room, session.record.id),))
        self._left(session, room, answer)

    async def _end(self, session: MemberSession) -> None:
        until_stored, name = self._retry.until_stored, session.record.id
        # Its last utterance is for this room; the audience is found when it is cut.
        await session.input.until_addressed()
        await until_stored(partial(self._leave_doubtful, name))
        room = self._room_of(session)
        if room is None:
            return
        await until_stored(partial(self._note, session, ""))
        visit = visit_of(room, name)
        answer = await until_stored(partial(self._store.leave, room.code, (visit,)))
        self._left(session, room, answer)

    def _left(self, session: MemberSession, room: Room, answer: RoomAnswer) -> None:
        self._rooms.left(session.record.id)
        if answer.room is not None:
            self._cache.changed(room_from(answer.room), room.instances())
        else:
            # It has ended: nobody is left but readers.
            self._cache.watcher.room_changed(room.code)
            self._cache.nudge(room.code, room.instances())

    # While in a room

    async def _prefer_raw_voice(
        self, session: MemberSession, command: RoomRawVoicePreference
    ) -> None:
        room = self._room_of(session)
        if room is None or room.code != command.room_code:
            await self._find(session, self._checked(session, command.room_code))
            raise RoomProblem(ErrorCode.NOT_IN_ROOM)
        answer = await self._store.set_voice(
            room.code,
            session.record.id,
            command.target_session_id,
            wanted=command.receive_raw_voice,
        )
        if answer.room is None:
            raise RoomProblem(PROBLEMS[answer.why])
        self._cache.changed(room_from(answer.room))

    async def _set_language(self, session: MemberSession, code: str | None) -> None:
        room = self._room_of(session)
        if room is None:
            return
        await self._note(session, room.code)
        answer = await self._store.set_language(room.code, session.record.id, code or "")
        if answer.room is not None:
            self._cache.changed(room_from(answer.room))

    async def _relay(self, session: MemberSession, signal: Signal) -> None:
        room, name = self._room_of(session), session.record.id
        if room is None or room.code != signal.room_code:
            raise RoomProblem(ErrorCode.NOT_IN_ROOM)
        other = room.members.get(signal.to)
        if other is None:
            raise RoomProblem(ErrorCode.ROOM_NOT_FOUND)
        if not room.hears(signal.to, name):
            return
        message, peers = relayed(signal, name), self._cache.peers
        if signal.to in self._cache.sessions:
            self._cache.send((signal.to,), message)
        elif other.instance != peers.instance:
            await peers.send(other.instance, ClientMessage(signal.to, _signals.encode(message)))

    def _room_of(self, session: MemberSession) -> Room | None:
        return self._rooms.room_of(session.record.id)

    async def _note(self, session: MemberSession, code: str) -> None:
        """Store with a session which room it is in or about to enter, or that it leaves.

        This comes before any change of the room, because it proves that the session is still ours.
        """
        record = session.record
        reply = await self._store.note(record.home, record.id, code, record.fence)
        if reply is Reply.FENCED:
            raise MovedAway


def visit_of(room: Room, session: str) -> RoomVisit:
    """Return a session's stay in a room, as it is known here."""
    member = room.members.get(session)
    return RoomVisit(session, member.joined_at_ms if member is not None else None)


def relayed(signal: Signal, sender: str) -> WebrtcOfferRelay | WebrtcAnswerRelay | WebrtcIceRelay:
    """Return signalling as its receiver gets it: `to` names the sender."""
    if isinstance(signal, WebrtcOffer):
        return WebrtcOfferRelay(room_code=signal.room_code, to=sender, sdp=signal.sdp)
    if isinstance(signal, WebrtcAnswer):
        return WebrtcAnswerRelay(room_code=signal.room_code, to=sender, sdp=signal.sdp)
    return WebrtcIceRelay(room_code=signal.room_code, to=sender, candidate=signal.candidate)
