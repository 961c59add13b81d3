"""The doctor next to serving instances: it finds no damage and disturbs nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from edge.live_server import Stage, opus, play, until
from lingua_scheduler.config import Settings
from lingua_scheduler.maintenance.doctor import Diagnosis, examine
from lingua_scheduler.maintenance.overview import overview
from lingua_scheduler.maintenance.store_reader import NotAllowed
from lingua_scheduler.peers.messages import RoomChanged
from lingua_scheduler.peers.sender import PeerSender
from lingua_scheduler.state.acl import acl_rules, operator_rules
from lingua_scheduler.state.connection import Connection
from lingua_scheduler.state.keys import InstanceKeys
from lingua_scheduler.state.link import LinkOptions
from lingua_scheduler.state.single import SingleConnection
from servers import Server, start_server

pytestmark = pytest.mark.store

CLIENTS, UTTERANCES = 12, 25
# The least number of scans during the load.
LOOKS = 3
PASSWORD = "for tests"


@pytest.fixture(name="server")
def server_of_the_test(tmp_path: Path) -> Iterator[Server]:
    with start_server(tmp_path, unix=False) as server:
        yield server


def shared(server: Server, **more: object) -> dict[str, Any]:
    url = f"redis://{server.tcp_address}/0"
    return {"deployment_mode": "cross_instance", "redis__url": url, "cells": 2, **more}


@asynccontextmanager
async def connected(server: Server, **login: str) -> AsyncIterator[Connection]:
    assert server.tcp_address is not None
    connection = await SingleConnection.open(
        server.tcp_address, LinkOptions(call_timeout_ms=10_000, **login)
    )
    try:
        yield connection
    finally:
        await connection.close()


async def talk(stage: Stage, number: int) -> int:
    """Speak and receive results; some close their session, some lose their socket."""
    client = await stage.client()
    for index in range(UTTERANCES):
        await client.say(opus(400), is_final=True)
        if index % 3 == 2:
            await client.result(index)
    await client.result(UTTERANCES - 1)
    if number % 3 == 0:
        await client.bye()
    elif number % 3 == 1:
        client.drop()
    return len(client.outcomes())


def test_a_system_under_load_gives_no_finding(server: Server) -> None:
    async def scenario(stage: Stage) -> None:
        for number in range(3):
            (await stage.node(f"node-{number}", max_jobs=2)).work()
        settings = stage.server.settings
        looks: list[Diagnosis] = []
        async with connected(server) as connection:
            while len(looks) < LOOKS:
                work = asyncio.gather(*(talk(stage, number) for number in range(CLIENTS)))
                while not work.done():
                    looks.append(await examine(connection, settings, repairs=True, pause_s=0.05))
                assert await work == [UTTERANCES] * CLIENTS
            looks.append(await examine(connection, settings, repairs=True, pause_s=0.05))
        assert [look.findings for look in looks if look.findings] == []
        assert max(look.keys for look in looks) > CLIENTS

    play(scenario, **shared(server))


def test_letters_of_an_inbox_nobody_knew_of_are_read_by_an_instance_that_lives(
    server: Server,
) -> None:
    async def scenario(stage: Stage) -> None:
        settings = stage.server.settings
        async with connected(server) as connection:
            lost = InstanceKeys(settings.redis.key_prefix, "lost")
            await connection.command(lost.slot, "XADD", lost.inbox, "*", "v", "1")
            await PeerSender(connection, settings.redis.key_prefix, "x").send(
                "lost", RoomChanged("AB")
            )
            first = await examine(connection, settings, repairs=True, pause_s=0.2)
            assert [(v.kind, v.state) for v in first.findings] == [("inbox_unlisted", "repaired")]
            await until_gone(connection, lost)
            # One of them could not be read and became a dead letter.
            seen = await overview(connection, settings)
            assert seen.sentence == "not well: 1 dead letter (`lingua dlq ls`)"
            assert (await examine(connection, settings, pause_s=0.05)).findings == ()

    play(scenario, **shared(server, instances__silence_ms=1000))


async def until_gone(connection: Connection, keys: InstanceKeys) -> None:
    for _ in range(1000):
        if not await connection.command(keys.slot, "EXISTS", keys.inbox):
            return
        await asyncio.sleep(0.01)
    raise AssertionError("nobody reads the inbox")


def test_a_node_that_was_thought_lost_is_back_with_its_next_beat(server: Server) -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node("n1")
        settings = stage.server.settings
        instance = stage.server.instance
        cell = instance.cells.of_node("n1")
        async with connected(server) as connection:
            key = cell.key("node", "n1")
            await connection.command(cell.slot, "HSET", key, "instance", "ghost")
            diagnosis = await examine(connection, settings, repairs=True, pause_s=0.05)
            kinds = [(verdict.kind, verdict.state) for verdict in diagnosis.findings]
            assert kinds == [("node_of_dead_instance", "repaired")]
            assert await connection.command(cell.slot, "HGET", key, "status") == b"offline"
        await node.beat()
        await until(lambda: instance.nodes["n1"].status == "ready", "it is ready again")

    play(scenario, **shared(server))


def test_the_operators_user_may_do_all_of_it_and_a_schedulers_may_not(server: Server) -> None:
    prefix = "lingua"
    server.ask("ACL", "SETUSER", "operator", *operator_rules(prefix), f">{PASSWORD}")
    server.ask("ACL", "SETUSER", "scheduler", *acl_rules(prefix), f">{PASSWORD}")

    async def scenario(stage: Stage) -> None:
        settings = stage.server.settings
        (await stage.node("n1")).work()
        client = await stage.client()
        await client.say(opus(400), is_final=True)
        await client.result(0)
        await spoil(server, settings)
        async with connected(server, username="scheduler", password=PASSWORD) as connection:
            assert (await overview(connection, settings)).instances
            assert refusals(server) == []
            with pytest.raises(NotAllowed, match=r"may not use SCAN.*docs/operations.md"):
                await examine(connection, settings)
        server.ask("ACL", "LOG", "RESET")
        async with connected(server, username="operator", password=PASSWORD) as connection:
            diagnosis = await examine(connection, settings, repairs=True, pause_s=0.05)
            kinds = {verdict.kind: verdict.state for verdict in diagnosis.findings}
            assert kinds == {
                "audio_without_job": "repaired", "timer_of_nothing": "repaired",
                "lease_stale": "repaired", "reserved_without_lease": "repaired",
                "key_unknown": "left",
            }  # fmt: skip
        assert refusals(server) == []

    play(scenario, **shared(server, cells=1))


async def spoil(server: Server, settings: Settings) -> None:
    base = f"{settings.redis.key_prefix}:v1:{{c0}}:"
    server.ask("HSET", f"{base}audio:ghost|1", "audio", "x", "job-1", "")
    server.ask("ZADD", f"{base}due", 1 << 45, "j|ghost")  # else the instance itself drops it
    server.ask("ZADD", f"{base}leases:n1", 1, "job-1|1")
    server.ask("HSET", f"{base}reserved", "job-1|1|c0", "n1x")
    # Not even TYPE is allowed.
    server.ask("SET", "lingua:v2:strange", "1")


def refusals(server: Server) -> list[str]:
    entries = [dict(zip(e[::2], e[1::2], strict=True)) for e in server.ask("ACL", "LOG")]
    return [f"{e[b'reason'].decode()}: {e[b'object'].decode()}" for e in entries]
