"""The clients of the chaos of real speech: each speaks recordings and records what it receives."""

from __future__ import annotations

import asyncio
from itertools import cycle
from time import monotonic
from typing import TYPE_CHECKING, Final

from lingua_bench.chaos.history import RESULT, OutcomeReceived
from lingua_bench.speech import material
from lingua_bench.speech.chaos_report import AcceptedSpan, ClientHistory, SpokenRecording
from lingua_client import Notice, Options, Outcome, connect
from lingua_speech.models import default_store
from lingua_translate import RecordingSource
from lingua_wire.errors import LinguaError
from lingua_wire.to_client import ErrorMessage, Gap, UtteranceAccepted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lingua_bench.speech.material import LabelledRecording
    from lingua_client import Session

# Recordings that are longer than a word and are not sliced.
LEAST_MS, MOST_MS = 2000, 8500
CLOSE_S: Final = 90.0
# Languages of the clients, in turn: spoken, wanted, and whether the recordings are of LibriVox.
PARTS: Final = (
    ("en", ("es",), True),
    ("en", ("es", "fr"), False),
    ("en", ("fr",), False),
    ("es", ("en",), False),
)


class RecordingClient:
    """One client: speaks recordings with pauses between, and records what it receives."""

    def __init__(
        self, number: int, pieces: Sequence[LabelledRecording], urls: Sequence[str]
    ) -> None:
        source, targets, _ = PARTS[number % len(PARTS)]
        self.history = ClientHistory(number, targets)
        self._source = source
        self._pieces = pieces
        at = number % len(urls)
        self._urls = [*urls[at:], *urls[:at]]
        self._rate = pieces[0].recording.sample_rate

    async def run(self, enough: asyncio.Event) -> None:
        """Speak everything once, and continue until it is enough."""
        try:
            async with connect(
                self._urls,
                source=self._source,
                targets=self.history.targets,
                sample_rate=self._rate,
                options=Options(reopen=False),
            ) as session:
                await self._live(session, enough)
        except (LinguaError, OSError, TimeoutError) as error:
            self.history.problem = f"{type(error).__name__}: {error}".rstrip(": ")

    async def _live(self, session: Session, enough: asyncio.Event) -> None:
        hearing = asyncio.create_task(self._hear(session))
        try:
            # The clients do not start in step.
            await asyncio.sleep(self.history.speaker * 0.7)
            await self._speak(session, enough)
            async with asyncio.timeout(CLOSE_S):
                self.history.coverage = await session.close()
                await hearing
        finally:
            hearing.cancel()
            await asyncio.wait({hearing})
            self.history.resumes = session.resumes

    async def _speak(self, session: Session, enough: asyncio.Event) -> None:
        history = self.history
        for number, piece in enumerate(cycle(self._pieces)):
            if number >= len(self._pieces) and enough.is_set():
                return
            start_ms = history.audio_ms
            history.said.append(SpokenRecording(piece.key, start_ms, start_ms + piece.duration_ms))
            source = RecordingSource(piece.recording, tail_ms=material.PAUSE_MS)
            async for chunk in source.chunks():
                await session.send(chunk)
                history.sent_ms.append(history.audio_ms + len(chunk) * 500 / self._rate)
                history.sent_at.append(monotonic())

    async def _hear(self, session: Session) -> None:
        async for event in session:
            if isinstance(event, Outcome):
                self._take(event)
            elif isinstance(event, Notice):
                self._notice(event.message)

    def _take(self, outcome: Outcome) -> None:
        history = self.history
        reason = RESULT if outcome.kind == "translation" else outcome.reason
        history.heard.append(
            OutcomeReceived(
                at=monotonic(),
                speaker=history.speaker,
                life=0,
                index=outcome.utterance_index,
                target=outcome.target,
                reason=reason,
                said=outcome.text_asr,
                text=outcome.text,
                epoch=outcome.epoch,
                seq=outcome.seq,
            )
        )

    def _notice(self, message: object) -> None:
        history = self.history
        if isinstance(message, UtteranceAccepted):
            # Positions are of admitted audio.
            start_ms, end_ms = (
                history.refused_ms + place for place in (message.start_ms, message.end_ms)
            )
            history.accepted.append(AcceptedSpan(message.utterance_index, start_ms, end_ms))
        elif isinstance(message, Gap):
            history.told[f"gap {message.reason}"] += 1
            history.refused_ms += message.end_ms - message.start_ms
        elif isinstance(message, ErrorMessage):
            history.told[message.code] += 1


def recordings_of(sessions: int, size: int) -> list[list[LabelledRecording]]:
    """Return so many recordings for each client."""
    store = default_store()
    keys = [prompt.key for prompt in material.parallel(store, "en", "es")]
    spoken = {
        language: _of_a_length(material.prompts(store, language, keys)) for language in ("en", "es")
    }
    read_aloud = [
        material.LabelledRecording(one.key, one.text, material.trimmed(one.recording))
        for one in material.librivox(store)
    ]
    # The shortest first: the quick run has time for only some.
    read_aloud.sort(key=lambda one: one.duration_ms)
    found = []
    for number in range(sessions):
        language, _, is_read = PARTS[number % len(PARTS)]
        prompts = spoken[language][number * size : (number + 1) * size]
        found.append(read_aloud[:size] if is_read else prompts)
    return found


def _of_a_length(spoken: Sequence[LabelledRecording]) -> list[LabelledRecording]:
    return [one for one in spoken if LEAST_MS <= one.duration_ms <= MOST_MS]
