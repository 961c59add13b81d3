"""Requests that their clients name: the same request has the same answer, wherever it is sent."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from edge.live_server import Message, NewClient, NewNode, pcm16, until
from edge.locked import LOCKED, client_token, node_token
from edge.many_servers import FREEZING, Company, Traveller, attempts, heard_all, play

pytestmark = pytest.mark.store

# Nobody is declared dead, whatever it does.
PATIENT: dict[str, Any] = {"instances__silence_ms": 20_000}
SAME = ("job_id", "text_asr", "text_translated", "tts_audio")
TENANT: dict[str, Any] = {**LOCKED, **PATIENT}


def answer_of(message: Message) -> list[object]:
    return [message[name] for name in SAME]


def jobs_of(node: NewNode) -> set[str]:
    """Return the jobs a node was given, whatever the attempts."""
    return {job["job_id"] for job in node.jobs}


async def member(company: Company, name: str, tenant: str = "acme", **init: Any) -> NewClient:
    """Open a session of a tenant on an instance."""
    return await company[name].client(token=client_token(tenant=tenant), **init)


async def public_node(company: Company, name: str) -> NewNode:
    return await company[name].node("node-a", token=node_token("node-a"))


# Acceptance


def test_who_wants_no_acceptance_gets_the_outcome_alone() -> None:
    async def scenario(company: Company) -> None:
        node = await company["A"].node()
        client = await company["A"].client()
        await client.utter(0, request_id="r-0", wants_acceptance=False)
        job = await node.job()
        await node.answer(job, "first")
        # Nothing before it.
        await client.follows("translation_result", utterance_index=0)
        # The same request again: told where it is, and answered again.
        await client.utter(0, request_id="r-0", wants_acceptance=False)
        await client.follows("utterance_accepted", utterance_index=0)
        await client.follows("translation_result", utterance_index=0)
        # Another index than the requested one is news.
        await client.utter(0, request_id="r-1", wants_acceptance=False)
        await client.follows("utterance_accepted", utterance_index=1, requested_index=0)
        await node.answer(await node.job(), "second")
        await client.result(1)
        assert attempts([node]) == [1, 1]

    play(scenario)


def test_a_request_without_acceptance_survives_a_move() -> None:
    async def scenario(company: Company) -> None:
        node = await company["A"].node()
        client = await Traveller.at(company, "B")
        await client.socket.utter(0, request_id="r-0", wants_acceptance=False)
        job = await node.job()
        await client.come_back("A")
        # It was told nothing, so it sends it again: there is one job and one outcome.
        await client.socket.utter(0, request_id="r-0", wants_acceptance=False)
        await client.socket.expect("utterance_accepted", utterance_index=0)
        await node.answer(job, "first")
        await heard_all(client, 1)
        assert client.outcomes() == [(0, "ok")]
        assert attempts([node]) == [1]

    play(scenario)


# In its own session


def test_repeated_in_flight_after_a_move_it_is_answered_where_it_is() -> None:
    async def scenario(company: Company) -> None:
        node = await company["A"].node()
        client = await Traveller.at(company, "B")
        await client.socket.utter(0, request_id="r-0")
        job = await node.job()
        await client.socket.expect("utterance_accepted")
        await client.come_back("A")
        await client.socket.utter(1, request_id="r-0")
        told = await client.socket.expect("utterance_accepted")
        assert (told["utterance_index"], told["requested_index"]) == (0, 1)
        await client.socket.utter(1, request_id="r-1")
        other = await node.job()
        assert other["utterance_index"] == 1
        await node.answer(other, "second")
        await node.answer(job, "first")
        await heard_all(client, 2)
        assert client.outcomes() == [(0, "ok"), (1, "ok")]
        coverage = (await client.socket.bye())["coverage"]
        assert (coverage["admitted_ms"], coverage["delivered_ms"]) == (200, 200)
        assert attempts([node]) == [1, 1]

    play(scenario)


@pytest.mark.parametrize("is_trimmed", [False, True], ids=["kept", "confirmed"])
def test_repeated_after_delivery_and_a_move_it_is_sent_again(is_trimmed: bool) -> None:
    async def scenario(company: Company) -> None:
        node = await company["A"].node()
        node.work()
        client = await Traveller.at(company, "A")
        for index in range(20):
            await client.socket.utter(index, request_id=f"r-{index}")
            await client.socket.result(index)
        (first, *_) = client.socket.all("translation_result")
        if is_trimmed:
            await client.socket.ask("outcome_ack", epoch=first["epoch"], seq=20)
            await until(lambda: not company.outbox_length(client.id), "all is forgotten")
        await client.come_back("B")
        await client.socket.utter(0, request_id="r-0")
        again = await client.socket.result(0)
        assert answer_of(again) == answer_of(first)
        assert (again["epoch"], again["seq"]) == (first["epoch"], first["seq"])
        # And on the same instance, now that it knows.
        await client.socket.utter(0, request_id="r-0")
        assert answer_of(await client.socket.result(0)) == answer_of(first)
        assert len(jobs_of(node)) == 20
        coverage = (await client.socket.bye())["coverage"]
        assert coverage["admitted_ms"] == coverage["delivered_ms"] == 2000

    play(scenario)


def test_where_it_never_moved_the_answer_outlives_the_outbox() -> None:
    async def scenario(company: Company) -> None:
        node = await company["A"].node()
        node.work()
        client = await company["A"].client()
        for index in range(40):
            await client.utter(index, request_id=f"r-{index}")
            await client.result(index)
        first = client.all("translation_result")[0]
        await client.ask("outcome_ack", epoch=first["epoch"], seq=40)
        await until(lambda: not company.outbox_length(client.id), "all is forgotten")
        await client.utter(0, request_id="r-0")
        assert answer_of(await client.result(0)) == answer_of(first)
        assert len(jobs_of(node)) == 40

    play(scenario, "A")


def test_every_language_of_a_request_is_answered_again() -> None:
    async def scenario(company: Company) -> None:
        node = await company["A"].node()
        node.work()
        client = await Traveller.at(company, "A", tgt_langs=["en", "ja"])
        await client.socket.utter(0, request_id="r-0")
        await heard_all(client, 2)
        first = {m["tgt_lang"]: answer_of(m) for m in client.socket.all("translation_result")}
        await client.come_back("B")
        await client.socket.utter(0, request_id="r-0")
        again = [await client.socket.result(0), await client.socket.result(0)]
        assert {message["tgt_lang"]: answer_of(message) for message in again} == first
        assert len(jobs_of(node)) == 2

    play(scenario)


@pytest.mark.parametrize("moves", [False, True], ids=["here", "elsewhere"])
def test_other_audio_or_languages_under_a_used_id_is_a_conflict(moves: bool) -> None:
    async def scenario(company: Company) -> None:
        node = await company["A"].node()
        client = await Traveller.at(company, "A")
        await client.socket.utter(0, request_id="r-0")
        await client.socket.expect("utterance_accepted")
        if moves:
            await client.come_back("B")
        for other in ({"audio": pcm16(100, b"x")}, {"tgt_lang": "ja"}, {"audio": pcm16(200)}):
            await client.socket.utter(1, request_id="r-0", **other)
            error = await client.socket.expect("error", code="REQUEST_CONFLICT")
            assert error["details"] == {"utterance_index": 1, "request_id": "r-0"}
        await node.answer(await node.job())
        await client.socket.result(0)
        # Its index is not spent.
        await client.socket.utter(1, request_id="r-1")
        await node.answer(await node.job(utterance_index=1))
        await client.socket.result(1)
        coverage = (await client.socket.bye())["coverage"]
        assert coverage["admitted_ms"] == coverage["delivered_ms"] == 200

    play(scenario)


@pytest.mark.parametrize("moves", [False, True], ids=["here", "elsewhere"])
def test_what_was_refused_because_the_queue_was_full_is_a_new_try(moves: bool) -> None:
    async def scenario(company: Company) -> None:
        client = await Traveller.at(company, "A")
        await client.socket.utter(0, request_id="r-0")
        await client.socket.expect("utterance_accepted")
        await client.socket.utter(1, request_id="r-1")
        await client.socket.expect("error", code="BUSY")
        if moves:
            await client.come_back("B")
        node = await company["A"].node()
        node.work()
        await client.socket.result(0)
        await client.socket.utter(2, request_id="r-1")
        assert (await client.socket.result(2))["text_asr"] == "text 2"
        assert client.outcomes() == [(0, "ok"), (1, "failed"), (2, "ok")]
        coverage = (await client.socket.bye())["coverage"]
        assert (coverage["admitted_ms"], coverage["failed_ms"]) == (300, 100)

    play(scenario, jobs__pending_jobs_max=1)


def test_utterances_that_must_be_asked_for_stay_in_their_order() -> None:
    async def scenario(company: Company) -> None:
        node = await company["A"].node()
        node.work()
        client = await Traveller.at(company, "A")
        await client.come_back("B")
        for index in range(12):
            named = {"request_id": f"r-{index}"} if index % 3 else {}
            await client.socket.utter(index, pcm16(100, bytes([index])), **named)
        await client.socket.ask("session_close", reason="done")
        await client.socket.expect("session_close_ack")
        said = sorted((job["utterance_index"], job["audio"]) for job in node.jobs)
        assert [index for index, _ in said] == list(range(12))
        assert len({audio for _, audio in said}) == 12
        assert client.outcomes() == [(index, "ok") for index in range(12)]

    play(scenario)


def test_a_request_that_meets_a_stalled_store_makes_no_second_job() -> None:
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


# In another session of the tenant


def test_in_another_session_of_the_tenant_it_gets_the_answer_of_the_first() -> None:
    async def scenario(company: Company) -> None:
        node = await public_node(company, "A")
        first = await member(company, "A")
        await first.utter(0, request_id="r-0")
        job = await node.job()
        second = await member(company, "B")
        await second.utter(0, request_id="r-0")
        await second.utter(1, request_id="r-1")
        # It is accepted when there is an answer, and what follows it waits for that.
        await second.silent_for(300, "utterance_accepted", "error")
        await node.answer(job, "once")
        told = await first.result(0)
        assert answer_of(await second.result(0)) == answer_of(told)
        await second.expect("utterance_accepted", utterance_index=0)
        await node.answer(await node.job(utterance_index=1), "other")
        await second.result(1, text_asr="other")
        # After its session has gone, too.
        assert (await first.bye())["coverage"]["delivered_ms"] == 100
        third = await member(company, "A")
        await third.utter(0, request_id="r-0")
        assert answer_of(await third.result(0)) == answer_of(told)
        coverage = (await second.bye())["coverage"]
        assert coverage["admitted_ms"] == coverage["delivered_ms"] == 200
        assert attempts([node]) == [1, 1]

    play(scenario, **TENANT)


def test_an_answer_without_text_is_the_same_as_well() -> None:
    async def scenario(company: Company) -> None:
        node = await public_node(company, "A")
        first, second = await member(company, "A"), await member(company, "B")
        await first.utter(0, request_id="r-0")
        await node.fail(await node.job(), "ASR_FAILED", "no such luck")
        told = await first.expect("missing_result")
        await second.utter(0, request_id="r-0")
        again = await second.expect("missing_result")
        assert again["job_id"] == told["job_id"]
        assert (again["reason"], again["detail"]) == (told["reason"], told["detail"])
        assert (await second.bye())["coverage"]["failed_ms"] == 100
        assert len(jobs_of(node)) == 1

    play(scenario, **TENANT)


def test_other_tenants_and_clients_without_one_have_their_own_requests() -> None:
    async def scenario(company: Company) -> None:
        node = await public_node(company, "A")
        node.work()
        clients = [await member(company, name, tenant) for name in "AB" for tenant in ("a", "b")]
        clients += [await member(company, name, "") for name in "AB"]
        for client in clients:
            await client.utter(0, request_id="r-0")
            await client.result(0)
        assert len(jobs_of(node)) == 4

    play(scenario, **TENANT)


def test_in_another_session_other_audio_is_a_conflict() -> None:
    async def scenario(company: Company) -> None:
        node = await public_node(company, "A")
        first, second = await member(company, "A"), await member(company, "B")
        await first.utter(0, request_id="r-0")
        await node.job()
        await second.utter(0, pcm16(300), request_id="r-0")
        await second.expect("error", code="REQUEST_CONFLICT")
        assert (await second.bye())["coverage"]["admitted_ms"] == 0

    play(scenario, **TENANT)


def test_what_was_cancelled_with_its_session_is_a_new_try_in_the_next() -> None:
    async def scenario(company: Company) -> None:
        node = await public_node(company, "B")
        first = await member(company, "A")
        await first.utter(0, request_id="r-0")
        job = await node.job()
        # The instance dies, its client does not come back in time: a survivor ends the session.
        await company["A"].crash()
        await until(
            lambda: company.field("session", first.id, "closed"), "the session has been closed"
        )
        second = await member(company, "B")
        await second.utter(0, request_id="r-0")
        again = await node.job()
        assert (again["job_id"], again["attempt_id"]) == (job["job_id"], 2)
        await node.answer(job, "too late")
        await node.answer(again, "in time")
        await second.result(0, text_asr="in time")

    short = {"sessions__resume_ms": 1000, "sessions__lease_ms": 1000}
    play(scenario, **LOCKED, **short, cells=1)


# Races


def test_the_same_requests_from_two_sessions_at_once_are_one_job_each() -> None:
    async def scenario(company: Company) -> None:
        node = await company["A"].node("node-a", token=node_token("node-a"), max_jobs=64)
        node.work()
        clients = [await member(company, name) for name in "ABAB"]
        names = [f"r-{number}" for number in range(6)]
        for index, name in enumerate(names):
            await asyncio.gather(*(client.utter(index, request_id=name) for client in clients))
        for client in clients:
            await heard_all(client, len(names))
            assert client.outcomes() == [(index, "ok") for index in range(len(names))]
        told = [[m["job_id"] for m in client.all("translation_result")] for client in clients]
        assert len({tuple(jobs) for jobs in told}) == 1
        assert attempts([node]) == [1] * len(names)

    play(scenario, **TENANT)
