"""A job from sound to sound: is there speech, what is said, in the other language, spoken.

    job ──> voice gate ──> recognise ──> clean up ──> translate ──> speak ──> result

The handler of a node of real engines. The engines are in worker processes (`stages.py`); here is
only what happens in which order, for whom, and how long each stage took. Recognition is shared by
all languages of an utterance; slices of one turn are recognised in order, each knowing the last.
"""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import TYPE_CHECKING, Final

from lingua_scheduler.languages import base_of
from lingua_scheduler.node import ExtraResult, JobFailed, Result
from lingua_scheduler.speech import stages, terms, text
from lingua_scheduler.speech.abilities import closest
from lingua_scheduler.speech.containers import Heads, format_of
from lingua_scheduler.speech.engine import Heard, Hint, Rendered, Sound
from lingua_scheduler.speech.partials import Partials
from lingua_scheduler.speech.recognition import Recognitions, key_of
from lingua_scheduler.speech.turns import Turns
from lingua_scheduler.speech.wish import not_served, said_before, wish_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lingua_scheduler.node import Job
    from lingua_scheduler.speech.abilities import Abilities, Engine
    from lingua_scheduler.speech.meters import Meters
    from lingua_scheduler.speech.stages import Stage
    from lingua_scheduler.speech.turns import Place
    from lingua_scheduler.speech.wish import Wish

# The one rate of spoken results: `pcm16` names none, and clients take it for this.
SPEECH_RATE: Final = 16_000
# How long a slice waits for the recognition of the one before it.
ORDER_WAIT_S: Final = 10.0
# What is left of an attempt to report it and to give it to another node.
REPORT_S: Final = 2.0
# What the scheduler takes in one message by default, as JSON. More would end the connection.
SPOKEN_BYTES_MAX: Final = 10 << 20
# What the voice gate leaves of the silence around speech.
MARGIN_MS: Final = 300
TOO_LONG_TO_SPEAK: Final = "too_long_to_speak"
NOT_READABLE: Final = (
    "{} is read if the utterance is an Ogg, WebM, FLAC or WAV file; else send pcm16"
)
# What a recogniser puts after speech that breaks off: it does not, the next slice goes on.
TRAILING: Final = ".… "


class Timings(dict[str, float]):
    """How long each stage of one job took, in milliseconds."""

    def __init__(self) -> None:
        super().__init__()
        self._began = self._last = perf_counter()
        # How long the speech is, once that is known.
        self.audio_s = 0.0

    def lap(self, name: str) -> None:
        """Note that a stage ends here; it began where the last one ended."""
        now = perf_counter()
        self[name] = (now - self._last) * 1000
        self._last = now

    def total(self) -> Timings:
        """Note the whole, and return this."""
        self["total_ms"] = (perf_counter() - self._began) * 1000
        return self


class Pipeline:
    """Does jobs with the engines of one node."""

    def __init__(
        self, of: Mapping[str, Stage], can: Abilities, meters: Meters, attempt_s: float
    ) -> None:
        # By service: asr always, nmt, tts and natural if there are engines for them.
        self._of = of
        self._can = can
        self._meters = meters
        # How long a scheduler waits that does not say it with the job.
        self._attempt_s = attempt_s
        self._turns = Turns()
        self._recognitions = Recognitions()
        self._heads = Heads()
        meters.shared.follow(lambda: self._recognitions.shared)

    async def handle(self, job: Job) -> Result:
        """Do one job; the handler of the node."""
        timings = Timings()
        outcome = "INTERNAL_ERROR"
        self._meters.jobs_running.inc()
        try:
            result = await self._in_time(job, timings)
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
            self._meters.jobs_running.dec()
            took_s = timings.total()["total_ms"] / 1000
            self._meters.ended(outcome, timings.audio_s, took_s)

    async def _in_time(self, job: Job, timings: Timings) -> Result:
        """Do a job within the time that the scheduler waits for it."""
        left_ms = job.remaining_ms
        left_s = self._attempt_s if left_ms is None else left_ms / 1000
        # Where little is left it is shared between the work and its report.
        within_s = max(left_s - REPORT_S, left_s / 2)
        try:
            async with asyncio.timeout(within_s):
                return await self._do(job, timings)
        except TimeoutError as error:
            waited = f"not done within {within_s:.3g} s"
            raise JobFailed("JOB_TIMEOUT", waited) from error

    async def _do(self, job: Job, timings: Timings) -> Result:
        wish = wish_of(job, self._can)
        turns = self._turns
        place = turns.enter(job.turn_id, job.utterance_index, goes_on=job.is_max_duration_triggered)
        try:
            sound = await self._sound_of(job)
            timings.audio_s = sound.duration_ms / 1000
            heard, said = await self._hear(job, sound, wish, place)
        finally:
            place.leave()
        timings.lap("asr_ms")
        if not said:
            empty = ExtraResult(reason="ASR_EMPTY")
            return Result(extra=empty, timings=timings.total())
        target = wish.target_of(heard.language)
        translated, remarks = "", heard.remarks
        if job.pipeline.use_nmt:
            rendered = await self._translate(job, sound, heard, said, target)
            translated, remarks = rendered.text, (*remarks, *rendered.remarks)
            timings.lap("nmt_ms")
        spoken = b""
        if job.pipeline.use_tts:
            aloud = (translated, target) if job.pipeline.use_nmt else (said, heard.language)
            spoken = await self._speak(*aloud)
            timings.lap("tts_ms")
        if len(spoken) > SPOKEN_BYTES_MAX:
            # The text is worth more than nothing.
            spoken, remarks = b"", (*remarks, TOO_LONG_TO_SPEAK)
        return Result(
            text_asr=said,
            text_translated=translated,
            tts_audio=spoken,
            timings=timings.total(),
            extra=ExtraResult(language_probabilities=heard.scores or None),
            quality_score=heard.confidence,
            reason_codes=remarks or None,
        )

    # Listening

    async def _sound_of(self, job: Job) -> Sound:
        """Return a job's audio; raises `JobFailed` for what cannot be read here."""
        if job.audio_format == "pcm16" or not job.audio:
            return Sound(job.audio[: len(job.audio) // 2 * 2], job.sample_rate)
        audio = self._heads.whole(job.session_id, job.audio)
        if not format_of(audio):
            # Not to be tried elsewhere: how bare packets are framed is the client's secret.
            raise JobFailed("UNSUPPORTED_FEATURE", NOT_READABLE.format(job.audio_format[:32]))
        (reader,) = self._can.engines("file")
        sound: Sound = await self._of["asr"].call(reader, audio, within_s=stages.READING_S)
        return sound

    async def _hear(self, job: Job, sound: Sound, wish: Wish, place: Place) -> tuple[Heard, str]:
        """Return what was heard, and the text as it is told: joined to the slice before."""
        engine = self._can.recogniser(wish.may_be)
        if engine is None:
            raise not_served("/".join(wish.may_be), wish.target)
        before = await place.context(ORDER_WAIT_S)
        hint = self._hint(job, wish, engine, before)
        partials = Partials(job)
        async with partials:
            heard = await self._recognise(job, sound, (engine, hint), partials.tell)
        goes_on = job.is_max_duration_triggered
        piece = heard.text.rstrip(TRAILING) if goes_on else heard.text
        piece = text.join_slice(before or "", piece, goes_on)
        # The next slice need not wait for the rest.
        place.leave(piece)
        if not piece:
            return heard, ""
        heard = await self._with_language(heard, wish)
        said = text.heard(piece, heard.language)
        if said:
            await partials.finish(said)
        return heard, said

    def _hint(self, job: Job, wish: Wish, engine: Engine, before: str | None) -> Hint:
        known = engine.about.languages
        allowed = tuple(filter(None, (closest(known, code) for code in wish.allowed)))
        context = before
        if context is None and wish.language:
            # Where the language is to be found out, another utterance's would mislead.
            context = said_before(job.context_text)
        return Hint(
            language=closest(known, wish.language) if wish.language else "",
            allowed=allowed,
            context=context or "",
            continues=before is not None,
            translate_to=self._to_translate_itself(job, wish),
        )

    def _to_translate_itself(self, job: Job, wish: Wish) -> str:
        """Return what the recogniser is to translate into because nobody else can, or ''."""
        source, target = wish.language, wish.target
        if not (job.pipeline.use_nmt and source) or base_of(source) == base_of(target):
            return ""
        if self._can.route(source, target) is not None:
            return ""
        return self._can.translates_itself(source, target)

    async def _recognise(
        self, job: Job, sound: Sound, by: tuple[Engine, Hint], tell: stages.Tell | None
    ) -> Heard:
        """Return what is heard, by this job or by one of the same speech into another language."""
        engine, hint = by
        goes_on = job.is_max_duration_triggered

        async def work(tell: stages.Tell) -> Heard:
            audible = await self._audible(sound, starts=not hint.continues, ends=not goes_on)
            if not audible.pcm:
                return Heard(text="", language=hint.language)
            within_s = stages.listening_s(audible.duration_ms)
            heard: Heard = await self._of["asr"].call(
                engine, audible, hint, within_s=within_s, partial=tell
            )
            return heard

        return await self._recognitions.hear(key_of(job.session_id, sound, hint), work, tell)

    async def _audible(self, sound: Sound, *, starts: bool, ends: bool) -> Sound:
        """Return the part with speech in it; where speech goes on beyond the end nothing is cut."""
        if not sound.pcm:
            return sound
        for gate in self._can.engines("vad"):
            within_s = stages.listening_s(sound.duration_ms)
            spans = await self._of["asr"].call(gate, sound, within_s=within_s)
            if not spans:
                return Sound(b"", sound.sample_rate)
            first = spans[0].start_ms if starts else 0
            last = spans[-1].end_ms if ends else sound.duration_ms
            return trimmed(sound, first, last)
        return sound

    async def _with_language(self, heard: Heard, wish: Wish) -> Heard:
        """Return what was heard with its language, from its words if the recogniser cannot tell."""
        if wish.language:
            return heard if heard.language else _in_language(heard, wish.language)
        if heard.language and wish.allows(heard.language):
            return heard
        for engine in self._can.engines("lid"):
            scores: dict[str, float] = await self._of["asr"].call(
                engine, heard.text, wish.allowed, within_s=stages.translating_s(heard.text)
            )
            if scores:
                return _in_language(heard, max(scores, key=scores.__getitem__), scores)
        # Other nodes would hear the same.
        among = ", ".join(wish.allowed[:8]) or "any known"
        raise JobFailed("UNSUPPORTED_LANGUAGE", f"the language spoken is none of: {among}")

    # Translating and speaking

    async def _translate(
        self, job: Job, sound: Sound, heard: Heard, said: str, target: str
    ) -> Rendered:
        if base_of(heard.language) == base_of(target):
            return Rendered(said)
        if heard.translation:
            return Rendered(heard.translation)
        route = self._can.route(heard.language, target)
        if route is None:
            return Rendered(await self._translate_by_listening(job, sound, heard, target))

        async def ask(words: str) -> str | Rendered:
            whole = text.for_translation(words, heard.language)
            within_s = stages.translating_s(whole)
            by = (route.engine, whole, route.source, route.target)
            rendered: str | Rendered = await self._of["nmt"].call(*by, within_s=within_s)
            return rendered

        rendered = await terms.translated(said, job.glossary, target, ask)
        self._meters.translated(rendered.remarks)
        return rendered

    async def _translate_by_listening(
        self, job: Job, sound: Sound, heard: Heard, target: str
    ) -> str:
        """Listen once more, the language being known, for the recogniser's own translation."""
        engine = self._can.recogniser((heard.language,))
        into = self._can.translates_itself(heard.language, target)
        if engine is None or not into:
            raise not_served(heard.language, target)
        language = closest(engine.about.languages, heard.language)
        hint = Hint(language=language, translate_to=into)
        return (await self._recognise(job, sound, (engine, hint), None)).translation

    async def _speak(self, words: str, language: str) -> bytes:
        if not words.strip():
            return b""
        aloud = text.for_speech(words, language)
        found = self._voice(language, len(aloud))
        if found is None:
            raise JobFailed("MODEL_NOT_AVAILABLE", f"there is no voice for {language} here")
        engine, named = found
        within_s = stages.speaking_s(aloud)
        stage = self._of[engine.stage or "tts"]
        spoken: Sound = await stage.call(engine, aloud, named, within_s=within_s)
        if spoken.sample_rate == SPEECH_RATE:
            return spoken.pcm
        return await asyncio.to_thread(at_speech_rate, spoken)

    def _voice(self, language: str, chars: int) -> tuple[Engine, str] | None:
        """Return who is to say it: the first voice, but a slow one only if it keeps up."""
        able = self._can.voices(language)
        for engine, named in able:
            most = engine.about.chars_max
            if not most or (chars <= most and self._of[engine.stage or "tts"].has_room):
                return engine, named
        return next(iter(able), None)


def trimmed(sound: Sound, start_ms: float, end_ms: float) -> Sound:
    """Return a sound without the silence at its ends, but for a margin."""
    frames_per_ms = sound.sample_rate / 1000
    first = max(0, int((start_ms - MARGIN_MS) * frames_per_ms)) * 2
    last = int((end_ms + MARGIN_MS) * frames_per_ms) * 2
    return Sound(sound.pcm[first:last], sound.sample_rate)


def at_speech_rate(sound: Sound) -> bytes:
    """Return a sound as spoken results are."""
    # numpy only where it is needed: most voices speak at the right rate.
    from lingua_scheduler.speech import sound as samples  # noqa: PLC0415

    numbers = samples.resample(samples.samples_of(sound.pcm), sound.sample_rate, SPEECH_RATE)
    return samples.pcm16(numbers)


def _in_language(heard: Heard, language: str, scores: dict[str, float] | None = None) -> Heard:
    return Heard(
        text=heard.text, language=language, scores=scores or heard.scores,
        confidence=heard.confidence, translation=heard.translation, remarks=heard.remarks,
    )  # fmt: skip
