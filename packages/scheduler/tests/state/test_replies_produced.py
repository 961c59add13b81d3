"""Each answer a script can give is given by a real server in a scenario of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

import servers
from clocks import Lived
from lingua_scheduler.jobs.requirement import Languages, PipelineStages, demand
from lingua_scheduler.nodes.capability import Declared, capability
from lingua_scheduler.state.keys import Cells
from lingua_scheduler.state.link import LinkOptions
from lingua_scheduler.state.policy import FleetPolicy
from lingua_scheduler.state.records import JobSpec, Lease, NodeAbout, NodeBeat, Reserved, job_id_of
from lingua_scheduler.state.reply import Reply
from lingua_scheduler.state.single import SingleConnection
from lingua_scheduler.state.store import Store
from lingua_scheduler.state.stream_scripts import StreamSpec

pytestmark = pytest.mark.store

CAN = capability(Declared(services={"asr": (), "nmt": (), "tts": ()}, pairs=(("en", "es"),)))
WANTED = demand(Languages("en", "es"), PipelineStages()).text
UNSERVED = demand(Languages("xx", "yy"), PipelineStages()).text
POLICY = FleetPolicy(
    pending_jobs_max=1, in_flight_max=4, outbox_max=3, rate_max=1, debounce_ms=5000, attempts_max=2
)


class Scene:
    """One server, one cell, one session, and time in our hands."""

    def __init__(self, connection: SingleConnection, policy: FleetPolicy = POLICY) -> None:
        self.cell = Cells("replies", 1).all[0]
        connection = Lived(connection)
        self.store = Store(connection, policy)
        self.store.runner.now_ms = 1_000_000
        self.connection = connection

    def under(self, **changes: object) -> None:
        now_ms = self.store.runner.now_ms
        self.store = Store(self.connection, replace_policy(changes))
        self.store.runner.now_ms = now_ms

    async def session(self) -> str:
        return (await self.store.sessions.open(self.cell, "s", "i"))[1]

    async def node(self, name: str = "n", slots: int = 1, boot: str = "b", **about: object) -> None:
        facts = NodeAbout(instance="i", max=slots, silence_ms=6000, **about)
        await self.store.nodes.register(
            self.cell, name, boot, conn="c", can=CAN.packed(), about=facts
        )
        await self.store.nodes.beat(self.cell, name, boot, NodeBeat())

    async def submit(self, index: int = 0, wanted: str = WANTED, park: int = 0, **more: object):
        spec = JobSpec(session="s", index=index, lane="es", demand=wanted, **more)
        return await self.store.jobs.submit(self.cell, job(index), spec, b"", park=park)

    async def settle(self, index: int = 0, attempt: int = 1, node: str = "n", kind="completed"):
        return await self.store.jobs.settle(self.cell, job(index), attempt, node, kind=kind)

    async def fail(
        self, index: int = 0, attempt: int = 1, reason: str = "node_error", park: int = 0
    ):
        return await self.store.jobs.failover(
            self.cell, job(index), attempt, reason=reason, park=park
        )


def replace_policy(changes: dict[str, object]) -> FleetPolicy:
    return FleetPolicy(
        **{name: getattr(POLICY, name) for name in POLICY.__struct_fields__} | changes
    )


def job(index: int) -> str:
    return job_id_of("s", str(index))


async def ready(s: Scene, slots: int = 1) -> str:
    epoch = await s.session()
    await s.node(slots=slots)
    return epoch


async def ok(s: Scene) -> Reply:
    await ready(s)
    await s.submit()
    return await s.store.jobs.mark(s.cell, job(0), 1, "n", "RUNNING")


async def placed(s: Scene) -> Reply:
    await ready(s)
    return (await s.submit()).reply


async def queued(s: Scene) -> Reply:
    await s.session()
    return (await s.submit()).reply


async def parked(s: Scene) -> Reply:
    await s.session()
    return (await s.submit(park=1)).reply


async def duplicate(s: Scene) -> Reply:
    await ready(s)
    first, second = await s.submit(), await s.submit()
    assert (second.attempt, second.node) == (first.placement.attempt, first.placement.node)
    return second.reply


async def settled(s: Scene) -> Reply:
    await ready(s)
    await s.submit()
    return (await s.settle()).reply


async def already(s: Scene) -> Reply:
    await ready(s)
    await s.submit()
    first, second = await s.settle(), await s.settle()
    assert first.effects.released[0].seq == second.seq == 1
    return second.reply


async def deferred(s: Scene) -> Reply:
    await ready(s)
    await s.submit(turn="t", is_slice=True)
    s.store.runner.now_ms += 30_000
    return (await s.fail(reason="deadline")).reply


async def held(s: Scene) -> Reply:
    await ready(s)
    await s.submit()
    return (await s.store.jobs.place(s.cell, job(0))).reply


async def opened(s: Scene) -> Reply:
    return (await s.store.sessions.open(s.cell, "s", "i"))[0]


async def resumed(s: Scene) -> Reply:
    await s.session()
    return (await s.store.sessions.open(s.cell, "s", "i"))[0]


async def reserve(s: Scene) -> Reserved:
    await s.node()
    return await s.store.leases.reserve(s.cell, Lease(job(0), 1, "c7"), WANTED)


async def reserved(s: Scene) -> Reply:
    return (await reserve(s)).reply


async def registered(s: Scene) -> Reply:
    facts = NodeAbout(instance="i", max=1, silence_ms=6000)
    answer = await s.store.nodes.register(s.cell, "n", "b", conn="c", can=CAN.packed(), about=facts)
    return answer.reply


async def mark(s: Scene, service: str) -> Reply:
    return (await s.store.nodes.mark(s.cell, "n", service)).reply


async def restored(s: Scene) -> Reply:
    await s.node()
    await mark(s, "nmt")
    s.store.runner.now_ms += 60_000
    return await mark(s, "")


async def debounced(s: Scene) -> Reply:
    s.under(rate_max=5)
    await s.node()
    await mark(s, "nmt")
    return await mark(s, "nmt")


async def rate_limited(s: Scene) -> Reply:
    await s.node()
    await mark(s, "nmt")
    return await mark(s, "tts")


async def gone(s: Scene) -> Reply:
    await s.node()
    s.store.runner.now_ms += 600_000
    return (await s.store.nodes.check(s.cell, "n")).reply


async def stream_opened(s: Scene) -> Reply:
    await s.session()
    await s.node(streams=1)
    spec = StreamSpec(session="s", lane="es", demand=WANTED)
    return (await s.store.streams.open(s.cell, "str-0", spec)).reply


async def no_session(s: Scene) -> Reply:
    return (await s.submit()).reply


async def session_closed(s: Scene) -> Reply:
    await s.session()
    await s.store.sessions.close(s.cell, "s", "bye")
    return (await s.submit()).reply


async def index_released(s: Scene) -> Reply:
    await s.session()
    await s.store.outbox.fill_lane(s.cell, "s", "es", index=0)
    return (await s.submit()).reply


async def index_taken(s: Scene) -> Reply:
    await s.session()
    await s.submit()
    spec = JobSpec(session="s", index=0, lane="es", demand=WANTED)
    return (await s.store.jobs.submit(s.cell, job_id_of("s", "another"), spec, b"")).reply


async def index_ahead(s: Scene) -> Reply:
    await s.session()
    return (await s.store.outbox.fill_lane(s.cell, "s", "es", index=300)).reply


async def in_flight_limit(s: Scene) -> Reply:
    await s.session()
    return (await s.submit(index=4)).reply


async def outbox_full(s: Scene) -> Reply:
    await s.session()
    for index in range(3):
        await s.store.outbox.fill_lane(s.cell, "s", "es", index=index)
    return (await s.submit(index=3)).reply


async def queue_full(s: Scene) -> Reply:
    await s.session()
    await s.submit(0)
    return (await s.submit(1)).reply


async def no_pool(s: Scene) -> Reply:
    s.under(refuse_unserved_pairs=True)
    await ready(s)
    answer = await s.submit(wanted=UNSERVED)
    assert answer.label == "lang_pair_unsupported"
    return answer.reply


async def empty_pool(s: Scene) -> Reply:
    await ready(s)
    await s.store.nodes.offline(s.cell, "n", "c")
    answer = await s.submit()
    assert answer.label == "offline"
    return answer.code


async def no_available_node(s: Scene) -> Reply:
    await ready(s)
    await s.submit(0)
    answer = await s.submit(1)
    assert answer.label == "capacity_exceeded"
    return answer.code


async def no_job(s: Scene) -> Reply:
    return (await s.settle()).reply


async def job_ended(s: Scene) -> Reply:
    await ready(s)
    await s.submit()
    await s.store.jobs.cancel(s.cell, job(0), "unwanted")
    return (await s.settle()).reply


async def stale_attempt(s: Scene) -> Reply:
    await ready(s)
    await s.node("other")
    await s.submit()
    moved = await s.fail()
    assert moved.placement.attempt == 2
    return (await s.settle(attempt=1, node=moved.left_node)).reply


async def node_mismatch(s: Scene) -> Reply:
    await ready(s)
    await s.submit()
    return (await s.settle(node="thief")).reply


async def not_due(s: Scene) -> Reply:
    await ready(s)
    await s.submit()
    return (await s.fail(reason="deadline")).reply


async def no_node(s: Scene) -> Reply:
    return (await s.store.nodes.beat(s.cell, "n", "b", NodeBeat())).reply


async def fenced(s: Scene) -> Reply:
    await s.node(boot="b1")
    await s.node(boot="b2")
    return (await s.store.nodes.beat(s.cell, "n", "b1", NodeBeat())).reply


async def lease_lapsed(s: Scene) -> Reply:
    slot = await reserve(s)
    s.store.runner.now_ms += 2000
    lease = Lease(job(0), 1, "c7")
    # Expired but not yet swept; the beat counts it as free, and another job takes the slot.
    await s.store.nodes.beat(s.cell, slot.node, "b", NodeBeat())
    await s.session()
    await s.submit(0)
    return await s.store.leases.confirm(s.cell, slot.node, lease, 30_000)


async def epoch_changed(s: Scene) -> Reply:
    await s.session()
    return (await s.store.outbox.read(s.cell, "s", epoch="1")).reply


async def trimmed(s: Scene) -> Reply:
    epoch = await s.session()
    await s.store.outbox.fill_lane(s.cell, "s", "es", index=0)
    await s.store.outbox.ack(s.cell, "s", epoch, 1)
    return (await s.store.outbox.read(s.cell, "s", epoch=epoch, after_seq=0)).reply


async def too_early(s: Scene) -> Reply:
    await s.session()
    return (await s.submit(heard=9, heard_after=4)).reply


SCENARIOS: dict[Reply, Callable[[Scene], Awaitable[Reply]]] = {
    Reply.OK: ok,
    Reply.PLACED: placed,
    Reply.QUEUED: queued,
    Reply.PARKED: parked,
    Reply.DUPLICATE: duplicate,
    Reply.SETTLED: settled,
    Reply.ALREADY: already,
    Reply.DEFERRED: deferred,
    Reply.HELD: held,
    Reply.OPENED: opened,
    Reply.RESUMED: resumed,
    Reply.RESERVED: reserved,
    Reply.REGISTERED: registered,
    Reply.RESTORED: restored,
    Reply.DEBOUNCED: debounced,
    Reply.GONE: gone,
    Reply.STREAM_OPENED: stream_opened,
    Reply.NO_SESSION: no_session,
    Reply.SESSION_CLOSED: session_closed,
    Reply.INDEX_RELEASED: index_released,
    Reply.INDEX_TAKEN: index_taken,
    Reply.INDEX_AHEAD: index_ahead,
    Reply.IN_FLIGHT_LIMIT: in_flight_limit,
    Reply.OUTBOX_FULL: outbox_full,
    Reply.QUEUE_FULL: queue_full,
    Reply.NO_POOL_FOR_LANG_PAIR: no_pool,
    Reply.EMPTY_POOL: empty_pool,
    Reply.NO_AVAILABLE_NODE: no_available_node,
    Reply.NO_JOB: no_job,
    Reply.JOB_ENDED: job_ended,
    Reply.STALE_ATTEMPT: stale_attempt,
    Reply.NODE_MISMATCH: node_mismatch,
    Reply.NOT_DUE: not_due,
    Reply.NO_NODE: no_node,
    Reply.FENCED: fenced,
    Reply.LEASE_LAPSED: lease_lapsed,
    Reply.RATE_LIMITED: rate_limited,
    Reply.EPOCH_CHANGED: epoch_changed,
    Reply.TRIMMED: trimmed,
    Reply.TOO_EARLY: too_early,
}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with servers.start_server(tmp_path_factory.mktemp("replies")) as started:
        yield started


def test_every_reply_has_a_scenario() -> None:
    assert set(Reply) == set(SCENARIOS)


@pytest.mark.parametrize("reply", list(Reply), ids=lambda reply: reply.name)
def test_the_server_gives_this_reply(server, reply: Reply) -> None:
    async def play() -> Reply:
        connection = await SingleConnection.open(
            server.address, LinkOptions(call_timeout_ms=10_000)
        )
        try:
            await connection.every_master("FLUSHALL")
            return await SCENARIOS[reply](Scene(connection))
        finally:
            await connection.close()

    assert reply == asyncio.run(play())
