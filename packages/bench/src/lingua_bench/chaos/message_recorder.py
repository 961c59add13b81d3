"""Records every message that one room participant sends and receives.

A `MessageRecorder` sees each message of each connection before the client SDK does. The history
therefore also has the duplicates that the SDK would drop. `install` replaces the dial function
of the SDK in this process; a context variable of the task names the recorder of each connection.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lingua_bench.chaos import marked_audio
from lingua_bench.chaos.history import (
    RESULT,
    ChangeRequested,
    NoticeReceived,
    PartialReceived,
    ParticipantConnected,
    ParticipantResumed,
    PassedNoticeReceived,
    RoomOutcomeReceived,
    RosterReceived,
    UtteranceAcknowledged,
)
from lingua_client import connection
from lingua_wire import socket_client
from lingua_wire.from_client import AudioChunk
from lingua_wire.to_client import (
    ErrorMessage,
    Gap,
    MissingResult,
    OutcomePassed,
    PartialResult,
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

    from lingua_bench.chaos.history import AnyLine
    from lingua_wire.codec import Codec

# The lane of an outcome in the language that was spoken.
AS_SPOKEN: Final = "~"

_recorder_of_task: ContextVar[MessageRecorder | None] = ContextVar("message_recorder", default=None)


class ParticipantProfile(NamedTuple):
    """Who a participant is: its number, kind of client and languages."""

    number: int
    # `sdk`, or `old` for a client of the older protocol.
    kind: str
    source: str
    # The languages it wants while it is alone.
    targets: tuple[str, ...]


class MessageRecorder:
    """The recorder of one participant; it also holds the newest state the participant received."""

    def __init__(
        self,
        profile: ParticipantProfile,
        note: Callable[[AnyLine], None],
        at_url: Callable[[int, str], None],
        heard: Callable[[int, str, int], None],
    ) -> None:
        self.participant, self.kind, self.source, self.targets = profile
        self.session = ""
        # The room of the last roster that it received, and every member's language.
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
        # No further connection may be opened.
        self.is_abandoned = False
        self.socket: socket_client.Socket[Any, Any] | None = None
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
            PartialResult: self._overhear,
            SessionCloseAck: self._close,
            ErrorMessage: self._error,
            Gap: self._gap,
            SessionReset: self._reset,
        }

    def handle(self, message: object) -> None:
        """Handle one received message."""
        action = self._actions.get(type(message))
        if action is not None:
            action(message)
            self.change.set()

    def sent(self, message: object) -> None:
        """Note the chunks of each utterance that is sent."""
        if not isinstance(message, AudioChunk):
            return
        said = (
            marked_audio.read(marked_audio.marks_in(message.payload)) if message.payload else None
        )
        if said is not None:
            self._numbers[message.seq] = said.number
            self._ends[said.number] = max(message.seq, self._ends.get(said.number, -1))
        elif message.is_final:
            number = self._numbers.get(message.seq - 1)
            if number is not None:
                self._ends[number] = message.seq

    def connected(self, socket: socket_client.Socket[Any, Any], url: str) -> None:
        """Note a new connection; it counts from its first answer on."""
        self.socket = socket
        self._at_url(self.participant, url)

    def is_in(self, room: str) -> bool:
        """Tell whether the last roster has it in a room."""
        return self.room == room and self.session in self.members

    def ask(self, what: str, room: str, lang: str = "") -> None:
        """Record that the participant is about to request a change."""
        self._note(ChangeRequested(monotonic(), self.participant, what, room, lang))

    def told(self, what: str, detail: str = "") -> None:
        """Record a notice that needs no action."""
        self._note(NoticeReceived(monotonic(), self.participant, what, detail))

    async def until(self, condition: Callable[[], bool], bound_s: float) -> bool:
        """Wait for a condition that a message can bring about; returns whether it came."""
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
            ParticipantConnected(
                at=monotonic(),
                participant=self.participant,
                session=self.session,
                kind=self.kind,
                source=self.source,
                targets=self.targets,
            )
        )

    def _resume(self, message: SessionResumed) -> None:
        self.resumes += 1
        next_seq = message.next_audio_seq or 0
        # Utterances that were not sent yet are not known here.
        wanted = 1 + max((one for one, end in self._ends.items() if end < next_seq), default=-1)
        self._note(ParticipantResumed(monotonic(), self.participant, wanted))

    def _create(self, message: RoomCreateAck) -> None:
        self.created = message.room_code

    def _roster(self, message: RoomMembers) -> None:
        self.room = message.room_code
        self.members = {one.session_id: one.preferred_lang or "" for one in message.members}
        members = tuple(
            (one.session_id, one.preferred_lang or "", one.joined_at) for one in message.members
        )
        self._note(RosterReceived(monotonic(), self.participant, self.room, members))

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
            UtteranceAcknowledged(
                monotonic(), self.participant, message.session_id, message.utterance_index, number
            )
        )

    def _receive(self, message: TranslationResult | MissingResult) -> None:
        self._note(
            RoomOutcomeReceived(
                at=monotonic(),
                participant=self.participant,
                session=message.session_id,
                index=message.utterance_index,
                lane=message.tgt_lang or AS_SPOKEN,
                reason=RESULT if isinstance(message, TranslationResult) else message.reason,
                said=message.text_asr if isinstance(message, TranslationResult) else "",
                text=message.text_translated if isinstance(message, TranslationResult) else "",
                epoch=message.epoch or "",
                seq=message.seq or 0,
            )
        )
        self._heard(self.participant, message.session_id, message.utterance_index)

    def _overhear(self, message: PartialResult) -> None:
        self._note(
            PartialReceived(
                at=monotonic(),
                participant=self.participant,
                session=message.session_id,
                index=message.utterance_index,
                revision=message.revision,
                stream=message.unstable,
                stable=message.stable,
                lanes=tuple(one.tgt_lang for one in message.translations),
            )
        )

    def _pass(self, message: OutcomePassed) -> None:
        self._note(
            PassedNoticeReceived(
                at=monotonic(),
                participant=self.participant,
                session=message.session_id,
                index=message.utterance_index,
                lane=message.tgt_lang,
                epoch=message.epoch,
                seq=message.seq,
            )
        )

    def _close(self, _: SessionCloseAck) -> None:
        self.is_closed = True

    def _error(self, message: ErrorMessage) -> None:
        self.refusal = message.code
        self.told(message.code)

    def _gap(self, message: Gap) -> None:
        self.told(f"gap {message.reason}")

    def _reset(self, _: SessionReset) -> None:
        self.told("session_reset")


class _RecordedCodec:
    """Encodes messages as a codec does, and records them before."""

    def __init__(self, codec: Codec[Any], messages: MessageRecorder) -> None:
        self.is_binary = codec.is_binary
        self._codec = codec
        self._recorder_of_task = messages

    def encode(self, message: object) -> bytes:
        """Return the encoded message."""
        self._recorder_of_task.sent(message)
        return self._codec.encode(message)


def record_dials_as(messages: MessageRecorder) -> None:
    """From now on connections of this task and its children belong to this participant."""
    _recorder_of_task.set(messages)


async def dial(
    url: str,
    codecs: socket_client.SocketCodecs[Any],
    receive: Callable[[Any], None],
    *,
    silence_s: float,
    tls: ssl.SSLContext | None = None,
) -> socket_client.Socket[Any, Any]:
    """Open a socket as `open_socket` of the wire does, with the participant's recorder between."""
    messages = _recorder_of_task.get()
    assert messages is not None, "only participants dial here"
    if messages.is_abandoned:
        raise ConnectionRefusedError("this participant has left")
    listens: list[socket_client.Socket[Any, Any]] = []

    def take(message: Any) -> None:
        if listens and isinstance(message, (SessionInitAck, SessionResumed)):
            messages.connected(listens[0], url)
        # A connection that was left may still be read; the SDK drops what it says.
        is_left = bool(listens) and messages.socket is not listens[0]
        if not (is_left and isinstance(message, PartialResult)):
            messages.handle(message)
        receive(message)

    writes: Any = tuple(_RecordedCodec(codec, messages) for codec in codecs.writes)
    codecs = socket_client.SocketCodecs(codecs.reads, writes, codecs.offered)
    socket = await socket_client.open_socket(url, codecs, take, silence_s=silence_s, tls=tls)
    listens.append(socket)
    return socket


def install() -> None:
    """Let the client SDK of this process dial through here."""
    setattr(connection, "open_socket", dial)  # noqa: B010
