"""Calls of the engines of a node: find the voice, recognise, translate, speak.

`pipeline.py` uses them for jobs, `listening` for speech that still goes on. Every call has an
urgency: jobs first, then what a job will need in a moment, then captions.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, NamedTuple

from lingua_node import JobFailed
from lingua_speech import glossary, pipeline_stage, text
from lingua_speech.engine import Sound, Transcript
from lingua_speech.host import Urgency

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lingua_speech.abilities import Abilities, LoadedEngine, TranslatorMatch
    from lingua_speech.engine import Hint, Rendered, SpeechSpan
    from lingua_speech.metrics import NodeMetrics
    from lingua_speech.pipeline_stage import OnPartial, PipelineStage
    from lingua_wire.shared import Term

# The sample rate of spoken results: `pcm16` does not name one, and clients assume this one.
SPEECH_RATE: Final = 16_000
# Silence that the voice gate keeps around speech.
MARGIN_MS: Final = 300


class SpokenPart(NamedTuple):
    """The part of a sound with speech, and where in the sound the speech ends."""

    sound: Sound
    end_ms: float


class StageCalls:
    """The engines of one node, each called with its time limit."""

    def __init__(
        self, stages: Mapping[str, PipelineStage], abilities: Abilities, metrics: NodeMetrics
    ) -> None:
        # By service: asr always; nmt, tts and natural if there are engines for them.
        self.stages = stages
        self.abilities = abilities
        self.metrics = metrics

    async def spoken_part(
        self, sound: Sound, *, starts: bool, ends: bool, urgency: Urgency = Urgency.JOB
    ) -> SpokenPart:
        """Return the part with speech; an end beyond which speech continues is not cut."""
        if not sound.pcm:
            return SpokenPart(sound, 0)
        for gate in self.abilities.engines("vad"):
            within_s = pipeline_stage.recognition_s(sound.duration_ms)
            spans: Sequence[SpeechSpan] = await self.stages["asr"].call(
                gate, sound, within_s=within_s, urgency=urgency
            )
            if not spans:
                return SpokenPart(Sound(b"", sound.sample_rate), 0)
            first = spans[0].start_ms if starts else 0
            last = spans[-1].end_ms if ends else sound.duration_ms
            return SpokenPart(trimmed(sound, first, last), last)
        return SpokenPart(sound, sound.duration_ms)

    async def recognise(
        self,
        engine: LoadedEngine,
        speech: Sound,
        hint: Hint,
        *,
        on_partial: OnPartial | None = None,
        urgency: Urgency = Urgency.JOB,
    ) -> Transcript:
        """Return the transcript of speech; that of no speech is empty."""
        if not speech.pcm:
            return Transcript(text="", language=hint.language)
        within_s = pipeline_stage.recognition_s(speech.duration_ms)
        transcript: Transcript = await self.stages["asr"].call(
            engine, speech, hint, within_s=within_s, partial=on_partial, urgency=urgency
        )
        return transcript

    async def translate(
        self,
        route: TranslatorMatch,
        said: str,
        terms: Sequence[Term],
        target: str,
        urgency: Urgency = Urgency.JOB,
    ) -> Rendered:
        """Return a text in another language, with the terms of a glossary."""

        async def translate(words: str) -> str | Rendered:
            whole = text.for_translation(words, route.source)
            within_s = pipeline_stage.translation_s(whole)
            by = (route.engine, whole, route.source, route.target)
            rendered: str | Rendered = await self.stages["nmt"].call(
                *by, within_s=within_s, urgency=urgency
            )
            return rendered

        return await glossary.translate_with_terms(said, terms, target, translate)

    async def speak(self, words: str, language: str, urgency: Urgency = Urgency.JOB) -> bytes:
        """Return the spoken text at the rate of spoken results; raises without a voice."""
        if not words.strip():
            return b""
        aloud = text.for_speech(words, language)
        found = self.voice(language, len(aloud))
        if found is None:
            raise JobFailed("MODEL_NOT_AVAILABLE", f"there is no voice for {language} here")
        engine, code = found
        within_s = pipeline_stage.synthesis_s(aloud)
        stage = self.stages[engine.stage or "tts"]
        speech: Sound = await stage.call(engine, aloud, code, within_s=within_s, urgency=urgency)
        if speech.sample_rate == SPEECH_RATE:
            return speech.pcm
        return await asyncio.to_thread(at_speech_rate, speech)

    def voice(self, language: str, chars: int) -> tuple[LoadedEngine, str] | None:
        """Return the preferred voice; a slow one only if the text is short and it is idle."""
        voices = self.abilities.voices(language)
        for engine, code in voices:
            chars_max = engine.about.chars_max
            stage = self.stages[engine.stage or "tts"]
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
