"""The realtime socket while somebody still speaks: partials of the session become deltas.

The session and the socket are real; the test gives partials and outcomes to the session's outlet.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from edge.live_server import Stage, play, until
from edge.openai_stage import node, spoken, tone
from edge.test_realtime import RATE, Talk, audio_config, talk
from lingua_node import Job, Result, Stream
from lingua_scheduler.edge.realtime_socket import RealtimeSocket, init_of
from lingua_wire.shared import PartialTranslation
from lingua_wire.to_client import (
    MissingResult,
    PartialResult,
    TranslationResult,
    UtteranceAccepted,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

pytestmark = pytest.mark.store

INPUT, OUTPUT = "session.input_transcript.delta", "session.output_transcript.delta"


class Outlet:
    """The outlet of the client's session, as the runtime uses it."""

    def __init__(self, stage: Stage) -> None:
        (session,) = stage.server.instance.sessions.values()
        outlet: Any = session.notifier.outlet
        assert isinstance(outlet, RealtimeSocket)
        self._socket = outlet
        self._revision = 0

    def partial(self, index: int, stable: str, target: str = "", **fields: Any) -> None:
        self._revision += 1
        told: dict[str, Any] = {"start_ms": 0, "upto_ms": 100 * self._revision, **fields}
        spanish = PartialTranslation(tgt_lang="es", stable=target, unstable=" y más")
        french = PartialTranslation(tgt_lang="fr", stable="rien du tout", unstable="")
        self._socket.send(
            PartialResult(
                session_id="s1",
                utterance_index=index,
                revision=self._revision,
                stable=stable,
                unstable=" and more",
                translations=(french, spanish),
                **told,
            )
        )

    def accepted(self, index: int, end_ms: int) -> None:
        self._socket.send(
            UtteranceAccepted(session_id="s1", utterance_index=index, start_ms=0, end_ms=end_ms)
        )

    def result(self, index: int, text_asr: str, text: str) -> None:
        self._socket.send(
            TranslationResult(
                session_id="s1",
                utterance_index=index,
                job_id=f"j{index}",
                text_asr=text_asr,
                text_translated=text,
                tts_audio=bytes(320),
                tts_format="pcm16",
                trace_id="t1",
            )
        )

    def missing(self, index: int) -> None:
        self._socket.send(
            MissingResult(
                session_id="s1", utterance_index=index, reason="no_node_available", created_at_ms=0
            )
        )


def heard(act: Callable[[Outlet, Talk], Awaitable[None]], **settings: Any) -> Talk:
    """Return what a client hears whose session has said nothing yet."""
    found: list[Talk] = []

    async def scenario(stage: Stage) -> None:
        async with node(stage), talk(stage) as client:
            config = audio_config(output={"language": "es"}, input=settings)
            await client.send("session.update", **config)
            await client.expect("session.updated")
            await client.say(bytes(2 * RATE // 10))
            sessions = stage.server.instance.sessions
            await until(lambda: len(sessions) == 1, "the session is open")
            await act(Outlet(stage), client)
            await client.send("session.close")
            assert await client.until_closed() == 1000
            found.append(client)

    play(scenario)
    return found[0]


# More words than are reported early.
ALL_WORDS = " ".join(f"word{number}" for number in range(700))
TRANSCRIPT = {"transcription": {"model": "whisper-1"}}


def test_words_that_stay_are_sent_while_somebody_speaks_and_the_rest_with_the_outcome() -> None:
    async def act(outlet: Outlet, client: Talk) -> None:
        outlet.partial(0, "Good morning every", "Buenos días a")
        assert (await client.expect(INPUT))["delta"] == "Good morning"
        first = await client.expect(OUTPUT)
        assert (first["delta"], first["elapsed_ms"]) == ("Buenos días", 200)
        outlet.partial(0, "Good morning everyone here", "Buenos días a todos")
        assert (await client.expect(INPUT))["delta"] == " everyone"
        assert (await client.expect(OUTPUT))["delta"] == " a"
        outlet.accepted(0, 1500)
        outlet.result(0, "Good morning everyone here.", "Buenos días a todos.")
        assert (await client.expect(INPUT))["delta"] == " here."
        last = await client.expect(OUTPUT)
        assert (last["delta"], last["elapsed_ms"]) == (" todos.", 1600)
        await client.expect("session.output_audio.delta")

    client = heard(act, **TRANSCRIPT)
    assert client.text(INPUT) == "Good morning everyone here."
    assert client.text(OUTPUT) == "Buenos días a todos."
    assert not client.all("error")


def test_the_next_utterance_waits_until_the_one_before_it_is_whole() -> None:
    async def act(outlet: Outlet, client: Talk) -> None:
        outlet.partial(0, "One two", "Uno dos")
        await client.expect(INPUT)
        await client.expect(OUTPUT)
        outlet.accepted(0, 1000)
        outlet.partial(1, "Three four five", "Tres cuatro", upto_ms=1300)
        outlet.result(0, "One two.", "Uno dos.")
        for kind in (INPUT, OUTPUT, "session.output_audio.delta"):
            await client.expect(kind)
        # It was held, and is sent now.
        assert (await client.expect(INPUT))["delta"] == " Three four"
        assert (await client.expect(OUTPUT))["delta"] == " Tres"
        outlet.accepted(1, 2000)
        outlet.result(1, "Three four five.", "Tres cuatro cinco.")
        for kind in (INPUT, OUTPUT, "session.output_audio.delta"):
            await client.expect(kind)

    client = heard(act, **TRANSCRIPT)
    assert client.text(INPUT) == "One two. Three four five."
    assert client.text(OUTPUT) == "Uno dos. Tres cuatro cinco."
    deltas = client.all(INPUT) + client.all(OUTPUT)
    at = sorted(deltas, key=client.heard.index)
    assert [event["elapsed_ms"] for event in at] == sorted(event["elapsed_ms"] for event in at)


def test_without_a_transcript_only_the_translation_grows() -> None:
    async def act(outlet: Outlet, client: Talk) -> None:
        outlet.partial(0, "Good morning every", "Buenos días a")
        assert (await client.expect(OUTPUT))["delta"] == "Buenos días"
        outlet.accepted(0, 1000)
        outlet.result(0, "Good morning.", "Buenos días.")

    client = heard(act)
    assert client.text(OUTPUT) == "Buenos días."
    assert client.text(INPUT) == ""


def test_an_utterance_without_an_outcome_keeps_its_words_and_has_an_error() -> None:
    async def act(outlet: Outlet, client: Talk) -> None:
        outlet.partial(0, "Good morning every", "Buenos días a")
        await client.expect(OUTPUT)
        outlet.accepted(0, 1000)
        outlet.missing(0)
        error = await client.expect("error")
        assert error["error"]["code"] == "utterance_missing"
        outlet.partial(0, "Good morning everyone else", "Buenos días a todos los demás")
        outlet.result(1, "Next.", "Otra.")

    assert heard(act).text(OUTPUT) == "Buenos días Otra."


async def listen(stream: Stream) -> None:
    """Report a word for each piece of audio."""
    words: list[str] = []
    async for _ in stream:
        words.append(f"word{len(words)}")
        text = " ".join(words)
        await stream.partial(
            stable=text, upto_ms=stream.audio_ms, translations={"es": (f"es {text}", "")}
        )


def test_a_node_that_listens_gives_deltas_before_the_end_of_speech() -> None:
    async def scenario(stage: Stage) -> None:
        async with node(stage, say_all, listens=listen, max_streams=2), talk(stage) as client:
            config = audio_config(output={"language": "es"}, input=TRANSCRIPT)
            await client.send("session.update", **config)
            await client.expect("session.updated")
            speaking = asyncio.create_task(keep_speaking(client))
            while not (client.text(INPUT) and client.text(OUTPUT)):
                await client.next()
            assert ALL_WORDS.startswith(client.text(INPUT))
            speaking.cancel()
            await asyncio.wait([speaking])
            await client.send("session.close")
            assert await client.until_closed() == 1000
            # The words that were sent early stand once in the whole text.
            assert client.text(INPUT) == ALL_WORDS
            assert client.text(OUTPUT) == f"es {ALL_WORDS}"
            assert not client.all("error")

    play(scenario, segmentation__pause_ms=20_000)


async def say_all(_: Job) -> Result:
    return Result(text_asr=ALL_WORDS, text_translated=f"es {ALL_WORDS}")


async def keep_speaking(client: Talk) -> None:
    """Speak at the pace of speech; the test ends it."""
    for _ in range(600):
        await client.say(tone(440, 100, RATE))
        await asyncio.sleep(0.1)


def test_sessions_of_this_socket_ask_for_partials_and_work_without_them() -> None:
    async def scenario(stage: Stage) -> None:
        async with node(stage), talk(stage) as client:
            await client.say(spoken("alpha", rate=RATE))
            await until(
                lambda: any(
                    isinstance(one.notifier.outlet, RealtimeSocket)
                    for one in stage.server.instance.sessions.values()
                ),
                "the session is open",
            )
            (session,) = stage.server.instance.sessions.values()
            socket: Any = session.notifier.outlet
            assert init_of(socket.state).partials is True
            await client.send("session.close")
            await client.until_closed()
            assert client.text() == "alpha in en"

    play(scenario)
