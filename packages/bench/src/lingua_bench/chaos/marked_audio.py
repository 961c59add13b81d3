"""Audio that names its speaker and utterance, so that a checker can tell what arrived where.

Every chunk of 100 ms begins with a mark: speaker, utterance, index in it. A node returns the marks
as `speaker.utterance:0,1,2`; any other audio is `garbled`.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

import msgspec

SAMPLE_RATE: Final = 16_000
CHUNK_BYTES: Final = 2 * SAMPLE_RATE // 10
SOURCE: Final = "zh"
TARGETS: Final = ("en", "es")
# The languages of rooms; nodes support every pair of them.
LANGUAGES: Final = ("zh", "en", "es", "ja")
# Participants of rooms have numbers from here on.
FIRST_PARTICIPANT: Final = 10_000
# How long speakers wait for outcomes when they have stopped.
QUIET_BOUND_S: Final = 90.0
MAGIC: Final = b"\x5a\x25LC"
GARBLED: Final = "garbled"
_MARK: Final = struct.Struct(">4sHIH")
# Loud enough for any voice detector.
_REST: Final = b"\x00\x30\x00\xd0" * ((CHUNK_BYTES - _MARK.size) // 4)


class SpeechPlan(msgspec.Struct, frozen=True, kw_only=True):
    """How much the speakers speak."""

    urls: tuple[str, ...]
    place: str
    sessions: int
    # Number of the first speaker: several processes may speak in one run.
    first: int = 0
    # Utterances of one session in progress at once, and the mean pause between two.
    window: int = 4
    pause_s: float = 0.3
    chunks_most: int = 4
    # How often each speaker changes its instance, and the mean time between two such moves.
    moves: int = 0
    move_every_s: float = 1.5
    seed: int = 0


class RoomPlan(msgspec.Struct, frozen=True, kw_only=True):
    """How many participants rooms have, and how much they speak."""

    urls: tuple[str, ...]
    place: str
    rooms: int
    size: int
    pause_s: float = 0.5
    chunks_most: int = 3
    # The part of utterances that are spoken slowly, at the pace of speech, and how long these are:
    # nodes can listen to them.
    slow: float = 0.0
    slow_chunks: tuple[int, int] = (6, 12)
    # The part of utterances after which, or in which, the speaker makes a change.
    restless: float = 0.35
    # All is quiet when nothing arrives for so long although it should: longer than a job may wait,
    # and longer than lost work takes to be found.
    silence_s: float = 14.0
    # The changes that they make; see `participants.py`.
    acts: tuple[str, ...] = ()
    seed: int = 0


class MarkedUtterance(NamedTuple):
    """The utterance that a text names, and its chunks."""

    speaker: int
    number: int
    chunks: tuple[int, ...]


def chunk(speaker: int, number: int, place: int) -> bytes:
    """Return one chunk of an utterance."""
    return (_MARK.pack(MAGIC, speaker, number, place) + _REST).ljust(CHUNK_BYTES, b"\x00")


def marks_in(audio: bytes) -> str:
    """Return the marks in the audio of a job, as text."""
    marks = [_MARK.unpack_from(audio, at) for at in range(0, whole(audio), CHUNK_BYTES)]
    owners = {(speaker, number) for _, speaker, number, _ in marks}
    if len(owners) != 1 or whole(audio) != len(audio) or any(mark[0] != MAGIC for mark in marks):
        return GARBLED
    (speaker, number) = owners.pop()
    return written(MarkedUtterance(speaker, number, tuple(mark[3] for mark in marks)))


def whole(audio: bytes) -> int:
    """Return how many bytes of the audio are complete chunks."""
    return len(audio) // CHUNK_BYTES * CHUNK_BYTES


def written(said: MarkedUtterance) -> str:
    """Return an utterance as a node writes it."""
    return f"{said.speaker}.{said.number}:{','.join(map(str, said.chunks))}"


def read(text: str) -> MarkedUtterance | None:
    """Return the utterance that a text names, None if it is garbled."""
    owner, colon, chunks = text.partition(":")
    speaker, _, number = owner.partition(".")
    if not (colon and speaker.isdecimal() and number.isdecimal()):
        return None
    return MarkedUtterance(
        int(speaker), int(number), tuple(int(place) for place in chunks.split(","))
    )


def translated(said: str, target: str, attempt: int) -> str:
    """Return the text of a translation: language and attempt, for the checker."""
    return f"{target} {attempt} {said}"
