"""What was prepared for a job while somebody spoke: hearings, translations, speech.

A hearing serves a job if it had all of the job's voice and nothing more: the audio of one is that
of the other, except for silence at the end. Translations and speech are kept by what was translated
and spoken, so they can never belong to another text. Nothing here is needed for a job.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

    from lingua_speech.engine import Hint, Rendered, Transcript
    from lingua_speech.listening.ear import Ear

Value = TypeVar("Value")

# Hearings that are kept; a job is served by one of the last.
HEARINGS_MAX: Final = 6
# Translations and speeches that are kept.
PREPARED_MAX: Final = 32
# How long a job waits for what is not done. A hearing keeps the worker busy that the job would
# need, so it is worth a longer wait than the rest.
HEARING_WAIT_S: Final = 2.5
WAIT_S: Final = 1.0
# The detector of voice works in steps of 32 ms; the ends of the same speech differ by two at most.
SAME_END_MS: Final = 70


@dataclass(eq=False, slots=True)
class Hearing:
    """One recognition of the whole utterance so far."""

    upto_ms: int
    hint: Hint
    task: asyncio.Task[Transcript] = field(init=False)
    # Where the voice ended in it, by the detector of the node; None if not known yet.
    voice_end_ms: float | None = None

    def start(self, work: Coroutine[Any, Any, Transcript]) -> None:
        """Start the recognition."""
        self.task = asyncio.create_task(work)
        self.task.add_done_callback(_retrieve)

    @property
    def is_whole(self) -> bool:
        """Tell whether it was recognised as for a job."""
        return not self.hint.is_draft

    def serves(self, hint: Hint) -> bool:
        """Tell whether a job with this hint would be recognised in the same way."""
        own = self.hint
        return (
            self.is_whole
            and not hint.continues
            and (own.language, own.allowed) == (hint.language, hint.allowed)
            and hint.translate_to in {"", own.translate_to}
        )

    @property
    def is_usable(self) -> bool:
        """Tell whether it has a transcript, or will have one soon: a worker began with it.

        A job must not wait for a hearing that itself waits for a worker: jobs get one first.
        """
        task = self.task
        if not task.done():
            return self.voice_end_ms is not None
        return not (task.cancelled() or task.exception())


@dataclass(eq=False, slots=True)
class HeadStart:
    """What is known of one utterance before its job arrives."""

    ear: Ear
    hearings: list[Hearing] = field(default_factory=list)
    _prepared: dict[tuple[str, ...], asyncio.Task[Any]] = field(default_factory=dict)

    def add(self, hearing: Hearing) -> None:
        """Keep a hearing, and forget the oldest."""
        self.hearings.append(hearing)
        del self.hearings[:-HEARINGS_MAX]

    async def heard_upto(self, end_ms: float, hint: Hint) -> Transcript | None:
        """Return the transcript of audio that ends there, if it was heard."""
        return await _transcript_of(self.covering(end_ms, hint), hint)

    async def heard_until(self, voice_end_ms: float, hint: Hint) -> Transcript | None:
        """Return the transcript of audio whose voice ends there, if it was heard."""
        return await _transcript_of(self.ending_at(voice_end_ms, hint), hint)

    def covering(self, end_ms: float, hint: Hint) -> Hearing | None:
        """Return a hearing of audio that ends there, if its voice is all that there is."""
        for hearing in reversed(self.hearings):
            between = sorted((hearing.upto_ms, end_ms))
            if hearing.serves(hint) and hearing.is_usable and not self.ear.has_voice(*between):
                return hearing
        return None

    def ending_at(self, voice_end_ms: float, hint: Hint) -> Hearing | None:
        """Return a hearing whose voice ends there, by the detector of the node."""
        for hearing in reversed(self.hearings):
            end_ms = hearing.voice_end_ms
            is_same = end_ms is not None and abs(end_ms - voice_end_ms) <= SAME_END_MS
            if is_same and hearing.serves(hint) and hearing.is_usable:
                return hearing
        return None

    def prepare(
        self, key: tuple[str, ...], work: Coroutine[Any, Any, Value]
    ) -> asyncio.Task[Value]:
        """Start to prepare something that a job may need; it is done once."""
        task = self._prepared.get(key)
        if task is not None and not (task.done() and (task.cancelled() or task.exception())):
            work.close()
            return task
        task = self._prepared[key] = asyncio.ensure_future(work)
        task.add_done_callback(_retrieve)
        while len(self._prepared) > PREPARED_MAX:
            self._prepared.pop(next(iter(self._prepared))).cancel()
        return task

    async def translation(self, said: str, source: str, target: str) -> Rendered | None:
        """Return the translation of exactly this text, if it was prepared."""
        return await _result_of(self._prepared.get(translation_key(said, source, target)))

    async def speech(self, words: str, language: str) -> bytes | None:
        """Return the speech of exactly this text, if it was prepared."""
        return await _result_of(self._prepared.get(speech_key(words, language)))

    def forget(self) -> None:
        """Stop what is still being prepared."""
        for task in (*self._prepared.values(), *(one.task for one in self.hearings)):
            task.cancel()


def translation_key(said: str, source: str, target: str) -> tuple[str, ...]:
    """Return the key of a translation."""
    return ("translation", said, source, target)


def speech_key(words: str, language: str) -> tuple[str, ...]:
    """Return the key of a spoken text."""
    return ("speech", words, language)


async def _transcript_of(hearing: Hearing | None, hint: Hint) -> Transcript | None:
    heard = None if hearing is None else await _result_of(hearing.task, HEARING_WAIT_S)
    if hearing is not None and not hearing.task.done():
        # The job needs its worker.
        hearing.task.cancel()
    if heard is None or hint.translate_to:
        return heard
    # The translation of a hearing is for the jobs that asked for it.
    return msgspec.structs.replace(heard, translation="")


async def _result_of(task: asyncio.Task[Value] | None, wait_s: float = WAIT_S) -> Value | None:
    if task is None:
        return None
    # Not cancelled with the job: jobs of other languages may wait for it, too.
    await asyncio.wait({task}, timeout=wait_s)
    if not task.done() or task.cancelled() or task.exception() is not None:
        return None
    return task.result()


def _retrieve(task: asyncio.Task[Any]) -> None:
    """Take note of an error: whoever needs the result does the work again."""
    if not task.cancelled():
        task.exception()
