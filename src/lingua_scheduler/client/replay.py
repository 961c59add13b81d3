"""Audio that the server may still need: every chunk, numbered, until what it said is answered.

A chunk that is accepted is in the server's store, and need not be sent again unless the store and
the instance are lost together; so it is kept, as far as there is room, until its outcomes are
there. Pure: no clock, no socket. What `take_unsent` gives is sent; after a resume `go_back` says
from where chunks are to be sent again.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple


class Chunk(NamedTuple):
    """A piece of speech; an empty one only says that the utterance ends."""

    seq: int
    payload: bytes
    is_final: bool
    timestamp_ms: int


@dataclass(slots=True)
class Accepted:
    """Chunks up to a number that the server has."""

    seq: int
    # Where the next chunk begins in the session's audio.
    audio_ms: int
    # The utterance they are, None if it is silence.
    index: int | None
    is_answered: bool


class Replay:
    """The chunks kept, in order: accepted ones, sent ones, and those not sent yet."""

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
        # What the server has and is still kept, in order; the first chunk it may not have.
        self._accepted: deque[Accepted] = deque()
        self._open_seq = 0
        # What was sent and not accepted: how much audio, and the ends of utterances.
        self.sent_size = 0
        self._sent_ends: deque[int] = deque()
        # Where the first chunk kept begins in the session's audio, as far as the server said.
        self.audio_ms = 0
        # The oldest chunks are given up when there are too many: nobody acknowledges any.
        self.is_lossy = False

    @property
    def unsaid_size(self) -> int:
        """Return how much audio the server may not have."""
        return sum(len(chunk.payload) for chunk in self._chunks if chunk.seq >= self._open_seq)

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
        self._make_room()

    def accept(self, seq: int, audio_ms: int, index: int | None, *, is_answered: bool) -> None:
        """The server has the chunks up to a number: an utterance, or silence."""
        # Of two that cross each other the later one counts.
        if self._accepted and seq <= self._accepted[-1].seq:
            return
        if seq >= self.first_seq:
            self._accepted.append(Accepted(seq, audio_ms, index, is_answered))
        self._open_seq = max(self._open_seq, seq + 1)
        self._unsent_seq = max(self._unsent_seq, self._open_seq)
        self._count_sent()
        self._forget_answered()
        self._make_room()

    def answered(self, index: int) -> None:
        """An utterance has all its outcomes."""
        for accepted in self._accepted:
            if accepted.index == index:
                accepted.is_answered = True
        self._forget_answered()

    def forget_accepted(self) -> None:
        """Another session begins: only what nobody has is said there."""
        while self._accepted:
            self._forget(self._accepted.popleft())

    def go_back(self, seq: int | None) -> None:
        """Send again from a number on, or all that is kept.

        What is before may be in one server's memory only: it is kept until it is answered.
        """
        wanted = self.first_seq if seq is None else min(seq, self._unheard_seq)
        self._unsent_seq = max(wanted, self.first_seq)
        # What it has forgotten it will accept anew.
        self._open_seq = min(self._open_seq, self._unsent_seq)
        while self._accepted and self._accepted[-1].seq >= self._unsent_seq:
            self._accepted.pop()
        self._count_sent()

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

    def _count_sent(self) -> None:
        sent = [c for c in self._chunks if self._open_seq <= c.seq < self._unsent_seq]
        self.sent_size = sum(len(chunk.payload) for chunk in sent)
        self._sent_ends = deque(chunk.seq for chunk in sent if chunk.is_final)

    def _forget_answered(self) -> None:
        while self._accepted and self._accepted[0].is_answered:
            self._forget(self._accepted.popleft())

    def _make_room(self) -> None:
        """Give up the oldest that the server has rather than let speech wait."""
        while self.size >= self._bytes_max and self._accepted:
            self._forget(self._accepted.popleft())

    def _forget(self, accepted: Accepted) -> None:
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
