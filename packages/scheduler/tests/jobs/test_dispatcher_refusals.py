"""A node that refuses a job or stays silent may get it again, because it did not begin the job.

Other nodes come first, and it is asked again after a growing rest, so that there is no hot loop;
all of this within the time that a job may wait. Each scenario runs on one server with three cells
and ends with `settle_down`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jobs.deployment import Deployment, scenario
from lingua_scheduler.state.reply import Reply

if TYPE_CHECKING:
    from lingua_scheduler.state.link import Address
    from lingua_scheduler.state.records import Placement

pytestmark = pytest.mark.store

OVERLOADED = "NODE_OVERLOADED"
REST_MS = 250


async def refuse(d: Deployment, placement: Placement, reason: str = OVERLOADED) -> list[Placement]:
    """Let a node give a job back; returns what was placed by that."""
    _, work = await d.dispatcher.failover(
        d.cells.named(placement.home), placement.job, placement.attempt,
        node=placement.node, reason=reason,
    )  # fmt: skip
    return work.push


@pytest.mark.parametrize("cell", [0, 1])
@pytest.mark.parametrize("reason", [OVERLOADED, "NODE_UNAVAILABLE", "not_running"])
def test_an_only_node_that_did_not_begin_a_job_gets_it_again_soon(
    cell: int, reason: str, addresses: list[Address]
) -> None:
    @scenario()
    async def play(d: Deployment) -> None:
        node = await d.ready_node(d.cells.all[cell])
        speaker = await d.speaker(d.cells.all[0])
        first = await speaker.placed(0)
        assert await refuse(d, first, reason) == []
        d.advance(REST_MS - 1)
        assert (await d.sweep()).push == []
        d.advance(1)
        work = await d.sweep()
        (second,) = work.push
        assert (second.node, second.attempt) == (node, 2)
        # That is no loss of a node, and is not counted as one.
        assert work.moved == []
        await speaker.settle(second)
        assert await speaker.told() == [(0, "completed", "-")]

    play(addresses)


@pytest.mark.parametrize("cell", [0, 1])
def test_an_only_node_whose_push_was_lost_gets_it_again_soon(
    cell: int, addresses: list[Address]
) -> None:
    @scenario()
    async def play(d: Deployment) -> None:
        node = await d.ready_node(d.cells.all[cell], acks=True)
        speaker = await d.speaker(d.cells.all[0])
        await speaker.placed(0)
        d.advance(d.policy.ack_ms)
        work = await d.sweep()
        assert (work.push, [move.reason for move in work.moved]) == ([], ["no_ack"])
        d.advance(REST_MS)
        (second,) = (await d.sweep()).push
        assert (second.node, second.attempt) == (node, 2)
        await speaker.settle(second)

    play(addresses)


@scenario()
async def test_other_nodes_come_first_in_whatever_cell(d: Deployment) -> None:
    home, other, third = d.cells.all
    nodes = [await d.ready_node(cell) for cell in (home, other, third)]
    speaker = await d.speaker(home)
    placement = await speaker.placed(0)
    asked = [placement.node]
    for _ in range(2):
        (placement,) = await refuse(d, placement)
        asked.append(placement.node)
    assert sorted(asked) == sorted(nodes)
    assert await refuse(d, placement) == []
    d.advance(REST_MS)
    # The first one has rested.
    (fourth,) = (await d.sweep()).push
    assert (fourth.node, fourth.attempt) == (asked[0], 4)
    await speaker.settle(fourth)


async def refused_until_the_end(d: Deployment) -> list[tuple[int, int]]:
    """Refuse one job whenever it comes; returns when and which attempt each time."""
    speaker = await d.speaker(d.cells.all[0])
    start = d.now_ms
    answer, _ = await speaker.submit(0)
    pushed = [answer.placement] if answer.placement is not None else []
    asked = []
    while not await speaker.told():
        while pushed:
            placement = pushed.pop()
            asked.append((d.now_ms - start, placement.attempt))
            pushed += await refuse(d, placement)
        if not await speaker.told():
            d.advance(50)
            pushed += (await d.sweep()).push
    return asked


@scenario()
async def test_a_node_that_goes_on_refusing_is_asked_less_and_less_within_the_wait(
    d: Deployment,
) -> None:
    await d.ready_node(d.cells.all[0])
    asked = await refused_until_the_end(d)
    assert [at for at, _ in asked] == [0, 250, 750, 1750, 3750, 5750, 7750, 9750]
    ((_, kind, reason),) = await d.speakers[0].told()
    assert (kind, reason) == ("expired", "pending_timeout")
    assert asked[-1][0] < d.policy.pending_ms


@scenario()
async def test_many_nodes_that_all_refuse_are_not_all_asked_at_once(d: Deployment) -> None:
    for cell in d.cells.all:
        for _ in range(10):
            await d.ready_node(cell)
    asked = await refused_until_the_end(d)
    assert len([at for at, _ in asked if at == 0]) == 5
    assert len(asked) <= 16
    assert asked[-1][0] <= d.policy.pending_ms


@scenario(attempts_max=2)
async def test_silence_is_spared_a_few_times_only(d: Deployment) -> None:
    """Who does not acknowledge may have been killed by the job."""
    home = d.cells.all[0]
    speaker = await d.speaker(home)
    for _ in range(8):
        await d.ready_node(home)
    attempt = await speaker.placed(0)
    # Four are spared; the sixth attempt is the second that counts, and the last.
    for number in range(1, 6):
        assert attempt.attempt == number
        (attempt,) = await refuse(d, attempt, "no_ack")
    assert await refuse(d, attempt, "no_ack") == []
    assert await speaker.told() == [(0, "failed", "no_ack")]


@scenario()
async def test_who_was_refused_long_ago_and_then_begun_may_wait_its_time_again(
    d: Deployment,
) -> None:
    home = d.cells.all[0]
    for _ in range(2):
        await d.ready_node(home)
    speaker = await d.speaker(home)
    (second,) = await refuse(d, await speaker.placed(0))
    d.advance(d.policy.pending_ms)
    (third,) = await refuse(d, second, "node_error")
    assert await refuse(d, third) == []
    assert await speaker.told() == []
    d.advance(2 * REST_MS)
    (fourth,) = (await d.sweep()).push
    await speaker.settle(fourth)


@scenario()
async def test_a_node_that_refuses_is_not_asked_for_the_others_at_once(d: Deployment) -> None:
    home = d.cells.all[0]
    await d.ready_node(home, slots=1)
    speaker, other = await d.speaker(home), await d.speaker(home)
    first = await speaker.placed(0)
    assert (await other.submit(0))[0].reply is Reply.QUEUED
    assert await refuse(d, first) == []
    d.advance(REST_MS)
    (again,) = (await d.sweep()).push
    assert again.job == first.job
    _, work = await speaker.settle(again)
    (waited,) = work.push
    await other.settle(waited)


@scenario(attempts_max=5)
async def test_jobs_that_leave_a_node_out_do_not_hide_one_that_it_can_serve(d: Deployment) -> None:
    home = d.cells.all[0]
    node = await d.ready_node(home, slots=20)
    failed = [await d.speaker(home) for _ in range(12)]
    for speaker in failed:
        assert await refuse(d, await speaker.placed(0), "node_error") == []
    await d.store.nodes.drain(home, node, drain=True)
    d.advance(1)
    speaker = await d.speaker(home)
    assert (await speaker.submit(0))[0].reply is Reply.QUEUED
    answer, _ = await d.store.nodes.drain(home, node, drain=False)
    (placement,) = answer.placed
    assert placement.job == speaker.job(0)
    await speaker.settle(placement)
