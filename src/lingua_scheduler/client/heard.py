"""What a client has received: the position of the last outcome, and what still has none.

Outcomes come in the order of their positions, so that one number per epoch tells which are new. If
the store lost its memory positions start over and some come again: then the utterance's own number
tells, which only grows within one language of one speaker. Pure: no clock, no socket.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from lingua_scheduler.messages.to_client import MissingResult, TranslationResult

# Utterances remembered without all their outcomes; a server lets far fewer be open.
OPEN_MAX: Final = 1024
# Speakers times languages; a room has fewer.
LANES_MAX: Final = 4096


class Heard:
    """One session's position and its utterances without outcome."""

    def __init__(self, outcomes_per_utterance: int) -> None:
        self.epoch = ""
        self.seq = 0
        # Outcomes that came again and were not shown again.
        self.duplicates = 0
        # New outcomes since the server was told the position.
        self.unacknowledged = 0
        self._expected = outcomes_per_utterance
        # Speaker and language -> the utterance heard last.
        self._last: dict[tuple[str, str | None], int] = {}
        # Accepted utterances -> how long they are; how many outcomes an utterance has so far.
        self._open: dict[int, int] = {}
        self._answers: dict[int, int] = {}

    @property
    def open_ms(self) -> int:
        """Return how much accepted audio has not all of its outcomes."""
        return sum(self._open.values())

    def begin(self, epoch: str) -> None:
        """A new session: nothing was heard of it yet."""
        self.start_over(epoch)
        self._last.clear()
        self._open.clear()
        self._answers.clear()

    def start_over(self, epoch: str) -> None:
        """Positions count from 0 again, under a new epoch."""
        self.epoch = epoch
        self.seq = 0
        self.unacknowledged = 0

    def forget_from(self, session: str, index: int) -> None:
        """The store lost a session's utterances from one on: their numbers are given out again."""
        for lane, last in self._last.items():
            if lane[0] == session and last >= index:
                self._last[lane] = index - 1

    def is_new(self, message: TranslationResult | MissingResult) -> bool:
        """Take note of an outcome's position; tell whether it was not there before."""
        epoch, seq = message.epoch, message.seq
        if epoch is None or seq is None:
            return True
        if epoch != self.epoch:
            self.start_over(epoch)
        if seq <= self.seq:
            self.duplicates += 1
            return False
        self.seq = seq
        self.unacknowledged += 1
        return self._is_later(message)

    def passed(self, epoch: str, seq: int) -> None:
        """Take note of the position of an outcome that others heard."""
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

    def accepted(self, index: int, duration_ms: int) -> bool:
        """An utterance will have its outcomes; tells whether it has them all already."""
        self._open[index] = duration_ms
        return self._settle(index)

    def answered(self, index: int) -> bool:
        """An utterance has one more outcome; tells whether it was the last one."""
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
