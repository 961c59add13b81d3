"""How sessions end over real sockets: closed, lost, drained, never begun; nothing said is lost."""

from __future__ import annotations

import asyncio
import base64

import pytest

from edge.live_server import Client, Message, NewClient, Stage, opus, pcm16, play, until

pytestmark = pytest.mark.store

COVERED = ("delivered_ms", "silent_ms", "failed_ms", "skipped_ms")


def audio_of(job: Message) -> bytes:
    return base64.b64decode(job["audio"])


def test_coverage_is_exact_when_the_session_closes() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node()
        client = await stage.client()
        lengths = (100, 333, 77, 1)
        for index, length_ms in enumerate(lengths):
            await client.utter(index, pcm16(length_ms))
        jobs = [await node.job() for _ in lengths]
        await node.answer(jobs[0])
        await node.answer(jobs[1], text_asr="", text_translated="", tts_audio=b"")
        await node.fail(jobs[2], "UNSUPPORTED_FEATURE")
        await client.ask("session_close", reason="done")
        await node.answer(jobs[3])
        coverage = (await client.expect("session_close_ack"))["coverage"]
        assert coverage == {
            "admitted_ms": 511, "delivered_ms": 101, "silent_ms": 333, "failed_ms": 77,
            "skipped_ms": 0,
        }  # fmt: skip
        assert [reason for _, reason in client.outcomes()] == [
            "ok", "silence_detected", "failed", "ok",
        ]  # fmt: skip

    play(scenario)


def test_closing_finishes_what_was_said_and_takes_nothing_more() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node()
        client = await stage.client()
        await client.say(opus(500, b"last words"))
        await client.ask("session_close", reason="done")
        job = await node.job(utterance_index=0)
        assert audio_of(job) == opus(500, b"last words")
        await client.say(opus(500))
        await client.expect("error", code="SESSION_CLOSED")
        await node.answer(job)
        await client.result(0)
        ack = await client.expect("session_close_ack", session_id=client.id)
        assert sum(ack["coverage"][name] for name in COVERED) == ack["coverage"]["admitted_ms"]
        assert await client.closed() == 1000
        assert not stage.server.instance.board.sessions

    play(scenario, segmentation__pause_ms=5000)


def test_a_disconnect_flushes_what_was_said_and_frees_everything() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node()
        client = await stage.client()
        await client.say(opus(500, b"cut off"))
        await client.ask("client_heartbeat", timestamp=1)
        await client.expect("server_heartbeat")
        client.drop()
        job = await node.job()
        assert audio_of(job) == opus(500, b"cut off")
        await node.answer(job)
        instance = stage.server.instance
        await until(lambda: not instance.board.sessions, "the session is gone")
        assert not instance.board.jobs
        covered = instance.metrics.coverage_ms_total.labels(fate="delivered").value
        assert covered == len(opus(500, b"cut off")) // 60 * 20

    play(scenario, segmentation__pause_ms=0, sessions__resume_ms=1000)


@pytest.mark.parametrize("path", ["/ws/session", "/ws/node"])
def test_who_says_nothing_in_time_is_shown_out(path: str) -> None:
    async def scenario(stage: Stage) -> None:
        peer = await stage.socket(path)
        assert await peer.closed() == 4400

    play(scenario, server__handshake_ms=200)


def test_a_drain_tells_new_clients_and_finishes_what_is_under_way() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node()
        old, new = await stage.old_client(), await stage.client()
        await speaking(old, new)
        draining = asyncio.create_task(stage.server.drain())
        await new.expect("go_away", reason="shutdown")
        for _ in range(2):
            await node.answer(await node.job())
        await old.result(0)
        await new.result(0)
        assert await old.closed() == await new.closed() == 1001
        assert await draining

    play(scenario)


async def speaking(old: Client, new: NewClient) -> None:
    for client in (old, new):
        await client.say(opus(300))
        await client.ask("client_heartbeat", timestamp=1)
        await client.expect("server_heartbeat")
