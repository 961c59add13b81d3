"""Dead letters as operators handle them, and the inspection of all instances and inboxes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from lingua_scheduler.peers.deadletters import DeadLetters
from lingua_scheduler.peers.inspection import inspect_instances
from lingua_scheduler.peers.messages import OutcomesReady
from lingua_scheduler.peers.presence import InstanceInfo, Presence
from lingua_scheduler.peers.stream import InboxStream
from lingua_scheduler.state.connection import Connection
from lingua_scheduler.state.keys import Cell
from peers.scenario import PREFIX, Notes, inbox_of, play, reading, send
from servers import Server, start_server

pytestmark = pytest.mark.store


@pytest.fixture(name="server", scope="module")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with start_server(tmp_path_factory.mktemp("dead")) as server:
        yield server


async def bury(connection: Connection, name: str, numbers: range) -> None:
    """Send messages to an instance that become dead letters."""
    stream = InboxStream(connection, PREFIX, name)
    await stream.create()
    await send(connection, name, numbers)
    for entry in await stream.read_new(len(numbers)):
        assert await stream.bury(entry.id, "no_such_session")
        await asyncio.sleep(0.002)  # the next one is newer by the server's clock


async def dead_letters_of_all_instances_are_listed_newest_first(connection: Connection) -> None:
    letters = DeadLetters(connection, PREFIX)
    assert (await letters.list(), await letters.counts()) == ((), {})
    await bury(connection, "a", range(2))
    await bury(connection, "b", range(2, 5))
    found = await letters.list()
    assert [dead.correlation for dead in found] == [f"s-{n}" for n in (4, 3, 2, 1, 0)]
    assert [dead.instance for dead in found] == ["b", "b", "b", "a", "a"]
    assert await letters.list(limit=2) == found[:2]
    assert await letters.counts() == {"a": 2, "b": 3}
    assert await letters.show("a", found[-1].id) == found[-1]
    assert await letters.show("a", "1-1") is None


async def a_dead_letter_is_replayed_as_it_was(connection: Connection) -> None:
    letters = DeadLetters(connection, PREFIX)
    await bury(connection, "gone", range(1))
    (dead,) = await letters.list()
    assert not await letters.replay(dead, "ghost"), "nobody would read it"
    assert await letters.list() == (dead,)
    notes = Notes()
    async with reading(inbox_of(connection, "alive", notes)):
        assert await letters.replay(dead, "alive")
        await notes.reach(1)
    (envelope,) = notes.seen
    assert envelope.message == OutcomesReady("s-0", "1", 0)
    assert (envelope.sender, envelope.sent_at_ms) == ("sender", dead.sent_at_ms)
    assert await letters.list() == ()


async def a_dropped_letter_is_gone_and_with_the_last_its_mention(connection: Connection) -> None:
    letters = DeadLetters(connection, PREFIX)
    await bury(connection, "a", range(2))
    newest, oldest = await letters.list()
    assert await letters.drop("a", oldest.id)
    assert not await letters.drop("a", oldest.id)
    assert await letters.list() == (newest,)
    assert await letters.drop("a", newest.id)
    cell = Cell(PREFIX, 0)
    assert await connection.command(cell.slot, "EXISTS", cell.key("dlqs")) == 0
    # A later one is found again.
    await bury(connection, "a", range(1))
    assert len(await letters.list()) == 1


async def the_survey_shows_every_instance_and_inbox(connection: Connection) -> None:
    assert await inspect_instances(connection, PREFIX) == ()
    await bury(connection, "buried", range(2))
    stream = InboxStream(connection, PREFIX, "orphan")
    await stream.create()
    await send(connection, "orphan", range(5))
    await stream.read_new(3)
    await Presence(connection, PREFIX, "alive", InstanceInfo("h", 1, "v", "u")).beat()
    found = {row.instance: row for row in await inspect_instances(connection, PREFIX)}
    assert list(found) == ["alive", "buried", "orphan"]
    record = found["alive"].record
    assert record is not None
    assert record.about == InstanceInfo("h", 1, "v", "u")
    assert found["alive"][2:] == (0, 0, 0)
    assert found["buried"][1:] == (None, 0, 0, 2)
    assert found["orphan"][1:] == (None, 5, 3, 0)


# Also run on a cluster.
SCENARIOS = [
    dead_letters_of_all_instances_are_listed_newest_first,
    a_dead_letter_is_replayed_as_it_was,
    a_dropped_letter_is_gone_and_with_the_last_its_mention,
    the_survey_shows_every_instance_and_inbox,
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_on_one_server(server: Server, scenario) -> None:
    play(server, scenario)
