"""The record of a job for operators: its attempts, its end, and why it has its node."""

from __future__ import annotations

import asyncio
from functools import wraps
from typing import TYPE_CHECKING

import pytest

import servers
from lingua_scheduler.jobs.requirement import Languages, PipelineStages, demand
from lingua_scheduler.nodes.capability import Declared, capability
from lingua_scheduler.state.job_record import JobRecord, PastAttempt
from lingua_scheduler.state.link import LinkOptions
from lingua_scheduler.state.records import JobSpec, NodeAbout, NodeBeat
from lingua_scheduler.state.reply import Reply
from lingua_scheduler.state.single import SingleConnection
from state.test_replies_produced import Scene, job

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

pytestmark = pytest.mark.store

START = 1_000_000
SPEECH = {"asr": (), "nmt": (), "tts": ()}
# Three pools that serve en>es and are equally broad, a narrower and a broader one.
ALIKE = tuple(
    capability(Declared(services=SPEECH, pairs=(("en", "es"), ("en", other))))
    for other in ("de", "it", "pt")
)
NARROW = capability(Declared(services=SPEECH, pairs=(("en", "es"),)))
EN_ES = demand(Languages("en", "es"), PipelineStages()).text
EN_AND_MORE_ES = demand(Languages("auto", "es", auto=("en",)), PipelineStages()).text


def scene(test: Callable[[Scene], Awaitable[None]]) -> Callable[[Path], None]:
    """Run a test against a server of its own."""

    @wraps(test)
    def run(tmp_path: Path) -> None:
        async def whole(address: servers.Address) -> None:
            connection = await SingleConnection.open(address, LinkOptions(call_timeout_ms=10_000))
            try:
                made = Scene(connection)
                made.under(attempts_max=3, in_flight_max=64, outbox_max=64)
                await made.session()
                await test(made)
            finally:
                await connection.close()

        with servers.start_server(tmp_path) as server:
            asyncio.run(whole(server.address))

    del run.__wrapped__
    return run


async def record(s: Scene, index: int = 0) -> JobRecord:
    found = await s.store.jobs.show(s.cell, job(index))
    assert found is not None
    return found


async def enter(s: Scene, name: str, can: object, slots: int = 8) -> None:
    about = NodeAbout(instance="i", max=slots, silence_ms=600_000)
    packed = can.packed()  # type: ignore[attr-defined]
    await s.store.nodes.register(s.cell, name, "b", conn="c", can=packed, about=about)
    await s.store.nodes.beat(s.cell, name, "b", NodeBeat())


# The record.


@scene
async def test_a_job_is_shown_while_a_node_has_it(s: Scene) -> None:
    await s.node()
    await s.submit()
    shown = await record(s)
    assert (shown.state, shown.attempt, shown.node, shown.outcome) == ("CREATED", 1, "n", "")
    assert (shown.created_at_ms, shown.placed_at_ms) == (START, START)
    assert shown.ends_at_ms == START + 30_000
    assert shown.past == ()
    assert (shown.spec.session, shown.spec.index, shown.spec.lane) == ("s", 0, "es")
    assert shown.is_owned


@scene
async def test_a_job_is_shown_after_its_end_with_every_attempt(s: Scene) -> None:
    for name in ("a", "b"):
        await s.node(name)
    first = (await s.submit()).placement.node
    second = {"a": "b", "b": "a"}[first]
    s.store.runner.now_ms += 100
    await s.fail(reason="NMT_TIMEOUT")
    s.store.runner.now_ms += 50
    assert (await s.fail(attempt=2, reason="node_lost")).reply is Reply.PLACED
    s.store.runner.now_ms += 7
    await s.settle(attempt=3, node=second, kind="failed")
    shown = await record(s)
    assert (shown.state, shown.outcome, shown.attempt, shown.node) == (
        "RELEASED", "failed", 3, second,
    )  # fmt: skip
    assert shown.past == (
        PastAttempt(1, first, START, START + 100, "NMT_TIMEOUT"),
        PastAttempt(2, second, START + 100, START + 150, "node_lost"),
    )
    assert (shown.created_at_ms, shown.placed_at_ms) == (START, START + 150)
    assert shown.ended_at_ms == START + 157


@scene
async def test_a_job_that_waited_in_vain_says_since_when_and_why(s: Scene) -> None:
    await s.submit()
    s.store.runner.now_ms += 10_000
    await s.fail(attempt=0, reason="deadline")
    shown = await record(s)
    assert (shown.outcome, shown.reason, shown.node) == ("expired", "pending_timeout", "")
    assert (shown.created_at_ms, shown.placed_at_ms, shown.ended_at_ms) == (
        START,
        0,
        START + 10_000,
    )


@scene
async def test_a_job_that_is_gone_is_not_shown(s: Scene) -> None:
    assert await s.store.jobs.show(s.cell, job(7)) is None


@scene
async def test_an_utterances_jobs_are_found_until_their_outcomes_are_out(s: Scene) -> None:
    await s.node(slots=4)
    for index in range(2):
        await s.submit(index)
    await s.settle(1)  # its outcome waits for the one before it
    assert await s.store.jobs.find(s.cell, "s", 0) == (job(0),)
    assert await s.store.jobs.find(s.cell, "s", 1) == (job(1),)
    await s.settle(0)
    assert await s.store.jobs.find(s.cell, "s", 1) == ()
    assert await s.store.jobs.find(s.cell, "nobody", 1) == ()


# Why this node.


@scene
async def test_a_placement_says_by_which_rule_it_has_its_node(s: Scene) -> None:
    await enter(s, "narrow", NARROW, slots=2)
    await enter(s, "broad", ALIKE[0])
    by_pool = (await s.submit(0)).placement
    assert (by_pool.node, by_pool.how, len(by_pool.pool)) == ("narrow", "pool", 12)
    turned = (await s.submit(1, turn="t", is_slice=True)).placement
    assert (turned.node, turned.how) == ("narrow", "pool")
    fallen = (await s.submit(2)).placement
    assert (fallen.node, fallen.how) == ("broad", "fallback")
    assert fallen.pool != by_pool.pool
    named = (await s.submit(3, preferred="broad")).placement
    assert (named.node, named.how) == ("broad", "preferred")
    await s.settle(0, node="narrow")
    again = (await s.submit(4, turn="t")).placement
    assert (again.node, again.how) == ("narrow", "turn")


@scene
async def test_what_was_looked_at_is_told_only_if_the_policy_explains(s: Scene) -> None:
    await enter(s, "a", ALIKE[0], slots=1)
    await enter(s, "b", ALIKE[1], slots=1)
    assert (await s.submit(0)).placement.looked == ()
    s.under(explains=True, attempts_max=3, in_flight_max=64, outbox_max=64)
    second = (await s.submit(1)).placement
    seen = {line.split(" ")[1]: line.split(" ")[2] for line in second.looked}
    full = ({"a", "b"} - {second.node}).pop()
    assert int(seen[second.node]) < 2_000_000_000 == int(seen[full])
    refused = await s.submit(2)
    assert (refused.reply, refused.label) == (Reply.QUEUED, "capacity_exceeded")
    assert {line.split(" ")[1] for line in refused.looked} == {"a", "b"}
    moved = (await s.fail(1)).label
    assert moved == "capacity_exceeded"


# A session stays with its pool.


async def places(s: Scene, start: int, count: int, wanted: str = EN_ES) -> list[str]:
    """Say one utterance after the other, each done before the next; return the nodes."""
    found = []
    for index in range(start, start + count):
        spec = JobSpec(session="s", index=index, lane="es", demand=wanted)
        placement = (await s.store.jobs.submit(s.cell, job(index), spec, b"")).placement
        await s.settle(index, node=placement.node)
        found.append(placement.node)
    return found


@scene
async def test_a_session_stays_with_the_pool_that_served_its_languages_last(s: Scene) -> None:
    for name, can in zip("abc", ALIKE, strict=True):
        await enter(s, name, can)
    assert len(set(await places(s, 0, 12))) == 1


@scene
async def test_without_the_setting_chance_decides_each_time(s: Scene) -> None:
    s.under(sticky_pools=False, in_flight_max=64, outbox_max=64)
    for name, can in zip("abc", ALIKE, strict=True):
        await enter(s, name, can)
    assert len(set(await places(s, 0, 12))) > 1


@scene
async def test_a_pool_that_is_clearly_more_loaded_is_left(s: Scene) -> None:
    for name, can in zip("ab", ALIKE[:2], strict=True):
        await enter(s, name, can, slots=16)
    (kept,) = set(await places(s, 0, 1))
    nodes = [(await s.submit(index)).placement.node for index in range(1, 7)]
    # Three of sixteen slots are no reason to go, five are.
    assert nodes[:4] == [kept] * 4
    assert set(nodes[4:]) != {kept}


@scene
async def test_other_languages_have_a_pool_of_their_own(s: Scene) -> None:
    for name, can in zip("abc", ALIKE, strict=True):
        await enter(s, name, can)
    await places(s, 0, 1)
    before = await s.connection.command(0, "HGET", s.cell.key("session", "s"), "pool:es")
    assert before.decode().startswith("en>es ")
    await places(s, 1, 1, EN_AND_MORE_ES)
    after = await s.connection.command(0, "HGET", s.cell.key("session", "s"), "pool:es")
    assert after.decode().split(" ")[0] == EN_AND_MORE_ES.split("|")[0]


@scene
async def test_specialists_come_first_whatever_served_last(s: Scene) -> None:
    for name, can in zip("ab", ALIKE[:2], strict=True):
        await enter(s, name, can)
    await places(s, 0, 2)
    await enter(s, "narrow", NARROW)
    assert await places(s, 2, 2) == ["narrow", "narrow"]
