"""The reader of an inbox on a real server: no message is missed, stuck, or retried forever."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from lingua_scheduler.errors import StoreUnavailable
from lingua_scheduler.peers.deadletters import DeadLetters
from lingua_scheduler.peers.inbox import Undeliverable
from lingua_scheduler.peers.messages import PushJob, ReceivedMessage, SessionTaken
from lingua_scheduler.peers.sender import PeerSender
from lingua_scheduler.peers.stream import GROUP, InboxStream
from lingua_scheduler.state.connection import Connection
from lingua_scheduler.state.link import LinkOptions
from lingua_scheduler.state.single import SingleConnection
from peers.scenario import (
    BOUND_S,
    PREFIX,
    Notes,
    ask,
    inbox_of,
    left,
    letter,
    number_of,
    play,
    reach_dead_letters,
    reach_left,
    reading,
    send,
)
from servers import Server, start_server, until

pytestmark = pytest.mark.store


@pytest.fixture(name="server", scope="module")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with start_server(tmp_path_factory.mktemp("inbox")) as server:
        yield server


# Sending and reading.


async def letters_are_read_once_in_order_and_leave_nothing(connection: Connection) -> None:
    notes = Notes()
    async with reading(inbox_of(connection, "b", notes)):
        post = PeerSender(connection, PREFIX, "a")
        for number in range(200):
            assert await post.send("b", letter(number))
        await notes.reach(200)
        await reach_left(connection, "b", (0, 0))
    assert notes.numbers == list(range(200))
    assert {envelope.sender for envelope in notes.seen} == {"a"}


async def letters_sent_before_there_is_a_reader_are_read(connection: Connection) -> None:
    notes = Notes()
    inbox = inbox_of(connection, "b", notes)
    await inbox.open()
    await send(connection, "b", range(100))
    async with reading(inbox):
        await notes.reach(100)
    assert notes.numbers == list(range(100))


async def a_letter_to_nobody_is_refused_and_leaves_no_stream(connection: Connection) -> None:
    assert not await PeerSender(connection, PREFIX, "a").send("ghost", letter(1))
    assert await ask(connection, "ghost", "EXISTS") == 0


async def effects_of_a_batch_are_started_in_order_and_awaited_together(
    connection: Connection,
) -> None:
    begun: list[int] = []
    all_begun = asyncio.Event()

    async def wait_for_all(envelope: ReceivedMessage) -> None:
        begun.append(number_of(envelope))
        if len(begun) == 20:
            all_begun.set()
        await all_begun.wait()

    inbox = inbox_of(connection, "b", wait_for_all)
    await inbox.open()
    await send(connection, "b", range(20))
    async with reading(inbox):
        await reach_left(connection, "b", (0, 0))
    assert begun == list(range(20))


async def an_inbox_keeps_about_as_many_letters_as_it_may(connection: Connection) -> None:
    inbox = inbox_of(connection, "b", Notes())
    await inbox.open()
    post = PeerSender(connection, PREFIX, "a", maxlen=100)
    await asyncio.gather(*(post.send("b", letter(number)) for number in range(1000)))
    length, _ = await left(connection, "b")
    assert 100 <= length <= 300
    notes = Notes()
    async with reading(inbox_of(connection, "b", notes)):
        await notes.reach(length)
    # The newest ones are kept.
    assert notes.numbers == list(range(1000 - length, 1000))


# Failures.


async def what_a_killed_reader_had_in_work_is_read_again(connection: Connection) -> None:
    stuck = asyncio.Event()
    begun: list[int] = []

    async def never_ends(envelope: ReceivedMessage) -> None:
        begun.append(number_of(envelope))
        await stuck.wait()

    async with reading(inbox_of(connection, "b", never_ends)):
        await send(connection, "b", range(5))
        await until(lambda: len(begun) >= 1, BOUND_S, "the first reader has begun")
    # Cancelled in the middle: read, and not acknowledged.
    _, pending = await left(connection, "b")
    assert pending == len(begun)
    notes = Notes()
    async with reading(inbox_of(connection, "b", notes)):
        await notes.reach(5)
        await reach_left(connection, "b", (0, 0))
    assert sorted(notes.numbers) == list(range(5))


async def more_pending_letters_than_a_batch_are_all_read_again(connection: Connection) -> None:
    former = InboxStream(connection, PREFIX, "b")
    await former.create()
    await send(connection, "b", range(50))
    assert len(await former.read_new(50)) == 50
    notes = Notes()
    async with reading(inbox_of(connection, "b", notes, batch=8)):
        await notes.reach(50)
        await reach_left(connection, "b", (0, 0))
    assert notes.numbers == list(range(50))


@pytest.mark.parametrize(
    "error",
    [Undeliverable("no_such_session"), StoreUnavailable("x", "y"), ZeroDivisionError("a bug")],
    ids=lambda error: type(error).__name__,
)
def test_a_letter_whose_effect_fails_is_tried_again(server: Server, error: Exception) -> None:
    async def scenario(connection: Connection) -> None:
        notes = Notes(error, error)
        inbox = inbox_of(connection, "b", notes)
        async with reading(inbox):
            await send(connection, "b", range(1))
            await notes.reach(3)
            await reach_left(connection, "b", (0, 0))
        assert notes.numbers == [0, 0, 0]
        counts = inbox.counts
        assert (counts.applied, counts.failed, counts.retried, counts.buried) == (1, 2, 2, 0)

    play(server, scenario)


async def one_bad_letter_holds_up_no_other(connection: Connection) -> None:
    seen: list[int] = []

    async def fails_at_three(envelope: ReceivedMessage) -> None:
        seen.append(number_of(envelope))
        if number_of(envelope) == 3:
            raise ZeroDivisionError("a bug")

    inbox = inbox_of(connection, "b", fails_at_three, deliveries_max=2)
    async with reading(inbox):
        await send(connection, "b", range(10))
        (dead,) = await reach_dead_letters(connection, 1)
        await send(connection, "b", range(10, 12))
        await reach_left(connection, "b", (0, 0))
    assert sorted(seen) == [0, 1, 2, 3, 3, 4, 5, 6, 7, 8, 9, 10, 11]
    assert (dead.reason, dead.deliveries, dead.correlation) == ("error", 2, "s-3")


async def dead_letters_are_reached_although_entries_are_claimed_again(
    connection: Connection,
) -> None:
    notes = Notes(*[Undeliverable("no_such_session") for _ in range(100)])
    # Claimed again long before any idle time could build up.
    async with reading(inbox_of(connection, "b", notes, reclaim_ms=10, deliveries_max=4)):
        await PeerSender(connection, PREFIX, "a").send("b", PushJob("j", 7, "n", "c0"))
        (dead,) = await reach_dead_letters(connection, 1)
        await reach_left(connection, "b", (0, 0))
    assert len(notes.seen) == 4
    assert (dead.instance, dead.source_id) == ("b", notes.seen[0].id)
    assert (dead.kind, dead.correlation, dead.attempt, dead.sender) == ("push", "j", 7, "a")
    assert (dead.deliveries, dead.reason) == (4, "no_such_session")
    assert dead.sent_at_ms == notes.seen[0].sent_at_ms <= dead.moved_at_ms + 1000


async def a_letter_that_kills_each_of_its_readers_is_put_aside(connection: Connection) -> None:
    killed = InboxStream(connection, PREFIX, "b")
    await killed.create()
    await send(connection, "b", range(1))
    (entry,) = await killed.read_new(1)
    for _ in range(4):
        assert await killed.claim([entry.id])
    notes = Notes()
    async with reading(inbox_of(connection, "b", notes)):
        (dead,) = await reach_dead_letters(connection, 1)
    assert (dead.reason, dead.deliveries) == ("abandoned", 5)
    assert notes.seen == []


async def an_effect_is_not_repeated_because_its_acknowledgement_was_lost(
    connection: Connection,
) -> None:
    notes = Notes()
    stream = InboxStream(connection, PREFIX, "b")
    await stream.create()
    await send(connection, "b", range(1))

    async def loses_the_store(envelope: ReceivedMessage) -> None:
        await notes(envelope)
        connection._steady.link.drop("by the test")  # type: ignore[attr-defined]

    async with reading(inbox_of(connection, "b", loses_the_store)):
        for _ in range(int(BOUND_S / 0.01)):
            try:
                if await left(connection, "b") == (0, 0):
                    break
            except StoreUnavailable:
                pass
            await asyncio.sleep(0.01)
    assert await left(connection, "b") == (0, 0)
    assert len(notes.seen) == 1


# Unreadable entries.


async def what_cannot_be_read_is_put_aside_at_once_and_can_be_replayed(
    connection: Connection,
) -> None:
    notes = Notes()
    async with reading(inbox_of(connection, "b", notes)):
        fields = ("f", "a", "c", "s", "a", "", "t", 5, "b", b"\xc1\xff", "later", "field")
        await ask(connection, "b", "XADD", "*", "v", 1, "k", "ode", *fields)
        await ask(connection, "b", "XADD", "*", "v", 2, "k", "taken", *fields)
        await ask(connection, "b", "XADD", "*", "v", 1, "k", "taken", *fields)
        await ask(connection, "b", "XADD", "*", "x", "y")
        found = await reach_dead_letters(connection, 4)
        await send(connection, "b", range(1))
        await notes.reach(1)
        await reach_left(connection, "b", (0, 0))
    assert [dead.reason for dead in sorted(found, key=lambda dead: dead.source_id)] == [
        "unknown_kind", "newer_version", "malformed", "malformed",
    ]  # fmt: skip
    assert {dead.deliveries for dead in found} == {1}
    # As with a newer release: the same entry, in an inbox that is not read here.
    await InboxStream(connection, PREFIX, "newer").create()
    dead = next(dead for dead in found if dead.reason == "newer_version")
    assert await DeadLetters(connection, PREFIX).replay(dead, "newer")
    ((_, entry),) = await ask(connection, "newer", "XRANGE", "-", "+")
    wanted = {"v": b"2", "k": b"taken", "f": b"a", "c": b"s", "a": b"", "t": b"5"}
    wanted |= {"b": b"\xc1\xff", "later": b"field"}
    assert dict(zip(entry[::2], entry[1::2], strict=True)) == {
        name.encode(): value for name, value in wanted.items()
    }


# The store.


async def an_emptied_store_gets_its_stream_again(connection: Connection) -> None:
    notes = Notes()
    async with reading(inbox_of(connection, "b", notes)):
        await send(connection, "b", range(1))
        await notes.reach(1)
        await connection.every_master("FLUSHALL")
        await reach_left_although_missing(connection)
        await send(connection, "b", range(1, 3))
        await notes.reach(3)
    assert notes.numbers == [0, 1, 2]


async def reach_left_although_missing(connection: Connection) -> None:
    for _ in range(int(BOUND_S / 0.01)):
        if await ask(connection, "b", "EXISTS"):
            return
        await asyncio.sleep(0.01)
    raise AssertionError("the inbox was not made again")


def test_a_store_that_was_restarted_empty_is_read_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        connection = await SingleConnection.open(
            server.address, LinkOptions(call_timeout_ms=10_000)
        )
        notes = Notes()
        async with reading(inbox_of(connection, "b", notes)):
            await send(connection, "b", range(1))
            await notes.reach(1)
            server.restart()
            post = PeerSender(connection, PREFIX, "a")
            for _ in range(int(BOUND_S / 0.01)):
                try:
                    if await post.send("b", letter(1)):
                        break
                except StoreUnavailable:
                    pass
                await asyncio.sleep(0.01)
            await notes.reach(2)
        assert notes.numbers == [0, 1]
        await connection.close()

    with start_server(tmp_path) as server:
        asyncio.run(scenario())


def test_a_blocking_read_delays_no_other_call(server: Server) -> None:
    async def scenario(connection: Connection) -> None:
        notes = Notes()
        inbox = inbox_of(connection, "b", notes, block_ms=10_000, reclaim_ms=10_000)
        async with reading(inbox):
            await until(lambda: server.blocked_clients == 1, BOUND_S, "the reader waits")
            reads = reads_of(server)
            for number in range(300):
                assert await connection.command(0, "ECHO", number) == b"%d" % number
            # All were answered while the same read was waiting.
            assert (server.blocked_clients, reads_of(server)) == (1, reads)
            await send(connection, "b", range(1))
            await notes.reach(1)

    play(server, scenario)


def reads_of(server: Server) -> str:
    return server.info("commandstats").get("cmdstat_xreadgroup", "none")


# The end.


async def an_orderly_end_deletes_an_inbox_with_nothing_left(connection: Connection) -> None:
    notes = Notes()
    inbox = inbox_of(connection, "b", notes)
    async with reading(inbox):
        await send(connection, "b", range(3))
        await notes.reach(3)
        await reach_left(connection, "b", (0, 0))
    await inbox.close(forget=True)
    assert await ask(connection, "b", "EXISTS") == 0
    assert not await PeerSender(connection, PREFIX, "a").send("b", letter(1))


async def an_orderly_end_keeps_what_was_not_read(connection: Connection) -> None:
    inbox = inbox_of(connection, "b", Notes())
    await inbox.open()
    await send(connection, "b", range(3))
    await inbox.close(forget=True)
    assert await left(connection, "b") == (3, 0)
    # Also entries that were read and not applied.
    stream = InboxStream(connection, PREFIX, "b")
    entries = await stream.read_new(10)
    await inbox.close(forget=True)
    assert await left(connection, "b") == (3, 3)
    # Acknowledged and, as if the server had died just then, not deleted.
    await ask(connection, "b", "XACK", GROUP, *(entry.id for entry in entries))
    await inbox.close(forget=False)
    assert await left(connection, "b") == (3, 0)
    await inbox.close(forget=True)
    assert await ask(connection, "b", "EXISTS") == 0


async def a_letter_that_was_trimmed_while_pending_is_let_go(connection: Connection) -> None:
    stream = InboxStream(connection, PREFIX, "b")
    await stream.create()
    await send(connection, "b", range(2))
    entries = await stream.read_new(10)
    await ask(connection, "b", "XDEL", entries[0].id)
    assert not await stream.bury(entries[0].id, "x")
    assert await stream.bury(entries[1].id, "x")
    assert not await stream.bury(entries[1].id, "x")
    assert await left(connection, "b") == (0, 0)
    assert len(await DeadLetters(connection, PREFIX).list()) == 1


# Also run on a cluster.
SCENARIOS = [
    letters_are_read_once_in_order_and_leave_nothing,
    letters_sent_before_there_is_a_reader_are_read,
    a_letter_to_nobody_is_refused_and_leaves_no_stream,
    effects_of_a_batch_are_started_in_order_and_awaited_together,
    an_inbox_keeps_about_as_many_letters_as_it_may,
    what_a_killed_reader_had_in_work_is_read_again,
    more_pending_letters_than_a_batch_are_all_read_again,
    one_bad_letter_holds_up_no_other,
    a_letter_that_kills_each_of_its_readers_is_put_aside,
    what_cannot_be_read_is_put_aside_at_once_and_can_be_replayed,
    an_emptied_store_gets_its_stream_again,
    an_orderly_end_deletes_an_inbox_with_nothing_left,
    an_orderly_end_keeps_what_was_not_read,
    a_letter_that_was_trimmed_while_pending_is_let_go,
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_on_one_server(server: Server, scenario) -> None:
    play(server, scenario)


def test_dead_letters_are_reached_although_entries_are_claimed_again(server: Server) -> None:
    play(server, dead_letters_are_reached_although_entries_are_claimed_again)


def test_an_effect_is_not_repeated_because_its_acknowledgement_was_lost(server: Server) -> None:
    play(server, an_effect_is_not_repeated_because_its_acknowledgement_was_lost)


def test_a_letter_of_each_kind_arrives_as_it_was(server: Server) -> None:
    async def scenario(connection: Connection) -> None:
        notes = Notes()
        sent = [
            PushJob("j", 1, "n", "c0", body=b"\x00", audio=bytes(range(256))),
            SessionTaken("s", 3),
        ]
        async with reading(inbox_of(connection, "b", notes)):
            for each in sent:
                assert await PeerSender(connection, PREFIX, "a").send("b", each)
            await notes.reach(2)
        assert [envelope.message for envelope in notes.seen] == sent

    play(server, scenario)
