"""The private server is killed under a load of real placements: calls fail typed, then go on.

What was written in the last moments may be gone with the server (it syncs every second); that is
for the sessions' owners to repeat. Here: no call hangs, none gets another's answer, the next start
works, and slots do not leak.
"""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from lingua_scheduler.config import Settings
from lingua_scheduler.errors import StoreUnavailable
from lingua_scheduler.jobs.dispatcher import Dispatcher
from lingua_scheduler.jobs.fleet import FleetSnapshot
from lingua_scheduler.jobs.relay import OutcomeRelay
from lingua_scheduler.jobs.requirement import Languages, PipelineStages, demand
from lingua_scheduler.jobs.sweeper import Sweeper
from lingua_scheduler.nodes.capability import Declared, capability
from lingua_scheduler.state.embedded import EmbeddedServer
from lingua_scheduler.state.keys import Cells
from lingua_scheduler.state.link import Address, LinkOptions
from lingua_scheduler.state.policy import FleetPolicy
from lingua_scheduler.state.records import JobSpec, NodeAbout, NodeBeat, job_id_of
from lingua_scheduler.state.reply import Reply
from lingua_scheduler.state.single import SingleConnection
from lingua_scheduler.state.store import Store
from servers import until

pytestmark = pytest.mark.stress

KILLS, WORKERS, NODES = 20, 16, 4
CAN = capability(Declared(services={"asr": (), "nmt": (), "tts": ()}, pairs=(("en", "es"),)))
WANTED = demand(Languages("en", "es"), PipelineStages()).text
POLICY = FleetPolicy(in_flight_max=256, outbox_max=100_000)


class Load:
    """Workers that submit and settle without end, whatever happens to the store."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.cell = Cells("kills", 1).all[0]
        self.pairs = 0
        self.outages = 0
        self.stopped = False

    async def register(self) -> None:
        for number in range(NODES):
            about = NodeAbout(instance="i", max=8, silence_ms=60_000)
            await self.store.nodes.register(
                self.cell, f"n{number}", "b", conn="c", can=CAN.packed(), about=about
            )
            await self.store.nodes.beat(self.cell, f"n{number}", "b", NodeBeat())

    async def work(self, worker: int) -> None:
        session, index = f"s{worker}", 0
        while not self.stopped:
            try:
                index = await self.pair(session, index)
            except StoreUnavailable:
                self.outages += 1
                index = await self.position(session)

    async def position(self, session: str) -> int:
        """Where the store stands now: it may have forgotten the last moments before a kill."""
        while True:
            try:
                page = await self.store.outbox.read(self.cell, session, limit=0)
            except StoreUnavailable:
                await asyncio.sleep(0.01)
            else:
                return page.last_seq

    async def pair(self, session: str, index: int) -> int:
        job = job_id_of(session, str(index))
        spec = JobSpec(session=session, index=index, lane="es", demand=WANTED)
        answer = await self.store.jobs.submit(self.cell, job, spec, b"body")
        if answer.reply is Reply.NO_SESSION:
            await self.store.sessions.open(self.cell, session, "i")
            return 0
        # A duplicate: the job is there, the answer to its first submit was lost.
        assert answer.reply in (Reply.PLACED, Reply.DUPLICATE), answer
        node = answer.placement.node if answer.placement is not None else answer.node
        settled = await self.store.jobs.settle(self.cell, job, 1, node, kind="completed")
        assert settled.reply is Reply.SETTLED, settled
        assert [entry.job for entry in settled.effects.released] == [job]
        self.pairs += 1
        return index + 1


async def survive_kills(directory: Path) -> Load:
    settings = Settings(data_dir=directory)
    async with EmbeddedServer(settings.data_dir / "store", max_restarts_per_minute=100) as server:
        address = Address.unix(str(server.socket_path))
        connection = await SingleConnection.open(address, LinkOptions())
        load = Load(Store(connection, POLICY))
        await load.register()
        workers = [asyncio.create_task(load.work(number)) for number in range(WORKERS)]
        for kill in range(KILLS):
            before = load.pairs
            await until(lambda before=before: load.pairs > before + WORKERS, 30, "work goes on")
            pid = server.pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            await until(lambda kill=kill: server.restarts > kill, 30, "a new server")
        before = load.pairs
        await until(lambda: load.pairs > before + WORKERS, 30, "work goes on after the last kill")
        load.stopped = True
        async with asyncio.timeout(30):  # no call hangs
            await asyncio.gather(*workers)
        await slots_come_free(load, connection)
        await connection.close()
    return load


async def slots_come_free(load: Load, connection: SingleConnection) -> None:
    """What the kills left held is moved, expired and freed by the sweeper, as time passes."""
    cells = Cells("kills", 1)
    now_ms = int((await connection.command(0, "TIME"))[0]) * 1000
    dispatcher = Dispatcher(load.store, cells, FleetSnapshot(load.store, cells), POLICY)
    for step in range(40):
        load.store.runner.now_ms = now_ms + step * 10_000
        await Sweeper(load.store, dispatcher, OutcomeRelay(load.store, cells)).sweep(load.cell)
    rows = await load.store.cells.nodes(load.cell)
    assert sum(row.leased for row in rows) == 0


def test_twenty_kills_of_the_store_under_placements(tmp_path: Path) -> None:
    load = asyncio.run(survive_kills(tmp_path))

    assert load.outages >= KILLS
    assert load.pairs > KILLS * WORKERS
