"""Partial texts and parts of speech at a real scheduler, with a node that listens."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from edge.live_server import PATIENCE_S, Stage, play, until
from lingua_client import Outcome, Partial, SpeechPart
from lingua_node import Job, Node, Result, Stream
from real_session import SPEECH, session_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from lingua_client import Event, Session

pytestmark = pytest.mark.store

# Only the speaker cuts, however long the machine stands still.
CALM = {"segmentation__pause_ms": 20_000}
SPOKEN = (b"\1\0" * 800, b"\2\0" * 800)


async def listen(stream: Stream) -> None:
    """Report a word for each piece of audio."""
    words: list[str] = []
    async for _ in stream:
        words.append(f"word{len(words)}")
        text = " ".join(words[:-1])
        await stream.partial(
            stable=text,
            unstable=words[-1],
            upto_ms=stream.audio_ms,
            translations={"en": (f"[en] {text}".strip(), "")},
        )


async def translate(job: Job) -> Result:
    """Speak in two parts, as far as they are wanted."""
    for part in SPOKEN:
        await job.audio_part(part)
    heard = "streamed" if job.stream is not None else "whole"
    return Result(text_asr=heard, text_translated=f"[en] {heard}", tts_audio=b"".join(SPOKEN))


@asynccontextmanager
async def listening_node(stage: Stage) -> AsyncIterator[None]:
    url = f"{stage.server.url}/ws/node".replace("http", "ws", 1)
    node = Node(url, node_id="listener", pairs=["zh>en"], max_streams=4, reports_usage=False)
    node.job(translate)
    node.stream(listen)
    serving = asyncio.create_task(node.serve())
    nodes = stage.server.instance.nodes
    await until(lambda: any(one.status == "ready" for one in nodes.values()), "a node is ready")
    try:
        yield
    finally:
        node.stop()
        await serving


async def speak_until(session: Session, condition: asyncio.Event) -> None:
    """Speak at the double pace of speech until something has happened."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition.is_set():
            await session.send(SPEECH)
            await asyncio.sleep(0.05)


async def events_of(session: Session, enough: asyncio.Event, count: int) -> list[Event]:
    """Keep all events up to the first outcome; `enough` is set after so many partials."""
    found: list[Event] = []
    async with asyncio.timeout(PATIENCE_S):
        async for event in session:
            found.append(event)
            if sum(isinstance(one, Partial) for one in found) >= count:
                enough.set()
            if isinstance(event, Outcome):
                return found
    raise AssertionError(f"the session ended after {found}")


def test_words_come_while_somebody_speaks_then_parts_then_the_outcome() -> None:
    async def scenario(stage: Stage) -> None:
        async with (
            listening_node(stage),
            session_of(stage, partials=True, tts_parts=True) as session,
        ):
            enough = asyncio.Event()
            hearing = asyncio.create_task(events_of(session, enough, 2))
            await speak_until(session, enough)
            await session.cut()
            events = await hearing
            partials = [event for event in events if isinstance(event, Partial)]
            assert partials[0].speaker == session.id
            assert partials[0].utterance_index == 0
            assert partials[0].text.startswith("word0")
            assert partials[-1].stable.startswith(partials[0].stable)
            assert partials[-1].translations["en"].stable.startswith("[en]")
            assert (partials[-1].upto_ms or 0) > 0
            outcome = events[-1]
            assert isinstance(outcome, Outcome)
            assert outcome.text == "[en] streamed"
            parts = [event for event in events if isinstance(event, SpeechPart)]
            assert [part.part_index for part in parts] == [0, 1]
            assert b"".join(part.audio for part in parts) == outcome.audio
            assert outcome.message.tts_parts == 2  # type: ignore[union-attr]

    play(scenario, **CALM)


def test_a_session_that_moves_in_mid_utterance_hears_words_again_and_one_outcome() -> None:
    async def scenario(stage: Stage) -> None:
        async with listening_node(stage), session_of(stage, partials=True) as session:
            first, again = asyncio.Event(), asyncio.Event()
            hearing = asyncio.create_task(events_of(session, first, 1))
            await speak_until(session, first)
            await session.move()
            hearing.cancel()
            await asyncio.wait([hearing])
            hearing = asyncio.create_task(events_of(session, again, 2))
            await speak_until(session, again)
            await session.cut()
            events = await hearing
            assert isinstance(events[-1], Outcome)
            assert events[-1].utterance_index == 0
            assert session.resumes == 1
            assert all(event.utterance_index == 0 for event in events if isinstance(event, Partial))

    play(scenario, **CALM)


def test_without_asking_nothing_comes_before_the_outcome() -> None:
    async def scenario(stage: Stage) -> None:
        async with listening_node(stage), session_of(stage) as session:
            for _ in range(12):
                await session.send(SPEECH)
                await asyncio.sleep(0.02)
            await session.cut()
            events = await events_of(session, asyncio.Event(), 1)
            assert not [event for event in events if isinstance(event, Partial | SpeechPart)]
            assert isinstance(events[-1], Outcome)
            assert events[-1].text == "[en] whole"

    play(scenario, **CALM)
