"""Many copies of each request race over several connections: one job each, and one answer."""

from __future__ import annotations

import asyncio
import random

import pytest

import servers
from lingua_scheduler.jobs.requirement import Languages, PipelineStages, demand
from lingua_scheduler.nodes.capability import Declared, capability
from lingua_scheduler.state.cluster import ClusterConnection
from lingua_scheduler.state.keys import Cells
from lingua_scheduler.state.link import LinkOptions
from lingua_scheduler.state.policy import FleetPolicy
from lingua_scheduler.state.records import JobSpec, NodeAbout, NodeBeat, job_id_of
from lingua_scheduler.state.reply import Reply
from lingua_scheduler.state.single import SingleConnection
from lingua_scheduler.state.store import Store

pytestmark = pytest.mark.stress

REQUESTS, COPIES, SESSIONS, NODES = 1000, 5, 50, 20
CAN = capability(Declared(services={"asr": (), "nmt": (), "tts": ()}, pairs=(("en", "es"),)))
WANTED = demand(Languages("en", "es"), PipelineStages()).text
POLICY = FleetPolicy(in_flight_max=64, pending_jobs_max=10_000)


async def race(stores: list[Store], cells: Cells) -> None:
    for number in range(NODES):
        name = f"n{number}"
        cell = cells.of_node(name)
        about = NodeAbout(instance="i", max=REQUESTS // NODES, silence_ms=60_000)
        await stores[0].nodes.register(cell, name, "b", conn="c", can=CAN.packed(), about=about)
        await stores[0].nodes.beat(cell, name, "b", NodeBeat())
    sessions = [f"s{number}" for number in range(SESSIONS)]
    for session in sessions:
        await stores[0].sessions.open(cells.home_of(session), session, "i")

    def copy_of(number: int, store: Store):
        session, index = sessions[number % SESSIONS], number // SESSIONS
        spec = JobSpec(session=session, index=index, lane="es", demand=WANTED)
        job = job_id_of(session, f"request {number}")
        return store.jobs.submit(cells.home_of(session), job, spec, b"")

    # In the order of their index, as a session sends them; the copies of one race each other.
    answers: dict[int, list] = {}
    for first in range(0, REQUESTS, SESSIONS):
        calls = [
            (number, stores[copy % len(stores)])
            for number in range(first, first + SESSIONS)
            for copy in range(COPIES)
        ]
        random.shuffle(calls)
        replies = await asyncio.gather(*(copy_of(number, store) for number, store in calls))
        for (number, _), reply in zip(calls, replies, strict=True):
            answers.setdefault(number, []).append(reply)

    assert len(answers) == REQUESTS
    made = 0
    for replies in answers.values():
        fresh = [reply for reply in replies if reply.reply is not Reply.DUPLICATE]
        assert len(fresh) == 1
        assert fresh[0].reply in (Reply.PLACED, Reply.QUEUED)
        placement = fresh[0].placement
        holder = (placement.attempt, placement.node) if placement else (0, "")
        copies = [reply for reply in replies if reply.reply is Reply.DUPLICATE]
        assert {(reply.attempt, reply.node) for reply in copies} == {holder}
        made += placement is not None
    await count_jobs(stores[0], cells, made)


async def count_jobs(store: Store, cells: Cells, placed: int) -> None:
    jobs = leases = 0
    for cell in cells.all:
        keys = await store.runner.connection.command(cell.slot, "KEYS", cell.base + "job:*")
        jobs += len(keys)
        leases += sum(row.leased for row in await store.cells.nodes(cell))
    assert jobs == REQUESTS
    assert leases == placed


def test_a_thousand_requests_in_five_copies_make_a_thousand_jobs(tmp_path) -> None:
    async def play(server) -> None:
        connections = [
            await SingleConnection.open(server.address, LinkOptions(call_timeout_ms=10_000))
            for _ in range(3)
        ]
        await race([Store(each, POLICY) for each in connections], Cells("race", 1))
        for connection in connections:
            await connection.close()

    with servers.start_server(tmp_path) as server:
        asyncio.run(play(server))


def test_the_same_on_a_cluster_with_several_cells(tmp_path) -> None:
    async def play(cluster) -> None:
        connections = [
            await ClusterConnection.open(cluster.addresses, LinkOptions(call_timeout_ms=10_000))
            for _ in range(3)
        ]
        await race([Store(each, POLICY) for each in connections], Cells("race", 6))
        for connection in connections:
            await connection.close()

    with servers.start_cluster(tmp_path, masters=3) as cluster:
        asyncio.run(play(cluster))
