"""A survivor applies the messages that a dead instance left in its inbox, exactly once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress

import pytest

from lingua_scheduler.peers.adoption import Adopted, Adopter, AdoptionPace
from lingua_scheduler.peers.deadletters import DeadLetters
from lingua_scheduler.peers.messages import ReceivedMessage, Undeliverable
from lingua_scheduler.peers.presence import Directory, InstanceInfo, Presence
from lingua_scheduler.peers.sender import PeerSender
from lingua_scheduler.peers.stream import InboxStream
from lingua_scheduler.state.connection import Connection
from lingua_scheduler.state.keys import Cell
from peers.scenario import (
    BOUND_S,
    LOG,
    PREFIX,
    Notes,
    ask,
    inbox_of,
    left,
    letter,
    number_of,
    play,
    reach_dead_letters,
    send,
)
from servers import Server, start_server, until

pytestmark = pytest.mark.store

QUICK = AdoptionPace(lease_ms=1000, retry_ms=10)
DEAD = "dead-1"


@pytest.fixture(name="server", scope="module")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with start_server(tmp_path_factory.mktemp("adoption")) as server:
        yield server


class Survivor:
    """An instance that knows which others are alive."""

    def __init__(self, connection: Connection, name: str, pace: AdoptionPace = QUICK) -> None:
        self.presence = Presence(connection, PREFIX, name, InstanceInfo(), presence_ms=100)
        self._adopter = Adopter(connection, PREFIX, self.presence, log=LOG, pace=pace)
        self.notes = Notes()

    async def wait_for_death(self) -> None:
        """Beat until the instance counts as dead: its record is old or missing."""
        for _ in range(int(BOUND_S / 0.01)):
            view = await self.presence.beat()
            if not self.presence.is_alive(DEAD) and DEAD in (*view.dead, *view.orphans):
                return
            await asyncio.sleep(0.01)
        raise AssertionError("it does not die")

    async def adopt(self, apply=None) -> Adopted:
        return await self._adopter.adopt(DEAD, apply or self.notes)


async def leave_behind(connection: Connection, *, unread: int, pending: int) -> None:
    """An instance that has read some of its messages and has stopped beating."""
    await Presence(connection, PREFIX, DEAD, InstanceInfo()).beat()
    stream = InboxStream(connection, PREFIX, DEAD)
    await stream.create()
    await send(connection, DEAD, range(pending))
    if pending:
        assert len(await stream.read_new(pending)) == pending
    await send(connection, DEAD, range(pending, pending + unread))
    assert await left(connection, DEAD) == (pending + unread, pending)


async def is_gone(connection: Connection) -> bool:
    """Tell whether its inbox, lease, record and listing are all deleted."""
    keys = InboxStream(connection, PREFIX, DEAD).keys
    cell = Cell(PREFIX, 0)
    streams = await connection.command(keys.slot, "EXISTS", keys.inbox, keys.adopter)
    mentioned = await connection.command(cell.slot, "SISMEMBER", cell.key("inboxes"), DEAD)
    rows, _ = await Directory(connection, PREFIX).read()
    return not streams and not mentioned and DEAD not in rows


async def what_a_dead_instance_left_is_applied_once_in_order(connection: Connection) -> None:
    await leave_behind(connection, unread=500, pending=100)
    survivor = Survivor(connection, "b")
    await survivor.wait_for_death()
    assert await survivor.adopt() == Adopted(600, 0, finished=True)
    assert survivor.notes.numbers == list(range(600))
    assert await is_gone(connection)
    assert not await PeerSender(connection, PREFIX, "a").send(DEAD, letter(1))


async def a_second_survivor_goes_on_where_the_first_died(connection: Connection) -> None:
    await leave_behind(connection, unread=500, pending=100)
    first, second = Survivor(connection, "b"), Survivor(connection, "c")
    await first.wait_for_death()
    await second.wait_for_death()
    effects: Counter[int] = Counter()
    begun: list[int] = []

    async def is_slow(envelope: ReceivedMessage) -> None:
        begun.append(number_of(envelope))
        await asyncio.sleep(0.005)
        if len(begun) > 300:
            await asyncio.Event().wait()  # dies here, between effects and their acknowledgement
        effects[number_of(envelope)] += 1

    task = asyncio.create_task(first.adopt(is_slow))
    await until(lambda: len(begun) > 300, BOUND_S, "half is done")
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert task.cancelled()
    done = await second.adopt()
    effects.update(second.notes.numbers)
    assert set(effects) == set(range(600))
    # At most one batch, in progress at the death, is applied twice; effects are idempotent.
    assert sum(effects.values()) - 600 < QUICK.batch
    assert done.finished
    assert await is_gone(connection)


async def another_lease_is_waited_for_until_it_lapses(connection: Connection) -> None:
    await leave_behind(connection, unread=5, pending=5)
    # The lease of a survivor that was killed and did not release it.
    killed = InboxStream(connection, PREFIX, DEAD, reader="killed")
    assert await killed.lease("killed", 300)
    assert len(await killed.read_new(3)) == 3
    survivor = Survivor(connection, "b")
    await survivor.wait_for_death()
    adoption = asyncio.create_task(survivor.adopt())
    assert await adoption == Adopted(10, 0, finished=True)
    assert sorted(survivor.notes.numbers) == list(range(10))
    assert await is_gone(connection)


async def a_lease_that_is_kept_is_not_taken(connection: Connection) -> None:
    await leave_behind(connection, unread=5, pending=0)
    holder = InboxStream(connection, PREFIX, DEAD)
    assert await holder.lease("other", 60_000)
    survivor = Survivor(connection, "b", AdoptionPace(lease_ms=50))
    await survivor.wait_for_death()
    assert await survivor.adopt() == Adopted(0, 0, finished=False)
    assert survivor.notes.seen == []
    assert await left(connection, DEAD) == (5, 0)
    # Nor released by an instance that does not hold it.
    assert not await holder.lease("b", 0)
    assert await holder.lease("other", 0)
    assert (await survivor.adopt()).finished


async def survivors_that_begin_together_apply_each_letter_once(connection: Connection) -> None:
    await leave_behind(connection, unread=300, pending=50)
    survivors = [Survivor(connection, name) for name in ("b", "c", "d")]
    for survivor in survivors:
        await survivor.wait_for_death()
    done = await asyncio.gather(*(survivor.adopt() for survivor in survivors))
    numbers = [number for survivor in survivors for number in survivor.notes.numbers]
    assert sorted(numbers) == list(range(350))
    assert sum(each.entries for each in done) == 350
    assert sum(each.finished for each in done) == 1
    assert await is_gone(connection)


async def a_lease_is_kept_for_as_long_as_the_work_takes(connection: Connection) -> None:
    await leave_behind(connection, unread=20, pending=0)
    first = Survivor(connection, "b", AdoptionPace(lease_ms=500, batch=1))
    second = Survivor(connection, "c", AdoptionPace(lease_ms=100))
    await first.wait_for_death()
    await second.wait_for_death()

    async def is_slow(envelope: ReceivedMessage) -> None:
        await asyncio.sleep(0.06)  # 20 of them: more than twice the lease
        await first.notes(envelope)

    task = asyncio.create_task(first.adopt(is_slow))
    await first.notes.reach(1)
    assert not (await second.adopt()).finished
    assert await task == Adopted(20, 0, finished=True)
    assert (first.notes.numbers, second.notes.seen) == (list(range(20)), [])


async def the_return_of_the_dead_ends_the_adoption(connection: Connection) -> None:
    await leave_behind(connection, unread=200, pending=0)
    survivor = Survivor(connection, "b", AdoptionPace(batch=10))
    await survivor.wait_for_death()

    async def brings_it_back(envelope: ReceivedMessage) -> None:
        await survivor.notes(envelope)
        if len(survivor.notes.seen) == 50:
            await Presence(connection, PREFIX, DEAD, InstanceInfo()).beat()
            await survivor.presence.beat()

    done = await survivor.adopt(brings_it_back)
    assert not done.finished
    assert done.entries == len(survivor.notes.seen) < 200
    # The rest, and the inbox, belong to the instance again.
    returned = Notes()
    inbox = inbox_of(connection, DEAD, returned)
    task = asyncio.create_task(inbox.run())
    await returned.reach(200 - done.entries)
    task.cancel()
    await asyncio.wait([task])
    assert sorted([*survivor.notes.numbers, *returned.numbers]) == list(range(200))


async def what_no_survivor_can_apply_is_put_aside_and_kept(connection: Connection) -> None:
    await leave_behind(connection, unread=3, pending=3)
    survivor = Survivor(connection, "b")
    await survivor.wait_for_death()

    async def fails_on_odd_ones(envelope: ReceivedMessage) -> None:
        await survivor.notes(envelope)
        if number_of(envelope) % 2:
            raise Undeliverable("no_such_node")

    assert await survivor.adopt(fails_on_odd_ones) == Adopted(3, 3, finished=True)
    dead = await reach_dead_letters(connection, 3)
    assert {letter.correlation for letter in dead} == {"s-1", "s-3", "s-5"}
    assert {(each.instance, each.reason, each.deliveries) for each in dead} == {
        (DEAD, "no_such_node", 5)
    }
    assert await is_gone(connection)
    assert await DeadLetters(connection, PREFIX).counts() == {DEAD: 3}


async def an_inbox_that_no_instance_has_is_adopted_too(connection: Connection) -> None:
    await InboxStream(connection, PREFIX, DEAD).create()
    await send(connection, DEAD, range(7))
    survivor = Survivor(connection, "b")
    await survivor.wait_for_death()
    assert await survivor.adopt() == Adopted(7, 0, finished=True)
    assert await is_gone(connection)
    assert (await survivor.presence.beat()).orphans == ()


async def a_dead_instance_without_an_inbox_is_forgotten(connection: Connection) -> None:
    await Presence(connection, PREFIX, DEAD, InstanceInfo()).beat()
    survivor = Survivor(connection, "b")
    await survivor.wait_for_death()
    assert await survivor.adopt() == Adopted(0, 0, finished=True)
    assert await is_gone(connection)


async def a_letter_that_comes_late_is_not_lost(connection: Connection) -> None:
    await leave_behind(connection, unread=3, pending=0)
    survivor = Survivor(connection, "b")
    await survivor.wait_for_death()

    async def sends_another(envelope: ReceivedMessage) -> None:
        await survivor.notes(envelope)
        if number_of(envelope) == 2:
            await send(connection, DEAD, range(3, 5))

    assert (await survivor.adopt(sends_another)).finished
    assert survivor.notes.numbers == list(range(5))
    # The removal itself checks again.
    stream = InboxStream(connection, PREFIX, DEAD)
    await stream.create()
    await send(connection, DEAD, range(1))
    assert not await stream.remove()
    assert await ask(connection, DEAD, "XLEN") == 1


async def a_stream_whose_group_is_missing_is_read_from_its_beginning(
    connection: Connection,
) -> None:
    await leave_behind(connection, unread=4, pending=2)
    await connection.command(
        InboxStream(connection, PREFIX, DEAD).keys.slot, "XGROUP", "DESTROY",
        InboxStream(connection, PREFIX, DEAD).keys.inbox, "scheduler",
    )  # fmt: skip
    survivor = Survivor(connection, "b")
    await survivor.wait_for_death()
    assert await survivor.adopt() == Adopted(6, 0, finished=True)
    assert survivor.notes.numbers == list(range(6))


async def one_adoption_at_a_time_by_one_instance(connection: Connection) -> None:
    await leave_behind(connection, unread=3, pending=0)
    survivor = Survivor(connection, "b")
    await survivor.wait_for_death()
    first, second = await asyncio.gather(survivor.adopt(), survivor.adopt())
    assert (first, second) == (Adopted(3, 0, finished=True), Adopted(0, 0, finished=False))


# Also run on a cluster.
SCENARIOS = [
    a_second_survivor_goes_on_where_the_first_died,
    another_lease_is_waited_for_until_it_lapses,
    a_lease_that_is_kept_is_not_taken,
    survivors_that_begin_together_apply_each_letter_once,
    a_lease_is_kept_for_as_long_as_the_work_takes,
    the_return_of_the_dead_ends_the_adoption,
    what_no_survivor_can_apply_is_put_aside_and_kept,
    an_inbox_that_no_instance_has_is_adopted_too,
    a_dead_instance_without_an_inbox_is_forgotten,
    a_letter_that_comes_late_is_not_lost,
    a_stream_whose_group_is_missing_is_read_from_its_beginning,
    one_adoption_at_a_time_by_one_instance,
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_on_one_server(server: Server, scenario) -> None:
    play(server, scenario)


def test_what_a_dead_instance_had_pending_and_unread_is_applied_once(server: Server) -> None:
    play(server, what_a_dead_instance_left_is_applied_once_in_order)
