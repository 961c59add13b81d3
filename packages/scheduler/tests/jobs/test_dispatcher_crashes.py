"""An instance dies between two steps of a placement over cells, or another instance interferes.

The product's own dispatcher is stopped right before a script. Then time passes and another instance
sweeps: nothing else repairs the state. `scenario` asserts the end: no
slot is held, and each admitted utterance has exactly one outcome, in order.
"""

from __future__ import annotations

import pytest

from jobs.deployment import TO_SPANISH, Crashed, Deployment, scenario
from lingua_scheduler.state.records import Lease
from lingua_scheduler.state.reply import Reply

pytestmark = pytest.mark.store


@scenario()
async def test_a_crash_before_any_slot_is_reserved_leaves_a_job_that_another_places(
    d: Deployment,
) -> None:
    home, other, _ = d.cells.all
    node = await d.ready_node(other)
    speaker = await d.speaker(home)
    d.store.crash_before("lease_reserve")
    with pytest.raises(Crashed):
        await speaker.submit(0)
    survivor = d.instance()
    assert (await d.sweep(survivor.sweeper)).push == []
    d.advance(d.policy.reserve_ms)
    (placement,) = (await d.sweep(survivor.sweeper)).push
    assert (placement.node, placement.attempt) == (node, 1)
    await speaker.settle(placement, via=survivor.dispatcher)


@scenario()
async def test_a_crash_after_the_reservation_costs_the_slot_only_until_it_lapses(
    d: Deployment,
) -> None:
    home, other, _ = d.cells.all
    node = await d.ready_node(other)
    speaker = await d.speaker(home)
    d.store.crash_before("job_commit")
    with pytest.raises(Crashed):
        await speaker.submit(0)
    lease = Lease(speaker.job(0), 1, home.name).member
    assert await d.leases(other) == {node: {lease: d.now_ms + d.policy.reserve_ms}}
    survivor = d.instance()
    d.advance(d.policy.reserve_ms)
    # The home cell is swept first, while the other still shows the slot as taken: the job waits.
    assert (await d.sweep(survivor.sweeper)).push == []
    assert await d.leased() == set()
    assert len(await d.store.cells.waiting(home, 10)) == 1
    (placement,) = (await d.sweep(survivor.sweeper)).push
    assert (placement.node, placement.attempt) == (node, 1)
    await speaker.settle(placement, via=survivor.dispatcher)


@scenario()
async def test_a_crash_after_the_reservation_lets_a_node_at_home_take_the_job(
    d: Deployment,
) -> None:
    home, other, _ = d.cells.all
    await d.ready_node(other)
    speaker = await d.speaker(home)
    d.store.crash_before("job_commit")
    with pytest.raises(Crashed):
        await speaker.submit(0)
    near = await d.ready_node(home)
    d.advance(d.policy.reserve_ms)
    (placement,) = (await d.sweep(d.instance().sweeper)).push
    assert (placement.node, placement.attempt) == (near, 1)
    assert {node for node, _ in await d.leased()} == {near}
    await speaker.settle(placement)


@scenario()
async def test_a_crash_before_the_confirmation_frees_the_slot_and_the_job_still_ends_once(
    d: Deployment,
) -> None:
    home, other, _ = d.cells.all
    node = await d.ready_node(other)
    speaker, local = await d.speaker(home), await d.speaker(other)
    d.store.crash_before("lease_confirm")
    with pytest.raises(Crashed):
        await speaker.submit(0)
    d.advance(d.policy.reserve_ms)
    survivor = d.instance()
    await d.sweep(survivor.sweeper)
    # Nobody pushed the job, so its slot is rightly free: the node can be given other work.
    assert await d.leased() == set()
    taken = await local.placed(0, via=survivor.dispatcher)
    assert taken.node == node
    # The job learns of it by its deadline, and waits behind the other one for the node.
    d.advance(d.policy.attempt_ms - d.policy.reserve_ms - 1)
    assert (await d.sweep(survivor.sweeper)).push == []
    await local.settle(taken, via=survivor.dispatcher)
    refuge = await d.ready_node(home)
    d.advance(1)
    (second,) = (await d.sweep(survivor.sweeper)).push
    assert (second.job, second.node, second.attempt) == (speaker.job(0), refuge, 2)
    await speaker.settle(second, via=survivor.dispatcher)


@scenario()
async def test_a_result_counts_once_though_its_slot_was_never_confirmed(d: Deployment) -> None:
    home, other, _ = d.cells.all
    node = await d.ready_node(other)
    speaker = await d.speaker(home)
    d.store.crash_before("lease_confirm")
    with pytest.raises(Crashed):
        await speaker.submit(0)
    d.advance(d.policy.reserve_ms)
    await d.sweep(d.instance().sweeper)
    answer, _ = await d.dispatcher.settle(home, speaker.job(0), 1, node, kind="completed")
    assert answer.reply is Reply.SETTLED
    again, _ = await d.dispatcher.settle(home, speaker.job(0), 1, node, kind="completed")
    assert (again.reply, again.seq) == (Reply.ALREADY, 1)


@scenario()
async def test_a_node_that_confirms_work_makes_an_unpushed_job_move_soon(d: Deployment) -> None:
    home, other, third = d.cells.all
    silent = await d.ready_node(other, acks=True)
    speaker = await d.speaker(home)
    d.store.crash_before("lease_confirm")
    with pytest.raises(Crashed):
        await speaker.submit(0)
    refuge = await d.ready_node(third)
    d.advance(d.policy.ack_ms)
    (second,) = (await d.sweep()).push
    assert (second.node, second.attempt) == (refuge, 2)
    assert silent not in {node for node, _ in await d.leased()}
    await speaker.settle(second)


@scenario()
async def test_a_crash_after_settling_leaves_a_reminder_that_frees_the_slot(
    d: Deployment,
) -> None:
    home, other, _ = d.cells.all
    node = await d.ready_node(other)
    speaker, waiting = await d.speaker(home), await d.speaker(home)
    placement = await speaker.placed(0)
    await waiting.submit(0)
    d.store.crash_before("lease_release")
    with pytest.raises(Crashed):
        await speaker.settle(placement)
    reminder = f"r|{other.name}|{node}|{placement.job}|1"
    assert (home.name, reminder) in await d.timers("r")
    assert len(await d.leased()) == 1
    d.advance(1000)
    # The same sweep gives the slot back and offers it to the job that waits.
    (next_job,) = (await d.sweep(d.instance().sweeper)).push
    assert (next_job.job, next_job.node) == (waiting.job(0), node)
    assert await d.timers("r") == {}
    await waiting.settle(next_job)


@scenario()
async def test_a_crash_between_giving_back_and_forgetting_gives_back_nothing_twice(
    d: Deployment,
) -> None:
    home, other, _ = d.cells.all
    await d.ready_node(other)
    speaker, local = await d.speaker(home), await d.speaker(other)
    placement = await speaker.placed(0)
    d.store.crash_before("cell_done")
    with pytest.raises(Crashed):
        await speaker.settle(placement)
    taken = await local.placed(0)
    d.advance(1000)
    await d.sweep(d.instance().sweeper)
    assert await d.timers("r") == {}
    assert {lease for _, lease in await d.leased()} == {f"{taken.job}|1"}
    await local.settle(taken)


@scenario()
async def test_a_crash_after_taking_a_job_from_a_lost_node_is_repaired_by_a_sweep(
    d: Deployment,
) -> None:
    home, other, third = d.cells.all
    lost = await d.ready_node(other)
    speaker = await d.speaker(home)
    await speaker.placed(0)
    refuge = await d.ready_node(third)
    d.store.crash_before("lease_release")
    with pytest.raises(Crashed):
        await d.dispatcher.node_lost(lost, "conn-b1")
    survivor = d.instance()
    d.advance(d.policy.reserve_ms)
    (second,) = (await d.sweep(survivor.sweeper)).push
    assert (second.node, second.attempt) == (refuge, 2)
    assert {node for node, _ in await d.leased()} == {refuge}
    await speaker.settle(second, via=survivor.dispatcher)


@scenario()
async def test_a_crash_before_a_lost_nodes_jobs_are_moved_is_repaired_by_a_sweep(
    d: Deployment,
) -> None:
    home, other, third = d.cells.all
    lost = await d.ready_node(other)
    speaker = await d.speaker(home)
    await speaker.placed(0)
    await d.ready_node(third)
    d.store.crash_before("job_failover")
    with pytest.raises(Crashed):
        await d.dispatcher.node_lost(lost, "conn-b1")
    d.advance(d.policy.claim_ms)
    (second,) = (await d.sweep(d.instance().sweeper)).push
    assert second.attempt == 2
    await speaker.settle(second)


@scenario()
async def test_a_crash_while_closing_a_session_leaves_its_slots_to_the_sweep(
    d: Deployment,
) -> None:
    home, other, third = d.cells.all
    await d.ready_node(other)
    await d.ready_node(third)
    speaker = await d.speaker(home)
    for index in (0, 1):
        await speaker.placed(index)
    d.store.crash_before("lease_release")
    with pytest.raises(Crashed):
        await d.dispatcher.close_session(home, speaker.session, "left")
    d.advance(1000)
    await d.sweep(d.instance().sweeper)
    assert await d.leased() == set()
    assert await speaker.told() == [(0, "cancelled", "left"), (1, "cancelled", "left")]


@scenario()
async def test_a_reservation_repeated_after_a_lost_answer_is_the_same_slot(d: Deployment) -> None:
    home, other, _ = d.cells.all
    for _ in range(3):
        await d.ready_node(other)
    lease = Lease("job-00000000000000000000000000000000", 1, home.name)
    first = await d.store.leases.reserve(other, lease, TO_SPANISH)
    assert first == await d.store.leases.reserve(other, lease, TO_SPANISH)
    assert await d.leased() == {(first.node, lease.member)}


# A slow instance: its reservation lapses before it goes on.


@scenario()
async def test_a_reservation_that_lapsed_is_taken_again_while_the_node_has_room(
    d: Deployment,
) -> None:
    home, other, _ = d.cells.all
    node = await d.ready_node(other)
    speaker = await d.speaker(home)

    async def pause() -> None:
        d.advance(d.policy.reserve_ms + 1)

    d.store.before("lease_confirm", pause)
    placement = await speaker.placed(0)
    assert (placement.node, placement.attempt) == (node, 1)
    until = d.now_ms + d.policy.attempt_ms + d.policy.lease_grace_ms
    assert list((await d.leases(other))[node].values()) == [until]
    await speaker.settle(placement)


@scenario()
async def test_a_reservation_that_was_swept_is_made_anew_on_the_same_node(d: Deployment) -> None:
    home, other, _ = d.cells.all
    node = await d.ready_node(other)
    speaker = await d.speaker(home)

    async def pause() -> None:
        d.advance(d.policy.reserve_ms + 1)
        await d.sweeper.sweep(other)

    d.store.before("lease_confirm", pause)
    _, work = await speaker.submit(0)
    (placement,) = work.push
    assert (placement.node, placement.attempt) == (node, 2)
    await speaker.settle(placement)


@scenario()
async def test_a_slot_confirmed_just_as_its_reservation_is_swept_is_kept(d: Deployment) -> None:
    home, other, _ = d.cells.all
    node = await d.ready_node(other)
    speaker = await d.speaker(home)
    d.store.crash_before("lease_confirm")
    with pytest.raises(Crashed):
        await speaker.submit(0)
    lease, hold_ms = Lease(speaker.job(0), 1, home.name), d.policy.attempt_ms
    d.advance(d.policy.reserve_ms)
    d.store.before("lease_release", lambda: d.store.leases.confirm(other, node, lease, hold_ms))
    await d.sweeper.sweep(other)
    assert await d.leases(other) == {node: {lease.member: d.now_ms + hold_ms}}
    await d.dispatcher.settle(home, lease.job, 1, node, kind="completed")


@scenario()
async def test_a_job_whose_slot_lapsed_and_was_given_away_moves_on(d: Deployment) -> None:
    home, other, third = d.cells.all
    node, refuge = await d.ready_node(other), await d.ready_node(third)
    speaker, local = await d.speaker(home), await d.speaker(other)
    taken = []

    async def pause() -> None:
        d.advance(d.policy.reserve_ms + 1)
        await d.sweeper.sweep(other)
        taken.append(await local.placed(0))

    d.store.before("lease_confirm", pause)
    answer, work = await speaker.submit(0)
    assert [placement.node for placement in taken] == [node]
    # Taken from the full node again, so this is its second attempt; the first was never pushed.
    assert (answer.reply, answer.attempt, answer.node) == (Reply.HELD, 2, refuge)
    (placement,) = work.push
    assert (placement.node, placement.attempt) == (refuge, 2)
    assert {holder for holder, _ in await d.leased()} == {node, refuge}
    await speaker.settle(placement)
    await local.settle(taken[0])


@scenario()
async def test_a_job_whose_slot_was_given_away_waits_when_nobody_else_has_room(
    d: Deployment,
) -> None:
    home, other, _ = d.cells.all
    node = await d.ready_node(other)
    speaker, local = await d.speaker(home), await d.speaker(other)
    taken = []

    async def pause() -> None:
        d.advance(d.policy.reserve_ms + 1)
        await d.sweeper.sweep(other)
        taken.append(await local.placed(0))

    d.store.before("lease_confirm", pause)
    answer, work = await speaker.submit(0)
    assert (answer.reply, work.push) == (Reply.QUEUED, [])
    await local.settle(taken[0])
    # It never ran on the node, so the node is not held against it.
    (placement,) = (await d.sweep()).push
    assert (placement.job, placement.node, placement.attempt) == (speaker.job(0), node, 2)
    await speaker.settle(placement)


@scenario()
async def test_a_sweep_that_parks_a_job_again_and_dies_is_followed_by_another(
    d: Deployment,
) -> None:
    home, other, _ = d.cells.all
    node = await d.ready_node(other)
    speaker = await d.speaker(home)
    d.store.crash_before("lease_reserve")
    with pytest.raises(Crashed):
        await speaker.submit(0)
    for _ in range(3):
        d.advance(d.policy.reserve_ms)
        d.store.crash_before("lease_reserve")
        with pytest.raises(Crashed):
            await d.sweep()
    d.advance(d.policy.reserve_ms)
    (placement,) = (await d.sweep(d.instance().sweeper)).push
    assert (placement.node, placement.attempt) == (node, 1)
    await speaker.settle(placement)
