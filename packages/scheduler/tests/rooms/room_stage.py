"""The rooms of several instances over one real store, with stand-ins for sessions.

A `RoomInstance` has what rooms need of an instance: the real parts of `rooms`, tasks, messages to
peers and the inbox, and a connection of its own. It has no sessions, sockets, jobs or outcomes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from types import SimpleNamespace
from typing import Any, TypeVar, cast

from lingua_cli.logs import EventLog
from lingua_scheduler.clock import SystemClock
from lingua_scheduler.config import Settings
from lingua_scheduler.errors import OutcomeUnknown, StoreUnavailable
from lingua_scheduler.peers.inbox import Inbox
from lingua_scheduler.peers.messages import ClientMessage, ReceivedMessage, RoomChanged
from lingua_scheduler.peers.sender import PeerSender
from lingua_scheduler.rooms.audience import AudienceFinder, UtteranceAudience
from lingua_scheduler.rooms.cache import RoomCache
from lingua_scheduler.rooms.caption_feeds import CaptionFeeds
from lingua_scheduler.rooms.command_queue import RoomCommandQueue
from lingua_scheduler.rooms.guesses import Guesses
from lingua_scheduler.rooms.membership import RoomMembership
from lingua_scheduler.rooms.service import RoomService
from lingua_scheduler.runtime.peer_writer import PeerWriter
from lingua_scheduler.state.calls import CallForm
from lingua_scheduler.state.keys import Cell, Cells
from lingua_scheduler.state.link import LinkOptions
from lingua_scheduler.state.retry import StoreRetry
from lingua_scheduler.state.room_scripts import RoomPolicy, RoomScripts, RoomVisit
from lingua_scheduler.state.script import Script, Word
from lingua_scheduler.state.single import SingleConnection
from lingua_scheduler.tasks import Tasks
from lingua_wire.from_client import RoomCreate, RoomJoin
from lingua_wire.to_client import (
    ErrorMessage,
    RoomCreateAck,
    RoomError,
    RoomMembers,
    ToClient,
)
from servers import Server

T = TypeVar("T")

PATIENCE_S = 30.0
PREFIX = "rooms"
CALM = RoomPolicy(members_max=10, idle_ms=600_000, check_ms=10_000)


async def until(is_so: Callable[[], object], what: str) -> None:
    """Wait until a condition holds; fail with its name if it never does."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline, f"not within {PATIENCE_S} s: {what}"
        await asyncio.sleep(0.005)


class StandInRecord:
    """What identifies a member's session, and its state; tests set the state by hand."""

    def __init__(self, name: str, home: Cell, tenant: str) -> None:
        self.id = name
        self.home = home
        self.tenant = tenant
        self.fence = 1
        self.is_resumable = True
        self.is_disconnected = False
        self.is_closing = False
        self.is_over = False


class StandInMember:
    """A session as rooms see it; keeps all messages to its client."""

    is_behind = False

    def __init__(self, name: str, home: Cell, lang: str, tenant: str) -> None:
        self.record = StandInRecord(name, home, tenant)
        self.profile = SimpleNamespace(source=lang, own_targets=tuple)
        self.sent: list[ToClient] = []
        self.cuts = 0

    @property
    def id(self) -> str:
        return self.record.id

    @property
    def home(self) -> Cell:
        return self.record.home

    # The notifier and the input of the session.

    @property
    def notifier(self) -> StandInMember:
        return self

    def send(self, message: ToClient) -> None:
        self.sent.append(message)

    @property
    def input(self) -> StandInMember:
        return self

    def cut_here(self) -> None:
        self.cuts += 1

    async def until_addressed(self) -> None:
        """Return: the audience of everything it said is known."""

    async def until_taken(self) -> None:
        """Return: everything it said is in the store."""

    # What tests look at.

    def take(self) -> list[ToClient]:
        """Return what was sent since the last call."""
        sent, self.sent = self.sent, []
        return sent

    @property
    def sees(self) -> list[str]:
        """Return the members of the room, as sent last."""
        lists = self.of(RoomMembers)
        return [member.session_id for member in lists[-1].members] if lists else []

    def of(self, kind: type[T]) -> list[T]:
        """Return the messages of one kind."""
        return [message for message in self.sent if isinstance(message, kind)]


class LossyConnection:
    """A real connection that loses the answers of chosen scripts: the script has run."""

    def __init__(self, connection: SingleConnection) -> None:
        self._connection = connection
        # Names of scripts whose next answer is lost.
        self.loses: set[str] = set()
        # Plain commands do not reach the store.
        self.is_cut_off = False

    def run(self, script: Script, *call: Any) -> asyncio.Future[Any]:
        answer = self._connection.run(script, *call)
        if script.name not in self.loses:
            return answer
        self.loses.discard(script.name)
        return asyncio.ensure_future(self._lose(answer))

    async def ask(self, form: CallForm, args: tuple[Word, ...], read: Any, size: int) -> Any:
        del size
        return read(await self.run(form.script, form.slot, form.keys, (*form.shared, *args)))

    async def _lose(self, answer: asyncio.Future[Any]) -> None:
        await answer
        raise OutcomeUnknown("here", "the answer was lost")

    def command(self, slot: int, *words: Word) -> asyncio.Future[Any]:
        if self.is_cut_off:
            return asyncio.ensure_future(self._refuse())
        return self._connection.command(slot, *words)

    async def _refuse(self) -> None:
        raise StoreUnavailable("here", "nobody answers")


class RoomInstance:
    """The rooms of one instance."""

    def __init__(self, name: str, connection: SingleConnection, policy: RoomPolicy) -> None:
        self.name = name
        self.connection = connection
        self.sessions: dict[str, StandInMember] = {}
        self.cells = Cells(PREFIX, 3)
        self.errors: list[BaseException] = []
        self.tasks = Tasks(self.errors.append)
        self.log = EventLog("rooms")
        self.retry = StoreRetry()
        self.lossy = LossyConnection(connection)
        self.store = RoomScripts(cast("Any", self.lossy), self.cells, policy)
        self.captions = CaptionFeeds(
            settings=Settings(),
            tasks=self.tasks,
            rooms=lambda: self.cache,
            guesses=Guesses(SystemClock()),
        )
        self.cache = RoomCache(
            store=self.store,
            sessions=self.sessions,
            peers=PeerWriter(
                name,
                PeerSender(connection, PREFIX, name),
                store=cast("Any", None),
                cells=self.cells,
                tasks=self.tasks,
            ),
            cells=self.cells,
            clock=SystemClock(),
            tasks=self.tasks,
            log=self.log,
            watcher=self.captions,
        )
        queue = RoomCommandQueue(self.tasks, Settings().jobs.retry_after_ms)
        self.service = RoomService(self.cache, queue, self.retry)
        self.audience = AudienceFinder(self.cache, serves=lambda _: True, keeps_captions=False)
        self.membership = RoomMembership(self.cache, queue, self.retry)
        self.inbox = Inbox(connection, PREFIX, name, self._apply, log=self.log, block_ms=100)
        self._reading: asyncio.Task[None] | None = None

    async def open(self) -> None:
        await self.inbox.open()
        self._reading = asyncio.create_task(self.inbox.run())

    async def until_store_answers(self) -> None:
        """Wait until the store answers again."""

        async def ping() -> None:
            await self.connection.command(0, "PING")

        await self.retry.until_stored(ping)

    async def die(self) -> None:
        """End as kill -9 does: nothing is sent to anybody."""
        await self.tasks.end()
        if self._reading is not None:
            self._reading.cancel()
            with suppress(asyncio.CancelledError):
                await self._reading
            self._reading = None

    async def _apply(self, received: ReceivedMessage) -> None:
        message = received.message
        if isinstance(message, RoomChanged):
            await self.cache.reread(message.code)
        elif isinstance(message, ClientMessage):
            self.service.receive_relayed(message.session, message.message)

    async def refresh(self) -> None:
        """Look at all rooms again, as `InstanceLoops.refresh_rooms` does."""
        self.audience.forget_ended_rooms()
        try:
            await self.service.refresh()
        finally:
            await self.cache.refresh()

    # Members

    async def member(self, name: str, lang: str = "en", tenant: str = "") -> StandInMember:
        """Let a client open a session here."""
        home = self.cells.home_of(name)
        await self.record(name, home)
        member = self.sessions[name] = StandInMember(name, home, lang, tenant)
        return member

    async def record(self, name: str, home: Cell, **fields: Any) -> None:
        """Write a session's record as `session_open` does."""
        given = {"epoch": 1, "owner": self.name, "fence": 1, "seq": 0, "trimmed": 0} | fields
        words = [word for pair in given.items() for word in pair]
        await self.connection.command(home.slot, "HSET", home.key("session", name), *words)

    async def close_record(self, member: StandInMember) -> None:
        """Close a session in the store as `session_close` does."""
        key = member.home.key("session", member.id)
        await self.connection.command(member.home.slot, "HSET", key, "closed", 1)

    async def lose(self, code: str, *names: str) -> None:
        """Let the store lose members of a room, unnoticed by the instances."""
        await self.store.leave(code, [RoomVisit(name) for name in names])

    async def take_over(self, member: StandInMember) -> StandInMember:
        """Let a session go on here; returns it as it is here."""
        key, slot = member.home.key("session", member.id), member.home.slot
        await self.connection.command(slot, "HSET", key, "owner", self.name)
        here = StandInMember(member.id, member.home, member.profile.source, member.record.tenant)
        here.record.fence = await self.connection.command(slot, "HINCRBY", key, "fence", 1)
        self.sessions[member.id] = here
        await self.membership.restore(here)
        self.membership.returned(here)
        return here

    def create(
        self, member: StandInMember, lang: str | None = None, name: str | None = None
    ) -> None:
        self.service.create(member, RoomCreate(preferred_lang=lang, display_name=name))

    def join(self, member: StandInMember, code: str, lang: str | None = None) -> None:
        self.service.join(member, RoomJoin(room_code=code, preferred_lang=lang))

    async def room_of(self, member: StandInMember, lang: str | None = None) -> str:
        """Let a member create a room; return its code."""
        self.create(member, lang)
        await until(lambda: member.sees == [member.id], "the room is created")
        return member.of(RoomCreateAck)[0].room_code

    async def enter(self, member: StandInMember, code: str, lang: str | None = None) -> None:
        """Let a member into a room."""
        self.join(member, code, lang)
        await until(lambda: member.id in member.sees, f"{member.id} is in the room")

    async def audience_of(self, speaker: StandInMember) -> UtteranceAudience:
        """Return who hears the speaker now."""
        return await self.audience.of_utterance(speaker.id, cast("Any", speaker.profile))


def errors_of(member: StandInMember) -> list[str]:
    """Return the codes of the refusals that were sent."""
    return [m.code for m in member.sent if isinstance(m, RoomError | ErrorMessage)]


@asynccontextmanager
async def room_instances(
    server: Server, *names: str, policy: RoomPolicy = CALM, call_timeout_ms: int = 10_000
) -> AsyncIterator[tuple[RoomInstance, ...]]:
    """Run instances over one emptied store; none of them may have met an internal error."""
    async with AsyncExitStack() as stack:
        made: list[RoomInstance] = []
        for name in names:
            options = LinkOptions(call_timeout_ms=call_timeout_ms)
            connection = await SingleConnection.open(server.address, options)
            stack.push_async_callback(connection.close)
            if not made:
                await connection.every_master("FLUSHALL")
            instance = RoomInstance(name, connection, policy)
            stack.push_async_callback(instance.die)
            await instance.open()
            made.append(instance)
        yield tuple(made)
        for instance in made:
            bugs = [error for error in instance.errors if not isinstance(error, StoreUnavailable)]
            assert bugs == []


def play(
    server: Server,
    scenario: Callable[[RoomInstance], Awaitable[None]],
    policy: RoomPolicy = CALM,
    **options: int,
) -> None:
    """Run a scenario on one instance over an emptied server."""

    async def whole() -> None:
        async with room_instances(server, "one", policy=policy, **options) as (instance,):
            await scenario(instance)

    asyncio.run(whole())


async def gathered(instance: RoomInstance, **langs: str | None) -> tuple[str, list[StandInMember]]:
    """Put members into one room; the first one creates it."""
    everyone = [await instance.member(name, lang or "en") for name, lang in langs.items()]
    code = await instance.room_of(everyone[0], next(iter(langs.values())))
    for member in everyone[1:]:
        await instance.enter(member, code, langs[member.id])
    await until(lambda: all(m.sees == list(langs) for m in everyone), "all see all")
    for member in everyone:
        member.take()
    return code, everyone
