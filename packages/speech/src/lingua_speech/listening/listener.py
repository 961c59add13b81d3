"""Listens to speech that goes on: passes of the recogniser, one at a time for each utterance.

A pass recognises everything that was said so far. Passes are made at intervals, for captions: these
are drafts, which do not search stable words again. They are also made at once when the voice
pauses, since the utterance may have ended: the job will need exactly that pass, so it is made in
the same way as a job. Then also its translations and their speech are prepared. Passes have less
urgency than jobs. When they become slow, they become rarer; if that does not help, the node stops
listening. No failure here affects a job.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from lingua_node import Job, JobFailed
from lingua_speech import text
from lingua_speech.engine import Sound
from lingua_speech.engines import sentences
from lingua_speech.host import Urgency
from lingua_speech.job_languages import languages_of
from lingua_speech.listening.agreement import Agreement, as_heard, words_of
from lingua_speech.listening.captions import Captions
from lingua_speech.listening.completeness import is_complete
from lingua_speech.listening.ear import Ear
from lingua_speech.listening.head_start import HeadStart, Hearing, speech_key, translation_key
from lingua_speech.listening.sentence_ends import SentenceEnds
from lingua_speech.pipeline import joined
from lingua_wire.languages import base_of
from lingua_wire.to_node import JobAssign

if TYPE_CHECKING:
    from lingua_node import Stream
    from lingua_speech.abilities import LoadedEngine
    from lingua_speech.engine import Hint, Transcript
    from lingua_speech.job_languages import JobLanguages
    from lingua_speech.pipeline import SpeechPipeline
    from lingua_speech.stage_calls import StageCalls
    from lingua_wire.from_node import FromNode

# New audio between two passes for captions, if the machine keeps up.
PASS_EVERY_MS: Final = 600
# What schedulers send if a client wants nothing special.
USUAL_MS: Final = 1000
# A pass may take this part of the time between two.
BUSY_PART: Final = 0.5
# The first sign of silence; shorter pauses occur within words.
PAUSE_MS: Final = 100
# The last word of a pass has surely ended after this much silence.
WORD_PAUSE_MS: Final = 100
# Less voice is not recognised.
VOICE_AT_LEAST_MS: Final = 300
# Fewer known words save nothing.
KNOWN_AT_LEAST: Final = 3
# The last stable words are searched again: only with what follows them is it known where a
# sentence ended, and the last one may be the beginning of a longer word.
SEARCHED_AGAIN: Final = 4
# Nobody cuts a shorter sentence.
SENTENCE_AT_LEAST_MS: Final = 1500
# Longer speech has no more passes; the recogniser would hear it in several pieces.
AUDIO_MS_MAX: Final = 28_000
# Passes that take longer are of no use; after so many in a row the node stops listening.
SLOW_S: Final = 2.5
SLOW_MAX: Final = 2
# After a failed pass, nobody is listened to for this time: jobs need the workers.
REST_S: Final = 10.0

_logger = logging.getLogger(__name__)


class Request(NamedTuple):
    """One target language of an utterance, as the job of it will be."""

    job: Job
    languages: JobLanguages


class Listening(NamedTuple):
    """How one utterance is recognised, and for whom."""

    engine: LoadedEngine
    hint: Hint
    requests: tuple[Request, ...]


class SpeechListener:
    """Listens to the streams of one node; `listen` is the stream handler."""

    def __init__(self, calls: StageCalls, pipeline: SpeechPipeline) -> None:
        self.calls = calls
        self._pipeline = pipeline
        # Nobody is listened to before this time.
        self._rests_until = 0.0

    async def listen(self, stream: Stream) -> None:
        """Listen to one utterance; returns before its end if that is not possible."""
        outcome = "dropped"
        try:
            listening = self._listening_to(stream)
            if listening is None or monotonic() < self._rests_until:
                outcome = "failed"
                return
            outcome = await UtteranceListener(self.calls, stream, listening).run()
            if outcome == "failed":
                self._rests_until = monotonic() + REST_S
        finally:
            self.calls.metrics.streams.labels(outcome).inc()

    def _listening_to(self, stream: Stream) -> Listening | None:
        """Return how to recognise an utterance; None if no engine can."""
        abilities = self.calls.abilities
        requests = []
        for target in stream.open.tgt_langs or (stream.open.src_lang,):
            job = _job_of(stream, target)
            try:
                requests.append(Request(job, languages_of(job, abilities)))
            except JobFailed:
                # Other nodes may do the job into this language.
                continue
        if not requests:
            return None
        engine = abilities.recogniser(requests[0].languages.candidates)
        if engine is None:
            return None
        hints = [self._pipeline.hint_of(*request, engine) for request in requests]
        # One of the languages may need the recogniser's own translation.
        hint = next((one for one in hints if one.translate_to), hints[0])
        return Listening(engine, hint, tuple(requests))


@dataclass(slots=True)
class Pace:
    """How often passes are made: rarer if they take long."""

    every_ms: float
    slow: int = 0

    def note(self, took_s: float, least_ms: float) -> None:
        """Take note of how long a pass took, the wait for a worker included."""
        self.every_ms = max(least_ms, took_s * 1000 / BUSY_PART)
        self.slow = self.slow + 1 if took_s > SLOW_S else 0


class UtteranceListener:
    """Listens to one utterance."""

    def __init__(self, calls: StageCalls, stream: Stream, listening: Listening) -> None:
        self._calls = calls
        self._stream = stream
        self._engine, self._hint, self._requests = listening
        self._ear = Ear(stream.open.sample_rate)
        self._head_start = HeadStart(self._ear)
        self._agreement = Agreement()
        self._sentence_ends = SentenceEnds()
        self._captions = Captions(calls, stream, listening.requests[0].languages)
        self._least_ms = _least_ms(stream.open.partial_update_interval_ms)
        self._pace = Pace(self._least_ms)
        # The last pass and, if its translations are prepared, that pass.
        self._last: Hearing | None = None
        self._prepared: Hearing | None = None
        # Where the last sentence end was that was reported.
        self._sentence_end_ms = 0
        # Set with more audio and at the end of the utterance.
        self._news = asyncio.Event()
        self._is_over = False
        self._preparing: set[asyncio.Task[None]] = set()

    async def run(self) -> str:
        """Listen until the utterance ends; return how listening ended."""
        self._stream.head_start = self._head_start
        reader = asyncio.create_task(self._read())
        is_dropped = True
        try:
            outcome = await self._make_passes()
            is_dropped = False
        finally:
            reader.cancel()
            await asyncio.wait({reader})
            if is_dropped:
                self._forget()
        if outcome != "ended":
            self._forget()
        return outcome

    def _forget(self) -> None:
        for task in self._preparing:
            task.cancel()
        self._head_start.forget()

    async def _read(self) -> None:
        async for audio in self._stream:
            self._ear.add(audio)
            self._news.set()
        self._is_over = True
        self._news.set()

    async def _make_passes(self) -> str:
        while not self._is_over:
            urgency = self._due()
            if urgency is None:
                self._news.clear()
                await self._news.wait()
                continue
            try:
                await self._make_pass(urgency)
            except JobFailed as failed:
                if failed.code != "NODE_OVERLOADED":
                    self._count("failed")
                    _logger.warning("a pass failed: %s", failed)
                    return "failed"
                self._count("preempted")
            if self._pace.slow >= SLOW_MAX:
                return "shed"
        return "ended"

    def _due(self) -> Urgency | None:
        """Return the urgency of the pass that is due now; None if none is."""
        ear, last = self._ear, self._last
        heard_ms = ear.heard_ms
        last_ms = last.upto_ms if last else 0
        if ear.voice_end_ms() < VOICE_AT_LEAST_MS or heard_ms > AUDIO_MS_MAX:
            return None
        is_paused = ear.pause_ms() >= PAUSE_MS
        if last is not None and not ear.has_loud_voice(last_ms, heard_ms):
            if not is_paused:
                return None
            if last.is_whole:
                if self._prepared is not last:
                    self._prepare(last)
                return None
        if is_paused:
            return Urgency.HEAD_START
        return Urgency.CAPTION if heard_ms - last_ms >= self._pace.every_ms else None

    async def _make_pass(self, urgency: Urgency) -> None:
        began = monotonic()
        hearing = self._begin(self._ear.heard_ms, urgency)
        self._last = hearing
        if urgency is Urgency.CAPTION and not await self._is_done_in_time(hearing):
            self._count("abandoned")
            return
        heard = await hearing.task
        self._pace.note(monotonic() - began, self._least_ms)
        self._count("done")
        has_more = self._ear.has_loud_voice(hearing.upto_ms, self._ear.heard_ms)
        if not (self._is_over or has_more) and self._ear.pause_ms() >= PAUSE_MS:
            self._prepare(hearing)
        await self._report(hearing, heard)

    def _begin(self, upto_ms: int, urgency: Urgency) -> Hearing:
        """Start to recognise the utterance up to a place."""
        rate = self._stream.open.sample_rate
        sound = Sound(self._stream.audio[: 2 * (rate * upto_ms // 1000)], rate)
        hint = self._hint
        if urgency is Urgency.CAPTION:
            hint = msgspec.structs.replace(hint, is_draft=True, known=self._known())
        hearing = Hearing(upto_ms, hint)

        async def hear() -> Transcript:
            spoken = await self._calls.spoken_part(sound, starts=True, ends=True, urgency=urgency)
            hearing.voice_end_ms = spoken.end_ms
            return await self._calls.recognise(self._engine, spoken.sound, hint, urgency=urgency)

        hearing.start(hear())
        self._head_start.add(hearing)
        return hearing

    def _known(self) -> str:
        """Return the first words, which a pass for captions need not search again."""
        words = self._agreement.stable[:-SEARCHED_AGAIN]
        return " ".join(words) if len(words) >= KNOWN_AT_LEAST else ""

    async def _is_done_in_time(self, hearing: Hearing) -> bool:
        """Wait for a pass for captions; give it up if a pause makes another one urgent."""
        while not hearing.task.done():
            self._news.clear()
            news = asyncio.create_task(self._news.wait())
            try:
                await asyncio.wait({hearing.task, news}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                news.cancel()
            if not hearing.task.done() and self._is_outdated(hearing):
                hearing.task.cancel()
                await asyncio.wait({hearing.task})
                return False
        return True

    def _is_outdated(self, hearing: Hearing) -> bool:
        has_more = self._ear.has_loud_voice(hearing.upto_ms, self._ear.heard_ms)
        if hearing.is_whole and not has_more:
            return False
        return self._is_over or self._ear.pause_ms() >= PAUSE_MS

    # What is reported

    async def _report(self, hearing: Hearing, heard: Transcript) -> None:
        if not heard.text or self._is_over:
            return
        ear, upto_ms = self._ear, hearing.upto_ms
        is_quiet = not ear.has_voice(upto_ms - WORD_PAUSE_MS, upto_ms)
        so_far = self._agreement.hear(words_of(heard), is_quiet=is_quiet)
        said = as_heard((*so_far.stable, *so_far.unstable), words_of(heard))
        self._sentence_ends.hear(len(said), upto_ms)
        end = self._sentence_ends.latest(said, len(so_far.stable), ear)
        language = heard.language or self._hint.language
        is_whole = None
        if not ear.has_loud_voice(upto_ms - WORD_PAUSE_MS, ear.heard_ms):
            is_whole = is_complete(heard.text, language)
        await self._captions.show(
            so_far,
            upto_ms=upto_ms,
            language=language,
            sentence_end_ms=self._sentence_end_ms or None,
            is_complete=is_whole,
            is_quiet=is_quiet,
        )
        if end is not None and end.at_ms > max(self._sentence_end_ms, SENTENCE_AT_LEAST_MS):
            await self._end_sentence(end.at_ms)

    async def _end_sentence(self, end_ms: int) -> None:
        """Make the pass that the job of a sentence needs, then hint that the sentence has ended.

        The scheduler may cut there at once, and the job would come before its pass.
        """
        hearing = self._begin(end_ms, Urgency.HEAD_START)
        await asyncio.wait({hearing.task})
        if hearing.is_usable and not self._is_over:
            self._sentence_end_ms = end_ms
            self._prepare(hearing)
            await self._captions.hint(end_ms)

    def _count(self, outcome: str) -> None:
        self._calls.metrics.stream_passes.labels(outcome).inc()

    # What the job will need

    def _prepare(self, hearing: Hearing) -> None:
        """Translate and speak what a pass heard, if the utterance may end with it."""
        if not hearing.task.done() or not hearing.is_usable:
            return
        self._prepared = hearing
        for request in self._requests:
            task = asyncio.create_task(self._prepare_for(request, hearing.task.result()))
            self._preparing.add(task)
            task.add_done_callback(self._preparing.discard)

    async def _prepare_for(self, request: Request, heard: Transcript) -> None:
        language = heard.language or request.languages.language
        said = text.cleaned(joined(heard, None, continues=False), language)
        if not said or not language:
            return
        target, pipeline = request.languages.target_of(language), request.job.pipeline
        words, spoken = said, language
        if pipeline.use_nmt:
            spoken = target
            if base_of(language) != base_of(target):
                translated = await self._translated(said, language, target)
                if translated is None:
                    return
                words = translated
        if pipeline.use_tts:
            self._prepare_speech(words, spoken)

    async def _translated(self, said: str, language: str, target: str) -> str | None:
        route = self._calls.abilities.route(language, target)
        if route is None:
            return None
        terms = self._stream.open.glossary
        work = self._calls.translate(route, said, terms, target, Urgency.HEAD_START)
        task = self._head_start.prepare(translation_key(said, language, target), work)
        await asyncio.wait({task})
        return None if task.cancelled() or task.exception() else task.result().text

    def _prepare_speech(self, words: str, language: str) -> None:
        found = self._calls.voice(language, len(words))
        if found is None:
            return
        parts = sentences.split(words)
        # A slow voice begins with what is heard first; the job speaks the rest.
        wanted = parts[:1] if found[0].about.chars_max else dict.fromkeys([*parts, words])
        for part in wanted:
            work = self._calls.speak(part, language, Urgency.HEAD_START)
            self._head_start.prepare(speech_key(part, language), work)


def _least_ms(wanted_ms: int | None) -> float:
    """Return the least time between two passes: longer if somebody wants fewer captions."""
    wanted = wanted_ms or 0
    return max(PASS_EVERY_MS, wanted) if wanted > USUAL_MS else PASS_EVERY_MS


def _job_of(stream: Stream, target: str) -> Job:
    """Return the job that a stream would become now, for one language."""
    opened = stream.open
    assign = JobAssign(
        job_id=opened.stream_id,
        attempt_id=1,
        session_id=opened.session_id,
        utterance_index=0,
        src_lang=opened.src_lang,
        tgt_lang=target,
        pipeline=opened.pipeline,
        audio=b"",
        audio_format=opened.audio_format,
        sample_rate=opened.sample_rate,
        mode=opened.mode,
        lang_a=opened.lang_a,
        lang_b=opened.lang_b,
        auto_langs=opened.auto_langs,
        trace_id=opened.trace_id,
        context_text=opened.context_text,
        glossary=opened.glossary,
        turn_id=opened.turn_id,
    )
    return Job(assign, "", _drop)


def _drop(_: FromNode) -> None:
    """Discard a message: this job is never reported."""
