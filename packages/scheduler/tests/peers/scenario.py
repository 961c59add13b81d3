"""Shared by the tests of peers: connections, inbox readers, and a record of applied messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from lingua_cli.logs import EventLog
from lingua_scheduler.peers.deadletters import DeadLetter, DeadLetters
from lingua_scheduler.peers.inbox import Inbox
from lingua_scheduler.peers.messages import OutcomesReady, PeerMessage, ReceivedMessage
from lingua_scheduler.peers.sender import PeerSender
from lingua_scheduler.peers.stream import GROUP, InboxStream
from lingua_scheduler.state.connection import Connection
from lingua_scheduler.state.link import LinkOptions
from lingua_scheduler.state.single import SingleConnection
from servers import Server, until

BOUND_S = 15.0
PREFIX = "between"
LOG = EventLog("between")

Scenario = Callable[[Connection], Awaitable[None]]


def play(server: Server, scenario: Scenario) -> None:
    """Run a scenario on an emptied server, and check that no task is left."""

    async def whole() -> None:
        before = asyncio.all_tasks()
        connection = await SingleConnection.open(
            server.address, LinkOptions(call_timeout_ms=10_000)
        )
        try:
            await connection.every_master("FLUSHALL")
            await scenario(connection)
        finally:
            await connection.close()
        assert asyncio.all_tasks() == before

    asyncio.run(whole())


def letter(number: int) -> PeerMessage:
    return OutcomesReady(f"s-{number}", "1", number)


def number_of(envelope: ReceivedMessage) -> int:
    assert isinstance(envelope.message, OutcomesReady)
    return envelope.message.seq


class Notes:
    """An effect that records each message, and fails as often as requested."""

    def __init__(self, *fail_with: BaseException) -> None:
        self.seen: list[ReceivedMessage] = []
        self._fail_with = list(fail_with)

    async def __call__(self, envelope: ReceivedMessage) -> None:
        self.seen.append(envelope)
        await asyncio.sleep(0)
        if self._fail_with:
            raise self._fail_with.pop(0)

    @property
    def numbers(self) -> list[int]:
        return [number_of(envelope) for envelope in self.seen]

    async def reach(self, count: int) -> None:
        await until(lambda: len(self.seen) >= count, BOUND_S, f"{count} letters are applied")


def inbox_of(connection: Connection, name: str, apply: Any, **pace: int) -> Inbox:
    quick = {"block_ms": 50, "reclaim_ms": 30}
    return Inbox(connection, PREFIX, name, apply, log=LOG, **{**quick, **pace})


@asynccontextmanager
async def reading(inbox: Inbox) -> AsyncIterator[asyncio.Task[None]]:
    """Run the reader until the block ends; a reader that ended by itself is an error."""
    await inbox.open()
    task = asyncio.create_task(inbox.run())
    try:
        yield task
    finally:
        assert not task.done() or task.cancelled(), task
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def send(connection: Connection, to: str, numbers: range, sender: str = "sender") -> None:
    post = PeerSender(connection, PREFIX, sender)
    sent = await asyncio.gather(*(post.send(to, letter(number)) for number in numbers))
    assert all(sent)


async def ask(connection: Connection, name: str, verb: str, *words: Any) -> Any:
    """Send a command on an instance's inbox."""
    keys = InboxStream(connection, PREFIX, name).keys
    return await connection.command(keys.slot, verb, keys.inbox, *words)


async def left(connection: Connection, name: str) -> tuple[int, int]:
    """Return the number of entries of an inbox, and of those that are pending."""
    length = await ask(connection, name, "XLEN")
    pending = await ask(connection, name, "XPENDING", GROUP)
    return length, pending[0]


async def reach_left(connection: Connection, name: str, wanted: tuple[int, int]) -> None:
    """Poll until the inbox has these numbers."""
    for _ in range(int(BOUND_S / 0.01)):
        if await left(connection, name) == wanted:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"the inbox has {await left(connection, name)}, not {wanted}")


async def reach_dead_letters(connection: Connection, count: int) -> tuple[DeadLetter, ...]:
    """Poll until there are that many dead letters."""
    letters = DeadLetters(connection, PREFIX)
    for _ in range(int(BOUND_S / 0.01)):
        if len(found := await letters.list()) == count:
            return found
        await asyncio.sleep(0.01)
    raise AssertionError(f"there are {len(found)} dead letters, not {count}")
