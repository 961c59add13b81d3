"""The store dies, freezes, loses what it wrote last, or loses everything, under two instances.

Sockets stay up, what cannot be taken is refused at once, and afterwards every utterance that was
accepted has exactly one outcome. That the store's own scripts survive a restart is tests/state.
"""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from edge.live_server import Client, Message, opus, until
from edge.many_servers import FREEZING, Company, Traveller, attempts, heard_all, play, spoken
from lingua_client.outcome_tracker import OutcomeTracker
from lingua_wire.to_client import MissingResult

pytestmark = pytest.mark.store


def once(client: Client | Traveller, count: int) -> None:
    """Fail unless every utterance was translated, once, in order."""
    assert client.outcomes() == [(index, "ok") for index in range(count)]


# It is gone for a while


def test_a_killed_store_takes_nothing_with_it() -> None:
    async def scenario(company: Company) -> None:
        node = await company["A"].node(max_jobs=64)
        clients: list[Client] = [
            await company["A"].client(), await company["B"].client(),
            await company["B"].old_client(),
        ]  # fmt: skip
        for client in clients:
            await client.utter(0)
        held = [await node.job() for _ in clients]
        company.store.kill()
        for name in "AB":
            assert await company[name].status("/livez") == 200
            await _until_status(company, name, 503)
        # Results that come meanwhile, and speech, are kept.
        for job in held:
            await node.answer(job, f"text {job['utterance_index']}")
        counts = [1 + await until_refused(client) for client in clients]
        assert all(count > 2 for count in counts)
        assert not any(client.ws.closed for client in (*clients, node))
        company.store.start()
        node.work()
        for client, count in zip(clients, counts, strict=True):
            await heard_all(client, count)
            once(client, count)
        for name in "AB":
            await _until_status(company, name, 200)
        assert len(attempts([node])) == sum(counts)
        await until(lambda: not company.leases(), "no lease is left")

    play(scenario, keeps=True, sessions__backlog_max=4)


async def until_refused(client: Client) -> int:
    """Utter after a first one that is under way until it is refused; count those that were not."""
    for index in range(1, 100):
        await client.utter(index)
        await client.ask("client_heartbeat", timestamp=index)
        await client.expect("server_heartbeat")
        for error in client.all("error"):
            if error.get("details") == {"utterance_index": index}:
                assert error["code"] == "SCHEDULER_DEPENDENCY_DOWN"
                assert error["retry_after_ms"] > 0
                return index - 1
    raise AssertionError("a hundred utterances are waiting")


async def _until_status(company: Company, name: str, wanted: int) -> None:
    async with asyncio.timeout(30):
        while await company[name].status("/readyz") != wanted:  # noqa: ASYNC110 it is asked
            await asyncio.sleep(0.02)


def test_a_speaker_is_told_that_the_store_is_away_and_loses_no_word() -> None:
    async def scenario(company: Company) -> None:
        node = await company["A"].node()
        node.work()
        client = await Traveller.at(company, "B")
        await client.say(opus(100, b"a"), is_final=True)
        await client.socket.result(0)
        company.store.kill()
        await client.say(opus(100, b"b"), is_final=True)
        told = await client.socket.expect("error", code="SCHEDULER_DEPENDENCY_DOWN")
        assert told["retry_after_ms"] > 0
        await client.say(opus(100, b"c"), is_final=True)
        company.store.start()
        await heard_all(client, 3)
        once(client, 3)
        assert spoken([node], client.id) == b"".join(audio for audio, _ in client.said)

    play(scenario, keeps=True)


def test_a_new_client_and_a_new_node_are_told_to_come_later() -> None:
    async def scenario(company: Company) -> None:
        company.store.kill()
        client = await company["A"].newcomer()
        await client.send("session_init", src_lang="zh", tgt_lang="en")
        told = await client.follows("error", code="SCHEDULER_DEPENDENCY_DOWN")
        assert told["retry_after_ms"] > 0
        company.store.start()
        while (await _ask_again(client)) == "error":  # noqa: ASYNC110 it is asked
            await asyncio.sleep(0.05)
        assert client.heard[-1]["type"] == "session_init_ack"

    play(scenario, keeps=True)


async def _ask_again(client: Client) -> str:
    await client.send("session_init", src_lang="zh", tgt_lang="en")
    return str((await client.next())["type"])


def test_a_frozen_store_is_a_store_that_is_away() -> None:
    async def scenario(company: Company) -> None:
        node = await company["A"].node()
        client = await company["B"].client()
        await client.utter(0)
        job = await node.job()
        company.store.pause()
        try:
            await node.answer(job, "text 0")
            await client.utter(1, request_id="r-1")
            await client.expect("error", code="SCHEDULER_DEPENDENCY_DOWN")
            await _until_status(company, "A", 503)
            assert await company["B"].status("/livez") == 200
        finally:
            company.store.resume()
        node.work()
        await client.utter(2)
        await heard_all(client, 3)
        once(client, 3)
        assert attempts([node]) == [1, 1, 1]
        # Nobody was taken for dead.
        assert not any(company[name].counted("instances_adopted_total") for name in "AB")

    play(scenario, **FREEZING)


# It forgot what it wrote last


def test_a_store_that_went_back_makes_positions_start_over_and_nothing_is_lost_or_doubled() -> None:
    async def scenario(company: Company) -> None:
        node = await company["A"].node()
        client = await Traveller.at(company, "B")

        async def utter(index: int) -> Message:
            await client.say(opus(100, bytes([65 + index])), is_final=True)
            await client.socket.expect("utterance_accepted", utterance_index=index)
            return await node.job(utterance_index=index)

        for index in range(4):
            await node.answer(await utter(index))
            await client.socket.result(index)
            if index == 1:
                copy = company.save()
        held = await utter(4)
        company.store.kill()
        company.put_back(copy)
        company.store.start()
        # It has never heard of 2, 3 and 4 now.
        reset = await client.socket.expect("session_reset")
        assert reset["epoch"] != client.sockets[0].ack["epoch"]
        # What it did for 4 counts, or it is asked to do it again.
        node.work()
        await node.answer(held)
        await client.socket.result(4)
        await client.say(opus(100), is_final=True)
        await client.socket.result(5)
        once(client, 6)
        await client.come_back("A")
        await client.say(opus(100), is_final=True)
        await client.socket.result(6)
        once(client, 7)

    play(scenario, keeps=True)


@pytest.mark.parametrize("forgotten", [1, 5])
def test_places_the_store_forgot_are_not_waited_for(forgotten: int) -> None:
    async def scenario(company: Company) -> None:
        node = await company["A"].node()
        node.work()
        client = await company["B"].client()
        await client.utter(0)
        await client.result(0)
        copy = company.save()
        for index in range(1, 1 + forgotten):
            await client.utter(index)
            await client.result(index)
        company.store.kill()
        company.put_back(copy)
        company.store.start()
        await client.expect("session_reset")
        # As if nothing had been: not after the time that a missing utterance is waited for.
        await client.utter(1 + forgotten)
        await client.result(1 + forgotten)
        once(client, 2 + forgotten)

    play(scenario, keeps=True, jobs__in_flight_max=2, jobs__gap_ms=20_000)


def test_a_job_that_had_moved_when_the_store_went_back_is_pushed_again() -> None:
    async def scenario(company: Company) -> None:
        nodes = [await company["A"].node("first")]
        client = await company["B"].client()
        copy = company.save()
        await client.utter(0)
        job = await nodes[0].job(attempt_id=1)
        nodes.append(await company["B"].node("second"))
        await nodes[0].fail(job, "PROCESSING_ERROR")
        await nodes[1].job(attempt_id=2)
        company.store.kill()
        company.put_back(copy)
        company.store.start()
        for node in nodes:
            node.work()
        await client.result(0)
        once(client, 1)

    play(scenario, keeps=True)


def test_a_job_that_ended_in_a_past_the_store_forgot_ends_once_for_its_client() -> None:
    async def scenario(company: Company) -> None:
        node = await company["A"].node()
        client = await company["B"].client()
        await client.utter(0)
        job = await node.job()
        copy = company.save()
        await node.answer(job, "text 0")
        await client.result(0)
        company.store.kill()
        company.put_back(copy)
        company.store.start()
        # The store believes that it still runs; the node reports it once more, as nodes do that
        # were not acknowledged.
        await client.expect("session_reset")
        await node.answer(job, "text 0")
        node.work()
        await client.utter(1)
        await client.result(1)
        once(client, 2)

    play(scenario, keeps=True)


def outcome(index: int, epoch: str, seq: int) -> MissingResult:
    """Return an outcome of the own session."""
    return MissingResult(
        session_id="s", utterance_index=index, reason="failed", created_at_ms=0, tgt_lang="en",
        epoch=epoch, seq=seq,
    )  # fmt: skip


def test_an_utterance_whose_number_the_store_gave_out_twice_is_heard() -> None:
    tracker = OutcomeTracker(1)
    tracker.begin_session("1")
    for index in range(6):
        assert tracker.record(outcome(index, "1", index + 1))
    # The store went back behind 4 and 5, and another instance goes on from there.
    tracker.reset_positions("2")
    tracker.forget_from("s", 4)
    assert [tracker.record(outcome(index, "2", index + 1)) for index in (3, 4)] == [False, True]


# It forgot everything


@pytest.mark.parametrize("how", ["flushall", "restart"])
def test_an_emptied_store_is_noticed_and_work_goes_on(how: str) -> None:
    async def scenario(company: Company) -> None:
        node = await company["A"].node("first")
        away = await company["B"].old_node("second")
        client = await Traveller.at(company, "B")
        old = await company["A"].old_client()
        await client.say(opus(100, b"a"), is_final=True)
        await client.socket.expect("utterance_accepted")
        await old.utter(0)
        await until(lambda: len(node.jobs) + len(away.jobs) == 2, "both are under way")
        if how == "flushall":
            company.ask("FLUSHALL")
        else:
            company.store.kill()
            company.store.start()
        reset = await client.socket.expect("session_reset", reason="store_lost")
        assert reset["epoch"] != client.sockets[0].ack["epoch"]
        for name in ("first", "second"):
            await until(partial(company.field, "node", name, "conn"), f"{name} is back")
        for peer in (node, away):
            await peer.beat()
            peer.work()
        await client.say(opus(100, b"b"), is_final=True)
        await old.utter(1)
        await heard_all(client, 2)
        await heard_all(old, 2)
        once(client, 2)
        once(old, 2)
        assert all(
            message["epoch"] == reset["epoch"] for message in client.heard if "seq" in message
        )
        # Letters find their way again, and so does a client that comes back.
        await client.come_back("A")
        await client.say(opus(100, b"c"), is_final=True)
        await client.socket.result(2)
        once(client, 3)

    play(scenario)


def test_a_client_that_was_away_while_the_store_was_emptied_goes_on_where_its_owner_lives() -> None:
    async def scenario(company: Company) -> None:
        node = await company["A"].node()
        node.work()
        client = await Traveller.at(company, "B")
        await client.say(opus(100), is_final=True)
        await client.socket.result(0)
        session = company["B"].server.instance.sessions[client.id]
        client.socket.drop()
        await until(lambda: session.notifier.outlet is None, "the loss is noticed")
        company.ask("FLUSHALL")
        await until(lambda: company.field("session", client.id, "epoch"), "its owner opened it")
        answer = await client.come_back("A")
        assert answer["reset"] is True
        assert answer["next_utterance_index"] == 1
        await client.say(opus(100), is_final=True)
        await client.socket.result(1, seq=1)

    play(scenario)
