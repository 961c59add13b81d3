"""How sessions end over real sockets: closed, lost, drained, never begun; nothing said is lost."""

from __future__ import annotations

import asyncio

import pytest

from edge.live_server import Client, NewClient, Stage, audio_of, opus, pcm16, play, until

pytestmark = pytest.mark.store

SLOWEST_S = 2.0

COVERED = ("delivered_ms", "silent_ms", "failed_ms", "skipped_ms")


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
        assert not stage.server.instance.sessions

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
        await until(lambda: not instance.sessions, "the session is gone")
        assert not instance.jobs
        covered = instance.metrics.speech.coverage_ms_total.labels(fate="delivered").value
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


def test_a_session_that_ends_before_its_jobs_leaves_none_of_them_behind() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node(max_jobs=64)
        client = await stage.client()
        for index in range(8):
            await client.utter(index)
        # One is in the store, the others wait for it longer than a session takes to close.
        await node.job(utterance_index=0)
        await client.ask("session_close", reason="done")
        await client.expect("session_close_ack")
        instance = stage.server.instance
        assert (len(instance.sessions), len(instance.jobs)) == (0, 0)
        await until(lambda: not len(stage.server.instance.tasks), "no task is left")
        assert not len(instance.jobs)

    play(
        scenario, jobs__in_flight_max=1, jobs__pending_ms=100, jobs__attempt_ms=1200,
        jobs__attempts_max=1, jobs__ack_ms=50, jobs__reserve_ms=1100,
    )  # fmt: skip


def test_sessions_that_end_do_not_delay_the_results_of_others() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node(max_jobs=100)
        node.work()
        clients = [await stage.client() for _ in range(30)]
        for client in clients:
            for index in range(4):
                await client.utter(index)
        for client in clients:
            await client.result(3)
        last = await stage.client()
        for client in clients:
            await client.ask("session_close", reason="all at once")
        await last.utter(0)
        result = await last.result(0)
        assert result["timeline"].get("total_ms", 0) < SLOWEST_S * 1000
        assert result["part_index"] == 0
        for client in clients:
            await client.expect("session_close_ack")
        await until(lambda: len(stage.server.instance.sessions) == 1, "the others are gone")

    play(scenario)


def test_no_ghost_of_a_node_or_session_outlives_a_restart() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.old_node("only")
        client = await stage.old_client()
        await client.utter(0)
        await node.job()
        await stage.stop_server()
        assert await node.closed() is not None
        assert await client.closed() is not None
        await stage.start_server()
        assert not stage.server.instance.sessions

        again = await stage.client()
        await again.utter(0)
        await again.expect("utterance_accepted", utterance_index=0)
        # What the store still knew of the node is not what serves: the node itself is.
        back = await stage.old_node("only")
        job = await back.job(session_id=again.id)
        await back.answer(job)
        await again.result(0)

    play(scenario)
