"""Which early results a client passes on: partial texts and parts of speech, before their outcome.

An early result is shown, and then replaced by its outcome, so it must never come after it. Messages
may still arrive late: from a connection that was lost, or from another instance. Pure: no clock, no
socket.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from lingua_wire.to_client import (
        AsrPartial,
        MissingResult,
        OutcomePassed,
        PartialResult,
        TranslationResult,
        TtsPart,
    )

# Speakers times languages; a room has fewer.
LANES_MAX: Final = 4096

Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class NextPart:
    """The part of speech that continues those given so far in one language of one speaker."""

    utterance_index: int
    attempt_id: int
    part_index: int


class EarlyFilter:
    """The last outcome of each speaker, and the next part of speech of each language."""

    def __init__(self) -> None:
        # Speaker -> the last utterance with an outcome, in any language.
        self._answered: dict[str, int] = {}
        # Speaker and language -> the last utterance with an outcome in that language.
        self._spoken: dict[tuple[str, str], int] = {}
        self._next: dict[tuple[str, str], NextPart] = {}

    def begin_session(self) -> None:
        """Forget everything: another session begins."""
        self._answered.clear()
        self._spoken.clear()
        self._next.clear()

    def forget_from(self, session: str, index: int) -> None:
        """Forget a session's utterances from an index on: the store lost them and reuses it."""
        self._answered[session] = min(self._answered.get(session, -1), index - 1)
        for lane, last in self._spoken.items():
            if lane[0] == session and last >= index:
                self._spoken[lane] = index - 1
        for lane in [lane for lane in self._next if lane[0] == session]:
            del self._next[lane]

    def record_outcome(self, message: TranslationResult | MissingResult | OutcomePassed) -> None:
        """Record an outcome, here or with the listeners: it replaces the early results."""
        speaker, index = message.session_id, message.utterance_index
        _raise_to(self._answered, speaker, index)
        lane = (speaker, message.tgt_lang or "")
        _raise_to(self._spoken, lane, index)
        started = self._next.get(lane)
        if started is not None and started.utterance_index <= index:
            del self._next[lane]

    def takes_partial(self, message: AsrPartial | PartialResult) -> bool:
        """Tell whether a partial text is still before the outcomes of its utterance."""
        return message.utterance_index > self._answered.get(message.session_id, -1)

    def takes_part(self, message: TtsPart) -> bool:
        """Tell whether a part of speech continues the newest attempt, or begins a newer one."""
        lane = (message.session_id, message.tgt_lang)
        if message.utterance_index <= self._spoken.get(lane, -1):
            return False
        if not self._continues(lane, message):
            return False
        self._next[lane] = NextPart(
            message.utterance_index, message.attempt_id, message.part_index + 1
        )
        if len(self._next) > LANES_MAX:
            del self._next[next(iter(self._next))]
        return True

    def _continues(self, lane: tuple[str, str], message: TtsPart) -> bool:
        wanted = self._next.get(lane)
        number = (message.utterance_index, message.attempt_id)
        if wanted is None or number > (wanted.utterance_index, wanted.attempt_id):
            return message.part_index == 0
        is_same = number == (wanted.utterance_index, wanted.attempt_id)
        # After a gap nothing of this attempt fits any more: the outcome has all of it.
        return is_same and message.part_index == wanted.part_index


def _raise_to(numbers: dict[Key, int], key: Key, number: int) -> None:
    numbers[key] = max(number, numbers.get(key, -1))
    if len(numbers) > LANES_MAX:
        del numbers[next(iter(numbers))]
