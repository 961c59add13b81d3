"""States of the console as tests need them."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from lingua_scheduler.edge.answers import NodeLanguages
from lingua_scheduler.edge.console.documents import (
    ConsoleDeadLetters,
    ConsoleInstance,
    ConsoleNode,
    ConsolePool,
    ConsoleQueue,
    ConsoleRates,
    ConsoleRooms,
    ConsoleSession,
    ConsoleSessions,
    ConsoleState,
    ConsoleVerdict,
    RateRow,
    ServiceState,
)

NOW_MS = 1_800_000_000_000


def node(name: str = "n1", health: str = "ready", **more: Any) -> ConsoleNode:
    made = ConsoleNode(
        id=name, health=health, status="ready", draining=False, drained_by_operator=False,
        over_by=(), slots=4, leased=0, extra=0, streams=0, streams_open=0, pool="p", cell="c0",
        instance="i1", beat_at_ms=NOW_MS - 3000, platform="linux", version="1.0",
    )  # fmt: skip
    return replace(made, **more)


def instance(name: str = "i1", state: str = "alive", **more: Any) -> ConsoleInstance:
    made = ConsoleInstance(
        id=name, state=state, is_here=True, started_at_ms=NOW_MS - 60_000, version="1", host="h",
        pid=7, url="", inbox=0, dead_letters=0, nodes=1,
    )  # fmt: skip
    return replace(made, **more)


def queue(waiting: int = 0, cell: str = "c0") -> ConsoleQueue:
    return ConsoleQueue(cell=cell, waiting=waiting, nodes=1)


def row(number: int = 0, **more: Any) -> RateRow:
    return RateRow(at_ms=NOW_MS - 10_000 * number, covers_ms=10_000, **more)


def session(name: str = "s-1") -> ConsoleSession:
    return ConsoleSession(
        id=name, tenant="", source="en", targets=("es",), room=None, connected=True,
        opened_at_ms=NOW_MS - 5000, backlog=0, instance="i1",
    )  # fmt: skip


def whole_state(**more: Any) -> ConsoleState:
    languages = NodeLanguages(pairs=("en>es",), sources=None, targets=None, voices=("es",))
    pool = ConsolePool(
        id="p", cell="c0", languages=languages, is_cut=False, services=("asr",), features=(),
        labels=(), private_to="", nodes=1, free=1, offline=0,
    )  # fmt: skip
    service = ServiceState(
        service="box", workers=1, release="1", started_at_ms=NOW_MS - 60_000, draining=False,
        store_up=True, jobs=0,
    )  # fmt: skip
    state = ConsoleState(
        at_ms=NOW_MS,
        service=service,
        verdict=ConsoleVerdict(state="well", sentence="all is well"),
        instances=(instance(),),
        nodes={"n1": node()},
        nodes_total=1,
        pools=(pool,),
        queues=(queue(),),
        sessions=ConsoleSessions(total=1, newest=(session(),)),
        rooms=ConsoleRooms(total=0, newest=()),
        dead_letters=ConsoleDeadLetters(total=0, newest=()),
        rates=ConsoleRates(of="box", bucket_ms=10_000, rows=(row(1, utterances=3), row(0))),
    )
    return replace(state, **more)
