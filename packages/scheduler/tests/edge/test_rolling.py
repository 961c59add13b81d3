"""Instances are replaced one by one under load, and nobody's utterance fails by it.

Clients and nodes of this protocol are told to go elsewhere and take what they have along; those of
the published one are finished first. A release of skew between instances is tolerated.
"""

from __future__ import annotations

import asyncio
from functools import partial

import msgspec
import pytest

from edge.live_server import NewNode, Node, opus, until
from edge.many_servers import PREFIX, Company, Traveller, attempts, heard_all, play, spoken
from lingua_scheduler.peers.stream import GROUP
from lingua_scheduler.runtime.delivery import TRIM_CONFIRMED
from lingua_scheduler.state.keys import InstanceKeys

pytestmark = pytest.mark.store


def all_said(client: Traveller) -> bytes:
    return b"".join(audio for audio, _ in client.said)


async def follow(company: Company, node: Node, to: str) -> NewNode:
    """Let a node that was sent away register elsewhere, as the same process, with its jobs."""
    assert await node.closed() == 1001
    again = await company[to].node(node.id)
    held = [{"job_id": job["job_id"], "attempt_id": job["attempt_id"]} for job in node.jobs]
    await again.beat(running=held)
    return again


# Those who know how to move


def test_clients_and_nodes_of_a_draining_instance_go_on_elsewhere_and_nothing_fails() -> None:
    async def scenario(company: Company) -> None:
        await company.until_met()
        node = await company["A"].node("mover", max_jobs=16)
        clients = [await Traveller.at(company, "A") for _ in range(3)]
        for number, client in enumerate(clients):
            await client.say(opus(100, bytes([97 + number])), is_final=True)
            await client.socket.expect("utterance_accepted")
            # And something that is not cut yet.
            await client.say(opus(100, bytes([65 + number])))
        jobs = [await node.job() for _ in clients]
        draining = asyncio.create_task(company["A"].drain())
        for client in clients:
            await client.socket.expect("go_away", reason="shutdown")
            await client.come_back("B")
        again = await follow(company, node, "B")
        for job in jobs:
            await again.answer(job, "carried along")
        again.work()
        for client in clients:
            await client.say(opus(100), is_final=True)
        assert await draining is True
        for client in clients:
            await heard_all(client, 2)
            assert client.outcomes() == [(0, "ok"), (1, "ok")]
            assert spoken([node, again], client.id) == all_said(client)
            (former, _) = client.sockets
            assert await former.closed() in (4409, 1001)
        assert attempts([node, again]) == [1] * 6
        # It left in good order: nobody waits for its silence.
        assert not company.ask("EXISTS", company.inbox("A"))
        assert not company.ask("ZSCORE", company.key("instances"), "A")
        assert not company.leases()

    play(scenario, segmentation__pause_ms=5000)


def test_a_client_that_does_not_hear_is_finished_before_its_socket_is_closed() -> None:
    async def scenario(company: Company) -> None:
        await company.until_met()
        node = await company["B"].node()
        client = await Traveller.at(company, "A")
        await client.say(opus(100, b"a"))
        draining = asyncio.create_task(company["A"].drain())
        await client.socket.expect("go_away")
        await node.answer(await node.job(utterance_index=0))
        await client.socket.result(0)
        assert await client.socket.closed() == 1001
        assert await draining is True
        await client.come_back("B")
        await client.say(opus(100, b"b"), is_final=True)
        await node.answer(await node.job(utterance_index=1))
        await client.socket.result(1)
        assert spoken([node], client.id) == all_said(client)

    play(scenario, server__drain_ms=1000)


def test_what_is_said_to_a_draining_instance_is_not_acknowledged_and_not_lost() -> None:
    async def scenario(company: Company) -> None:
        await company.until_met()
        node = await company["B"].node()
        node.work()
        client = await Traveller.at(company, "A")
        await client.say(opus(100, b"a"), is_final=True)
        await client.socket.result(0)
        draining = asyncio.create_task(company["A"].drain())
        await client.socket.expect("go_away")
        # It is slow to go: longer than the time after which silence is acknowledged.
        for number in range(6):
            await client.say(opus(100, bytes([98 + number])))
            await client.socket.silent_for(200, "audio_ack")
        assert client.acknowledged[0] == 0
        await client.come_back("B")
        await client.say(opus(100, b"z"), is_final=True)
        await client.socket.result(1)
        assert spoken([node], client.id) == all_said(client)
        assert await draining is True

    play(scenario, segmentation__pause_ms=5000)


def test_what_a_client_confirms_while_it_resumes_does_not_cost_its_session() -> None:
    """It reads its former socket until the answer: its request is older than what it confirms."""

    async def scenario(company: Company) -> None:
        await company.until_met()
        node = await company["B"].node()
        client = await Traveller.at(company, "A")
        jobs = []
        for number in range(TRIM_CONFIRMED + 1):
            await client.say(opus(100, bytes([97 + number])), is_final=True)
            jobs.append(await node.job(utterance_index=number))
            if number < TRIM_CONFIRMED - 4:
                await node.answer(jobs[number])
        await client.socket.result(TRIM_CONFIRMED - 5)
        draining = asyncio.create_task(company["A"].drain())
        await client.socket.expect("go_away")
        asked = client.claim()
        assert asked["last_seq"] == TRIM_CONFIRMED - 4
        for job in jobs[TRIM_CONFIRMED - 4 : TRIM_CONFIRMED]:
            await node.answer(job)
        await client.socket.result(TRIM_CONFIRMED - 1)
        epoch, seq = client.position
        await client.socket.ask("outcome_ack", epoch=epoch, seq=seq)
        await until(lambda: not company.outbox_length(client.id), "what it confirmed is gone")
        await client.come_back("B", last_seq=asked["last_seq"])
        assert await draining is True
        # The last one was accepted before the move: its outcome is owed.
        await node.answer(jobs[-1])
        await heard_all(client, TRIM_CONFIRMED + 1)
        assert client.outcomes() == [(number, "ok") for number in range(TRIM_CONFIRMED + 1)]
        (last,) = client.socket.all("translation_result")
        assert last["seq"] == TRIM_CONFIRMED + 1

    play(scenario)


def test_the_last_instance_finishes_what_it_has_for_there_is_nowhere_to_go() -> None:
    async def scenario(company: Company) -> None:
        node = await company["A"].node()
        client = await Traveller.at(company, "A")
        await client.say(opus(100), is_final=True)
        job = await node.job()
        draining = asyncio.create_task(company["A"].drain())
        await client.socket.expect("go_away")
        await node.silent_for(100)
        assert not node.ws.closed
        await node.answer(job)
        await client.socket.result(0)
        assert await client.socket.closed() == 1001
        assert await node.closed() == 1001
        assert await draining is True

    play(scenario, "A")


def test_audio_a_draining_instance_did_not_take_is_not_acknowledged() -> None:
    async def scenario(company: Company) -> None:
        await company.until_met()
        node = await company["B"].node()
        node.work()
        client = await Traveller.at(company, "A")
        await client.say(opus(100), is_final=True)
        await client.socket.result(0)
        draining = asyncio.create_task(company["A"].drain())
        await client.socket.expect("go_away")
        # On its way when the instance began to stop.
        await client.say(opus(100, b"x"), is_final=True)
        await client.socket.silent_for(1300, "audio_ack", "utterance_accepted")
        await client.come_back("B")
        await client.socket.result(1)
        assert await draining
        assert client.outcomes() == [(0, "ok"), (1, "ok")]

    play(scenario)


# Those who do not


def test_an_old_client_is_finished_first_and_told_that_the_instance_goes() -> None:
    async def scenario(company: Company) -> None:
        await company.until_met()
        node = await company["B"].node()
        client = await company["A"].old_client()
        await client.utter(0)
        job = await node.job()
        await client.say(opus(100))
        draining = asyncio.create_task(company["A"].drain())
        cut = await node.job(utterance_index=1)
        await node.answer(cut)
        await client.silent_for(50, "translation_result")
        assert not client.ws.closed
        await node.answer(job)
        await heard_all(client, 2)
        assert client.outcomes() == [(0, "ok"), (1, "ok")]
        assert await client.closed() == 1001
        assert await draining is True

    play(scenario)


def test_an_old_node_is_idle_before_its_socket_is_closed_and_works_again_elsewhere() -> None:
    async def scenario(company: Company) -> None:
        await company.until_met()
        node = await company["A"].old_node("field")
        client = await company["B"].client()
        await client.utter(0)
        job = await node.job()
        draining = asyncio.create_task(company["A"].drain())
        await until(lambda: company.field("node", "field", "drain") == "1", "it drains")
        # It gets nothing new meanwhile, and keeps its socket as long as it has something.
        await client.utter(1)
        await node.silent_for(150, "job_assign", "job_cancel")
        assert not node.ws.closed
        await node.answer(job)
        await client.result(0)
        assert await node.closed() == 1001
        assert await draining is True
        again = await company["B"].old_node("field")
        await again.answer(await again.job(utterance_index=1))
        await client.result(1)
        assert client.outcomes() == [(0, "ok"), (1, "ok")]
        assert attempts([node, again]) == [1, 1]

    play(scenario)


def test_an_old_node_that_an_operator_drained_stays_drained_when_it_moves() -> None:
    async def scenario(company: Company) -> None:
        await company.until_met()
        node = await company["A"].old_node("field")
        await node.send("node_drain", node_id="field", draining=True)
        await until(lambda: company.field("node", "field", "drain") == "1", "it drains")
        assert await company["A"].drain() is True
        assert company.field("node", "field", "drain") == "1"

    play(scenario)


def test_an_old_node_with_work_beyond_the_end_of_a_drain_is_not_drained_for_good() -> None:
    async def scenario(company: Company) -> None:
        await company.until_met()
        node = await company["A"].old_node("field")
        client = await company["B"].client()
        await client.utter(0)
        await node.job()
        assert await company["A"].drain() is False
        again = await company["B"].old_node("field")
        again.work()
        await client.result(0)

    play(scenario, server__drain_ms=300)


# One after the other


def test_every_instance_is_restarted_while_people_speak_and_no_utterance_fails() -> None:
    async def scenario(company: Company) -> None:
        await company.until_met()
        nodes: list[Node] = [await company[name].node(f"node-{name}", max_jobs=16) for name in "AB"]
        for node in nodes:
            node.work()
        clients = {name: await Traveller.at(company, name) for name in "AB"}
        speaking = True

        async def speak(client: Traveller, at: str) -> None:
            number = 0
            while speaking or number % 3:
                number += 1
                await client.say(bytes([number % 251]) * 60, is_final=number % 3 == 0)
                if client.socket.all("go_away"):
                    at = "AB"[at == "A"]
                    await client.come_back(at)
                await asyncio.sleep(0.01)

        async def restart(name: str, other: str) -> None:
            draining = asyncio.create_task(company[name].drain())
            for node in [node for node in nodes if node.id in _hosted(company, name)]:
                nodes.append(await follow(company, node, other))
                nodes[-1].work()
            assert await draining is True
            await company.start(name)
            await company.until_met()

        speakers = [asyncio.create_task(speak(client, name)) for name, client in clients.items()]
        await restart("A", "B")
        await restart("B", "A")
        speaking = False
        await asyncio.gather(*speakers)
        for client in clients.values():
            await until(partial(_is_heard, nodes, client), "all was heard")
            ack = await client.socket.bye()
            assert ack["coverage"]["failed_ms"] == 0
            found = client.outcomes()
            assert found == [(index, "ok") for index in range(len(found))]
            assert len(client.sockets) >= 2

    play(scenario, segmentation__pause_ms=5000)


def _is_heard(nodes: list[Node], client: Traveller) -> bool:
    return spoken(nodes, client.id) == all_said(client)


def _hosted(company: Company, name: str) -> set[str]:
    return set(company[name].server.instance.nodes)


# A release of skew


def test_a_letter_of_a_newer_release_is_put_aside_and_everything_else_goes_on() -> None:
    async def scenario(company: Company) -> None:
        node = await company["A"].node()
        node.work()
        client = await company["B"].client()
        body = msgspec.msgpack.encode({"job": "j", "attempt": 1})
        for version, kind in ((2, "push"), (1, "hologram"), (1, "push")):
            company.ask(
                "XADD", company.inbox("A"), "*", "v", version, "k", kind, "f", "B", "c", "j",
                "a", 1, "t", 1, "b", body,
            )  # fmt: skip
        for index in range(3):
            await client.utter(index)
            await client.result(index)
        dead = InstanceKeys(PREFIX, "A").dlq
        await until(lambda: company.ask("XLEN", dead) == 3, "they are put aside")
        told = str(company.ask("XRANGE", dead, "-", "+"))
        for reason in ("newer_version", "unknown_kind", "malformed"):
            assert reason in told
        assert company.ask("XLEN", company.inbox("A")) == 0
        assert company.ask("XPENDING", company.inbox("A"), GROUP)[0] == 0

    play(scenario)


def test_letters_with_parts_of_a_newer_release_are_read() -> None:
    async def scenario(company: Company) -> None:
        node = await company["A"].node()
        client = await Traveller.at(company, "B")
        await client.say(opus(100), is_final=True)
        job = await node.job()
        partial = {
            "session": client.id, "job": job["job_id"], "attempt": 1, "text": "from later",
            "is_final": False, "confidence": 0.5,
        }  # fmt: skip
        company.ask(
            "XADD", company.inbox("B"), "*", "v", 1, "k", "partial", "f", "A", "c", job["job_id"],
            "a", 1, "t", 1, "b", msgspec.msgpack.encode(partial), "z", "new",
        )  # fmt: skip
        await client.socket.expect("asr_partial", text="from later")

    play(scenario)
