"""Utterances that wait to be submitted: in order, bounded, and the client is asked to pause."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lingua_scheduler.runtime.utterance import PendingUtterance
    from lingua_scheduler.runtime.utterance_replies import UtteranceReplies


class UtteranceBacklog:
    """The waiting utterances of one session."""

    __slots__ = ("_pause_at", "_replies", "is_paused", "waiting", "waiting_max")

    def __init__(self, replies: UtteranceReplies, waiting_max: int) -> None:
        self._replies = replies
        # In order; a list, because few may wait.
        self.waiting: list[PendingUtterance] = []
        self.waiting_max = waiting_max
        # Below the bound: audio that is already on its way still has a place.
        self._pause_at = -(-3 * waiting_max // 4)
        self.is_paused = False

    def __len__(self) -> int:
        return len(self.waiting)

    def __iter__(self) -> Iterator[PendingUtterance]:
        return iter(self.waiting)

    @property
    def first(self) -> PendingUtterance | None:
        """Return the utterance that is next."""
        return self.waiting[0] if self.waiting else None

    def add(self, utterance: PendingUtterance, *, is_first: bool = False) -> None:
        """Let an utterance wait behind the others, or before them."""
        if is_first:
            self.waiting.insert(0, utterance)
        else:
            self.waiting.append(utterance)

    def pop(self) -> PendingUtterance:
        """Return the utterance that is next, and remove it."""
        return self.waiting.pop(0)

    def clear(self) -> None:
        """Drop all waiting utterances: another owner has the session, or they are not wanted."""
        self.waiting.clear()

    @property
    def is_addressing(self) -> bool:
        """Tell whether the audience of any waiting utterance is not known yet."""
        return any(utterance.is_addressing for utterance in self.waiting)

    def press(self) -> None:
        """Ask the client to slow down or to pause, if many utterances wait."""
        waiting = len(self.waiting)
        if waiting >= self._pause_at and not self.is_paused:
            self.is_paused = True
            self._replies.pressure("PAUSE")
        elif waiting == self.waiting_max // 2 and not self.is_paused:
            self._replies.pressure("SLOW_DOWN")

    def relax(self) -> None:
        """Let the client resume, if few utterances wait."""
        if self.is_paused and len(self.waiting) <= self.waiting_max // 2:
            self.is_paused = False
            self._replies.pressure("RESUME")
