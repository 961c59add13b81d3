"""Somebody sets a clock while people speak: the store's, or that of a machine of ours.

Steps of minutes cost seconds: nobody who lives is given up, who died is found as soon as ever, and
what was accepted has its outcome. Scripts are told the time of a clock that the test sets
(`clocks.Steps`); the scripts, the store, the instances and everyone's sockets are real.
"""

from __future__ import annotations

import time

import pytest

from clocks import Steps
from edge.live_server import pcm16, until
from edge.many_servers import Company, Traveller, heard_all, play

pytestmark = pytest.mark.store

FORWARD_MS = 200_000
# Longer than any condition is waited for: what waits for the time that was cannot pass.
BACK_MS = -600_000
# The product's own: at these steps nothing may hang on short times.
USUAL = {"instances__silence_ms": 4000}
# What a node that hangs or is silent costs is a matter of seconds.
HASTY = {"jobs__attempt_ms": 2500, "nodes__silence_ms": 2500}


def under(company: Company, *names: str) -> Steps:
    """Return the clock by which these instances live from now on."""
    steps = Steps()
    for name in names:
        steps.rule(company[name].server.instance._connection)
    return steps


async def until_looked_at(company: Company, *names: str) -> None:
    """Wait until every instance has acted on whatever the time has become, several times."""
    counted = {name: company[name].server.instance.peers.presence for name in names}
    first = {name: presence.view for name, presence in counted.items()}
    for name, presence in counted.items():
        for _ in range(3):
            seen = presence.view
            await until(lambda presence=presence, seen=seen: presence.view is not seen, "a beat")
        assert presence.view is not first[name]


@pytest.mark.parametrize("step_ms", [FORWARD_MS, 86_400_000, BACK_MS])
def test_a_step_of_the_stores_clock_costs_nobody_a_session_or_speech(step_ms: int) -> None:
    async def scenario(company: Company) -> None:
        await company.until_met()
        steps = under(company, "A", "B")
        node = await company["A"].node(max_jobs=1)
        here, there = [await company[name].client() for name in "AB"]
        for client in (here, there):
            await client.utter(0)
        first = await node.job()
        await node.take(first)
        await until(lambda: company.ask("ZCARD", company.key("pending")) == 1, "the other waits")

        steps.ahead_ms = step_ms
        await until_looked_at(company, "A", "B")
        for name in "AB":
            view = company[name].server.instance.peers.presence.view
            assert view is not None
            assert (sorted(view.alive), view.dead) == (["A", "B"], ())
            assert company[name].counted("instances_adopted_total") == 0
        for client in (here, there):
            assert client.outcomes() == []
            assert company.field("session", client.id, "closed") == ""

        await node.answer(first)
        await node.answer(await node.job())
        for client in (here, there):
            await client.result(0)
            await client.utter(1)
            await node.answer(await node.job(utterance_index=1, session_id=client.id))
            await client.result(1)
            assert client.outcomes() == [(0, "ok"), (1, "ok")]
            await client.bye()
        assert not company.leases()

    play(scenario, **USUAL)


@pytest.mark.parametrize("step_ms", [FORWARD_MS, BACK_MS])
def test_an_instance_that_dies_at_a_step_is_found_as_soon_as_ever(step_ms: int) -> None:
    async def scenario(company: Company) -> None:
        await company.until_met()
        steps = under(company, "A", "B")
        lost = await company["A"].node("lost")
        client = await company["B"].client()
        gone = await Traveller.at(company, "A")
        for speaker in (client, gone.socket):
            await speaker.utter(0)
            job = await lost.job(session_id=speaker.id)
            await lost.take(job)

        steps.ahead_ms = step_ms
        await company["A"].crash()
        began = time.monotonic()
        refuge = await company["B"].node("refuge")
        for speaker in (client, gone.socket):
            await refuge.answer(await refuge.job(session_id=speaker.id, attempt_id=2))
        await client.result(0)
        await until(lambda: company["B"].counted("instances_adopted_total") == 1, "adopted")
        await gone.come_back("B")
        await heard_all(gone, 1)
        print(f"all outcomes and the adoption after {time.monotonic() - began:.1f} s")
        assert client.outcomes() == gone.outcomes() == [(0, "ok")]
        await client.bye()

    play(scenario, **USUAL)


@pytest.mark.parametrize("step_ms", [FORWARD_MS, BACK_MS])
def test_timers_ring_when_they_would_have_without_the_step(step_ms: int) -> None:
    """A node that hangs, one that falls silent: their jobs move on in a moment, not in minutes."""

    async def scenario(company: Company) -> None:
        steps = under(company, "A")
        silent = await company["A"].node()
        client = await company["A"].client()
        await client.utter(0)
        await silent.take(await silent.job())
        steps.ahead_ms = step_ms
        other = await company["A"].node()
        await other.answer(await other.job(utterance_index=0, attempt_id=2))
        await client.result(0)
        await until(
            lambda: company.field("node", silent.id, "status") == "offline", "the silence is heard"
        )

    play(scenario, "A", **HASTY)


def test_a_clock_that_is_set_again_and_again_adds_no_time() -> None:
    async def scenario(company: Company) -> None:
        steps = under(company, "A")
        node = await company["A"].node()
        client = await company["A"].client()
        for index, step_ms in enumerate((FORWARD_MS, BACK_MS, 0, -3600, FORWARD_MS, 5000)):
            await client.utter(index)
            job = await node.job(utterance_index=index)
            steps.ahead_ms = step_ms
            await until_looked_at(company, "A")
            await node.beat()
            await node.answer(job)
            await client.result(index)
        assert client.outcomes() == [(index, "ok") for index in range(6)]

    play(scenario, "A", **USUAL)


@pytest.mark.parametrize("step_s", [200, -3600])
def test_nothing_hangs_on_the_clock_of_an_instance(
    step_s: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, ahead = time.time, [0]
    monkeypatch.setattr(time, "time", lambda: real() + ahead[0])

    async def scenario(company: Company) -> None:
        await company.until_met()
        node = await company["A"].node()
        client = await company["B"].client()
        await client.say(pcm16(300))
        ahead[0] = step_s
        await client.say(pcm16(300), is_final=True)
        await node.answer(await node.job(utterance_index=0))
        first = await client.result(0)
        ahead[0] = 0
        await client.utter(1)
        await node.answer(await node.job(utterance_index=1), "again")
        second = await client.result(1)
        assert (first["group_id"], second["part_index"]) == (second["group_id"], 1)
        await until_looked_at(company, "A", "B")
        assert client.outcomes() == [(0, "ok"), (1, "ok")]
        view = company["A"].server.instance.peers.presence.view
        assert view is not None
        assert view.dead == ()

    play(scenario, **USUAL)
