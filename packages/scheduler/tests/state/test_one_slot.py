"""Every script touches only keys of the dictionary, all in the slot of its first key.

The server reports what the scripts do: a scenario that uses every script runs while a second
connection watches with MONITOR, first for a cell, then for an instance and its inbox.
"""

from __future__ import annotations

import asyncio
import re

import msgspec
import pytest

import servers
from lingua_scheduler.peers.messages import RoomChanged
from lingua_scheduler.peers.presence import Directory
from lingua_scheduler.peers.sender import PeerSender
from lingua_scheduler.peers.stream import InboxStream
from lingua_scheduler.state.calls import CallForm
from lingua_scheduler.state.caption_scripts import CaptionScripts
from lingua_scheduler.state.cluster import key_slot
from lingua_scheduler.state.keys import Cell, Cells, InstanceKeys, family_of
from lingua_scheduler.state.link import LinkOptions
from lingua_scheduler.state.packing import pack
from lingua_scheduler.state.policy import FleetPolicy
from lingua_scheduler.state.records import (
    Claim,
    ForeignSlot,
    JobSpec,
    LaneFill,
    Lease,
    NodeBeat,
    SessionOpening,
    UndeliveredOutcome,
    job_id_of,
)
from lingua_scheduler.state.room_scripts import RoomEntry, RoomPolicy, RoomScripts, RoomVisit
from lingua_scheduler.state.scripts import load_scripts
from lingua_scheduler.state.single import SingleConnection
from lingua_scheduler.state.stream_scripts import StreamSpec
from state.test_replies_produced import WANTED, Scene, job

pytestmark = pytest.mark.store

# Commands of the scripts that have no key, and those whose every argument is one.
WITHOUT_KEY = {"TIME"}
# The line of the load of the library is long.
LINE_MAX = 1 << 20
WITH_SUBCOMMAND = {"XINFO"}
ALL_KEYS = {"DEL", "UNLINK"}
WORD = re.compile(r'"((?:[^"\\]|\\.)*)"')


async def use_every_script(s: Scene) -> None:
    """A short life of a cell in which each script is called at least once."""
    store, cell = s.store, s.cell
    await s.session()
    await s.node("n", slots=2, streams=2)
    await s.node("m", slots=1)
    await store.sessions.renew(cell, "i", ["s"], 60_000)
    await store.sessions.open(
        cell, "s", "i", opening=SessionOpening(1, restart=True, fields=("token", "t"))
    )
    await store.sessions.note(cell, "s", 1, {"about": b"it"})
    await s.submit(0, turn="t", is_slice=True)
    await s.submit(1, turn="t", closes_turn=True)
    await s.submit(2, wanted=WANTED)
    await s.submit(3)
    await store.cells.waiting(cell, 10)
    await store.jobs.place(cell, job(3))
    await store.jobs.mark(cell, job(1), 1, "n", "RUNNING")
    await store.jobs.fetch(cell, job(1), 1, "n")
    await store.jobs.show(cell, job(1))
    await store.jobs.find(cell, "s", 1)
    await store.jobs.settle(cell, job(1), 1, "n", kind="completed")
    await store.jobs.settle(cell, job(1), 1, "m", kind="completed")
    await s.fail(2)
    await store.jobs.cancel(cell, job(3), "unwanted")
    await store.sessions.end_turn(cell, "s", "t")
    await store.outbox.fill_lane(cell, "s", "fr", index=3)
    await use_every_script_of_requests(s)
    s.store.runner.now_ms += 10_000
    await store.outbox.fill_lane(cell, "s", "fr")
    claim = Claim("t", "", 0)
    resumed = await store.sessions.resume(cell, "s", "j", tenant="", lease_ms=60_000, claim=claim)
    epoch = resumed.epoch
    await store.outbox.read(cell, "s", epoch=epoch)
    await store.outbox.ack(cell, "s", epoch, 1)
    await store.nodes.beat(cell, "n", "b", NodeBeat())
    lease = Lease(job(9), 1, "c7")
    slot = await store.leases.reserve(cell, lease, WANTED)
    await store.jobs.commit(cell, Lease(job(2), 3, "c0"), "c7", slot)
    await store.leases.confirm(cell, slot.node, lease, 1000)
    await store.leases.release(cell, slot.node, lease)
    await store.nodes.mark(cell, "n", "nmt")
    await store.nodes.drain(cell, "n", drain=True)
    await store.nodes.offline(cell, "n", "c")
    await store.nodes.check(cell, "n")
    await store.cells.time(cell)
    await store.cells.due(cell)
    await store.cells.done(cell, ForeignSlot("c7", "n", job(9), 1))
    await store.cells.pools(cell)
    await store.cells.nodes(cell)
    await use_every_script_of_rooms(s)
    await use_every_script_of_listeners(s)
    await store.sessions.close(cell, "s", "bye")


async def mend_everything(s: Scene) -> None:
    """What `lingua doctor` repairs: nothing of it is broken here."""
    kinds = "job", "session", "audio", "queue", "node", "pool", "instance", "room", "deadline"
    for what in (*kinds, "streams", "streaming"):
        await s.store.cells.mend(s.cell, what, "nothing|0" if what == "audio" else "nothing", 1000)


async def use_every_script_of_streams(s: Scene) -> None:
    """Two streams: one is closed, one ends with its job."""
    spec = StreamSpec(session="s", lane="fr", demand=WANTED)
    for stream in ("str-0", "str-1"):
        answer = await s.store.streams.open(s.cell, stream, spec)
        assert answer.stream is not None
    await s.store.streams.renew(s.cell, [("n", "str-0")])
    await s.store.streams.close(s.cell, "n", "str-0")
    await s.submit(0, stream="str-1", stream_node="c0/n")
    assert await s.connection.command(s.cell.slot, "EXISTS", s.cell.key("stream", "str-1")) == 0


async def use_every_script_of_requests(s: Scene) -> None:
    """A request that is looked for, and what became of the speech."""
    await use_every_script_of_streams(s)
    await mend_everything(s)
    await s.store.requests.bind(s.cell, job(1), "c0")
    await s.store.requests.find(s.cell, job(1), "s")
    await s.store.sessions.speech(s.cell, "s")


async def use_every_script_of_rooms(s: Scene) -> None:
    """A short life of a room with the session in it."""
    rooms = RoomScripts(s.connection, Cells("replies", 1), RoomPolicy(idle_ms=5000))
    rooms.runner.now_ms = s.store.runner.now_ms
    for mode, name in (("create", "s"), ("join", "x")):
        await rooms.note(s.cell, name, "123456")
        member = RoomEntry(session=name, home="c0", instance="i", lang="", name="n")
        await rooms.enter(mode, "123456", "", member)
    await rooms.set_voice("123456", "s", "x", wanted=False)
    await rooms.spoke("123456", "s")
    await rooms.feed("123456", "", "es", "i1", 3)
    await CaptionScripts(rooms).read("123456", "", "es")
    await rooms.read("123456")
    await rooms.check("123456")
    await rooms.leave("123456", (RoomVisit("x"),))
    rooms.runner.now_ms += 5000
    await rooms.check("123456")


async def use_every_script_of_listeners(s: Scene) -> None:
    """A speaker whose words are for others: here, elsewhere, and as they were spoken."""
    store, cell = s.store, s.cell
    for name in ("p", "q", "r"):
        await store.sessions.open(cell, name, "i")
    await s.node("k", slots=2)
    spec = JobSpec(
        session="p", index=0, lane="es", demand=WANTED, audience="c0/q c7/z", readers="c0/r",
        readers_from=0,
    )  # fmt: skip
    made = await store.jobs.submit(cell, job_id_of("p", "0"), spec, b"")
    assert made.placement is not None
    await store.jobs.settle(
        cell, made.placement.job, 1, made.placement.node, kind="completed",
        payload=(b"sound", b"text"),
    )  # fmt: skip
    _, (item,), _ = await store.outbox.relay(cell, "p")
    await store.outbox.put(cell, UndeliveredOutcome("x|1|1", *item[1:6], ("c0/q",)), ["q"])
    await store.outbox.relay(cell, "p", [f"c7 {item.id}"])
    others = msgspec.msgpack.encode({"audience": "c0/q", "readers": "c0/r", "readers_from": 1})
    await store.outbox.fill_lane(
        cell, "p", "es", index=1, unwanted_from=1, answer=LaneFill(others=others)
    )
    page = await store.outbox.read(cell, "q")
    assert len(page.entries) == 3
    await store.outbox.ack(cell, "q", page.epoch, page.last_seq)


async def use_every_script_of_instances(s: Scene) -> None:
    """A short life of an instance, its inbox and its death."""
    directory = Directory(s.connection, "replies")
    await directory.beat("i", "b", 0, "host", "h")
    inbox = InboxStream(s.connection, "replies", "i")
    await inbox.create()
    for _ in range(3):
        await PeerSender(s.connection, "replies", "j").send("i", RoomChanged("ABC"))
    first, second, third = await inbox.read_new(10)
    await inbox.lease("j", 1000)
    await inbox.bury(first.id, "x")
    await inbox.bury(first.id, "x")
    await inbox.remove()
    await inbox.finish([second.id, third.id])
    await inbox.remove()
    await inbox.lease("j", 0)
    await directory.forget("i", -1)
    rows, _ = await directory.read()
    await directory.forget("i", rows["i"].beat_at_ms)
    await directory.leave("i", "b")


def keys_of(words: list[str]) -> list[str]:
    verb = words[0].upper()
    if verb in WITHOUT_KEY:
        return []
    if verb in WITH_SUBCOMMAND:
        return [words[2]]
    return words[1:] if verb in ALL_KEYS else [words[1]]


async def use_a_batch(connection: SingleConnection) -> None:
    """Two calls of one turn of the loop."""
    cell = Cell("replies", 0)
    policy = pack(FleetPolicy().for_jobs())
    form = CallForm.of(load_scripts()["job_settle"], cell.slot, cell.keys, (0, policy))
    words = ("n1", "completed", b"")
    connection.command(0, "PING")  # the first call of a turn may leave alone
    both = [connection.ask(form, (job(n), 1, *words), list, size=0) for n in (1, 2)]
    for answer in both:
        await answer


async def watched(server) -> tuple[dict[str, list[list[str]]], set[str]]:
    """The commands scripts made, by the key they were given, and the functions that ran."""
    reader, writer = await asyncio.open_unix_connection(server.address.path, limit=LINE_MAX)
    writer.write(b"MONITOR\r\n")
    assert await reader.readline() == b"+OK\r\n"
    connection = await SingleConnection.open(server.address, LinkOptions(call_timeout_ms=10_000))
    await use_every_script(Scene(connection))
    await use_every_script_of_instances(Scene(connection))
    await use_a_batch(connection)
    await connection.command(0, "ECHO", "the end")
    commands: dict[str, list[list[str]]] = {}
    given, ran = "", set()
    while '"the end"' not in (line := (await reader.readline()).decode(errors="replace")):
        words = WORD.findall(line)
        if "[0 lua]" in line:
            commands.setdefault(given, []).append(words)
        elif words[0] == "FCALL":
            # The call is told before what it does.
            given = words[3]
            ran.add(words[1])
    await connection.close()
    writer.close()
    await writer.wait_closed()
    return commands, ran


def test_scripts_touch_only_keys_of_the_dictionary_in_one_slot(tmp_path) -> None:
    with servers.start_server(tmp_path) as server:
        commands, ran = asyncio.run(watched(server))

    scripts = load_scripts()
    never_ran = {name for name, script in scripts.items() if script.function.decode() not in ran}
    assert set() == never_ran
    assert set(commands) == {"replies:v1:{c0}:due", InstanceKeys("replies", "i").inbox.decode()}
    for given, made in commands.items():
        touched = {key for words in made for key in keys_of(words)}
        assert {key for key in touched if family_of(key, "replies") is None} == set()
        assert {key_slot(given)} == {key_slot(key) for key in touched}
    assert sum(map(len, commands.values())) > 200
