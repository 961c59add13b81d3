"""How many jobs this machine does at once without falling behind: measured, not promised.

A sentence goes through the real pipeline, alone and then by twos, fours and so on. What counts is
the slowest of a round: its time by the length of its audio must stay within a bound. The result is
kept with the models, for the same engines on the same machine, so that the next start is quick.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import platform
import secrets
from contextlib import suppress
from pathlib import Path
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import msgspec

from lingua_scheduler import __version__
from lingua_scheduler.messages.shared import PipelineConfig
from lingua_scheduler.messages.to_node import JobAssign
from lingua_scheduler.node import Job, JobFailed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from lingua_scheduler.messages.from_node import FromNode
    from lingua_scheduler.node import Result
    from lingua_scheduler.speech.engine import Sound

    Handler = Callable[[Job], Awaitable[Result]]

MAX_RTF: Final = 0.5
CONCURRENCY_MAX: Final = 64
TIME_S: Final = 6.0
FILE: Final = "calibration.json"
KEPT_MAX: Final = 20
# Said by the node's own voice when no recording is given; long enough to be a real utterance.
SENTENCES: Final = {
    "en": "Good morning everybody, the meeting begins at ten and we have a lot to talk about.",
    "es": "Buenos días a todos, la reunión empieza a las diez y tenemos mucho de que hablar.",
    "fr": "Bonjour à tous, la réunion commence à dix heures et nous avons beaucoup à dire.",
    "de": "Guten Morgen zusammen, die Sitzung beginnt um zehn und wir haben viel zu besprechen.",
    "pt": "Bom dia a todos, a reunião começa às dez e temos muito sobre o que falar.",
    "it": "Buongiorno a tutti, la riunione comincia alle dieci e abbiamo molto di cui parlare.",
}


class Round(msgspec.Struct, frozen=True, array_like=True):
    """So many jobs at once, and how long the slowest took by the length of its audio."""

    jobs: int
    slowest_rtf: float


class Calibration(msgspec.Struct, frozen=True):
    """What was measured, and what follows from it."""

    slots: Annotated[int, msgspec.Meta(ge=1, le=CONCURRENCY_MAX)]
    rounds: tuple[Round, ...]
    audio_s: float
    # It was measured at an earlier start.
    is_kept: bool = False


class Sample(NamedTuple):
    """Speech to calibrate with, and the languages it goes from and to."""

    sound: Sound
    source: str
    target: str
    speaks: bool


def slots_of(rounds: Sequence[Round], max_rtf: float = MAX_RTF) -> int:
    """Return the highest concurrency that kept up, with all lower ones; at least 1."""
    slots = 1
    for done in sorted(rounds, key=lambda one: one.jobs):
        if done.slowest_rtf > max_rtf:
            break
        slots = max(slots, done.jobs)
    return slots


def next_round(rounds: Sequence[Round], max_rtf: float = MAX_RTF) -> int | None:
    """Return how many jobs to try next: twice as many while it goes well, then one between."""
    if not rounds:
        return 1
    good = slots_of(rounds, max_rtf)
    failed = [done.jobs for done in rounds if done.slowest_rtf > max_rtf]
    if not failed:
        return good * 2 if good * 2 <= CONCURRENCY_MAX else None
    between = (good + min(failed)) // 2
    return between if good < between < min(failed) else None


async def warm_up(handler: Handler, sample: Sample) -> None:
    """Do one job that nobody waits for: what engines start late is started; raises `JobFailed`."""
    await _one(handler, sample, 0)


async def measure(handler: Handler, sample: Sample, *, max_rtf: float = MAX_RTF) -> Calibration:
    """Run rounds of jobs until one falls behind or the time is up; raises `JobFailed`."""
    audio_s = sample.sound.duration_ms / 1000
    rounds: list[Round] = []
    ends_at = monotonic() + TIME_S
    number = 1
    while (jobs := next_round(rounds, max_rtf)) is not None:
        last_s = rounds[-1].slowest_rtf * audio_s if rounds else 0.0
        if rounds and monotonic() + last_s * jobs / rounds[-1].jobs > ends_at:
            break
        took = await _at_once(handler, sample, range(number, number + jobs))
        number += jobs
        rounds.append(Round(jobs, round(max(took) / audio_s, 4)))
    return Calibration(slots_of(rounds, max_rtf), tuple(rounds), audio_s)


async def _at_once(handler: Handler, sample: Sample, numbers: range) -> list[float]:
    tasks = [asyncio.create_task(_one(handler, sample, number)) for number in numbers]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def _one(handler: Handler, sample: Sample, number: int) -> float:
    began = perf_counter()
    result = await handler(_job(sample, number))
    if not result.text_asr:
        raise JobFailed("PROCESSING_ERROR", "nothing was recognised in the calibration speech")
    return perf_counter() - began


def _job(sample: Sample, number: int) -> Job:
    """Return a job like a scheduler's; each is of another session, so that none is shared."""
    flags = PipelineConfig(
        use_asr=True, use_nmt=sample.source != sample.target, use_tts=sample.speaks
    )
    assign = JobAssign(
        job_id=f"calibration-{number}", attempt_id=1, session_id=f"calibration-{number}",
        utterance_index=0, src_lang=sample.source, tgt_lang=sample.target, pipeline=flags,
        audio=sample.sound.pcm, audio_format="pcm16", sample_rate=sample.sound.sample_rate,
        enable_streaming_asr=False, trace_id="calibration",
    )  # fmt: skip
    return Job(assign, "calibration", _drop)


def _drop(_: FromNode) -> None:
    """Send nothing: nobody is connected yet."""


# What is kept between starts


def key_of(engines: Sequence[str], audio_s: float, max_rtf: float) -> str:
    """Return what must be the same for an earlier result to hold."""
    parts = (*engines, f"{audio_s:.1f}", f"{max_rtf:g}", *machine(), __version__)
    return hashlib.blake2b("\n".join(parts).encode(), digest_size=12).hexdigest()


def machine() -> tuple[str, ...]:
    """Return what tells machines apart that work at different speeds."""
    return (_cpu_model(), str(len(os.sched_getaffinity(0))), platform.python_version())


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith("model name")), platform.machine())


def kept(folder: Path, key: str) -> Calibration | None:
    """Return an earlier result; None if there is none, or none that can be read."""
    found = _read(folder).get(key)
    return None if found is None else msgspec.structs.replace(found, is_kept=True)


def keep(folder: Path, key: str, result: Calibration) -> bool:
    """Keep a result for the next start; tells whether that could be done."""
    others = {name: one for name, one in _read(folder).items() if name != key}
    newest = dict(list(others.items())[-(KEPT_MAX - 1) :]) | {key: result}
    # Not by the process' id: containers that share the folder have the same.
    temporary = folder / f".{FILE}.{secrets.token_hex(8)}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(msgspec.json.encode(newest))
        temporary.replace(folder / FILE)
    except OSError:
        # Measured again next time: that costs seconds and nothing else.
        with suppress(OSError):
            temporary.unlink()
        return False
    return True


def _read(folder: Path) -> dict[str, Calibration]:
    try:
        raw = (folder / FILE).read_bytes()
        return msgspec.json.decode(raw, type=dict[str, Calibration])
    except (OSError, UnicodeDecodeError, msgspec.DecodeError):
        return {}
