"""The benchmark on a real server: small fleets, and every check shown to reject."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any, NamedTuple

import pytest
import uvloop

from lingua_bench.ceiling import CeilingLoad, ceiling_scripts
from lingua_bench.fleet import FleetShape, RealLoad, RegisteredFleet
from lingua_bench.load import ACK_EVERY, PairLoad, WrongAnswer, batch_between, command_stats
from lingua_bench.placement import (
    FOCUS,
    NARROW,
    WIDE,
    PlacementPlan,
    Subject,
    measure,
    private_store,
    schedule,
)
from lingua_bench.report import FleetRow, growth, summary
from lingua_scheduler.state.keys import Cells, family_of
from lingua_scheduler.state.link import Address

pytestmark = pytest.mark.store

SHAPE = FleetShape(7, 3)
QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')


class Loads(NamedTuple):
    fleet: RegisteredFleet
    real: RealLoad
    ceiling: CeilingLoad


@asynccontextmanager
async def loads(shape: FleetShape = SHAPE, sessions: int = 3) -> AsyncIterator[Loads]:
    async with private_store() as connection:
        fleet = RegisteredFleet(connection, shape)
        await fleet.register()
        real = RealLoad(fleet, await fleet.open_sessions("real", sessions), fleet.store)
        ceiling = await CeilingLoad.on(fleet, await fleet.open_sessions("bare", sessions))
        await real.warm_up()
        await ceiling.warm_up()
        yield Loads(fleet, real, ceiling)


def run(scenario: Coroutine[Any, Any, None]) -> None:
    uvloop.run(scenario)


class Seen(NamedTuple):
    """One command as the server's MONITOR shows it."""

    name: str
    family: str
    words: int
    length: int


async def commands_of(load: PairLoad[Any], prefix: str) -> list[Seen]:
    """Let a session make as many pairs as it takes to acknowledge; return what its scripts did."""
    address: Address = load._connection._address  # type: ignore[attr-defined]
    reader, writer = await asyncio.open_unix_connection(address.path, limit=1 << 20)
    writer.write(b"MONITOR\r\n")
    assert await reader.readline() == b"+OK\r\n"
    for _ in range(ACK_EVERY):
        await load.pair(load.speakers[0])
    await load._connection.command(0, "ECHO", "the end")
    seen = []
    while b"the end" not in (line := await reader.readline()):
        # Now and then a script reads or writes the mark of the cell's clock.
        if b"[0 lua]" in line and b':clock"' not in line:
            seen.append(command_in(line.decode(), prefix))
    writer.close()
    await writer.wait_closed()
    return seen


def command_in(line: str, prefix: str) -> Seen:
    name, *words = QUOTED.findall(line)
    family = family_of(words[0], prefix) if words else None
    return Seen(name, family.pattern if family else "", len(words), sum(map(len, words)))


@pytest.mark.parametrize("shape", [SHAPE, FleetShape(7, 1)], ids=str)
def test_the_ceiling_makes_the_commands_of_the_scripts_on_the_same_kinds_of_keys(
    shape: FleetShape,
) -> None:
    async def scenario() -> None:
        async with loads(shape) as (fleet, real, ceiling):
            prefix = fleet.cell.base.partition(":")[0]
            ours, bare = await commands_of(real, prefix), await commands_of(ceiling, prefix)
            assert [seen[:3] for seen in ours] == [seen[:3] for seen in bare]
            assert {seen.name for seen in ours} >= {"LTRIM", "PEXPIRE", "ZRANGE"}
            sizes = [sum(seen.length for seen in side) for side in (ours, bare)]
            assert abs(sizes[0] - sizes[1]) < 0.05 * sizes[0]

    run(scenario())


def test_a_search_among_several_pools_looks_at_two_and_in_one_pool_at_one() -> None:
    cell = Cells("any", 1).all[0]
    for pools, looks in ((1, 1), (2, 2), (20, 2)):
        assert ceiling_scripts(cell, pools)["submit"].library.source.count(b"'ZRANGE'") == looks


def test_the_server_counts_the_same_commands_for_both() -> None:
    async def scenario() -> None:
        async with loads() as (_, real, ceiling):
            ours, bare = await real.batch(), await ceiling.batch()
            for one, other in zip(ours, bare, strict=True):
                assert one.commands == other.commands
                assert one.us_per_call > 0
                assert other.us_per_call > 0
            assert ours[0].commands["zrange"] == 2
            assert ours[1].commands["zrem"] == 2

    run(scenario())


def test_in_steps_the_same_pairs_are_made_in_fewer_calls_of_the_server() -> None:
    async def scenario() -> None:
        async with loads(sessions=8) as (fleet, real, _):
            usual = RealLoad(fleet, real.speakers, fleet.usual_store)
            before = await command_stats(fleet.connection)
            sample = await usual.run_in_steps(8, 0.0)
            spent = await command_stats(fleet.connection) - before
            assert (sample.pairs, sample.calls) == (8, 16)
            assert spent["fcall"] < sample.calls
            await usual.require_complete()

    run(scenario())


def test_a_wrong_answer_in_steps_ends_the_run() -> None:
    async def scenario() -> None:
        async with loads() as (fleet, real, _):
            usual = RealLoad(fleet, real.speakers, fleet.usual_store)
            real.speakers[1].index += 1  # a place that is not its next one
            with pytest.raises(WrongAnswer, match="settling utterance"):
                await usual.run_in_steps(3, 0.0)

    run(scenario())


def test_commands_that_differ_end_the_run() -> None:
    async def scenario() -> None:
        async with loads() as (fleet, real, ceiling):
            ceiling._scripts = ceiling_scripts(fleet.cell, pools=1)
            with pytest.raises(WrongAnswer, match=r"the scripts made .*, the ceiling"):
                await Subject(fleet, real, ceiling, aof=False).batch()

    run(scenario())


def test_load_leaves_the_fleet_idle_and_the_outboxes_complete() -> None:
    async def scenario() -> None:
        async with loads() as (fleet, real, ceiling):
            await fleet.require_idle()
            for load in (real, ceiling):
                before = load.pairs_made
                done = await load.run(width=2, seconds=0.05)
                assert done.pairs == load.pairs_made - before >= 2
                assert done.calls == 2 * done.pairs + sum(
                    speaker.index // ACK_EVERY for speaker in load.speakers
                )
                assert load.speakers[2].index == 1, "the third session was not asked"
            await fleet.require_idle()
            await real.require_complete()

    run(scenario())


def test_a_slot_that_stays_taken_is_found() -> None:
    async def scenario() -> None:
        async with loads() as (fleet, real, _):
            held = await real.submit(real.speakers[0])
            with pytest.raises(WrongAnswer, match="1 slots are still taken"):
                await fleet.require_idle()
            await real.settle(real.speakers[0], held)
            await fleet.require_idle()

    run(scenario())


def test_an_outcome_out_of_order_is_found() -> None:
    async def scenario() -> None:
        async with loads() as (_, real, _ceiling):
            speaker = real.speakers[0]
            early = await real.submit(speaker)
            speaker.index += 1
            held = await real.submit(speaker)
            with pytest.raises(WrongAnswer, match="settling utterance 2 gave"):
                await real.settle(speaker, held)
            speaker.index -= 1
            with pytest.raises(WrongAnswer, match="settling utterance 1 gave"):
                await real.settle(speaker, early)  # releases two at once

    run(scenario())


def test_a_job_that_is_not_placed_is_found() -> None:
    async def scenario() -> None:
        async with loads() as (_, real, _ceiling):
            real.speakers[0].index = 0
            with pytest.raises(WrongAnswer, match="submit gave"):
                await real.submit(real.speakers[0])

    run(scenario())


def test_an_outbox_that_lacks_an_outcome_is_found() -> None:
    async def scenario() -> None:
        async with loads() as (_, real, _ceiling):
            await real.require_complete()
            real.speakers[1].index += 1
            with pytest.raises(WrongAnswer):
                await real.require_complete()

    run(scenario())


def test_a_count_durable_script_calls_is_refused() -> None:
    with pytest.raises(WrongAnswer, match="counted no script call"):
        batch_between(Counter(fcall=3), Counter(fcall=3, info=4))


def test_a_small_run_measures_every_fleet_and_the_focus_with_the_append_only_file() -> None:
    told: list[str] = []

    async def scenario() -> None:
        plan = PlacementPlan([FleetShape(2, 1), SHAPE], seconds=0.6, rounds=2)
        report = await measure(plan, lambda doing, _: told.append(doing))
        kinds = [(row.nodes, row.signatures, row.aof) for row in report.rows]
        assert kinds == [(2, 1, False), (7, 3, False), (7, 3, True)]
        assert [row.slices for row in report.rows] == [1, 2, 1]
        for row in report.rows:
            assert row.pairs_per_s_256 > 0
            assert row.submit_server_us >= row.submit_server_us_min > 0
            assert row.commands_per_pair == row.ceiling_commands_per_pair
            assert (row.pairs_per_s_64 is None) is row.aof
        assert report.commands[0] == report.commands[1]
        assert report.summary.ratio_to_ceiling is None, "1,000 nodes were not measured"

    run(scenario())
    assert told[0] == "registering 2 nodes, 1 signatures"
    assert told[-1] == "checking that every slot is free"


def idle_subject(shape: FleetShape, *, aof: bool) -> Subject:
    no_connection: Any = None
    fleet = RegisteredFleet(no_connection, shape)
    load: Any = RealLoad(fleet, [], fleet.store)
    return Subject(fleet, load, load, aof=aof)


def test_the_focus_is_in_every_round_and_the_order_changes() -> None:
    shapes = [FleetShape(10, 20), FOCUS, FleetShape(10_000, 20)]
    small, focus, large = (idle_subject(shape, aof=False) for shape in shapes)
    durable = idle_subject(FOCUS, aof=True)
    steps = schedule(PlacementPlan(shapes, 1.0, rounds=16), [small, focus, large], durable)
    rounds = Counter(step.subject for step in steps if step.width == NARROW)
    assert rounds == {focus: 16, small: 4, large: 4}
    wide = Counter(step.subject for step in steps if step.width == WIDE)
    assert wide == {focus: 48, small: 12, large: 12, durable: 24}
    followers = {step.subject for before, step in pairwise(steps) if before.subject is focus}
    assert followers >= {small, large, durable}


def row(
    nodes: int, signatures: int, submit_us: float, settle_us: float, aof: bool = False
) -> FleetRow:
    return FleetRow(
        nodes=nodes,
        signatures=signatures,
        aof=aof,
        pairs_per_s_64=50.0,
        pairs_per_s_256=60.0,
        ceiling_pairs_per_s_256=80.0,
        ratio_to_ceiling=0.75,
        submit_server_us=submit_us,
        submit_server_us_min=1.0,
        settle_server_us=settle_us,
        settle_server_us_min=1.0,
        ceiling_submit_server_us=1.0,
        ceiling_settle_server_us=1.0,
        client_us_per_call=9.0,
        client_us_per_call_in_steps=5.0,
        ceiling_client_us_per_call=4.0,
        commands_per_pair=27.0,
        ceiling_commands_per_pair=27.0,
        slices=1,
        batches=1,
        pairs_checked=1,
    )


def test_growth_is_that_of_the_script_that_grew_more() -> None:
    assert growth(row(10, 20, 10.0, 20.0), row(10_000, 20, 11.0, 30.0)) == 1.5
    assert growth(row(10, 20, 10.0, 20.0), row(10_000, 20, 20.0, 20.0)) == 2.0
    assert growth(None, row(10_000, 20, 20.0, 20.0)) is None


def test_the_summary_takes_its_numbers_from_1000_nodes_in_20_signatures() -> None:
    rows = [
        row(10, 20, 10.0, 20.0),
        row(10, 1, 1.0, 1.0),
        row(1_000, 20, 11.0, 21.0),
        row(10_000, 20, 13.0, 20.0),
        row(1_000, 20, 5.0, 5.0, aof=True),
    ]
    found = summary(rows, FOCUS)
    assert found.growth_10_to_10000 == 1.3
    assert (found.submit_server_us, found.settle_server_us) == (11.0, 21.0)
    assert (found.ratio_to_ceiling, found.pairs_per_s_64) == (0.75, 50.0)


def test_a_limit_that_setting_up_has_used_up_leaves_the_shortest_run() -> None:
    async def scenario() -> None:
        plan = PlacementPlan([FleetShape(2, 1)], seconds=3_000.0, rounds=1, limit_s=0.0)
        report = await measure(plan, lambda *_: None)
        assert [(row.slices, row.batches) for row in report.rows] == [(1, 3), (1, 3)]

    run(scenario())
