"""What listeners of the speaker's own language read: the recognised text, in order, without a node.

The text comes with whichever language of the utterance is done first; if none has any, its
`missing_result` is passed on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from lingua_scheduler.messages.to_client import TranslationResult
from lingua_scheduler.session.ordering import Lane
from lingua_scheduler.state.room_store import Origin

if TYPE_CHECKING:
    from collections.abc import Collection

    from lingua_scheduler.live.hall import Hall
    from lingua_scheduler.messages.to_client import MissingResult
    from lingua_scheduler.state.records import Released


class Transcripts:
    """The texts of one speaker on their way to listeners of the same language."""

    def __init__(self, hall: Hall) -> None:
        self._hall = hall
        self._lane = Lane()
        self._next_index = 0
        # Utterance -> languages still to come, and who reads it.
        self._open: dict[int, tuple[int, tuple[str, ...]]] = {}
        self._messages: dict[int, TranslationResult | MissingResult] = {}
        # Who reads what was said under a former owner, which is all below an index.
        self._former: tuple[tuple[str, ...], int] = ((), 0)

    def go_on(self, readers: tuple[str, ...], below: int) -> None:
        """Take up where another instance was: what is released now it may not have passed on."""
        self._former = (readers, below)

    def expect(
        self, index: int, lanes: int, readers: tuple[str, ...], holes: Collection[int] = ()
    ) -> None:
        """An utterance that some will read as it was spoken; without a job there is no text.

        `holes` are indices left out so far that may still come: these are waited for.
        """
        if not lanes:
            return
        known = self._next_index
        is_waited_for = any(known <= hole < index for hole in holes)
        self._lane.admit(index, "-", 0, unwanted_from=-1 if is_waited_for else known)
        self._next_index = max(known, index + 1)
        self._open[index] = (lanes, readers)

    def outcome(self, outcome: Released, message: TranslationResult | MissingResult) -> None:
        """One language of an utterance is done."""
        waiting = self._open.get(outcome.utterance) or self._fill_hole(outcome.utterance)
        if waiting is None:
            readers, below = self._former
            if outcome.utterance < below and isinstance(message, TranslationResult):
                # Once, and not after a later one: the store knows what each has read.
                self._hall.send_to(readers, as_spoken(message), origin_of(message))
            return
        lanes, readers = waiting
        self._open[outcome.utterance] = (lanes - 1, readers)
        entry = self._lane.entries.get(outcome.utterance)
        has_text = isinstance(message, TranslationResult)
        if entry is not None and entry.outcome is None and (has_text or lanes == 1):
            entry.outcome = (outcome.kind, outcome.reason)
            self._messages[outcome.utterance] = message
        for index, _ in self._lane.release():
            _, readers = self._open[index]
            message = as_spoken(self._messages.pop(index))
            self._hall.send_to(readers, message, origin_of(message))
            self._forget(index)
        self._forget(outcome.utterance)

    def _fill_hole(self, index: int) -> tuple[int, tuple[str, ...]] | None:
        """An index that was waited for has an outcome although it never came."""
        lane = self._lane
        if not lane.next_index <= index < self._next_index or index not in lane.holes():
            return None
        readers = self._open[min(known for known in self._open if known > index)][1]
        lane.admit(index, "-", 0)
        self._open[index] = (1, readers)
        return self._open[index]

    def _forget(self, index: int) -> None:
        """Drop an utterance whose languages are all done, once its text is out."""
        if index in self._open and not self._open[index][0] and index not in self._lane.entries:
            del self._open[index]


def origin_of(message: TranslationResult | MissingResult) -> Origin:
    """Return what a text is known by: the order of readers is that of utterances, not of outcomes.

    The name differs from the speaker's own, whose translations count by position.
    """
    return Origin(f"{message.session_id}~=", message.epoch or "0", message.utterance_index + 1)


def as_spoken(
    message: TranslationResult | MissingResult,
) -> TranslationResult | MissingResult:
    """Return an outcome as those read it who need no translation."""
    if not isinstance(message, TranslationResult):
        return message
    return msgspec.structs.replace(
        message, text_translated=message.text_asr, tts_audio=b"", tgt_lang=None, timeline=None
    )
