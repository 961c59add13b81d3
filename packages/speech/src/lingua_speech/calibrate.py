"""Measures how many jobs this machine can do at once.

A sentence goes through the real pipeline: alone, then twice at once, four times and so on. The
slowest job of a round counts: its time divided by the length of its audio must stay within a limit.
The result is stored with the models, for the same engines on the same machine, so that the next
start is quick.
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

from lingua_node import Job, JobFailed
from lingua_wire import __version__
from lingua_wire.shared import PipelineConfig
from lingua_wire.to_node import JobAssign

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from lingua_node import Result
    from lingua_speech.engine import Sound
    from lingua_wire.from_node import FromNode

    Handler = Callable[[Job], Awaitable[Result]]

MAX_RTF: Final = 0.5
CONCURRENCY_MAX: Final = 64
TIME_S: Final = 6.0
FILE: Final = "calibration.json"
STORED_MAX: Final = 20
# A speaker who is heard costs a recognition about this often, and these may keep a recogniser busy
# for this part of the time: jobs need the rest.
PASS_EVERY_S: Final = 0.9
PASSES_PART: Final = 0.7
STREAMS_MAX: Final = 16
# Spoken by the node's own voice if no recording is given; as long as a real utterance.
SENTENCES: Final = {
    "en": "Good morning everybody, the meeting begins at ten and we have a lot to talk about.",
    "es": "Buenos días a todos, la reunión empieza a las diez y tenemos mucho de que hablar.",
    "fr": "Bonjour à tous, la réunion commence à dix heures et nous avons beaucoup à dire.",
    "de": "Guten Morgen zusammen, die Sitzung beginnt um zehn und wir haben viel zu besprechen.",
    "pt": "Bom dia a todos, a reunião começa às dez e temos muito sobre o que falar.",
    "it": "Buongiorno a tutti, la riunione comincia alle dieci e abbiamo molto di cui parlare.",
}


class Round(msgspec.Struct, frozen=True, array_like=True):
    """A number of jobs at once, and the real-time factor of the slowest."""

    jobs: int
    slowest_rtf: float


class Calibration(msgspec.Struct, frozen=True):
    """The measurements, and the resulting number of slots."""

    slots: Annotated[int, msgspec.Meta(ge=1, le=CONCURRENCY_MAX)]
    rounds: tuple[Round, ...]
    audio_s: float
    # The result of an earlier start.
    is_kept: bool = False


class Sample(NamedTuple):
    """Speech for the calibration, and its source and target language."""

    sound: Sound
    source: str
    target: str
    speaks: bool


def slots_of(rounds: Sequence[Round], max_rtf: float = MAX_RTF) -> int:
    """Return the highest concurrency within the limit, like all lower ones; at least 1."""
    slots = 1
    for done in sorted(rounds, key=lambda one: one.jobs):
        if done.slowest_rtf > max_rtf:
            break
        slots = max(slots, done.jobs)
    return slots


def streams_of(rounds: Sequence[Round], audio_s: float, recognisers: int) -> int:
    """Return how many speakers can be heard while they speak, given the time of a job alone."""
    alone = [done.slowest_rtf * audio_s for done in rounds if done.jobs == 1]
    if not alone:
        return 0
    busy = max(alone[0], 0.01) / PASS_EVERY_S
    return min(STREAMS_MAX, int(recognisers * PASSES_PART / busy))


def next_round(rounds: Sequence[Round], max_rtf: float = MAX_RTF) -> int | None:
    """Return how many jobs to try next: doubled up to the first failure, then bisected."""
    if not rounds:
        return 1
    good = slots_of(rounds, max_rtf)
    failed = [done.jobs for done in rounds if done.slowest_rtf > max_rtf]
    if not failed:
        return good * 2 if good * 2 <= CONCURRENCY_MAX else None
    between = (good + min(failed)) // 2
    return between if good < between < min(failed) else None


async def warm_up(handler: Handler, sample: Sample) -> None:
    """Do one job, so that lazy parts of the engines are started; raises `JobFailed`."""
    await _one(handler, sample, 0)


async def measure(handler: Handler, sample: Sample, *, max_rtf: float = MAX_RTF) -> Calibration:
    """Run rounds of jobs until one is too slow or the time is up; raises `JobFailed`."""
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
    """Return a job like a scheduler's, each in a session of its own, so that none is shared."""
    flags = PipelineConfig(
        use_asr=True, use_nmt=sample.source != sample.target, use_tts=sample.speaks
    )
    assign = JobAssign(
        job_id=f"calibration-{number}",
        attempt_id=1,
        session_id=f"calibration-{number}",
        utterance_index=0,
        src_lang=sample.source,
        tgt_lang=sample.target,
        pipeline=flags,
        audio=sample.sound.pcm,
        audio_format="pcm16",
        sample_rate=sample.sound.sample_rate,
        enable_streaming_asr=False,
        trace_id="calibration",
    )
    return Job(assign, "calibration", _drop)


def _drop(_: FromNode) -> None:
    """Discard a message: the node is not connected yet."""


# Results of earlier starts


def key_of(engines: Sequence[str], audio_s: float, max_rtf: float) -> str:
    """Return a key of everything on which a result depends."""
    parts = (*engines, f"{audio_s:.1f}", f"{max_rtf:g}", *machine(), __version__)
    return hashlib.blake2b("\n".join(parts).encode(), digest_size=12).hexdigest()


def machine() -> tuple[str, ...]:
    """Return the properties that determine the speed of a machine."""
    return (_cpu_model(), str(len(os.sched_getaffinity(0))), platform.python_version())


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith("model name")), platform.machine())


def load(folder: Path, key: str) -> Calibration | None:
    """Return an earlier result; None if it is missing or unreadable."""
    found = _read(folder).get(key)
    return None if found is None else msgspec.structs.replace(found, is_kept=True)


def store(folder: Path, key: str, result: Calibration) -> bool:
    """Store a result for the next start; returns whether that succeeded."""
    others = {name: one for name, one in _read(folder).items() if name != key}
    newest = dict(list(others.items())[-(STORED_MAX - 1) :]) | {key: result}
    # Not the process id, which may be the same in containers that share the folder.
    temporary = folder / f".{FILE}.{secrets.token_hex(8)}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(msgspec.json.encode(newest))
        temporary.replace(folder / FILE)
    except OSError:
        # The only cost is another measurement at the next start.
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
