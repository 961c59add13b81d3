"""One pipelined connection to one server: many calls in flight, replies in order.

A link connects once, works, and is lost for good; `single.SteadyLink` replaces it by a new one.
Error replies are given to a policy; `refuse` is the policy of a separate link, as for blocking
reads.

This is the hot path of the whole package: the calls of one turn of the event loop are sent
together, those that fill a batch at once and the rest at its end, and one timer per link, not per
call, detects a server that stopped answering.
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
from lingua_scheduler.pending_writes import pending_writes
from lingua_scheduler.state.calls import (
    BATCH_CALLS_MAX,
    CallBatch,
    StoreCall,
    grouped,
    pack,
)
from lingua_scheduler.steps import Answer

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Sequence

    from lingua_scheduler.state.script import Word

    ErrorPolicy = Callable[["StoreLink", StoreCall, str], None]
    Sending = Callable[[StoreCall], None]

ASKING: Final = pack(("ASKING",))
NOT_YET: Final = object()
# Looked up once, not for every reply.
REPLY_ERROR: Final = hiredis.ReplyError

# If a call is overdue, our own loop may have been slow and the reply may already be in the socket.
# One more iteration of the loop reads it before the connection is dropped.
SECOND_LOOK_S = 0.01

# Replies that mean "not here" or "not now": the command did not run.
ELSEWHERE = frozenset({"MOVED", "ASK", "READONLY", "UNBLOCKED"})
TRANSIENT = frozenset({"LOADING", "CLUSTERDOWN", "TRYAGAIN", "MASTERDOWN", "BUSY"})
# A server that accepts no writes: full, without the required replicas, or without a disk. It
# refuses the first write of a script, so the script has changed nothing. This can last, so it is
# not retried here.
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
    """Login and timeouts; the password never appears in a repr."""

    call_timeout_ms: int = 1000
    connect_timeout_ms: int = 1000
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: ssl.SSLContext | None = None
    db: int = 0


def refuse(link: StoreLink, call: StoreCall, text: str) -> None:
    """Fail the call: unavailable if it did not run and a retry may help, else rejected."""
    code = text.partition(" ")[0]
    if code in TRANSIENT or code in ELSEWHERE or code in NO_WRITES:
        call.fail(StoreUnavailable(str(link.address), text))
    else:
        call.fail(StoreRejected(call.label, text))


class StoreLink(asyncio.Protocol):
    """One connection: connect, submit calls, be lost; the policy gets error replies."""

    def __init__(
        self, address: Address, options: LinkOptions, on_error: ErrorPolicy = refuse
    ) -> None:
        self.address = address
        # True between a completed login and the loss.
        self.is_connected = False
        # Set once, when the link is lost; `why` then has the reason.
        self.lost = asyncio.Event()
        self.why = "not connected yet"

        self._loop = asyncio.get_running_loop()
        self._options = options
        self._timeout_s = options.call_timeout_ms / 1000
        # Errors of the login are final; the policy is used after it.
        self._on_error: ErrorPolicy = refuse
        self._policy = on_error
        self._reader = hiredis.Reader(notEnoughData=NOT_YET)
        self._transport: asyncio.Transport | None = None
        # Set when the transport has closed the socket.
        self._detached = asyncio.Event()
        # Calls of this turn that were not written yet: after a loss they did not run.
        self._unsent: list[StoreCall] = []
        # The last write had one call.
        self._is_calm = False
        self._writes = pending_writes()
        # Written calls in reply order. A cancelled call keeps its place; its reply is dropped.
        self._pending: deque[StoreCall | CallBatch] = deque()
        # The timer of the oldest pending call; None while idle.
        self._watch: asyncio.TimerHandle | None = None
        # A task that got its reply in this turn of the loop has not gone on yet.
        self._is_waking = False
        # The call that was overdue at the last check.
        self._suspect: StoreCall | CallBatch | None = None

    # Calls.

    def submit(self, call: StoreCall) -> None:
        """Send the call with this turn's others, or fail it at once if there is no connection.

        If no call is outstanding and the last one had no company, it probably has none either, and
        is not made to wait for the end of the turn. Nor are those that fill a batch: the server
        works on them while this turn goes on.
        """
        if not self.is_connected:
            call.fail(StoreUnavailable(str(self.address), self.why))
            return
        unsent = self._unsent
        unsent.append(call)
        if len(unsent) == 1:
            if self._is_calm and not self._pending:
                self._flush()
            else:
                self._loop.call_soon(self._flush)
        elif len(unsent) == BATCH_CALLS_MAX:
            self._flush()

    def submit_asking(self, call: StoreCall) -> None:
        """Submit the call with ASKING right before it, as an ASK redirect requires."""
        unread = self._loop.create_future()
        unread.cancel()  # its reply is not needed, and it must never be resent alone
        self.submit(StoreCall(unread, ASKING, None, call.slot, call.expires, expires=call.expires))
        self.submit(call)

    def command(self, *words: Word) -> asyncio.Future[Any]:
        """Send one command and return the future of its reply."""
        return self._call(words, self._timeout_s, self.submit)

    @property
    def is_idle(self) -> bool:
        """Whether no call is pending."""
        return not self._pending and not self._unsent

    def _call(
        self, words: tuple[Word, ...], patience_s: float, send: Sending
    ) -> asyncio.Future[Any]:
        future = self._loop.create_future()
        until = monotonic() + patience_s
        send(StoreCall(future, pack(words), None, 0, until, expires=until))
        return future

    def _enqueue(self, call: StoreCall) -> None:
        if not self._unsent:
            self._loop.call_soon(self._flush)
        self._unsent.append(call)

    def _flush(self) -> None:
        batch = self._unsent
        if not batch or self._transport is None:
            return  # lost since the flush was scheduled; the calls have failed
        self._unsent = []
        self._is_calm = len(batch) == 1
        sent = grouped(batch)
        self._pending.extend(sent)
        self._transport.write(b"".join([call.command() for call in sent]))
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
                    # A server with too many clients sends an error before any command.
                    reason = f": {reply}" if isinstance(reply, hiredis.ReplyError) else ""
                    self.drop(f"the server sent an unexpected reply{reason}")
                    return
                call = pending.popleft()
                if isinstance(call, CallBatch):
                    self._answer_batch(call, reply)
                else:
                    self._answer((call,), (reply,))
            # Nothing more can join what these replies have caused.
            self._writes.send_all()
        except hiredis.ProtocolError as error:
            self.drop(f"the server broke the protocol: {error}")

    def _answer_batch(self, batch: CallBatch, reply: Any) -> None:
        """Give each call of a batch its part of the reply; an error concerns all of them."""
        calls = batch.calls
        replies = [reply] * len(calls) if reply.__class__ is REPLY_ERROR else reply
        if replies.__class__ is list and len(replies) == len(calls):
            self._answer(calls, replies)
            return
        why = f"the server broke the protocol: {len(calls)} calls and another number of answers"
        batch.fail(OutcomeUnknown(str(self.address), why))
        self.drop(why)

    def _answer(self, calls: Sequence[StoreCall], replies: Sequence[Any]) -> None:
        """Give calls their replies; nobody goes on before those whose replies came earlier.

        A step goes on at once, a task only in the next turn of the loop. After the reply of a task,
        steps wait for that turn, too.
        """
        for call, reply in zip(calls, replies, strict=True):
            receiver = call.future
            if reply.__class__ is REPLY_ERROR:
                self._on_error(self, call, str(reply))
            elif receiver.__class__ is Answer:
                # One that is awaited no more ignores it.
                if self._is_waking:
                    self._loop.call_soon(receiver.set_result, reply)
                else:
                    receiver.set_result(reply)
            elif not receiver.done():  # else cancelled: its reply is not needed
                receiver.set_result(reply)
                if not self._is_waking:
                    self._is_waking = True
                    self._loop.call_soon(self._woken)

    def _woken(self) -> None:
        self._is_waking = False

    def _look_at_oldest(self) -> None:
        """Drop the connection if the oldest call is overdue at two checks in a row."""
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

    # Lifecycle.

    async def connect(self) -> None:
        """Connect and log in, or raise StoreUnavailable or StoreRejected."""
        try:
            async with asyncio.timeout(self._options.connect_timeout_ms / 1000):
                await self._open_transport()
                await self._log_in()
        except TimeoutError:
            self._raise_unavailable(f"no answer within {self._options.connect_timeout_ms} ms")
        except UnicodeError:
            self._raise_unavailable("the host's name is not valid")
        except OSError as error:
            self._raise_unavailable(connect_problem(error))
        except StoreUnavailable as error:
            # No command of a caller was sent: never OutcomeUnknown.
            self._raise_unavailable(error.why)
        except StoreRejected as error:
            self.drop(str(error))
            raise StoreRejected(f"{error.command} at {self.address}", error.reply) from None
        finally:
            if not self.is_connected:
                await self.close()

    async def close(self) -> None:
        """Fail pending calls and wait until the socket is closed."""
        self.drop("closed by this process")
        if self._transport is not None:
            await self._detached.wait()

    def drop(self, why: str) -> None:
        """Declare the connection lost for good."""
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
        """Keep the transport; the login follows."""
        self._transport = cast("asyncio.Transport", transport)
        if self.lost.is_set():
            self._transport.abort()  # dropped while the connection was being made

    def connection_lost(self, exc: Exception | None) -> None:
        """Record that the socket was closed, by either side."""
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
            # The loop closes a socket that it did not hand over. uvloop then does not call
            # `connection_lost`, even after `connection_made`: `close` would wait forever.
            self._detached.set()
            raise

    async def _log_in(self) -> None:
        """Send HELLO, which a loading server answers too, and a stopped one does not."""
        options = self._options
        login: tuple[Word, ...] = ()
        if options.username is not None or options.password is not None:
            login = ("AUTH", options.username or "default", options.password or "")
        greeting = await self._exchange("HELLO", 2, *login)
        if not isinstance(greeting, list) or b"server" not in greeting:
            raise StoreUnavailable(str(self.address), "the peer is not a Redis-protocol server")
        if options.db:
            await self._exchange("SELECT", options.db)
        self._on_error = self._policy
        # The connection may have been lost between the last reply and this line.
        if self.lost.is_set():
            raise StoreUnavailable(str(self.address), self.why)
        self.is_connected = True

    def _exchange(self, *words: Word) -> asyncio.Future[Any]:
        return self._call(words, self._options.connect_timeout_ms / 1000, self._enqueue)


def connect_problem(error: OSError) -> str:
    """Return the system's error text; asyncio hides it behind "Connect call failed"."""
    if isinstance(error, ConnectionError) and error.errno:
        return os.strerror(error.errno)
    return str(error)
