"""The snapshot of the fleet, and that `explain` agrees with placement."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import pytest

from jobs.deployment import (
    BOTH,
    FRENCH,
    SERVICES,
    SPANISH,
    TO_FRENCH,
    TO_SPANISH,
    Deployment,
    Speaker,
    scenario,
)
from lingua_scheduler.jobs.fleet import PAGE, read_fleet
from lingua_scheduler.jobs.placement import PlacementRequest, PlacementVerdict, explain
from lingua_scheduler.jobs.requirement import Demand, Languages, PipelineStages, demand
from lingua_scheduler.nodes.capability import Declared, capability
from lingua_scheduler.state.records import NodeAbout, NodeBeat
from lingua_scheduler.state.reply import Reply

if TYPE_CHECKING:
    from lingua_scheduler.state.keys import Cell
    from lingua_scheduler.state.records import Submitted

pytestmark = pytest.mark.store

ANYTHING = capability(Declared(services=SERVICES))
PRIVATE = capability(Declared(services=SERVICES, pairs=(("en", "es"),), private_to="acme"))
NO_SPEECH = capability(Declared(services={"asr": (), "nmt": ()}, pairs=(("en", "es"),)))
OF_ACME = demand(Languages("en", "es"), PipelineStages(), tenant="acme").text
TO_NOWHERE = demand(Languages("xx", "yy"), PipelineStages()).text
TEXT_ONLY = demand(Languages("en", "es"), PipelineStages(use_tts=False)).text
WITH_EMOTION = demand(
    Languages("en", "es"), PipelineStages(), frozenset({"emotion_detection"})
).text


def names(cells: list[Cell]) -> list[str]:
    return [cell.name for cell in cells]


@scenario(cells=4)
async def test_the_snapshot_skips_cells_that_cannot_serve_and_keeps_the_ring(
    d: Deployment,
) -> None:
    abilities = (SPANISH, FRENCH, BOTH, PRIVATE)
    for cell, can in zip(d.cells.all, abilities, strict=True):
        await d.ready_node(cell, can=can)
    c0, c1, c2, _ = d.cells.all
    assert names(d.fleet.elsewhere(c0, TO_SPANISH)) == ["c2"]
    assert names(d.fleet.elsewhere(c1, TO_SPANISH)) == ["c2", "c0"]
    assert names(d.fleet.elsewhere(c1, TO_FRENCH)) == ["c2"]
    assert names(d.fleet.elsewhere(c2, OF_ACME)) == ["c3", "c0"]
    assert d.fleet.elsewhere(c0, TO_NOWHERE) == []


@scenario(cells=3)
async def test_every_cell_is_worth_asking_before_the_first_look(d: Deployment) -> None:
    fresh = d.instance().fleet
    assert names(fresh.elsewhere(d.cells.all[1], TO_NOWHERE)) == ["c2", "c0"]
    await fresh.refresh()
    assert fresh.elsewhere(d.cells.all[1], TO_NOWHERE) == []


@scenario(cells=1)
async def test_the_only_cell_has_no_others(d: Deployment) -> None:
    assert d.instance().fleet.elsewhere(d.cells.all[0], TO_SPANISH) == []


@scenario(cells=2)
async def test_a_look_shows_what_has_changed_since_the_last(d: Deployment) -> None:
    home, other = d.cells.all
    node = await d.ready_node(other)
    assert names(d.fleet.elsewhere(home, TO_SPANISH)) == ["c1"]
    await d.store.nodes.beat(other, node, "b1", NodeBeat(), FRENCH.packed())
    # As it was at the last look; placement itself never relies on it.
    assert names(d.fleet.elsewhere(home, TO_SPANISH)) == ["c1"]
    speaker = await d.speaker(home)
    assert (await speaker.submit(0))[0].reply is Reply.QUEUED
    await d.fleet.refresh()
    assert d.fleet.elsewhere(home, TO_SPANISH) == []
    assert names(d.fleet.elsewhere(home, TO_FRENCH)) == ["c1"]


@scenario(cells=1)
async def test_a_cell_of_more_nodes_than_a_page_is_read_whole(d: Deployment) -> None:
    (cell,) = d.cells.all
    about = NodeAbout(instance="i1", max=2, silence_ms=60_000)
    nodes = [f"node-{number:04}" for number in range(2 * PAGE + 1)]
    await asyncio.gather(
        *(
            d.store.nodes.register(cell, node, "b1", conn="c", can=SPANISH.packed(), about=about)
            for node in nodes
        )
    )
    d.store.called()
    fleet = await read_fleet(d.store, cell)
    assert d.store.called().count(("cell_nodes", cell.name)) == 4
    assert sorted(fleet.nodes) == nodes
    (pool,) = fleet.pools.values()
    assert all(node.pool == pool.id and node.max_jobs == 2 for node in fleet.nodes.values())


@scenario(cells=1)
async def test_a_node_is_read_as_placement_sees_it(d: Deployment) -> None:
    (cell,) = d.cells.all
    busy = await d.ready_node(cell, slots=3, boot="b7")
    speaker = await d.speaker(cell)
    placement = await speaker.placed(0)
    await d.store.nodes.beat(cell, busy, "b7", NodeBeat(running=2))
    over, drained, silent = [await d.ready_node(cell, can=FRENCH) for _ in range(3)]
    await d.store.nodes.beat(cell, over, "b1", NodeBeat(over=True))
    await d.store.nodes.drain(cell, drained, drain=True)
    await d.store.nodes.offline(cell, silent, "conn-b1")
    nodes = (await read_fleet(d.store, cell)).nodes
    view = nodes[busy]
    assert (view.boot, view.max_jobs, view.leased, view.extra) == ("b7", 3, 1, 1)
    assert [nodes[node].blocked_by for node in (busy, over, drained, silent)] == [
        None, "resource_threshold_exceeded", "status_not_ready", "offline",
    ]  # fmt: skip
    await speaker.settle(placement)


# `explain` and the script agree.


def job_tie(job: str) -> float:
    """The job's own share of chance, as `node_score.lua` takes it from the id."""
    return int(job[4:9], 16) / 2**20


async def explained(d: Deployment, speaker: Speaker, index: int, wanted: str) -> PlacementVerdict:
    """What `explain` says of a job that is about to be submitted."""
    fleet = await read_fleet(d.store, speaker.home)
    wish = PlacementRequest(Demand.parse(wanted), near="i1", tie=job_tie(speaker.job(index)))
    verdict, lines = explain(fleet, wish)
    assert {line.node for line in lines if line.chosen} == ({verdict.node} - {""})
    assert all(not line.removed_by for line in lines if line.chosen)
    return verdict


def as_verdict(answer: Submitted) -> PlacementVerdict:
    """What the script did, in the words of `explain`."""
    if answer.placement is not None:
        return PlacementVerdict(answer.placement.node)
    assert answer.code is not None
    return PlacementVerdict(code=answer.code.name, label=answer.label)


@scenario(cells=1, in_flight_max=200, sticky_pools=False)
async def test_explain_names_the_node_that_the_submit_then_takes(d: Deployment) -> None:
    (cell,) = d.cells.all
    rng = random.Random(7)
    for can in (SPANISH, FRENCH, BOTH, ANYTHING, PRIVATE, NO_SPEECH):
        for instance in ("i1", "i2", "i3", "i1"):
            await d.ready_node(cell, can=can, slots=rng.randint(1, 3), instance=instance)
    speaker = await d.speaker(cell)
    wishes = (TO_SPANISH, TO_FRENCH, OF_ACME, TEXT_ONLY, TO_NOWHERE, WITH_EMOTION)
    running, seen = [], set()
    for index in range(120):
        wanted = rng.choice(wishes)
        verdict = await explained(d, speaker, index, wanted)
        answer, _ = await speaker.submit(index, wanted=wanted)
        assert as_verdict(answer) == verdict
        seen.add(verdict.code or "placed")
        running += [answer.placement] if answer.placement else []
        # Ended again at random, so that loads differ.
        if running and rng.random() < 0.5:
            _, work = await speaker.settle(running.pop(rng.randrange(len(running))))
            running += work.push
    assert seen >= {"placed", "NO_AVAILABLE_NODE"}


@scenario(cells=1)
async def test_explain_names_the_reason_that_the_submit_then_gives(d: Deployment) -> None:
    (cell,) = d.cells.all
    speaker = await d.speaker(cell)
    reasons = []

    async def compare(index: int, wanted: str) -> None:
        verdict = await explained(d, speaker, index, wanted)
        assert as_verdict((await speaker.submit(index, wanted=wanted))[0]) == verdict
        reasons.append((verdict.code, verdict.label))

    await compare(0, TO_SPANISH)
    node = await d.ready_node(cell, can=FRENCH)
    await compare(1, TO_SPANISH)
    await compare(2, demand(Languages("en", "fr"), PipelineStages(use_tone=True)).text)
    await d.store.nodes.drain(cell, node, drain=True)
    await compare(3, TO_FRENCH)
    await d.store.nodes.offline(cell, node, "conn-b1")
    await compare(4, TO_FRENCH)
    assert reasons == [
        ("NO_POOL_FOR_LANG_PAIR", "no_nodes"),
        ("NO_POOL_FOR_LANG_PAIR", "lang_pair_unsupported"),
        ("NO_AVAILABLE_NODE", "model_not_available"),
        ("NO_AVAILABLE_NODE", "status_not_ready"),
        ("EMPTY_POOL", "offline"),
    ]
