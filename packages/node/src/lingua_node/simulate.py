"""A simulated node: delays, failures, silence and fake text, as configured and repeatable.

`Simulation(...).handler()` is a handler for `Node`, `stream_handler()` one for its streams;
`OldNode` (old_node.py) uses it too. Nothing is recognised or translated: the text states how long
the audio was, the target language, and that it is simulated. Tests, benchmarks and `lingua node
--simulate` use it.
"""

from __future__ import annotations

import asyncio
import math
from array import array
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple

from lingua_node.job import Job, JobFailed, Result
from lingua_wire.shared import ExtraResult

if TYPE_CHECKING:
    from lingua_node.job import Handler
    from lingua_node.stream import Stream, StreamHandler

FAIL_CODES: Final = ("PROCESSING_ERROR", "MODEL_NOT_AVAILABLE", "INTERNAL_ERROR")
TONE_MS, TONE_HZ, TONE_LEVEL = 100, 440, 8000
TONE_SAMPLE_RATE: Final = 16_000
# Opus is not decoded here; this is a usual rate of speech.
OPUS_BYTES_PER_S: Final = 4000
PCM16_BYTES: Final = 2
MS_PER_WORD: Final = 400
WORDS_MAX: Final = 200
WORDS: Final = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


@dataclass(frozen=True, slots=True)
class Simulation:
    """How a simulated node behaves. The percentages are of jobs and exclude each other."""

    delay_ms: float = 50.0
    # Up to this much more, uniformly distributed.
    jitter_ms: float = 0.0
    # Failed with one of the codes, in turn.
    fail_percent: float = 0.0
    fail_codes: tuple[str, ...] = FAIL_CODES
    # Never answered; the job stays in its slot until it is cancelled.
    silent_percent: float = 0.0
    # Answered as silence.
    empty_percent: float = 0.0
    # Partial texts sent before the result.
    partials: int = 0
    # Parts in which the speech is sent before the result, to those who want parts; 0: none.
    audio_parts: int = 0
    # The delay of jobs whose stream was heard, in place of `delay_ms`; None: no difference.
    streamed_delay_ms: float | None = None
    # Words of a sentence in a stream: where it ends is hinted. 0: no hints.
    sentence_words: int = 0
    # The same seed and order of jobs give the same behaviour.
    seed: int = 0
    # No work at all: no delay, no audio, nothing of the above; to measure everything else.
    echo: bool = False

    def handler(self) -> Handler:
        """Return a handler with this behaviour and a random generator of its own."""
        return echo if self.echo else SimulatedWork(self).translate

    def stream_handler(self) -> StreamHandler:
        """Return a handler of streams: one more word for so much more audio."""

        async def listen(stream: Stream) -> None:
            heard = 0
            async for _ in stream:
                words = stream.audio_ms // MS_PER_WORD
                if words > heard and not self.echo:
                    heard = words
                    await _report(stream, heard, self.sentence_words)

        return listen


async def echo(job: Job) -> Result:
    """Answer at once, naming the utterance so that order can be checked."""
    text = f"utterance {job.assign.utterance_index}"
    return Result(text_asr=text, text_translated=f"[{job.assign.tgt_lang}] {text}")


class SimulatedWork:
    """Does jobs as a simulation is configured."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._random = Random(simulation.seed)  # noqa: S311 repeatable, not secret
        # Jobs failed so far; selects the next code.
        self._failures = 0

    async def translate(self, job: Job) -> Result:
        """Wait as if working, then answer, fail or stay silent."""
        fate = self._draw_fate()
        delay_ms = self._delay_ms(job) + self._random.uniform(0, self._simulation.jitter_ms)
        if fate == "silent":
            await asyncio.Event().wait()
        source, target = languages_of(job)
        words = transcript(job).split(" ")
        await self._work(job, words, delay_ms / 1000)
        if fate == "fail":
            raise self._next_failure()
        if fate == "empty":
            return Result.empty()
        if job.pipeline.use_tts:
            for part in parts_of(tone(), self._simulation.audio_parts):
                await job.audio_part(part)
        return _result(job, " ".join(words), target, delay_ms, source)

    def _delay_ms(self, job: Job) -> float:
        streamed_ms = self._simulation.streamed_delay_ms
        return (
            self._simulation.delay_ms if job.stream is None or streamed_ms is None else streamed_ms
        )

    def _draw_fate(self) -> str:
        drawn = self._random.uniform(0, 100)
        for fate in ("fail", "silent", "empty"):
            percent = float(getattr(self._simulation, f"{fate}_percent"))
            if drawn < percent:
                return fate
            drawn -= percent
        return "answer"

    def _next_failure(self) -> JobFailed:
        code = self._simulation.fail_codes[self._failures % len(self._simulation.fail_codes)]
        self._failures += 1
        details = {"service_id": "nmt"} if code == "MODEL_NOT_AVAILABLE" else None
        return JobFailed(code, "simulated", details)

    async def _work(self, job: Job, words: list[str], seconds: float) -> None:
        steps = self._simulation.partials + 1
        for step in range(1, steps):
            await asyncio.sleep(seconds / steps)
            await job.partial(" ".join(words[: math.ceil(len(words) * step / steps)]))
        await asyncio.sleep(seconds / steps)


def transcript(job: Job) -> str:
    """Return the simulated text: the longer the audio, the more words."""
    ms = audio_ms(job)
    return f"simulated speech of {ms} ms: {counted(max(1, ms // MS_PER_WORD))}"


def counted(count: int) -> str:
    """Return so many words."""
    return " ".join(WORDS[number % len(WORDS)] for number in range(min(WORDS_MAX, count)))


class Heard(NamedTuple):
    """What a simulated node heard of a stream so far."""

    stable: str
    unstable: str
    sentence_end_ms: int | None
    is_complete: bool | None


def heard_of(count: int, sentence_words: int = 0) -> Heard:
    """Return the text after so many words: the last one may change. Sentences have full stops."""
    words = counted(count).split(" ")
    if not sentence_words:
        return Heard(" ".join(words[:-1]), words[-1], None, None)
    words = [word + "." * ((at + 1) % sentence_words == 0) for at, word in enumerate(words)]
    ended = (count - 1) // sentence_words * sentence_words
    return Heard(
        " ".join(words[:-1]),
        words[-1],
        ended * MS_PER_WORD or None,
        count % sentence_words == 0,
    )


def audio_ms(job: Job) -> int:
    """Return the length of the audio; estimated by its size unless it is pcm16."""
    per_s = PCM16_BYTES * job.sample_rate if job.audio_format == "pcm16" else OPUS_BYTES_PER_S
    return len(job.audio) * 1000 // max(1, per_s)


def languages_of(job: Job) -> tuple[str, str]:
    """Return the source and the target language; with two ways the audio's length decides."""
    if job.mode != "two_way_auto" or not job.lang_a or not job.lang_b:
        return job.src_lang, job.tgt_lang
    both = (job.lang_a, job.lang_b)
    return both if audio_ms(job) // MS_PER_WORD % 2 == 0 else both[::-1]


@cache
def tone() -> bytes:
    """Return a short tone as pcm16."""
    step = 2 * math.pi * TONE_HZ / TONE_SAMPLE_RATE
    count = TONE_SAMPLE_RATE * TONE_MS // 1000
    samples = array("h", (round(TONE_LEVEL * math.sin(step * at)) for at in range(count)))
    return samples.tobytes()


def parts_of(audio: bytes, count: int) -> list[bytes]:
    """Return pcm16 in so many parts, the last ones shorter."""
    size = math.ceil(len(audio) / PCM16_BYTES / max(1, count)) * PCM16_BYTES
    return [audio[at : at + size] for at in range(0, len(audio), size)] if count else []


async def _report(stream: Stream, count: int, sentence_words: int) -> None:
    heard = heard_of(count, sentence_words)
    await stream.partial(
        stable=heard.stable,
        unstable=heard.unstable,
        upto_ms=count * MS_PER_WORD,
        src_lang=None if stream.open.src_lang == "auto" else stream.open.src_lang,
        translations={
            target: (f"[{target}] {heard.stable}" if heard.stable else "", heard.unstable)
            for target in stream.open.tgt_langs
        },
        sentence_end_ms=heard.sentence_end_ms,
        is_complete=heard.is_complete,
    )


def _result(job: Job, text: str, target: str, delay_ms: float, source: str) -> Result:
    third = delay_ms / 3
    timings = {"asr_ms": third, "nmt_ms": third, "tts_ms": third, "total_ms": delay_ms}
    detected = ExtraResult(language_probabilities={source: 1.0}) if job.src_lang == "auto" else None
    return Result(
        text_asr=text,
        text_translated=f"[{target}] {text}" if job.pipeline.use_nmt else "",
        tts_audio=tone() if job.pipeline.use_tts else b"",
        timings=timings,
        extra=detected,
    )
