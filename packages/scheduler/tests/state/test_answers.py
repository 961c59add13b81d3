"""How the answers of a settle are read: the usual one is one text, all others are lists."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from lingua_scheduler.jobs.requirement import Languages, PipelineStages, demand
from lingua_scheduler.nodes.capability import Declared, capability
from lingua_scheduler.state.answers import read_settled
from lingua_scheduler.state.keys import Cell
from lingua_scheduler.state.link import LinkOptions
from lingua_scheduler.state.packing import pack
from lingua_scheduler.state.policy import FleetPolicy
from lingua_scheduler.state.records import JobSpec, NodeAbout, NodeBeat
from lingua_scheduler.state.reply import Reply
from lingua_scheduler.state.single import SingleConnection
from lingua_scheduler.state.store import Store
from servers import start_server

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.store

CELL = Cell("answers", 0)
HEAD = b"7 es job-1 2 -\n"
POLICY = FleetPolicy()
DEMAND = demand(Languages("en", "es"), PipelineStages()).text
CAN = capability(
    Declared(services={"asr": (), "nmt": (), "tts": ()}, pairs=(("en", "es"),))
).packed()


@pytest.mark.parametrize("owner", [b"vm-1", b""])
@pytest.mark.parametrize(("kind", "payload"), [(b"completed", b"a text"), (b"failed", b"")])
def test_the_usual_answer_says_what_the_long_one_says(
    owner: bytes, kind: bytes, payload: bytes
) -> None:
    usual = b"1700 " + owner + b" s-1 5 " + kind + b" " + HEAD
    long = [Reply.SETTLED, b"1700", owner, b"s-1", [5, kind + b" " + HEAD], 0, 0]
    read = read_settled(CELL, "job-1", payload, b"", usual)
    assert read == read_settled(CELL, "job-1", payload, b"", long)
    (outcome,) = read.effects.released
    assert (outcome.seq, outcome.payload, read.effects.owner) == (5, payload, owner.decode())


async def settle(store: Store, index: int, payload: bytes) -> Any:
    """Return the raw answer."""
    words = (pack(POLICY.for_jobs()), f"job-{index}", 1, "n1", "completed", payload)
    return await store.runner.run("job_settle", CELL, words)


def test_an_outcome_that_frees_others_or_must_wait_is_answered_with_a_list(tmp_path: Path) -> None:
    async def scenario(store: Store) -> None:
        about = NodeAbout(instance="i1", max=8, silence_ms=60_000)
        await store.nodes.register(CELL, "n1", "b1", conn="c1", can=CAN, about=about)
        await store.nodes.beat(CELL, "n1", "b1", NodeBeat())
        await store.sessions.open(CELL, "s-1", "i1", lease_ms=60_000)
        for index in range(3):
            spec = JobSpec(session="s-1", index=index, lane="es", demand=DEMAND)
            await store.jobs.submit(CELL, f"job-{index}", spec, b"body")
        # Nothing waits for the first; the last waits for the one before it, which frees it.
        usual, waits, frees = [
            await settle(store, index, f"text {index}\nof two lines".encode())
            for index in (0, 2, 1)
        ]
        assert isinstance(usual, bytes)
        assert isinstance(waits, list)
        assert isinstance(frees, list)
        found = [
            [
                (each.seq, each.utterance, each.payload)
                for each in read_settled(CELL, f"job-{index}", b"own", b"", raw).effects.released
            ]
            for index, raw in ((0, usual), (2, waits), (1, frees))
        ]
        assert found == [[(1, 0, b"own")], [], [(2, 1, b"own"), (3, 2, b"text 2\nof two lines")]]

    async def run() -> None:
        with start_server(tmp_path) as server:
            connection = await SingleConnection.open(server.address, LinkOptions())
            await scenario(Store(connection, POLICY))
            await connection.close()

    asyncio.run(run())
