"""Sessions over real sockets: languages, audio, order, waiting, pressure and repetition.

How they end is in `test_session_ends.py`.
"""

from __future__ import annotations

import pytest

from edge.live_server import (
    JSON,
    MSGPACK,
    Message,
    Node,
    Stage,
    audio_of,
    opus,
    pcm16,
    play,
    registration,
    until,
)

pytestmark = pytest.mark.store


async def several(node: Node, count: int) -> dict[str, Message]:
    """Return so many jobs by language."""
    jobs = [await node.job() for _ in range(count)]
    return {job["tgt_lang"]: job for job in jobs}


def langs(asr: str, *to: str) -> Message:
    """Return the declaration of a node for one direction or a few."""
    return {"language_capabilities": registration((asr,), to)["language_capabilities"]}


# Silence


def voice(duration_ms: int) -> bytes:
    """Return something loud."""
    return b"\x00\x40\x00\xc0" * (duration_ms * 8)


def test_a_session_says_how_much_silence_ends_its_utterances() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node()
        patient = await stage.client("zh", "en", audio_format="pcm16")
        hasty = await stage.client("zh", "ja", audio_format="pcm16", silence_ms=300)
        for client in (patient, hasty):
            for _ in range(8):
                await client.say(voice(50))
            for _ in range(6):
                await client.say(bytes(50 * 32))
        job = await node.job()
        assert (job["tgt_lang"], len(audio_of(job))) == ("ja", 700 * 32)
        await patient.say(bytes(500 * 32))
        job = await node.job(tgt_lang="en")
        assert len(audio_of(job)) == 1200 * 32

    play(scenario, segmentation__silence_ms=800, segmentation__pause_ms=60_000)


def test_a_length_of_silence_that_makes_no_sense_is_refused() -> None:
    async def scenario(stage: Stage) -> None:
        for wrong in (99, 10_001, "400"):
            peer = await stage.socket(subprotocol=JSON)
            await peer.send(
                "session_init", src_lang="zh", tgt_lang="en", audio_format="pcm16",
                silence_ms=wrong,
            )  # fmt: skip
            error = await peer.expect("error", code="INVALID_MESSAGE")
            assert "silence_ms" in error["message"]

    play(scenario)


# Languages


def test_several_targets_get_one_result_each_and_none_delays_another() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node()
        client = await stage.client("zh", tgt="", tgt_langs=["en", "ja", "es"])
        for index in range(3):
            await client.say(opus(100), is_final=True)
            jobs = await several(node, 3)
            assert set(jobs) == {"en", "ja", "es"}
            assert len({job["job_id"] for job in jobs.values()}) == 3
            # Japanese stays behind; the others go on.
            for lang in ("en", "es"):
                await node.answer(jobs[lang])
                await client.result(index, tgt_lang=lang)
            if index == 0:
                first = jobs["ja"]
            else:
                await node.answer(jobs["ja"])
        assert not [m for m in client.all("translation_result") if m["tgt_lang"] == "ja"]
        await node.answer(first)
        for index in range(3):
            await client.result(index, tgt_lang="ja")
        assert len(client.all("translation_result")) == 9
        seqs = [m["seq"] for m in client.all("translation_result")]
        assert seqs == list(range(1, 10))

    play(scenario)


def test_a_change_of_language_concerns_only_the_next_utterance() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node()
        client = await stage.client("zh", "en")
        await client.say(opus(300, b"a"))
        await client.ask("session_update", tgt_lang="ja")
        await client.say(opus(300, b"b"), is_final=True)
        job = await node.job()
        assert (job["tgt_lang"], audio_of(job)) == ("en", opus(300, b"a") + opus(300, b"b"))
        await client.say(opus(300), is_final=True)
        assert (await node.job(utterance_index=1))["tgt_lang"] == "ja"
        await client.ask("session_update", src_lang="en", tgt_langs=["zh", "es"])
        await client.utter(2, src_lang="en", tgt_lang="zh")
        assert set(await several(node, 2)) == {"zh", "es"}

    play(scenario)


def test_a_language_that_is_none_changes_nothing() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node()
        client = await stage.client("zh", "en")
        await client.ask("session_update", tgt_lang="not a language")
        await client.expect("error", code="UNSUPPORTED_LANGUAGE")
        await client.say(opus(300), is_final=True)
        assert (await node.job())["tgt_lang"] == "en"

    play(scenario)


def test_two_way_auto_needs_a_node_for_both_directions_and_carries_both_languages() -> None:
    async def scenario(stage: Stage) -> None:
        half = await stage.node("half", **langs("zh", "en"))
        client = await stage.client("auto", "en", mode="two_way_auto", lang_a="zh", lang_b="en")
        await client.utter(0, src_lang="auto")
        await client.expect("error", code="NO_AVAILABLE_NODE")
        both = await stage.node("both")
        job = await both.job(src_lang="auto", mode="two_way_auto", lang_a="zh", lang_b="en")
        await both.answer(job)
        await client.result(0)
        assert not half.jobs

    play(scenario)


def test_a_pairing_code_prefers_its_node_and_works_once() -> None:
    async def scenario(stage: Stage) -> None:
        nodes = [await stage.node(f"node-{n}", max_jobs=100) for n in range(4)]
        mine = nodes[2]
        code = await stage.server.instance.node_parts.pairing.issue(mine.id)
        client = await stage.client(pairing_code=code)
        assert client.ack["assigned_node_id"] == mine.id
        for index in range(5):
            await client.utter(index)
            await mine.job(utterance_index=index)
        again = await stage.socket(subprotocol=JSON)
        init = {"src_lang": "zh", "tgt_lang": "en"}
        for wrong in (code, "000000", "nonsense"):
            await again.send("session_init", **init, pairing_code=wrong)
            await again.follows("error", code="INVALID_PAIRING_CODE")
        await again.send("session_init", **init)
        await again.follows("session_init_ack")

    play(scenario)


# Audio


def test_an_accepted_utterance_tells_which_audio_is_in_it() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.node()
        client = await stage.client()
        for _ in range(3):
            await client.say(opus(100))
        await client.say(opus(100), is_final=True)
        accepted = await client.expect("utterance_accepted", utterance_index=0)
        positions = ("first_seq", "last_seq", "start_ms", "end_ms")
        assert [accepted[name] for name in positions] == [0, 3, 0, 400]
        await client.say(opus(200), is_final=True)
        accepted = await client.expect("utterance_accepted", utterance_index=1)
        assert [accepted[name] for name in positions] == [4, 4, 400, 600]

    play(scenario)


def test_lost_chunks_are_told_and_repeated_ones_ignored() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node()
        client = await stage.client()
        for seq in (5, 6, 6, 5, 9):
            await client.say(opus(100, bytes([48 + seq])), seq=seq)
        gap = await client.expect("gap", reason="lost_chunks")
        assert (gap["first_seq"], gap["last_seq"]) == (7, 8)
        assert (gap["start_ms"], gap["end_ms"]) == (200, 200)
        # What was missing came too late: its place has passed.
        await client.say(opus(100, b"7"), seq=7)
        await client.say(b"", seq=10, is_final=True)
        job = await node.job()
        assert audio_of(job) == opus(100, b"5") + opus(100, b"6") + opus(100, b"9")
        assert len(client.all("gap")) == 1

    play(scenario, segmentation__pause_ms=2000)


def test_whole_and_streamed_utterances_mix_and_each_is_told_its_index() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node()
        node.work()
        client = await stage.client()
        await client.say(opus(100), is_final=True)
        await client.result(0)
        await client.utter(0, pcm16(100, b"0"))
        told = await client.expect("utterance_accepted", utterance_index=1)
        assert told["requested_index"] == 0
        await client.result(1)
        # The same again is a repetition of that one, not of the streamed one.
        await client.utter(0, pcm16(100, b"0"))
        again = await client.expect("translation_result")
        assert again["utterance_index"] == 1
        await client.say(opus(100), is_final=True)
        await client.result(2)
        assert len(node.jobs) == 3

    play(scenario)


def test_a_binary_frame_on_a_json_session_is_one_chunk() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node()
        client = await stage.client()
        await client.ws.send_bytes(opus(100, b"x"))
        await client.ws.send_bytes(opus(100, b"y"))
        await client.say(opus(100, b"z"), is_final=True)
        assert audio_of(await node.job()) == b"".join(opus(100, f) for f in (b"x", b"y", b"z"))

    play(scenario, segmentation__pause_ms=2000)


@pytest.mark.parametrize("node_form", [JSON, MSGPACK])
def test_messagepack_carries_raw_audio_both_ways(node_form: str) -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node(form=node_form)
        client = await stage.client(form=MSGPACK, audio_format="pcm16", sample_rate=16_000)
        assert client.ack["negotiated_audio_format"] == "pcm16"
        await client.utter(0, b"\x00\xff" * 160)
        job = await node.job()
        sent = job["audio"] if node_form == MSGPACK else audio_of(job)
        assert sent == b"\x00\xff" * 160
        await node.answer(job, tts_audio=b"\x80\x00tts")
        result = await client.result(0)
        assert result["tts_audio"] == b"\x80\x00tts"
        await client.ws.send_str("{}")
        await client.expect("error", code="INVALID_MESSAGE")
        await client.bye()

    play(scenario)


# Order and outcomes


def test_results_come_in_order_whatever_order_nodes_answer_in() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node()
        client = await stage.client()
        for index in range(6):
            await client.utter(index)
        jobs = [await node.job() for _ in range(6)]
        for job in reversed(jobs):
            await node.answer(job, f"text {job['utterance_index']}")
        for index in range(6):
            result = await client.result(index)
            assert result["text_asr"] == f"text {index}"
            assert result["seq"] == index + 1
        assert client.outcomes() == [(index, "ok") for index in range(6)]
        assert len({m["epoch"] for m in client.all("translation_result")}) == 1

    play(scenario)


def test_an_index_left_out_is_waited_for_and_then_filled() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node()
        node.work()
        client = await stage.client()
        await client.utter(0)
        await client.result(0)
        await client.utter(2)
        await client.utter(1)
        await client.result(1)
        await client.result(2)
        await client.utter(4)
        missing = await client.expect("missing_result", utterance_index=3)
        assert missing["reason"] == "gap_timeout"
        await client.result(4)
        reasons = [reason for _, reason in client.outcomes()]
        assert reasons == ["ok", "ok", "ok", "gap_timeout", "ok"]

    play(scenario, jobs__gap_ms=500)


def test_partials_never_follow_the_outcome() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node()
        client = await stage.client()
        await client.utter(0)
        job = await node.job()
        await node.partial(job, "hel")
        await client.expect("asr_partial", utterance_index=0, text="hel")
        # In one breath, so that the partial overtakes the settling of the result if it can.
        await node.answer(job)
        await node.partial(job, "too late")
        await client.result(0)
        await node.partial(job, "later still")
        await client.bye()
        kinds = [m["type"] for m in client.heard]
        assert "asr_partial" not in kinds[kinds.index("translation_result") :]

    play(scenario)


@pytest.mark.parametrize(
    "blank",
    [
        {"text_asr": "", "text_translated": "", "tts_audio": b""},
        {"text_asr": "  \n", "text_translated": " ", "tts_audio": b""},
        {"text_asr": None, "text_translated": None, "tts_audio": None},
        {"text_asr": "", "extra": {"reason": "ASR_EMPTY"}},
        {"text_asr": "", "extra": {"reason": "NO_TEXT_ASSIGNED"}},
    ],
)
def test_an_empty_result_ends_as_silence(blank: Message) -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node()
        client = await stage.client()
        await client.utter(0)
        await node.answer(await node.job(), **blank)
        missing = await client.expect("missing_result", utterance_index=0)
        assert missing["reason"] == "silence_detected"
        assert not client.all("error")
        coverage = (await client.bye())["coverage"]
        assert coverage == {
            "admitted_ms": 100, "delivered_ms": 0, "silent_ms": 100, "failed_ms": 0,
            "skipped_ms": 0,
        }  # fmt: skip

    play(scenario)


def test_text_without_speech_is_a_result() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node()
        client = await stage.client()
        await client.utter(0)
        await node.answer(await node.job(), "words", tts_audio=None)
        result = await client.result(0, text_asr="words")
        assert result["tts_audio"] == ""

    play(scenario)


def test_an_error_that_helps_nobody_else_is_told_at_once_and_fills_its_place() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node()
        other = await stage.node()
        client = await stage.old_client()
        await client.utter(0)
        await until(lambda: node.jobs or other.jobs)
        holder = node if node.jobs else other
        await holder.fail(await holder.job(), "UNSUPPORTED_FEATURE", "no such thing", hint=1)
        shown = await client.expect("ui_event", event="ERROR", status="error")
        assert shown["error_code"] == "UNSUPPORTED_FEATURE"
        error = await client.expect("error", code="UNSUPPORTED_FEATURE")
        assert error["message"] == "This was not translated: the node cannot do what was asked."
        assert shown["hint"] == error["message"]
        assert "no such thing" not in str(client.heard)
        missing = await client.expect("missing_result", utterance_index=0)
        assert missing["reason"] == "failed"
        assert len(node.jobs) + len(other.jobs) == 1

    play(scenario)


@pytest.mark.parametrize(
    "code", ["MODEL_NOT_AVAILABLE", "PROCESSING_ERROR", "NODE_OVERLOADED", "INTERNAL_ERROR"]
)
def test_an_error_that_another_node_may_not_have_moves_the_job(code: str) -> None:
    async def scenario(stage: Stage) -> None:
        first = await stage.node("first")
        client = await stage.client()
        await client.utter(0)
        job = await first.job(attempt_id=1)
        second = await stage.node("second")
        await first.fail(job, code, service_id="nmt-1")
        moved = await second.job(attempt_id=2)
        assert moved["job_id"] == job["job_id"]
        await second.answer(moved)
        result = await client.result(0)
        parts = {k: v for k, v in result["timeline"].items() if k != "total_ms"}
        assert sum(parts.values()) == result["timeline"].get("total_ms", 0)
        assert not client.all("error")

    play(scenario)


def test_the_timeline_is_contiguous_and_sums_to_the_total() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node()
        client = await stage.client()
        stages = {"service_timings": {"asr_ms": 1.4, "nmt_ms": 2.6, "tts_ms": 10_000}}
        for index in range(5):
            await client.say(opus(100), is_final=True)
            job = await node.job()
            await node.take(job)
            await node.answer(job, extra=stages)
            timeline = dict((await client.result(index))["timeline"])
            total = timeline.pop("total_ms")
            assert total == sum(timeline.values())
            assert all(part >= 0 for part in timeline.values())
            # The hangover alone takes that long.
            assert timeline["endpointing_ms"] >= 19

    play(scenario)


# Waiting and pressure


def test_nobody_serves_the_pair_is_told_at_once_and_the_job_is_placed_when_a_node_comes() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.node("other", **langs("zh", "es"))
        client = await stage.client("zh", "en")
        await client.utter(0)
        told = await client.expect("error", code="NO_AVAILABLE_NODE")
        assert told["details"]["reason"] == "NO_POOL_FOR_LANG_PAIR"
        assert told["details"]["tgt_lang"] == "en"
        assert told["details"]["utterance_index"] == 0
        assert client.all("utterance_accepted")
        node = await stage.node("late", **langs("zh", "en"))
        await node.answer(await node.job(attempt_id=1))
        result = await client.result(0)
        assert result["timeline"]["queue_ms"] > 0

    play(scenario)


def test_a_job_nobody_takes_expires_with_an_outcome() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.old_client()
        await client.utter(0)
        missing = await client.expect("missing_result", utterance_index=0)
        assert missing["reason"] == "expired"
        assert [m["code"] for m in client.all("error")] == ["NO_AVAILABLE_NODE", "JOB_TIMEOUT"]

    play(scenario, jobs__pending_ms=300)


def test_unserved_pairs_are_refused_at_once_where_that_is_wanted() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client("zh", "en")
        await client.utter(0)
        refused = await client.expect("error", code="NO_AVAILABLE_NODE")
        assert refused["details"]["reason"] == "NO_POOL_FOR_LANG_PAIR"
        assert refused["retry_after_ms"] > 0
        await client.expect("missing_result", utterance_index=0, reason="failed")
        # Its place in the order is filled: what follows is not held up.
        node = await stage.node()
        await client.utter(1)
        await node.answer(await node.job(utterance_index=1))
        await client.result(1)
        coverage = (await client.bye())["coverage"]
        assert (coverage["failed_ms"], coverage["delivered_ms"]) == (100, 100)

    play(scenario, jobs__refuse_unserved_pairs=True, jobs__pending_ms=60_000)


def test_backpressure_pauses_and_resumes_and_loses_nothing_that_was_accepted() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node()
        client = await stage.client()
        for _ in range(6):
            await client.say(opus(100), is_final=True)
            await client.silent_for(60, "error")
        await client.expect("backpressure", action="PAUSE")
        # What comes now is refused, and that is told.
        await client.say(opus(100), is_final=True)
        gap = await client.expect("gap", reason="backpressure")
        assert gap["end_ms"] - gap["start_ms"] == 100
        node.work()
        await client.expect("backpressure", action="RESUME")
        await client.say(opus(100), is_final=True)
        await client.result(6)
        coverage = (await client.bye())["coverage"]
        assert client.outcomes() == [(index, "ok") for index in range(7)]
        assert coverage["admitted_ms"] == coverage["delivered_ms"] == 700
        assert len(client.all("utterance_accepted")) == 7

    play(scenario, jobs__in_flight_max=2, sessions__backlog_max=4)


def test_too_many_utterances_per_second_are_refused_one_by_one() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node()
        node.work()
        client = await stage.client()
        for index in range(30):
            await client.utter(index)
        refused = await client.expect("error", code="RATE_LIMITED")
        assert refused["retry_after_ms"] > 0
        # The first two at least; a slow machine lets one more through every half second.
        first = refused["details"]["utterance_index"]
        assert 2 <= first < 30
        for index in range(first):
            await client.result(index)

    play(scenario, sessions__utterances_per_s_max=2)


# Repetition


def test_a_repeated_utterance_gets_the_same_answer_and_no_second_job() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node()
        client = await stage.client()
        await client.utter(0, request_id="r-0")
        job = await node.job()
        # While it is under way: the one answer serves both.
        await client.utter(0, request_id="r-0")
        await node.answer(job, "once")
        first = await client.result(0)
        await client.utter(0, request_id="r-0")
        again = await client.result(0)
        same = ("job_id", "text_asr", "text_translated", "tts_audio", "seq", "epoch")
        assert [first[name] for name in same] == [again[name] for name in same]
        assert len(node.jobs) == 1
        coverage = (await client.bye())["coverage"]
        assert coverage["admitted_ms"] == 100

    play(scenario)


def test_a_request_repeated_under_another_index_is_the_same_job() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node()
        client = await stage.client()
        await client.utter(0, request_id="r-0")
        await client.utter(1, request_id="r-0")
        await node.answer(await node.job(), "once")
        await client.result(0, text_asr="once")
        await client.utter(1, request_id="r-1")
        await node.answer(await node.job(), "twice")
        await client.expect("translation_result", text_asr="twice")
        coverage = (await client.bye())["coverage"]
        assert len(node.jobs) == 2
        assert coverage["admitted_ms"] == coverage["delivered_ms"] == 200

    play(scenario)
