"""Speaks recordings in real time into the handlers of a node, without a scheduler, and measures.

    lingua bench speech --captions --speakers 1

The audio comes in pieces of 200 ms. The utterance is cut when it has been silent for 400 ms, and
its job follows at once, as with a scheduler of default settings. Captions are measured by
`caption_lag.py`; the time until the result is counted from the end of the voice.
"""

from __future__ import annotations

import asyncio
import random
import resource
from array import array
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from lingua_bench.speech import material
from lingua_bench.speech.caption_lag import CaptionLag, SeenCaption, lag_of, voiced_parts
from lingua_node import Job, Stream
from lingua_speech.assembly import Assembly
from lingua_speech.models import default_store
from lingua_speech.presets import plan_of
from lingua_speech.scores import word_error_rate
from lingua_translate import quantile
from lingua_wire.from_node import StreamPartial
from lingua_wire.shared import PipelineConfig
from lingua_wire.to_node import JobAssign, StreamOpen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lingua_bench.speech.material import LabelledRecording
    from lingua_node import Result
    from lingua_speech.listening.listener import SpeechListener
    from lingua_wire.from_node import FromNode

PIECE_MS: Final = 200
SILENCE_MS: Final = 400
BEFORE_MS: Final = 300
NOISE: Final = 12
ALL_STAGES: Final = PipelineConfig(use_asr=True, use_nmt=True, use_tts=True)


@dataclass(frozen=True, slots=True)
class SpokenUtterance:
    """A recording as it is spoken, and where its voice is."""

    key: str
    text: str
    pcm: bytes
    sample_rate: int
    voiced: tuple[tuple[float, float], ...]

    @property
    def end_ms(self) -> float:
        """Return where the voice ends."""
        return self.voiced[-1][1]


@dataclass(frozen=True, slots=True)
class UtteranceFigures:
    """What was measured with one utterance."""

    spoken: SpokenUtterance
    audio: bytes
    result: Result
    # The same audio as a job without a stream.
    plain: Result
    lag: CaptionLag
    # From the end of the voice to the result.
    ready_ms: float
    captions: tuple[StreamPartial, ...]


def utterance_of(one: LabelledRecording) -> SpokenUtterance:
    """Return a recording with faint noise before and after it."""
    rate = one.recording.sample_rate
    pcm = _noise(rate * BEFORE_MS // 1000) + one.recording.pcm + _noise(rate)
    return SpokenUtterance(one.key, one.text, pcm, rate, voiced_parts(pcm, rate))


def _noise(count: int) -> bytes:
    chance = random.Random(count)
    return array("h", (chance.randint(-NOISE, NOISE) for _ in range(count))).tobytes()


async def speak(
    assembly: Assembly,
    listener: SpeechListener,
    spoken: SpokenUtterance,
    direction: tuple[str, str],
) -> UtteranceFigures:
    """Speak one utterance in real time, and do its job."""
    began = monotonic()
    captions: list[tuple[float, StreamPartial]] = []

    def send(message: FromNode) -> None:
        if isinstance(message, StreamPartial):
            captions.append(((monotonic() - began) * 1000, message))

    stream = Stream(opening_of(spoken, direction), send)
    listening = asyncio.create_task(listener.listen(stream))
    per_ms = spoken.sample_rate * 2 // 1000
    cut_ms = spoken.end_ms + SILENCE_MS
    at_ms = 0.0
    while at_ms < cut_ms:
        upto_ms = min(at_ms + PIECE_MS, cut_ms)
        await asyncio.sleep(max(0.0, began + upto_ms / 1000 - monotonic()))
        stream.add(spoken.pcm[int(at_ms) * per_ms : int(upto_ms) * per_ms])
        at_ms = upto_ms
    stream.cut(None)
    job = Job(_assignment(spoken, stream.audio, direction, "streamed"), "n", send, stream)
    result = await assembly.pipeline.handle(job)
    done_ms = (monotonic() - began) * 1000
    await listening
    shown = [_shown(at, one) for at, one in captions]
    lag = lag_of(result.text_asr, result.text_translated, shown, spoken.voiced, done_ms)
    return UtteranceFigures(
        spoken=spoken,
        audio=stream.audio,
        result=result,
        plain=result,
        lag=lag,
        ready_ms=done_ms - spoken.end_ms,
        captions=tuple(one for _, one in captions),
    )


def opening_of(spoken: SpokenUtterance, direction: tuple[str, str]) -> StreamOpen:
    """Return the message that opens the stream of an utterance."""
    return StreamOpen(
        stream_id=spoken.key,
        session_id=spoken.key,
        src_lang=direction[0],
        tgt_langs=direction[1:],
        pipeline=ALL_STAGES,
        audio_format="pcm16",
        sample_rate=spoken.sample_rate,
        trace_id="",
    )


def _assignment(
    spoken: SpokenUtterance, audio: bytes, direction: tuple[str, str], session: str
) -> JobAssign:
    return JobAssign(
        job_id=spoken.key,
        attempt_id=1,
        # Of another session, or the recognition would be shared.
        session_id=f"{spoken.key}-{session}",
        utterance_index=0,
        src_lang=direction[0],
        tgt_lang=direction[1],
        pipeline=ALL_STAGES,
        audio=audio,
        audio_format="pcm16",
        sample_rate=spoken.sample_rate,
        enable_streaming_asr=False,
        trace_id="",
    )


def _shown(at_ms: float, one: StreamPartial) -> SeenCaption:
    into = one.translations[0] if one.translations else None
    return SeenCaption(
        at_ms,
        one.stable,
        one.unstable,
        into.stable if into else "",
        into.unstable if into else "",
    )


def cpu_s(pids: Sequence[int]) -> float:
    """Return the processor time of these processes and of this one."""
    total = resource.getrusage(resource.RUSAGE_SELF)
    used = total.ru_utime + total.ru_stime
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        used += (int(fields[11]) + int(fields[12])) / 100
    return used


def table(figures: Sequence[UtteranceFigures]) -> str:
    """Return the figures of all utterances together."""
    rows = {
        "word to stable caption": [ms for one in figures for ms in one.lag.stable_ms],
        "word to any caption": [ms for one in figures for ms in one.lag.shown_ms],
        "word to translated caption": [ms for one in figures for ms in one.lag.translated_ms],
        "end of voice to result": [one.ready_ms for one in figures],
        "  of it in the job": [dict(one.result.timings or {})["total_ms"] for one in figures],
        "  without a stream": [dict(one.plain.timings or {})["total_ms"] for one in figures],
    }
    lines = [
        f"{name:28} p50 {quantile(ms, 0.5):6.0f}  p95 {quantile(ms, 0.95):6.0f} ms"
        for name, ms in rows.items()
    ]
    words = sum(one.lag.words for one in figures)
    for name in ("erasure", "translation_erasure", "stable_errors"):
        share = sum(getattr(one.lag, name) * one.lag.words for one in figures) / max(1, words)
        lines.append(f"{name:28} {share:.3f} of the words")
    for name in ("result", "plain"):
        pairs = [(one.spoken.text, getattr(one, name).text_asr) for one in figures]
        lines.append(f"WER {name:24} {100 * word_error_rate(pairs):.2f} %")
    same = sum(one.result.text_asr == one.plain.text_asr for one in figures)
    lines.append(f"same text as without a stream: {same} of {len(figures)}")
    return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class SpokenCaptionPlan:
    """What is spoken, and by how many at once."""

    engines: tuple[str, ...] = ("default",)
    direction: tuple[str, str] = ("en", "es")
    # Prompts, besides the five sentences of LibriVox.
    prompts: int = 12
    speakers: int = 1


@dataclass(frozen=True, slots=True)
class CaptionReport:
    """What was measured with all utterances."""

    figures: tuple[UtteranceFigures, ...]
    # Processor time for each second of speech, with the jobs but without those for comparison.
    cpu: float

    def objects(self) -> list[dict[str, Any]]:
        """Return one object for each utterance."""
        return [
            {
                "utterance": one.spoken.key,
                "ready_ms": round(one.ready_ms),
                "stable_p50_ms": round(quantile(one.lag.stable_ms, 0.5)),
                "erasure": round(one.lag.erasure, 3),
                "text": one.result.text_asr,
                "captions": [
                    [shown.upto_ms, shown.stable, shown.unstable, shown.sentence_end_ms]
                    for shown in one.captions
                ],
            }
            for one in self.figures
        ]

    def page(self) -> str:
        """Return the figures as a table."""
        return f"{table(self.figures)}\nCPU {self.cpu:.2f} s for each second of speech"


def spoken_by(plan: SpokenCaptionPlan) -> list[SpokenUtterance]:
    """Return the utterances of a plan."""
    store = default_store()
    recordings = material.librivox(store) if plan.direction[0] == "en" else []
    keys = [prompt.key for prompt in material.parallel(store, "en", "es")]
    prompts = material.prompts(store, plan.direction[0], keys[: plan.prompts])
    return [utterance_of(one) for one in (*recordings, *prompts)]


async def measure_captions(plan: SpokenCaptionPlan) -> CaptionReport:
    """Speak all utterances of a plan in real time, some of them at once."""
    spoken = spoken_by(plan)
    figures: list[UtteranceFigures] = []
    used = 0.0
    async with Assembly(plan_of(plan.engines)) as assembly:
        listener = assembly.listener()
        pids = [pid for pool in assembly.pools.values() for pid in pool.pids]
        # The first job starts the lazy parts of the engines.
        await _plainly(assembly, spoken[0], spoken[0].pcm, plan.direction)
        for at in range(0, len(spoken), plan.speakers):
            group = spoken[at : at + plan.speakers]
            before = cpu_s(pids)
            heard = await asyncio.gather(
                *(speak(assembly, listener, one, plan.direction) for one in group)
            )
            used += cpu_s(pids) - before
            for one in heard:
                plain = await _plainly(assembly, one.spoken, one.audio, plan.direction)
                figures.append(replace(one, plain=plain))
    speech_s = sum(one.end_ms for one in spoken) / 1000
    return CaptionReport(tuple(figures), used / speech_s)


async def _plainly(
    assembly: Assembly, spoken: SpokenUtterance, audio: bytes, direction: tuple[str, str]
) -> Result:
    """Do the job of an utterance that was not heard before."""
    assign = _assignment(spoken, audio, direction, "plain")
    return await assembly.pipeline.handle(Job(assign, "n", lambda _: None))
