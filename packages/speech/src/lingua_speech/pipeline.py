"""A job from audio to audio: detect speech, recognise, translate, synthesise.

    job ──> voice gate ──> recognise ──> clean up ──> translate ──> speak ──> result

The job handler of a node of real engines. The engines run in worker processes
(`stage_calls.py`); this module decides their order, inputs and timings. All languages of an
utterance share one recognition. The slices of a turn are recognised in order, each with the text of
the one before.
"""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import TYPE_CHECKING, Final

import msgspec

from lingua_node import ExtraResult, JobFailed, Result
from lingua_speech import pipeline_stage, text
from lingua_speech.abilities import closest
from lingua_speech.containers import OggHeaders, format_of
from lingua_speech.engine import Hint, Rendered, Sound, Transcript
from lingua_speech.engines import sentences
from lingua_speech.job_languages import languages_of, not_served, previous_speech
from lingua_speech.listening.head_start import HeadStart
from lingua_speech.partial_results import PartialResults
from lingua_speech.recognition import SharedRecognitions, key_of
from lingua_speech.turn_history import TurnHistory
from lingua_wire.languages import base_of

if TYPE_CHECKING:
    from lingua_node import Job
    from lingua_speech.abilities import LoadedEngine
    from lingua_speech.job_languages import JobLanguages
    from lingua_speech.pipeline_stage import OnPartial
    from lingua_speech.stage_calls import StageCalls
    from lingua_speech.turn_history import SlicePosition

# How long a slice waits for the recognition of the one before it.
ORDER_WAIT_S: Final = 10.0
# Time reserved at the end of an attempt to report it and to give it to another node.
REPORT_S: Final = 2.0
# The default message limit of the scheduler, as JSON; a larger result would end the connection.
SPEECH_BYTES_MAX: Final = 10 << 20
# A longer text is not spoken in parts: all of it might be too long to be sent.
PARTED_CHARS_MAX: Final = 2000
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

    def __init__(self, calls: StageCalls, attempt_s: float) -> None:
        self._calls = calls
        self._abilities = calls.abilities
        self._metrics = calls.metrics
        # The time limit of a job that has none of its own.
        self._attempt_s = attempt_s
        self._turns = TurnHistory()
        self._recognitions = SharedRecognitions(on_shared=self._metrics.recognitions_shared.inc)
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
            speech = await self._speak(job, *aloud)
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
        sound: Sound = await self._calls.stages["asr"].call(
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
        hint = self.hint_of(job, languages, engine, before)
        partials = PartialResults(job)
        async with partials:
            heard = await self._recognise_shared(job, sound, (engine, hint), partials.update)
        piece = joined(heard, before, continues=job.is_max_duration_triggered)
        # The next slice can start now.
        position.leave(piece)
        if not piece:
            return heard, ""
        heard = await self._with_language(heard, languages)
        said = text.cleaned(piece, heard.language)
        if said:
            await partials.send_final(said)
        return heard, said

    def hint_of(
        self, job: Job, languages: JobLanguages, engine: LoadedEngine, before: str | None = None
    ) -> Hint:
        """Return what is known of a job's speech; `before` is the text of the slice before it."""
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
            # A slice ends in the middle of speech: nothing that was heard before ends there.
            prepared = None if continues else _head_start_of(job)
            if prepared and (heard := await prepared.heard_upto(sound.duration_ms, hint)):
                return self._count_head_start("used", heard)
            spoken = await self._calls.spoken_part(
                sound, starts=not hint.continues, ends=not continues
            )
            if prepared and (heard := await prepared.heard_until(spoken.end_ms, hint)):
                return self._count_head_start("used", heard)
            heard = await self._calls.recognise(engine, spoken.sound, hint, on_partial=on_partial)
            return self._count_head_start("unused", heard) if job.stream else heard

        key = key_of(job.session_id, sound, hint)
        return await self._recognitions.recognise(key, recognise, on_partial)

    def _count_head_start(self, outcome: str, heard: Transcript) -> Transcript:
        self._metrics.head_starts.labels(outcome).inc()
        return heard

    async def _with_language(self, heard: Transcript, languages: JobLanguages) -> Transcript:
        """Return a transcript with its language, detected in the text if the recogniser cannot."""
        if languages.language:
            return heard if heard.language else _in_language(heard, languages.language)
        if heard.language and languages.allows(heard.language):
            return heard
        for engine in self._abilities.engines("lid"):
            scores: dict[str, float] = await self._calls.stages["asr"].call(
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
        prepared = _head_start_of(job)
        rendered = await prepared.translation(said, heard.language, target) if prepared else None
        if rendered is None:
            rendered = await self._calls.translate(route, said, job.glossary, target)
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

    async def _speak(self, job: Job, words: str, language: str) -> bytes:
        """Speak a text; in parts, sentence by sentence, for those who want to hear it sooner."""
        if not job.tts_parts or len(words) > PARTED_CHARS_MAX:
            return await self._spoken(job, words, language)
        speech = b""
        for sentence in sentences.split(words):
            part = await self._spoken(job, sentence, language)
            await job.audio_part(part)
            speech += part
        return speech

    async def _spoken(self, job: Job, words: str, language: str) -> bytes:
        prepared = _head_start_of(job)
        speech = await prepared.speech(words, language) if prepared else None
        return await self._calls.speak(words, language) if speech is None else speech


def _head_start_of(job: Job) -> HeadStart | None:
    """Return what was prepared while the utterance was spoken, if it was for the same terms."""
    stream = job.stream
    if stream is None or stream.open.glossary != job.glossary:
        return None
    return stream.head_start if isinstance(stream.head_start, HeadStart) else None


def joined(heard: Transcript, before: str | None, *, continues: bool) -> str:
    """Return the text of an utterance, joined to that of the slice before it."""
    piece = heard.text.rstrip(TRAILING) if continues else heard.text
    return text.join_slice(before or "", piece, continues)


def _in_language(
    heard: Transcript, language: str, scores: dict[str, float] | None = None
) -> Transcript:
    return msgspec.structs.replace(heard, language=language, scores=scores or heard.scores)
