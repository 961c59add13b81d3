"""What reading the predecessor found (predecessor-facts.md 9.2) of several instances and jobs.

One test for each number that no other file has: 1, 3, 4 and 5 are in tests/between, those of one
instance in test_known_failures_read.py; some are here again with two instances.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from edge.live_server import Message, registration, until
from edge.many_servers import FREEZING, Company, Traveller, attempts, heard_all, play
from lingua_scheduler.state.cluster import key_slot
from lingua_scheduler.state.keys import TAGGED

pytestmark = pytest.mark.store

# Nobody is declared dead, whatever it does.
PATIENT: dict[str, Any] = {"instances__silence_ms": 20_000}


def job_record(company: Company, job: Message) -> dict[str, bytes]:
    """Return the one record of a job."""
    flat = company.ask("HGETALL", company.key("job", job["job_id"]))
    return {name.decode(): value for name, value in zip(flat[::2], flat[1::2], strict=True)}


def calls(company: Company) -> int:
    """Return how many commands the store has run, those of scripts included."""
    rows = company.store.info("commandstats").items()
    return sum(
        int(row.partition("calls=")[2].partition(",")[0])
        for name, row in rows
        if name not in ("cmdstat_info", "cmdstat_ping")
    )


# Redis runtime


def test_9_2_2_a_request_that_meets_a_stalled_store_makes_no_second_job() -> None:
    async def scenario(company: Company) -> None:
        node = await company["A"].node()
        client = await Traveller.at(company, "A")
        company.store.pause()
        try:
            # The stall is longer than any call may take, and the client asks again meanwhile.
            await client.socket.utter(0, request_id="r-0")
            await client.socket.expect("error", code="SCHEDULER_DEPENDENCY_DOWN")
            await client.socket.utter(0, request_id="r-0")
        finally:
            company.store.resume()
        await node.answer(await node.job(), "once")
        await client.socket.result(0, text_asr="once")
        # And again elsewhere.
        await client.come_back("B")
        await client.socket.utter(0, request_id="r-0")
        await client.socket.expect("utterance_accepted", utterance_index=0)
        await client.socket.result(0, text_asr="once")
        await node.silent_for(150, "job_assign")
        assert attempts([node]) == [1]

    play(scenario, **FREEZING)


def test_9_2_6_the_late_clean_up_of_a_session_and_a_node_leaves_their_successors_alone() -> None:
    async def scenario(company: Company) -> None:
        former_node = await company["A"].node("same")
        client = await Traveller.at(company, "A")
        former = client.socket
        # They are on B before A hears that their sockets here are gone.
        node = await company["B"].node("same")
        await client.come_back("B")
        former_node.drop()
        former.drop()
        await until(lambda: not company["A"].server.instance.board.nodes, "A has noticed")
        await until(lambda: not company["A"].server.instance.board.sessions, "A has noticed")
        node.work()
        for index in range(3):
            await client.socket.utter(index)
            await client.socket.result(index)
        assert company.field("node", "same", "instance") == "B"
        assert company.field("session", client.id, "owner") == "B"

    play(scenario)


def test_9_2_7_every_key_has_the_tag_of_its_cell_or_of_its_instance_as_a_cluster_needs() -> None:
    async def scenario(company: Company) -> None:
        nodes = [await company[name].node(f"{name}-{number}") for name in "AB" for number in "12"]
        clients = [await company[name].client() for name in "ABAB"]
        for client in clients:
            await client.utter(0)
        await until(lambda: sum(len(node.jobs) for node in nodes) == 4, "all are under way")
        slots: dict[str, set[int]] = {}
        for key in company.ask("KEYS", "*"):
            found = TAGGED.search(key.decode())
            assert found is not None, key
            tag = key.decode().partition("{")[2].partition("}")[0]
            slots.setdefault(tag, set()).add(key_slot(key))
        assert all(len(of_tag) == 1 for of_tag in slots.values())
        assert {"i:A", "i:B"} < set(slots)
        assert len([tag for tag in slots if tag.startswith("c")]) > 1
        for node in nodes:
            for job in node.jobs:
                await node.answer(job)
        for client in clients:
            await client.result(0)

    play(scenario, cells=4)


def test_9_2_7_asking_for_a_pair_nobody_serves_costs_the_same_whatever_others_serve() -> None:
    async def scenario(company: Company) -> None:
        client = await company["A"].client("zh", "fr")
        languages = ("de", "it", "pt", "ko", "ru", "nl")
        costs = []
        for number in range(len(languages) + 1):
            if number:
                lang = languages[number - 1]
                capabilities = registration(("en",), (lang,))["language_capabilities"]
                await company["A"].node(f"node-{lang}", language_capabilities=capabilities)
            before = calls(company)
            await client.utter(number, tgt_lang="fr")
            await client.expect("utterance_accepted", utterance_index=number)
            costs.append(calls(company) - before)
        # The first two find out that nobody does, the others know.
        assert len(set(costs[2:])) == 1, costs

    async def quiet(company: Company) -> None:
        await company["A"].fall_silent()
        await scenario(company)

    play(quiet, "A", **PATIENT)


# Jobs


def test_9_2_9_there_is_one_record_of_a_job_and_its_audio_is_not_rewritten_with_it() -> None:
    async def scenario(company: Company) -> None:
        first = await company["A"].node("first", sends_acks=True)
        client = await company["B"].client()
        await client.utter(0)
        job = await first.job()
        placed = job_record(company, job)
        assert (placed["attempt"], placed["node"]) == (b"1", b"first")
        await first.take(job)
        await until(lambda: job_record(company, job)["state"] == b"RUNNING", "it runs")
        running = job_record(company, job)
        kept = ("spec", "body", "attempt", "node")
        assert [running[name] for name in kept] == [placed[name] for name in kept]
        assert b"pppppppp" not in b"".join(running.values())
        second = await company["B"].node("second", sends_acks=True)
        await first.fail(job, "PROCESSING_ERROR")
        moved = await second.job(attempt_id=2)
        after = job_record(company, job)
        assert (after["attempt"], after["node"]) == (b"2", b"second")
        assert moved["audio"] == job["audio"]
        await second.answer(moved)
        await client.result(0)
        assert job_record(company, job)["outcome"] == b"completed"

    play(scenario)


def test_9_2_11_a_stale_result_on_another_instance_neither_counts_nor_hides_the_valid_one() -> None:
    async def scenario(company: Company) -> None:
        first = await company["A"].node("first")
        client = await company["B"].client()
        await client.utter(0)
        job = await first.job()
        second = await company["B"].node("second")
        await first.fail(job, "MODEL_NOT_AVAILABLE", service_id="nmt-1")
        moved = await second.job(attempt_id=2)
        await first.answer(job, "stale")
        await first.expect("job_result_ack", status="stale")
        await second.answer(moved, "valid")
        await client.result(0, text_asr="valid")
        await client.bye()
        assert client.outcomes() == [(0, "ok")]

    play(scenario)


@pytest.mark.parametrize("first", ["former", "owner"])
def test_9_2_12_of_two_instances_that_were_asked_the_same_only_one_dispatches(first: str) -> None:
    async def scenario(company: Company) -> None:
        node = await company["C"].node()
        client = await Traveller.at(company, "A")
        former = client.socket
        # A has not heard that the session went on elsewhere.
        await company["A"].fall_silent()
        await client.come_back("B")
        sockets = [former, client.socket] if first == "former" else [client.socket, former]
        with contextlib.suppress(ConnectionError):
            await asyncio.gather(*(socket.utter(0, request_id="r-0") for socket in sockets))
        job = await node.job()
        assert await former.closed() == 4409
        await node.silent_for(150, "job_assign")
        await node.answer(job)
        await client.socket.result(0)
        await heard_all(client, 1)
        assert attempts([node]) == [1]
        assert company["C"].counted("results_stale_total", reason="stale_attempt") == 0

    play(scenario, "ABC", **PATIENT)


@pytest.mark.parametrize("how", ["lost", "failed", "instance"])
def test_9_2_13_a_job_is_no_lost_utterance_whichever_way_its_node_elsewhere_ends(how: str) -> None:
    async def scenario(company: Company) -> None:
        first = await company["A"].node("first")
        client = await company["B"].client()
        await client.utter(0)
        job = await first.job()
        second = await company["B"].node("second")
        if how == "lost":
            first.drop()
        elif how == "failed":
            await first.fail(job, "PROCESSING_ERROR")
        else:
            await company["A"].crash()
        await second.answer(await second.job(attempt_id=2), "moved")
        await client.result(0, text_asr="moved")

    play(scenario)


def test_9_2_14_a_job_that_is_read_from_the_store_is_the_job_that_was_written() -> None:
    async def scenario(company: Company) -> None:
        here = await company["B"].node("here")
        client = await company["B"].client()
        await client.utter(0, manual_cut=True)
        own = await here.job()
        there = await company["A"].node("there")
        # Pushed by its owner first, then by an instance that has only what the store keeps.
        await here.fail(own, "PROCESSING_ERROR")
        read = await there.job(attempt_id=2)
        # What belongs to the attempt and not to the job.
        fresh = dict.fromkeys(("attempt_id", "context_reset", "deadline_ms"))
        assert read | fresh == own | fresh
        await there.answer(read)
        await client.result(0)

    play(scenario)
