"""The messages that instances send to each other, and their encoding as stream entries.

A message is a notification: the state is in the store, so a message may be lost, late or duplicated
and this costs only time. An entry has the fields `v` version, `k` kind, `f` from, `c` correlation,
`a` attempt, `t` time sent and `b` body (msgpack). Fields that are added later need a default;
unknown ones are ignored. `VERSION` is raised only for a change that an older reader would misread.
No I/O here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from lingua_scheduler.state.records import read_entry
from lingua_wire.errors import InvalidInput, LinguaError
from lingua_wire.from_node import StreamPartial  # noqa: TC001 msgspec reads it
from lingua_wire.to_client import PartialResult  # noqa: TC001 msgspec reads it

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lingua_scheduler.state.records import Released
    from lingua_scheduler.state.script import Word

VERSION: Final = 1


class UnreadableMessage(InvalidInput):
    """An entry cannot be read: `unknown_kind`, `newer_version` or `malformed`."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"a message cannot be read: {reason}")


class Undeliverable(LinguaError):
    """A message cannot be applied now; it is retried, then moved to the dead letters."""

    def __init__(self, reason: str = "undeliverable") -> None:
        # One word, which operators see in the dead letter.
        self.reason = reason
        super().__init__(f"a message cannot be delivered: {reason}")


class _Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """The base of all messages."""


class PushJob(_Message, frozen=True):
    """To a node's host: push this attempt. Has body and audio if the store keeps no audio."""

    job: str
    attempt: int
    node: str
    home: str
    context_reset: bool = False
    ends_at_ms: int = 0
    body: bytes = b""
    audio: bytes = b""


class StopAttempt(_Message, frozen=True):
    """To a node's host: stop this attempt, it is no longer needed."""

    job: str
    attempt: int
    node: str
    reason: str


class ResendAudio(_Message, frozen=True):
    """To a session's owner: `host` lacks the audio of this attempt."""

    job: str
    attempt: int
    node: str
    home: str
    host: str


class JobTimes(NamedTuple):
    """When a job was accepted and when its result arrived, in ms after its push, by its host."""

    job: str
    accepted_ms: int
    result_ms: int


class OutcomesReady(_Message, frozen=True):
    """To a session's owner: its outbox has outcomes up to this position."""

    session: str
    epoch: str
    seq: int
    spans: tuple[JobTimes, ...] = ()


class OutboxPosition(NamedTuple):
    """A position in a session's outbox."""

    session: str
    epoch: str
    seq: int


class ListenerOutcomeReady(_Message, frozen=True):
    """To the owner of listeners: this outcome of another speaker is in their outboxes."""

    id: str
    # `kind index lane job attempt reason`
    line: str
    cell: str
    places: tuple[OutboxPosition, ...]

    @property
    def job(self) -> str:
        """Return the id of the job whose outcome this is."""
        return self.line.split(" ")[3]

    def outcome(self) -> Released:
        """Return the outcome as the outboxes hold it, without a position."""
        kind, _, head = self.line.partition(" ")
        return read_entry(0, f"heard {head}\n{kind} {self.id}".encode())


class JobProgress(_Message, frozen=True):
    """To a session's owner: a job was `accepted`, is `running`, or was `kept` by its node."""

    session: str
    job: str
    attempt: int
    node: str
    step: str


class PartialTranscript(_Message, frozen=True):
    """To a session's owner: the text recognised so far."""

    session: str
    job: str
    attempt: int
    text: str
    is_final: bool


class OpenStream(_Message, frozen=True):
    """To a node's host: let the node listen to a session of the sender."""

    stream: str
    session: str
    node: str
    owner: str
    # The encoded `stream_open`.
    opening: bytes


class FeedStream(_Message, frozen=True):
    """To a node's host: audio of a stream, which begins so far in it."""

    stream: str
    node: str
    at_bytes: int
    audio: bytes


class CloseStream(_Message, frozen=True):
    """To a node's host: the node need not listen any more."""

    stream: str
    node: str
    reason: str
    audio_bytes: int = 0


class StreamText(_Message, frozen=True):
    """To a session's owner: what a node heard so far."""

    session: str
    partial: StreamPartial


class StreamGone(_Message, frozen=True):
    """To a session's owner: nobody listens to this stream any more."""

    session: str
    stream: str


class PartialHeard(_Message, frozen=True):
    """To the owner of listeners: what somebody in their room says."""

    partial: PartialResult
    # Session and language of each; without a language it reads what was said.
    listeners: tuple[tuple[str, str], ...]


class PartSpoken(_Message, frozen=True):
    """To a session's owner: a part of the spoken translation, before the outcome."""

    session: str
    job: str
    attempt: int
    part_index: int
    audio: bytes
    audio_format: str


class SessionProblem(_Message, frozen=True):
    """To a session's owner: an error to report to its client."""

    session: str
    job: str
    code: str
    message: str
    details: dict[str, Any] | None = None


class SessionTaken(_Message, frozen=True):
    """To a session's former owner: another instance owns it now, under this fence."""

    session: str
    fence: int


class RoomChanged(_Message, frozen=True):
    """To instances with members in a room: read the room again."""

    code: str


class ClientMessage(_Message, frozen=True):
    """To a session's owner: an encoded message to pass on to its client."""

    session: str
    message: bytes


PeerMessage = (
    PushJob
    | StopAttempt
    | ResendAudio
    | OutcomesReady
    | ListenerOutcomeReady
    | JobProgress
    | PartialTranscript
    | OpenStream
    | FeedStream
    | CloseStream
    | StreamText
    | StreamGone
    | PartialHeard
    | PartSpoken
    | SessionProblem
    | SessionTaken
    | RoomChanged
    | ClientMessage
)

BY_KIND: Final[dict[str, type[PeerMessage]]] = {
    "push": PushJob,
    "stop": StopAttempt,
    "resend": ResendAudio,
    "outcomes": OutcomesReady,
    "said": ListenerOutcomeReady,
    "progress": JobProgress,
    "partial": PartialTranscript,
    "stream_open": OpenStream,
    "stream_feed": FeedStream,
    "stream_close": CloseStream,
    "stream_text": StreamText,
    "stream_gone": StreamGone,
    "partial_heard": PartialHeard,
    "speech_part": PartSpoken,
    "trouble": SessionProblem,
    "taken": SessionTaken,
    "room_changed": RoomChanged,
    "relay": ClientMessage,
}
KIND_OF: Final = {kind: name for name, kind in BY_KIND.items()}

_encode = msgspec.msgpack.Encoder().encode
_DECODERS: Final = {name.encode(): msgspec.msgpack.Decoder(kind) for name, kind in BY_KIND.items()}


class ReceivedMessage(NamedTuple):
    """A message with the other fields of its entry."""

    id: str
    message: PeerMessage
    sender: str
    sent_at_ms: int
    correlation: str
    attempt: int | None


def encode_entry(message: PeerMessage, sender: str, now_ms: int) -> tuple[Word, ...]:
    """Return the fields and values of an entry, in the order that XADD expects."""
    fields: dict[str, Word] = {
        "v": VERSION,
        "k": KIND_OF[type(message)],
        "f": sender,
        "c": correlation_of(message),
        "a": getattr(message, "attempt", ""),
        "t": now_ms,
        "b": _encode(message),
    }
    return tuple(word for field in fields.items() for word in field)


def decode_entry(entry_id: bytes | str, fields: Sequence[bytes]) -> ReceivedMessage:
    """Read an entry (field, value, field, value...), or raise `UnreadableMessage`."""
    found = dict(zip(fields[::2], fields[1::2], strict=False))
    try:
        if int(found[b"v"]) > VERSION:
            raise UnreadableMessage("newer_version")
        decoder = _DECODERS.get(found[b"k"])
        if decoder is None:
            raise UnreadableMessage("unknown_kind")
        attempt = found.get(b"a")
        return ReceivedMessage(
            id=entry_id if isinstance(entry_id, str) else entry_id.decode(),
            message=decoder.decode(found[b"b"]),
            sender=found[b"f"].decode(),
            sent_at_ms=int(found[b"t"]),
            correlation=found.get(b"c", b"").decode(),
            attempt=int(attempt) if attempt else None,
        )
    except (KeyError, ValueError, RecursionError, msgspec.DecodeError):
        # Not a number, not UTF-8, nested too deeply, or a field missing or of another type.
        raise UnreadableMessage("malformed") from None


def correlation_of(message: PeerMessage) -> str:
    """Return the id to search for in logs: the job, else the session, else the room."""
    for name in ("job", "session", "code"):
        value: str = getattr(message, name, "")
        if value:
            return value
    return ""
