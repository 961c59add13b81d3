"""Events between the steps of a placement over two cells, and waiting jobs."""

from __future__ import annotations

import pytest

from jobs.deployment import SERVICES, TO_FRENCH, Crashed, Deployment, scenario
from lingua_scheduler.jobs.requirement import Languages, PipelineStages, demand
from lingua_scheduler.nodes.capability import Declared, capability
from lingua_scheduler.state.reply import Reply

pytestmark = pytest.mark.store


@scenario()
async def test_cancelling_between_commit_and_confirm_holds_no_slot(d: Deployment) -> None:
    home, other, _ = d.cells.all
    await d.ready_node(other)
    speaker = await d.speaker(home)
    d.store.before("lease_confirm", lambda: d.dispatcher.cancel(home, speaker.job(0), "x"))
    _, work = await speaker.submit(0)
    assert work.push == []
    assert await d.leased() == set()


@scenario(refuse_unserved_pairs=True)
async def test_a_pair_served_in_a_busy_other_cell_is_not_unserved(d: Deployment) -> None:
    home, other, _ = d.cells.all
    await d.ready_node(other)
    speaker = await d.speaker(home)
    await speaker.placed(0)
    answer, _ = await speaker.submit(1)
    assert answer.reply is Reply.QUEUED


@scenario()
async def test_a_job_that_waits_for_its_paired_foreign_node_gets_it(d: Deployment) -> None:
    home, other, _ = d.cells.all
    private = capability(Declared(services=SERVICES, pairs=(("en", "es"),), private_to="acme"))
    node = await d.ready_node(other, can=private)
    paired = demand(Languages("en", "es"), PipelineStages(), paired=node).text
    speaker = await d.speaker(home)
    first = await speaker.placed(0, wanted=paired, preferred=node)
    await speaker.submit(1, wanted=paired, preferred=node)
    _, work = await speaker.settle(first)
    work.merge(await d.sweep())
    assert [p.job for p in work.push] == [speaker.job(1)]


@scenario()
async def test_jobs_that_nobody_serves_do_not_hide_one_that_can_be_served(d: Deployment) -> None:
    home, other, _ = d.cells.all
    speakers = [await d.speaker(home) for _ in range(33)]
    for speaker in speakers[:32]:
        await speaker.submit(0, wanted=TO_FRENCH)
    d.advance(1)
    await speakers[32].submit(0)
    await d.ready_node(other)
    assert len((await d.sweep()).push) == 1


@scenario()
async def test_a_waiting_piece_of_a_turn_goes_to_the_turns_node_when_that_has_room(
    d: Deployment,
) -> None:
    home, other, third = d.cells.all
    far = await d.ready_node(third)
    speaker = await d.speaker(home)
    first = await speaker.placed(0, turn="t1")
    await speaker.submit(1, turn="t1")
    await d.ready_node(other)
    _, work = await speaker.settle(first)
    assert [(p.node, p.context_reset) for p in work.push] == [(far, False)]


@scenario()
async def test_a_piece_whose_caller_died_goes_to_the_turns_node(d: Deployment) -> None:
    home, _, third = d.cells.all
    far = await d.ready_node(third, slots=2)
    speaker = await d.speaker(home)
    await speaker.placed(0, turn="t1")
    await d.ready_node(home)
    d.store.crash_before("lease_reserve")
    with pytest.raises(Crashed):
        await speaker.submit(1, turn="t1")
    d.advance(d.policy.reserve_ms)
    work = await d.sweep()
    assert [(p.node, p.context_reset) for p in work.push] == [(far, False)]
