"""The addresses of the service: several URLs, tried in turn, with a growing wait between attempts.

An attempt ends in an answer, in `AttemptFailed`, or in `SessionRefused` if reconnecting cannot
help. The session decides what is requested and what the answer means, and reports when a connection
was good.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from secrets import SystemRandom
from time import monotonic
from typing import TYPE_CHECKING, Final

from picows import WSError, WSHandshakeError

from lingua_client.connection import SessionConnection
from lingua_client.events import SessionRefused
from lingua_wire.codes import CloseCode, ErrorCode
from lingua_wire.errors import ConfigError, LinguaError
from lingua_wire.to_client import ErrorMessage

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Sequence

    from lingua_client.connection import OpeningAnswer
    from lingua_client.options import Options
    from lingua_wire.from_client import FromClient

BACKOFF_FIRST_S, BACKOFF_MAX_S = 0.05, 2.0
# A connection that lasted this long was good: after its loss the next attempt is made at once.
GOOD_CONNECTION_S: Final = 1.0

# Errors after which the same first message may succeed later; any other error is permanent.
TEMPORARY_ERRORS: Final = frozenset(
    {
        ErrorCode.SCHEDULER_DEPENDENCY_DOWN,
        ErrorCode.BUSY,
        ErrorCode.RATE_LIMITED,
        ErrorCode.INTERNAL_ERROR,
    }
)
# Close codes whose `reconnecting_helps` is no, or not without a change.
PERMANENT_CLOSES: Final = frozenset(
    {
        CloseCode.PROTOCOL_ERROR,
        CloseCode.POLICY_VIOLATION,
        CloseCode.MESSAGE_TOO_BIG,
        CloseCode.UNAUTHORIZED,
        CloseCode.FORBIDDEN,
        CloseCode.TOKEN_REVOKED,
        CloseCode.REPLACED,
        CloseCode.REFUSED,
        CloseCode.TOO_MANY_ERRORS,
    }
)
UPGRADE_REFUSALS: Final = {
    HTTPStatus.UNAUTHORIZED: ErrorCode.UNAUTHORIZED,
    HTTPStatus.FORBIDDEN: ErrorCode.FORBIDDEN,
}

_random = SystemRandom()


class AttemptFailed(LinguaError):
    """An attempt to connect failed; a later one may succeed."""

    def __init__(self, reason: str, retry_after_s: float = 0.0) -> None:
        self.reason = reason
        # How long the server asks to wait.
        self.retry_after_s = retry_after_s
        super().__init__(reason)


class Endpoints:
    """The URLs of one session and the attempts to connect to them."""

    def __init__(
        self, urls: Sequence[str], options: Options, tls: ssl.SSLContext | None = None
    ) -> None:
        if not urls or not all(url.startswith(("ws://", "wss://")) for url in urls):
            raise ConfigError("urls", "must be one or more, each with ws:// or wss://")
        self._urls = tuple(urls)
        self._options = options
        self._tls = tls
        # Index of the next URL.
        self._next = 0
        # Failures in a row since the last good connection.
        self._failures = 0
        self._connected_at = 0.0
        # Attempts whose first message was sent and not answered: the server may act on it later.
        self.unanswered = 0

    async def connect(
        self,
        first: Callable[[], FromClient],
        on_answer: Callable[[SessionConnection, OpeningAnswer], None],
    ) -> tuple[SessionConnection, OpeningAnswer]:
        """Connect to the next URL, send the first message and return its answer."""
        connection = SessionConnection(self._urls[self._next], on_answer)
        self._next = (self._next + 1) % len(self._urls)
        try:
            async with asyncio.timeout(self._options.attempt_s):
                await connection.open(self._options, self._tls)
        except (OSError, TimeoutError, WSError) as error:
            _raise_if_unauthorized(error)
            problem = str(error) or "no connection in time"
            raise AttemptFailed(f"{connection.url}: {problem}") from None
        return connection, await self.request(connection, first)

    async def request(
        self, connection: SessionConnection, first: Callable[[], FromClient]
    ) -> OpeningAnswer:
        """Send the first message and return its answer; without one the connection is dropped."""
        try:
            async with asyncio.timeout(self._options.attempt_s):
                answer = await connection.request(first())
        except (OSError, TimeoutError) as error:
            self.unanswered += connection.is_unanswered
            await connection.drop()
            # A connection that never became the session's cannot really have been replaced.
            if connection.close_code != CloseCode.REPLACED:
                raise_if_permanent(connection)
            problem = str(error) or "no answer in time"
            raise AttemptFailed(f"{connection.url}: {problem}") from None
        except BaseException:
            connection.abort()
            raise
        if isinstance(answer, ErrorMessage):
            await connection.drop()
            _raise_error(answer)
        return answer

    def record_connected(self) -> None:
        """Record that an attempt has led to an open session."""
        self._connected_at = monotonic()

    def reset_backoff(self) -> None:
        """Make the next attempt without a wait: the loss was intended."""
        self._failures = 0

    def backoff_s(self) -> float:
        """Return the wait before the next attempt: none before the first, then growing."""
        if self._connected_at and monotonic() - self._connected_at >= GOOD_CONNECTION_S:
            self._failures = 0
        self._connected_at = 0.0
        failures, self._failures = self._failures, self._failures + 1
        if not failures:
            return 0.0
        longest = min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2 ** min(failures - 1, 10))
        return _random.uniform(longest / 2, longest)


def raise_if_permanent(connection: SessionConnection) -> None:
    """Raise `SessionRefused` if a close code says that reconnecting cannot help."""
    if connection.close_code in PERMANENT_CLOSES:
        close = CloseCode(connection.close_code)
        raise SessionRefused(close.name, connection.end_reason())


def _raise_error(answer: ErrorMessage) -> None:
    if answer.code in TEMPORARY_ERRORS:
        retry_after_s = (answer.retry_after_ms or 0) / 1000
        raise AttemptFailed(f"{answer.code}: {answer.message}", retry_after_s)
    raise SessionRefused(answer.code, answer.message)


def _raise_if_unauthorized(error: Exception) -> None:
    response = error.response if isinstance(error, WSHandshakeError) else None
    code = UPGRADE_REFUSALS.get(response.status) if response is not None else None
    if code is not None:
        raise SessionRefused(code, code.hint) from error
