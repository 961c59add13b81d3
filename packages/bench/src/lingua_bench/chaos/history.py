"""The histories of clients, nodes and the nemesis: lines of JSON in separate files.

The scheduler is not asked for its view. A line is written at once, so that the history of a killed
process is complete up to its death. Times are of the machine's one monotonic clock.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path


class HistoryLine(msgspec.Struct, frozen=True, array_like=True, tag=str.lower):
    """One recorded event."""

    at: float


class SessionOpened(HistoryLine, frozen=True):
    """A speaker has a session; a second one means that the session before was given up."""

    speaker: int
    session: str


class UtteranceBegun(HistoryLine, frozen=True):
    """A speaker is about to send an utterance: from now on it may have outcomes."""

    speaker: int
    number: int
    # Which of the speaker's sessions it is in, counted from 0, and its index there.
    life: int
    index: int
    targets: tuple[str, ...]


class UtteranceResent(HistoryLine, frozen=True):
    """The session ended before the utterance was accepted: the next session sends it again."""

    speaker: int
    number: int
    life: int
    index: int


class UtteranceSent(HistoryLine, frozen=True):
    """The end of an utterance was sent: from now on it must have an outcome per language."""

    speaker: int
    number: int
    chunks: int


class UtteranceAdmitted(HistoryLine, frozen=True):
    """The scheduler confirmed to a speaker that it has an utterance."""

    speaker: int
    number: int


class OutcomeReceived(HistoryLine, frozen=True):
    """An outcome arrived. `said` and `text` are the node's, empty if there is no translation."""

    speaker: int
    life: int
    index: int
    target: str
    reason: str
    said: str
    text: str
    epoch: str
    seq: int


class SessionMoved(HistoryLine, frozen=True):
    """A speaker moved to another instance by itself; None: it was not seen to resume."""

    speaker: int
    took_s: float | None


class NoticeReceived(HistoryLine, frozen=True):
    """Another notice that the client received: an error, a gap, a reset."""

    speaker: int
    what: str
    detail: str


class ClientEnded(HistoryLine, frozen=True):
    """A speaker has ended; `problem` is empty if it ended as it should."""

    speaker: int
    problem: str
    resumes: int


class NodeStarted(HistoryLine, frozen=True):
    """A node process started."""

    node: str
    max_jobs: int
    max_streams: int = 0


class NodeExited(HistoryLine, frozen=True):
    """A node process ended although nothing was done to it."""

    node: str


class AttemptStarted(HistoryLine, frozen=True):
    """A node started an attempt. `said` names the utterance, read from the marks in its audio."""

    job: str
    attempt: int
    said: str
    target: str
    # Attempts running now, this one included, and how many were refused so far.
    running: int
    refused: int


class AttemptFinished(HistoryLine, frozen=True):
    """A node ended an attempt."""

    job: str
    attempt: int
    is_done: bool


class StreamBegun(HistoryLine, frozen=True):
    """A node began to listen to somebody who speaks."""

    stream: str
    # Streams that it listens to now, this one included.
    running: int


class StreamEnded(HistoryLine, frozen=True):
    """A node listens no longer; `is_cut` if the utterance was cut, and not dropped or lost."""

    stream: str
    is_cut: bool


class StreamLeaseSeen(HistoryLine, frozen=True):
    """The store had a lease of a stream that had not expired."""

    stream: str
    node: str


class InjectedFault(HistoryLine, frozen=True):
    """A fault; `at` is the moment of the harm, `until` the moment it was undone."""

    kind: str
    target: str
    until: float
    # When it was stopped before `at`; 0 if it was not.
    stopped_at: float = 0.0


class OutageProbe(HistoryLine, frozen=True):
    """How an instance behaved without its store: whether it lived, how it refused a session."""

    is_alive: bool
    # The error code; empty if there was no answer, or a session.
    refusal: str
    took_s: float


# Events of participants in rooms. Each has a number of its own, and one session at a time.


class ParticipantConnected(HistoryLine, frozen=True):
    """A participant has a session; `kind` is `sdk`, or `old` for a client of the older protocol."""

    participant: int
    session: str
    kind: str
    # The language spoken, and those wanted while it is alone.
    source: str
    targets: tuple[str, ...]


class ParticipantResumed(HistoryLine, frozen=True):
    """A participant's session was resumed on another connection.

    The server has every utterance below `wanted`.
    """

    participant: int
    wanted: int


class ChangeRequested(HistoryLine, frozen=True):
    """A participant is about to request a change: `create`, `join`, `leave` or `language`."""

    participant: int
    what: str
    room: str
    # The language to receive from now on; empty for none.
    lang: str


class RosterReceived(HistoryLine, frozen=True):
    """A participant received a roster: sessions, the languages they want, since when."""

    participant: int
    room: str
    members: tuple[tuple[str, str, int], ...]


class CutRequested(HistoryLine, frozen=True):
    """A participant is about to end an utterance; `by` is what ends it, `final` or `change`."""

    participant: int
    number: int
    chunks: int
    # Its index in the session.
    place: int
    by: str


class UtteranceAcknowledged(HistoryLine, frozen=True):
    """A participant was notified that an utterance is in the store; `number` by its chunks."""

    participant: int
    session: str
    index: int
    number: int


class RoomOutcomeReceived(HistoryLine, frozen=True):
    """A participant received an outcome, its own or another's; `session` is the speaker's."""

    participant: int
    session: str
    index: int
    lane: str
    reason: str
    said: str
    text: str
    epoch: str
    seq: int


class PartialReceived(HistoryLine, frozen=True):
    """A participant received a partial text, of its own speech or of another's."""

    participant: int
    session: str
    index: int
    revision: int
    # The stream that it comes from: nodes write it into the text that may still change.
    stream: str
    stable: str
    lanes: tuple[str, ...]


class PassedNoticeReceived(HistoryLine, frozen=True):
    """A speaker was notified that the others have an outcome."""

    participant: int
    session: str
    index: int
    lane: str
    epoch: str
    seq: int


class ParticipantLeft(HistoryLine, frozen=True):
    """A participant is about to leave: `closed`, `abandoned`, `dropped`, or `stayed` to the end."""

    participant: int
    how: str
    problem: str


class DeliveryInterrupted(HistoryLine, frozen=True):
    """An instance was killed while a node sent the result of this utterance."""

    target: str
    said: str


RoomLine = (
    ParticipantConnected
    | ParticipantResumed
    | ChangeRequested
    | RosterReceived
    | CutRequested
    | UtteranceAcknowledged
    | RoomOutcomeReceived
    | PartialReceived
    | PassedNoticeReceived
    | ParticipantLeft
)
ClientLine = (
    SessionOpened
    | UtteranceBegun
    | UtteranceResent
    | UtteranceSent
    | UtteranceAdmitted
    | OutcomeReceived
    | SessionMoved
    | NoticeReceived
    | ClientEnded
)
NodeLine = NodeStarted | NodeExited | AttemptStarted | AttemptFinished | StreamBegun | StreamEnded
FaultLine = InjectedFault | OutageProbe | DeliveryInterrupted
AnyLine = ClientLine | RoomLine | NodeLine | FaultLine | StreamLeaseSeen
_decoder = msgspec.json.Decoder(AnyLine)

# The reason of an outcome that has a translation.
RESULT = "result"

CLIENTS = "*.clients"
PEOPLE = "*.people"
NODES = "*.node"
FAULTS = "*.faults"
LEASES = "*.leases"


class Recorder:
    """A file of lines; every line is written when `note` returns."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(self, line: AnyLine) -> None:
        """Write a line."""
        os.write(self._file, msgspec.json.encode(line) + b"\n")

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def read_lines(path: Path) -> Iterator[AnyLine]:
    """Give the lines of a file; an incomplete last line is ignored."""
    whole, _, _ = path.read_bytes().rpartition(b"\n")
    yield from map(_decoder.decode, whole.splitlines())


def running_attempts(path: Path) -> int:
    """Return how many attempts a node process runs, by its history; 0 without a history."""
    lines = list(read_lines(path)) if path.exists() else []
    started = {(line.job, line.attempt) for line in lines if isinstance(line, AttemptStarted)}
    ended = {(line.job, line.attempt) for line in lines if isinstance(line, AttemptFinished)}
    return len(started - ended)


def open_streams(lines: Iterable[AnyLine]) -> int:
    """Return to how many speakers a node process listens at the end of its history."""
    changes = Counter[bool](
        isinstance(line, StreamBegun)
        for line in lines
        if isinstance(line, StreamBegun | StreamEnded)
    )
    return changes[True] - changes[False]


def read_all(place: Path, pattern: str) -> dict[str, list[AnyLine]]:
    """Return the lines of every file that matches a pattern, by the file's name."""
    return {path.stem: list(read_lines(path)) for path in sorted(place.glob(pattern))}
