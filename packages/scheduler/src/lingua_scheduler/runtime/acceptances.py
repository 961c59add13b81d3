"""Utterances whose acceptance is to be reported: in the order of their audio.

An acknowledgement of chunk N lets the client discard everything before N. So an utterance of the
stream is reported when the store has answered for all its languages and for those before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lingua_scheduler.flag import Flag

if TYPE_CHECKING:
    from lingua_scheduler.runtime.utterance import PendingUtterance
    from lingua_scheduler.runtime.utterance_replies import UtteranceReplies


class AcceptanceQueue:
    """The submitted utterances of one session that the store has not answered for."""

    __slots__ = ("_replies", "_taken", "_unanswered", "_unreported", "acknowledged_seq")

    def __init__(self, replies: UtteranceReplies) -> None:
        self._replies = replies
        # Utterances of the stream, in order, that were not reported to the client.
        self._unreported: list[PendingUtterance] = []
        # Languages without an answer.
        self._unanswered = 0
        # Set while the store owes no answer for anything that was cut.
        self._taken = Flag(is_set=True)
        # The last chunk that was acknowledged: the client need not keep it.
        self.acknowledged_seq = -1

    def __len__(self) -> int:
        return len(self._unreported)

    @property
    def first_index(self) -> int | None:
        """Return the index of the first unreported utterance of the stream."""
        return self._unreported[0].index if self._unreported else None

    def cut(self) -> None:
        """Note that something was cut which the store has not answered for."""
        self._taken.clear()

    def submitted(self, utterance: PendingUtterance, answers: int) -> None:
        """Note how many answers of the store are outstanding for an utterance."""
        utterance.submitted(answers)
        self._unanswered += answers
        if utterance.last_seq is not None:
            self._unreported.append(utterance)

    def answered(self, utterance: PendingUtterance, is_taken: bool) -> None:
        """Note one answer of the store, and report what is complete."""
        self._unanswered -= 1
        utterance.answered(is_taken)
        self.report(utterance)

    def report(self, utterance: PendingUtterance) -> None:
        """Report an utterance that is stored in all its languages, and those before it."""
        if utterance.last_seq is None:
            is_owed = utterance.is_taken and not utterance.is_accepted_sent
            if is_owed and not utterance.unanswered:
                self._replies.accepted(utterance)
        unreported = self._unreported
        while unreported and not unreported[0].unanswered:
            first = unreported.pop(0)
            last_seq = first.last_seq
            if first.is_taken and last_seq is not None:
                self._replies.accepted(first)
                self.acknowledged_seq = max(self.acknowledged_seq, last_seq)

    def acknowledge(self, seq: int) -> None:
        """Note that this chunk was acknowledged: the client need not keep it."""
        self.acknowledged_seq = seq

    def note_idle(self) -> None:
        """Note that nothing waits to be submitted."""
        if not self._unanswered:
            self._taken.set()

    def give_up(self) -> None:
        """Release all waiting tasks: another instance owns the session."""
        self._taken.set()

    async def until_taken(self) -> None:
        """Wait until the store has answered for everything that was cut."""
        await self._taken.wait()
