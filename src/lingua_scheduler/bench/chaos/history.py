"""What clients, nodes and the nemesis saw, as lines of JSON in files of their own.

Nobody asks the scheduler how it went. A line is written at once, so that what a killed process saw
is there; what it could not write stays unknown. Times are of the machine's one monotonic clock.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Line(msgspec.Struct, frozen=True, array_like=True, tag=str.lower):
    """Something that was seen."""

    at: float


class Opened(Line, frozen=True):
    """A speaker has a session; after the first, because the one before was given up."""

    speaker: int
    session: str


class Began(Line, frozen=True):
    """A speaker is about to send an utterance: from now on it may have outcomes."""

    speaker: int
    number: int
    # Which of the speaker's sessions it is, counted from 0, and its place there.
    life: int
    index: int
    targets: tuple[str, ...]


class Again(Line, frozen=True):
    """Its session was given up before the utterance was accepted: it is sent again in the next."""

    speaker: int
    number: int
    life: int
    index: int


class Sent(Line, frozen=True):
    """The end of an utterance was sent: from now on it must have an outcome per language."""

    speaker: int
    number: int
    chunks: int


class Heard(Line, frozen=True):
    """An outcome came. `said` and `text` are the node's, nothing if there is no translation."""

    speaker: int
    life: int
    index: int
    target: str
    reason: str
    said: str
    text: str
    epoch: str
    seq: int


class Moved(Line, frozen=True):
    """A speaker changed its instance by itself; None: it was not seen to go on."""

    speaker: int
    took_s: float | None


class Told(Line, frozen=True):
    """Something else the client was told: an error, a gap, a reset."""

    speaker: int
    what: str
    detail: str


class Ended(Line, frozen=True):
    """A speaker has ended; `problem` is empty if as it should."""

    speaker: int
    problem: str
    resumes: int


class Up(Line, frozen=True):
    """A node process began."""

    node: str
    max_jobs: int


class Started(Line, frozen=True):
    """A node began an attempt. `said` names the utterance, as heard in its audio."""

    job: str
    attempt: int
    said: str
    target: str
    # Attempts running now, this one included, and how many were refused so far.
    running: int
    refused: int


class Finished(Line, frozen=True):
    """A node ended an attempt."""

    job: str
    attempt: int
    is_done: bool


class Fault(Line, frozen=True):
    """Something was done to the system; `at` is when it hurt, `until` when it was made good."""

    kind: str
    target: str
    until: float


class Probe(Line, frozen=True):
    """How an instance bore the loss of its store: alive, and what it told a new session when."""

    is_alive: bool
    # The code of the error; empty if there was no answer, or a session.
    refusal: str
    took_s: float


# What people in rooms see. Each has a number of its own, and one session at a time.


class Arrived(Line, frozen=True):
    """A person has a session; `kind` is `sdk`, or `old` for a client of the older protocol."""

    person: int
    session: str
    kind: str
    # The language spoken, and those wanted while nobody else is there.
    source: str
    targets: tuple[str, ...]


class Resumed(Line, frozen=True):
    """A person's session goes on, on another connection.

    The server has what was said up to an utterance, this one not included.
    """

    person: int
    wanted: int


class Asked(Line, frozen=True):
    """A person is about to ask for a change: `create`, `join`, `leave` or `language`."""

    person: int
    what: str
    room: str
    # The language to hear from now on; empty for none.
    lang: str


class Roster(Line, frozen=True):
    """A person was told who is in a room: sessions, the languages they want, since when."""

    person: int
    room: str
    members: tuple[tuple[str, str, int], ...]


class Cut(Line, frozen=True):
    """A person is about to end an utterance; `by` says what ends it, `final` or `change`."""

    person: int
    number: int
    chunks: int
    # The how-manieth of its session it is.
    place: int
    by: str


class Accepted(Line, frozen=True):
    """A person was told that an utterance is in the store; `number` by the chunks it names."""

    person: int
    session: str
    index: int
    number: int


class Received(Line, frozen=True):
    """A person got an outcome, its own or another's; `session` is the speaker's."""

    person: int
    session: str
    index: int
    lane: str
    reason: str
    said: str
    text: str
    epoch: str
    seq: int


class Passed(Line, frozen=True):
    """A speaker was told that others have an outcome."""

    person: int
    session: str
    index: int
    lane: str
    epoch: str
    seq: int


class Gone(Line, frozen=True):
    """A person is about to go: `closed`, `abandoned`, `dropped`, or `stayed` until the end."""

    person: int
    how: str
    problem: str


class Struck(Line, frozen=True):
    """An instance was killed because just then a node sent the result of this utterance."""

    target: str
    said: str


RoomLine = (
    Arrived | Resumed | Asked | Roster | Cut | Accepted | Received | Passed | Gone
)  # fmt: skip
ClientLine = Opened | Began | Again | Sent | Heard | Moved | Told | Ended
NodeLine = Up | Started | Finished
AnyLine = ClientLine | RoomLine | NodeLine | Fault | Probe | Struck
_decoder = msgspec.json.Decoder(AnyLine)

# What an outcome that has a translation has as its reason.
RESULT = "result"

CLIENTS = "*.clients"
PEOPLE = "*.people"
NODES = "*.node"
FAULTS = "*.faults"


class Recorder:
    """A file of lines; every line is there when `note` returns."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(self, line: AnyLine) -> None:
        """Write a line."""
        os.write(self._file, msgspec.json.encode(line) + b"\n")

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def read_lines(path: Path) -> Iterator[AnyLine]:
    """Give the lines of a file; a last one that was not finished was not seen."""
    whole, _, _ = path.read_bytes().rpartition(b"\n")
    yield from map(_decoder.decode, whole.splitlines())


def read_all(place: Path, pattern: str) -> dict[str, list[AnyLine]]:
    """Return the lines of every file of a kind, by its name."""
    return {path.stem: list(read_lines(path)) for path in sorted(place.glob(pattern))}
