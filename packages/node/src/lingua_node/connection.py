"""A node's connection to its scheduler: connect, register, reconnect after every loss.

A `SchedulerConnection` lasts as long as the node serves and has one socket after another, each at
the next of its addresses. It passes jobs to the runner, which continues them while there is no
socket. It ends by being cancelled, or by `NodeRefused` when reconnecting cannot help.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from http import HTTPStatus
from time import monotonic
from typing import TYPE_CHECKING, Final

from picows import WSCloseCode, WSError, WSHandshakeError

from lingua_node.addresses import AddressRotation
from lingua_node.machine import MachineUsage
from lingua_node.node_socket import NodeSocket, open_node_socket
from lingua_node.reporter import NodeReporter
from lingua_wire.codes import CloseCode, ErrorCode
from lingua_wire.errors import LinguaError
from lingua_wire.from_node import NodeDrain, NodeTokenRefresh
from lingua_wire.to_node import (
    JobAssign,
    JobCancel,
    JobResultAck,
    JobResultAcks,
    NodeControl,
    NodeErrorMessage,
    NodeRegisterAck,
    NodeStatusMessage,
    NodeTokenExpiring,
    NodeTokenRefreshed,
    SchedulerToNode,
    StreamAudio,
    StreamEnd,
    StreamOpen,
)
from lingua_wire.token_source import fetch_token, retry_token

if TYPE_CHECKING:
    from collections.abc import Callable

    from lingua_node.job_runner import JobRunner
    from lingua_node.node_socket import Outbox
    from lingua_node.settings import NodeSettings
    from lingua_wire.from_node import NodeRegister

REGISTER_ACK_S: Final = 10.0
# How long an instance may take to accept the connection if there is another one to try.
CONNECT_S: Final = 2.0
HEARTBEAT_MS_MIN, HEARTBEAT_MS_MAX = 50, 60_000
# A connection that lasted this long was good: earlier failures no longer count.
GOOD_CONNECTION_S: Final = 1.0

# Errors after which the same registration would be refused again.
PERMANENT_ERRORS: Final = frozenset(
    {
        ErrorCode.INVALID_CAPABILITY_SCHEMA,
        ErrorCode.NO_GPU_AVAILABLE,
        ErrorCode.UNAUTHORIZED,
        ErrorCode.FORBIDDEN,
    }
)
# Close codes whose `reconnecting_helps` is no, or not without a change.
PERMANENT_CLOSES: Final = frozenset(
    {
        CloseCode.PROTOCOL_ERROR,
        CloseCode.POLICY_VIOLATION,
        CloseCode.UNAUTHORIZED,
        CloseCode.FORBIDDEN,
        CloseCode.TOKEN_REVOKED,
        CloseCode.REPLACED,
        CloseCode.REFUSED,
        CloseCode.TOO_MANY_ERRORS,
    }
)
# Close codes of an instance that cannot serve now: another one may, so the node need not wait.
REDIRECTING_CLOSES: Final = frozenset(
    {CloseCode.GOING_AWAY, CloseCode.TRY_AGAIN_LATER, CloseCode.TOKEN_EXPIRED}
)
UPGRADE_REFUSALS: Final = {
    HTTPStatus.UNAUTHORIZED: ErrorCode.UNAUTHORIZED,
    HTTPStatus.FORBIDDEN: ErrorCode.FORBIDDEN,
}

_logger = logging.getLogger(__name__)


class NodeRefused(LinguaError):
    """The scheduler refused this node, and the same registration would be refused again."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        self.message = message
        super().__init__(f"the scheduler refused this node: {code}: {message}")


@dataclass(eq=False, slots=True)
class ConnectionAttempt:
    """The state of one socket, from connecting to its end."""

    socket: NodeSocket | None = None
    # The token presented on it.
    token: str | None = None
    # Why the registration was refused.
    refusal: NodeErrorMessage | None = None
    # When the node was registered on it, by `monotonic`; 0 if it was not.
    registered_at: float = 0.0
    # Ends a socket on which the registration is not acknowledged.
    ack_timer: asyncio.TimerHandle | None = None

    @property
    def was_good(self) -> bool:
        """Tell whether the node was registered for some time."""
        return bool(self.registered_at) and monotonic() - self.registered_at >= GOOD_CONNECTION_S

    @property
    def was_redirected(self) -> bool:
        """Tell whether the instance cannot serve now, so that another one should be tried."""
        if self.refusal is not None:
            return self.refusal.code == ErrorCode.SCHEDULER_DEPENDENCY_DOWN
        return self.socket is not None and self.socket.close_code in REDIRECTING_CLOSES

    def stop_ack_timer(self) -> None:
        """Wait no longer for the acknowledgement of the registration."""
        if self.ack_timer is not None:
            self.ack_timer.cancel()
            self.ack_timer = None


class SchedulerConnection:
    """The sockets of one node, one after another."""

    def __init__(
        self,
        settings: NodeSettings,
        registration: NodeRegister,
        runner: JobRunner,
        outbox: Outbox,
    ) -> None:
        usage = MachineUsage(is_measured=settings.reports_usage, with_cpu=settings.reports_cpu)
        self.reporter = NodeReporter(registration, runner, outbox, usage)
        self._settings = settings
        self._runner = runner
        self._outbox = outbox
        self._addresses = AddressRotation(settings.url)
        self._attempt = ConnectionAttempt()
        # Registrations so far, on all sockets.
        self._registrations = 0
        # Why the node takes no new jobs; None while it takes them.
        self._drain_reason: str | None = None
        # Set when the token of the socket expires soon.
        self._token_expiring = asyncio.Event()
        self._handlers: dict[type, Callable[..., None]] = {
            NodeRegisterAck: self._handle_registered,
            NodeErrorMessage: self._handle_error,
            NodeControl: self._handle_control,
            NodeStatusMessage: self._handle_status,
            NodeTokenExpiring: self._handle_token_expiring,
            NodeTokenRefreshed: self._handle_token_refreshed,
            JobAssign: runner.assign,
            JobCancel: runner.cancel,
            JobResultAck: runner.acknowledge,
            JobResultAcks: runner.acknowledge_all,
            StreamOpen: runner.streams.open,
            StreamAudio: runner.streams.hear,
            StreamEnd: runner.streams.end,
        }

    def drain(self, reason: str) -> None:
        """Ask for no more jobs, now and after every reconnect, and refuse those that arrive."""
        self._drain_reason = reason
        self._runner.refuse_new(reason)
        self._outbox.send(NodeDrain(reason=reason))

    async def run(self) -> None:
        """Stay connected until cancelled; raise `NodeRefused` when that is not possible."""
        while True:
            self._settings.watch("connecting", f"to {self._addresses.current}")
            self._attempt = attempt = ConnectionAttempt()
            lost = await self._connect(attempt)
            self._raise_if_permanent(attempt)
            if attempt.refusal is not None:
                refusal = attempt.refusal
                self._settings.watch("refused", f"{refusal.code}: {refusal.message}")
            else:
                self._settings.watch("lost", lost)
            wait_s = self._addresses.wait_s(
                was_good=attempt.was_good, was_redirected=attempt.was_redirected
            )
            await asyncio.sleep(wait_s)
            self._addresses.advance()

    async def _connect(self, attempt: ConnectionAttempt) -> str:
        """Use one socket until it is lost; return why."""
        settings = self._settings
        try:
            # Before connecting: the scheduler expects the first message in time.
            attempt.token = await fetch_token(settings.token)
        except (OSError, TimeoutError) as error:
            return f"no token now: {str(error) or 'none arrived in time'}"
        try:
            async with asyncio.timeout(None if self._addresses.is_single else CONNECT_S):
                attempt.socket = await open_node_socket(
                    self._addresses.current,
                    settings.offered,
                    self._handle,
                    silence_s=settings.silence_s,
                    tls=settings.tls,
                )
        except (OSError, TimeoutError, WSError) as error:
            _raise_if_unauthorized(error)
            return str(error) or "the scheduler did not answer"
        return await self._use_socket(attempt, attempt.socket)

    async def _use_socket(self, attempt: ConnectionAttempt, socket: NodeSocket) -> str:
        self._token_expiring.clear()
        refreshing = asyncio.create_task(self._refresh_token())
        closed = asyncio.ensure_future(socket.closed())
        try:
            socket.send(self.reporter.registration_message(attempt.token))
            loop = asyncio.get_running_loop()
            attempt.ack_timer = loop.call_later(REGISTER_ACK_S, socket.abort)
            done, _ = await asyncio.wait({closed, refreshing}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        except asyncio.CancelledError:
            await socket.finish()
            raise
        finally:
            refreshing.cancel()
            if not closed.done():
                socket.abort()
            self._outbox.close()
            attempt.stop_ack_timer()
            self.reporter.stop_heartbeats()
            # Whoever speaks is heard by another node from now on.
            self._runner.streams.drop_all()
        return _end_reason(socket)

    async def _refresh_token(self) -> None:
        """Present a newer token whenever the scheduler announces that this one expires."""
        token = self._settings.token
        while True:
            await self._token_expiring.wait()
            self._token_expiring.clear()
            if callable(token):
                self._outbox.send(NodeTokenRefresh(token=await retry_token(token) or ""))

    def _handle(self, message: SchedulerToNode) -> None:
        self._handlers[type(message)](message)

    def _handle_registered(self, ack: NodeRegisterAck) -> None:
        attempt = self._attempt
        attempt.stop_ack_timer()
        attempt.registered_at = monotonic()
        self._runner.node_id = ack.node_id
        self._runner.stats.reconnects += 1 if self._registrations else 0
        self._registrations += 1
        if attempt.socket is not None:
            self._outbox.open(attempt.socket)
        if self._drain_reason is not None:
            self._outbox.send(NodeDrain(reason=self._drain_reason))
        # Before the heartbeat, which no longer lists these jobs.
        self._runner.resend()
        interval_ms = ack.heartbeat_ms or self._settings.heartbeat_ms
        interval_ms = max(HEARTBEAT_MS_MIN, min(interval_ms, HEARTBEAT_MS_MAX))
        self.reporter.start_heartbeats(interval_ms / 1000)
        where = "" if self._addresses.is_single else f" at {self._addresses.current}"
        self._settings.watch("registered", f"as {ack.node_id}{where}")

    def _handle_error(self, message: NodeErrorMessage) -> None:
        if not self._outbox.is_open:
            self._attempt.refusal = message
            self._close_socket()
        elif message.code == ErrorCode.NODE_NOT_REGISTERED:
            self._close_socket()
        else:
            _logger.warning("the scheduler reports %s: %s", message.code, message.message)

    def _handle_control(self, message: NodeControl) -> None:
        if message.command == "reconnect":
            self._addresses.reset_backoff()
            self._close_socket()
        else:
            _logger.warning("the scheduler sent an unknown command: %r", message.command)

    def _handle_status(self, message: NodeStatusMessage) -> None:
        _logger.info("this node is now %s: %s", message.status, message.reason or "")

    def _handle_token_expiring(self, _: NodeTokenExpiring) -> None:
        self._token_expiring.set()

    def _handle_token_refreshed(self, message: NodeTokenRefreshed) -> None:
        _logger.debug("the newer token is valid for %s ms", message.expires_in_ms)

    def _close_socket(self) -> None:
        self._outbox.close()
        if self._attempt.socket is not None:
            self._attempt.socket.close(WSCloseCode.GOING_AWAY)

    def _raise_if_permanent(self, attempt: ConnectionAttempt) -> None:
        refusal, socket = attempt.refusal, attempt.socket
        if refusal is not None:
            if refusal.code in PERMANENT_ERRORS:
                raise NodeRefused(refusal.code, refusal.message)
        elif socket is not None and socket.close_code in PERMANENT_CLOSES:
            if socket.close_code == CloseCode.TOKEN_REVOKED and callable(self._settings.token):
                return  # the token function may return another one
            close = CloseCode(socket.close_code)
            raise NodeRefused(close.name, socket.close_reason or close.meaning)


def _raise_if_unauthorized(error: Exception) -> None:
    response = error.response if isinstance(error, WSHandshakeError) else None
    code = UPGRADE_REFUSALS.get(response.status) if response is not None else None
    if code is not None:
        raise NodeRefused(code, code.hint) from error


def _end_reason(socket: NodeSocket) -> str:
    if not socket.close_code:
        return "the connection was lost"
    return f"the scheduler closed with {socket.close_code} {socket.close_reason}".strip()
