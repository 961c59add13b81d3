"""Speakers and listeners in three cells of a real server, with a clock that the test controls.

Sessions are named with their home: `c1/bob` is the listener bob in the second cell. The speaker
`ann` is in the first cell, where a node takes all of her jobs.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from clocks import Lived
from lingua_scheduler.jobs.requirement import Languages, PipelineStages, demand
from lingua_scheduler.nodes.capability import Declared, capability
from lingua_scheduler.state.keys import Cells
from lingua_scheduler.state.link import LinkOptions
from lingua_scheduler.state.policy import FleetPolicy
from lingua_scheduler.state.records import JobSpec, NodeAbout, NodeBeat, job_id_of
from lingua_scheduler.state.single import SingleConnection
from lingua_scheduler.state.store import Store

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lingua_scheduler.state.keys import Cell
    from lingua_scheduler.state.records import (
        Effects,
        Placement,
        Released,
        Settled,
        UndeliveredOutcome,
    )
    from servers import Server

NOW_MS = 1_763_000_000_000
LANES = ("es", "fr", "de")
CAN = capability(
    Declared(
        services={"asr": (), "nmt": (), "tts": ()}, pairs=tuple(("en", lane) for lane in LANES)
    )
)
WANTED = {lane: demand(Languages("en", lane), PipelineStages()).text for lane in LANES}


class Kept(NamedTuple):
    """What the store has of a result for listeners of a cell."""

    payload: bytes
    text: bytes
    holders: set[str]


class Stage:
    """The cells, the speaker, and whoever listens."""

    def __init__(self, connection: SingleConnection, policy: FleetPolicy) -> None:
        self.connection = connection
        self.cells = Cells("audience", 3)
        self.home = self.cells.all[0]
        self.store = Store(cast("Any", Lived(connection)), policy)
        self.store.runner.now_ms = NOW_MS

    async def begin(self) -> None:
        await self.connection.every_master("FLUSHALL")
        about = NodeAbout(instance="i", max=50, silence_ms=3_600_000)
        await self.store.nodes.register(
            self.home, "n", "b", conn="c", can=CAN.packed(), about=about
        )
        await self.store.nodes.beat(self.home, "n", "b", NodeBeat())
        await self.open("c0/ann")

    def advance(self, ms: int) -> None:
        self.store.runner.now_ms += ms

    def at(self, where: str) -> tuple[Cell, str]:
        cell, _, name = where.partition("/")
        return self.cells.named(cell), name

    async def open(self, *places: str) -> None:
        """Open sessions; the owner of each is called as the session is, in capitals."""
        for where in places:
            cell, name = self.at(where)
            await self.store.sessions.open(cell, name, name.upper(), lease_ms=60_000)

    async def close(self, where: str, *, lapse_only: bool = False) -> Settled:
        cell, name = self.at(where)
        closed = await self.store.sessions.close(cell, name, "bye", lapse_only=lapse_only)
        return closed.settled

    # Speech

    async def submit(self, index: int, audience: str, lane: str = "es", **more: Any) -> Placement:
        """Have ann say something that others hear; return where it is."""
        spec = JobSpec(
            session="ann", index=index, lane=lane, demand=WANTED[lane], audience=audience, **more
        )
        job = job_id_of("ann", f"{index}/{lane}")
        answer = await self.store.jobs.submit(self.home, job, spec, b"")
        assert answer.placement is not None, answer
        return answer.placement

    async def settle(
        self, placed: Placement, kind: str = "completed", payload: bytes = b"", text: bytes = b""
    ) -> Effects:
        """Have the node report it; its text is that of its job unless something else is given."""
        if kind == "completed" and not payload:
            payload, text = b"sound of " + placed.job.encode(), b"text of " + placed.job.encode()
        answer = await self.store.jobs.settle(
            self.home, placed.job, placed.attempt, placed.node, kind=kind,
            payload=(payload, text),
        )  # fmt: skip
        return answer.effects

    async def say(
        self, index: int, audience: str, lane: str = "es", *, kind: str = "completed",
        payload: bytes = b"", **more: Any,
    ) -> Effects:  # fmt: skip
        """Have ann say something that is done at once."""
        placed = await self.submit(index, audience, lane, **more)
        return await self.settle(placed, kind, payload, b"t" if payload else b"")

    # The way to other cells

    async def put(self, ahead: tuple[UndeliveredOutcome, ...], cell: str) -> list[str]:
        """Bring outcomes to the listeners of one cell; return what is done there."""
        done = []
        for item in ahead:
            names = [where[3:] for where in item.listeners if where.startswith(cell + "/")]
            if names:
                _, absent = await self.store.outbox.put(self.cells.named(cell), item, names)
                if not absent:
                    done.append(f"{cell} {item.id}")
        return done

    async def bring_all(self) -> None:
        """Bring everything everywhere, as an instance that lives does."""
        done: list[str] = []
        while True:
            _, ahead, _ = await self.store.outbox.relay(self.home, "ann", done)
            new = [entry for cell in ("c1", "c2") for entry in await self.put(ahead, cell)]
            if not set(new) - set(done):
                return
            done += new

    # What the store has

    async def outbox(self, where: str) -> tuple[Released, ...]:
        cell, name = self.at(where)
        page = await self.store.outbox.read(cell, name)
        if page.trimmed:
            page = await self.store.outbox.read(cell, name, after_seq=page.trimmed)
        return page.entries

    async def heard(self, where: str) -> list[tuple[int, str, str]]:
        """Return what a listener heard: index, lane, kind."""
        entries = await self.outbox(where)
        assert {entry.kind for entry in entries} <= {"heard"}
        return [(e.utterance, e.lane, e.payload.split(b" ")[0].decode()) for e in entries]

    async def indices(self, where: str) -> list[int]:
        """Return the utterances that are in a listener's outbox, in order."""
        return [index for index, _, _ in await self.heard(where)]

    async def passed(self) -> list[tuple[int, str]]:
        """Return what ann was told that everybody has: index and lane."""
        entries = await self.outbox("c0/ann")
        assert all(entry.is_passed for entry in entries)
        return [(entry.utterance, entry.lane) for entry in entries]

    async def kept(self, cell: str, number: int) -> Kept | None:
        """Return what a cell keeps of ann's n-th outcome for others."""
        epoch = (await self.field("c0/ann", "epoch")) or ""
        return await self.kept_as(cell, f"ann|{epoch}|{number}")

    async def kept_as(self, cell: str, heard_id: str) -> Kept | None:
        home = self.cells.named(cell)
        key = home.key("heard", heard_id)
        raw = await self.connection.command(home.slot, "HGETALL", key)
        row = {raw[i]: raw[i + 1] for i in range(0, len(raw), 2)}
        if not row:
            return None
        return Kept(row.pop(b"p"), row.pop(b"t"), {name.decode() for name in row})

    async def field(self, where: str, name: str) -> str | None:
        cell, session = self.at(where)
        key = cell.key("session", session)
        raw = await self.connection.command(cell.slot, "HGET", key, name)
        return raw.decode() if raw is not None else None

    async def relayed(self) -> int:
        """Return how many outcomes of ann some listener waits for."""
        key = self.home.key("relay", "ann")
        return int(await self.connection.command(self.home.slot, "LLEN", key))

    async def timer(self, name: str = "x|ann") -> int | None:
        raw = await self.connection.command(self.home.slot, "ZSCORE", self.home.due, name)
        return int(raw) if raw is not None else None

    async def keys(self, cell: str) -> set[str]:
        """Return the families of the keys a cell has."""
        home = self.cells.named(cell)
        found = await self.connection.command(home.slot, "KEYS", home.base + "*")
        return {key.decode().removeprefix(home.base).partition(":")[0] for key in found}


def play(server: Server, scenario: Callable[[Stage], Awaitable[None]], **policy: Any) -> None:
    """Run a scenario on an emptied server."""

    async def whole() -> None:
        connection = await SingleConnection.open(
            server.address, LinkOptions(call_timeout_ms=10_000)
        )
        try:
            stage = Stage(connection, FleetPolicy(in_flight_max=50, **policy))
            await stage.begin()
            await scenario(stage)
        finally:
            await connection.close()

    asyncio.run(whole())
