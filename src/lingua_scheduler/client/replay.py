"""Audio that the server may still need: every chunk, numbered, until it is acknowledged.

Pure: no clock, no socket. What `take_unsent` gives is sent; after a resume `go_back` says from
where chunks are to be sent again.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple


class Chunk(NamedTuple):
    """A piece of speech; an empty one only says that the utterance ends."""

    seq: int
    payload: bytes
    is_final: bool
    timestamp_ms: int


class Replay:
    """The chunks kept, in order."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._chunks: deque[Chunk] = deque()
        # How much audio these are.
        self.size = 0
        # The number of the next new chunk, and of the next one to be sent.
        self.next_seq = 0
        self._unsent_seq = 0
        # The first that was never sent: nobody can have it.
        self._unheard_seq = 0
        # What was sent and not acknowledged: how much audio, and the ends of utterances.
        self.sent_size = 0
        self._sent_ends: deque[int] = deque()
        # Where the first chunk kept begins in the session's audio, as far as the server said.
        self.audio_ms = 0
        # The oldest chunks are given up when there are too many: nobody acknowledges any.
        self.is_lossy = False

    @property
    def is_full(self) -> bool:
        """Tell whether no more should be added now."""
        if self.is_lossy and self.first_seq < self._unsent_seq:
            return False
        return self.size >= self._bytes_max

    @property
    def is_sent(self) -> bool:
        """Tell whether everything was sent, once at least."""
        return self._unsent_seq == self.next_seq

    @property
    def sent_ends(self) -> int:
        """Return how many ends of utterances were sent and not acknowledged."""
        return len(self._sent_ends)

    @property
    def first_seq(self) -> int:
        """Return the number of the first chunk kept, or of the next new one."""
        return self._chunks[0].seq if self._chunks else self.next_seq

    def add(self, payload: bytes, *, is_final: bool, timestamp_ms: int) -> None:
        """Number a chunk and keep it."""
        self._chunks.append(Chunk(self.next_seq, payload, is_final, timestamp_ms))
        self.next_seq += 1
        self.size += len(payload)
        while self.is_lossy and self.size > self._bytes_max and self.first_seq < self._unsent_seq:
            self._drop_first()

    def acknowledge(self, seq: int, audio_ms: int) -> None:
        """Forget the chunks up to a number; the next one begins at a time."""
        # Of two that cross each other the later one counts.
        if seq >= self.first_seq:
            self.audio_ms = audio_ms
        self._forget(seq)

    def go_back(self, seq: int | None) -> None:
        """Send again from a number on, or all that is kept.

        What is before may be in one server's memory only: it is kept until it is acknowledged.
        """
        wanted = self.first_seq if seq is None else min(seq, self._unheard_seq)
        self._unsent_seq = max(wanted, self.first_seq)
        sent = [chunk for chunk in self._chunks if chunk.seq < self._unsent_seq]
        self.sent_size = sum(len(chunk.payload) for chunk in sent)
        self._sent_ends = deque(chunk.seq for chunk in sent if chunk.is_final)

    def take_unsent(self) -> Chunk | None:
        """Return the next chunk to be sent, which counts as sent from now on, or None."""
        behind = self.next_seq - self._unsent_seq
        if not behind:
            return None
        self._unsent_seq += 1
        self._unheard_seq = max(self._unheard_seq, self._unsent_seq)
        chunk = self._chunks[-behind]
        self.sent_size += len(chunk.payload)
        if chunk.is_final:
            self._sent_ends.append(chunk.seq)
        return chunk

    def _forget(self, seq: int) -> None:
        while self._chunks and self._chunks[0].seq <= seq:
            self._drop_first()
        self._unsent_seq = max(self._unsent_seq, self.first_seq)

    def _drop_first(self) -> None:
        chunk = self._chunks.popleft()
        self.size -= len(chunk.payload)
        if chunk.seq < self._unsent_seq:
            self.sent_size -= len(chunk.payload)
        while self._sent_ends and self._sent_ends[0] <= chunk.seq:
            self._sent_ends.popleft()
