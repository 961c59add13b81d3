"""Jobs over several cells: placement, holders and ends.

Every scenario runs on one server with three cells (`test_cells_on_cluster.py` runs some again on a
cluster of three masters) and ends with `settle_down`: no slot is held anywhere, and each admitted
utterance has exactly one outcome, in order. Turns are in `test_dispatcher_turns.py`, and what
happens when an instance dies on the way in `test_dispatcher_crashes.py`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from jobs.deployment import BOTH, FRENCH, SERVICES, TO_FRENCH, TO_SPANISH, Deployment, scenario
from lingua_scheduler.jobs.requirement import Languages, PipelineStages, demand
from lingua_scheduler.nodes.capability import Declared, capability
from lingua_scheduler.state.records import Cancelled, Lease
from lingua_scheduler.state.reply import Reply

if TYPE_CHECKING:
    from lingua_scheduler.jobs.dispatcher import Work
    from lingua_scheduler.state.keys import Cell
    from lingua_scheduler.state.records import Placement

pytestmark = pytest.mark.store


# Where a job goes.


@scenario()
async def test_a_job_its_home_cell_can_serve_costs_one_call(d: Deployment) -> None:
    home, other, _ = d.cells.all
    node = await d.ready_node(home)
    await d.ready_node(other)
    speaker = await d.speaker(home)
    d.store.called()
    placement = await speaker.placed(0)
    assert (placement.node, placement.cell, placement.attempt) == (node, home.name, 1)
    assert d.store.called() == [("job_submit", home.name)]
    settled, work = await speaker.settle(placement)
    assert settled.reply is Reply.SETTLED
    assert [row.utterance for delivery in work.deliver for row in delivery.released] == [0]
    assert d.store.called() == [("job_settle", home.name)]


@scenario()
async def test_a_job_its_home_cannot_serve_is_held_in_another_cell(d: Deployment) -> None:
    home, other, _ = d.cells.all
    node = await d.ready_node(other)
    speaker = await d.speaker(home)
    d.store.called()
    placement = await speaker.placed(0)
    assert (placement.node, placement.cell, placement.attempt) == (node, other.name, 1)
    assert d.store.called() == [
        ("job_submit", home.name),
        ("lease_reserve", other.name),
        ("job_commit", home.name),
        ("lease_confirm", other.name),
    ]
    # The slot is not the short one of the reservation any more.
    lease = Lease(placement.job, 1, home.name).member
    until = placement.ends_at_ms + d.policy.lease_grace_ms
    assert await d.leases(other) == {node: {lease: until}}
    assert placement.ends_at_ms == d.now_ms + d.policy.attempt_ms
    await speaker.settle(placement)


@scenario()
async def test_what_is_released_with_an_outcome_has_its_own_words(d: Deployment) -> None:
    home = d.cells.all[0]
    await d.ready_node(home)
    await d.ready_node(home)
    speaker = await d.speaker(home)
    first, second = await speaker.placed(0), await speaker.placed(1)
    delivered = [
        row
        for placement, payload in ((second, b"the second\nof two"), (first, b"the first"))
        for delivery in (await say(d, home, placement, payload)).deliver
        for row in delivery.released
    ]
    assert [row.payload for row in delivered] == [b"the first", b"the second\nof two"]
    assert tuple(delivered) == await speaker.outcomes()


async def say(d: Deployment, home: Cell, placement: Placement, payload: bytes) -> Work:
    """End a job with a result."""
    _, work = await d.dispatcher.settle(
        home, placement.job, placement.attempt, placement.node, kind="completed", payload=payload
    )
    return work


@scenario()
async def test_settling_gives_the_foreign_slot_back_and_forgets_the_reminder(
    d: Deployment,
) -> None:
    home, other, _ = d.cells.all
    node = await d.ready_node(other)
    speaker = await d.speaker(home)
    placement = await speaker.placed(0)
    d.store.called()
    await speaker.settle(placement)
    steps = [("job_settle", home.name), ("lease_release", other.name), ("cell_done", home.name)]
    assert d.store.called()[:3] == steps
    assert await d.leased() == set()
    assert await d.timers() == {}
    again = await speaker.placed(1)
    assert again.node == node
    await speaker.settle(again)


@scenario()
async def test_a_preferred_node_in_another_cell_comes_before_a_free_one_at_home(
    d: Deployment,
) -> None:
    home, other, _ = d.cells.all
    near, preferred = await d.ready_node(home), await d.ready_node(other)
    speaker = await d.speaker(home)
    first = await speaker.placed(0, preferred=preferred)
    assert (first.node, first.cell) == (preferred, other.name)
    # It has one slot: a second job takes the node at home, and loses nothing.
    second = await speaker.placed(1, preferred=preferred)
    assert (second.node, second.attempt) == (near, 1)
    await speaker.settle(second)
    await speaker.settle(first)


@scenario()
async def test_a_preferred_node_that_cannot_do_the_work_is_not_given_it(d: Deployment) -> None:
    home, other, third = d.cells.all
    french, able = await d.ready_node(other, can=FRENCH), await d.ready_node(third)
    speaker = await d.speaker(home)
    placement = await speaker.placed(0, preferred=french)
    assert placement.node == able
    await speaker.settle(placement)


@scenario()
async def test_a_session_reaches_the_private_node_it_is_paired_with_in_another_cell(
    d: Deployment,
) -> None:
    home, other, _ = d.cells.all
    private = capability(Declared(services=SERVICES, pairs=(("en", "es"),), private_to="acme"))
    node = await d.ready_node(other, can=private)
    paired = demand(Languages("en", "es"), PipelineStages(), paired=node).text
    speaker, stranger = await d.speaker(home), await d.speaker(home)
    placement = await speaker.placed(0, wanted=paired, preferred=node)
    assert placement.node == node
    await speaker.settle(placement)
    refused, _ = await stranger.submit(0, preferred=node)
    assert refused.reply is Reply.QUEUED


@scenario()
async def test_cells_that_cannot_serve_a_job_are_not_asked(d: Deployment) -> None:
    home, other, third = d.cells.all
    await d.ready_node(other, can=FRENCH)
    node = await d.ready_node(third)
    speaker = await d.speaker(home)
    d.store.called()
    placement = await speaker.placed(0)
    assert placement.node == node
    assert other.name not in {cell for _, cell in d.store.called()}
    await speaker.settle(placement)


# Waiting.


@scenario()
async def test_a_job_nobody_can_take_waits_at_home_and_gets_the_next_foreign_slot(
    d: Deployment,
) -> None:
    home, other, _ = d.cells.all
    node = await d.ready_node(other)
    speaker = await d.speaker(home)
    first = await speaker.placed(0)
    waits, work = await speaker.submit(1)
    assert (waits.reply, work.push) == (Reply.QUEUED, [])
    _, work = await speaker.settle(first)
    (placement,) = work.push
    assert (placement.job, placement.node, placement.attempt) == (speaker.job(1), node, 1)
    until = placement.ends_at_ms + d.policy.lease_grace_ms
    assert list((await d.leases(other))[node].values()) == [until]
    await speaker.settle(placement)


@scenario()
async def test_a_slot_given_back_serves_the_jobs_of_its_own_cell_first(d: Deployment) -> None:
    home, other, _ = d.cells.all
    node = await d.ready_node(other)
    speaker, local = await d.speaker(home), await d.speaker(other)
    first = await speaker.placed(0)
    await speaker.submit(1)
    await local.submit(0)
    _, work = await speaker.settle(first)
    (placement,) = work.push
    assert (placement.job, placement.node) == (local.job(0), node)
    await local.settle(placement)


@scenario(pending_jobs_max=1)
async def test_a_full_queue_ends_a_job_of_many_cells_with_an_outcome(d: Deployment) -> None:
    home, other, _ = d.cells.all
    await d.ready_node(other)
    speaker = await d.speaker(home)
    first = await speaker.placed(0)
    assert (await speaker.submit(1))[0].reply is Reply.QUEUED
    refused, work = await speaker.submit(2)
    assert refused.reply is Reply.SETTLED
    assert work.deliver == []
    await speaker.settle(first)
    await d.settle_down()
    assert [(i, kind) for i, kind, _ in await speaker.told()][2] == (2, "failed")


# Moving on.


@scenario()
async def test_a_job_whose_foreign_node_is_lost_moves_and_its_old_result_is_refused(
    d: Deployment,
) -> None:
    home, other, third = d.cells.all
    lost = await d.ready_node(other)
    speaker = await d.speaker(home)
    first = await speaker.placed(0)
    assert first.node == lost
    refuge = await d.ready_node(third)
    answer, work = await d.dispatcher.node_lost(lost, "conn-b1")
    assert (answer.reply, [lease.home for lease in answer.lost]) == (Reply.OK, [home.name])
    (second,) = work.push
    assert (second.node, second.attempt) == (refuge, 2)
    assert {node for node, _ in await d.leased()} == {refuge}
    late, _ = await speaker.settle(first)
    assert (late.reply, late.current_attempt) == (Reply.STALE_ATTEMPT, 2)
    assert await speaker.outcomes() == ()
    await speaker.settle(second)


@scenario()
async def test_a_lost_node_gives_back_local_and_foreign_slots_alike(d: Deployment) -> None:
    home, other, third = d.cells.all
    lost = await d.ready_node(other, slots=2)
    local, foreign = await d.speaker(other), await d.speaker(home)
    assert (await local.placed(0)).node == (await foreign.placed(0)).node == lost
    refuge = await d.ready_node(third, slots=2)
    _, work = await d.dispatcher.node_lost(lost, "conn-b1")
    assert {(p.job, p.node, p.attempt) for p in work.push} == {
        (local.job(0), refuge, 2),
        (foreign.job(0), refuge, 2),
    }
    assert {node for node, _ in await d.leased()} == {refuge}
    by_job = {placement.job: placement for placement in work.push}
    for speaker in (local, foreign):
        await speaker.settle(by_job[speaker.job(0)])


@scenario(attempts_max=2)
async def test_a_job_that_fails_on_foreign_nodes_too_often_ends_as_failed(d: Deployment) -> None:
    home, other, third = d.cells.all
    await d.ready_node(other)
    await d.ready_node(third)
    speaker = await d.speaker(home)
    first = await speaker.placed(0)
    moved, work = await d.dispatcher.failover(home, first.job, 1, reason="node_error")
    assert moved.reply is Reply.PARKED
    (second,) = work.push
    assert (second.attempt, second.node == first.node) == (2, False)
    moved, work = await d.dispatcher.failover(home, first.job, 2, reason="node_error")
    assert (moved.reply, work.push) == (Reply.SETTLED, [])
    assert await d.leased() == set()
    assert await speaker.told() == [(0, "failed", "node_error")]


@scenario()
async def test_the_lease_of_a_job_that_is_not_there_is_only_given_back(d: Deployment) -> None:
    home, other, _ = d.cells.all
    node = await d.ready_node(other, slots=2)
    lease = Lease("job-00000000000000000000000000000000", 1, home.name)
    slot = await d.store.leases.reserve(other, lease, TO_SPANISH)
    assert (slot.reply, slot.node) == (Reply.RESERVED, node)
    await d.store.leases.confirm(other, node, lease, 60_000)
    _, work = await d.dispatcher.node_lost(node, "conn-b1")
    assert (work.push, work.deliver, work.stop) == ([], [], [])
    assert await d.leased() == set()


# Ending early.


@scenario()
async def test_cancelling_a_foreign_job_tells_who_must_stop(d: Deployment) -> None:
    home, other, _ = d.cells.all
    node = await d.ready_node(other)
    speaker = await d.speaker(home)
    placement = await speaker.placed(0)
    settled, work = await d.dispatcher.cancel(home, placement.job, "unwanted")
    assert settled.reply is Reply.SETTLED
    assert work.stop == [Cancelled(placement.job, 1, other.name, node)]
    assert await d.leased() == set()
    late, _ = await speaker.settle(placement)
    assert (late.reply, late.outcome) == (Reply.JOB_ENDED, "cancelled")
    again, work = await d.dispatcher.cancel(home, placement.job, "unwanted")
    assert (again.reply, work.stop) == (Reply.JOB_ENDED, [])


@scenario()
async def test_closing_a_session_ends_its_jobs_in_every_cell(d: Deployment) -> None:
    home, other, third = d.cells.all
    nodes = [await d.ready_node(cell) for cell in (home, other, third)]
    speaker, other_speaker = await d.speaker(home), await d.speaker(home)
    placements = [await speaker.placed(index) for index in range(3)]
    assert {placement.node for placement in placements} == set(nodes)
    await speaker.submit(3)
    await other_speaker.submit(0)
    _, work = await d.dispatcher.close_session(home, speaker.session, "left")
    assert {(told.job, told.cell, told.node) for told in work.stop} == {
        (placement.job, placement.cell, placement.node) for placement in placements
    }
    # Whoever waits takes a slot that became free.
    (placement,) = work.push
    assert placement.job == other_speaker.job(0)
    assert len(await d.leased()) == 1
    await other_speaker.settle(placement)
    assert await speaker.told() == [(index, "cancelled", "left") for index in range(4)]


# Two callers.


@scenario()
async def test_a_repeated_submit_of_a_parked_job_finds_the_first(d: Deployment) -> None:
    home, other, _ = d.cells.all
    await d.ready_node(other, slots=2)
    speaker = await d.speaker(home)
    found = []

    async def repeat() -> None:
        found.append(await speaker.submit(0))

    d.store.before("lease_reserve", repeat)
    placement = await speaker.placed(0)
    ((duplicate, work),) = found
    assert (duplicate.reply, duplicate.attempt, duplicate.node) == (Reply.DUPLICATE, 0, "")
    assert work.push == []
    assert len(await d.leased()) == 1
    await speaker.settle(placement)
    after, _ = await speaker.submit(0)
    assert (after.reply, after.outcome, after.seq) == (Reply.DUPLICATE, "completed", 1)


@scenario()
async def test_a_foreign_slot_is_given_back_when_a_node_at_home_was_faster(d: Deployment) -> None:
    home, other, _ = d.cells.all
    speaker = await d.speaker(home)
    assert (await speaker.submit(0))[0].reply is Reply.QUEUED
    foreign, near = await d.ready_node(other), d.node_name(home)
    await d.register(near)
    placed: list[Placement] = []

    async def become_ready() -> None:
        placed.extend((await d.beat(near)).placed)

    d.store.before("job_commit", become_ready)
    d.store.called()
    work = await d.dispatcher.offer_waiting(home)
    assert work.push == []
    assert ("lease_release", other.name) in d.store.called()
    (placement,) = placed
    assert (placement.node, placement.attempt) == (near, 1)
    assert {node for node, _ in await d.leased()} == {near}
    free = await d.speaker(other)
    assert (await free.placed(0)).node == foreign
    await speaker.settle(placement)


@scenario()
async def test_two_instances_that_offer_one_job_take_one_slot(d: Deployment) -> None:
    home, other, _ = d.cells.all
    speaker = await d.speaker(home)
    await speaker.submit(0)
    nodes = {await d.ready_node(other) for _ in range(3)}
    second = d.instance()
    works = await asyncio.gather(
        d.dispatcher.offer_waiting(home), second.dispatcher.offer_waiting(home)
    )
    (placement,) = {placement for work in works for placement in work.push}
    assert placement.node in nodes
    assert {node for node, _ in await d.leased()} == {placement.node}
    settled = await asyncio.gather(speaker.settle(placement), speaker.settle(placement))
    assert sorted(answer.reply for answer, _ in settled) == [Reply.SETTLED, Reply.ALREADY]


# Large tenants.


@scenario(cells=5)
async def test_a_large_tenant_is_spread_over_cells_and_each_session_is_served(
    d: Deployment,
) -> None:
    for cell in d.cells.all[:2]:
        await d.ready_node(cell, can=BOTH, slots=20)
    names = [f"talk-{number}" for number in range(30)]
    homes = {name: d.cells.home_of("acme", name, spread=3) for name in names}
    first = d.cells.all.index(d.cells.home_of("acme"))
    expected = {d.cells.all[(first + step) % 5] for step in range(3)}
    assert set(homes.values()) == expected
    speakers = [await d.speaker(homes[name], name) for name in names]
    placements = [await speaker.placed(0) for speaker in speakers]
    extra = await speakers[0].placed(0, "fr", wanted=TO_FRENCH)
    for speaker, placement in zip(speakers, placements, strict=True):
        await speaker.settle(placement)
    await speakers[0].settle(extra)


@scenario()
async def test_without_spreading_all_sessions_of_a_tenant_share_a_cell(d: Deployment) -> None:
    homes = {d.cells.home_of("acme", f"talk-{number}") for number in range(30)}
    assert homes == {d.cells.home_of("acme")}
