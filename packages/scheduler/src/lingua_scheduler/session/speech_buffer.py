"""The audio of the utterance that is being collected, chunk by chunk. Pure."""

from __future__ import annotations

from typing import NamedTuple


class Stamp(NamedTuple):
    """What is known about a chunk besides its audio."""

    # The server's clock when the chunk arrived.
    at_ms: float
    seq: int | None
    client_ts_ms: int | None
    # The newest chunk that is complete when speech is cut after this one.
    whole_seq: int | None


class BufferedSpeech(NamedTuple):
    """Audio taken from the buffer, with the stamps of its first and last chunk."""

    audio: bytes
    first: Stamp
    last: Stamp
    last_seq: int | None


class SpeechBuffer:
    """Chunks in the order of arrival."""

    __slots__ = ("_last_seq", "_stamps", "chunks", "size")

    def __init__(self) -> None:
        self.chunks: list[bytes] = []
        self._stamps: list[Stamp] = []
        # The bytes of all chunks.
        self.size = 0
        # The newest complete chunk; a chunk without audio may be newer than the last stamp.
        self._last_seq: int | None = None

    def add(self, data: bytes, stamp: Stamp) -> None:
        """Append a chunk."""
        self.chunks.append(data)
        self._stamps.append(stamp)
        self.size += len(data)
        self._last_seq = stamp.whole_seq

    def complete_at(self, seq: int) -> None:
        """Record that a chunk without audio followed."""
        self._last_seq = seq

    def take(self, count: int) -> BufferedSpeech:
        """Remove and return the first `count` chunks, at least one."""
        is_whole = count == len(self.chunks)
        first, last = self._stamps[0], self._stamps[count - 1]
        audio = b"".join(self.chunks if is_whole else self.chunks[:count])
        del self.chunks[:count]
        del self._stamps[:count]
        self.size -= len(audio)
        return BufferedSpeech(audio, first, last, self._last_seq if is_whole else last.whole_seq)
