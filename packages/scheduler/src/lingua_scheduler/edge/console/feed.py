"""One producer for all readers of the console's stream, and the bounds of each reader.

The state is read and encoded once a second, however many read it, and not at all while nobody does.
Readers are given an event in small groups, so that many of them do not hold up speech. All share
the same bytes; a reader that is some events behind is dropped.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from lingua_scheduler.edge.console.documents import update_between
from lingua_scheduler.flag import Flag

if TYPE_CHECKING:
    from collections.abc import Callable

    from lingua_scheduler.auth.tokens import ClientGrant
    from lingua_scheduler.edge.console.documents import ConsoleState
    from lingua_scheduler.metrics import LiveMetrics
    from lingua_scheduler.tasks import Tasks
    from lingua_wire.codes import CloseCode

PERIOD_S: Final = 1.0
READERS_MAX: Final = 500
# Events that a reader may be behind.
BEHIND_MAX: Final = 8
# Readers that are given an event at once, and the time over which all of them are. Each is a task
# that writes; an utterance takes some ten turns of the loop and waits behind each such group.
AT_ONCE: Final = 2
SPREAD_S: Final = 0.4


class StateSource(Protocol):
    """What the stream is about."""

    async def read(self) -> ConsoleState:
        """Return the whole state of this moment."""


class FeedReader:
    """One reader: the events that it was not sent yet, and its token."""

    __slots__ = ("_abort", "_events", "_flag", "grant", "is_greeted", "why_ended")

    def __init__(self, grant: ClientGrant | None, abort: Callable[[], None]) -> None:
        # Ends the connection of a reader that takes nothing, not even the end of the stream.
        self._abort = abort
        # None where no keys are set.
        self.grant = grant
        # Whether it has the whole state, and updates make sense.
        self.is_greeted = False
        # Why its stream ends; empty while it goes on.
        self.why_ended = ""
        self._events: deque[bytes] = deque()
        self._flag = Flag()

    @property
    def is_open(self) -> bool:
        """Tell whether its stream goes on."""
        return not self.why_ended

    @property
    def is_behind(self) -> bool:
        """Tell whether it has too many events before it."""
        return len(self._events) >= BEHIND_MAX

    def greet(self, snapshot: bytes) -> None:
        """Give it the whole state."""
        self.is_greeted = True
        self.put(snapshot)

    def put(self, event: bytes) -> None:
        """Give it an event."""
        self._events.append(event)
        self._flag.set()

    def end(self, why: str) -> None:
        """End its stream, after the events that it has before it."""
        self.why_ended = self.why_ended or why
        self._flag.set()

    def drop(self) -> None:
        """End its connection: it does not read."""
        self.end("too slow")
        self._events.clear()
        self._abort()

    async def next(self) -> bytes | None:
        """Return the next event; None at the end of the stream."""
        while not self._events:
            if self.why_ended:
                return None
            self._flag.clear()
            await self._flag.wait()
        return self._events.popleft()

    # Its token

    def token_expires(self, in_ms: int) -> bool:
        """Take notice of a token that expires soon: the reader asks again with another one."""
        return in_ms >= 0

    def token_ends(self, code: CloseCode, reason: str) -> None:
        """End the stream: the token is not valid any more."""
        self.end(reason or str(code))


class ConsoleFeed:
    """All readers of one process, and the producer of what they read."""

    def __init__(
        self,
        source: StateSource,
        tasks: Tasks,
        metrics: LiveMetrics,
        *,
        period_s: float = PERIOD_S,
    ) -> None:
        self._source = source
        self._tasks = tasks
        self._period_s = period_s
        self._dropped = metrics.sockets.console_readers_dropped_total
        self._readers: dict[FeedReader, None] = {}
        metrics.sockets.console_readers.follow(lambda: len(self._readers))
        self._is_producing = False
        self._is_closed = False
        # The last state, and the snapshot of it, encoded when somebody needs it.
        self._state: ConsoleState | None = None
        self._snapshot: bytes | None = None
        # States that were read since the start.
        self.produced = 0

    def __len__(self) -> int:
        return len(self._readers)

    @property
    def is_full(self) -> bool:
        """Tell whether no further reader is taken."""
        return self._is_closed or len(self._readers) >= READERS_MAX

    def join(self, reader: FeedReader) -> None:
        """Take a reader, which first gets the whole state."""
        self._readers[reader] = None
        if self._state is not None:
            self._greet(reader, self._state)
        if not self._is_producing:
            self._is_producing = True
            self._tasks.start(self._produce())

    def leave(self, reader: FeedReader) -> None:
        """Forget a reader."""
        self._readers.pop(reader, None)

    def close(self) -> None:
        """End all streams: the process ends."""
        self._is_closed = True
        for reader in self._readers:
            reader.end("going away")

    async def _produce(self) -> None:
        loop = asyncio.get_running_loop()
        why = "the state cannot be read"
        try:
            while self._readers:
                due = loop.time() + self._period_s
                await self._send(await self._source.read())
                await asyncio.sleep(max(0.0, due - loop.time()))
        except asyncio.CancelledError:
            why = "going away"
            raise
        finally:
            self._is_producing = False
            # What is old by the time somebody looks again is of no use.
            self._state = self._snapshot = None
            for reader in self._readers:
                reader.end(why)

    async def _send(self, state: ConsoleState) -> None:
        before, self._state, self._snapshot = self._state, state, None
        self.produced += 1
        readers = list(self._readers)
        update = b""
        if before is not None:
            update = event_text("update", update_between(before, state))
        groups = [readers[at : at + AT_ONCE] for at in range(0, len(readers), AT_ONCE)]
        pause_s = min(SPREAD_S, self._period_s / 2) / max(1, len(groups))
        for group in groups:
            for reader in group:
                self._give(reader, state, update)
            await asyncio.sleep(pause_s)

    def _give(self, reader: FeedReader, state: ConsoleState, update: bytes) -> None:
        if not reader.is_open:
            return
        if not reader.is_greeted:
            self._greet(reader, state)
        elif reader.is_behind:
            self._dropped.inc()
            reader.drop()
        else:
            reader.put(update)

    def _greet(self, reader: FeedReader, state: ConsoleState) -> None:
        if self._snapshot is None:
            self._snapshot = event_text("snapshot", state)
        reader.greet(self._snapshot)


def event_text(name: str, state: ConsoleState) -> bytes:
    """Return a state as one server-sent event; JSON has no line breaks."""
    return b"event: %s\ndata: %s\n\n" % (name.encode(), msgspec.json.encode(state))
