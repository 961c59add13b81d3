"""Two and three instances over one store behave as one: who is where makes no difference.

Speakers, nodes and instances are on different sides of each scenario, and instances die in the
middle of it. What a client does to come back is test_resume.py, what a store does is
test_store_outage.py.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import re
from typing import Any

import pytest

from edge.live_server import Node, opus, pcm16, text64, until
from edge.many_servers import Company, Traveller, attempts, heard_all, play, spoken

pytestmark = pytest.mark.store

# Nobody is declared dead, whatever it does.
PATIENT: dict[str, Any] = {"instances__silence_ms": 20_000}


async def until_adopted(company: Company, name: str, times: int = 1) -> None:
    """Wait until a survivor has done all that a death asks for."""
    await until(
        lambda: company[name].counted("instances_adopted_total") >= times, f"{name} adopted"
    )


async def given(nodes: list[Node], index: int, attempt: int) -> Node:
    """Return the one node that was given an attempt of an utterance, once it was."""

    def holders() -> list[Node]:
        wanted = (index, attempt)
        return [
            node
            for node in nodes
            if wanted in [(job["utterance_index"], job["attempt_id"]) for job in node.jobs]
        ]

    await until(holders, f"attempt {attempt} of {index} is assigned")
    (holder,) = holders()
    return holder


# The way of one utterance


def test_a_node_on_a_serves_a_speaker_on_b_of_the_published_protocol() -> None:
    async def scenario(company: Company) -> None:
        node = await company["A"].old_node()
        client = await company["B"].old_client()
        await client.utter(0, pcm16(100, b"x"))
        job = await node.job(utterance_index=0, session_id=client.id)
        assert job["audio"] == text64(pcm16(100, b"x"))
        await client.expect("ui_event", event="DISPATCHED", job_id=job["job_id"])
        await node.take(job)
        await client.expect("ui_event", event="NODE_ACCEPTED")
        await node.partial(job, "he")
        await client.expect("asr_partial", text="he", job_id=job["job_id"], utterance_index=0)
        await client.expect("ui_event", event="ASR_PARTIAL")
        await node.answer(job, "hello")
        await client.expect("ui_event", event="ASR_FINAL")
        await client.expect("ui_event", event="NMT_DONE")
        result = await client.result(0, text_asr="hello", text_translated="hello:en")
        assert base64.b64decode(result["tts_audio"]) == b"tts"
        await client.bye()
        assert not company.leases()

    play(scenario)


def test_a_failure_on_a_is_told_at_once_to_the_speaker_on_b() -> None:
    async def scenario(company: Company) -> None:
        node = await company["A"].node()
        client = await company["B"].client()
        await client.utter(0)
        await node.fail(await node.job(), "AUDIO_UNREADABLE", "out of words", said="good morning")
        error = await client.expect("error", code="PROCESSING_ERROR")
        assert error["message"] == "This was not translated: the node failed on it."
        missing = await client.expect("missing_result", utterance_index=0, reason="failed")
        assert missing["detail"] == "PROCESSING_ERROR"
        heard = str(client.heard)
        assert not any(said in heard for said in ("UNREADABLE", "out of words", "good morning"))

    play(scenario)


def test_the_parts_of_a_timeline_are_its_total_though_two_instances_measured_them() -> None:
    async def scenario(company: Company) -> None:
        node = await company["A"].node()
        client = await company["B"].client()
        for index in range(3):
            await client.utter(index)
            job = await node.job()
            await node.take(job)
            await asyncio.sleep(0.02)
            timings = {"asr_ms": 5, "nmt_ms": 3, "tts_ms": 2}
            await node.answer(job, extra={"service_timings": timings})
            told = (await client.result(index))["timeline"]
            total = told.pop("total_ms")
            assert sum(told.values()) == total >= 20
            assert min(told.values()) >= 0
            # The node's own time is known on the other side.
            assert told.get("node_other_ms", 0) + told.get("asr_ms", 0) >= 5

    play(scenario)


def test_with_nodes_on_each_instance_hardly_a_message_goes_between_them() -> None:
    count = 20

    async def scenario(company: Company) -> None:
        names = ("A1", "A2", "B1", "B2")
        nodes = [await company[name[0]].node(name, max_jobs=4) for name in names]
        for node in nodes:
            node.work()
        clients = [await company[name].client() for name in "ABAB"]
        sent = messages_sent(company)
        for index in range(count):
            await asyncio.gather(*(client.utter(index) for client in clients))
            await asyncio.gather(*(heard_all(client, index + 1) for client in clients))
        assert messages_sent(company) - sent <= 0.1 * count * len(clients)
        assert all(len(node.jobs) > count / 2 for node in nodes), "each has its share"

    def messages_sent(company: Company) -> int:
        found = re.search(rb"cmdstat_xadd:calls=(\d+)", company.ask("INFO", "commandstats"))
        return int(found[1]) if found else 0

    play(scenario)


def test_both_directions_at_once_and_nothing_of_it_in_the_wrong_place() -> None:
    async def scenario(company: Company) -> None:
        nodes = [await company[name].node() for name in "AB"]
        for node in nodes:
            node.work()
        clients = [await company[name].client() for name in "ABAB"]
        for index in range(6):
            await asyncio.gather(*(client.utter(index) for client in clients))
        for client in clients:
            await heard_all(client, 6)
            assert client.outcomes() == [(index, "ok") for index in range(6)]
            assert {message["session_id"] for message in client.all("translation_result")} == {
                client.id
            }
        assert attempts(nodes) == [1] * 24
        assert not company.leases()

    play(scenario)


def test_a_job_that_waits_on_b_is_placed_when_a_node_comes_to_a() -> None:
    async def scenario(company: Company) -> None:
        client = await company["B"].client()
        await client.utter(0)
        await client.expect("error", code="NO_AVAILABLE_NODE")
        node = await company["A"].node()
        await node.answer(await node.job(utterance_index=0))
        await client.result(0)
        assert attempts([node]) == [1]

    play(scenario)


# An instance dies


def test_a_node_takes_its_job_from_a_dead_instance_to_another_and_it_counts_once() -> None:
    async def scenario(company: Company) -> None:
        node = await company["A"].node("worker")
        client = await company["B"].client()
        await client.utter(0)
        job = await node.job(attempt_id=1)
        await node.take(job)
        spare = await company["B"].node("spare")
        await company["A"].crash()
        node = await company["C"].node("worker")
        await node.beat(running=[{"job_id": job["job_id"], "attempt_id": 1}])
        await until(
            lambda: sum(company[name].counted("instances_adopted_total") for name in "BC"),
            "A is adopted",
        )
        await node.answer(job, "kept")
        await client.result(0, text_asr="kept")
        await node.expect("job_result_ack", status="accepted")
        await client.silent_for(100, "translation_result", "missing_result")
        assert attempts([node, spare]) == [1]
        assert not company.leases()

    play(scenario, "ABC")


def test_the_same_process_name_started_again_takes_its_nodes_back() -> None:
    async def scenario(company: Company) -> None:
        node = await company["A"].node("worker")
        client = await company["B"].client()
        await client.utter(0)
        job = await node.job()
        spare = await company["B"].node("spare")
        await company["A"].crash()
        await company.start("A")
        node = await company["A"].node("worker")
        await node.answer(job, "kept")
        await client.result(0, text_asr="kept")
        assert attempts([node, spare]) == [1]

    play(scenario, **PATIENT)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_result_is_settled_though_its_owner_is_dead_and_is_heard_elsewhere(when: str) -> None:
    async def scenario(company: Company) -> None:
        node = await company["A"].node()
        client = await Traveller.at(company, "B")
        await client.say(opus(100), is_final=True)
        job = await node.job()
        await client.socket.expect("utterance_accepted")
        await company["B"].crash()
        if when == "before":
            await node.answer(job, "kept")
            await node.expect("job_result_ack", status="accepted")
        answer = await client.come_back("C")
        assert (answer["next_audio_seq"], answer["next_utterance_index"]) == (1, 1)
        if when == "after":
            await node.answer(job, "kept")
        await client.socket.result(0, text_asr="kept")
        await client.say(opus(100), is_final=True)
        await node.answer(await node.job(utterance_index=1))
        await heard_all(client, 2)
        assert client.outcomes() == [(0, "ok"), (1, "ok")]
        assert attempts([node]) == [1, 1]

    play(scenario, "ABC")


def test_a_job_of_a_dead_owner_and_a_dead_node_moves_with_its_audio_to_a_third_instance() -> None:
    async def scenario(company: Company) -> None:
        node = await company["A"].node("first")
        client = await Traveller.at(company, "B")
        await client.say(opus(100, b"q"), is_final=True)
        await node.job(attempt_id=1)
        await client.socket.expect("utterance_accepted")
        other = await company["C"].node("second")
        await asyncio.gather(company["A"].crash(), company["B"].crash())
        moved = await other.job(attempt_id=2)
        assert base64.b64decode(moved["audio"]) == opus(100, b"q")
        await other.answer(moved, "kept")
        await client.come_back("C")
        await client.socket.result(0, text_asr="kept")
        await until_adopted(company, "C", 2)
        assert not company.leases()
        assert not company.ask("EXISTS", company.inbox("A"), company.inbox("B"))

    play(scenario, "ABC")


def test_letters_a_dead_instance_never_read_are_acted_on_by_a_survivor() -> None:
    async def scenario(company: Company) -> None:
        node = await company["A"].node("first")
        client = await company["B"].client()
        # A reads nothing any more, so that the push stays in its inbox.
        await company["A"].fall_silent()
        await client.utter(0)
        await until(lambda: company.ask("XLEN", company.inbox("A")), "the letter is there")
        assert not node.jobs
        await company["A"].crash()
        other = await company["C"].node("second")
        await other.answer(await other.job(), "moved")
        await client.result(0, text_asr="moved")
        await until(lambda: not company.ask("EXISTS", company.inbox("A")), "the inbox is gone")

    play(scenario, "ABC")


@pytest.mark.parametrize("at", ["A", "B", "C"])
def test_a_node_that_left_a_socket_open_behind_it_gets_its_jobs_where_it_is(at: str) -> None:
    async def scenario(company: Company) -> None:
        left = await company["A"].node("same")
        node = await company["B"].node("same")
        client = await company[at].client()
        for index in range(2):
            await client.utter(index)
            await node.answer(await node.job(utterance_index=index))
            await client.result(index)
        assert not left.jobs
        assert not left.ws.closed

    play(scenario, "ABC")


# Letters that are lost


def test_a_push_that_finds_no_inbox_moves_to_another_node_at_once() -> None:
    async def scenario(company: Company) -> None:
        await company["A"].node("gone")
        await company["A"].crash()
        company.ask("DEL", company.inbox("A"))
        client = await company["B"].client()
        await client.utter(0)
        await until(lambda: company.field("node", "gone", "status") == "offline", "it is offline")
        await until(lambda: company["B"].counted("failovers_total", reason="node_lost"), "moved")
        other = await company["C"].node("there")
        await other.answer(await other.job(attempt_id=2))
        await client.result(0)

    play(scenario, "ABC", **PATIENT)


def test_a_push_that_is_lost_is_found_by_the_time_of_its_acknowledgement() -> None:
    async def scenario(company: Company) -> None:
        await company["A"].node("deaf", sends_acks=True)
        client = await company["B"].client()
        await company["A"].fall_silent()
        await client.utter(0)
        await until(lambda: company.ask("XLEN", company.inbox("A")), "the letter is there")
        company.ask("XTRIM", company.inbox("A"), "MAXLEN", 0)
        other = await company["B"].node("there", sends_acks=True)
        moved = await other.job(attempt_id=2)
        await other.answer(moved)
        await client.result(0)
        assert company["B"].counted("failovers_total", reason="no_ack") == 1

    play(scenario, jobs__ack_ms=300, **PATIENT)


def test_outcomes_nobody_told_of_are_looked_for() -> None:
    async def scenario(company: Company) -> None:
        node = await company["A"].node()
        client = await company["B"].client()
        await client.utter(0)
        job = await node.job()
        # B reads no letter and looks for nothing while the result is settled on A.
        await company["B"].fall_silent()
        await node.answer(job)
        await node.expect("job_result_ack", status="accepted")
        await until(lambda: company.ask("XLEN", company.inbox("B")), "the letter is there")
        company.ask("XTRIM", company.inbox("B"), "MAXLEN", 0)
        instance = company["B"].server.instance
        company["B"].server.loops = asyncio.create_task(instance.run())
        await client.result(0)

    play(scenario, **PATIENT)


# Audio that the store does not keep


def test_without_retained_audio_it_travels_in_the_letter_and_is_asked_for_again() -> None:
    async def scenario(company: Company) -> None:
        first = await company["A"].node("first")
        client = await company["B"].client()
        await client.utter(0, pcm16(100, b"x"))
        job = await first.job(attempt_id=1)
        assert job["audio"] == text64(pcm16(100, b"x"))
        assert not company.ask("HEXISTS", company.key("job", job["job_id"]), "audio")
        assert not company.ask("KEYS", company.key("audio", "*"))
        second = await company["C"].node("second")
        # A gives it to a node of C, and neither of the two has the audio.
        await first.fail(job, "MODEL_NOT_AVAILABLE", service_id="nmt-1")
        moved = await second.job(attempt_id=2)
        assert moved["audio"] == text64(pcm16(100, b"x"))
        await second.answer(moved)
        await client.result(0)

    play(scenario, "ABC", jobs__retain_audio=False)


def test_retained_audio_is_gone_from_the_store_with_the_outcome() -> None:
    async def scenario(company: Company) -> None:
        node = await company["A"].node()
        client = await company["B"].client()
        await client.utter(0)
        job = await node.job()
        record = company.key("job", job["job_id"])
        assert company.ask("HSTRLEN", record, "audio") > 0
        await node.answer(job)
        await client.result(0)
        assert company.ask("HSTRLEN", record, "audio") == 0
        assert not company.ask("KEYS", company.key("audio", "*"))

    play(scenario)


# Bounds and marks that are the deployment's


def test_a_request_that_is_repeated_after_a_move_is_the_same_job() -> None:
    async def scenario(company: Company) -> None:
        node = await company["A"].node()
        client = await Traveller.at(company, "B")
        await client.socket.utter(0, request_id="r-0")
        job = await node.job()
        await client.socket.expect("utterance_accepted")
        # It does not know whether that arrived: it asks again elsewhere.
        await client.come_back("C")
        await client.socket.utter(0, request_id="r-0")
        await client.socket.utter(1, request_id="r-1")
        other = await node.job()
        await node.answer(other, "second")
        await node.answer(job, "first")
        await heard_all(client, 2)
        results = [message for message in client.heard if message["type"] == "translation_result"]
        assert [message["text_asr"] for message in results] == ["first", "second"]
        # The repetition has got no place of its own.
        assert client.outcomes() == [(0, "ok"), (1, "ok")]
        await client.socket.bye()
        assert attempts([node]) == [1, 1]

    play(scenario, "ABC")


def test_requests_that_race_on_two_instances_are_each_one_job() -> None:
    async def scenario(company: Company) -> None:
        node = await company["A"].node(max_jobs=64)
        node.work()
        client = await Traveller.at(company, "B")
        former, names = client.socket, [f"r-{number}" for number in range(6)]
        for index, name in enumerate(names):
            await former.utter(index, request_id=name)
        await company["B"].fall_silent()
        await client.come_back("C")
        for index, name in enumerate(names):
            await client.socket.utter(index, request_id=name)
            with contextlib.suppress(ConnectionError):  # it is closed when it was refused
                await former.utter(index, request_id=name)
        await until(lambda: len({job["job_id"] for job in node.jobs}) == len(names), "all are jobs")
        await client.socket.bye()
        assert len({job["job_id"] for job in node.jobs}) == len(names)
        assert attempts([node]) == [1] * len(names)
        done = {message["job_id"] for message in client.heard if "text_asr" in message}
        assert len(done) == len(names)

    play(scenario, "ABC", **PATIENT)


def test_a_model_that_is_missing_on_a_is_known_to_b() -> None:
    async def scenario(company: Company) -> None:
        lacking = await company["A"].node("lacking")
        first = await company["A"].client()
        await first.utter(0)
        job = await lacking.job()
        other = await company["A"].node("other")
        await lacking.fail(job, "MODEL_NOT_AVAILABLE", service_id="nmt-1")
        other.work()
        await first.result(0)
        second = await company["B"].client()
        for index in range(4):
            await second.utter(index)
        await heard_all(second, 4)
        assert second.outcomes() == [(index, "ok") for index in range(4)]
        assert len(lacking.jobs) == 1

    play(scenario)


def test_the_bound_of_what_waits_is_one_for_all_instances() -> None:
    async def scenario(company: Company) -> None:
        clients = [await company[name].client() for name in "ABA"]
        for client in clients[:2]:
            await client.utter(0)
            await client.expect("utterance_accepted")
        await clients[2].utter(0)
        refused = await clients[2].expect("error", code="BUSY")
        assert refused["retry_after_ms"] > 0
        await clients[2].expect("missing_result", utterance_index=0, reason="failed")
        node = await company["B"].node()
        node.work()
        for client in clients[:2]:
            await client.result(0)

    play(scenario, jobs__pending_jobs_max=2)


def test_what_a_session_may_have_under_way_stays_the_same_after_a_move() -> None:
    async def scenario(company: Company) -> None:
        node = await company["A"].node()
        client = await Traveller.at(company, "A")
        for index in range(2):
            await client.say(opus(100), is_final=True)
            await client.socket.expect("utterance_accepted", utterance_index=index)
        jobs = [await node.job(utterance_index=index) for index in range(2)]
        await client.come_back("B")
        await client.say(opus(100), is_final=True)
        await node.silent_for(150, "job_assign")
        await node.answer(jobs[0])
        await node.answer(await node.job(utterance_index=2))
        await node.answer(jobs[1])
        await heard_all(client, 3)
        assert client.outcomes() == [(index, "ok") for index in range(3)]

    play(scenario, jobs__in_flight_max=2)


# Turns


@pytest.mark.parametrize("to", ["A", "B"])
def test_slices_stay_on_one_node_when_their_speaker_moves(to: str) -> None:
    async def scenario(company: Company) -> None:
        nodes: list[Node] = [
            await company[name].node(f"node-{name}", sends_acks=True) for name in "AB"
        ]
        client = await Traveller.at(company, "A")
        for _ in range(2):
            await client.say(opus(500))
            await client.socket.expect("utterance_accepted")
        before = await given(nodes, 0, 1)
        for index in range(2):
            assert await given(nodes, index, 1) is before
        client.socket.drop()
        await client.come_back(to)
        for _ in range(2):
            await client.say(opus(500))
            await client.socket.expect("utterance_accepted")
        await client.say(opus(100), is_final=True)
        after = await given(nodes, 4, 1)
        assert await given(nodes, 2, 1) is await given(nodes, 3, 1) is after
        if to == "A":  # the turn goes on; on another instance a new one begins
            assert after is before
        for node in nodes:
            for job in node.jobs:
                await node.answer(job, f"text {job['utterance_index']}")
        await heard_all(client, 5)
        assert client.outcomes() == [(index, "ok") for index in range(5)]
        assert spoken(nodes, client.id) == b"".join(audio for audio, _ in client.said)

    play(scenario, segmentation__max_duration_ms=500, segmentation__pause_ms=5000)


@pytest.mark.parametrize("bound", [{}, {"jobs__in_flight_max": 2}, {"nodes__max_jobs": 2}])
def test_an_old_node_on_a_keeps_the_slices_of_an_old_client_on_b(bound: dict[str, Any]) -> None:
    async def scenario(company: Company) -> None:
        node = await company["A"].old_node()
        client = await company["B"].old_client()
        for _ in range(4):
            await client.say(opus(500))
            await client.silent_for(50, "error")
        await client.say(opus(100), is_final=True)
        await node.answer(await node.job(is_manual_cut=True), "all")
        await client.result(4, text_asr="all")
        silent = [(index, "silence_detected") for index in range(4)]
        assert client.outcomes() == [*silent, (4, "ok")]
        assert attempts([node]) == [1] * 5
        await client.bye()
        assert not company.leases()

    play(scenario, segmentation__max_duration_ms=500, **bound)


# What is no longer wanted


def test_an_attempt_that_b_ends_is_cancelled_at_its_node_on_a() -> None:
    async def scenario(company: Company) -> None:
        # Only B looks for what has run out of time.
        await company.start("A", jobs__sweep_interval_ms=20_000)
        await company.start("B")
        node = await company["A"].old_node("slow")
        client = await company["B"].old_client()
        await client.utter(0)
        job = await node.job()
        await node.expect("job_cancel", job_id=job["job_id"])
        await client.expect("missing_result", utterance_index=0)
        # It had one attempt only: that ended, and no other node was to do it.
        assert company["B"].counted("jobs_total", outcome="failed") == 1
        assert company["B"].counted("failovers_total", reason="timeout") == 0

    play(
        scenario, "", jobs__attempt_ms=600, jobs__reserve_ms=500, jobs__ack_ms=300,
        jobs__attempts_max=1, redis__call_timeout_ms=400,
    )  # fmt: skip


def test_a_session_nobody_keeps_is_closed_and_its_job_is_cancelled_wherever_it_runs() -> None:
    async def scenario(company: Company) -> None:
        node = await company["A"].node()
        client = await company["B"].old_client()
        await client.utter(0)
        job = await node.job()
        await company["B"].crash()
        await node.expect("job_cancel", job_id=job["job_id"], reason="cancelled")
        assert company.field("session", client.id, "closed")
        assert not company.leases()
        await node.answer(job, "too late")
        await node.expect("job_result_ack", status="stale")

    play(scenario, "ABC", sessions__lease_ms=1000, sessions__resume_ms=1000)


def test_the_result_of_a_node_whose_instance_was_silent_too_long_is_refused_and_counted() -> None:
    async def scenario(company: Company) -> None:
        first = await company["A"].node("first")
        client = await company["B"].client()
        await client.utter(0)
        job = await first.job(attempt_id=1)
        second = await company["B"].node("second")
        await company["A"].fall_silent()
        moved = await second.job(attempt_id=2)
        await first.answer(job, "stale")
        await first.expect("job_result_ack", status="stale")
        assert company["A"].counted("results_stale_total", reason="stale_attempt") == 1
        await second.answer(moved, "valid")
        await client.result(0, text_asr="valid")
        await client.bye()
        assert client.outcomes() == [(0, "ok")]

    play(scenario)
