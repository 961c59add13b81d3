"""A node's way to its scheduler: connect, register, heartbeat, come back after every loss.

A `Link` lasts as long as the node serves and has one socket after another, each at the next of the
addresses it was given. It hands jobs to the worker and lets it send; jobs go on while it has no
socket. It ends by being cancelled, or by `NodeRefused` when coming back cannot help.
"""

from __future__ import annotations

import asyncio
import logging
from http import HTTPStatus
from secrets import SystemRandom
from time import monotonic, time
from typing import TYPE_CHECKING, Final

from picows import WSCloseCode, WSError, WSHandshakeError

from lingua_scheduler.dial import fresh_token, insist_on_token
from lingua_scheduler.errors import LinguaError
from lingua_scheduler.messages.codes import CloseCode, ErrorCode
from lingua_scheduler.messages.from_node import (
    FromNode,
    NodeDrain,
    NodeHeartbeat,
    NodeRegister,
    NodeTokenRefresh,
)
from lingua_scheduler.messages.to_node import (
    JobAssign,
    JobCancel,
    JobResultAck,
    NodeControl,
    NodeErrorMessage,
    NodeRegisterAck,
    NodeStatusMessage,
    NodeTokenExpiring,
    NodeTokenRefreshed,
    SchedulerToNode,
)
from lingua_scheduler.node.machine import Usage
from lingua_scheduler.node.wire import NodeSocket, connect

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Sequence

    from lingua_scheduler.dial import TokenSource
    from lingua_scheduler.messages.shared import CapabilityByType
    from lingua_scheduler.node.worker import Worker

    # Told what happens to the connection, as a word and a sentence.
    Watch = Callable[[str, str], None]

REGISTER_ACK_S: Final = 10.0
# An instance that does not answer is not waited for as long as there is another one to ask.
TRY_S: Final = 2.0
HEARTBEAT_MS_MIN, HEARTBEAT_MS_MAX = 50, 60_000
# Before the next address: a fleet that lost its instance does not come in the same millisecond.
JITTER_S: Final = 0.05
# After every address has failed; the bound doubles with each round.
BACKOFF_FIRST_S, BACKOFF_MAX_S = 0.1, 5.0
# A connection that lasted this long was a good one: after it the count of failures begins anew.
GOOD_CONNECTION_S: Final = 1.0

# Registrations that stay wrong however often they are sent.
PERMANENT_ERRORS: Final = frozenset(
    {
        ErrorCode.INVALID_CAPABILITY_SCHEMA, ErrorCode.NO_GPU_AVAILABLE,
        ErrorCode.UNAUTHORIZED, ErrorCode.FORBIDDEN,
    }
)  # fmt: skip
# Closes after which `reconnecting_helps` says no, or not without a change.
PERMANENT_CLOSES: Final = frozenset(
    {
        CloseCode.PROTOCOL_ERROR, CloseCode.POLICY_VIOLATION, CloseCode.UNAUTHORIZED,
        CloseCode.FORBIDDEN, CloseCode.TOKEN_REVOKED,
        CloseCode.REPLACED, CloseCode.REFUSED, CloseCode.TOO_MANY_ERRORS,
    }
)  # fmt: skip
# Said by an instance that cannot serve now: another one may, so that there is nothing to wait for.
SENT_AWAY: Final = frozenset(
    {CloseCode.GOING_AWAY, CloseCode.TRY_AGAIN_LATER, CloseCode.TOKEN_EXPIRED}
)
UPGRADE_REFUSALS: Final = {
    HTTPStatus.UNAUTHORIZED: ErrorCode.UNAUTHORIZED,
    HTTPStatus.FORBIDDEN: ErrorCode.FORBIDDEN,
}

_logger = logging.getLogger(__name__)
_random = SystemRandom()


class NodeRefused(LinguaError):
    """The scheduler does not take this node, and trying again as it is would not help."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        self.message = message
        super().__init__(f"the scheduler refused this node: {code}: {message}")


def addresses(url: str | Sequence[str]) -> tuple[str, ...]:
    """Return one address or several as they are gone through, each once."""
    return tuple(dict.fromkeys([url] if isinstance(url, str) else url))


class Link:
    """The connections of one node, one after another."""

    def __init__(
        self,
        url: str | Sequence[str],
        offered: Sequence[str],
        *,
        silence_s: float,
        tls: ssl.SSLContext | None,
    ) -> None:
        self._urls = addresses(url)
        # Which of them is this connection's.
        self._at = 0
        self._offered = offered
        self._silence_s = silence_s
        self._tls = tls
        # Set by `attach`: whose jobs these are, what the node says of itself, who is told.
        self._worker: Worker
        self._registration: NodeRegister
        self._heartbeat_ms: int
        self._watch: Watch
        # The socket now, and the same once the node is registered on it.
        self._socket: NodeSocket | None = None
        self._open: NodeSocket | None = None
        # Why the last registration was refused.
        self._refusal: NodeErrorMessage | None = None
        # What was said last on this socket of what works.
        self._told: tuple[CapabilityByType, ...] = ()
        # Ends a socket that is not acknowledged, then sends the heartbeats.
        self._timer: asyncio.TimerHandle | None = None
        # When the node was registered on this socket, and how often in all.
        self._registered_at = 0.0
        self._registrations = 0
        # Tries in a row without a good connection between, over all addresses.
        self._failures = 0
        # Why the node takes no new jobs, or None while it does.
        self._drain_reason: str | None = None
        self.usage = Usage()
        # What to show, and what is shown on this connection; whether it ends soon.
        self.token: TokenSource = None
        self._token: str | None = None
        self._expiring = asyncio.Event()
        self._actions: dict[type, Callable[..., None]] = {
            NodeRegisterAck: self._registered,
            NodeErrorMessage: self._take_error,
            NodeControl: self._take_control,
            NodeStatusMessage: self._take_status,
            NodeTokenExpiring: self._take_expiring,
            NodeTokenRefreshed: self._take_refreshed,
        }

    def attach(
        self, worker: Worker, registration: NodeRegister, heartbeat_ms: int, watch: Watch
    ) -> None:
        """Say whose connection this is; must come before `run`."""
        self._worker = worker
        self._registration = registration
        self._heartbeat_ms = heartbeat_ms
        self._watch = watch
        worker.node_id = registration.node_id or ""
        self._actions[JobAssign] = worker.assign
        self._actions[JobCancel] = worker.cancel
        self._actions[JobResultAck] = worker.acknowledged

    def redeclare(self, registration: NodeRegister) -> None:
        """Say anew what works on this node: now, and with every registration from here on."""
        self._registration = registration
        if self.is_open:
            self.send(self._heartbeat(registration.capability_by_type))

    @property
    def is_open(self) -> bool:
        """Tell whether the node is registered on a live socket."""
        return self._open is not None

    def send(self, message: FromNode) -> None:
        """Send on the open socket; without one the message is dropped."""
        if self._open is not None:
            self._open.send(message)

    def drain(self, reason: str) -> None:
        """Ask for no more jobs, now and after every reconnect, and refuse those that still come."""
        self._drain_reason = reason
        self._worker.refuse_new(reason)
        self.send(NodeDrain(reason=reason))

    async def run(self) -> None:
        """Stay connected until cancelled; raise `NodeRefused` when that is not possible."""
        while True:
            self._watch("connecting", f"to {self._url}")
            lost = await self._connect_once()
            self._raise_if_permanent()
            if self._refusal is not None:
                self._watch("refused", f"{self._refusal.code}: {self._refusal.message}")
            else:
                self._watch("lost", lost)
            await asyncio.sleep(self._wait_s())
            self._at = (self._at + 1) % len(self._urls)

    @property
    def _url(self) -> str:
        return self._urls[self._at]

    async def _connect_once(self) -> str:
        """Have one socket until it is lost; return why."""
        self._refusal = self._socket = None
        self._registered_at = 0.0
        try:
            # Before the connection: it would wait for its first message.
            self._token = await fresh_token(self.token)
        except (OSError, TimeoutError) as error:
            return f"no token now: {str(error) or 'none came in time'}"
        try:
            async with asyncio.timeout(TRY_S if len(self._urls) > 1 else None):
                self._socket = await connect(
                    self._url, self._offered, self._receive, silence_s=self._silence_s,
                    tls=self._tls,
                )  # fmt: skip
        except (OSError, TimeoutError, WSError) as error:
            _raise_if_unauthorized(error)
            return str(error) or "the scheduler did not answer"
        return await self._stay(self._socket)

    async def _stay(self, socket: NodeSocket) -> str:
        self._expiring.clear()
        keeping = asyncio.create_task(self._keep_token())
        closed = asyncio.ensure_future(socket.closed())
        try:
            self._register(socket)
            done, _ = await asyncio.wait({closed, keeping}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        except asyncio.CancelledError:
            await socket.finish()
            raise
        finally:
            keeping.cancel()
            if not closed.done():
                socket.abort()
            self._open = None
            self._stop_timer()
        return _why(socket)

    async def _keep_token(self) -> None:
        """Show a newer token whenever the scheduler says that this one ends."""
        while True:
            await self._expiring.wait()
            self._expiring.clear()
            if callable(self.token):
                self.send(NodeTokenRefresh(token=await insist_on_token(self.token) or ""))

    def _register(self, socket: NodeSocket) -> None:
        fields = {
            name: getattr(self._registration, name) for name in NodeRegister.__struct_fields__
        }
        fields |= {"node_id": self._worker.node_id, "running": self._worker.held()}
        fields["token"] = self._token
        self._told = self._registration.capability_by_type
        socket.send(NodeRegister(**fields))
        self._timer = asyncio.get_running_loop().call_later(REGISTER_ACK_S, socket.abort)

    def _receive(self, message: SchedulerToNode) -> None:
        self._actions[type(message)](message)

    def _registered(self, ack: NodeRegisterAck) -> None:
        self._stop_timer()
        self._worker.node_id = ack.node_id
        self._registered_at = monotonic()
        self._worker.stats.reconnects += 1 if self._registrations else 0
        self._registrations += 1
        beat_ms = ack.heartbeat_ms or self._heartbeat_ms
        beat_s = max(HEARTBEAT_MS_MIN, min(beat_ms, HEARTBEAT_MS_MAX)) / 1000
        self._open = self._socket
        if self._drain_reason is not None:
            self.send(NodeDrain(reason=self._drain_reason))
        # Before the heartbeat, which no longer lists these jobs.
        self._worker.resend()
        self._beat(beat_s)
        where = f" at {self._url}" if len(self._urls) > 1 else ""
        self._watch("registered", f"as {ack.node_id}{where}")

    def _beat(self, beat_s: float) -> None:
        # Changes made between the registration and its acknowledgement are told here.
        news = self._registration.capability_by_type
        self.send(self._heartbeat(None if news == self._told else news))
        self._timer = asyncio.get_running_loop().call_later(beat_s, self._beat, beat_s)

    def _heartbeat(self, by_type: tuple[CapabilityByType, ...] | None) -> NodeHeartbeat:
        worker = self._worker
        if by_type is not None:
            self._told = by_type
        return NodeHeartbeat(
            node_id=worker.node_id,
            timestamp=int(time() * 1000),
            resource_usage=self.usage.now(worker.running_count),
            capability_by_type=by_type,
            running=worker.running(),
        )

    def _take_error(self, message: NodeErrorMessage) -> None:
        if self._open is None:
            self._refusal = message
            self._close_socket()
        elif message.code == ErrorCode.NODE_NOT_REGISTERED:
            self._close_socket()
        else:
            _logger.warning("the scheduler reports %s: %s", message.code, message.message)

    def _take_control(self, message: NodeControl) -> None:
        if message.command == "reconnect":
            # Asked for, so no reason to wait longer each time.
            self._failures = 0
            self._close_socket()
        else:
            _logger.warning("the scheduler asks for %r, which is unknown here", message.command)

    def _take_status(self, message: NodeStatusMessage) -> None:
        _logger.info("this node is now %s: %s", message.status, message.reason or "")

    def _take_expiring(self, _: NodeTokenExpiring) -> None:
        self._expiring.set()

    def _take_refreshed(self, message: NodeTokenRefreshed) -> None:
        _logger.debug("the newer token lasts for %s ms", message.expires_in_ms)

    def _close_socket(self) -> None:
        self._open = None
        if self._socket is not None:
            self._socket.close(WSCloseCode.GOING_AWAY)

    def _raise_if_permanent(self) -> None:
        refusal, socket = self._refusal, self._socket
        if refusal is not None:
            if refusal.code in PERMANENT_ERRORS:
                raise NodeRefused(refusal.code, refusal.message)
        elif socket is not None and socket.close_code in PERMANENT_CLOSES:
            if socket.close_code == CloseCode.TOKEN_REVOKED and callable(self.token):
                return  # it may give another one
            close = CloseCode(socket.close_code)
            raise NodeRefused(close.name, socket.close_reason or close.meaning)

    def _wait_s(self) -> float:
        """Return how long to wait before the next address: long only after a round of failures.

        Then it is anything between nothing and a bound that doubles, so that a fleet spreads out.
        """
        is_good = self._registered_at and monotonic() - self._registered_at >= GOOD_CONNECTION_S
        self._failures = 0 if is_good else self._failures + 1
        rounds, tried = divmod(self._failures, len(self._urls))
        if tried or not rounds:
            return 0.0 if self._is_sent_away() else _random.uniform(0, JITTER_S)
        longest = min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2 ** min(rounds - 1, 10))
        return _random.uniform(0, longest)

    def _is_sent_away(self) -> bool:
        refusal, socket = self._refusal, self._socket
        if refusal is not None:
            return refusal.code == ErrorCode.SCHEDULER_DEPENDENCY_DOWN
        return socket is not None and socket.close_code in SENT_AWAY

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _raise_if_unauthorized(error: Exception) -> None:
    response = error.response if isinstance(error, WSHandshakeError) else None
    code = UPGRADE_REFUSALS.get(response.status) if response is not None else None
    if code is not None:
        raise NodeRefused(code, code.hint) from error


def _why(socket: NodeSocket) -> str:
    if not socket.close_code:
        return "the connection was lost"
    return f"the scheduler closed with {socket.close_code} {socket.close_reason}".strip()
