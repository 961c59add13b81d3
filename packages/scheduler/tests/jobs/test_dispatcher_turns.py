"""Turns over several cells: pieces stay with the node that has their context, or it is reset.

Every scenario runs on one server with three cells and ends with `settle_down`: no slot is held
anywhere, and each admitted utterance has exactly one outcome, in order.
"""

from __future__ import annotations

import pytest

from jobs.deployment import Deployment, scenario
from lingua_scheduler.state.reply import Reply

pytestmark = pytest.mark.store


@scenario()
async def test_the_slices_of_a_turn_follow_it_to_another_cell(d: Deployment) -> None:
    home, other, third = d.cells.all
    node = await d.ready_node(third, slots=3)
    speaker = await d.speaker(home)
    first = await speaker.placed(0, turn="t1", is_slice=True)
    assert first.node == node
    # Others are nearer now, and less loaded: the turn stays where its context is.
    await d.ready_node(home, slots=3)
    await d.ready_node(other, slots=3)
    second = await speaker.placed(1, turn="t1", is_slice=True)
    assert (second.node, second.cell, second.context_reset) == (node, third.name, False)
    new_turn = await speaker.placed(2, turn="t2")
    assert new_turn.cell == home.name
    for placement in (first, second, new_turn):
        await speaker.settle(placement)


@scenario()
async def test_a_turn_whose_foreign_node_is_full_moves_and_says_so(d: Deployment) -> None:
    home, other, third = d.cells.all
    node = await d.ready_node(other)
    speaker = await d.speaker(home)
    first = await speaker.placed(0, turn="t1")
    assert first.node == node
    elsewhere = await d.ready_node(third)
    second = await speaker.placed(1, turn="t1")
    assert (second.node, second.context_reset) == (elsewhere, True)
    near = await d.ready_node(home)
    third_slice = await speaker.placed(2, turn="t1")
    assert (third_slice.node, third_slice.context_reset) == (near, True)
    for placement in (first, second, third_slice):
        await speaker.settle(placement)


@scenario()
async def test_the_closing_piece_ends_silent_slices_and_frees_their_foreign_slots(
    d: Deployment,
) -> None:
    home, other, _ = d.cells.all
    node = await d.ready_node(other, slots=3)
    speaker = await d.speaker(home)
    for index in (0, 1):
        await speaker.placed(index, turn="t1", is_slice=True)
    last = await speaker.placed(2, turn="t1", closes_turn=True)
    assert len((await d.leases(other))[node]) == 3
    await speaker.settle(last)
    assert await d.leased() == set()
    kinds = [kind for _, kind, _ in await speaker.told()]
    assert kinds == ["completed_no_text", "completed_no_text", "completed"]


@scenario()
async def test_ending_a_turn_frees_the_foreign_slots_of_its_slices(d: Deployment) -> None:
    home, other, _ = d.cells.all
    await d.ready_node(other, slots=2)
    speaker = await d.speaker(home)
    for index in (0, 1):
        await speaker.placed(index, turn="t1", is_slice=True)
    settled, _ = await d.dispatcher.end_turn(home, speaker.session, "t1")
    assert settled.reply is Reply.SETTLED
    assert await d.leased() == set()
    assert await d.timers() == {}
