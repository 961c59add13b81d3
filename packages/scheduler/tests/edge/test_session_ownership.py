"""A session has one owner: what a former owner still does is refused, and resumes that race."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from edge.live_server import NewClient, opus, until
from edge.many_servers import Company, Traveller, attempts, heard_all, play

pytestmark = pytest.mark.store

# Nobody is declared dead, whatever it does.
PATIENT: dict[str, Any] = {"instances__silence_ms": 20_000}


# A former owner


async def half_open(company: Company) -> tuple[Traveller, NewClient]:
    """A session whose former owner has heard neither of its loss nor anything else."""
    client = await Traveller.at(company, "A")
    former = client.socket
    await company["A"].fall_silent()
    await client.come_back("B")
    assert not former.ws.closed
    return client, former


def test_what_a_former_owner_still_submits_is_refused() -> None:
    async def scenario(company: Company) -> None:
        node = await company["B"].node()
        client, former = await half_open(company)
        await former.utter(0)
        assert await former.closed() == 4409
        assert client.id not in company["A"].server.instance.sessions
        assert not former.all("utterance_accepted")
        node.work()
        await client.say(opus(100), is_final=True)
        await heard_all(client, 1)
        assert client.outcomes() == [(0, "ok")]
        assert len(node.jobs) == 1

    play(scenario, **PATIENT)


def test_what_a_former_owner_closes_stays_open() -> None:
    async def scenario(company: Company) -> None:
        node = await company["B"].node()
        node.work()
        client, former = await half_open(company)
        await former.ask("session_close", reason="done")
        await former.closed()
        assert not company.field("session", client.id, "closed")
        await client.say(opus(100), is_final=True)
        await heard_all(client, 1)

    play(scenario, **PATIENT)


def test_what_a_former_owner_confirms_is_not_forgotten() -> None:
    async def scenario(company: Company) -> None:
        node = await company["B"].node()
        node.work()
        client = await Traveller.at(company, "A")
        former = client.socket
        for index in range(20):
            await former.utter(index)
            await former.result(index)
        await company["A"].fall_silent()
        await client.come_back("B")
        epoch, _ = client.position
        await former.ask("outcome_ack", epoch=epoch, seq=20)
        await former.ask("client_heartbeat", timestamp=1)
        await former.expect("server_heartbeat")
        await client.socket.silent_for(100)
        assert company.outbox_length(client.id) == 20

    play(scenario, **PATIENT)


def test_a_loss_that_a_former_owner_notices_late_ends_nothing() -> None:
    async def scenario(company: Company) -> None:
        node = await company["B"].node()
        node.work()
        client, former = await half_open(company)
        session = company["A"].server.instance.sessions[client.id]
        former.drop()
        await until(lambda: session.record.is_over, "the former owner gave up")
        assert not company.field("session", client.id, "closed")
        await client.say(opus(100), is_final=True)
        await heard_all(client, 1)

    play(scenario, sessions__resume_ms=1000, **PATIENT)


def test_the_late_clean_up_of_a_session_and_a_node_leaves_their_successors_alone() -> None:
    async def scenario(company: Company) -> None:
        former_node = await company["A"].node("same")
        client = await Traveller.at(company, "A")
        former = client.socket
        # They are on B before A hears that their sockets here are gone.
        node = await company["B"].node("same")
        await client.come_back("B")
        former_node.drop()
        former.drop()
        await until(lambda: not company["A"].server.instance.nodes, "A has noticed")
        await until(lambda: not company["A"].server.instance.sessions, "A has noticed")
        node.work()
        for index in range(3):
            await client.socket.utter(index)
            await client.socket.result(index)
        assert company.field("node", "same", "instance") == "B"
        assert company.field("session", client.id, "owner") == "B"

    play(scenario)


@pytest.mark.parametrize("first", ["former", "owner"])
def test_of_two_instances_that_were_asked_the_same_only_one_dispatches(first: str) -> None:
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


def test_a_take_over_that_the_store_forgot_is_not_taken_for_a_loss() -> None:
    async def scenario(company: Company) -> None:
        node = await company["B"].node()
        node.work()
        client = await Traveller.at(company, "A")
        await client.say(opus(100), is_final=True)
        await client.socket.result(0)
        await asyncio.sleep(0)
        copy = company.save()
        await client.come_back("B")
        await client.attached()
        await until(lambda: client.id not in company["A"].server.instance.sessions, "moved")
        company.store.kill()
        company.put_back(copy)
        company.store.start()
        assert company.field("session", client.id, "owner") == "A"
        for index in range(1, 4):
            await client.say(opus(100), is_final=True)
            await client.socket.result(index)
        assert company.field("session", client.id, "owner") == "B"

    play(scenario, keeps=True, **PATIENT)


def test_an_instance_that_was_silent_too_long_lets_go_of_sessions_that_left() -> None:
    async def scenario(company: Company) -> None:
        await company.until_met()
        node = await company["B"].node()
        node.work()
        client = await Traveller.at(company, "A")
        await client.say(opus(100), is_final=True)
        await client.socket.result(0)
        silent = company["A"]
        await silent.fall_silent()
        await client.come_back("B")
        known = company.key("instance", "A")
        await until(lambda: not company.ask("EXISTS", known), "it is adopted and forgotten")
        instance = silent.server.instance
        assert client.id in instance.sessions
        # The first that it does when it goes on.
        await instance.loops._beat()
        await instance.loops.watch.verify()
        assert client.id not in instance.sessions
        await client.say(opus(100), is_final=True)
        await client.socket.result(1)

    play(scenario, sessions__lease_ms=60_000)


# Resumes that race


def test_of_two_resumes_at_once_exactly_one_wins() -> None:
    async def scenario(company: Company) -> None:
        node = await company["A"].node()
        node.work()
        client = await Traveller.at(company, "A")
        await client.say(opus(100), is_final=True)
        await heard_all(client, 1)
        client.socket.drop()
        claim = client.claim()
        rivals = {name: await company[name].newcomer() for name in "BC"}
        await asyncio.gather(*(rival.send("session_resume", **claim) for rival in rivals.values()))
        await until(lambda: sum(rival.ws.closed for rival in rivals.values()) == 1, "one lost")
        (winner,) = (name for name, rival in rivals.items() if not rival.ws.closed)
        (loser,) = (rival for rival in rivals.values() if rival.ws.closed)
        assert loser.ws.close_code in (4409, 1013)
        assert company.field("session", client.id, "owner") == winner
        rivals[winner].id = client.id
        client.sockets.append(rivals[winner])
        await rivals[winner].expect("session_resumed")
        await client.say(opus(100), is_final=True)
        await rivals[winner].result(1)
        holders = [name for name in "ABC" if client.id in company[name].server.instance.sessions]
        assert holders == [winner]

    play(scenario, "ABC")


def test_of_two_resumes_on_one_instance_the_later_one_has_the_session() -> None:
    async def scenario(company: Company) -> None:
        node = await company["B"].node()
        node.work()
        client = await Traveller.at(company, "A")
        await client.say(opus(100), is_final=True)
        await client.socket.result(0)
        # The first one is held up: it reads which room it is in.
        membership = company["B"].server.instance.rooms.membership
        restore, may_go_on = membership.restore, asyncio.Event()

        async def slowly(session: Any) -> None:
            await restore(session)
            await may_go_on.wait()

        membership.restore = slowly  # type: ignore[method-assign]
        first = await company["B"].newcomer()
        await first.send("session_resume", **client.claim())
        sessions = company["B"].server.instance.sessions
        await until(lambda: client.id in sessions, "taken over")
        later = asyncio.create_task(client.come_back("B"))
        await until(lambda: sessions[client.id].record.fence == 3, "taken over once more")
        may_go_on.set()
        await later
        assert await first.closed() in (1013, 4409)
        await client.say(opus(100), is_final=True)
        await client.socket.result(1)

    play(scenario, **PATIENT)
