"""A fleet on a server for `lingua bench placement`, and the real load on it.

A fleet is one cell with its own key prefix, so that fleets of every size stand side by side on one
server and are measured in turns. Every answer is checked: placed at once, settled, released as the
next outcome of its session. The first that deviates ends the run (`WrongAnswer`).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from lingua_bench.load import BODY, PAYLOAD, PairLoad, WorkerSession, WrongAnswer, require
from lingua_scheduler.jobs.requirement import Languages, PipelineStages, demand
from lingua_scheduler.nodes.capability import Declared, capability
from lingua_scheduler.state.keys import Cells
from lingua_scheduler.state.policy import FleetPolicy
from lingua_scheduler.state.records import (
    JobSpec,
    NodeAbout,
    NodeBeat,
    Placement,
    Released,
    job_id_of,
)
from lingua_scheduler.state.reply import Reply
from lingua_scheduler.state.script_runner import ScriptRunner
from lingua_scheduler.state.store import Store

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lingua_scheduler.state.connection import Connection
    from lingua_scheduler.state.keys import Cell
    from lingua_scheduler.state.records import NodeRow
    from lingua_scheduler.state.script import Word

WORKERS = 256
SLOTS = 4
T = TypeVar("T")

LANE = "es"
DEMAND = demand(Languages("en", LANE), PipelineStages()).text
AN_HOUR_MS = 3_600_000
# Calls in progress while a fleet is set up.
CHUNK = 500
# How long job records are kept after their outcome. Short, so that records end as fast as they are
# made, as in a deployment that has run for a while, and memory stays bounded. Sessions have no
# preferred pool here: whether one is written would differ from job to job.
POLICY = FleetPolicy(binding_ms=2_000, sticky_pools=False)


class FleetShape(NamedTuple):
    """The size of a fleet: nodes, and different abilities among them that all serve the pair."""

    nodes: int
    signatures: int

    @property
    def pools(self) -> int:
        """Return the number of pools."""
        return min(self.nodes, self.signatures)

    def __str__(self) -> str:
        return f"{self.nodes:,} nodes, {self.signatures} signatures"


class SingleCalls(ScriptRunner):
    """Sends every call alone, so that the cost of one is measured."""

    async def ask(
        self,
        name: str,
        cell: Cell,
        policy: bytes,
        args: tuple[Word, ...],
        *,
        read: Callable[[Any], T],
        size: int,
    ) -> T:
        """Run a script; never together with others."""
        del size  # which bounds what goes together
        return read(await self.run(name, cell, (policy, *args)))


class RegisteredFleet:
    """The nodes of one shape, registered and ready, in a cell of their own."""

    def __init__(self, connection: Connection, shape: FleetShape) -> None:
        self.connection = connection
        self.shape = shape
        self.cell = Cells(f"bench-{shape.nodes}-{shape.signatures}", 1).all[0]
        self.store = Store(connection, POLICY, runner=SingleCalls(connection))
        # As an instance uses it: calls of one turn of the loop go together.
        self.usual_store = Store(connection, POLICY)

    async def register(self) -> None:
        """Register every node and make it ready."""
        await in_chunks(self._register, self.shape.nodes)
        await in_chunks(self._beat, self.shape.nodes)

    async def open_sessions(self, prefix: str, count: int = WORKERS) -> list[WorkerSession]:
        """Open that many sessions."""
        speakers: list[WorkerSession] = []

        async def open_one(number: int) -> None:
            session = f"{prefix}-{number:03}"
            reply, epoch, _ = await self.store.sessions.open(
                self.cell, session, "bench", lease_ms=AN_HOUR_MS
            )
            require(reply is Reply.OPENED, f"opening a session gave {reply.name}")
            speakers.append(WorkerSession(session, epoch))

        await in_chunks(open_one, count)
        return sorted(speakers, key=lambda speaker: speaker.session)

    async def rows(self) -> list[NodeRow]:
        """Read every node."""
        rows: list[NodeRow] = []
        while page := await self.store.cells.nodes(self.cell, rows[-1].node if rows else ""):
            rows += page
        require(len(rows) == self.shape.nodes, f"{self.shape}: {len(rows)} are there")
        return rows

    async def require_idle(self) -> None:
        """Raise unless every slot is free and nothing waits."""
        rows, (pools, waiting, _) = await asyncio.gather(
            self.rows(), self.store.cells.pools(self.cell)
        )
        leased = sum(row.leased for row in rows)
        require(leased == 0, f"{self.shape}: {leased} slots are still taken")
        free = sum(pool.free for pool in pools)
        require(free == len(rows), f"{self.shape}: only {free} nodes count as free")
        require(waiting == 0, f"{self.shape}: {waiting} jobs still wait")
        require(len(pools) == self.shape.pools, f"{self.shape}: {len(pools)} pools")

    async def _register(self, number: int) -> None:
        tens, ones = divmod(number % self.shape.signatures, 26)
        also = f"x{chr(97 + tens)}{chr(97 + ones)}"
        can = capability(
            Declared(services={"asr": (), "nmt": (), "tts": ()}, pairs=(("en", LANE), ("en", also)))
        )
        # Four times the calls in flight: a full node would limit the load.
        slots = max(SLOTS, -(-4 * WORKERS // self.shape.nodes))
        answer = await self.store.nodes.register(
            self.cell,
            f"n{number:05}",
            "b1",
            conn="bench",
            can=can.packed(),
            about=NodeAbout(instance="bench", max=slots, silence_ms=AN_HOUR_MS),
        )
        require(answer.reply is Reply.REGISTERED, f"registering gave {answer}")

    async def _beat(self, number: int) -> None:
        answer = await self.store.nodes.beat(self.cell, f"n{number:05}", "b1", NodeBeat())
        require(answer.status == "ready", f"a good beat gave {answer}")


class RealLoad(PairLoad[Placement]):
    """Pairs through the store, as an instance makes them."""

    def __init__(self, fleet: RegisteredFleet, speakers: list[WorkerSession], store: Store) -> None:
        super().__init__(fleet.connection, speakers)
        self._store = store
        self._cell = fleet.cell
        self._shape = fleet.shape

    async def submit(self, speaker: WorkerSession) -> Placement:
        """Submit the session's next utterance, which must be placed at once."""
        job = job_id_of(speaker.session, f"r{speaker.index}")
        spec = JobSpec(session=speaker.session, index=speaker.index, lane=LANE, demand=DEMAND)
        speaker.calls += 1
        answer = await self._store.jobs.submit(self._cell, job, spec, BODY)
        placement = answer.placement
        if placement is None or placement.job != job or placement.attempt != 1:
            raise WrongAnswer(f"{self._shape}: submit gave {answer}")
        return placement

    async def settle(self, speaker: WorkerSession, held: Placement) -> None:
        """Settle it, which must release exactly it, as the next outcome."""
        index = speaker.index
        speaker.calls += 1
        answer = await self._store.jobs.settle(
            self._cell, held.job, 1, held.node, kind="completed", payload=PAYLOAD
        )
        expected = Released(
            seq=index + 1,
            kind="completed",
            utterance=index,
            lane=LANE,
            job=held.job,
            attempt=1,
            reason="-",
            payload=PAYLOAD,
        )
        if answer.effects.released != (expected,):
            raise WrongAnswer(f"{self._shape}: settling utterance {index} gave {answer}")
        speaker.index += 1

    async def acknowledge(self, speaker: WorkerSession) -> None:
        """Confirm every outcome so far."""
        speaker.calls += 1
        reply = await self._store.outbox.ack(
            self._cell, speaker.session, speaker.epoch, speaker.index
        )
        require(reply is Reply.OK, f"{self._shape}: acknowledging gave {reply.name}")

    async def require_complete(self) -> None:
        """Raise unless every session's outbox ends with its last pair."""
        for speaker in self.speakers:
            page = await self._store.outbox.read(
                self._cell, speaker.session, epoch=speaker.epoch, after_seq=speaker.index
            )
            require(page.reply is Reply.OK, f"reading an outbox gave {page}")
            done = (page.last_seq, len(page.entries))
            require(done == (speaker.index, 0), f"{speaker} ends with {page}")


async def in_chunks(call: Callable[[int], Awaitable[None]], count: int) -> None:
    """Make `count` calls, a bounded number of them at once."""
    for start in range(0, count, CHUNK):
        await asyncio.gather(*(call(n) for n in range(start, min(count, start + CHUNK))))
