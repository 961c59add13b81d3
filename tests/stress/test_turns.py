"""Many turns over several cells at once: every job of a turn on one node, no context lost."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from jobs.deployment import BOTH, TO_FRENCH, TO_SPANISH, Deployment, deployed
from lingua_scheduler.state.policy import FleetPolicy
from servers import start_server

if TYPE_CHECKING:
    from pathlib import Path

    from jobs.deployment import Speaker
    from lingua_scheduler.jobs.dispatcher import Dispatcher
    from lingua_scheduler.state.records import Placement

pytestmark = pytest.mark.stress

TURNS = int(os.environ.get("LINGUA_TURNS", "600"))
AT_ONCE, SLICES, CELLS = 30, 3, 6
WANTED = {"es": TO_SPANISH, "fr": TO_FRENCH}


async def take_a_turn(
    speaker: Speaker, turn: str, first: int, ways: list[Dispatcher]
) -> list[Placement]:
    """Submit all slices of a turn in all languages at once, by several instances."""
    pieces = await asyncio.gather(
        *(
            speaker.submit(
                first + number, lane, turn=turn, wanted=wanted, is_slice=number < SLICES - 1,
                closes_turn=number == SLICES - 1, via=ways[number % len(ways)],
            )
            for number in range(SLICES)
            for lane, wanted in WANTED.items()
        )
    )  # fmt: skip
    placements = [placement for _, work in pieces for placement in work.push]
    assert len(placements) == SLICES * len(WANTED)
    for placement in placements:
        await speaker.settle(placement)
    return placements


async def talk(d: Deployment) -> Counter[str]:
    """Let many speakers take turns; nodes are in two cells only."""
    other = d.instance()
    for cell in (d.cells.all[2], d.cells.all[5]):
        for _ in range(3):
            await d.ready_node(cell, slots=AT_ONCE * SLICES * len(WANTED), can=BOTH)
    await other.fleet.refresh()
    ways = [d.dispatcher, other.dispatcher]
    count: Counter[str] = Counter()

    async def speak(number: int) -> None:
        speaker = await d.speaker(d.cells.all[number % CELLS])
        for turn in range(TURNS // AT_ONCE):
            placements = await take_a_turn(speaker, f"t{turn}", turn * SLICES, ways)
            count["turns"] += 1
            count["jobs"] += len(placements)
            count["divided"] += len({placement.node for placement in placements}) > 1
            count["moved"] += sum(placement.context_reset for placement in placements)

    await asyncio.gather(*(speak(number) for number in range(AT_ONCE)))
    return count


def test_no_turn_over_several_cells_is_divided(tmp_path: Path) -> None:
    async def run() -> Counter[str]:
        policy = FleetPolicy(outbox_max=1_000_000, in_flight_max=64)
        async with deployed(server.address, cells=CELLS, policy=policy) as d:
            count = await talk(d)
            await d.settle_down()
            return count

    with start_server(tmp_path) as server:
        count = asyncio.run(run())
    print(f"\n{count['turns']} turns, {count['jobs']} jobs over {CELLS} cells: {dict(count)}")
    assert count["turns"] == TURNS // AT_ONCE * AT_ONCE
    assert (count["divided"], count["moved"]) == (0, 0)
