"""What one person in a room is told on the wire, written down; and the way in between.

An `Ear` sees every message of every connection of its person before anybody else does: what the
client SDK would leave out because it came twice is in the history, too. `install` puts ears in
between the SDK and its sockets; who dials on behalf of a person is known by the task's context.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from lingua_scheduler import dial as dialling
from lingua_scheduler.bench.chaos import speech
from lingua_scheduler.bench.chaos.history import (
    RESULT,
    Accepted,
    Arrived,
    Asked,
    Passed,
    Received,
    Resumed,
    Roster,
    Told,
)
from lingua_scheduler.client import line
from lingua_scheduler.messages.from_client import AudioChunk
from lingua_scheduler.messages.to_client import (
    ErrorMessage,
    Gap,
    MissingResult,
    OutcomePassed,
    RoomCreateAck,
    RoomError,
    RoomExpired,
    RoomMembers,
    SessionCloseAck,
    SessionInitAck,
    SessionReset,
    SessionResumed,
    TranslationResult,
    UtteranceAccepted,
)

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from lingua_scheduler.bench.chaos.history import AnyLine
    from lingua_scheduler.messages.codec import Codec

# The lane of a text that is read in the language it was spoken in.
AS_SPOKEN: Final = "~"

_ear: ContextVar[Ear | None] = ContextVar("ear", default=None)


class Ear:
    """One person's; it knows the newest of what it was told."""

    def __init__(
        self,
        person: int,
        note: Callable[[AnyLine], None],
        at_url: Callable[[int, str], None],
        heard: Callable[[int, str, int], None],
    ) -> None:
        self.person = person
        self.session = ""
        # How it speaks to the scheduler, and which languages.
        self.kind, self.source = "sdk", ""
        self.targets: tuple[str, ...] = ()
        # The room it was told last to be in, with everybody's languages.
        self.room = ""
        self.members: dict[str, str] = {}
        # Chunk -> utterance, utterance -> its last chunk, and those that are in the store.
        self._numbers: dict[int, int] = {}
        self._ends: dict[int, int] = {}
        self.accepted: set[int] = set()
        self.refusal = ""
        self.created = ""
        self.resumes = 0
        self.is_closed = False
        # Nothing is to be dialled any more.
        self.is_abandoned = False
        self.socket: dialling.Socket[Any, Any] | None = None
        self.change = asyncio.Event()
        self._note = note
        self._at_url = at_url
        self._heard = heard
        self._actions: dict[type, Callable[[Any], None]] = {
            SessionInitAck: self._arrive,
            SessionResumed: self._resume,
            RoomCreateAck: self._create,
            RoomMembers: self._roster,
            RoomExpired: self._expire,
            RoomError: self._refuse,
            UtteranceAccepted: self._accept,
            TranslationResult: self._receive,
            MissingResult: self._receive,
            OutcomePassed: self._pass,
            SessionCloseAck: self._close,
            ErrorMessage: self._error,
            Gap: self._gap,
            SessionReset: self._reset,
        }

    def take(self, message: object) -> None:
        """Take one message, as it was read."""
        action = self._actions.get(type(message))
        if action is not None:
            action(message)
            self.change.set()

    def sent(self, message: object) -> None:
        """Take note of what goes out: which chunks are which utterance."""
        if not isinstance(message, AudioChunk):
            return
        said = speech.read(speech.heard_in(message.payload)) if message.payload else None
        if said is not None:
            self._numbers[message.seq] = said.number
            self._ends[said.number] = max(message.seq, self._ends.get(said.number, -1))
        elif message.is_final:
            number = self._numbers.get(message.seq - 1)
            if number is not None:
                self._ends[number] = message.seq

    def connected(self, socket: dialling.Socket[Any, Any], url: str) -> None:
        """Another connection was made; it counts from its first answer on."""
        self.socket = socket
        self._at_url(self.person, url)

    def is_in(self, room: str) -> bool:
        """Tell whether it was told last that it is in a room."""
        return self.room == room and self.session in self.members

    def ask(self, what: str, room: str, lang: str = "") -> None:
        """Note that the person is about to ask for a change."""
        self._note(Asked(monotonic(), self.person, what, room, lang))

    def told(self, what: str, detail: str = "") -> None:
        """Note something that is of no further use."""
        self._note(Told(monotonic(), self.person, what, detail))

    async def until(self, condition: Callable[[], bool], bound_s: float) -> bool:
        """Wait for something that a message can bring; tells whether it came."""
        try:
            async with asyncio.timeout(bound_s):
                while not condition():
                    self.change.clear()
                    await self.change.wait()
        except TimeoutError:
            return False
        return True

    def _arrive(self, message: SessionInitAck) -> None:
        if self.session:
            self.told("reset", message.session_id)
        self.session = message.session_id
        self._note(
            Arrived(
                monotonic(), self.person, self.session, self.kind, self.source, self.targets
            )
        )  # fmt: skip

    def _resume(self, message: SessionResumed) -> None:
        self.resumes += 1
        next_seq = message.next_audio_seq or 0
        # What was not sent yet is not known here.
        wanted = 1 + max((one for one, end in self._ends.items() if end < next_seq), default=-1)
        self._note(Resumed(monotonic(), self.person, wanted))

    def _create(self, message: RoomCreateAck) -> None:
        self.created = message.room_code

    def _roster(self, message: RoomMembers) -> None:
        self.room = message.room_code
        self.members = {one.session_id: one.preferred_lang or "" for one in message.members}
        members = tuple(
            (one.session_id, one.preferred_lang or "", one.joined_at) for one in message.members
        )
        self._note(Roster(monotonic(), self.person, self.room, members))

    def _expire(self, message: RoomExpired) -> None:
        self.room, self.members = "", {}
        self.told("room_expired", message.room_code)

    def _refuse(self, message: RoomError) -> None:
        self.refusal = message.code
        self.told(f"room {message.code}")

    def _accept(self, message: UtteranceAccepted) -> None:
        first_seq = -1 if message.first_seq is None else message.first_seq
        number = self._numbers.get(first_seq, -1)
        self.accepted.add(number)
        self._note(
            Accepted(monotonic(), self.person, message.session_id, message.utterance_index, number)
        )

    def _receive(self, message: TranslationResult | MissingResult) -> None:
        said = (message.reason, "", "") if isinstance(message, MissingResult) else (
            RESULT, message.text_asr, message.text_translated
        )  # fmt: skip
        self._note(
            Received(
                monotonic(), self.person, message.session_id, message.utterance_index,
                message.tgt_lang or AS_SPOKEN, *said, message.epoch or "", message.seq or 0,
            )
        )  # fmt: skip
        self._heard(self.person, message.session_id, message.utterance_index)

    def _pass(self, message: OutcomePassed) -> None:
        self._note(
            Passed(
                monotonic(), self.person, message.session_id, message.utterance_index,
                message.tgt_lang, message.epoch, message.seq,
            )
        )  # fmt: skip

    def _close(self, _: SessionCloseAck) -> None:
        self.is_closed = True

    def _error(self, message: ErrorMessage) -> None:
        self.refusal = message.code
        self.told(message.code)

    def _gap(self, message: Gap) -> None:
        self.told(f"gap {message.reason}")

    def _reset(self, _: SessionReset) -> None:
        self.told("session_reset")


class _Heard:
    """Writes messages as a codec does, and lets the ear hear them before."""

    def __init__(self, codec: Codec[Any], ear: Ear) -> None:
        self.is_binary = codec.is_binary
        self._codec = codec
        self._ear = ear

    def encode(self, message: object) -> bytes:
        """Return a message as it goes out."""
        self._ear.sent(message)
        return self._codec.encode(message)


def wear(ear: Ear) -> None:
    """From now on what this task and its children dial is this person's."""
    _ear.set(ear)


async def dial(
    url: str,
    dialect: dialling.Dialect[Any],
    receive: Callable[[Any], None],
    *,
    silence_s: float,
    tls: ssl.SSLContext | None = None,
) -> dialling.Socket[Any, Any]:
    """Open a socket as `lingua_scheduler.dial` does, with the person's ear in between."""
    ear = _ear.get()
    assert ear is not None, "whoever dials here is a person"
    if ear.is_abandoned:
        raise ConnectionRefusedError("this person has gone")
    listens: list[dialling.Socket[Any, Any]] = []

    def take(message: Any) -> None:
        if listens and isinstance(message, (SessionInitAck, SessionResumed)):
            ear.connected(listens[0], url)
        ear.take(message)
        receive(message)

    writes: Any = tuple(_Heard(codec, ear) for codec in dialect.writes)
    dialect = dialling.Dialect(dialect.reads, writes, dialect.offered)
    socket = await dialling.dial(url, dialect, take, silence_s=silence_s, tls=tls)
    listens.append(socket)
    return socket


def install() -> None:
    """Have the client SDK of this process dial through here."""
    setattr(line, "dial", dial)  # noqa: B010
