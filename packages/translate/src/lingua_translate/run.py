"""`interpret`: speaks a source into a session, and records the outcomes and their times.

One session of the client SDK, which resumes by itself. Speech is sent while results are read. When
the source ends, or `stop` is set, the session is closed in order: everything spoken still gets its
outcome. Errors of opening are raised; later errors are in the report, beside all outcomes.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Protocol

from lingua_client import Notice, Outcome, Partial, Reset, connect
from lingua_translate.report import InterpretationReport, Rendition, TranslatedUtterance
from lingua_translate.sources import RecordingSource
from lingua_translate.spoken import SpokenAudio
from lingua_wire.errors import LinguaError
from lingua_wire.recording import Recording, UnreadableRecording, read
from lingua_wire.to_client import (
    ErrorMessage,
    Gap,
    MissingResult,
    TranslationResult,
    UtteranceAccepted,
)

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Mapping

    from lingua_client import Options, Session
    from lingua_translate.sources import AudioSource

# The sample rate of pcm16 that has no rate of its own.
VOICE_RATE: Final = 16_000
# Silence after a file, so that its last words end as others do; closing does the rest.
TAIL_MS: Final = 700
# How often the connection is checked, and the texts that report its state.
WATCH_S: Final = 1.0
LOST, FOUND = "the connection is lost; retrying", "connected again"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What is to be translated, where, and how."""

    urls: tuple[str, ...]
    source: str
    targets: tuple[str, ...] = ()
    # Both languages, each translated into the other; instead of source and targets.
    two_way: tuple[str, str] | None = None
    # Silence that ends an utterance; None: the scheduler's setting.
    silence_ms: int | None = None
    token: str | None = field(default=None, repr=False)
    tls: ssl.SSLContext | None = None
    options: Options | None = None
    # Texts and translations while somebody still speaks; None: not asked for.
    partials: bool | None = None
    # More fields of `session_init`.
    init: Mapping[str, Any] = field(default_factory=dict)
    # The translated speech is kept in the report; else only listeners get it.
    keeps_audio: bool = True

    def session(self, sample_rate: int) -> Session:
        """Return a session with these options."""
        init: dict[str, Any] = dict(self.init)
        if self.silence_ms is not None:
            init["silence_ms"] = self.silence_ms
        source, targets = self.source, self.targets
        if self.two_way is not None:
            lang_a, lang_b = self.two_way
            source, targets = "auto", (lang_b,)
            init |= {"mode": "two_way_auto", "lang_a": lang_a, "lang_b": lang_b}
        return connect(
            self.urls,
            source=source,
            targets=targets,
            sample_rate=sample_rate,
            token=self.token,
            tls=self.tls,
            options=self.options,
            partials=self.partials,
            init=init,
        )

    def target_of(self, rendition: Rendition) -> str:
        """Return the target language: with two ways, the one that was not spoken."""
        if self.two_way is None or not rendition.languages:
            return rendition.target
        lang_a, lang_b = self.two_way
        heard = rendition.languages
        return lang_b if heard.get(lang_a, 0.0) >= heard.get(lang_b, 0.0) else lang_a


class TranslationListener(Protocol):
    """Receives events as they happen; must not block."""

    def accepted(self, utterance: TranslatedUtterance) -> None:
        """An utterance has ended and is being translated."""

    def partial(self, utterance: TranslatedUtterance, text: str) -> None:
        """The text that was recognised so far; `utterance.so_far` has more of it.

        The utterance may still be spoken. Then it is in no report, and may never be.
        """

    def rendered(self, utterance: TranslatedUtterance, rendition: Rendition) -> None:
        """A translation in one language arrived, or the reason why there is none."""

    def noticed(self, what: str) -> None:
        """Something else that people should know."""


class NullListener:
    """A listener that ignores everything; a base for listeners that need only some events."""

    def accepted(self, utterance: TranslatedUtterance) -> None:
        """Ignore it."""

    def partial(self, utterance: TranslatedUtterance, text: str) -> None:
        """Ignore it."""

    def rendered(self, utterance: TranslatedUtterance, rendition: Rendition) -> None:
        """Ignore it."""

    def noticed(self, what: str) -> None:
        """Ignore it."""


class ListenerGroup:
    """Several listeners, notified one after another."""

    def __init__(self, *listeners: TranslationListener) -> None:
        self._listeners = listeners

    def accepted(self, utterance: TranslatedUtterance) -> None:
        """Notify all."""
        for one in self._listeners:
            one.accepted(utterance)

    def partial(self, utterance: TranslatedUtterance, text: str) -> None:
        """Notify all."""
        for one in self._listeners:
            one.partial(utterance, text)

    def rendered(self, utterance: TranslatedUtterance, rendition: Rendition) -> None:
        """Notify all."""
        for one in self._listeners:
            one.rendered(utterance, rendition)

    def noticed(self, what: str) -> None:
        """Notify all."""
        for one in self._listeners:
            one.noticed(what)


async def interpret(
    source: AudioSource | Path | str,
    order: Order,
    listener: TranslationListener | None = None,
    stop: asyncio.Event | None = None,
    report: InterpretationReport | None = None,
) -> InterpretationReport:
    """Speak all of a source, or of a file at the pace of speech, into a session.

    Returns the report. A report that is passed in is filled as outcomes arrive: an interrupted
    caller still has everything up to then.
    """
    if isinstance(source, (Path, str)):
        async with RecordingSource.open(source, tail_ms=TAIL_MS) as recording:
            return await interpret(recording, order, listener, stop, report)
    run = _Run(source, order, listener or NullListener(), report or InterpretationReport())
    began = monotonic()
    try:
        await run.play(stop or asyncio.Event())
    finally:
        run.report.took_s = monotonic() - began
        run.report.audio_ms = run.spoken.duration_ms
    return run.report


class _Run:
    """One run of `interpret`."""

    def __init__(
        self,
        source: AudioSource,
        order: Order,
        listener: TranslationListener,
        report: InterpretationReport,
    ) -> None:
        self.report = report
        self.spoken = SpokenAudio(source.sample_rate)
        self._source = source
        self._order = order
        self._listener = listener
        # Index in the session -> utterance.
        self._utterances: dict[int, TranslatedUtterance] = {}
        # The utterance that is being spoken, and the index that it will probably get. It is not in
        # the report: what was heard may turn out to be no speech.
        self._spoken_now: tuple[int, TranslatedUtterance] | None = None
        # Where the session's first sample is in the source: speech may be refused before it, and a
        # lost session is followed by another one.
        self._offset_ms = 0.0

    async def play(self, stop: asyncio.Event) -> None:
        """Speak and listen until everything has its outcome."""
        self.report.is_live = self._source.is_live
        async with self._order.session(self._source.sample_rate) as session:
            watching = asyncio.create_task(self._watch(session))
            tasks = {
                asyncio.create_task(self._speak(session, stop)),
                asyncio.create_task(self._listen(session, stop)),
            }
            try:
                # A source that fails in an unforeseen way ends everything: else the session would
                # stay open for ever.
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            finally:
                for task in (*tasks, watching):
                    task.cancel()
                await asyncio.wait(tasks)
                self.report.resumes = session.resumes
            for task in done:
                task.result()

    async def _listen(self, session: Session, stop: asyncio.Event) -> None:
        """Handle the events of the session until it ends."""
        try:
            async for event in session:
                self._take(event)
        except LinguaError as error:
            self.report.error = error
        # Without a session nothing can be sent; a source may be silent for ever.
        stop.set()

    async def _speak(self, session: Session, stop: asyncio.Event) -> None:
        """Send all of the source, then wait for the outcomes."""
        try:
            async for chunk in _until(stop, self._source.chunks()):
                self.spoken.add(chunk, monotonic())
                await session.send(chunk)
        except LinguaError as error:
            self.report.error = error
        try:
            self.report.coverage = await session.close()
        except LinguaError as error:
            self.report.error = self.report.error or error

    async def _watch(self, session: Session) -> None:
        """Report a connection that is lost for longer than a moment, and its return."""
        was_lost = False
        while True:
            is_lost = not session.url
            if is_lost != was_lost:
                self._listener.noticed(LOST if is_lost else FOUND)
            was_lost = is_lost
            await asyncio.sleep(WATCH_S)

    def _take(self, event: object) -> None:
        """Handle one event of the session."""
        if isinstance(event, Outcome):
            if event.is_own:
                self._take_outcome(event)
        elif isinstance(event, Partial):
            if event.is_own:
                self._take_partial(event)
        elif isinstance(event, Reset):
            self._take_reset(event)
        elif isinstance(event, Notice):
            self._take_notice(event.message)

    def _take_partial(self, event: Partial) -> None:
        said = self._heard(event.utterance_index)
        if event.start_ms is not None and not said.end_ms:
            said.start_ms = self._offset_ms + event.start_ms
        said.so_far = event
        self._listener.partial(said, event.text)

    def _take_notice(self, message: object) -> None:
        if isinstance(message, UtteranceAccepted):
            self._take_accepted(message)
        elif isinstance(message, Gap):
            length = message.end_ms - message.start_ms
            self._offset_ms += length
            self.report.lost_ms += length
            self._listener.noticed(f"{length} ms of speech were not admitted: {message.reason}")
        elif isinstance(message, ErrorMessage):
            self._listener.noticed(f"the scheduler reports {message.code}: {message.message}")

    def _take_accepted(self, message: UtteranceAccepted) -> None:
        said = self._utterance(message.utterance_index)
        said.start_ms = self._offset_ms + message.start_ms
        said.end_ms = self._offset_ms + message.end_ms
        said.voice_end_ms = self.spoken.voice_end_ms(said.start_ms, said.end_ms)
        if self.report.is_live:
            said.voice_end_s = self.spoken.spoken_at_s(said.voice_end_ms)
        self._listener.accepted(said)

    def _take_outcome(self, event: Outcome) -> None:
        said = self._utterance(event.utterance_index)
        said.text_asr = said.text_asr or event.text_asr
        said.so_far = None
        rendition = self._rendition(event)
        if said.voice_end_s is not None:
            rendition.latency_ms = 1000 * (rendition.arrived_s - said.voice_end_s)
        said.renditions[rendition.target] = rendition
        self._listener.rendered(said, rendition)
        if not self._order.keeps_audio:
            rendition.pcm = b""

    def _rendition(self, event: Outcome) -> Rendition:
        rendition = Rendition(event.target, event.text, arrived_s=monotonic())
        message = event.message
        if isinstance(message, MissingResult):
            rendition.reason, rendition.detail = message.reason, message.detail or ""
            return rendition
        rendition.timings, rendition.timeline = message.service_timings, message.timeline
        extra = message.extra
        if extra is not None:
            rendition.timings = rendition.timings or extra.service_timings
            rendition.languages = extra.language_probabilities or {}
            rendition.target = self._order.target_of(rendition)
        if message.tts_audio:
            self._take_audio(rendition, message)
        return rendition

    def _take_audio(self, rendition: Rendition, message: TranslationResult) -> None:
        try:
            voice = voice_of(message.tts_audio, message.tts_format)
        except UnreadableRecording as error:
            self._listener.noticed(f"the translated speech cannot be read: {error}")
        else:
            rendition.pcm, rendition.sample_rate = voice.pcm, voice.sample_rate

    def _take_reset(self, event: Reset) -> None:
        """Continue with another session: from about where the last utterance of this one ended."""
        self._listener.noticed(f"the session was lost ({event.reason}); another one continues")
        self.report.lost_ms += event.lost_ms
        self._offset_ms = max((said.end_ms for said in self._utterances.values()), default=0.0)
        self._utterances.clear()
        self._spoken_now = None

    def _heard(self, index: int) -> TranslatedUtterance:
        """Return an utterance that may still be spoken."""
        if index in self._utterances:
            return self._utterances[index]
        if self._spoken_now is None or self._spoken_now[0] != index:
            self._spoken_now = index, TranslatedUtterance(len(self.report.utterances))
        return self._spoken_now[1]

    def _utterance(self, index: int) -> TranslatedUtterance:
        if index not in self._utterances:
            said = self._heard(index)
            self._spoken_now = None
            said.index = len(self.report.utterances)
            self._utterances[index] = said
            self.report.utterances.append(said)
        return self._utterances[index]


def voice_of(audio: bytes, audio_format: str) -> Recording:
    """Return translated speech as samples; raw pcm16 has no rate of its own."""
    if audio_format == "pcm16":
        return Recording(audio[: len(audio) - len(audio) % 2], VOICE_RATE)
    return read(audio)


async def _until(stop: asyncio.Event, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Give chunks until they end, or until it is enough; also while none comes."""
    stopped = asyncio.create_task(stop.wait())
    following: asyncio.Task[bytes | None] | None = None
    try:
        while not stop.is_set():
            following = asyncio.create_task(_next_of(chunks))
            await asyncio.wait((following, stopped), return_when=asyncio.FIRST_COMPLETED)
            if not following.done():
                return
            chunk = following.result()
            if chunk is None:
                return
            yield chunk
    finally:
        pending = {task for task in (stopped, following) if task is not None}
        for task in pending:
            task.cancel()
        await asyncio.wait(pending)


async def _next_of(chunks: AsyncIterator[bytes]) -> bytes | None:
    return await anext(chunks, None)
