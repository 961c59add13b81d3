"""Halls of several instances over one real store, with people in place of sessions.

An instance here is what rooms need of one: the real hall, tasks, post and inbox, and its own
connection. Sessions, sockets, jobs and what is heard of them are not here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from types import SimpleNamespace
from typing import Any, TypeVar, cast

from lingua_scheduler.between.inbox import Inbox
from lingua_scheduler.between.letters import Envelope, Relay, RoomChanged
from lingua_scheduler.between.post import Post
from lingua_scheduler.config import Settings
from lingua_scheduler.errors import OutcomeUnknown, StoreUnavailable
from lingua_scheduler.live.clock import SystemClock
from lingua_scheduler.live.hall import Hall
from lingua_scheduler.live.tasks import Tasks
from lingua_scheduler.logs import EventLog
from lingua_scheduler.messages.from_client import RoomCreate, RoomJoin
from lingua_scheduler.messages.to_client import (
    ErrorMessage,
    RoomCreateAck,
    RoomError,
    RoomMembers,
    ToClient,
)
from lingua_scheduler.state.keys import Cell, Cells
from lingua_scheduler.state.link import LinkOptions
from lingua_scheduler.state.room_store import RoomPolicy, RoomStore, Visit
from lingua_scheduler.state.script import Script, Word
from lingua_scheduler.state.single import SingleConnection
from servers import Server

T = TypeVar("T")

PATIENCE_S = 30.0
PREFIX = "halls"
CALM = RoomPolicy(members_max=10, idle_ms=600_000, check_ms=10_000)


async def until(is_so: Callable[[], object], what: str) -> None:
    """Wait until a condition holds; fail with its name if it never does."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline, f"not within {PATIENCE_S} s: {what}"
        await asyncio.sleep(0.005)


async def nothing_waits() -> None:
    """All it said has its listeners."""


class Person:
    """A session as rooms see it; keeps all it is told."""

    def __init__(self, name: str, home: Cell, lang: str, tenant: str) -> None:
        self.id = name
        self.home = home
        self.tenant = tenant
        self.epoch = "1"
        self.fence = 1
        self.closing = False
        self.lapsed = False
        self.profile = SimpleNamespace(source=lang, own_targets=tuple)
        self.teller = self
        self.told: list[ToClient] = []
        # Its socket, and that all it said is in the store.
        self.outlet: object | None = object()
        self.is_resumable = True
        self.admission = SimpleNamespace(taken=asyncio.Event(), addressed=nothing_waits)
        self.admission.taken.set()
        self.cuts = 0

    def tell(self, message: ToClient) -> None:
        self.told.append(message)

    def cut_here(self) -> None:
        self.cuts += 1

    def take(self) -> list[ToClient]:
        """Return what was told since the last call."""
        told, self.told = self.told, []
        return told

    @property
    def sees(self) -> list[str]:
        """Return who is in the room, as told last."""
        lists = [message for message in self.told if isinstance(message, RoomMembers)]
        return [member.session_id for member in lists[-1].members] if lists else []

    def of(self, kind: type[T]) -> list[T]:
        """Return what was told of one kind."""
        return [message for message in self.told if isinstance(message, kind)]


class LossyConnection:
    """A real connection that loses the answers it is told to: the script has run."""

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

    async def _lose(self, answer: asyncio.Future[Any]) -> None:
        await answer
        raise OutcomeUnknown("here", "the answer was lost")

    def command(self, slot: int, *words: Word) -> asyncio.Future[Any]:
        if self.is_cut_off:
            return asyncio.ensure_future(self._refuse())
        return self._connection.command(slot, *words)

    async def _refuse(self) -> None:
        raise StoreUnavailable("here", "nobody answers")


class House:
    """One instance's part in rooms."""

    def __init__(self, name: str, connection: SingleConnection, policy: RoomPolicy) -> None:
        self.instance = name
        self.connection = connection
        self.sessions: dict[str, Any] = {}
        self.cells = Cells(PREFIX, 3)
        self.clock = SystemClock()
        self.errors: list[BaseException] = []
        self.tasks = Tasks(self.errors.append)
        self.log = EventLog("house")
        self.post = Post(connection, PREFIX, name)
        self.lossy = LossyConnection(connection)
        self.store = RoomStore(cast("Any", self.lossy), self.cells, policy)
        self.hall = Hall(self, self.store, Settings())
        self.inbox = Inbox(connection, PREFIX, name, self._apply, log=self.log, block_ms=100)
        self._reading: asyncio.Task[None] | None = None

    async def open(self) -> None:
        await self.inbox.open()
        self._reading = asyncio.create_task(self.inbox.run())

    async def found(self) -> None:
        """Wait until the store answers again."""

        async def ping() -> None:
            await self.connection.command(0, "PING")

        await self.insist(ping)

    async def die(self) -> None:
        """End as kill -9 does: nothing is told to anybody."""
        await self.tasks.end()
        if self._reading is not None:
            self._reading.cancel()
            with suppress(asyncio.CancelledError):
                await self._reading
            self._reading = None

    # What the hall uses of a board

    async def insist(self, step: Callable[[], Awaitable[T]]) -> T:
        while True:
            try:
                return await step()
            except StoreUnavailable:
                await asyncio.sleep(0.05)

    async def _apply(self, envelope: Envelope) -> None:
        letter = envelope.letter
        if isinstance(letter, RoomChanged):
            await self.hall.room_changed(letter.code)
        elif isinstance(letter, Relay):
            self.hall.relayed(letter.session, letter.message)

    # People

    async def person(self, name: str, lang: str = "en", tenant: str = "") -> Person:
        """Let somebody open a session here."""
        home = self.cells.home_of(name)
        await self.record(name, home)
        person = self.sessions[name] = Person(name, home, lang, tenant)
        return person

    async def record(self, name: str, home: Cell, **fields: Any) -> None:
        """Write a session's record as `session_open` does."""
        given = {"epoch": 1, "owner": self.instance, "fence": 1, "seq": 0, "trimmed": 0} | fields
        words = [word for pair in given.items() for word in pair]
        await self.connection.command(home.slot, "HSET", home.key("session", name), *words)

    async def close_record(self, person: Person) -> None:
        """Close a session in the store as `session_close` does."""
        key = person.home.key("session", person.id)
        await self.connection.command(person.home.slot, "HSET", key, "closed", 1)

    async def lose(self, code: str, *names: str) -> None:
        """Let the store lose members of a room, behind the halls' backs."""
        await self.store.leave(code, [Visit(name) for name in names])

    async def take_over(self, person: Person) -> Person:
        """Let a session go on here; returns it as it is here."""
        key, slot = person.home.key("session", person.id), person.home.slot
        await self.connection.command(slot, "HSET", key, "owner", self.instance)
        here = Person(person.id, person.home, person.profile.source, person.tenant)
        here.fence = await self.connection.command(slot, "HINCRBY", key, "fence", 1)
        self.sessions[person.id] = here
        await self.hall.take_over(session(here))
        self.hall.returned(session(here))
        return here

    def create(self, person: Person, lang: str | None = None, name: str | None = None) -> None:
        self.hall.create(session(person), RoomCreate(preferred_lang=lang, display_name=name))

    def join(self, person: Person, code: str, lang: str | None = None) -> None:
        self.hall.join(session(person), RoomJoin(room_code=code, preferred_lang=lang))

    async def room_of(self, person: Person, lang: str | None = None) -> str:
        """Let somebody make a room; return its code."""
        self.create(person, lang)
        await until(lambda: person.sees == [person.id], "the room is made")
        return person.of(RoomCreateAck)[0].room_code

    async def enter(self, person: Person, code: str, lang: str | None = None) -> None:
        """Let somebody into a room."""
        self.join(person, code, lang)
        await until(lambda: person.id in person.sees, f"{person.id} is in the room")

    async def speak(self, speaker: Person) -> Any:
        """Ask who hears the speaker now."""
        return await self.hall.audience_of(session(speaker), cast("Any", speaker.profile))


def session(person: Person) -> Any:
    """Return a person where a session is wanted."""
    return person


def errors_of(person: Person) -> list[str]:
    """Return the codes of what was refused."""
    return [m.code for m in person.told if isinstance(m, RoomError | ErrorMessage)]


@asynccontextmanager
async def houses(
    server: Server, *names: str, policy: RoomPolicy = CALM, call_timeout_ms: int = 1000
) -> AsyncIterator[tuple[House, ...]]:
    """Run instances over one emptied store; none of them may have met an error of ours."""
    async with AsyncExitStack() as stack:
        made: list[House] = []
        for name in names:
            options = LinkOptions(call_timeout_ms=call_timeout_ms)
            connection = await SingleConnection.open(server.address, options)
            stack.push_async_callback(connection.close)
            if not made:
                await connection.every_master("FLUSHALL")
            house = House(name, connection, policy)
            stack.push_async_callback(house.die)
            await house.open()
            made.append(house)
        yield tuple(made)
        for house in made:
            bugs = [error for error in house.errors if not isinstance(error, StoreUnavailable)]
            assert bugs == []
