"""The connection to one server, and the parts it shares with the connection to a cluster.

`SteadyLink` keeps one address connected in the background. `CallingConnection` encodes a call and
handles the error replies that need a retry: functions not loaded, server not ready.
`SingleConnection` and `cluster.ClusterConnection` decide where a call is sent.
"""

from __future__ import annotations

import asyncio
import random
from abc import abstractmethod
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

from lingua_scheduler.errors import StoreRejected, StoreUnavailable
from lingua_scheduler.state.calls import StepCall, StoreCall, pack
from lingua_scheduler.state.connection import LONGEST_BLOCK_MS, Connection
from lingua_scheduler.state.libraries import NO_FUNCTION, is_loaded, unfit
from lingua_scheduler.state.link import TRANSIENT, StoreLink, refuse
from lingua_scheduler.steps import Answer

if TYPE_CHECKING:
    from collections.abc import Callable

    from lingua_scheduler.state.calls import CallForm
    from lingua_scheduler.state.link import Address, ErrorPolicy, LinkOptions
    from lingua_scheduler.state.script import FunctionLibrary, Script, Word

T = TypeVar("T")

FIRST_PAUSE_S = 0.01
LONGEST_PAUSE_S = 1.0
FIRST_RETRY_S = 0.002
LONGEST_RETRY_S = 0.1

# How often one call may be redirected or sent in another form before it fails.
MAX_TURNS = 5


class CallingConnection(Connection):
    """The common part of both connections; `_send` and `_answer_redirect` differ."""

    def __init__(self, options: LinkOptions) -> None:
        self._loop = asyncio.get_running_loop()
        self._options = options
        self._timeout_s = options.call_timeout_ms / 1000
        self.generation = 0
        # Calls to be retried, each with its timer.
        self._waiting: dict[StoreCall, asyncio.TimerHandle] = {}
        # Calls that wait until a server has loaded a library.
        self._loading: dict[tuple[StoreLink, str], list[StoreCall]] = {}

    def run(
        self, script: Script, slot: int, keys: tuple[Word, ...], args: tuple[Word, ...]
    ) -> asyncio.Future[Any]:
        """Call the script's function; its library is sent only if the server lacks it."""
        packed = pack((b"FCALL", script.function, len(keys), *keys, *args))
        future = self._loop.create_future()
        until = monotonic() + self._timeout_s
        self._send(StoreCall(future, packed, script, slot, until, expires=until))
        return future

    def ask(
        self,
        form: CallForm,
        args: tuple[Word, ...],
        read: Callable[[Any], T],
        size: int,
    ) -> Answer[T]:
        """Run a script for a step, which needs no future; calls of one turn may be batched."""
        answer, until = Answer(read), monotonic() + self._timeout_s
        self._send(
            StepCall(
                answer,
                b"",
                form.script,
                form.slot,
                until,
                expires=until,
                form=form,
                args=args,
                size=size,
            )
        )
        return answer

    def command(self, slot: int, *words: Word) -> asyncio.Future[Any]:
        """Send any command that does not block on the server."""
        future = self._loop.create_future()
        until = monotonic() + self._timeout_s
        self._send(StoreCall(future, pack(words), None, slot, until, expires=until))
        return future

    def _advance(self) -> None:
        self.generation += 1

    @abstractmethod
    def _send(self, call: StoreCall) -> None:
        """Submit the call to the right link, or fail it at once."""

    @abstractmethod
    def _answer_redirect(self, link: StoreLink, call: StoreCall, text: str) -> bool:
        """Handle a redirect; return False if the reply is not one."""

    def _answer_error(self, link: StoreLink, call: StoreCall, text: str) -> None:
        """The error policy of every shared link."""
        if call.future.done():
            return  # cancelled: its result is not needed
        if text == NO_FUNCTION and call.script is not None:
            self._load(link, call, call.script.library)
        elif text.partition(" ")[0] in TRANSIENT:
            self._retry_later(link, call, text)
        elif not self._answer_redirect(link, call, text):
            refuse(link, call, text)

    def _load(self, link: StoreLink, call: StoreCall, library: FunctionLibrary) -> None:
        """Load the library into the server, once for all calls that need it there."""
        where = (link, library.name)
        if where in self._loading:
            self._loading[where].append(call)
            return
        self._loading[where] = [call]
        load = link.command("FUNCTION", "LOAD", library.source)
        load.add_done_callback(partial(self._loaded, link, library))

    def _loaded(self, link: StoreLink, library: FunctionLibrary, load: asyncio.Future[Any]) -> None:
        """Send the calls that waited for the library again, or fail them: none of them ran."""
        error = load.exception()
        for call in self._loading.pop((link, library.name)):
            if is_loaded(error):
                if self._may_resend(link, call, NO_FUNCTION):
                    self._send(call)
            elif isinstance(error, StoreRejected):
                call.fail(unfit(error))
            else:
                call.fail(StoreUnavailable(str(link.address), f"functions not loaded: {error}"))

    def _may_resend(self, link: StoreLink, call: StoreCall, why: str) -> bool:
        """Count one more resend; fail the call after too many resends or too much time."""
        now = monotonic()
        call.turns += 1
        if call.turns > MAX_TURNS or now >= call.deadline:
            problem = f"sent {call.turns} times and still: {why}"
            call.fail(StoreUnavailable(str(link.address), problem))
            return False
        call.expires = now + self._timeout_s
        return True

    def _retry_later(self, link: StoreLink, call: StoreCall, why: str) -> None:
        """Send the call again after a growing pause, until its deadline."""
        left_s = call.deadline - monotonic()
        if left_s <= 0:
            call.fail(StoreUnavailable(str(link.address), why))
            return
        pause_s = jittered(min(FIRST_RETRY_S * 2**call.retries, LONGEST_RETRY_S))
        call.retries += 1
        # After a pause redirects are counted anew: a migrating slot answers ASK each time.
        call.turns = 0
        self._waiting[call] = self._loop.call_later(min(pause_s, left_s), self._retry, call)

    def _retry(self, call: StoreCall) -> None:
        del self._waiting[call]
        if not call.future.done():
            call.expires = monotonic() + self._timeout_s
            self._send(call)

    def _fail_waiting(self, where: str) -> None:
        for call, timer in self._waiting.items():
            timer.cancel()
            call.fail(StoreUnavailable(where, "closed by this process"))
        self._waiting.clear()

    async def _open_dedicated(
        self, address: Address, longest_block_ms: int, on_error: ErrorPolicy
    ) -> StoreLink:
        patience_ms = self._options.call_timeout_ms + longest_block_ms
        link = StoreLink(address, replace(self._options, call_timeout_ms=patience_ms), on_error)
        await link.connect()
        return link


class SingleConnection(CallingConnection):
    """The connection to one server; slots are ignored."""

    def __init__(self, address: Address, options: LinkOptions) -> None:
        super().__init__(options)
        self._address = address
        self._steady = SteadyLink(address, options, self._answer_error, on_back=self._advance)

    @classmethod
    async def open(cls, address: Address, options: LinkOptions) -> SingleConnection:
        """Connect or raise; later losses are repaired in the background."""
        connection = cls(address, options)
        await connection._steady.open()
        return connection

    async def dedicated(self, slot: int, longest_block_ms: int = LONGEST_BLOCK_MS) -> StoreLink:
        """Open a separate connection for reads that BLOCK up to that long; the caller closes it."""
        del slot
        return await self._open_dedicated(self._address, longest_block_ms, self._answer_dedicated)

    async def every_master(self, *words: Word) -> list[Any]:
        """Send the command to the only server."""
        return [await self.command(0, *words)]

    def masters(self) -> list[int]:
        """Return a slot of the only server."""
        return [0]

    async def close(self) -> None:
        """Fail pending calls and end all tasks and sockets."""
        await self._steady.close()
        self._fail_waiting(str(self._address))

    def _send(self, call: StoreCall) -> None:
        self._steady.link.submit(call)

    def _answer_dedicated(self, link: StoreLink, call: StoreCall, text: str) -> None:
        if not self._answer_redirect(link, call, text):
            refuse(link, call, text)

    def _answer_redirect(self, link: StoreLink, call: StoreCall, text: str) -> bool:
        if text.startswith("READONLY "):
            call.fail(StoreUnavailable(str(link.address), text))
            # Later, because other replies of the same read still belong to their calls.
            self._loop.call_soon(link.drop, f"the server is a replica: {text}")
            return True
        if text.startswith(("MOVED ", "ASK ")):
            hint = "the server is part of a cluster, and this connection is for a single one"
            call.fail(StoreRejected(call.label, f"{text} ({hint})"))
            return True
        return False


class SteadyLink:
    """Keeps one address connected: reconnects after every loss, with a growing pause."""

    def __init__(
        self,
        address: Address,
        options: LinkOptions,
        on_error: ErrorPolicy,
        on_down: Callable[[], None] = lambda: None,
        on_back: Callable[[], None] = lambda: None,
    ) -> None:
        self.address = address
        # The current link, or the lost one, which fails every call with the reason of its loss.
        self.link = StoreLink(address, options, on_error)
        # True until the first attempt to connect has succeeded or failed.
        self.is_opening = True
        # Set when `is_opening` becomes False.
        self.first_attempt = asyncio.Event()

        self._options = options
        self._on_error = on_error
        # Called after each loss or failed attempt, and after each reconnect.
        self._on_down = on_down
        self._on_back = on_back
        self._keeper: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Connect or raise, then keep connected."""
        try:
            await self.link.connect()
        finally:
            self._end_first_attempt()
        self.start()

    def start(self) -> None:
        """Connect in the background and keep connected."""
        self._keeper = asyncio.create_task(self._keep(), name=f"keep {self.address} connected")

    async def close(self) -> None:
        """Stop reconnecting, fail pending calls, and wait until the socket is closed."""
        self.link.drop("closed by this process")
        await self.stop_keeping()
        await self.link.close()  # it may have been replaced

    async def stop_keeping(self) -> None:
        """Let the current link finish its calls, and do not replace it."""
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            await end_task(keeper)
        self._end_first_attempt()

    async def _keep(self) -> None:
        pause_s = FIRST_PAUSE_S
        while True:
            began_at = monotonic()
            if self.link.is_connected or await self._connect():
                await self.link.lost.wait()
            self._on_down()
            # The pause is kept for links that are lost soon (a server that accepts and closes).
            if monotonic() - began_at > LONGEST_PAUSE_S:
                pause_s = FIRST_PAUSE_S
            await asyncio.sleep(jittered(pause_s))
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    async def _connect(self) -> bool:
        """Try once; a failed link stays current, so that callers get its reason."""
        is_back = self.link.lost.is_set()
        link = StoreLink(self.address, self._options, self._on_error) if is_back else self.link
        try:
            await link.connect()
            if is_back:
                self._on_back()  # before callers get the link
        except (StoreUnavailable, StoreRejected):
            return False
        finally:
            self.link = link
            self._end_first_attempt()
        return True

    def _end_first_attempt(self) -> None:
        self.is_opening = False
        self.first_attempt.set()


async def end_task(task: asyncio.Task[None]) -> None:
    """Cancel the task, wait for its end, and raise its error, if it failed."""
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled():
        task.result()


def jittered(pause_s: float) -> float:
    """Return 50 to 100 % of the pause, so that clients do not retry at the same time."""
    return pause_s * random.uniform(0.5, 1.0)  # noqa: S311  (spreads load, hides nothing)
