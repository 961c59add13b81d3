"""`interpret`: speak a source into a session, and note what comes back and when.

One session of the client SDK, which resumes by itself. Speech is sent while results are read; when
the source ends, or `stop` is set, the session is closed properly: what was said is still answered.
Errors when opening are raised; what happens later is in the report, beside all that was done.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Protocol

from lingua_scheduler.client import Notice, Outcome, Partial, Reset, connect
from lingua_scheduler.errors import LinguaError
from lingua_scheduler.interpret.report import Rendition, Report, Utterance
from lingua_scheduler.interpret.sources import RecordingSource
from lingua_scheduler.interpret.spoken import Spoken
from lingua_scheduler.messages.to_client import (
    ErrorMessage,
    Gap,
    MissingResult,
    TranslationResult,
    UtteranceAccepted,
)
from lingua_scheduler.recording import Recording, UnreadableRecording, read

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Mapping

    from lingua_scheduler.client import Options, Session
    from lingua_scheduler.interpret.sources import Source

# What pcm16 without a rate of its own is spoken with.
VOICE_RATE: Final = 16_000
# Silence after a file, so that its last words end as others do; what is missing, closing does.
TAIL_MS: Final = 700
# How often the connection is looked at, and what is told of it.
WATCH_S: Final = 1.0
LOST, FOUND = "the connection is lost; it is tried again", "connected again"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What is to be done."""

    urls: tuple[str, ...]
    source: str
    targets: tuple[str, ...] = ()
    # Both languages, each put into the other; instead of source and targets.
    two_way: tuple[str, str] | None = None
    # Silence that ends an utterance; None: what the scheduler is set to.
    silence_ms: int | None = None
    token: str | None = field(default=None, repr=False)
    tls: ssl.SSLContext | None = None
    options: Options | None = None
    # More fields of `session_init`.
    init: Mapping[str, Any] = field(default_factory=dict)
    # The translated speech stays in the report; else only listeners get it.
    keeps_audio: bool = True

    def session(self, sample_rate: int) -> Session:
        """Return a session that asks for this."""
        init: dict[str, Any] = dict(self.init)
        if self.silence_ms is not None:
            init["silence_ms"] = self.silence_ms
        source, targets = self.source, self.targets
        if self.two_way is not None:
            lang_a, lang_b = self.two_way
            source, targets = "auto", (lang_b,)
            init |= {"mode": "two_way_auto", "lang_a": lang_a, "lang_b": lang_b}
        return connect(
            self.urls, source=source, targets=targets, sample_rate=sample_rate, token=self.token,
            tls=self.tls, options=self.options, init=init,
        )  # fmt: skip

    def target_of(self, rendition: Rendition) -> str:
        """Return the language it is in: with two ways, the one that was not spoken."""
        if self.two_way is None or not rendition.languages:
            return rendition.target
        lang_a, lang_b = self.two_way
        heard = rendition.languages
        return lang_b if heard.get(lang_a, 0.0) >= heard.get(lang_b, 0.0) else lang_a


class Listener(Protocol):
    """Who is told what happens, as it happens; must not block."""

    def accepted(self, utterance: Utterance) -> None:
        """An utterance has ended and is on its way."""

    def partial(self, utterance: Utterance, text: str) -> None:
        """So much of it was recognised so far."""

    def rendered(self, utterance: Utterance, rendition: Rendition) -> None:
        """It came back in one language, or the reason why not."""

    def noticed(self, what: str) -> None:
        """Something else that people want to know."""


class Unheard:
    """A listener for who only wants the report, or some of what happens."""

    def accepted(self, utterance: Utterance) -> None:
        """Take no note."""

    def partial(self, utterance: Utterance, text: str) -> None:
        """Take no note."""

    def rendered(self, utterance: Utterance, rendition: Rendition) -> None:
        """Take no note."""

    def noticed(self, what: str) -> None:
        """Take no note."""


class Audience:
    """Several listeners, told one after another."""

    def __init__(self, *listeners: Listener) -> None:
        self._listeners = listeners

    def accepted(self, utterance: Utterance) -> None:
        """Tell all."""
        for one in self._listeners:
            one.accepted(utterance)

    def partial(self, utterance: Utterance, text: str) -> None:
        """Tell all."""
        for one in self._listeners:
            one.partial(utterance, text)

    def rendered(self, utterance: Utterance, rendition: Rendition) -> None:
        """Tell all."""
        for one in self._listeners:
            one.rendered(utterance, rendition)

    def noticed(self, what: str) -> None:
        """Tell all."""
        for one in self._listeners:
            one.noticed(what)


async def interpret(
    source: Source | Path | str,
    order: Order,
    listener: Listener | None = None,
    stop: asyncio.Event | None = None,
    report: Report | None = None,
) -> Report:
    """Speak all of a source, or of a file at the pace of speech, into a session.

    Returns what came of it. A report that is given is filled as things come: who is interrupted has
    what there was.
    """
    if isinstance(source, (Path, str)):
        async with RecordingSource.open(source, tail_ms=TAIL_MS) as recording:
            return await interpret(recording, order, listener, stop, report)
    run = _Run(source, order, listener or Unheard(), report or Report())
    began = monotonic()
    try:
        await run.play(stop or asyncio.Event())
    finally:
        run.report.took_s = monotonic() - began
        run.report.audio_ms = run.spoken.duration_ms
    return run.report


class _Run:
    """One go at it."""

    def __init__(self, source: Source, order: Order, listener: Listener, report: Report) -> None:
        self.report = report
        report.is_live = source.is_live
        self.spoken = Spoken(source.sample_rate)
        self._source = source
        self._order = order
        self._listener = listener
        # Index in the session -> utterance.
        self._utterances: dict[int, Utterance] = {}
        # Where the session's first sample is in the source: speech may be refused before it, and
        # a session that is lost is followed by another one.
        self._offset_ms = 0.0

    async def play(self, stop: asyncio.Event) -> None:
        """Speak and listen, until all is answered."""
        async with self._order.session(self._source.sample_rate) as session:
            watching = asyncio.create_task(self._watch(session))
            tasks = {
                asyncio.create_task(self._speak(session, stop)),
                asyncio.create_task(self._listen(session, stop)),
            }
            try:
                # A source that breaks in a way nobody foresaw ends the whole: else the session
                # would be listened to for ever.
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            finally:
                for task in (*tasks, watching):
                    task.cancel()
                await asyncio.wait(tasks)
                self.report.resumes = session.resumes
            for task in done:
                task.result()

    async def _listen(self, session: Session, stop: asyncio.Event) -> None:
        """Take what the session tells, until it ends."""
        try:
            async for event in session:
                self._take(event)
        except LinguaError as error:
            self.report.error = error
        # Without a session there is nobody to speak to; a source may say nothing for ever.
        stop.set()

    async def _speak(self, session: Session, stop: asyncio.Event) -> None:
        """Say all of it, then wait until it is answered."""
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
        """Tell when the connection is lost for longer than a moment, and when it is back."""
        was_lost = False
        while True:
            is_lost = not session.url
            if is_lost != was_lost:
                self._listener.noticed(LOST if is_lost else FOUND)
            was_lost = is_lost
            await asyncio.sleep(WATCH_S)

    def _take(self, event: object) -> None:
        """Note one event of the session."""
        if isinstance(event, Outcome):
            if event.is_own:
                self._take_outcome(event)
        elif isinstance(event, Partial):
            self._listener.partial(self._utterance(event.utterance_index), event.text)
        elif isinstance(event, Reset):
            self._take_reset(event)
        elif isinstance(event, Notice):
            self._take_notice(event.message)

    def _take_notice(self, message: object) -> None:
        if isinstance(message, UtteranceAccepted):
            self._take_accepted(message)
        elif isinstance(message, Gap):
            length = message.end_ms - message.start_ms
            self._offset_ms += length
            self.report.lost_ms += length
            self._listener.noticed(f"{length} ms of speech were not admitted: {message.reason}")
        elif isinstance(message, ErrorMessage):
            self._listener.noticed(f"the scheduler says {message.code}: {message.message}")

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
        """Another session goes on: from about where the last utterance of this one ended."""
        self._listener.noticed(f"the session was lost ({event.reason}); another one goes on")
        self.report.lost_ms += event.lost_ms
        self._offset_ms = max((said.end_ms for said in self._utterances.values()), default=0.0)
        self._utterances.clear()

    def _utterance(self, index: int) -> Utterance:
        if index not in self._utterances:
            self._utterances[index] = Utterance(len(self.report.utterances))
            self.report.utterances.append(self._utterances[index])
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
