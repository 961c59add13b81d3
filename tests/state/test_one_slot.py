"""Every script touches only keys of the dictionary, all in the slot of the one key it is given.

The server itself says what the scripts do: a life of a cell that uses every script is played while
a second connection watches with MONITOR.
"""

from __future__ import annotations

import asyncio
import re

import pytest

import servers
from lingua_scheduler.state.cluster import key_slot
from lingua_scheduler.state.keys import family_of
from lingua_scheduler.state.link import LinkOptions
from lingua_scheduler.state.records import Beat, ForeignSlot, Lease
from lingua_scheduler.state.scripts import load_scripts
from lingua_scheduler.state.single import SingleConnection
from state.test_replies_produced import WANTED, Scene, job

pytestmark = pytest.mark.store

# Commands of the scripts that have no key, and those whose every argument is one.
WITHOUT_KEY = {"TIME"}
ALL_KEYS = {"DEL", "UNLINK"}
WORD = re.compile(r'"((?:[^"\\]|\\.)*)"')


async def use_every_script(s: Scene) -> None:
    """A short life of a cell in which each script is called at least once."""
    store, cell = s.store, s.cell
    epoch = await s.session()
    await s.node("n", slots=2)
    await s.node("m", slots=1)
    await store.session_renew(cell, "i", ["s"], 60_000)
    await s.submit(0, turn="t", is_slice=True)
    await s.submit(1, turn="t", closes_turn=True)
    await s.submit(2, wanted=WANTED)
    await s.submit(3)
    await store.cell_waiting(cell, 10)
    await store.job_place(cell, job(3))
    await store.job_mark(cell, job(1), 1, "n", "RUNNING")
    await store.job_settle(cell, job(1), 1, "n", kind="completed")
    await store.job_settle(cell, job(1), 1, "m", kind="completed")
    await s.fail(2)
    await store.job_cancel(cell, job(3), "unwanted")
    await store.turn_end(cell, "s", "t")
    await store.lane_fill(cell, "s", "fr", index=3)
    s.store.now_ms += 10_000
    await store.lane_fill(cell, "s", "fr")
    await store.outbox_read(cell, "s", epoch=epoch)
    await store.outbox_ack(cell, "s", epoch, 1)
    await store.node_beat(cell, "n", "b", Beat())
    lease = Lease(job(9), 1, "c7")
    slot = await store.lease_reserve(cell, lease, WANTED)
    await store.job_commit(cell, job(2), 3, "c7", slot)
    await store.lease_confirm(cell, slot.node, lease, store.now_ms + 1000)
    await store.lease_release(cell, slot.node, lease)
    await store.node_mark(cell, "n", "nmt")
    await store.node_drain(cell, "n", drain=True)
    await store.node_offline(cell, "n", "c")
    await store.node_check(cell, "n")
    await store.cell_due(cell)
    await store.cell_done(cell, ForeignSlot("c7", "n", job(9), 1))
    await store.cell_pools(cell)
    await store.cell_nodes(cell)
    await store.session_close(cell, "s", "bye")


def keys_of(words: list[str]) -> list[str]:
    verb = words[0].upper()
    if verb in WITHOUT_KEY:
        return []
    return words[1:] if verb in ALL_KEYS else [words[1]]


async def watched(server) -> tuple[list[list[str]], set[str]]:
    """The commands scripts made, and the hashes of the scripts that ran."""
    reader, writer = await asyncio.open_unix_connection(server.address.path)
    writer.write(b"MONITOR\r\n")
    assert await reader.readline() == b"+OK\r\n"
    connection = await SingleConnection.open(server.address, LinkOptions())
    await use_every_script(Scene(connection))
    await connection.command(0, "ECHO", "the end")
    commands, ran = [], set()
    while '"the end"' not in (line := (await reader.readline()).decode(errors="replace")):
        words = WORD.findall(line)
        if "[0 lua]" in line:
            commands.append(words)
        elif words[0] == "EVALSHA":
            ran.add(words[1])
    await connection.close()
    writer.close()
    await writer.wait_closed()
    return commands, ran


def test_scripts_touch_only_keys_of_the_dictionary_in_one_slot(tmp_path) -> None:
    with servers.start_server(tmp_path) as server:
        commands, ran = asyncio.run(watched(server))

    never_ran = {name for name, script in load_scripts().items() if script.sha.decode() not in ran}
    assert set() == never_ran
    touched = {key for words in commands for key in keys_of(words)}
    assert {key for key in touched if family_of(key, "replies") is None} == set()
    assert {key_slot("replies:v1:{c0}:due")} == {key_slot(key) for key in touched}
    assert len(commands) > 200
