"""Streams over a socket: heard, cut, dropped, refused and forgotten, and jobs are not affected."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from lingua_node import Job, Node, Result, Stream
from lingua_node import stream_runner as module
from lingua_node.stream_runner import StreamRunner
from lingua_wire.from_node import (
    FromNode,
    JobAudioPart,
    JobResult,
    NodeDrain,
    NodeRegister,
    StreamClosed,
    StreamPartial,
)
from lingua_wire.to_node import StreamAudio, StreamEnd
from node_peer import (
    Connection,
    ScriptedScheduler,
    job,
    node_for,
    run,
    scripted_scheduler,
    serving,
    until,
)
from test_stream import opening

pytestmark = pytest.mark.unit


class Ear:
    """A stream handler that reports every piece, and records what became of its streams."""

    def __init__(self) -> None:
        self.heard: list[Stream] = []
        self.ended: list[Stream] = []
        self.cancelled: list[Stream] = []

    async def listen(self, stream: Stream) -> None:
        self.heard.append(stream)
        try:
            async for _ in stream:
                await stream.partial(stable="x" * len(stream.audio), upto_ms=stream.audio_ms)
        except asyncio.CancelledError:
            self.cancelled.append(stream)
            raise
        stream.head_start = f"heard {len(stream.audio)}"
        self.ended.append(stream)


async def tell_head_start(job: Job) -> Result:
    return Result(text_asr=str(job.stream and job.stream.head_start))


def streaming_node(scheduler: ScriptedScheduler, ear: Any, **settings: Any) -> Node:
    node = node_for(scheduler, tell_head_start, **settings)
    node.stream(ear)
    return node


def speak(connection: Connection, stream_id: str = "st1", pieces: int = 2) -> None:
    connection.send(opening(stream_id))
    for _ in range(pieces):
        connection.send(StreamAudio(stream_id=stream_id, audio=b"abcd"))


def scenario_of(steps: Callable[[Connection, Ear, Node], Any], **settings: Any) -> None:
    """Play the scheduler to a node that streams."""

    async def scenario() -> None:
        ear = Ear()
        async with scripted_scheduler() as scheduler:
            node = streaming_node(scheduler, ear.listen, **settings)
            async with serving(node):
                await steps(await scheduler.node(), ear, node)

    run(scenario())


def test_the_job_has_the_stream_of_its_utterance_with_what_its_handler_left() -> None:
    async def steps(connection: Connection, ear: Ear, node: Node) -> None:
        speak(connection)
        partials = [await connection.expect(StreamPartial)]
        while len(partials[-1].stable) < 8:
            partials.append(await connection.expect(StreamPartial))
        assert [one.revision for one in partials] == list(range(1, len(partials) + 1))
        connection.send(StreamEnd(stream_id="st1", reason="cut", audio_bytes=6))
        await until(lambda: bool(ear.ended))
        connection.send(job(stream_id="st1"))
        assert (await connection.expect(JobResult)).text_asr == "heard 8"
        assert ear.ended[0].audio_bytes == 6
        assert (node.stats.streams, node.stats.streams_closed) == (1, 0)

    scenario_of(steps)


def test_jobs_of_several_languages_have_the_same_stream() -> None:
    async def steps(connection: Connection, ear: Ear, node: Node) -> None:
        speak(connection)
        connection.send(StreamEnd(stream_id="st1", reason="cut"))
        await until(lambda: bool(ear.ended))
        for number in range(3):
            # One after another: the first has ended when the second arrives.
            connection.send(job(f"j{number}", stream_id="st1"))
            assert (await connection.expect(JobResult)).text_asr == "heard 8"

    scenario_of(steps)


def test_a_stream_is_forgotten_a_moment_after_its_last_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "OTHER_JOBS_WAIT_S", 0.01)

    async def steps(connection: Connection, ear: Ear, node: Node) -> None:
        speak(connection)
        connection.send(StreamEnd(stream_id="st1", reason="cut"))
        connection.send(job(stream_id="st1"))
        await connection.expect(JobResult)
        await until(lambda: ear.heard[0].dropped)
        connection.send(job("j2", stream_id="st1"))
        assert (await connection.expect(JobResult)).text_asr == "None"

    scenario_of(steps)


def test_a_stream_without_a_job_is_forgotten_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "JOB_WAIT_S", 0.01)

    async def steps(connection: Connection, ear: Ear, node: Node) -> None:
        speak(connection)
        connection.send(StreamEnd(stream_id="st1", reason="cut"))
        await until(lambda: bool(ear.heard) and ear.heard[0].dropped)

    scenario_of(steps)


def test_a_job_without_a_stream_or_with_an_unknown_one_has_none() -> None:
    async def steps(connection: Connection, ear: Ear, node: Node) -> None:
        for number, stream_id in enumerate((None, "never")):
            connection.send(job(f"j{number}", stream_id=stream_id))
            assert (await connection.expect(JobResult)).text_asr == "None"
        # Late messages about unknown streams are ignored.
        connection.send(StreamAudio(stream_id="never", audio=b"ab"))
        connection.send(StreamEnd(stream_id="never", reason="cut"))
        connection.send(job("j3"))
        await connection.expect(JobResult)

    scenario_of(steps)


def test_the_handler_of_a_dropped_stream_is_cancelled() -> None:
    async def steps(connection: Connection, ear: Ear, node: Node) -> None:
        speak(connection)
        await connection.expect(StreamPartial)
        connection.send(StreamEnd(stream_id="st1", reason="dropped"))
        await until(lambda: bool(ear.cancelled))
        assert ear.cancelled[0].dropped
        assert connection.of(StreamClosed) == []

    scenario_of(steps)


def test_streams_end_with_their_socket() -> None:
    async def scenario() -> None:
        ear = Ear()
        async with (
            scripted_scheduler() as scheduler,
            serving(streaming_node(scheduler, ear.listen)),
        ):
            connection = await scheduler.node()
            speak(connection)
            await connection.expect(StreamPartial)
            connection.cut()
            again = await scheduler.node()
            await until(lambda: bool(ear.cancelled))
            again.send(job(stream_id="st1"))
            assert (await again.expect(JobResult)).text_asr == "None"

    run(scenario())


def test_a_running_job_keeps_its_stream_when_the_socket_is_lost() -> None:
    async def scenario() -> None:
        ear, goes_on = Ear(), asyncio.Event()
        has_begun = asyncio.Event()

        async def wait_and_tell(job: Job) -> Result:
            has_begun.set()
            await goes_on.wait()
            return await tell_head_start(job)

        async with scripted_scheduler() as scheduler:
            node = node_for(scheduler, wait_and_tell)
            node.stream(ear.listen)
            async with serving(node):
                connection = await scheduler.node()
                speak(connection)
                connection.send(StreamEnd(stream_id="st1", reason="cut"))
                connection.send(job(stream_id="st1"))
                await has_begun.wait()
                connection.cut()
                again = await scheduler.node()
                goes_on.set()
                assert (await again.expect(JobResult)).text_asr == "heard 8"

    run(scenario())


def test_beyond_max_streams_a_stream_is_closed_at_once_and_jobs_are_still_done() -> None:
    async def steps(connection: Connection, ear: Ear, node: Node) -> None:
        speak(connection, "a")
        speak(connection, "b")
        closed = await connection.expect(StreamClosed)
        assert (closed.stream_id, closed.reason) == ("b", "1 streams are open")
        # A cut makes room, although the stream still waits for its job.
        connection.send(StreamEnd(stream_id="a", reason="cut"))
        speak(connection, "c")
        connection.send(job(stream_id="a"))
        assert (await connection.expect(JobResult)).text_asr == "heard 8"
        assert len(connection.of(StreamClosed)) == 1
        assert node.stats.streams_refused == 1

    scenario_of(steps, max_streams=1)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [({"audio_format": "opus"}, "opus"), ({"sample_rate": 0}, "at 0")],
)
def test_audio_that_cannot_be_streamed_is_refused(fields: dict[str, Any], reason: str) -> None:
    async def steps(connection: Connection, ear: Ear, node: Node) -> None:
        connection.send(opening("st1", **fields))
        assert reason in (await connection.expect(StreamClosed)).reason

    scenario_of(steps)


def test_a_stream_that_becomes_too_long_is_closed() -> None:
    async def steps(connection: Connection, ear: Ear, node: Node) -> None:
        connection.send(opening("st1", sample_rate=8000))
        for _ in range(61):
            connection.send(StreamAudio(stream_id="st1", audio=bytes(16_000)))
        assert "longer than 60 s" in (await connection.expect(StreamClosed)).reason
        await until(lambda: bool(ear.cancelled))

    scenario_of(steps)


@pytest.mark.parametrize("is_early", [True, False], ids=["returns", "raises"])
def test_a_handler_that_gives_up_closes_its_stream_only(is_early: bool) -> None:
    async def give_up(stream: Stream) -> None:
        if not is_early:
            raise RuntimeError("no ear")

    async def scenario() -> None:
        async with (
            scripted_scheduler() as scheduler,
            serving(streaming_node(scheduler, give_up)),
        ):
            connection = await scheduler.node()
            speak(connection)
            closed = await connection.expect(StreamClosed)
            assert closed.stream_id == "st1"
            assert ("gave up" if is_early else "failed") in closed.reason
            connection.send(job(stream_id="st1"))
            assert (await connection.expect(JobResult)).text_asr == "None"

    run(scenario())


def test_a_draining_node_takes_no_streams() -> None:
    async def steps(connection: Connection, ear: Ear, node: Node) -> None:
        speak(connection, "a")
        await connection.expect(StreamPartial)
        connection.send(job(stream_id="a"))
        await connection.expect(JobResult)
        node.drain("enough")
        await connection.expect(NodeDrain)
        speak(connection, "b")
        assert (await connection.expect(StreamClosed)).reason == "enough"

    scenario_of(steps)


def test_a_node_declares_its_streams_only_with_a_handler() -> None:
    async def scenario() -> None:
        async with scripted_scheduler() as scheduler:
            plain = node_for(scheduler, node_id="plain", max_streams=7)
            async with serving(plain, streaming_node(scheduler, Ear().listen, max_streams=7)):
                said: dict[str | None, int | None] = {}
                for _ in range(2):
                    connection = await scheduler.connection()
                    registered = await connection.expect(NodeRegister)
                    said[registered.node_id] = registered.max_streams
                    if registered.node_id == "plain":
                        connection.send(opening("st1"))
                        assert "not stream" in (await connection.expect(StreamClosed)).reason
        assert said == {"plain": None, "n1": 7}

    run(scenario())


def test_streams_that_wait_for_their_job_are_bounded() -> None:
    class Sent(list[FromNode]):
        is_open = True
        send = list.append

    async def scenario() -> None:
        ear = Ear()
        runner = StreamRunner(ear.listen, Sent(), max_streams=2)
        for number in range(50):
            runner.open(opening(f"st{number}"))
            runner.end(StreamEnd(stream_id=f"st{number}", reason="cut"))
        assert runner.kept_count <= 2 * module.WAITING_PER_OPEN + 1
        assert runner.take("st0") is None
        assert runner.take("st49") is not None
        await runner.stop()
        assert runner.kept_count == 0

    run(scenario())


@pytest.mark.parametrize("wants_parts", [True, None])
def test_parts_of_speech_are_sent_in_order_before_the_result_to_those_who_want_them(
    wants_parts: bool | None,
) -> None:
    async def speak_in_parts(job: Job) -> Result:
        await job.audio_part(b"ab")
        await job.audio_part(b"")
        await job.audio_part(b"cd")
        return Result(text_asr="x", tts_audio=b"abcd")

    async def scenario() -> None:
        async with (
            scripted_scheduler() as scheduler,
            serving(node_for(scheduler, speak_in_parts)),
        ):
            connection = await scheduler.node()
            connection.send(job(attempt_id=2, tts_parts=wants_parts))
            result = await connection.expect(JobResult)
        parts = connection.of(JobAudioPart)
        assert result.audio_parts == (2 if wants_parts else None)
        assert parts == (
            [
                JobAudioPart(job_id="j1", attempt_id=2, part_index=0, audio=b"ab"),
                JobAudioPart(job_id="j1", attempt_id=2, part_index=1, audio=b"cd"),
            ]
            if wants_parts
            else []
        )
        if parts:
            assert connection.received.index(parts[-1]) < connection.received.index(result)

    run(scenario())


def test_a_stream_handler_must_be_an_async_function() -> None:
    with pytest.raises(TypeError):
        Node().stream(lambda stream: None)  # type: ignore[arg-type, return-value]
