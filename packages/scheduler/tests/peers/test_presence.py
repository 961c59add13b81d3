"""Which instances are alive, by the clock of a real server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from lingua_scheduler.errors import InvalidIdentifier, StoreUnavailable
from lingua_scheduler.peers.inbox import Inbox
from lingua_scheduler.peers.presence import Directory, InstanceInfo, InstancesView, Presence
from lingua_scheduler.state.connection import Connection
from lingua_scheduler.state.keys import Cell
from lingua_scheduler.state.link import LinkOptions
from lingua_scheduler.state.single import SingleConnection
from peers.scenario import BOUND_S, PREFIX, ask, inbox_of, play
from servers import AOF, Server, start_server

pytestmark = pytest.mark.store

PRESENCE_MS = 300


@pytest.fixture(name="server", scope="module")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with start_server(tmp_path_factory.mktemp("presence")) as server:
        yield server


def presence_of(
    connection: Connection,
    name: str,
    presence_ms: int = PRESENCE_MS,
    *,
    is_draining: bool = False,
) -> Presence:
    about = InstanceInfo("host-1", 4711, "1.2.3", f"ws://{name}")
    return Presence(
        connection, PREFIX, name, about, presence_ms=presence_ms, is_draining=lambda: is_draining
    )


async def beat_for(presence: Presence, duration_ms: int) -> InstancesView:
    """Beat as a live instance does, for at least this long."""
    loop = asyncio.get_running_loop()
    end = loop.time() + duration_ms / 1000
    view = await presence.beat()
    while loop.time() < end:
        await asyncio.sleep(PRESENCE_MS / 10_000)
        view = await presence.beat()
    return view


async def beat_until_dead(presence: Presence, *names: str) -> InstancesView:
    """Beat until exactly these are dead."""
    for _ in range(int(BOUND_S * 1000 / (PRESENCE_MS / 10))):
        view = await presence.beat()
        if view.dead == names:
            return view
        await asyncio.sleep(PRESENCE_MS / 10_000)
    raise AssertionError(f"{view.dead} are dead, not {names}")


async def first_beat_after_outage(presence: Presence) -> InstancesView:
    for _ in range(int(BOUND_S / 0.01)):
        try:
            return await presence.beat()
        except StoreUnavailable:
            await asyncio.sleep(0.01)
    raise AssertionError(f"no beat within {BOUND_S} s")


async def each_sees_all_and_what_they_say_of_themselves(connection: Connection) -> None:
    a, b = presence_of(connection, "a"), presence_of(connection, "b", is_draining=True)
    first = await a.beat()
    assert (list(first.alive), first.dead, first.was_known) == (["a"], (), False)
    await b.beat()
    view = await a.beat()
    assert view.was_known
    assert set(view.alive) == {"a", "b"}
    row = view.alive["b"]
    assert (row.about, row.draining) == (InstanceInfo("host-1", 4711, "1.2.3", "ws://b"), True)
    assert not view.alive["a"].draining
    assert view.alive["a"].age_ms == 0


async def started_at_is_written_once(connection: Connection) -> None:
    presence = presence_of(connection, "a")
    first = (await presence.beat()).alive["a"]
    assert first.uptime_ms == 0
    later = (await beat_for(presence, 2 * PRESENCE_MS)).alive["a"]
    assert later.started_at_ms == first.started_at_ms
    assert later.uptime_ms >= 2 * PRESENCE_MS
    # Not even the loss of the record makes it younger.
    await connection.every_master("FLUSHALL")
    lost = await presence.beat()
    assert not lost.was_known
    assert lost.alive["a"].started_at_ms == first.started_at_ms
    assert lost.alive["a"].uptime_ms >= later.uptime_ms
    assert (await presence.beat()).was_known


async def a_new_process_under_the_same_name_is_another(connection: Connection) -> None:
    old, new = presence_of(connection, "a"), presence_of(connection, "a")
    started = (await old.beat()).alive["a"].started_at_ms
    await asyncio.sleep(0.02)
    view = await new.beat()
    assert not view.was_known
    assert view.alive["a"].started_at_ms > started
    # The late end of the old process does not affect the new one.
    await old.leave()
    assert (await new.beat()).was_known


async def a_silent_instance_is_dead_and_comes_back(connection: Connection) -> None:
    a, b = presence_of(connection, "a"), presence_of(connection, "b")
    assert a.is_alive("b"), "nothing is known yet"
    await a.beat()
    assert not a.is_alive("b"), "unknown"
    await b.beat()
    await a.beat()
    assert a.is_alive("b")
    view = await beat_until_dead(a, "b")
    assert set(view.alive) == {"a"}
    assert not a.is_alive("b")
    assert a.is_alive("a")
    await b.beat()
    assert (await a.beat()).dead == ()
    assert a.is_alive("b")


async def after_a_silence_of_all_nobody_is_dead_at_once(connection: Connection) -> None:
    a, b = presence_of(connection, "a"), presence_of(connection, "b")
    await b.beat()
    await beat_until_dead(a, "b")
    await b.beat()
    assert (await a.beat()).dead == ()
    # As if the store had been unavailable: no heartbeat succeeded.
    await asyncio.sleep(1.5 * PRESENCE_MS / 1000)
    view = await a.beat()
    assert view.alive["b"].age_ms > PRESENCE_MS
    assert (view.dead, a.is_alive("b")) == ((), True)
    await beat_until_dead(a, "b")


async def an_orderly_end_is_seen_at_once(connection: Connection) -> None:
    a, b = presence_of(connection, "a"), presence_of(connection, "b")
    await a.beat()
    await b.beat()
    await b.leave()
    view = await a.beat()
    assert (set(view.alive), view.dead) == ({"a"}, ())
    assert not a.is_alive("b")
    await b.leave()  # twice is fine


async def only_a_silent_instance_is_forgotten(connection: Connection) -> None:
    a, b = presence_of(connection, "a"), presence_of(connection, "b")
    await a.beat()
    await b.beat()
    assert not await a.forget("b")
    await beat_until_dead(a, "b")
    assert await a.forget("b")
    assert not await a.forget("b"), "another survivor was first"
    assert "b" not in (await a.beat()).alive
    # It is alive after all: it learns that its record was deleted, and is known again.
    assert not (await b.beat()).was_known
    assert "b" in (await a.beat()).alive


async def an_inbox_without_an_instance_is_found(connection: Connection) -> None:
    a = presence_of(connection, "a")
    await a.beat()
    await inbox_of(connection, "lost", None).open()
    assert (await a.beat()).orphans == (), "it may be starting just now"
    assert (await Directory(connection, PREFIX).read())[1] == ("lost",)
    for _ in range(int(BOUND_S * 1000 / (PRESENCE_MS / 10))):
        if (await a.beat()).orphans:
            break
        await asyncio.sleep(PRESENCE_MS / 10_000)
    assert a.view is not None
    assert a.view.orphans == ("lost",)
    assert await ask(connection, "lost", "EXISTS") == 1
    # Its instance appears: it is no longer an orphan.
    await presence_of(connection, "lost").beat()
    assert (await a.beat()).orphans == ()


async def an_orderly_end_of_all_leaves_no_key(connection: Connection) -> None:
    a = presence_of(connection, "a")
    inbox: Inbox = inbox_of(connection, "a", None)
    await a.beat()
    await inbox.open()
    await a.leave()
    await inbox.close(forget=True)
    cell = Cell(PREFIX, 0)
    for family, rest in (("instances", ""), ("instance", "a"), ("inboxes", "")):
        assert await connection.command(cell.slot, "EXISTS", cell.key(family, rest)) == 0
    assert await ask(connection, "a", "EXISTS") == 0


def test_a_beat_that_fails_makes_everybody_else_get_time_again(tmp_path: Path) -> None:
    async def scenario(server: Server) -> None:
        connection = await SingleConnection.open(
            server.address, LinkOptions(call_timeout_ms=10_000)
        )
        a, b = presence_of(connection, "a", 1000), presence_of(connection, "b", 1000)
        await b.beat()
        await beat_for(a, 900)
        server.kill()
        with pytest.raises(StoreUnavailable):
            await a.beat()
        server.start()
        view = await first_beat_after_outage(a)
        while view.alive["b"].age_ms < 1200:
            assert view.dead == ()
            await asyncio.sleep(0.02)
            view = await a.beat()
        await beat_until_dead(a, "b")
        await connection.close()

    with start_server(tmp_path, extra=AOF) as server:
        asyncio.run(scenario(server))


def test_a_name_that_no_key_may_carry_is_refused(server: Server) -> None:
    async def scenario(connection: Connection) -> None:
        with pytest.raises(InvalidIdentifier):
            presence_of(connection, "a b")

    play(server, scenario)


# Also run on a cluster.
SCENARIOS = [
    each_sees_all_and_what_they_say_of_themselves,
    a_new_process_under_the_same_name_is_another,
    a_silent_instance_is_dead_and_comes_back,
    after_a_silence_of_all_nobody_is_dead_at_once,
    an_orderly_end_is_seen_at_once,
    only_a_silent_instance_is_forgotten,
    an_inbox_without_an_instance_is_found,
    an_orderly_end_of_all_leaves_no_key,
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_on_one_server(server: Server, scenario) -> None:
    play(server, scenario)


def test_the_start_of_an_instance_is_written_once_and_its_uptime_grows(
    server: Server,
) -> None:
    play(server, started_at_is_written_once)
