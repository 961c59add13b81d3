"""The way to the service: several URLs, tried one after another, with a growing wait between.

A try ends in an answer, in `NotNow`, or in `SessionRefused` when coming back cannot help. What is
asked and what the answer means is the session's; it says when a connection was good.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from secrets import SystemRandom
from time import monotonic
from typing import TYPE_CHECKING, Final

from picows import WSError, WSHandshakeError

from lingua_scheduler.client.events import SessionRefused
from lingua_scheduler.client.line import Line
from lingua_scheduler.errors import ConfigError, LinguaError
from lingua_scheduler.messages.codes import CloseCode, ErrorCode
from lingua_scheduler.messages.to_client import ErrorMessage

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Sequence

    from lingua_scheduler.client.line import Answer
    from lingua_scheduler.client.options import Options
    from lingua_scheduler.messages.from_client import FromClient

BACKOFF_FIRST_S, BACKOFF_MAX_S = 0.05, 2.0
# A connection that lasted this long was a good one: the next loss is tried again at once.
GOOD_CONNECTION_S: Final = 1.0

# Answers to a first message that pass by themselves; any other stays wrong however often it is
# sent.
PASSING_ERRORS: Final = frozenset(
    {
        ErrorCode.SCHEDULER_DEPENDENCY_DOWN, ErrorCode.BUSY, ErrorCode.RATE_LIMITED,
        ErrorCode.INTERNAL_ERROR,
    }
)  # fmt: skip
# Closes after which `reconnecting_helps` says no, or not without a change.
PERMANENT_CLOSES: Final = frozenset(
    {
        CloseCode.PROTOCOL_ERROR, CloseCode.POLICY_VIOLATION, CloseCode.MESSAGE_TOO_BIG,
        CloseCode.UNAUTHORIZED, CloseCode.FORBIDDEN, CloseCode.TOKEN_REVOKED, CloseCode.REPLACED,
        CloseCode.REFUSED, CloseCode.TOO_MANY_ERRORS,
    }
)  # fmt: skip
UPGRADE_REFUSALS: Final = {
    HTTPStatus.UNAUTHORIZED: ErrorCode.UNAUTHORIZED,
    HTTPStatus.FORBIDDEN: ErrorCode.FORBIDDEN,
}

_random = SystemRandom()


class NotNow(LinguaError):
    """A try failed in a way that another one may not."""

    def __init__(self, why: str, after_s: float = 0.0) -> None:
        self.why = why
        # How long the server asks to wait.
        self.after_s = after_s
        super().__init__(why)


class Link:
    """The tries of one session."""

    def __init__(
        self, urls: Sequence[str], options: Options, tls: ssl.SSLContext | None = None
    ) -> None:
        if not urls or not all(url.startswith(("ws://", "wss://")) for url in urls):
            raise ConfigError("urls", "must be one or more, each with ws:// or wss://")
        self._urls = tuple(urls)
        self._options = options
        self._tls = tls
        # Which URL is next.
        self._next = 0
        # Failures in a row without a good connection between.
        self._failures = 0
        self._connected_at = 0.0
        # Tries whose first message was sent and not answered: the server may act on them later.
        self.unanswered = 0

    async def attempt(
        self, first: Callable[[], FromClient], welcome: Callable[[Line, Answer], None]
    ) -> tuple[Line, Answer]:
        """Connect to the next URL, say the first message and return its answer."""
        line = Line(self._urls[self._next], welcome)
        self._next = (self._next + 1) % len(self._urls)
        try:
            async with asyncio.timeout(self._options.attempt_s):
                await line.dial(self._options, self._tls)
        except (OSError, TimeoutError, WSError) as error:
            _raise_if_unauthorized(error)
            raise NotNow(f"{line.url}: {str(error) or 'no connection in time'}") from None
        return line, await self.ask(line, first)

    async def ask(self, line: Line, first: Callable[[], FromClient]) -> Answer:
        """Say the first message on a line and return its answer; without one the line is left."""
        try:
            async with asyncio.timeout(self._options.attempt_s):
                answer = await line.ask(first())
        except (OSError, TimeoutError) as error:
            self.unanswered += line.is_unanswered
            await line.leave()
            # One that never was the session's cannot have been replaced in earnest.
            if line.close_code != CloseCode.REPLACED:
                raise_if_permanent(line)
            raise NotNow(f"{line.url}: {str(error) or 'no answer in time'}") from None
        except BaseException:
            line.abort()
            raise
        if isinstance(answer, ErrorMessage):
            await line.leave()
            _raise_error(answer)
        return answer

    def connected(self) -> None:
        """A try has led to an open session."""
        self._connected_at = monotonic()

    def forgive(self) -> None:
        """The next try need not wait: the loss was wanted."""
        self._failures = 0

    def backoff_s(self) -> float:
        """Return how long to wait before the next try: not at all for the first, then longer."""
        if self._connected_at and monotonic() - self._connected_at >= GOOD_CONNECTION_S:
            self._failures = 0
        self._connected_at = 0.0
        failures, self._failures = self._failures, self._failures + 1
        if not failures:
            return 0.0
        longest = min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2 ** min(failures - 1, 10))
        return _random.uniform(longest / 2, longest)


def raise_if_permanent(line: Line) -> None:
    """Raise `SessionRefused` if a line was closed in a way that coming back cannot help."""
    if line.close_code in PERMANENT_CLOSES:
        close = CloseCode(line.close_code)
        raise SessionRefused(close.name, line.why_ended())


def _raise_error(answer: ErrorMessage) -> None:
    if answer.code in PASSING_ERRORS:
        raise NotNow(f"{answer.code}: {answer.message}", (answer.retry_after_ms or 0) / 1000)
    raise SessionRefused(answer.code, answer.message)


def _raise_if_unauthorized(error: Exception) -> None:
    response = error.response if isinstance(error, WSHandshakeError) else None
    code = UPGRADE_REFUSALS.get(response.status) if response is not None else None
    if code is not None:
        raise SessionRefused(code, code.hint) from error
