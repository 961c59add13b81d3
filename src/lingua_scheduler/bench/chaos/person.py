"""One person in a room: the client SDK, or a bare socket as clients of the older protocol have it.

Both do the same things; what they were told is in their `Ear`. Asks for a change of who is where
are written down before they are made. A person that cannot go on raises `Lost`.
"""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import asynccontextmanager
from time import monotonic
from typing import TYPE_CHECKING, Final, Protocol

from lingua_scheduler.bench.chaos import speech
from lingua_scheduler.bench.chaos.ear import Ear, wear
from lingua_scheduler.bench.chaos.ear import dial as dial_listening
from lingua_scheduler.bench.chaos.history import Cut
from lingua_scheduler.client import RoomRefused, connect
from lingua_scheduler.dial import Dialect
from lingua_scheduler.errors import LinguaError
from lingua_scheduler.messages.codec import CLIENT_MESSAGES, SERVER_MESSAGES
from lingua_scheduler.messages.codes import ErrorCode
from lingua_scheduler.messages.from_client import (
    AudioChunk,
    RoomCreate,
    RoomJoin,
    RoomLeave,
    SessionClose,
    SessionInit,
    SessionUpdate,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from lingua_scheduler.bench.chaos.history import AnyLine
    from lingua_scheduler.client import Session
    from lingua_scheduler.messages.from_client import FromClient

# How long an ask may take, kills of instances and of the store included.
ASK_S: Final = 12.0
OPEN_S: Final = 30.0
CLOSE_S: Final = 15.0
SILENCE_S: Final = 5.0
AGAIN_S: Final = 1.5


class Lost(LinguaError):
    """A person cannot go on: another one takes the seat."""


class NoRoom(LinguaError):
    """There is no such room any more."""


class Voice(Protocol):
    """How a person speaks to the scheduler."""

    async def send(self, chunk: bytes) -> None:
        """Say a chunk."""

    async def cut(self) -> None:
        """End the utterance."""

    async def create(self, lang: str) -> str:
        """Make a room and return its code."""

    async def join(self, code: str, lang: str) -> None:
        """Enter a room."""

    async def leave(self, code: str) -> None:
        """Leave it."""

    async def move(self) -> None:
        """Go on at another instance, if that is possible."""

    async def close(self) -> None:
        """End the session, with all that was said."""


class Person:
    """One person; it is open inside `async with person.open(urls)`."""

    def __init__(
        self, ear: Ear, note: Callable[[AnyLine], None], lang: str, targets: tuple[str, ...]
    ) -> None:
        self.ear = ear
        self.number = ear.person
        # The language it speaks, and the one it wants to hear; empty for none.
        self.source, self.lang = lang, lang
        ear.source, ear.targets = lang, targets
        # Where it thinks it is.
        self.room = ""
        self.said = 0
        self._note = note
        self._voice: Voice

    @asynccontextmanager
    async def open(self, urls: Sequence[str]) -> AsyncIterator[None]:
        """Open a session, of the SDK or as old clients do."""
        wear(self.ear)
        opened = _old_voice(self.ear, urls[0]) if self.ear.kind == "old" else _sdk(self.ear, urls)
        try:
            async with opened as self._voice:
                yield
        except (OSError, TimeoutError) as error:
            raise Lost(f"{type(error).__name__}: {error}") from error

    # Speaking

    async def begin(self, chunks: int) -> None:
        """Say the chunks of the next utterance."""
        for place in range(chunks):
            await self._voice.send(speech.chunk(self.number, self.said, place))

    async def end(self, chunks: int) -> None:
        """End the utterance."""
        self.mark(chunks, "final")
        await self._voice.cut()

    def mark(self, chunks: int, by: str) -> int:
        """Note that an utterance is about to be cut, by a wish or by a change; which one."""
        self._note(Cut(monotonic(), self.number, self.said, chunks, self.said, by))
        self.said += 1
        return self.said - 1

    async def be_cut(self, number: int) -> None:
        """See to it that what a change had to cut is cut, also by a server that does not."""
        ear = self.ear
        if ear.kind == "old" or not await ear.until(lambda: number in ear.accepted, AGAIN_S):
            await self._voice.cut()

    # Rooms

    async def create(self) -> str:
        """Make a room and be in it."""
        self.ear.ask("create", "", self.lang)
        self.room = await self._voice.create(self.lang)
        return self.room

    async def join(self, code: str) -> None:
        """Be in a room; raises `NoRoom`."""
        self.ear.ask("join", code, self.lang)
        self.room = code
        try:
            await self._voice.join(code, self.lang)
        except NoRoom:
            self.room = ""
            raise

    async def leave(self) -> None:
        """Be in no room."""
        self.ear.ask("leave", self.room)
        await self._voice.leave(self.room)
        self.room = ""

    async def hear_in(self, lang: str) -> None:
        """Want another language, until the room is told so."""
        ear = self.ear

        def is_told() -> bool:
            return ear.members.get(ear.session) == lang and ear.room == self.room

        self.lang = lang
        ear.ask("language", self.room, lang)
        until = monotonic() + ASK_S
        while monotonic() < until and not ear.is_abandoned:
            if ear.socket is not None:
                ear.socket.send(SessionUpdate(session_id=ear.session, preferred_lang=lang))
            if await ear.until(is_told, AGAIN_S):
                return
        raise Lost("a change of language was not answered")

    async def move(self) -> None:
        """Go on at another instance."""
        await self._voice.move()

    # The end

    async def close(self) -> None:
        """End the session; waits until all is answered."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await self._voice.close()

    def abandon(self) -> None:
        """Be gone without a word."""
        self.ear.is_abandoned = True
        if self.ear.socket is not None:
            self.ear.socket.abort()


# The client SDK


class _Sdk:
    """Speaks by the client SDK."""

    def __init__(self, ear: Ear, session: Session) -> None:
        self._ear = ear
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
            raise Lost(f"no room could be made: {error.code}") from error
        except TimeoutError as error:
            raise Lost("create_room of the SDK had no answer") from error

    async def join(self, code: str, lang: str) -> None:
        try:
            async with asyncio.timeout(ASK_S):
                await self._join(code, lang)
        except TimeoutError as error:
            raise Lost("join_room of the SDK had no answer") from error

    async def _join(self, code: str, lang: str) -> None:
        ear = self._ear
        while True:
            try:
                await self._session.join_room(code, preferred_lang=lang or None)
            except RoomRefused as error:
                if error.code == ErrorCode.ROOM_NOT_FOUND:
                    raise NoRoom(code) from error
                if error.code == ErrorCode.ALREADY_IN_ROOM:
                    # The wish to leave was lost with its connection, and is not said again.
                    ear.told("leave lost")
                    self._leave_really()
            else:
                if await ear.until(lambda: ear.is_in(code), AGAIN_S):
                    return
                # The SDK says that it is in, and everybody says that it is somewhere else.
                ear.told("misplaced", f"{code} {ear.room}")
                await self._session.leave_room()
                self._leave_really()
            await asyncio.sleep(AGAIN_S / 10)
            ear.ask("join", code, lang)

    def _leave_really(self) -> None:
        ear = self._ear
        if ear.socket is not None and ear.room:
            ear.ask("leave", ear.room)
            ear.socket.send(RoomLeave(room_code=ear.room))

    async def leave(self, code: str) -> None:
        assert self._session.room in {code, ""}
        await self._session.leave_room()

    async def move(self) -> None:
        await asyncio.wait([self._session.move()], timeout=ASK_S)

    async def close(self) -> None:
        await self._session.close()


@asynccontextmanager
async def _sdk(ear: Ear, urls: Sequence[str]) -> AsyncIterator[Voice]:
    async with connect(
        urls, source=ear.source, targets=ear.targets, audio_format="pcm16",
        sample_rate=speech.SAMPLE_RATE,
    ) as session:  # fmt: skip
        iterating = asyncio.create_task(_iterate(session))
        try:
            yield _Sdk(ear, session)
        finally:
            iterating.cancel()
            await asyncio.gather(iterating, return_exceptions=True)


async def _iterate(session: Session) -> None:
    """Read the events, as every user must; they are in the history already."""
    async for _ in session:
        pass


# The older protocol


class _Old:
    """Speaks by a bare socket: JSON, no additions, no coming back."""

    def __init__(self, ear: Ear) -> None:
        self._ear = ear
        self._seq = 0

    async def send(self, chunk: bytes) -> None:
        self._chunk(chunk, is_final=False)

    async def cut(self) -> None:
        self._chunk(None, is_final=True)

    def _chunk(self, payload: bytes | None, *, is_final: bool) -> None:
        self._say(
            AudioChunk(
                session_id=self._ear.session, seq=self._seq, is_final=is_final, payload=payload
            )
        )
        self._seq += 1

    async def create(self, lang: str) -> str:
        await self._ask(RoomCreate(preferred_lang=lang or None), lambda: bool(self._ear.created))
        return self._ear.created

    async def join(self, code: str, lang: str) -> None:
        ear = self._ear

        question = RoomJoin(room_code=code, preferred_lang=lang or None)
        await self._ask(question, lambda: ear.is_in(code))

    async def _ask(self, question: FromClient, is_answered: Callable[[], bool]) -> None:
        ear, until = self._ear, monotonic() + ASK_S
        while monotonic() < until:
            ear.refusal = ""
            # Told of the former room, it is not there yet.
            ear.members = {}
            self._say(question)
            await ear.until(lambda: is_answered() or bool(ear.refusal), ASK_S)
            if is_answered():
                return
            if ear.refusal == ErrorCode.ROOM_NOT_FOUND:
                raise NoRoom(str(question))
            await asyncio.sleep(AGAIN_S / 5)
        raise Lost(f"not answered: {ear.refusal}")

    async def leave(self, code: str) -> None:
        self._say(RoomLeave(room_code=code))

    async def move(self) -> None:
        """It cannot."""

    async def close(self) -> None:
        self._say(SessionClose(session_id=self._ear.session, reason="done"))
        await self._ear.until(lambda: self._ear.is_closed, CLOSE_S)

    def _say(self, message: FromClient) -> None:
        socket = self._ear.socket
        if socket is None or socket.close_code or self._ear.is_abandoned:
            raise Lost("the socket is gone")
        socket.send(message)


@asynccontextmanager
async def _old_voice(ear: Ear, url: str) -> AsyncIterator[Voice]:
    dialect = Dialect(SERVER_MESSAGES, CLIENT_MESSAGES, ())
    socket = await dial_listening(url, dialect, lambda _: None, silence_s=SILENCE_S)
    dying = asyncio.create_task(_die_with(socket.closed(), ear))
    try:
        socket.send(SessionInit(src_lang=ear.source, tgt_lang=ear.targets[0]))
        if not await ear.until(lambda: bool(ear.session), OPEN_S):
            raise Lost("the session was not opened")
        yield _Old(ear)
    finally:
        dying.cancel()
        socket.abort()
        await asyncio.gather(dying, return_exceptions=True)


async def _die_with(closed: Awaitable[None], ear: Ear) -> None:
    """A socket that is gone takes its person along."""
    await closed
    ear.is_abandoned = True
    ear.change.set()
