"""A deployment at work, and every way in which its store may be damaged.

Each damage is a coroutine that damages one thing in a healthy deployment and returns the findings
that must be reported: kind -> names. `CASES` has the result of `--repair` for each. They run on one
server and on a cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from jobs.deployment import FRENCH, TO_FRENCH, TO_SPANISH, Deployment, Speaker, deployed
from lingua_scheduler.config import Settings, load_settings
from lingua_scheduler.maintenance.doctor import Diagnosis, examine
from lingua_scheduler.peers.messages import RoomChanged
from lingua_scheduler.peers.presence import InstanceInfo, Presence
from lingua_scheduler.peers.sender import PeerSender
from lingua_scheduler.peers.stream import InboxStream
from lingua_scheduler.state.keys import Cell, InstanceKeys
from lingua_scheduler.state.records import Placement

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from lingua_scheduler.state.link import Address

PAUSE_S = 0.02
GHOST = "job-00000000000000000000000000000000"
Found = dict[str, list[str]]


class Ward:
    """A healthy deployment of two cells with running, waiting and ended jobs."""

    def __init__(self, deployment: Deployment, settings: Settings) -> None:
        self.deployment = deployment
        self.settings = settings
        self.connection = deployment.connection
        self.store = deployment.store
        self.prefix = settings.redis.key_prefix
        self.here, self.there = deployment.cells.all
        self.speaker: Speaker
        self.node = self.other_node = ""
        # On a node of the home cell, and of the other one.
        self.near: Placement
        self.far: Placement
        # This job waits, with its audio.
        self.waiting = ""

    async def open(self) -> None:
        d = self.deployment
        d.store.runner.now_ms = 0  # the server's clock
        await self.beat("i1")
        self.node = await d.ready_node(self.here, slots=2)
        self.other_node = await d.ready_node(self.there, can=FRENCH)
        self.speaker = await d.speaker(self.here)
        self.near = await self.speaker.placed(0)
        self.far = await self.speaker.placed(0, "fr", wanted=TO_FRENCH)
        assert (self.near.cell, self.far.cell) == ("c0", "c1")
        # One ended and waits for its predecessor; one ended and is delivered.
        await self.speaker.settle(await self.speaker.placed(1))
        await self.speaker.settle(await self.speaker.placed(0, "de"))
        await self._talk()
        await self.speaker.placed(2)
        self.waiting = self.speaker.job(3)
        spec = self.speaker.spec(3, audio=True)
        await self.store.jobs.submit(self.here, self.waiting, spec, b"", audio=b"speech")
        assert await self.ask(self.here, "ZSCORE", "pending", self.waiting)
        await self.store.nodes.mark(self.there, self.other_node, "tts")
        closed = await d.speaker(self.here, "closed")
        await d.dispatcher.close_session(self.here, closed.session, "bye")
        d.speakers.remove(closed)

    async def _talk(self) -> None:
        """Produce an outcome that one listener has and that is pending for another cell."""
        host = await self.deployment.speaker(self.here, "host")
        self.deployment.speakers.remove(host)
        for cell, name in ((self.here, "guest"), (self.there, "far-away")):
            await self.store.sessions.open(cell, name, "i1", lease_ms=3_600_000)
        placed = await host.placed(0, audience="c0/guest c1/far-away", readers="c0/guest")
        await self.store.jobs.settle(
            self.here,
            placed.job,
            1,
            placed.node,
            kind="completed",
            payload=(b"sound", b"text"),
        )
        assert await self.ask(self.here, "LLEN", "relay:host") == 2

    async def heard_id(self, number: int = 1) -> str:
        """Return the key of the host's n-th outcome."""
        epoch = await self.ask(self.here, "HGET", "session:host", "epoch")
        return f"host|{epoch.decode()}|{number}"

    async def beat(self, instance: str) -> None:
        await InboxStream(self.connection, self.prefix, instance).create()
        await Presence(
            self.connection, self.prefix, instance, InstanceInfo("h", 1, "v", "u")
        ).beat()

    async def ask(self, cell: Cell, verb: str, rest: str, *words: Any) -> Any:
        """Send a command on a key of a cell."""
        return await self.connection.command(cell.slot, verb, cell.base + rest, *words)

    async def ask_of(self, instance: str, verb: str, family: str, *words: Any) -> Any:
        """Send a command on a key of an instance."""
        keys = InstanceKeys(self.prefix, instance)
        return await self.connection.command(keys.slot, verb, keys.base + family, *words)

    async def now_ms(self) -> int:
        seconds, micros = await self.connection.command(self.here.slot, "TIME")
        return int(seconds) * 1000 + int(micros) // 1000

    async def pool(self) -> str:
        return str((await self.ask(self.here, "HGET", f"node:{self.node}", "pool")).decode())

    async def examine(self, *, repairs: bool = False) -> Diagnosis:
        return await examine(self.connection, self.settings, repairs=repairs, pause_s=PAUSE_S)


Damage = Callable[[Ward], Awaitable[Found]]


class Case(NamedTuple):
    """A damage, and whether a repair helps."""

    damage: Damage
    heals: bool = True


@asynccontextmanager
async def ward(*addresses: Address) -> AsyncIterator[Ward]:
    """Open a healthy deployment on a server, or on the cluster that several addresses name."""
    async with deployed(*addresses, cells=2) as deployment:
        prefix = deployment.cells.all[0].base.partition(":")[0]
        environ = {"LINGUA_REDIS__KEY_PREFIX": prefix, "LINGUA_CELLS": "2"}
        place = Ward(deployment, load_settings(None, environ))
        await place.open()
        yield place


def found_in(diagnosis: Diagnosis) -> Found:
    found: Found = {}
    for verdict in diagnosis.findings:
        found.setdefault(verdict.kind, []).append(verdict.name)
    return {kind: sorted(names) for kind, names in found.items()}


# Jobs and slots.


async def a_slot_of_a_job_that_has_ended(w: Ward) -> Found:
    job = w.speaker.job(0, "de")
    await w.ask(w.here, "ZADD", f"leases:{w.node}", await w.now_ms() + 60_000, f"{job}|1")
    return {"lease_stale": [f"{w.node} {job}|1"]}


async def a_slot_of_a_job_that_has_moved_on(w: Ward) -> Found:
    member = f"{w.near.job}|7"
    await w.ask(w.here, "ZADD", f"leases:{w.node}", await w.now_ms() - 1000, member)
    return {"lease_stale": [f"{w.node} {member}"]}


async def a_slot_of_a_job_that_does_not_exist(w: Ward) -> Found:
    await w.ask(w.here, "ZADD", f"leases:{w.node}", await w.now_ms() + 60_000, f"{GHOST}|1")
    return {"lease_stale": [f"{w.node} {GHOST}|1"]}


async def a_slot_in_another_cell_of_a_job_that_has_ended(w: Ward) -> Found:
    member = f"{w.speaker.job(0, 'de')}|1|c0"
    await w.ask(w.there, "ZADD", f"leases:{w.other_node}", await w.now_ms() + 60_000, member)
    await w.ask(w.there, "HSET", "reserved", member, w.other_node)
    return {"lease_stale": [f"{w.other_node} {member}"]}


async def a_slot_in_another_cell_without_a_timer(w: Ward) -> Found:
    member = f"{w.far.job}|1|c0"
    assert await w.ask(w.there, "ZREM", "due", f"l|{w.other_node}|{member}")
    return {"lease_untimed": [f"{w.other_node} {member}"]}


async def a_reservation_without_a_slot(w: Ward) -> Found:
    await w.ask(w.there, "HSET", "reserved", f"{GHOST}|1|c0", w.other_node)
    return {"reserved_without_lease": [f"{GHOST}|1|c0"]}


async def a_job_without_a_timer(w: Ward) -> Found:
    for job in (w.near.job, w.waiting):
        assert await w.ask(w.here, "ZREM", "due", f"j|{job}")
    return {"job_without_timer": sorted([w.near.job, w.waiting])}


async def a_job_without_a_timer_whose_time_is_up(w: Ward) -> Found:
    assert await w.ask(w.here, "ZREM", "due", f"j|{w.waiting}")
    await w.ask(w.here, "HSET", f"job:{w.waiting}", "due_at", await w.now_ms() - 60_000)
    return {"job_without_timer": [w.waiting]}


async def a_job_that_was_told_and_stays(w: Ward) -> Found:
    job = w.speaker.job(0, "de")
    assert await w.ask(w.here, "PERSIST", f"job:{job}")
    return {"job_kept": [job]}


async def a_job_that_ended_and_that_no_lane_waits_for(w: Ward) -> Found:
    assert await w.ask(w.here, "HDEL", f"session:{w.speaker.session}", "at:es:1")
    return {"job_kept": [w.speaker.job(1)]}


async def audio_of_a_job_that_is_gone(w: Ward) -> Found:
    await w.ask(w.here, "HSET", "audio:ghost|1", "audio", "speech", GHOST, "")
    return {"audio_without_job": ["ghost|1"]}


async def audio_that_would_outlive_its_last_job(w: Ward) -> Found:
    name = f"{w.speaker.session}|3"
    await w.ask(w.here, "HSET", f"audio:{name}", GHOST, "")
    return {"audio_without_job": [name]}


# The queue.


async def a_waiting_job_that_is_in_no_queue(w: Ward) -> Found:
    assert await w.ask(w.here, "ZREM", f"queue:{TO_SPANISH}", w.waiting)
    return {"pending_broken": [w.waiting], "waiting_broken": [TO_SPANISH]}


async def a_queued_job_that_is_not_counted(w: Ward) -> Found:
    assert await w.ask(w.here, "ZREM", "pending", w.waiting)
    return {"queue_broken": [w.waiting]}


async def a_queued_job_that_does_not_exist(w: Ward) -> Found:
    for key in ("pending", f"queue:{TO_SPANISH}"):
        await w.ask(w.here, "ZADD", key, 1, GHOST)
    return {"pending_broken": [GHOST], "queue_broken": [GHOST]}


async def a_queued_job_that_has_a_node(w: Ward) -> Found:
    for key in ("pending", f"queue:{TO_SPANISH}"):
        await w.ask(w.here, "ZADD", key, 1, w.near.job)
    return {"pending_broken": [w.near.job], "queue_broken": [w.near.job]}


async def a_job_in_the_queue_of_another_demand(w: Ward) -> Found:
    await w.ask(w.here, "ZADD", f"queue:{TO_FRENCH}", 1, w.waiting)
    await w.ask(w.here, "ZADD", "waiting", 1, TO_FRENCH)
    return {"queue_broken": [w.waiting]}


async def a_queue_that_is_not_listed(w: Ward) -> Found:
    assert await w.ask(w.here, "ZREM", "waiting", TO_SPANISH)
    return {"waiting_broken": [TO_SPANISH]}


async def a_listed_queue_that_does_not_exist(w: Ward) -> Found:
    await w.ask(w.here, "ZADD", "waiting", 1, TO_FRENCH)
    return {"waiting_broken": [TO_FRENCH]}


# Sessions and rooms.


async def a_session_without_a_timer(w: Ward) -> Found:
    assert await w.ask(w.here, "ZREM", "due", f"s|{w.speaker.session}")
    return {"session_without_timer": [w.speaker.session]}


async def a_closed_session_that_stays(w: Ward) -> Found:
    assert await w.ask(w.here, "PERSIST", "session:closed")
    return {"session_kept": ["closed"]}


async def a_session_that_was_never_opened(w: Ward) -> Found:
    await w.ask(w.here, "HSET", "session:ghost", "seq", 1)
    return {"session_kept": ["ghost"]}


async def an_outbox_of_no_session(w: Ward) -> Found:
    await w.ask(w.here, "RPUSH", "outbox:ghost", "completed 0 es - 0 -\n")
    return {"outbox_kept": ["ghost"]}


async def an_outcome_that_nobody_would_bring(w: Ward) -> Found:
    assert await w.ask(w.here, "ZREM", "due", "x|host")
    return {"relay_without_timer": ["host"]}


async def a_room_without_a_timer(w: Ward) -> Found:
    await w.ask(w.there, "HSET", "room:ABC123", "tenant", "", "spoke_at", await w.now_ms())
    return {"room_without_timer": ["ABC123"]}


# Nodes.


async def a_node_of_an_instance_that_is_not_known(w: Ward) -> Found:
    await w.ask(w.here, "HSET", f"node:{w.node}", "instance", "ghost")
    return {"node_of_dead_instance": [w.node]}


async def a_node_without_a_timer(w: Ward) -> Found:
    assert await w.ask(w.here, "ZREM", "due", f"n|{w.node}")
    return {"node_without_timer": [w.node]}


async def a_listed_node_without_a_record(w: Ward) -> Found:
    await w.ask(w.here, "ZADD", "nodes", 0, "ghost")
    return {"node_half_known": ["ghost"]}


async def a_node_that_is_not_listed(w: Ward) -> Found:
    assert await w.ask(w.here, "ZREM", "nodes", w.node)
    return {"node_half_known": [w.node]}


async def marks_of_a_node_that_is_not_known(w: Ward) -> Found:
    await w.ask(w.here, "ZADD", "marks:ghost", 1, "tts")
    return {"marks_of_no_node": ["ghost"]}


async def streams_of_a_node_that_is_not_known(w: Ward) -> Found:
    await w.ask(w.here, "ZADD", "streams:ghost", 1 << 50, "str-0")
    return {"streams_of_no_node": ["ghost"]}


async def streams_that_expired_and_stay(w: Ward) -> Found:
    await w.ask(w.here, "ZADD", f"streams:{w.node}", 1, "str-0")
    return {"streams_of_no_node": [w.node]}


async def a_node_that_takes_streams_for_another_pool(w: Ward) -> Found:
    pool = await w.pool()
    await w.ask(w.here, "ZADD", f"streaming:{pool}", 0, "ghost")
    return {"streaming_broken": [pool]}


async def a_stream_that_is_remembered_for_ever(w: Ward) -> Found:
    await w.ask(w.here, "SET", "stream:str-0", w.node)
    return {"key_without_ttl": [f"{w.here.base}stream:str-0"]}


async def a_pool_with_a_node_that_is_not_in_it(w: Ward) -> Found:
    pool = await w.pool()
    await w.ask(w.here, "ZADD", f"pool:{pool}", 0, "ghost")
    return {"pool_broken": [pool]}


async def a_listed_pool_without_nodes(w: Ward) -> Found:
    await w.ask(w.here, "HSET", "pools", "0123456789ab", "{}")
    return {"pool_broken": ["0123456789ab"]}


# Timers.


async def timers_of_nothing(w: Ward) -> Found:
    ended = w.speaker.job(0, "de")
    timers = [
        f"j|{GHOST}", f"j|{ended}", "s|ghost", "s|closed", "g|ghost|es", "n|ghost", "m|ghost",
        f"l|{w.node}|{GHOST}|1|c1", "room|GHOST1", "x|ghost", f"r|c9|ghost|{GHOST}|1",
    ]  # fmt: skip
    for timer in timers:
        await w.ask(w.here, "ZADD", "due", await w.now_ms() + 60_000, timer)
    return {"timer_of_nothing": sorted(timers)}


async def a_timer_of_no_known_kind(w: Ward) -> Found:
    await w.ask(w.here, "ZADD", "due", 1, "q|1")
    return {"timer_unknown": ["q|1"]}


# Instances.


async def dies(w: Ward, name: str) -> None:
    """An instance whose last heartbeat was a minute ago."""
    await w.beat(name)
    await w.ask(w.here, "ZADD", "instances", await w.now_ms() - 60_000, name)


async def an_instance_that_died(w: Ward) -> Found:
    await dies(w, "dead")
    return {"instance_dead": ["dead"]}


async def an_inbox_of_nobody(w: Ward) -> Found:
    await InboxStream(w.connection, w.prefix, "orphan").create()
    return {"inbox_orphan": ["orphan"]}


async def a_mention_of_an_inbox_that_is_not_there(w: Ward) -> Found:
    await w.ask(w.here, "SADD", "inboxes", "orphan")
    return {"inbox_orphan": ["orphan"]}


async def an_inbox_that_is_not_listed(w: Ward) -> Found:
    await w.ask_of("lost", "XADD", "inbox", "*", "v", "1")
    return {"inbox_unlisted": ["lost"]}


async def a_record_of_an_instance_that_is_not_listed(w: Ward) -> Found:
    await w.ask(w.here, "HSET", "instance:ghost", "pid", 1)
    return {"instance_half_known": ["ghost"]}


async def dead_letters_that_are_not_listed(w: Ward) -> Found:
    await w.ask_of("buried", "XADD", "dlq", "*", "kind", "push")
    return {"dead_letters_unlisted": ["buried"]}


async def letters_for_the_dead_while_nobody_lives(w: Ward) -> Found:
    for name in ("i1", "dead"):
        await dies(w, name)
    assert await PeerSender(w.connection, w.prefix, "x").send("dead", RoomChanged("ABC"))
    # Its nodes have no host either.
    nodes = sorted([w.node, w.other_node])
    return {"instance_dead": ["dead", "i1"], "node_of_dead_instance": nodes}


# Keys.


async def a_key_that_is_in_no_dictionary(w: Ward) -> Found:
    names = [f"{w.here.base}nonsense", f"{w.prefix}:v2:{{c0}}:due"]
    for name in names:
        await w.connection.command(w.here.slot, "SET", name, "1")
    return {"key_unknown": sorted(names)}


async def a_key_of_a_cell_that_the_settings_do_not_have(w: Ward) -> Found:
    cell = Cell(w.prefix, 9)
    await w.connection.command(cell.slot, "ZADD", cell.due, 1, "s|x")
    return {"key_of_unknown_cell": [cell.due.decode()]}


async def a_key_of_another_type(w: Ward) -> Found:
    await w.ask(w.here, "SET", "session:odd", "1")
    await w.ask(w.here, "ZADD", "due", await w.now_ms() + 60_000, "s|odd")
    return {"key_wrong_type": [f"{w.here.base}session:odd"], "timer_of_nothing": ["s|odd"]}


async def records_that_cannot_be_read(w: Ward) -> Found:
    await w.ask(w.here, "HSET", f"job:{GHOST}", "spec", "x")
    await w.ask(w.here, "ZADD", f"leases:{w.node}", 1, "nonsense")
    return {"key_unreadable": sorted([GHOST, f"{w.node} nonsense"])}


async def keys_that_should_end_by_themselves(w: Ward) -> Found:
    await w.ask(w.here, "SET", "pair:123456", "n")
    await w.ask_of("dead", "SET", "adopter", "i1")
    names = [f"{w.here.base}pair:123456", InstanceKeys(w.prefix, "dead").adopter.decode()]
    return {"key_without_ttl": sorted(names)}


async def what_others_heard_and_that_stays(w: Ward) -> Found:
    names = [f"heard:{await w.heard_id()}", f"heard:{await w.heard_id(2)}", "said:host"]
    for name in names:
        assert await w.ask(w.here, "PERSIST", name)
    return {"key_without_ttl": sorted(w.here.base + name for name in names)}


CASES = [
    *(
        Case(damage)
        for damage in (
            a_slot_of_a_job_that_has_ended,
            a_slot_of_a_job_that_has_moved_on,
            a_slot_of_a_job_that_does_not_exist,
            a_slot_in_another_cell_of_a_job_that_has_ended,
            a_slot_in_another_cell_without_a_timer,
            a_reservation_without_a_slot,
            a_job_without_a_timer,
            a_job_without_a_timer_whose_time_is_up,
            a_job_that_was_told_and_stays,
            a_job_that_ended_and_that_no_lane_waits_for,
            audio_of_a_job_that_is_gone,
            audio_that_would_outlive_its_last_job,
            a_waiting_job_that_is_in_no_queue,
            a_queued_job_that_is_not_counted,
            a_queued_job_that_does_not_exist,
            a_queued_job_that_has_a_node,
            a_job_in_the_queue_of_another_demand,
            a_queue_that_is_not_listed,
            a_listed_queue_that_does_not_exist,
            a_session_without_a_timer,
            a_closed_session_that_stays,
            a_session_that_was_never_opened,
            an_outbox_of_no_session,
            an_outcome_that_nobody_would_bring,
            a_room_without_a_timer,
            a_node_of_an_instance_that_is_not_known,
            a_node_without_a_timer,
            a_listed_node_without_a_record,
            a_node_that_is_not_listed,
            marks_of_a_node_that_is_not_known,
            streams_of_a_node_that_is_not_known,
            streams_that_expired_and_stay,
            a_node_that_takes_streams_for_another_pool,
            a_stream_that_is_remembered_for_ever,
            a_pool_with_a_node_that_is_not_in_it,
            a_listed_pool_without_nodes,
            timers_of_nothing,
            an_instance_that_died,
            an_inbox_of_nobody,
            a_mention_of_an_inbox_that_is_not_there,
            a_record_of_an_instance_that_is_not_listed,
            dead_letters_that_are_not_listed,
            keys_that_should_end_by_themselves,
            what_others_heard_and_that_stays,
        )
    ),
    *(
        Case(damage, heals=False)
        for damage in (
            a_timer_of_no_known_kind,
            letters_for_the_dead_while_nobody_lives,
            a_key_that_is_in_no_dictionary,
            a_key_of_a_cell_that_the_settings_do_not_have,
            a_key_of_another_type,
            records_that_cannot_be_read,
        )
    ),
]


def play(addresses: list[Address], scenario: Callable[[Ward], Awaitable[None]]) -> None:
    """Run a scenario on its own healthy deployment."""

    async def whole() -> None:
        async with ward(*addresses) as place:
            await scenario(place)

    asyncio.run(whole())


async def is_found_and_repaired(w: Ward, case: Case) -> None:
    """Damage it, and check that exactly this is found and that one repair helps."""
    expected = await case.damage(w)
    seen = await w.examine()
    assert found_in(seen) == expected
    assert {verdict.state for verdict in seen.findings} == {"found"}
    assert not seen.is_well
    assert found_in(await w.examine()) == expected, "a look changes nothing"
    after = await w.examine(repairs=True)
    assert found_in(after) == expected
    assert after.is_well == case.heals, after
    again = await w.examine()
    assert again.is_well == case.heals, again
