"""Simultaneous jobs of one turn, with nodes only in other cells: they stay on one node.

The home cell cannot see the nodes, so that every job of a turn is parked and placed in several
steps; none of them has a node to follow yet. Each scenario runs on one server and ends with
`settle_down`: no slot is held anywhere, each admitted utterance has exactly one outcome, in order.
"""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from jobs.deployment import BOTH, TO_FRENCH, Crashed, Deployment, scenario

if TYPE_CHECKING:
    from jobs.deployment import Speaker
    from lingua_scheduler.jobs.dispatcher import Dispatcher
    from lingua_scheduler.state.link import Address
    from lingua_scheduler.state.records import Placement

pytestmark = pytest.mark.store

TURNS, SLICES = 8, 3


async def say(
    speaker: Speaker, index: int, turn: str, *, via: Dispatcher | None = None, last: bool = True
) -> list[Placement]:
    """Submit one utterance of a turn in two languages at once."""
    pieces = await asyncio.gather(
        speaker.submit(index, "es", turn=turn, is_slice=not last, closes_turn=last, via=via),
        speaker.submit(
            index, "fr", turn=turn, is_slice=not last, closes_turn=last, wanted=TO_FRENCH, via=via
        ),
    )
    return [placement for _, work in pieces for placement in work.push]


def on_one_node(placements: list[Placement]) -> bool:
    """Tell whether all went to one node and none was told that its context is gone."""
    return len({p.node for p in placements}) == 1 and not any(p.context_reset for p in placements)


async def four_nodes_elsewhere(d: Deployment, slots: int = 64) -> None:
    """Nodes in every cell but the first."""
    for cell in d.cells.all[1:]:
        for _ in range(2):
            await d.ready_node(cell, slots=slots, can=BOTH)


@scenario()
async def test_slices_and_languages_of_a_turn_said_at_once_share_a_node(d: Deployment) -> None:
    await four_nodes_elsewhere(d)
    speakers = [await d.speaker(d.cells.all[0]) for _ in range(TURNS)]

    async def take_a_turn(speaker: Speaker) -> list[Placement]:
        rows = await asyncio.gather(
            *(say(speaker, index, "t1", last=index == SLICES - 1) for index in range(SLICES))
        )
        return [placement for row in rows for placement in row]

    turns = await asyncio.gather(*(take_a_turn(speaker) for speaker in speakers))
    assert [len(turn) for turn in turns] == TURNS * [2 * SLICES]
    assert [on_one_node(turn) for turn in turns] == TURNS * [True]
    # Not all turns on one node: they are only kept together each.
    assert len({turn[0].node for turn in turns}) > 1
    for speaker, turn in zip(speakers, turns, strict=True):
        for placement in turn:
            await speaker.settle(placement)


@scenario()
async def test_slices_of_a_turn_reach_its_node_in_their_order(d: Deployment) -> None:
    await four_nodes_elsewhere(d)
    speaker = await d.speaker(d.cells.all[0])
    order: list[int] = []

    async def slice_of(index: int) -> Placement:
        placement = await speaker.placed(index, turn="t1", is_slice=True)
        order.append(index)
        return placement

    placements = await asyncio.gather(*(slice_of(index) for index in range(6)))
    assert on_one_node(placements)
    assert order == list(range(6))
    for placement in placements:
        await speaker.settle(placement)


@scenario()
async def test_a_turn_whose_jobs_come_by_two_instances_at_once_shares_a_node(
    d: Deployment,
) -> None:
    await four_nodes_elsewhere(d)
    other = d.instance()
    await other.fleet.refresh()
    for number in range(TURNS):
        speaker = await d.speaker(d.cells.all[0])
        ways = (d.dispatcher, other.dispatcher, d.dispatcher)
        rows = await asyncio.gather(
            *(
                say(speaker, index, f"t{number}", via=way, last=index == 2)
                for index, way in enumerate(ways)
            )
        )
        placements = [placement for row in rows for placement in row]
        assert len(placements) == 6
        assert on_one_node(placements)
        for placement in placements:
            await speaker.settle(placement)


@scenario()
async def test_a_slot_that_frees_at_home_meanwhile_does_not_divide_a_turn(d: Deployment) -> None:
    home, other, _ = d.cells.all
    far = await d.ready_node(other, slots=4)
    speaker = await d.speaker(home)
    d.store.before("lease_reserve", lambda: d.ready_node(home, slots=4))
    first, second = await asyncio.gather(
        speaker.placed(0, turn="t1"), speaker.placed(1, turn="t1", closes_turn=True)
    )
    assert on_one_node([first, second])
    assert first.node == far
    for placement in (first, second):
        await speaker.settle(placement)


@scenario()
async def test_a_turn_that_found_a_node_at_home_meanwhile_goes_there(d: Deployment) -> None:
    home, other, _ = d.cells.all
    await d.ready_node(other, slots=4)
    speaker, survivor = await d.speaker(home), d.instance()
    placed = []

    async def a_node_at_home_takes_another_piece() -> None:
        await d.ready_node(home, slots=4)
        placed.append(await speaker.placed(1, turn="t1", via=survivor.dispatcher))

    d.store.before("job_commit", a_node_at_home_takes_another_piece)
    first = await speaker.placed(0, turn="t1")
    assert on_one_node([first, *placed])
    assert first.cell == home.name
    # The slot that was taken elsewhere is free at once.
    assert len(await d.leased()) == 2
    for placement in (first, *placed):
        await speaker.settle(placement)


@scenario()
async def test_waiting_pieces_of_a_turn_go_to_one_node_when_one_comes(d: Deployment) -> None:
    home, other, third = d.cells.all
    speaker = await d.speaker(home)
    for index in range(3):
        await speaker.submit(index, turn="t1")
    for cell in (other, other, third):
        await d.ready_node(cell, slots=3)
    placements = (await d.sweep()).push
    assert len(placements) == 3
    assert on_one_node(placements)
    for placement in placements:
        await speaker.settle(placement)


@pytest.mark.parametrize("cell", [0, 1])
def test_waiting_slices_of_one_millisecond_reach_their_node_in_order(
    cell: int, addresses: list[Address]
) -> None:
    @scenario()
    async def play(d: Deployment) -> None:
        speakers = [await d.speaker(d.cells.all[0]) for _ in range(8)]
        for speaker in speakers:
            for index in range(4):
                await speaker.submit(index, turn="t1", is_slice=True)
        node = d.node_name(d.cells.all[cell])
        await d.register(node, slots=32)
        placements = list((await d.beat(node)).placed)
        await d.fleet.refresh()
        while more := (await d.sweep()).push:
            placements += more
        for speaker in speakers:
            mine = [p.job for p in placements if p.job in speaker.admitted["es"].values()]
            assert mine == [speaker.job(index) for index in range(4)]
        for placement in placements:
            (speaker,) = [s for s in speakers if placement.job in s.admitted["es"].values()]
            await speaker.settle(placement)

    play(addresses)


@scenario()
async def test_two_languages_of_a_dead_node_move_to_one_node(d: Deployment) -> None:
    home, other, third = d.cells.all
    dead = await d.ready_node(other, slots=8, can=BOTH)
    speaker = await d.speaker(home)
    turn = [p for index in (0, 1) for p in await say(speaker, index, "t1", last=False)]
    assert {p.node for p in turn} == {dead}
    for cell in (home, home, third):
        await d.ready_node(cell, slots=8, can=BOTH)
    _, work = await d.dispatcher.node_lost(dead, "conn-b1")
    assert len(work.push) == 4
    assert len({p.node for p in work.push}) == 1
    # Each language hears that its context is gone, and only once.
    assert sum(p.context_reset for p in work.push) == 2
    more = await say(speaker, 2, "t1")
    assert {p.node for p in more} == {work.push[0].node}
    assert not any(p.context_reset for p in more)
    for placement in (*work.push, *more):
        await speaker.settle(placement)


@pytest.mark.parametrize("step", ["lease_reserve", "job_commit", "lease_confirm"])
def test_a_crash_at_any_step_of_the_first_piece_leaves_the_turn_on_one_node(
    step: str, addresses: list[Address]
) -> None:
    @scenario()
    async def play(d: Deployment) -> None:
        await four_nodes_elsewhere(d)
        speaker = await d.speaker(d.cells.all[0])
        d.store.crash_before(step)
        with pytest.raises(Crashed):
            await speaker.submit(0, turn="t1")
        survivor = d.instance()
        await survivor.fleet.refresh()
        placements = [await speaker.placed(1, turn="t1", via=survivor.dispatcher)]
        d.advance(d.policy.reserve_ms)
        placements += (await d.sweep(survivor.sweeper)).push
        placements.append(await speaker.placed(2, turn="t1", via=survivor.dispatcher))
        assert on_one_node(placements)
        # Where it was committed before the crash, its deadline finds that nobody pushed it.
        assert len(placements) == (2 if step == "lease_confirm" else 3)
        for placement in placements:
            await speaker.settle(placement)

    play(addresses)


@scenario()
async def test_a_crash_before_a_slot_is_given_back_leaves_it_only_until_it_lapses(
    d: Deployment,
) -> None:
    await four_nodes_elsewhere(d)
    speaker, other = await d.speaker(d.cells.all[0]), d.instance()
    await other.fleet.refresh()
    placed = []

    async def another_piece() -> None:
        placed.append(await speaker.placed(1, turn="t1", via=other.dispatcher))
        d.store.crash_before("lease_release")

    d.store.before("job_commit", another_piece)
    with pytest.raises(Crashed):
        await speaker.submit(0, turn="t1")
    d.advance(d.policy.reserve_ms)
    placed += (await d.sweep(other.sweeper)).push
    placed += (await d.sweep(other.sweeper)).push
    assert len(placed) == 2
    assert on_one_node(placed)
    assert len(await d.leased()) == 2
    for placement in placed:
        await speaker.settle(placement)


@scenario()
async def test_a_full_node_of_the_turn_is_asked_once_and_then_another(d: Deployment) -> None:
    home, other, third = d.cells.all
    first_node = await d.ready_node(other, slots=1)
    speaker = await d.speaker(home)
    first = await speaker.placed(0, turn="t1")
    second_node = await d.ready_node(third, slots=1)
    d.store.called()
    second = await speaker.placed(1, turn="t1")
    assert (first.node, second.node, second.context_reset) == (first_node, second_node, True)
    reserved = [call for call in d.store.called() if call[0] == "lease_reserve"]
    assert reserved == [("lease_reserve", other.name)] * 2 + [("lease_reserve", third.name)]
    for placement in (first, second):
        await speaker.settle(placement)


@scenario(cells=1)
async def test_with_one_cell_a_piece_of_a_turn_is_one_call(d: Deployment) -> None:
    (home,) = d.cells.all
    await d.ready_node(home, slots=8, can=BOTH)
    speaker = await d.speaker(home)
    d.store.called()
    placements = [p for index in (0, 1) for p in await say(speaker, index, "t1", last=False)]
    assert d.store.called() == 4 * [("job_submit", home.name)]
    assert on_one_node(placements)
    for placement in placements:
        await speaker.settle(placement)


# Spread: an utterance stays away from the node of the one before, in whatever cell that is.


@scenario(spread=True)
async def test_spread_leaves_out_the_last_node_in_other_cells_too(d: Deployment) -> None:
    home, other, third = d.cells.all
    for cell in (other, third):
        await d.ready_node(cell, slots=8)
    speaker = await d.speaker(home)
    placements = [await speaker.placed(index) for index in range(6)]
    nodes = [placement.node for placement in placements]
    assert all(a != b for a, b in pairwise(nodes))
    for placement in placements:
        await speaker.settle(placement)


@scenario(spread=True)
async def test_spread_goes_to_another_cell_rather_than_to_the_only_node_at_home(
    d: Deployment,
) -> None:
    home, other, _ = d.cells.all
    near, far = await d.ready_node(home, slots=8), await d.ready_node(other, slots=8)
    speaker = await d.speaker(home)
    placements = [await speaker.placed(index) for index in range(4)]
    assert [placement.node for placement in placements] == [near, far, near, far]
    d.advance(d.policy.spread_ms)
    later = await speaker.placed(4)
    assert later.node == near
    for placement in (*placements, later):
        await speaker.settle(placement)


@scenario(spread=True)
async def test_spread_gives_way_when_no_cell_has_another_node(d: Deployment) -> None:
    home, other, _ = d.cells.all
    far = await d.ready_node(other, slots=8)
    speaker = await d.speaker(home)
    placements = [await speaker.placed(index) for index in range(3)]
    assert {placement.node for placement in placements} == {far}
    for placement in placements:
        await speaker.settle(placement)


@scenario(spread=True)
async def test_spread_holds_between_turns_and_not_within_one(d: Deployment) -> None:
    await four_nodes_elsewhere(d)
    speaker = await d.speaker(d.cells.all[0])
    nodes, index = [], 0
    for number in range(4):
        turn = []
        for last in (False, True):
            turn += await say(speaker, index, f"t{number}", last=last)
            index += 1
        assert on_one_node(turn)
        nodes.append(turn[0].node)
        for placement in turn:
            await speaker.settle(placement)
    assert all(a != b for a, b in pairwise(nodes))


@scenario(cells=1, spread=True)
async def test_spread_in_one_cell_holds_between_utterances_of_several_languages(
    d: Deployment,
) -> None:
    (home,) = d.cells.all
    for _ in range(2):
        await d.ready_node(home, slots=8, can=BOTH)
    speaker = await d.speaker(home)
    nodes = []
    for index in range(6):
        placements = await say(speaker, index, f"t{index}")
        assert on_one_node(placements)
        nodes.append(placements[0].node)
        for placement in placements:
            await speaker.settle(placement)
    assert all(a != b for a, b in pairwise(nodes))
