"""A cell of the store that cannot be reached: what lives in the other cells goes on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from edge.live_server import until
from edge.many_servers import PREFIX, Company, Member, play
from lingua_scheduler.errors import StoreUnavailable
from lingua_scheduler.state.calls import StoreCall
from lingua_scheduler.state.keys import Cell

pytestmark = pytest.mark.store

# Nobody is declared dead in a scenario that is about something else.
PATIENT = {"instances__silence_ms": 10_000}


def away(member: Member, cell: Cell) -> None:
    """Let every call to a cell fail, as if its master were gone."""
    connection = member.server.instance._connection
    send = connection._send

    def send_unless_away(call: StoreCall) -> None:
        if call.slot == cell.slot:
            call.fail(StoreUnavailable("cell", "away"))
        else:
            send(call)

    connection._send = send_unless_away


def test_a_cell_that_is_away_takes_no_other_cell_with_it() -> None:
    async def scenario(company: Company) -> None:
        member = company["A"]
        instance = member.server.instance
        cells = instance.cells
        # Everyone lives in the other cell.
        name = next(n for n in map("node-{}".format, range(100)) if cells.of_node(n).name == "c1")
        node = await member.node(name, sends_acks=True)
        client = None
        while client is None:
            found = await member.client()
            client = found if instance.sessions[found.id].record.home.name == "c1" else None
        away(member, cells.all[0])
        # Longer than its acknowledgement may take.
        await client.utter(0)
        job = await node.job()
        await node.take(job)
        await asyncio.sleep(2)
        await node.answer(job)
        await client.result(0)
        # A deadline rings there.
        await client.utter(1)
        await node.job(utterance_index=1)
        await until(lambda: member.counted("failovers_total", reason="no_ack") == 1, "it rings")
        due = Cell(PREFIX, 1).key("due")
        before = float(company.ask("ZSCORE", due, f"s|{client.id}"))
        await until(lambda: float(company.ask("ZSCORE", due, f"s|{client.id}")) > before, "renewed")

    play(
        scenario, "A", cells=2, jobs__ack_ms=1500, sessions__lease_ms=3000,
        sessions__resume_ms=3000, **PATIENT,
    )  # fmt: skip


def test_what_can_be_reached_is_verified_once_though_a_cell_is_away() -> None:
    async def scenario(company: Company) -> None:
        member = company["A"]
        instance = member.server.instance
        name = next(
            n for n in map("node-{}".format, range(100)) if instance.cells.of_node(n).name == "c1"
        )
        node = await member.node(name)
        homes: dict[str, Any] = {}
        while len(homes) < 2:
            found = await member.client()
            homes[instance.sessions[found.id].record.home.name] = found
        await homes["c1"].utter(0)
        job = await node.job()
        away(member, instance.cells.all[0])
        connection, calls = instance._connection, []
        send = connection._send

        def count(call: StoreCall) -> None:
            calls.append(call.script.name if call.script is not None else "")
            send(call)

        connection._send = count
        connection._advance()
        await until(lambda: "node_register" in calls, "it is verified")
        await asyncio.sleep(1.5)
        assert calls.count("node_register") == 1
        assert calls.count("job_submit") == 1
        await node.answer(job)
        await homes["c1"].result(0)

    play(scenario, "A", cells=2, **PATIENT)
