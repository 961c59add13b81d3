"""Audio that the server may still need: every chunk, numbered, until its utterance is answered.

An accepted chunk is in the server's store. It must be sent again only if the store and the instance
are lost together, so it is kept, as long as there is room, until its outcomes have arrived. Chunks
returned by `next_unsent` count as sent; after a resume `rewind` sets the first chunk to send again.
Pure: no clock, no socket.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple


class Chunk(NamedTuple):
    """A piece of speech; an empty one only marks the end of the utterance."""

    seq: int
    payload: bytes
    is_final: bool
    timestamp_ms: int


@dataclass(slots=True)
class AcceptedAudio:
    """Chunks that the server has accepted: all up to a number."""

    seq: int
    # Where the next chunk begins in the session's audio.
    audio_ms: int
    # Their utterance; None if they are silence.
    index: int | None
    is_answered: bool


class ReplayBuffer:
    """The chunks kept, in order: accepted ones, sent ones, and those not sent yet."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._chunks: deque[Chunk] = deque()
        # Their size in bytes.
        self.size = 0
        # The number of the next new chunk, and of the next chunk to send.
        self.next_seq = 0
        self._unsent_seq = 0
        # The first chunk that was never sent: no server can have it.
        self._never_sent_seq = 0
        # Accepted audio that is still kept, in order; the first chunk that is not accepted.
        self._accepted: deque[AcceptedAudio] = deque()
        self._open_seq = 0
        # Sent and not accepted: bytes of audio, and chunks that end utterances.
        self.sent_size = 0
        self._sent_ends: deque[int] = deque()
        # Where the first chunk kept begins in the session's audio, as reported by the server.
        self.audio_ms = 0
        # The server acknowledges nothing: the oldest chunks are dropped when there are too many.
        self.is_lossy = False

    @property
    def unaccepted_size(self) -> int:
        """Return the bytes of audio that the server may not have."""
        return sum(len(chunk.payload) for chunk in self._chunks if chunk.seq >= self._open_seq)

    @property
    def is_full(self) -> bool:
        """Tell whether no chunk should be added now."""
        if self.is_lossy and self.first_seq < self._unsent_seq:
            return False
        return self.size >= self._bytes_max

    @property
    def is_sent(self) -> bool:
        """Tell whether every chunk was sent at least once."""
        return self._unsent_seq == self.next_seq

    @property
    def sent_ends(self) -> int:
        """Return how many ends of utterances were sent and not accepted."""
        return len(self._sent_ends)

    @property
    def first_seq(self) -> int:
        """Return the number of the first chunk kept, or of the next new one."""
        return self._chunks[0].seq if self._chunks else self.next_seq

    @property
    def open_seq(self) -> int:
        """Return the first chunk that is not accepted, or the next new one."""
        return max(self._open_seq, self.first_seq)

    def add(self, payload: bytes, *, is_final: bool, timestamp_ms: int) -> None:
        """Number a chunk and keep it."""
        self._chunks.append(Chunk(self.next_seq, payload, is_final, timestamp_ms))
        self.next_seq += 1
        self.size += len(payload)
        while self.is_lossy and self.size > self._bytes_max and self.first_seq < self._unsent_seq:
            self._drop_first()
        self._evict_accepted()

    def accept(self, seq: int, audio_ms: int, index: int | None, *, is_answered: bool) -> None:
        """Record that the server accepted the chunks up to a number: an utterance, or silence."""
        # If two reports overtake each other the higher number counts.
        if self._accepted and seq <= self._accepted[-1].seq:
            return
        if seq >= self.first_seq:
            self._accepted.append(AcceptedAudio(seq, audio_ms, index, is_answered))
        self._open_seq = max(self._open_seq, seq + 1)
        self._unsent_seq = max(self._unsent_seq, self._open_seq)
        self._count_sent()
        self._forget_answered()
        self._evict_accepted()

    def mark_answered(self, index: int) -> None:
        """Record that an utterance has all its outcomes."""
        for accepted in self._accepted:
            if accepted.index == index:
                accepted.is_answered = True
        self._forget_answered()

    def forget_accepted(self) -> None:
        """Drop accepted chunks: a new session gets only those that were not accepted."""
        while self._accepted:
            self._forget(self._accepted.popleft())

    def rewind(self, seq: int | None) -> None:
        """Send again from a number on, or all chunks that are kept.

        Earlier chunks may be only in the memory of one server: they are kept until answered.
        """
        wanted = self.first_seq if seq is None else min(seq, self._never_sent_seq)
        self._unsent_seq = max(wanted, self.first_seq)
        # The server will accept again the chunks that it lost.
        self._open_seq = min(self._open_seq, self._unsent_seq)
        while self._accepted and self._accepted[-1].seq >= self._unsent_seq:
            self._accepted.pop()
        self._count_sent()

    def next_unsent(self) -> Chunk | None:
        """Return the next chunk to send, or None; it counts as sent from now on."""
        behind = self.next_seq - self._unsent_seq
        if not behind:
            return None
        self._unsent_seq += 1
        self._never_sent_seq = max(self._never_sent_seq, self._unsent_seq)
        chunk = self._chunks[-behind]
        self.sent_size += len(chunk.payload)
        if chunk.is_final:
            self._sent_ends.append(chunk.seq)
        return chunk

    def _count_sent(self) -> None:
        sent = [c for c in self._chunks if self._open_seq <= c.seq < self._unsent_seq]
        self.sent_size = sum(len(chunk.payload) for chunk in sent)
        self._sent_ends = deque(chunk.seq for chunk in sent if chunk.is_final)

    def _forget_answered(self) -> None:
        while self._accepted and self._accepted[0].is_answered:
            self._forget(self._accepted.popleft())

    def _evict_accepted(self) -> None:
        """Drop the oldest accepted audio rather than let speech wait."""
        while self.size >= self._bytes_max and self._accepted:
            self._forget(self._accepted.popleft())

    def _forget(self, accepted: AcceptedAudio) -> None:
        self.audio_ms = accepted.audio_ms
        while self._chunks and self._chunks[0].seq <= accepted.seq:
            self._drop_first()

    def _drop_first(self) -> None:
        chunk = self._chunks.popleft()
        self.size -= len(chunk.payload)
        if self._open_seq <= chunk.seq < self._unsent_seq:
            self.sent_size -= len(chunk.payload)
        while self._sent_ends and self._sent_ends[0] <= chunk.seq:
            self._sent_ends.popleft()
