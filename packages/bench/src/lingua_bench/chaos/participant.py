"""One participant of a room: the client SDK, or a bare socket of the older protocol.

Both offer the same operations; what they receive is in their `MessageRecorder`. A request for a
change of membership is recorded before it is sent. One that cannot continue raises `Lost`.
"""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import asynccontextmanager
from time import monotonic
from typing import TYPE_CHECKING, Final, Protocol

from lingua_bench.chaos import marked_audio
from lingua_bench.chaos.history import CutRequested
from lingua_bench.chaos.message_recorder import MessageRecorder, record_dials_as
from lingua_bench.chaos.message_recorder import dial as dial_listening
from lingua_client import RoomRefused, connect
from lingua_wire.codec import CLIENT_MESSAGES, SERVER_MESSAGES
from lingua_wire.codes import ErrorCode
from lingua_wire.errors import LinguaError
from lingua_wire.from_client import (
    AudioChunk,
    RoomCreate,
    RoomJoin,
    RoomLeave,
    SessionClose,
    SessionInit,
    SessionUpdate,
)
from lingua_wire.socket_client import SocketCodecs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from lingua_bench.chaos.history import AnyLine
    from lingua_client import Session
    from lingua_wire.from_client import FromClient

# How long a request may take, kills of instances and of the store included.
ASK_S: Final = 12.0
OPEN_S: Final = 30.0
CLOSE_S: Final = 15.0
SILENCE_S: Final = 5.0
AGAIN_S: Final = 1.5
# One participant in so many wants no partial texts.
PARTIALS_EVERY: Final = 5


class Lost(LinguaError):
    """A participant cannot continue: another one takes its seat."""


class NoRoom(LinguaError):
    """The room does not exist any more."""


class ParticipantConnection(Protocol):
    """How a participant is connected to the scheduler."""

    async def send(self, chunk: bytes) -> None:
        """Send a chunk."""

    async def cut(self) -> None:
        """End the utterance."""

    async def create(self, lang: str) -> str:
        """Create a room and return its code."""

    async def join(self, code: str, lang: str) -> None:
        """Enter a room."""

    async def leave(self, code: str) -> None:
        """Leave the room."""

    async def move(self) -> None:
        """Move to another instance, if that is possible."""

    async def close(self) -> None:
        """End the session after all outcomes."""


class RoomParticipant:
    """One participant; it is open inside `async with participant.open(urls)`."""

    def __init__(self, messages: MessageRecorder, note: Callable[[AnyLine], None]) -> None:
        self.messages = messages
        self.number = messages.participant
        # The language it speaks, and the one it wants to hear; empty for none.
        self.source = self.lang = messages.source
        # The room that it believes to be in.
        self.room = ""
        self.said = 0
        self._note = note
        self._connection: ParticipantConnection

    @asynccontextmanager
    async def open(self, urls: Sequence[str]) -> AsyncIterator[None]:
        """Open a session, of the SDK or of the older protocol."""
        record_dials_as(self.messages)
        opened = (
            _old_connection(self.messages, urls[0])
            if self.messages.kind == "old"
            else _sdk_connection(self.messages, urls)
        )
        try:
            async with opened as self._connection:
                yield
        except (OSError, TimeoutError) as error:
            raise Lost(f"{type(error).__name__}: {error}") from error

    # Speaking

    async def begin(self, chunks: int, pace_s: float = 0.0) -> None:
        """Send the chunks of the next utterance, with a pause after each."""
        for place in range(chunks):
            await self._connection.send(marked_audio.chunk(self.number, self.said, place))
            await asyncio.sleep(pace_s)

    async def end(self, chunks: int) -> None:
        """End the utterance."""
        self.mark(chunks, "final")
        await self._connection.cut()

    def mark(self, chunks: int, by: str) -> int:
        """Record that an utterance is about to be cut, by request or by a change; return it."""
        self._note(
            CutRequested(
                at=monotonic(),
                participant=self.number,
                number=self.said,
                chunks=chunks,
                place=self.said,
                by=by,
            )
        )
        self.said += 1
        return self.said - 1

    async def be_cut(self, number: int) -> None:
        """Cut an utterance that a change should have cut, if the server did not."""
        messages = self.messages
        if messages.kind == "old" or not await messages.until(
            lambda: number in messages.accepted, AGAIN_S
        ):
            await self._connection.cut()

    # Rooms

    async def create(self) -> str:
        """Create a room and enter it."""
        self.messages.ask("create", "", self.lang)
        self.room = await self._connection.create(self.lang)
        return self.room

    async def join(self, code: str) -> None:
        """Enter a room; raises `NoRoom`."""
        self.messages.ask("join", code, self.lang)
        self.room = code
        try:
            await self._connection.join(code, self.lang)
        except NoRoom:
            self.room = ""
            raise

    async def leave(self) -> None:
        """Leave the room."""
        self.messages.ask("leave", self.room)
        await self._connection.leave(self.room)
        self.room = ""

    async def request_language(self, lang: str) -> None:
        """Request another language, until the roster has it."""
        messages = self.messages

        def is_told() -> bool:
            return messages.members.get(messages.session) == lang and messages.room == self.room

        self.lang = lang
        messages.ask("language", self.room, lang)
        until = monotonic() + ASK_S
        while monotonic() < until and not messages.is_abandoned:
            if messages.socket is not None:
                messages.socket.send(
                    SessionUpdate(session_id=messages.session, preferred_lang=lang)
                )
            if await messages.until(is_told, AGAIN_S):
                return
        raise Lost("a change of language was not answered")

    async def move(self) -> None:
        """Move to another instance."""
        await self._connection.move()

    # The end

    async def close(self) -> None:
        """End the session; waits for all outcomes."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await self._connection.close()

    def abandon(self) -> None:
        """Drop the connection without closing the session."""
        self.messages.is_abandoned = True
        if self.messages.socket is not None:
            self.messages.socket.abort()


# The client SDK


class _SdkConnection:
    """A connection through the client SDK."""

    def __init__(self, messages: MessageRecorder, session: Session) -> None:
        self._recorder_of_task = messages
        self._session = session

    async def send(self, chunk: bytes) -> None:
        await self._session.send(chunk)

    async def cut(self) -> None:
        await self._session.cut()

    async def create(self, lang: str) -> str:
        try:
            async with asyncio.timeout(ASK_S):
                return await self._session.create_room(preferred_lang=lang or None)
        except RoomRefused as error:
            raise Lost(f"no room could be created: {error.code}") from error
        except TimeoutError as error:
            raise Lost("create_room of the SDK had no answer") from error

    async def join(self, code: str, lang: str) -> None:
        try:
            async with asyncio.timeout(ASK_S):
                await self._join(code, lang)
        except TimeoutError as error:
            raise Lost("join_room of the SDK had no answer") from error

    async def _join(self, code: str, lang: str) -> None:
        messages = self._recorder_of_task
        while True:
            try:
                await self._session.join_room(code, preferred_lang=lang or None)
            except RoomRefused as error:
                if error.code == ErrorCode.ROOM_NOT_FOUND:
                    raise NoRoom(code) from error
                if error.code == ErrorCode.ALREADY_IN_ROOM:
                    # The request to leave was lost with its connection, and is not repeated.
                    messages.told("leave lost")
                    self._leave_really()
            else:
                if await messages.until(lambda: messages.is_in(code), AGAIN_S):
                    return
                # The SDK reports this room, and the rosters report another one.
                messages.told("misplaced", f"{code} {messages.room}")
                await self._session.leave_room()
                self._leave_really()
            await asyncio.sleep(AGAIN_S / 10)
            messages.ask("join", code, lang)

    def _leave_really(self) -> None:
        messages = self._recorder_of_task
        if messages.socket is not None and messages.room:
            messages.ask("leave", messages.room)
            messages.socket.send(RoomLeave(room_code=messages.room))

    async def leave(self, code: str) -> None:
        assert self._session.room in {code, ""}
        await self._session.leave_room()

    async def move(self) -> None:
        await asyncio.wait([self._session.move()], timeout=ASK_S)

    async def close(self) -> None:
        await self._session.close()


@asynccontextmanager
async def _sdk_connection(
    messages: MessageRecorder, urls: Sequence[str]
) -> AsyncIterator[ParticipantConnection]:
    async with connect(
        urls,
        source=messages.source,
        targets=messages.targets,
        audio_format="pcm16",
        sample_rate=marked_audio.SAMPLE_RATE,
        partials=messages.participant % PARTIALS_EVERY != 0,
    ) as session:
        iterating = asyncio.create_task(_iterate(session))
        try:
            yield _SdkConnection(messages, session)
        finally:
            iterating.cancel()
            await asyncio.gather(iterating, return_exceptions=True)


async def _iterate(session: Session) -> None:
    """Read the events, as every user of the SDK must; they are in the history already."""
    async for _ in session:
        pass


# The older protocol


class _OldConnection:
    """A bare socket of the older protocol: JSON, no additions, no resume."""

    def __init__(self, messages: MessageRecorder) -> None:
        self._recorder_of_task = messages
        self._seq = 0

    async def send(self, chunk: bytes) -> None:
        self._chunk(chunk, is_final=False)

    async def cut(self) -> None:
        self._chunk(None, is_final=True)

    def _chunk(self, payload: bytes | None, *, is_final: bool) -> None:
        self._say(
            AudioChunk(
                session_id=self._recorder_of_task.session,
                seq=self._seq,
                is_final=is_final,
                payload=payload,
            )
        )
        self._seq += 1

    async def create(self, lang: str) -> str:
        await self._ask(
            RoomCreate(preferred_lang=lang or None), lambda: bool(self._recorder_of_task.created)
        )
        return self._recorder_of_task.created

    async def join(self, code: str, lang: str) -> None:
        messages = self._recorder_of_task

        question = RoomJoin(room_code=code, preferred_lang=lang or None)
        await self._ask(question, lambda: messages.is_in(code))

    async def _ask(self, question: FromClient, is_answered: Callable[[], bool]) -> None:
        messages, until = self._recorder_of_task, monotonic() + ASK_S
        while monotonic() < until:
            messages.refusal = ""
            # A roster of the former room must not count as an answer.
            messages.members = {}
            self._say(question)
            await messages.until(lambda: is_answered() or bool(messages.refusal), ASK_S)
            if is_answered():
                return
            if messages.refusal == ErrorCode.ROOM_NOT_FOUND:
                raise NoRoom(str(question))
            await asyncio.sleep(AGAIN_S / 5)
        raise Lost(f"not answered: {messages.refusal}")

    async def leave(self, code: str) -> None:
        self._say(RoomLeave(room_code=code))

    async def move(self) -> None:
        """Do nothing: the older protocol cannot move."""

    async def close(self) -> None:
        self._say(SessionClose(session_id=self._recorder_of_task.session, reason="done"))
        await self._recorder_of_task.until(lambda: self._recorder_of_task.is_closed, CLOSE_S)

    def _say(self, message: FromClient) -> None:
        socket = self._recorder_of_task.socket
        if socket is None or socket.close_code or self._recorder_of_task.is_abandoned:
            raise Lost("the socket is closed")
        socket.send(message)


@asynccontextmanager
async def _old_connection(
    messages: MessageRecorder, url: str
) -> AsyncIterator[ParticipantConnection]:
    codecs = SocketCodecs(SERVER_MESSAGES, CLIENT_MESSAGES, ())
    socket = await dial_listening(url, codecs, lambda _: None, silence_s=SILENCE_S)
    dying = asyncio.create_task(_die_with(socket.closed(), messages))
    try:
        socket.send(SessionInit(src_lang=messages.source, tgt_lang=messages.targets[0]))
        if not await messages.until(lambda: bool(messages.session), OPEN_S):
            raise Lost("the session was not opened")
        yield _OldConnection(messages)
    finally:
        dying.cancel()
        socket.abort()
        await asyncio.gather(dying, return_exceptions=True)


async def _die_with(closed: Awaitable[None], messages: MessageRecorder) -> None:
    """A participant ends with its socket."""
    await closed
    messages.is_abandoned = True
    messages.change.set()
