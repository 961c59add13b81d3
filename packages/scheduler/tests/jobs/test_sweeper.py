"""Due timers are acted on by any instance: deadlines, silence, fences, offers, abandoned slots.

Every scenario runs on one server with three cells and ends with `settle_down`: no slot is held
anywhere, and each admitted utterance has exactly one outcome, in order.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from jobs.deployment import TO_FRENCH, Deployment, scenario
from lingua_scheduler.jobs import sweeper as sweeping
from lingua_scheduler.state.records import Lease
from lingua_scheduler.state.reply import Reply

if TYPE_CHECKING:
    from lingua_scheduler.jobs.dispatcher import Work

pytestmark = pytest.mark.store


def delivered(work: Work) -> list[tuple[int, str]]:
    """Utterance and kind of every outcome to be sent, in the order of their numbers."""
    rows = [row for delivery in work.deliver for row in delivery.released]
    return [(row.utterance, row.kind) for row in sorted(rows, key=lambda row: row.seq)]


# Jobs that wait.


@scenario()
async def test_waiting_jobs_expire_in_order_with_an_outcome_each(d: Deployment) -> None:
    home = d.cells.all[0]
    speaker = await d.speaker(home)
    for index in range(5):
        assert (await speaker.submit(index))[0].reply is Reply.QUEUED
        d.advance(10)
    d.advance(d.policy.pending_ms - 51)
    assert (await d.sweep()).deliver == []
    d.advance(1)
    assert delivered(await d.sweep()) == [(0, "expired")]
    d.advance(40)
    assert delivered(await d.sweep()) == [(index, "expired") for index in range(1, 5)]
    assert {reason for _, _, reason in await speaker.told()} == {"pending_timeout"}


@scenario()
async def test_an_expired_job_is_told_after_the_one_before_it(d: Deployment) -> None:
    home, other, _ = d.cells.all
    await d.ready_node(other)
    speaker = await d.speaker(home)
    first = await speaker.placed(0)
    for index in (1, 2):
        await speaker.submit(index)
    d.advance(d.policy.pending_ms)
    assert (await d.sweep()).deliver == []
    _, work = await speaker.settle(first)
    assert delivered(work) == [(0, "completed"), (1, "expired"), (2, "expired")]


@scenario()
async def test_a_foreign_node_that_becomes_ready_is_found_by_the_sweeps_offer(
    d: Deployment,
) -> None:
    home, _, third = d.cells.all
    speaker = await d.speaker(home)
    assert (await speaker.submit(0))[0].reply is Reply.QUEUED
    node = await d.ready_node(third)
    (placement,) = (await d.sweeper.sweep(home)).push
    assert (placement.node, placement.attempt) == (node, 1)
    until = placement.ends_at_ms + d.policy.lease_grace_ms
    assert list((await d.leases(third))[node].values()) == [until]
    await speaker.settle(placement)


@scenario()
async def test_a_slot_freed_by_a_foreign_cells_own_job_is_found_by_the_sweeps_offer(
    d: Deployment,
) -> None:
    home, other, _ = d.cells.all
    node = await d.ready_node(other)
    speaker, local = await d.speaker(home), await d.speaker(other)
    taken = await local.placed(0)
    assert (await speaker.submit(0))[0].reply is Reply.QUEUED
    _, work = await local.settle(taken)
    assert work.push == []
    (placement,) = (await d.sweep()).push
    assert (placement.job, placement.node) == (speaker.job(0), node)
    await speaker.settle(placement)


@scenario()
async def test_the_earliest_deadline_is_offered_first_over_all_demands(d: Deployment) -> None:
    home, other, third = d.cells.all
    speaker = await d.speaker(home)
    for index in range(3):
        await speaker.submit(index)
        d.advance(1)
    await speaker.submit(0, "fr", wanted=TO_FRENCH)
    await d.ready_node(other)
    await d.ready_node(third)
    pushed = (await d.sweep()).push
    assert [placement.job for placement in pushed] == [speaker.job(0), speaker.job(1)]
    for placement in pushed:
        await speaker.settle(placement)


# Attempts.


@scenario()
async def test_an_attempt_that_takes_too_long_moves_to_another_cell(d: Deployment) -> None:
    home, other, third = d.cells.all
    slow = await d.ready_node(other)
    speaker = await d.speaker(home)
    first = await speaker.placed(0)
    refuge = await d.ready_node(third)
    d.advance(d.policy.attempt_ms - 1)
    assert (await d.sweep()).push == []
    d.advance(1)
    (second,) = (await d.sweep()).push
    assert (first.node, second.node, second.attempt) == (slow, refuge, 2)
    assert {node for node, _ in await d.leased()} == {refuge}
    late, _ = await speaker.settle(first)
    assert late.reply is Reply.STALE_ATTEMPT
    await speaker.settle(second)


@scenario()
async def test_a_job_that_no_attempt_ends_is_told_as_failed(d: Deployment) -> None:
    home, other, third = d.cells.all
    for cell in (home, other, third):
        await d.ready_node(cell)
    speaker = await d.speaker(home)
    await speaker.placed(0)
    nodes = set()
    for _ in range(d.policy.attempts_max):
        nodes |= {node for node, _ in await d.leased()}
        d.advance(d.policy.attempt_ms)
        await d.sweep()
    assert len(nodes) == d.policy.attempts_max
    assert await speaker.told() == [(0, "failed", "timeout")]


@scenario()
async def test_a_silent_slice_of_an_open_turn_keeps_its_foreign_slot(d: Deployment) -> None:
    home, other, _ = d.cells.all
    node = await d.ready_node(other, slots=2)
    speaker = await d.speaker(home)
    silent = await speaker.placed(0, turn="t1", is_slice=True)
    d.advance(d.policy.attempt_ms)
    assert (await d.sweep()).push == []
    until = d.now_ms + d.policy.attempt_ms + d.policy.lease_grace_ms
    assert (await d.leases(other))[node] == {Lease(silent.job, 1, home.name).member: until}
    closing = await speaker.placed(1, turn="t1", closes_turn=True)
    assert (closing.node, closing.context_reset) == (node, False)
    await speaker.settle(closing)
    assert [kind for _, kind, _ in await speaker.told()] == ["completed_no_text", "completed"]


# Nodes.


@scenario()
async def test_a_silent_nodes_leases_move_wherever_their_jobs_live(d: Deployment) -> None:
    home, other, third = d.cells.all
    silent = await d.ready_node(other, slots=2, silence_ms=6000)
    foreign, local = await d.speaker(home), await d.speaker(other)
    for speaker in (foreign, local):
        assert (await speaker.placed(0)).node == silent
    refuge = await d.ready_node(third, slots=2)
    d.advance(5999)
    assert (await d.sweep()).push == []
    d.advance(1)
    moved = (await d.sweep()).push
    assert {(p.job, p.node, p.attempt) for p in moved} == {
        (foreign.job(0), refuge, 2),
        (local.job(0), refuge, 2),
    }
    assert {node for node, _ in await d.leased()} == {refuge}
    jobs = {foreign.job(0): foreign, local.job(0): local}
    for placement in moved:
        await jobs[placement.job].settle(placement)


@scenario()
async def test_a_new_process_of_a_node_gets_no_old_leases_and_may_get_the_jobs(
    d: Deployment,
) -> None:
    home, other, _ = d.cells.all
    node = await d.ready_node(other, slots=2)
    foreign, local = await d.speaker(home), await d.speaker(other)
    old = [await speaker.placed(0) for speaker in (foreign, local)]
    answer = await d.register(node, slots=2, boot="b2")
    assert (answer.reply, len(answer.lost)) == (Reply.REGISTERED, 2)
    await d.beat(node, "b2")
    # Whoever registered it died before it moved them: the node's timer does.
    d.advance(d.policy.claim_ms)
    moved = (await d.sweep()).push
    assert {(p.job, p.node, p.attempt) for p in moved} == {
        (foreign.job(0), node, 2),
        (local.job(0), node, 2),
    }
    jobs = {foreign.job(0): foreign, local.job(0): local}
    for placement in old:
        late, _ = await jobs[placement.job].settle(placement)
        assert late.reply is Reply.STALE_ATTEMPT
    for placement in moved:
        await jobs[placement.job].settle(placement)


@scenario()
async def test_moving_a_fenced_process_leases_at_once_leaves_the_timer_nothing(
    d: Deployment,
) -> None:
    home, other, third = d.cells.all
    node = await d.ready_node(other)
    speaker = await d.speaker(home)
    await speaker.placed(0)
    refuge = await d.ready_node(third)
    answer = await d.register(node, boot="b2")
    work = await d.dispatcher.move_leases(node, answer.lost, "node_restarted")
    (second,) = work.push
    assert (second.attempt, second.node in {node, refuge}) == (2, True)
    d.advance(d.policy.claim_ms)
    assert (await d.sweep()).push == []
    await speaker.settle(second)


@scenario()
async def test_a_silent_node_gives_back_the_lease_of_a_job_that_is_gone(d: Deployment) -> None:
    home, other, _ = d.cells.all
    node = await d.ready_node(other, silence_ms=6000)
    speaker = await d.speaker(home)
    placement = await speaker.placed(0)
    await speaker.settle(placement)
    # The lease of an attempt that ended long ago, as a lost give-back would leave it.
    lease = Lease(placement.job, 1, home.name)
    await d.store.leases.reserve(other, lease, speaker.spec(0).demand)
    await d.store.leases.confirm(other, node, lease, 60_000)
    d.advance(6000)
    work = await d.sweep()
    assert (work.push, work.deliver) == ([], [])
    assert await d.leased() == set()


# Sessions and gaps.


@scenario()
async def test_a_session_nobody_renews_is_closed_and_its_foreign_jobs_are_stopped(
    d: Deployment,
) -> None:
    home, other, _ = d.cells.all
    node = await d.ready_node(other)
    speaker = await d.speaker(home)
    await d.store.sessions.open(home, speaker.session, "i1", lease_ms=5000)
    placement = await speaker.placed(0)
    d.advance(5000)
    work = await d.sweep()
    assert [(told.job, told.node) for told in work.stop] == [(placement.job, node)]
    assert await d.leased() == set()
    assert await speaker.told() == [(0, "cancelled", "lapsed")]


@scenario(gap_ms=3000)
async def test_a_hole_in_the_order_is_filled_when_it_is_due(d: Deployment) -> None:
    home, other, _ = d.cells.all
    await d.ready_node(other)
    speaker = await d.speaker(home)
    placement = await speaker.placed(2)
    await speaker.settle(placement)
    d.advance(2999)
    assert (await d.sweep()).deliver == []
    d.advance(1)
    assert delivered(await d.sweep()) == [(0, "missing"), (1, "missing"), (2, "completed")]
    # What nobody submitted is told as missing, under no job.
    speaker.admitted["es"] |= {0: "-", 1: "-"}


# Many sweepers, many timers.


@scenario()
async def test_two_instances_that_sweep_at_once_end_each_job_once(d: Deployment) -> None:
    home, other, third = d.cells.all
    lost = await d.ready_node(other, slots=8, silence_ms=6000)
    speakers = [await d.speaker(cell) for cell in (home, third, other, home)]
    for speaker in speakers:
        for index in (0, 1):
            assert (await speaker.placed(index)).node == lost
    refuge = await d.ready_node(third, slots=8)
    d.advance(6000)
    sweepers = [d.instance().sweeper for _ in range(3)]
    works = await asyncio.gather(*(d.sweep(sweeper) for sweeper in sweepers))
    pushed = {(p.job, p.node, p.attempt) for work in works for p in work.push}
    assert pushed == {(s.job(index), refuge, 2) for s in speakers for index in (0, 1)}
    jobs = {speaker.job(index): speaker for speaker in speakers for index in (0, 1)}
    for placement in {p for work in works for p in work.push}:
        await jobs[placement.job].settle(placement)
    assert await d.leased() == set()


@scenario(in_flight_max=400, pending_jobs_max=400)
async def test_more_timers_than_one_claim_takes_are_all_acted_on(d: Deployment) -> None:
    home = d.cells.all[0]
    speaker = await d.speaker(home)
    count = sweeping.TIMERS_MAX + 44
    for index in range(count):
        await speaker.submit(index)
    d.advance(d.policy.pending_ms)
    work = await d.sweeper.sweep(home)
    assert delivered(work) == [(index, "expired") for index in range(count)]


@scenario()
async def test_a_timer_whose_claimant_died_comes_back_to_another(d: Deployment) -> None:
    home = d.cells.all[0]
    speaker = await d.speaker(home)
    await speaker.submit(0)
    d.advance(d.policy.pending_ms)
    claimed = await d.store.cells.due(home)
    assert claimed == (f"j|{speaker.job(0)}",)
    survivor = d.instance().sweeper
    assert (await d.sweep(survivor)).deliver == []
    d.advance(d.policy.claim_ms)
    assert delivered(await d.sweep(survivor)) == [(0, "expired")]
