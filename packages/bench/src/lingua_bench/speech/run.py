"""The benchmark of real speech: speaks into a private service, translates texts, measures.

The parts are independent and bounded: their length is that of the recordings. The models must be
installed (`lingua models install bench`).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean as mean
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Final

from lingua_bench.speech import material
from lingua_bench.speech.borders import missing_words
from lingua_bench.speech.caption_log import CaptionLog
from lingua_bench.speech.report import (
    Long,
    RecognitionResult,
    SpeechReport,
    Translated,
    recognition_of,
)
from lingua_bench.speech.spoken_lag import spoken_lag
from lingua_speech.engine import Hint, Sound, text_of
from lingua_speech.host import WorkerPool, WorkerPoolRules
from lingua_speech.models import default_store
from lingua_speech.plugins import Spec
from lingua_speech.scores import chrf, word_error_rate
from lingua_translate import Order, RecordingSource, interpret, quantile
from lingua_translate.local import private_service

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lingua_bench.speech.material import JoinedRecording
    from lingua_speech.models import ModelStore
    from lingua_speech.prompt_corpus import Prompt
    from lingua_translate.local import PrivateService
    from lingua_wire.recording import Recording

GROUP: Final = "bench"
TAIL_MS: Final = 700
# How many prompts the full run speaks in each language.
PROMPTS_SPOKEN: Final = 40
LONG_S: Final = 300
# Between prompts of continuous speech: shorter than what ends an utterance.
BREATH_MS: Final = 120
# The translator of the default node, and its predecessor without rules or networks.
TRANSLATORS: Final = ("mt=router", "mt=apertium:pairs=en-es+es-en,rules=no")
OURS, PLAIN = range(2)
ASR_TIMEOUT_S: Final = 600.0
MT_TIMEOUT_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class SpeechBenchmarkPlan:
    """What is measured."""

    engines: tuple[str, ...] = ("default",)
    is_quick: bool = False
    # Only continuous speech of so many seconds; 0: not that alone.
    long_s: int = 0


async def measure_speech(plan: SpeechBenchmarkPlan, tell: Callable[[str], None]) -> SpeechReport:
    """Measure everything that a plan asks for."""
    store = default_store()
    report = SpeechReport()
    began = monotonic()
    tell("starting a scheduler and a node")
    pairs = (("en", "es"), ("es", "en"))
    async with private_service(plan.engines, pairs=pairs) as service:
        report.start_s = monotonic() - began
        if not plan.long_s:
            await _speak_all(plan, store, service, report, tell)
            report.rss_mb = memory_mb(service.node_pid or os.getpid())
        if plan.long_s or not plan.is_quick:
            tell("speaking without a pause, in real time")
            report.long.append(await _speak_long(store, service, plan.long_s or LONG_S))
    if plan.long_s:
        return report
    tell("translating prompts, by the default translators and by plain Apertium")
    report.translated += await _translate_all(store, pairs)
    return report


async def _speak_all(
    plan: SpeechBenchmarkPlan,
    store: ModelStore,
    service: PrivateService,
    report: SpeechReport,
    tell: Callable[[str], None],
) -> None:
    tell("speaking English (LibriVox), in real time")
    english = material.join_recordings(material.librivox(store))
    report.heard.append(await _hear("librivox en>es", service, english))
    if plan.is_quick:
        return
    keys = [prompt.key for prompt in material.parallel(store, "en", "es")][:PROMPTS_SPOKEN]
    for source in ("en", "es"):
        tell(f"speaking prompts ({source}), in real time")
        spoken = material.join_recordings(material.prompts(store, source, keys))
        target = "es" if source == "en" else "en"
        report.heard.append(await _hear(f"prompts {source}>{target}", service, spoken))


async def _hear(name: str, service: PrivateService, joined: JoinedRecording) -> RecognitionResult:
    """Speak a recording, whose name ends with its direction, and measure what came back."""
    source, target = name.rsplit(maxsplit=1)[-1].split(">")
    order = Order(
        urls=(service.session_url,),
        source=source,
        targets=(target,),
        partials=True,
        init={"enable_streaming_asr": True},
    )
    log = CaptionLog(target, joined.recording)
    report = await interpret(RecordingSource(joined.recording, tail_ms=TAIL_MS), order, log)
    return recognition_of(name, joined, report, log)


# Translation alone


async def _translate_all(
    store: ModelStore, directions: Sequence[tuple[str, str]]
) -> list[Translated]:
    # The English text decides which prompts are long enough, in both directions.
    prompts = material.parallel(store, "en", "es")
    pool = WorkerPool([Spec.parse(spec) for spec in TRANSLATORS], WorkerPoolRules())
    await pool.start()
    try:
        return [await _translate(pool, prompts, *direction) for direction in directions]
    finally:
        await pool.close()


async def _translate(
    pool: WorkerPool, prompts: Sequence[Prompt], source: str, target: str
) -> Translated:
    wanted = [_sides(prompt, source) for prompt in prompts]
    texts = [text for text, _ in wanted]
    ours, took_ms = await _translations(pool, OURS, (source, target), texts)
    plain, _ = await _translations(pool, PLAIN, (source, target), texts)
    references = [reference for _, reference in wanted]
    unseen = [at for at, prompt in enumerate(prompts) if prompt.is_held_out]
    held = [references[at] for at in unseen]
    return Translated(
        direction=f"{source}>{target}",
        prompts=len(prompts),
        chrf=chrf(ours, references),
        chrf_plain=chrf(plain, references),
        chrf_held_out=chrf([ours[at] for at in unseen], held),
        chrf_held_out_plain=chrf([plain[at] for at in unseen], held),
        p50_ms=quantile(took_ms, 0.5),
        p95_ms=quantile(took_ms, 0.95),
    )


def _sides(prompt: Prompt, source: str) -> tuple[str, str]:
    pair = (prompt.first, prompt.second)
    return pair if source == "en" else pair[::-1]


async def _translations(
    pool: WorkerPool, engine: int, direction: tuple[str, str], texts: Sequence[str]
) -> tuple[list[str], list[float]]:
    """Return the translations and how long each took, in milliseconds."""
    # The first sentence starts the programs.
    await pool.call(engine, texts[0], *direction, timeout_s=MT_TIMEOUT_S)
    found, took_ms = [], []
    for text in texts:
        began = perf_counter()
        found.append(text_of(await pool.call(engine, text, *direction, timeout_s=MT_TIMEOUT_S)))
        took_ms.append((perf_counter() - began) * 1000)
    return found, took_ms


# Continuous speech


async def _speak_long(store: ModelStore, service: PrivateService, seconds: int) -> Long:
    """Speak without a pause, in real time; nodes listen, and sentences are cut where they end."""
    joined = continuous(store, seconds)
    order = Order(
        urls=(service.session_url,),
        source="en",
        targets=("es",),
        partials=True,
        init={"enable_streaming_asr": True},
    )
    log = CaptionLog("es", joined.recording)
    source = RecordingSource(joined.recording, tail_ms=TAIL_MS)
    report = await interpret(source, order, log)
    one_pass = await _hear_at_once(joined.recording)
    slices = [said.text_asr for said in report.utterances]
    missing = missing_words(one_pass, slices)
    starts = [said.start_ms for said in report.utterances]
    lengths = [(said.end_ms - said.start_ms) / 1000 for said in report.utterances]
    coverage = report.coverage
    delivered = coverage.delivered_ms + coverage.silent_ms if coverage else 0
    lag = spoken_lag(log.pieces())
    return Long(
        speech_s=round(joined.speech_ms / 1000, 1),
        slices=len(slices),
        longest_s=round(max(lengths, default=0.0), 2),
        words_one_pass=len(one_pass.split()),
        words_sliced=sum(len(piece.split()) for piece in slices),
        missing_at_borders=missing.at_borders,
        missing_elsewhere=missing.elsewhere,
        wer_one_pass=word_error_rate([(joined.text, one_pass)]),
        wer_sliced=word_error_rate([(joined.text, " ".join(slices))]),
        in_order=starts == sorted(starts),
        covered_percent=round(100 * delivered / coverage.admitted_ms, 3) if coverage else 0.0,
        arrived_lag_mean_s=mean(lag.arrived_s),
        arrived_lag_p95_s=quantile(lag.arrived_s, 0.95),
        heard_lag_mean_s=mean(lag.heard_s),
    )


def continuous(store: ModelStore, seconds: int) -> JoinedRecording:
    """Return so much speech of one speaker without a pause that would end an utterance."""
    keys = [prompt.key for prompt in material.parallel(store, "en", "es")]
    parts: list[material.LabelledRecording] = []
    length_ms = 0.0
    for one in material.prompts(store, "en", keys):
        if length_ms >= seconds * 1000:
            break
        parts.append(
            material.LabelledRecording(one.key, one.text, material.softened(one.recording))
        )
        length_ms += one.duration_ms + BREATH_MS
    return material.join_recordings(parts, BREATH_MS)


async def _hear_at_once(recording: Recording) -> str:
    """Return the text of all of it, recognised in one call."""
    pool = WorkerPool([Spec.parse("asr=whisper:model=base")], WorkerPoolRules())
    await pool.start()
    try:
        sound = Sound(recording.pcm, recording.sample_rate)
        heard = await pool.call(0, sound, Hint(language="en"), timeout_s=ASR_TIMEOUT_S)
    finally:
        await pool.close()
    return str(heard.text)


# Memory


def memory_mb(pid: int) -> float:
    """Return the memory of a process and of its descendants; shared memory counts once."""
    return sum(_own_kb(one) for one in family(pid)) / 1024


def family(pid: int) -> list[int]:
    """Return a process and its descendants."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and (parent := _parent_of(entry)):
            parents.setdefault(parent, []).append(int(entry.name))
    found = [pid]
    for one in found:
        found += parents.get(one, [])
    return found


def _parent_of(entry: Path) -> int:
    try:
        # After the name, which may contain anything: state, parent.
        return int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _own_kb(pid: int) -> int:
    """Return a process' proportional share of the memory it uses."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)
