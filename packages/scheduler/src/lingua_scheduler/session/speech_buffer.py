"""The audio of the utterance that is being collected, chunk by chunk. Pure."""

from __future__ import annotations

from typing import NamedTuple

# A chunk, or a part of a long one: its audio, its number, the client's clock, the newest chunk that
# is complete with it, the bytes of its chunk before it, and the server's clock when it was added. A
# plain tuple, because one is made for every chunk that arrives: a class would cost as much as all
# the rest that is done with it.
SpeechChunk = tuple[bytes, int | None, int | None, int | None, int, float]


class BufferedSpeech(NamedTuple):
    """Audio taken from the buffer, with what is known about its first and its last chunk."""

    audio: bytes
    first_seq: int | None
    first_client_ts_ms: int | None
    # The server's clock when the last chunk was added.
    last_at_ms: float
    # The newest chunk that is complete.
    last_seq: int | None


class SpeechBuffer:
    """Chunks in the order of arrival."""

    __slots__ = ("_chunks", "_completed_seq", "size")

    def __init__(self) -> None:
        self._chunks: list[SpeechChunk] = []
        # The bytes of all chunks.
        self.size = 0
        # A chunk without audio that followed the last of them.
        self._completed_seq: int | None = None

    def __len__(self) -> int:
        return len(self._chunks)

    @property
    def audio(self) -> list[bytes]:
        """Return the audio of each chunk."""
        return [chunk[0] for chunk in self._chunks]

    def after(self, count: int) -> bytes:
        """Return the audio of all chunks after the first `count`."""
        return b"".join([chunk[0] for chunk in self._chunks[count:]])

    @property
    def last_at_ms(self) -> float:
        """Return when the last chunk was added; there must be one."""
        return self._chunks[-1][5]

    def add(self, chunk: SpeechChunk, size: int) -> None:
        """Append a chunk with so many bytes."""
        self._chunks.append(chunk)
        self.size += size
        self._completed_seq = None

    def complete_at(self, seq: int) -> None:
        """Record that a chunk without audio followed."""
        self._completed_seq = seq

    def take(self, count: int) -> BufferedSpeech:
        """Remove and return the first `count` chunks, at least one."""
        taken = self._chunks[:count]
        del self._chunks[:count]
        audio = b"".join([chunk[0] for chunk in taken])
        self.size -= len(audio)
        _, first_seq, first_client_ts_ms, _, _, _ = taken[0]
        _, _, _, last_seq, _, last_at_ms = taken[-1]
        if not self._chunks and self._completed_seq is not None:
            last_seq = self._completed_seq
        return BufferedSpeech(audio, first_seq, first_client_ts_ms, last_at_ms, last_seq)

    def take_after(self, count: int) -> list[SpeechChunk]:
        """Remove and return all chunks after the first `count`."""
        taken = self._chunks[count:]
        if taken:
            del self._chunks[count:]
            self.size -= sum(len(chunk[0]) for chunk in taken)
            # It followed a chunk that is not here any more.
            self._completed_seq = None
        return taken
