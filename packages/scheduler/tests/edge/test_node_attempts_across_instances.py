"""Attempts over several instances: a job follows its node, moves with all it has, and ends once."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from edge.live_server import JSON, Message, NewNode, opus, registration, until
from edge.many_servers import Company, Member, Traveller, attempts, play

pytestmark = pytest.mark.store

# Nobody is declared dead, whatever it does.
PATIENT: dict[str, Any] = {"instances__silence_ms": 20_000}


async def register(member: Member, name: str, **more: Any) -> NewNode:
    """Open a socket and send a registration whose answer is not waited for."""
    node: NewNode = await member._enter(NewNode(await member.connect("/ws/node", JSON), JSON))
    node.id = name
    await node.send("node_register", **{**registration(), "node_id": name, **more})
    return node


def job_record(company: Company, job: Message) -> dict[str, bytes]:
    """Return the one record of a job."""
    flat = company.ask("HGETALL", company.key("job", job["job_id"]))
    return {name.decode(): value for name, value in zip(flat[::2], flat[1::2], strict=True)}


# Where the node is


def test_a_registration_that_comes_late_does_not_make_a_node_unreachable() -> None:
    async def scenario(company: Company) -> None:
        # It registers on A, gets no answer, goes to B; A reads the registration afterwards.
        here = await company["B"].node("wanderer", boot_id="b1")
        late = await register(company["A"], "wanderer", boot_id="b1")
        await until(lambda: company.field("node", "wanderer", "instance") == "A", "A has it")
        late.drop()
        await until(lambda: company.field("node", "wanderer", "status") == "offline", "A lost it")
        await here.beat(running=[])
        # Its socket is not the one that is known: it registers anew, as it does after any loss.
        assert await here.closed() == 1001
        again = await company["B"].node("wanderer", boot_id="b1")
        client = await company["B"].client()
        await client.utter(0)
        await again.answer(await again.job())
        await client.result(0)
        assert attempts([again]) == [1]

    play(scenario, **PATIENT)


def test_a_job_goes_to_where_its_node_is_now() -> None:
    async def scenario(company: Company) -> None:
        former = await company["A"].old_node("field")
        now = await company["B"].old_node("field")
        # A has not noticed that its socket is dead.
        assert "field" in company["A"].server.instance.nodes
        client = await company["A"].client()
        await client.utter(0)
        await now.answer(await now.job())
        await client.result(0)
        assert not former.jobs

    play(scenario, **PATIENT)


# What moves with a job


def test_there_is_one_record_of_a_job_and_its_audio_is_not_rewritten_with_it() -> None:
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
        audio = base64.b64decode(job["audio"])
        assert running["audio"] == audio
        assert [name for name, value in running.items() if audio in value] == ["audio"]
        second = await company["B"].node("second", sends_acks=True)
        await first.fail(job, "PROCESSING_ERROR")
        moved = await second.job(attempt_id=2)
        after = job_record(company, job)
        assert (after["attempt"], after["node"]) == (b"2", b"second")
        assert moved["audio"] == job["audio"]
        await second.answer(moved)
        await client.result(0)
        ended = job_record(company, job)
        assert (ended["outcome"], ended["audio"]) == (b"completed", b"")

    play(scenario)


def test_a_job_that_is_read_from_the_store_is_the_job_that_was_written() -> None:
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


# How an attempt ends


@pytest.mark.parametrize("how", ["lost", "failed", "instance"])
def test_a_job_is_no_lost_utterance_whichever_way_its_node_elsewhere_ends(how: str) -> None:
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


def test_a_stale_result_on_another_instance_neither_counts_nor_hides_the_valid_one() -> None:
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


def test_work_whose_audio_is_gone_ends_at_once() -> None:
    async def scenario(company: Company) -> None:
        node = await company["B"].old_node("field")
        client = await Traveller.at(company, "A")
        await client.say(opus(100), is_final=True)
        await node.job()
        await client.socket.expect("utterance_accepted")
        await company["A"].crash()
        # The node's work is lost too; nobody has the audio any more.
        await client.come_back("B")
        node.drop()
        await company["B"].old_node("another")
        await client.socket.expect("missing_result", utterance_index=0)

    play(scenario, jobs__retain_audio=False, **PATIENT)
