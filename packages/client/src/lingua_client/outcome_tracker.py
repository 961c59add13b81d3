"""Which outcomes a client has received: the last position, and the utterances still without one.

Outcomes arrive in the order of their positions, so one number per epoch tells which are new. If the
store loses its data, positions restart and some outcomes arrive again; then the utterance index
tells, because it only increases within one language of one speaker. Pure: no clock, no socket.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from lingua_wire.to_client import MissingResult, TranslationResult

# Utterances remembered without all their outcomes; a server allows far fewer.
OPEN_MAX: Final = 1024
# Speakers times languages; a room has fewer.
LANES_MAX: Final = 4096


class OutcomeTracker:
    """The position of one session, and its utterances without an outcome."""

    def __init__(self, outcomes_per_utterance: int) -> None:
        self.epoch = ""
        self.seq = 0
        # Outcomes that arrived again and were dropped.
        self.duplicates = 0
        # New outcomes since the last acknowledgement.
        self.unacknowledged = 0
        self._expected = outcomes_per_utterance
        # Speaker and language -> the last utterance received.
        self._last: dict[tuple[str, str | None], int] = {}
        # Accepted utterances -> their length; utterances -> outcomes received so far.
        self._open: dict[int, int] = {}
        self._answers: dict[int, int] = {}

    @property
    def open_ms(self) -> int:
        """Return how much accepted audio still lacks outcomes."""
        return sum(self._open.values())

    def begin_session(self, epoch: str) -> None:
        """Start tracking a new session."""
        self.reset_positions(epoch)
        self._last.clear()
        self._open.clear()
        self._answers.clear()

    def reset_positions(self, epoch: str) -> None:
        """Count positions from 0 again, under a new epoch."""
        self.epoch = epoch
        self.seq = 0
        self.unacknowledged = 0

    def forget_from(self, session: str, index: int) -> None:
        """Forget a session's utterances from an index on: the store lost them and reuses it."""
        for lane, last in self._last.items():
            if lane[0] == session and last >= index:
                self._last[lane] = index - 1

    def record(self, message: TranslationResult | MissingResult) -> bool:
        """Record the position of an outcome; return whether the outcome is new."""
        epoch, seq = message.epoch, message.seq
        if epoch is None or seq is None:
            return True
        if epoch != self.epoch:
            self.reset_positions(epoch)
        if seq <= self.seq:
            self.duplicates += 1
            return False
        self.seq = seq
        self.unacknowledged += 1
        return self._is_later(message)

    def record_passed(self, epoch: str, seq: int) -> None:
        """Record the position of an outcome that only other members of the room receive."""
        if epoch == self.epoch and seq > self.seq:
            self.seq = seq
            self.unacknowledged += 1

    def _is_later(self, message: TranslationResult | MissingResult) -> bool:
        lane, index = (message.session_id, message.tgt_lang), message.utterance_index
        if index <= self._last.get(lane, -1):
            self.duplicates += 1
            return False
        self._last[lane] = index
        if len(self._last) > LANES_MAX:
            del self._last[next(iter(self._last))]
        return True

    def record_accepted(self, index: int, duration_ms: int) -> bool:
        """Record an accepted utterance; return whether it already has all its outcomes."""
        self._open[index] = duration_ms
        return self._settle(index)

    def record_answer(self, index: int) -> bool:
        """Record one more outcome of an utterance; return whether it was the last one."""
        self._answers[index] = self._answers.get(index, 0) + 1
        return self._settle(index)

    def _settle(self, index: int) -> bool:
        is_settled = index in self._open and self._answers.get(index, 0) >= self._expected
        if is_settled:
            del self._open[index], self._answers[index]
        for counted in (self._open, self._answers):
            if len(counted) > OPEN_MAX:
                del counted[next(iter(counted))]
        return is_settled
