"""A job from audio to audio: detect speech, recognise, translate, synthesise.

    job ──> voice gate ──> recognise ──> clean up ──> translate ──> speak ──> result

The job handler of a node of real engines. The engines run in worker processes
(`pipeline_stage.py`); this module decides their order, inputs and timings. All languages of an
utterance share one recognition. The slices of a turn are recognised in order, each with the text of
the one before.
"""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import TYPE_CHECKING, Final

import msgspec

from lingua_node import ExtraResult, JobFailed, Result
from lingua_speech import glossary, pipeline_stage, text
from lingua_speech.abilities import closest
from lingua_speech.containers import OggHeaders, format_of
from lingua_speech.engine import Hint, Rendered, Sound, Transcript
from lingua_speech.job_languages import languages_of, not_served, previous_speech
from lingua_speech.partial_results import PartialResults
from lingua_speech.recognition import SharedRecognitions, key_of
from lingua_speech.turn_history import TurnHistory
from lingua_wire.languages import base_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lingua_node import Job
    from lingua_speech.abilities import Abilities, LoadedEngine
    from lingua_speech.job_languages import JobLanguages
    from lingua_speech.metrics import NodeMetrics
    from lingua_speech.pipeline_stage import OnPartial, PipelineStage
    from lingua_speech.turn_history import SlicePosition

# The sample rate of spoken results: `pcm16` does not name one, and clients assume this one.
SPEECH_RATE: Final = 16_000
# How long a slice waits for the recognition of the one before it.
ORDER_WAIT_S: Final = 10.0
# Time reserved at the end of an attempt to report it and to give it to another node.
REPORT_S: Final = 2.0
# The default message limit of the scheduler, as JSON; a larger result would end the connection.
SPEECH_BYTES_MAX: Final = 10 << 20
# Silence that the voice gate keeps around speech.
MARGIN_MS: Final = 300
TOO_LONG_TO_SPEAK: Final = "too_long_to_speak"
NOT_READABLE: Final = (
    "{} is read if the utterance is an Ogg, WebM, FLAC or WAV file; else send pcm16"
)
# Recognisers end an unfinished sentence with these; the next slice continues it.
TRAILING: Final = ".… "


class Timings(dict[str, float]):
    """How long each stage of one job took, in milliseconds."""

    def __init__(self) -> None:
        super().__init__()
        self._began = self._last = perf_counter()
        # The length of the speech, once known.
        self.audio_s = 0.0

    def lap(self, name: str) -> None:
        """Record the time since the end of the last stage."""
        now = perf_counter()
        self[name] = (now - self._last) * 1000
        self._last = now

    def total(self) -> Timings:
        """Record the total time and return this."""
        self["total_ms"] = (perf_counter() - self._began) * 1000
        return self


class SpeechPipeline:
    """Does jobs with the engines of one node."""

    def __init__(
        self,
        stages: Mapping[str, PipelineStage],
        abilities: Abilities,
        metrics: NodeMetrics,
        attempt_s: float,
    ) -> None:
        # By service: asr always; nmt, tts and natural if there are engines for them.
        self._stages = stages
        self._abilities = abilities
        self._metrics = metrics
        # The time limit of a job that has none of its own.
        self._attempt_s = attempt_s
        self._turns = TurnHistory()
        self._recognitions = SharedRecognitions(on_shared=metrics.recognitions_shared.inc)
        self._ogg_headers = OggHeaders()

    async def handle(self, job: Job) -> Result:
        """Do one job; this is the job handler of the node."""
        timings = Timings()
        outcome = "INTERNAL_ERROR"
        self._metrics.jobs_running.inc()
        try:
            result = await self._do_in_time(job, timings)
            outcome = "done" if result.text_asr else "silent"
        except JobFailed as failed:
            outcome = failed.code
            raise
        except asyncio.CancelledError:
            outcome = "cancelled"
            raise
        else:
            return result
        finally:
            self._metrics.jobs_running.dec()
            took_s = timings.total()["total_ms"] / 1000
            self._metrics.count_job(outcome, timings.audio_s, took_s)

    async def _do_in_time(self, job: Job, timings: Timings) -> Result:
        """Do a job within the time limit of the scheduler."""
        left_ms = job.remaining_ms
        left_s = self._attempt_s if left_ms is None else left_ms / 1000
        # If little time remains, half of it is reserved for the report.
        within_s = max(left_s - REPORT_S, left_s / 2)
        try:
            async with asyncio.timeout(within_s):
                return await self._do(job, timings)
        except TimeoutError as error:
            waited = f"not done within {within_s:.3g} s"
            raise JobFailed("JOB_TIMEOUT", waited) from error

    async def _do(self, job: Job, timings: Timings) -> Result:
        languages = languages_of(job, self._abilities)
        position = self._turns.enter(
            job.turn_id, job.utterance_index, continues=job.is_max_duration_triggered
        )
        try:
            sound = await self._decode(job)
            timings.audio_s = sound.duration_ms / 1000
            heard, said = await self._recognise(job, sound, languages, position)
        finally:
            position.leave()
        timings.lap("asr_ms")
        if not said:
            empty = ExtraResult(reason="ASR_EMPTY")
            return Result(extra=empty, timings=timings.total())
        target = languages.target_of(heard.language)
        translated, remarks = "", heard.remarks
        if job.pipeline.use_nmt:
            rendered = await self._translate(job, sound, heard, said, target)
            translated, remarks = rendered.text, (*remarks, *rendered.remarks)
            timings.lap("nmt_ms")
        speech = b""
        if job.pipeline.use_tts:
            aloud = (translated, target) if job.pipeline.use_nmt else (said, heard.language)
            speech = await self._speak(*aloud)
            timings.lap("tts_ms")
        if len(speech) > SPEECH_BYTES_MAX:
            # The text alone is better than no result.
            speech, remarks = b"", (*remarks, TOO_LONG_TO_SPEAK)
        return Result(
            text_asr=said,
            text_translated=translated,
            tts_audio=speech,
            timings=timings.total(),
            extra=ExtraResult(language_probabilities=heard.scores or None),
            quality_score=heard.confidence,
            reason_codes=remarks or None,
        )

    # Recognition

    async def _decode(self, job: Job) -> Sound:
        """Return the audio of a job; raises `JobFailed` for an unsupported format."""
        if job.audio_format == "pcm16" or not job.audio:
            return Sound(job.audio[: len(job.audio) // 2 * 2], job.sample_rate)
        audio = self._ogg_headers.complete(job.session_id, job.audio)
        if not format_of(audio):
            # Not to be retried on another node: the framing of bare packets is unknown to all.
            raise JobFailed("UNSUPPORTED_FEATURE", NOT_READABLE.format(job.audio_format[:32]))
        (reader,) = self._abilities.engines("file")
        sound: Sound = await self._stages["asr"].call(
            reader, audio, within_s=pipeline_stage.DECODE_S
        )
        return sound

    async def _recognise(
        self, job: Job, sound: Sound, languages: JobLanguages, position: SlicePosition
    ) -> tuple[Transcript, str]:
        """Return the transcript, and its text joined to the slice before and cleaned."""
        engine = self._abilities.recogniser(languages.candidates)
        if engine is None:
            raise not_served("/".join(languages.candidates), languages.target)
        before = await position.previous_text(ORDER_WAIT_S)
        hint = self._hint(job, languages, engine, before)
        partials = PartialResults(job)
        async with partials:
            heard = await self._recognise_shared(job, sound, (engine, hint), partials.update)
        continues = job.is_max_duration_triggered
        piece = heard.text.rstrip(TRAILING) if continues else heard.text
        piece = text.join_slice(before or "", piece, continues)
        # The next slice can start now.
        position.leave(piece)
        if not piece:
            return heard, ""
        heard = await self._with_language(heard, languages)
        said = text.cleaned(piece, heard.language)
        if said:
            await partials.send_final(said)
        return heard, said

    def _hint(
        self, job: Job, languages: JobLanguages, engine: LoadedEngine, before: str | None
    ) -> Hint:
        known = engine.about.languages
        allowed = tuple(filter(None, (closest(known, code) for code in languages.allowed)))
        context = before
        if context is None and languages.language:
            # Not if the language must be detected: the context may be in another one.
            context = previous_speech(job.context_text)
        return Hint(
            language=closest(known, languages.language) if languages.language else "",
            allowed=allowed,
            context=context or "",
            continues=before is not None,
            translate_to=self._recogniser_target(job, languages),
        )

    def _recogniser_target(self, job: Job, languages: JobLanguages) -> str:
        """Return the target if only the recogniser can translate into it, else ''."""
        source, target = languages.language, languages.target
        if not (job.pipeline.use_nmt and source) or base_of(source) == base_of(target):
            return ""
        if self._abilities.route(source, target) is not None:
            return ""
        return self._abilities.recogniser_target(source, target)

    async def _recognise_shared(
        self,
        job: Job,
        sound: Sound,
        by: tuple[LoadedEngine, Hint],
        on_partial: OnPartial | None,
    ) -> Transcript:
        """Return the transcript, from this job or one of the same speech into another language."""
        engine, hint = by
        continues = job.is_max_duration_triggered

        async def recognise(on_partial: OnPartial) -> Transcript:
            speech = await self._trim_silence(sound, starts=not hint.continues, ends=not continues)
            if not speech.pcm:
                return Transcript(text="", language=hint.language)
            within_s = pipeline_stage.recognition_s(speech.duration_ms)
            transcript: Transcript = await self._stages["asr"].call(
                engine, speech, hint, within_s=within_s, partial=on_partial
            )
            return transcript

        key = key_of(job.session_id, sound, hint)
        return await self._recognitions.recognise(key, recognise, on_partial)

    async def _trim_silence(self, sound: Sound, *, starts: bool, ends: bool) -> Sound:
        """Return the part with speech; an end beyond which speech continues is not cut."""
        if not sound.pcm:
            return sound
        for gate in self._abilities.engines("vad"):
            within_s = pipeline_stage.recognition_s(sound.duration_ms)
            spans = await self._stages["asr"].call(gate, sound, within_s=within_s)
            if not spans:
                return Sound(b"", sound.sample_rate)
            first = spans[0].start_ms if starts else 0
            last = spans[-1].end_ms if ends else sound.duration_ms
            return trimmed(sound, first, last)
        return sound

    async def _with_language(self, heard: Transcript, languages: JobLanguages) -> Transcript:
        """Return a transcript with its language, detected in the text if the recogniser cannot."""
        if languages.language:
            return heard if heard.language else _in_language(heard, languages.language)
        if heard.language and languages.allows(heard.language):
            return heard
        for engine in self._abilities.engines("lid"):
            scores: dict[str, float] = await self._stages["asr"].call(
                engine,
                heard.text,
                languages.allowed,
                within_s=pipeline_stage.translation_s(heard.text),
            )
            if scores:
                return _in_language(heard, max(scores, key=scores.__getitem__), scores)
        # Not retryable: other nodes would recognise the same.
        among = ", ".join(languages.allowed[:8]) or "any known"
        raise JobFailed("UNSUPPORTED_LANGUAGE", f"the language spoken is not one of: {among}")

    # Translation and synthesis

    async def _translate(
        self, job: Job, sound: Sound, heard: Transcript, said: str, target: str
    ) -> Rendered:
        if base_of(heard.language) == base_of(target):
            return Rendered(said)
        if heard.translation:
            return Rendered(heard.translation)
        route = self._abilities.route(heard.language, target)
        if route is None:
            return Rendered(await self._translate_by_recogniser(job, sound, heard, target))

        async def translate(words: str) -> str | Rendered:
            whole = text.for_translation(words, heard.language)
            within_s = pipeline_stage.translation_s(whole)
            by = (route.engine, whole, route.source, route.target)
            rendered: str | Rendered = await self._stages["nmt"].call(*by, within_s=within_s)
            return rendered

        rendered = await glossary.translate_with_terms(said, job.glossary, target, translate)
        self._metrics.count_remarks(rendered.remarks)
        return rendered

    async def _translate_by_recogniser(
        self, job: Job, sound: Sound, heard: Transcript, target: str
    ) -> str:
        """Recognise again, now with a known language, for the recogniser's own translation."""
        engine = self._abilities.recogniser((heard.language,))
        into = self._abilities.recogniser_target(heard.language, target)
        if engine is None or not into:
            raise not_served(heard.language, target)
        language = closest(engine.about.languages, heard.language)
        hint = Hint(language=language, translate_to=into)
        transcript = await self._recognise_shared(job, sound, (engine, hint), None)
        return transcript.translation

    async def _speak(self, words: str, language: str) -> bytes:
        if not words.strip():
            return b""
        aloud = text.for_speech(words, language)
        found = self._voice(language, len(aloud))
        if found is None:
            raise JobFailed("MODEL_NOT_AVAILABLE", f"there is no voice for {language} here")
        engine, code = found
        within_s = pipeline_stage.synthesis_s(aloud)
        stage = self._stages[engine.stage or "tts"]
        speech: Sound = await stage.call(engine, aloud, code, within_s=within_s)
        if speech.sample_rate == SPEECH_RATE:
            return speech.pcm
        return await asyncio.to_thread(at_speech_rate, speech)

    def _voice(self, language: str, chars: int) -> tuple[LoadedEngine, str] | None:
        """Return the preferred voice; a slow one only if the text is short and it is idle."""
        voices = self._abilities.voices(language)
        for engine, code in voices:
            chars_max = engine.about.chars_max
            stage = self._stages[engine.stage or "tts"]
            if not chars_max or (chars <= chars_max and stage.has_room):
                return engine, code
        return next(iter(voices), None)


def trimmed(sound: Sound, start_ms: float, end_ms: float) -> Sound:
    """Return a part of a sound, with a margin on both sides."""
    frames_per_ms = sound.sample_rate / 1000
    first = max(0, int((start_ms - MARGIN_MS) * frames_per_ms)) * 2
    last = int((end_ms + MARGIN_MS) * frames_per_ms) * 2
    return Sound(sound.pcm[first:last], sound.sample_rate)


def at_speech_rate(sound: Sound) -> bytes:
    """Return a sound at the rate of spoken results."""
    # numpy is imported only if needed: most voices have the right rate.
    from lingua_speech import sound as samples  # noqa: PLC0415

    numbers = samples.resample(samples.samples_of(sound.pcm), sound.sample_rate, SPEECH_RATE)
    return samples.pcm16(numbers)


def _in_language(
    heard: Transcript, language: str, scores: dict[str, float] | None = None
) -> Transcript:
    return msgspec.structs.replace(heard, language=language, scores=scores or heard.scores)
