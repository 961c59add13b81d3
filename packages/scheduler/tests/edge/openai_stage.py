"""What the tests of the OpenAI surface share: recordings with known words, and a node that hears.

Each utterance of a made recording is a tone whose height says which word it is; the node of the
tests listens to its jobs, so that a text can only be right if the right audio came in order.
"""

from __future__ import annotations

import asyncio
import io
import itertools
import math
import warnings
import wave
from array import array
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import openai

from edge.live_server import Stage, until
from lingua_node import Job, JobFailed, Node, Result
from lingua_node.stream import StreamHandler
from lingua_wire.shared import ExtraResult

RATE = 16_000
WORDS = ("alpha", "bravo", "charlie", "delta", "echo", "foxtrot")
HZ_FIRST, HZ_STEP = 300, 100
SPOKEN_MS, PAUSE_MS = 600, 1000
# What a node speaks: 100 ms of a tone.
SPEECH_MS = 100


def tone(hz: float, duration_ms: int, rate: int = RATE) -> bytes:
    count, step = rate * duration_ms // 1000, 2 * math.pi * hz / rate
    return array("h", (round(9000 * math.sin(step * at)) for at in range(count))).tobytes()


def silence(duration_ms: int, rate: int = RATE) -> bytes:
    return bytes(2 * (rate * duration_ms // 1000))


def spoken(*words: str, rate: int = RATE) -> bytes:
    """Return pcm16 in which these words are said, with pauses between them."""
    parts = [silence(200, rate)]
    for word in words:
        hz = HZ_FIRST + HZ_STEP * WORDS.index(word)
        parts += [tone(hz, SPOKEN_MS, rate), silence(PAUSE_MS, rate)]
    return b"".join(parts)


def wav(pcm: bytes, rate: int = RATE) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(rate)
        out.writeframes(pcm)
    return file.getvalue()


def heard(pcm: bytes, rate: int) -> str:
    """Return the word that is said in a piece of audio, by counting how often it crosses zero."""
    samples = array("h", pcm[: len(pcm) & ~1])
    loud = [at for at, value in enumerate(samples) if abs(value) > 200]
    if not loud:
        return ""
    said = samples[loud[0] : loud[-1] + 1]
    crossings = sum(1 for one, other in itertools.pairwise(said) if (one < 0) != (other < 0))
    hz = crossings * rate / (2 * len(said))
    index = round((hz - HZ_FIRST) / HZ_STEP)
    return WORDS[index] if 0 <= index < len(WORDS) else f"{hz:.0f} Hz"


async def understand(job: Job) -> Result:
    """Do a job as a node would that knows these words."""
    word = heard(job.audio, job.sample_rate)
    if not word:
        return Result.empty()
    wants = job.pipeline
    return Result(
        text_asr=word,
        text_translated=f"{word} in {job.tgt_lang}" if wants.use_nmt else "",
        tts_audio=tone(440, SPEECH_MS) if wants.use_tts else b"",
        extra=ExtraResult(language_probabilities={"es": 0.9, "en": 0.1}),
    )


def failing_at(
    word: str, code: str = "PROCESSING_ERROR"
) -> Callable[[Job], Coroutine[Any, Any, Result]]:
    """Return a handler that understands everything but one word."""

    async def handler(job: Job) -> Result:
        if heard(job.audio, job.sample_rate) == word:
            raise JobFailed(code, "for the test")
        return await understand(job)

    return handler


@asynccontextmanager
async def node(
    stage: Stage,
    handler: Callable[[Job], Coroutine[Any, Any, Result]] = understand,
    name: str = "n1",
    listens: StreamHandler | None = None,
    **more: Any,
) -> AsyncIterator[Node]:
    """Serve as a node of the SDK, ready for work; it may listen while somebody speaks."""
    url = f"ws://127.0.0.1:{stage.server.port}/ws/node"
    made = Node(url, node_id=name, reports_usage=False, watch=lambda *_: None, **more)
    made.job(handler)
    if listens is not None:
        made.stream(listens)
    serving = asyncio.create_task(made.serve())
    try:
        nodes = stage.server.instance.nodes
        await until(lambda: name in nodes and nodes[name].status == "ready", f"{name} is ready")
        yield made
    finally:
        made.stop()
        await asyncio.wait([serving], timeout=5)


def client(stage: Stage, key: str = "any", **more: Any) -> openai.OpenAI:
    """Return the official client, which tries nothing again by itself."""
    given = {"max_retries": 0, "timeout": 20, **more}
    made = openai.OpenAI(base_url=f"{stage.server.url}/v1", api_key=key, **given)
    stage._stack.callback(made.close)
    return made


async def in_thread(call: Callable[..., Any], *given: Any, **named: Any) -> Any:
    """Call something that blocks; what the client thinks of OpenAI's own models is not heard."""

    def quietly() -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            return call(*given, **named)

    return await asyncio.to_thread(quietly)


async def until_no_sessions(stage: Stage) -> None:
    instance = stage.server.instance
    await until(
        lambda: not instance.sessions and not len(instance.jobs), "no session and no job is left"
    )
