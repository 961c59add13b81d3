"""One pipelined connection to one server: many calls in flight, replies in order.

A link lives once: it connects, works, and is lost for good; whoever needs it to come back opens
a new one (`single.SteadyLink`). It decides nothing about error replies beyond handing them to the
policy it was given; `refuse` is the policy of a link that stands alone, as for blocking reads.

This is the hot path of the whole package: all calls of one event-loop tick leave in one write,
and one timer per link, not per call, notices a server that stopped answering.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

import hiredis

from lingua_scheduler.errors import OutcomeUnknown, StoreRejected, StoreUnavailable

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from lingua_scheduler.state.script import Script, Word

    ErrorPolicy = Callable[["Link", "Call", str], None]

# The stub of hiredis types the argument as a tuple of exactly one item.
pack = cast("Callable[[tuple[Word, ...]], bytes]", hiredis.pack_command)

ASKING: Final = pack(("ASKING",))
NOT_YET: Final = object()

# After a call is overdue, our own loop may have been the slow one: the reply may already wait in
# the socket. One more turn of the loop reads it before the server is blamed.
SECOND_LOOK_S = 0.01

# Replies that say "not now" or "not here": the command did not run.
ELSEWHERE = frozenset({"MOVED", "ASK", "READONLY", "UNBLOCKED"})
TRANSIENT = frozenset({"LOADING", "CLUSTERDOWN", "TRYAGAIN", "MASTERDOWN", "BUSY"})
# A server that takes no writes: full, without the replicas it must have, or without a disk. It
# says so at the first write of a script or never, so the script has changed nothing. This can
# last, so it is not retried here.
NO_WRITES = frozenset({"OOM", "NOREPLICAS", "MISCONF"})


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens: a host and port, or the path of a Unix socket."""

    host: str = ""
    port: int = 0
    path: str = ""

    @classmethod
    def unix(cls, path: str) -> Address:
        """Return the address of a Unix socket."""
        return cls(path=path)

    def __str__(self) -> str:
        if self.path:
            return f"unix:{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class LinkOptions:
    """How to log in, and how long to wait; the password never appears in a repr."""

    call_timeout_ms: int = 1000
    connect_timeout_ms: int = 1000
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: ssl.SSLContext | None = None
    db: int = 0


class Call:
    """One command under way: its bytes, kept to send them again, and who waits for the reply."""

    __slots__ = ("deadline", "expires", "future", "packed", "retries", "script", "slot", "turns")

    def __init__(
        self,
        future: asyncio.Future[Any],
        packed: bytes,
        script: Script | None,
        slot: int,
        deadline: float,
    ) -> None:
        self.future = future
        self.packed = packed
        # The script of an EVALSHA, else None.
        self.script = script
        self.slot = slot
        # When the caller's patience ends: no resend after this monotonic time.
        self.deadline = deadline
        # When the link that carries it now gives up on the server; later than the deadline
        # after a resend, so that an old call does not condemn a healthy connection.
        self.expires = deadline
        # How often it was sent elsewhere or in another form, and how often it met "not now".
        self.turns = 0
        self.retries = 0

    @property
    def label(self) -> str:
        """The script's name, or the first word of the command: never its arguments."""
        if self.script is not None:
            return self.script.name
        return self.packed.split(b"\r\n", 3)[2].decode(errors="replace")

    def fail(self, error: Exception) -> None:
        """Give the error to whoever still waits."""
        if not self.future.done():
            self.future.set_exception(error)
            # Marks it as seen: a caller cancelled before awaiting this one must not cause noise.
            self.future.exception()

    def send_source(self, script: Script) -> None:
        """Turn the packed EVALSHA into an EVAL, which also loads the script."""
        count, _, _, _, _, rest = self.packed.split(b"\r\n", 5)
        source = script.source
        self.packed = b"%b\r\n$4\r\nEVAL\r\n$%d\r\n%b\r\n%b" % (count, len(source), source, rest)


def refuse(link: Link, call: Call, text: str) -> None:
    """Fail the call: unavailable if it did not run and may later or elsewhere, else rejected."""
    code = text.partition(" ")[0]
    if code in TRANSIENT or code in ELSEWHERE or code in NO_WRITES:
        call.fail(StoreUnavailable(str(link.address), text))
    else:
        call.fail(StoreRejected(call.label, text))


class Link(asyncio.Protocol):
    """One connection's life: connect, submit calls, be lost; the policy gets error replies."""

    def __init__(
        self, address: Address, options: LinkOptions, on_error: ErrorPolicy = refuse
    ) -> None:
        self.address = address
        # True between a completed login and the loss.
        self.is_connected = False
        # Set once, when the link is lost; `why` then says what happened.
        self.lost = asyncio.Event()
        self.why = "not connected yet"

        self._loop = asyncio.get_running_loop()
        self._options = options
        self._timeout_s = options.call_timeout_ms / 1000
        # Until the login is done, its own errors are final whatever the policy says.
        self._on_error: ErrorPolicy = refuse
        self._policy = on_error
        self._reader = hiredis.Reader(notEnoughData=NOT_YET)
        self._transport: asyncio.Transport | None = None
        # Set when the transport has let go of the socket.
        self._detached = asyncio.Event()
        # Calls of this tick, not yet written: a loss now means they did not run.
        self._unsent: list[Call] = []
        # Written calls in reply order. A cancelled one keeps its place, its reply is dropped.
        self._pending: deque[Call] = deque()
        # The timer on the oldest pending call; none while idle.
        self._watch: asyncio.TimerHandle | None = None
        # The call found overdue at the last look.
        self._suspect: Call | None = None

    # Calls.

    def submit(self, call: Call) -> None:
        """Queue the call for this tick's write, or fail it at once if there is no connection."""
        if self.is_connected:
            self._enqueue(call)
        else:
            call.fail(StoreUnavailable(str(self.address), self.why))

    def submit_asking(self, call: Call) -> None:
        """Submit the call with ASKING right before it, as an ASK redirect demands."""
        asking = Call(self._loop.create_future(), ASKING, None, call.slot, call.expires)
        asking.future.cancel()  # nobody waits for its reply, and it must never be resent alone
        self.submit(asking)
        self.submit(call)

    def command(self, *words: Word) -> asyncio.Future[Any]:
        """Send one command and return the future of its reply."""
        call = self._new_call(words, self._timeout_s)
        self.submit(call)
        return call.future

    @property
    def is_idle(self) -> bool:
        """Whether no call waits for this link."""
        return not self._pending and not self._unsent

    def _new_call(self, words: tuple[Word, ...], patience_s: float) -> Call:
        future = self._loop.create_future()
        return Call(future, pack(words), None, 0, monotonic() + patience_s)

    def _enqueue(self, call: Call) -> None:
        if not self._unsent:
            self._loop.call_soon(self._flush)
        self._unsent.append(call)

    def _flush(self) -> None:
        batch = self._unsent
        if not batch or self._transport is None:
            return  # lost since the flush was scheduled; the calls were failed then
        self._unsent = []
        self._pending.extend(batch)
        self._transport.write(b"".join([call.packed for call in batch]))
        if self._watch is None:
            self._watch = self._loop.call_later(self._timeout_s, self._look_at_oldest)

    # Replies.

    def data_received(self, data: bytes) -> None:
        """Hand each complete reply to the oldest pending call."""
        pending = self._pending
        gets = self._reader.gets
        try:
            self._reader.feed(data)
            while (reply := gets()) is not NOT_YET:
                if not pending:
                    # A server with too many clients says so before it is asked anything.
                    reason = f": {reply}" if isinstance(reply, hiredis.ReplyError) else ""
                    self.drop(f"the server sent a reply that nobody asked for{reason}")
                    return
                call = pending.popleft()
                if reply.__class__ is hiredis.ReplyError:
                    self._on_error(self, call, str(reply))
                elif not call.future.done():
                    call.future.set_result(reply)
        except hiredis.ProtocolError as error:
            self.drop(f"the server broke the protocol: {error}")

    def _look_at_oldest(self) -> None:
        """Drop the connection if the oldest call is overdue at two looks in a row."""
        self._watch = None
        if not self._pending:
            return  # the next flush starts the watch again
        oldest = self._pending[0]
        left_s = oldest.expires - monotonic()
        if left_s <= 0:
            if self._suspect is oldest:
                self.drop(f"no answer within {self._options.call_timeout_ms} ms")
                return
            self._suspect = oldest
        self._watch = self._loop.call_later(max(left_s, SECOND_LOOK_S), self._look_at_oldest)

    # Life.

    async def connect(self) -> None:
        """Connect and log in, or raise StoreUnavailable or StoreRejected."""
        try:
            async with asyncio.timeout(self._options.connect_timeout_ms / 1000):
                await self._open_transport()
                await self._log_in()
        except TimeoutError:
            self._raise_unavailable(f"no answer within {self._options.connect_timeout_ms} ms")
        except UnicodeError:
            self._raise_unavailable("the host's name is not one")
        except OSError as error:
            self._raise_unavailable(connect_problem(error))
        except StoreUnavailable as error:
            # No command of a caller was under way: never OutcomeUnknown.
            self._raise_unavailable(error.why)
        except StoreRejected as error:
            self.drop(str(error))
            raise StoreRejected(f"{error.command} at {self.address}", error.reply) from None
        finally:
            if not self.is_connected:
                await self.close()

    async def close(self) -> None:
        """Fail what is pending and wait until the socket is gone."""
        self.drop("closed by this process")
        if self._transport is not None:
            await self._detached.wait()

    def drop(self, why: str) -> None:
        """Declare the connection lost, now and for good."""
        if self.lost.is_set():
            return
        self.is_connected = False
        self.why = why
        self.lost.set()
        if self._watch is not None:
            self._watch.cancel()
        if self._transport is not None:
            self._transport.abort()
        self._fail_all(why)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport; the login follows."""
        self._transport = cast("asyncio.Transport", transport)
        if self.lost.is_set():
            self._transport.abort()  # given up while the connection was being made

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that the socket is gone, whoever ended it."""
        self.drop(f"connection lost: {exc}" if exc else "connection closed by the server")
        self._detached.set()

    def _fail_all(self, why: str) -> None:
        where = str(self.address)
        pending, unsent = list(self._pending), self._unsent
        self._pending.clear()
        self._unsent = []
        for call in pending:
            call.fail(OutcomeUnknown(where, why))
        for call in unsent:
            call.fail(StoreUnavailable(where, why))

    def _raise_unavailable(self, why: str) -> NoReturn:
        self.drop(why)
        raise StoreUnavailable(str(self.address), why) from None

    async def _open_transport(self) -> None:
        address, tls = self.address, self._options.tls
        try:
            if address.path:
                await self._loop.create_unix_connection(lambda: self, address.path)
            else:
                await self._loop.create_connection(
                    lambda: self, address.host, address.port, ssl=tls
                )
        except BaseException:
            # The loop lets go of a socket it did not hand over. uvloop then says nothing of it,
            # even if it had said `connection_made`: `close` would wait for ever.
            self._detached.set()
            raise

    async def _log_in(self) -> None:
        """Greet with HELLO, which a loading server also answers, and a stopped one does not."""
        options = self._options
        login: tuple[Word, ...] = ()
        if options.username is not None or options.password is not None:
            login = ("AUTH", options.username or "default", options.password or "")
        greeting = await self._exchange("HELLO", 2, *login)
        if not isinstance(greeting, list) or b"server" not in greeting:
            raise StoreUnavailable(str(self.address), "what answers is not a Redis-protocol server")
        if options.db:
            await self._exchange("SELECT", options.db)
        self._on_error = self._policy
        # The connection may have gone between the last reply and this line.
        if self.lost.is_set():
            raise StoreUnavailable(str(self.address), self.why)
        self.is_connected = True

    def _exchange(self, *words: Word) -> asyncio.Future[Any]:
        call = self._new_call(words, self._options.connect_timeout_ms / 1000)
        self._enqueue(call)
        return call.future


def connect_problem(error: OSError) -> str:
    """Return what the system says; asyncio hides it behind "Connect call failed"."""
    if isinstance(error, ConnectionError) and error.errno:
        return os.strerror(error.errno)
    return str(error)
