"""The letters instances write to each other, and how one lies in a stream.

A letter is a nudge: the store holds the truth, so each may be lost, late or doubled and costs time
only. An entry has the fields `v` version, `k` kind, `f` from, `c` correlation, `a` attempt, `t`
when sent and `b` body (msgpack). Parts that are added later need a default; unknown ones are
ignored. `VERSION` rises only with a change that an older reader would misread. No I/O here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from lingua_scheduler.errors import InvalidInput, LinguaError
from lingua_scheduler.state.records import read_entry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lingua_scheduler.state.records import Released
    from lingua_scheduler.state.script import Word

VERSION: Final = 1


class UnreadableLetter(InvalidInput):
    """An entry cannot be read: `unknown_kind`, `newer_version` or `malformed`."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"a letter cannot be read: {reason}")


class Undeliverable(LinguaError):
    """A letter cannot have its effect here and now; it is tried again, then put aside."""

    def __init__(self, reason: str = "undeliverable") -> None:
        # One word; it is what people see of the dead letter.
        self.reason = reason
        super().__init__(f"a letter cannot be delivered: {reason}")


class _Letter(msgspec.Struct, frozen=True, omit_defaults=True):
    """What all letters share."""


class Push(_Letter, frozen=True):
    """To a node's host: push this attempt; with the store's audio off, body and audio are here."""

    job: str
    attempt: int
    node: str
    home: str
    context_reset: bool = False
    ends_at_ms: int = 0
    body: bytes = b""
    audio: bytes = b""


class Stop(_Letter, frozen=True):
    """To a node's host: this attempt is no longer wanted."""

    job: str
    attempt: int
    node: str
    reason: str


class Resend(_Letter, frozen=True):
    """To a session's owner: `host` lacks the audio of this attempt."""

    job: str
    attempt: int
    node: str
    home: str
    host: str


class Span(NamedTuple):
    """When a job was accepted and its result came, in ms after its push, as its host saw it."""

    job: str
    accepted_ms: int
    result_ms: int


class Outcomes(_Letter, frozen=True):
    """To a session's owner: its outbox has outcomes up to this position."""

    session: str
    epoch: str
    seq: int
    spans: tuple[Span, ...] = ()


class Place(NamedTuple):
    """Where something is in a session's outbox."""

    session: str
    epoch: str
    seq: int


class Said(_Letter, frozen=True):
    """To the owner of listeners: this outcome of another speaker is in their outboxes."""

    id: str
    # `kind index lane job attempt reason`
    line: str
    cell: str
    places: tuple[Place, ...]

    @property
    def job(self) -> str:
        """Return whose outcome it is."""
        return self.line.split(" ")[3]

    def outcome(self) -> Released:
        """Return it as the outboxes have it, without a position."""
        kind, _, head = self.line.partition(" ")
        return read_entry(0, f"heard {head}\n{kind} {self.id}".encode())


class Progress(_Letter, frozen=True):
    """To a session's owner: a job was `accepted`, is `running`, or was `kept` by its node."""

    session: str
    job: str
    attempt: int
    node: str
    step: str


class Partial(_Letter, frozen=True):
    """To a session's owner: what was recognised so far."""

    session: str
    job: str
    attempt: int
    text: str
    is_final: bool


class Trouble(_Letter, frozen=True):
    """To a session's owner: an error its client should hear of."""

    session: str
    job: str
    code: str
    message: str
    details: dict[str, Any] | None = None


class Taken(_Letter, frozen=True):
    """To a session's former owner: another instance has it, under this fence."""

    session: str
    fence: int


class RoomChanged(_Letter, frozen=True):
    """To instances with members in a room: read it again."""

    code: str


class Relay(_Letter, frozen=True):
    """To a session's owner: a message for its client, as it is."""

    session: str
    message: bytes


Letter = (
    Push
    | Stop
    | Resend
    | Outcomes
    | Said
    | Progress
    | Partial
    | Trouble
    | Taken
    | RoomChanged
    | Relay
)

BY_KIND: Final[dict[str, type[Letter]]] = {
    "push": Push,
    "stop": Stop,
    "resend": Resend,
    "outcomes": Outcomes,
    "said": Said,
    "progress": Progress,
    "partial": Partial,
    "trouble": Trouble,
    "taken": Taken,
    "room_changed": RoomChanged,
    "relay": Relay,
}
KIND_OF: Final = {kind: name for name, kind in BY_KIND.items()}

_encode = msgspec.msgpack.Encoder().encode
_DECODERS: Final = {name.encode(): msgspec.msgpack.Decoder(kind) for name, kind in BY_KIND.items()}


class Envelope(NamedTuple):
    """A letter with what its entry says of it."""

    id: str
    letter: Letter
    sender: str
    sent_at_ms: int
    correlation: str
    attempt: int | None


def seal(letter: Letter, sender: str, now_ms: int) -> tuple[Word, ...]:
    """Return the fields and values of an entry, as XADD takes them."""
    attempt: Word = getattr(letter, "attempt", "")
    return (
        "v", VERSION, "k", KIND_OF[type(letter)], "f", sender, "c", correlation_of(letter),
        "a", attempt, "t", now_ms, "b", _encode(letter),
    )  # fmt: skip


def unseal(entry_id: bytes | str, fields: Sequence[bytes]) -> Envelope:
    """Read an entry (field, value, field, value...), or raise UnreadableLetter with the reason."""
    found = dict(zip(fields[::2], fields[1::2], strict=False))
    try:
        if int(found[b"v"]) > VERSION:
            raise UnreadableLetter("newer_version")
        decoder = _DECODERS.get(found[b"k"])
        if decoder is None:
            raise UnreadableLetter("unknown_kind")
        attempt = found.get(b"a")
        return Envelope(
            entry_id if isinstance(entry_id, str) else entry_id.decode(),
            decoder.decode(found[b"b"]),
            found[b"f"].decode(),
            int(found[b"t"]),
            found.get(b"c", b"").decode(),
            int(attempt) if attempt else None,
        )
    except (KeyError, ValueError, RecursionError, msgspec.DecodeError):
        # Not a number, not UTF-8, nested without end, a field or part missing or of another type.
        raise UnreadableLetter("malformed") from None


def correlation_of(letter: Letter) -> str:
    """Return the id to look for in logs: the job, else the session, else the room."""
    for name in ("job", "session", "code"):
        value: str = getattr(letter, name, "")
        if value:
            return value
    return ""
