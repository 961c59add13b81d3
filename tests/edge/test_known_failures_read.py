"""What reading the predecessor found (predecessor-facts.md 9.2), one test for each number.

Here are those that concern one instance. Elsewhere: 1, 3, 4 and 5 in tests/between (own connection,
dead letters, adoption, presence); 2, 7, 9 and 12 in test_known_failures_instances.py, which repeats
6, 11, 13 and 14 with two instances; 22 and 23 also in test_rooms.py.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import time

import pytest

from edge.live_server import Message, OldClient, OldNode, Stage, opus, play, until
from lingua_scheduler.session.audio import AudioFormat
from lingua_scheduler.session.segmenter import Cut, Segmenter, SegmentRules

pytestmark = pytest.mark.store

# An attempt ends soon; the other times must be shorter still.
SHORT_ATTEMPTS = {
    "jobs__attempt_ms": 600, "jobs__reserve_ms": 500, "jobs__ack_ms": 300,
    "redis__call_timeout_ms": 400,
}  # fmt: skip


def audio_of(job: Message) -> bytes:
    return base64.b64decode(job["audio"])


def counted(stage: Stage, name: str, **labels: str) -> float:
    family = getattr(stage.server.instance.metrics, name)
    return float(family.labels(**labels).value if labels else family.value)


async def room_of(stage: Stage, *langs: str) -> tuple[str, OldClient, list[OldClient]]:
    """A Chinese speaker and listeners of these languages in one room."""
    speaker = await stage.old_client("zh", "en")
    await speaker.send("room_create", client_ts=1, preferred_lang="zh")
    code = (await speaker.expect("room_create_ack"))["room_code"]
    listeners = []
    for lang in langs:
        listener = await stage.old_client(lang, "en")
        await listener.send("room_join", room_code=code, preferred_lang=lang)
        await listener.expect("room_members")
        listeners.append(listener)
    return code, speaker, listeners


async def holder_of(nodes: list[OldNode], attempt: int) -> OldNode:
    """Return the one node that was given an attempt, once it was."""

    def given() -> list[OldNode]:
        return [node for node in nodes if attempt in [job["attempt_id"] for job in node.jobs]]

    await until(given, f"attempt {attempt} is assigned")
    (holder,) = given()
    return holder


# Nodes and jobs


def test_9_2_6_the_cleanup_of_an_old_socket_leaves_the_new_one_alone() -> None:
    async def scenario(stage: Stage) -> None:
        former = await stage.old_node("same")
        node = await stage.old_node("same")
        assert await former.closed() == 4409
        client = await stage.old_client()
        for index in range(3):
            await client.utter(index)
            await node.answer(await node.job(attempt_id=1))
            await client.result(index)

    play(scenario)


def test_9_2_8_a_job_full_of_zeros_and_false_is_still_known_when_its_result_comes() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.old_node()
        _, speaker, (listener,) = await room_of(stage, "en")
        await speaker.utter(0, manual_cut=False)
        job = await node.job(utterance_index=0)
        assert not {"is_manual_cut", "is_timeout_triggered", "padding_ms"} & set(job)
        await node.take(job)
        await speaker.expect("ui_event", event="NODE_ACCEPTED")
        await node.answer(job)
        result = await listener.result(0, session_id=speaker.id)
        assert result["network_timings"]["scheduler_to_node_ms"] >= 0
        assert not speaker.all("translation_result")
        assert counted(stage, "results_stale_total", reason="no_job") == 0

    play(scenario)


def test_9_2_10_each_failover_is_a_new_attempt_on_another_node_until_they_are_used_up() -> None:
    async def scenario(stage: Stage) -> None:
        nodes = [await stage.old_node() for _ in range(4)]
        client = await stage.old_client()
        await client.utter(0)
        tried = []
        for attempt in (1, 2, 3):
            holder = await holder_of(nodes, attempt)
            tried.append(holder.id)
            await holder.expect("job_cancel", job_id=holder.jobs[0]["job_id"])
        assert len(set(tried)) == 3
        await client.expect("error")
        missing = await client.expect("missing_result", utterance_index=0)
        assert missing["reason"] == "failed"
        # All their slots are free again.
        await client.utter(1)
        await until(lambda: any(job["utterance_index"] == 1 for node in nodes for job in node.jobs))

    play(scenario, **SHORT_ATTEMPTS)


def test_9_2_11_a_stale_result_neither_counts_nor_hides_the_valid_one() -> None:
    async def scenario(stage: Stage) -> None:
        first = await stage.old_node("first")
        client = await stage.old_client()
        await client.utter(0)
        job = await first.job()
        second = await stage.old_node("second")
        await first.fail(job, "MODEL_NOT_AVAILABLE", service_id="nmt-1")
        moved = await second.job(attempt_id=2)
        await first.answer(job, "stale")
        await until(
            lambda: counted(stage, "results_stale_total", reason="stale_attempt"), "rejected"
        )
        await second.answer(moved, "valid")
        await client.result(0, text_asr="valid")
        await client.bye()
        assert client.outcomes() == [(0, "ok")]

    play(scenario)


def test_9_2_13_a_full_node_is_passed_over() -> None:
    async def scenario(stage: Stage) -> None:
        nodes = [await stage.node(max_jobs=1) for _ in range(3)]
        client = await stage.client()
        for index in range(3):
            await client.utter(index)
        for node in nodes:
            await node.job(attempt_id=1)

    play(scenario)


def test_9_2_13_a_job_that_waits_is_told_at_once_and_placed_when_a_node_comes() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.old_client()
        await client.utter(0)
        told = await client.expect("ui_event", event="ERROR", status="error")
        assert told["error_code"] == "NO_AVAILABLE_NODE"
        assert told["elapsed_ms"] < 2000
        assert told["hint"]
        node = await stage.old_node()
        await node.answer(await node.job(attempt_id=1))
        await client.result(0)

    play(scenario)


@pytest.mark.parametrize("how", ["lost", "error"])
def test_9_2_13_a_lost_node_or_a_failed_job_is_no_lost_utterance(how: str) -> None:
    async def scenario(stage: Stage) -> None:
        first = await stage.old_node("first")
        client = await stage.old_client()
        await client.utter(0)
        job = await first.job()
        second = await stage.old_node("second")
        if how == "lost":
            first.drop()
        else:
            await first.fail(job, "PROCESSING_ERROR", "GPU lease timeout")
        await second.answer(await second.job(attempt_id=2), "right")
        await client.result(0, text_asr="right")
        assert not client.all("error")

    play(scenario)


def test_9_2_14_a_moved_job_keeps_its_padding_its_flags_and_its_audio() -> None:
    async def scenario(stage: Stage) -> None:
        first = await stage.old_node("first")
        client = await stage.old_client()
        await client.say(opus(600))
        job = await first.job(is_timeout_triggered=True, padding_ms=220)
        first.drop()
        second = await stage.old_node("second")
        moved = await second.job(attempt_id=2)
        new = {"attempt_id", "context_reset"}
        assert {k: v for k, v in moved.items() if k not in new} == {
            k: v for k, v in job.items() if k not in new
        }

    play(scenario)


def test_9_2_14_the_reason_why_no_node_was_found_is_counted() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.old_client()
        await client.utter(0)
        error = await client.expect("error", code="NO_AVAILABLE_NODE")
        label = error["details"]["label"]
        name = "no_available_node_total"
        assert label
        assert counted(stage, name, selector="submit", reason=label) == 1

    play(scenario)


def test_9_2_15_a_retry_after_the_end_gets_the_answer_and_makes_no_job() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.old_node()
        client = await stage.old_client()
        await client.utter(0, trace_id="t-1")
        await node.answer(await node.job(), "once")
        await client.result(0, text_asr="once")
        await client.utter(0, trace_id="t-1")
        await client.result(0, text_asr="once")
        await client.utter(1, trace_id="t-2")
        await node.answer(await node.job(utterance_index=1))
        await client.result(1)
        assert len(node.jobs) == 2

    play(scenario)


def test_9_2_15b_a_node_id_in_use_is_taken_over_and_no_gpu_is_blamed() -> None:
    async def scenario(stage: Stage) -> None:
        former = await stage.node("twice", boot_id="one")
        client = await stage.client()
        await client.utter(0)
        await former.job(attempt_id=1)
        other = await stage.node("other")
        node = await stage.node("twice", boot_id="two")
        assert await former.closed() == 4409
        assert not former.all("error")
        assert not node.all("error")
        # What the former process held goes on.
        job = await other.job(attempt_id=2)
        await other.answer(job)
        await client.result(0)

    play(scenario)


def test_9_2_15c_whole_and_streamed_utterances_never_share_an_index() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.old_node()
        node.work()
        client = await stage.old_client()
        await client.say(opus(100), is_final=True)
        await client.result(0)
        await client.utter(0)
        await client.result(1)
        await client.say(opus(100), is_final=True)
        await client.result(2)
        await client.utter(7)
        await client.say(opus(100), is_final=True)
        await client.bye()
        indices = [index for index, _ in client.outcomes()]
        assert indices == sorted(set(indices))
        assert len(node.jobs) == len({job["utterance_index"] for job in node.jobs}) == 5

    play(scenario, jobs__gap_ms=100)


# Sessions and results


def test_9_2_16_silence_of_any_length_does_not_make_a_session_deaf() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.old_node()
        client = await stage.old_client()
        await client.say(opus(100), is_final=True)
        await node.answer(await node.job())
        await client.result(0)
        # Longer than the lease, than the idle time and than the pause; it only answers pings.
        await client.silent_for(2500)
        await client.say(opus(100), is_final=True)
        await node.answer(await node.job(utterance_index=1))
        await client.result(1)

    play(scenario, sessions__lease_ms=1000, server__ping_ms=100, server__dead_ms=500)
    segmenter = Segmenter(SegmentRules(), AudioFormat("opus", 16_000))
    day_ms = 86_400_000
    segmenter.chunk(opus(100), is_final=True, now_ms=0)
    segmenter.tick(1000)
    segmenter.chunk(opus(500), is_final=True, now_ms=day_ms)
    (cut,) = segmenter.tick(day_ms + 1000)
    assert isinstance(cut, Cut)
    assert cut.audio == opus(500)


def test_9_2_17_the_hangover_listens() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.old_node()
        client = await stage.old_client()
        await client.say(opus(300, b"a"), is_final=True)
        await client.say(opus(60, b"b"))
        assert audio_of(await node.job()) == opus(300, b"a") + opus(60, b"b")

    play(scenario, segmentation__hangover_manual_ms=400)


def test_9_2_17_backpressure_is_real() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.old_node()
        client = await stage.old_client()
        for index in range(4):
            await client.utter(index)
        pressed = await client.expect("backpressure", action="PAUSE")
        assert pressed["resume_after_ms"] > 0
        await client.utter(4)
        refused = await client.expect("error", code="BUSY")
        assert refused["details"] == {"utterance_index": 4}

    play(scenario, jobs__in_flight_max=2, sessions__backlog_max=2)


def test_9_2_18_the_first_chunk_after_a_pause_is_no_job_of_its_own() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.old_node()
        client = await stage.old_client()
        await client.say(opus(600, b"a"))
        assert audio_of(await node.job(utterance_index=0)) == opus(600, b"a")
        await node.silent_for(300)
        await client.say(opus(40, b"b"))
        await client.say(opus(600, b"c"))
        assert audio_of(await node.job(utterance_index=1)) == opus(40, b"b") + opus(600, b"c")

    play(scenario)


@pytest.mark.parametrize("skew_ms", [0, 10**12, 4 * 10**12])
def test_9_2_19_playback_suspends_the_pause_whatever_the_clients_clock_says(skew_ms: int) -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.old_node()
        client = await stage.old_client()
        playing = {"trace_id": "t", "group_id": "g"}
        for _ in range(2):
            await client.ask("tts_started", ts_start_ms=skew_ms, **playing)
            await client.ask("tts_play_ended", ts_end_ms=skew_ms + 1, **playing)
        await client.say(opus(600))
        await client.ask("tts_started", ts_start_ms=skew_ms + 5, **playing)
        await node.silent_for(500)
        await client.ask("tts_play_ended", ts_end_ms=skew_ms + 500, **playing)
        await node.job(is_timeout_triggered=True)

    play(scenario)


def test_9_2_20_network_times_are_those_of_the_utterance_itself() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.old_node()
        node.work()
        client = await stage.old_client()
        for index, age_ms in enumerate((900_000, 100_000, 50_000)):
            sent_at_ms = int(time.time() * 1000) - age_ms
            await client.say(opus(100), client_timestamp_ms=sent_at_ms)
            await client.say(opus(100), is_final=True, client_timestamp_ms=sent_at_ms + 10_000)
            spent = (await client.result(index))["network_timings"]["web_to_scheduler_ms"]
            assert age_ms <= spent < age_ms + 10_000

    play(scenario)


def test_9_2_21_an_utterance_after_a_quiet_time_does_not_wait_for_ever() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.old_node()
        client = await stage.old_client()
        for index in range(3):
            await client.utter(index)
            await node.answer(await node.job(utterance_index=index))
            await client.result(index)
            await until(lambda: not stage.server.instance.board.jobs, "nothing is under way")

    play(scenario)


def test_9_2_22_23_two_languages_of_one_utterance_are_two_results_of_one_old_node() -> None:
    async def scenario(stage: Stage) -> None:
        # One node for both, of the kind that does a session's utterance only once.
        node = await stage.old_node()
        node.work()
        _, speaker, listeners = await room_of(stage, "en", "ja")
        for index in range(3):
            await speaker.utter(index)
        for listener, lang in zip(listeners, ("en", "ja"), strict=True):
            for index in range(3):
                result = await listener.result(index)
                assert result["text_translated"] == f"text {index}:{lang}"
            assert listener.outcomes() == [(0, "ok"), (1, "ok"), (2, "ok")]
        assert len(node.jobs) == 6
        assert {job["attempt_id"] for job in node.jobs} == {1}

    play(scenario)


def test_9_2_24_a_plain_disconnect_leaves_the_room_and_what_was_said_is_translated() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.old_node()
        node.work()
        _, speaker, (listener,) = await room_of(stage, "en")
        await speaker.say(opus(600))
        await speaker.ask("client_heartbeat", timestamp=1)
        await speaker.expect("server_heartbeat")
        speaker.drop()
        members = await listener.expect("room_members")
        assert [member["session_id"] for member in members["members"]] == [listener.id]
        await listener.result(0, session_id=speaker.id)
        instance = stage.server.instance
        await until(lambda: list(instance.board.sessions) == [listener.id], "the session is gone")
        assert not instance.board.jobs

    play(scenario, segmentation__pause_ms=5000)


def test_9_2_25_a_session_of_another_socket_is_refused_at_once_and_lives_on() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.old_node()
        node.work()
        first = await stage.old_client()
        utterance = {
            "session_id": first.id, "utterance_index": 0, "manual_cut": True, "src_lang": "zh",
            "tgt_lang": "en", "audio": "AAAA" * 32, "audio_format": "pcm16", "sample_rate": 16_000,
        }  # fmt: skip
        bare = await stage.socket()
        await bare.send("utterance", **utterance)
        await bare.follows("error", code="INVALID_SESSION")
        second = await stage.old_client()
        await second.send("utterance", **utterance)
        await second.follows("error", code="INVALID_SESSION")
        await first.send("utterance", **utterance)
        await first.result(0)

    play(scenario)


def test_9_2_26_labels_stay_few_and_context_is_cut_between_characters() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.old_node("node-with-a-name")
        client = await stage.old_client()
        for index in range(4):
            await client.utter(index)
            job = await node.job()
            assert len(job.get("context_text", "")) <= 800
            assert "�" not in job.get("context_text", "")
            # An emoji of several code points and a sign of four bytes, at every offset.
            await node.answer(job, "好" * (300 + index) + "𠮷👩‍👩‍👧" * 40)
            await client.result(index)
        assert (job.get("context_text") or "").startswith("User: ")
        shown = stage.server.instance.metrics.render().decode()
        for name in (node.id, client.id, job["job_id"], job["job_id"][:8], job["trace_id"]):
            assert name not in shown

    play(scenario)


def test_9_2_27_neither_speech_nor_its_text_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(stage: Stage) -> None:
        first = await stage.old_node("first")
        client = await stage.old_client(pairing_code=None, trace_id="t")
        await client.say(opus(600, b"SPEECH"), is_final=True)
        job = await first.job()
        second = await stage.old_node("second")
        await first.fail(job, "MODEL_NOT_AVAILABLE", "very private message", service_id="nmt-1")
        await second.answer(await second.job(), "very private words")
        await client.result(0)
        await client.send("unheard_of", text="very private nonsense")
        await client.expect("error", code="INVALID_MESSAGE")
        await first.send("node_error", node_id=first.id, code="X", message="very private error")
        await client.bye()

    with caplog.at_level(logging.DEBUG):
        play(scenario)
    assert "node.registered" in caplog.text
    lines = "\n".join(f"{record.getMessage()} {record.__dict__}" for record in caplog.records)
    for private in ("very private", "U1BFRUNI", "SPEECH"):
        assert private not in lines


def test_9_2_28_a_silent_slice_stays_with_its_node_while_its_turn_goes_on() -> None:
    async def scenario(stage: Stage) -> None:
        nodes = [await stage.old_node() for _ in range(2)]
        client = await stage.old_client()
        await client.say(opus(1000))
        await until(lambda: any(node.jobs for node in nodes), "the slice is assigned")
        holder, other = sorted(nodes, key=lambda node: -len(node.jobs))
        # Three attempts' time: the turn goes on and nobody takes the slice away.
        for _ in range(6):
            await client.say(opus(100))
            await asyncio.gather(
                holder.silent_for(300, "job_cancel"), other.silent_for(300, "job_assign")
            )
        await client.say(opus(100), is_final=True)
        await holder.answer(await holder.job(utterance_index=1), "all")
        await client.result(1, text_asr="all")
        assert client.outcomes() == [(0, "silence_detected"), (1, "ok")]
        assert not client.all("error")
        assert [job["attempt_id"] for job in holder.jobs] == [1, 1]

    play(
        scenario, segmentation__max_duration_ms=1000, segmentation__pause_ms=1500, **SHORT_ATTEMPTS
    )


@pytest.mark.parametrize(
    "bound", [{"jobs__in_flight_max": 2, "nodes__max_jobs": 10}, {"nodes__max_jobs": 2}]
)
def test_9_2_28_a_monologue_of_more_slices_than_may_be_under_way_ends(
    bound: dict[str, int],
) -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.old_node()
        client = await stage.old_client()
        for _ in range(4):
            await client.say(opus(1000))
            await client.silent_for(50, "error")
        await client.say(opus(100), is_final=True)
        # It holds slices in silence and answers the closing piece, as nodes in the field do.
        await node.answer(await node.job(is_manual_cut=True), "all")
        await client.result(4, text_asr="all")
        silent = [(index, "silence_detected") for index in range(4)]
        assert client.outcomes() == [*silent, (4, "ok")]

    play(scenario, segmentation__max_duration_ms=1000, **bound)
