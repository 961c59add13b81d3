"""Wrong room codes: sessions that guess are slowed down, and no others.

A session that gave a wrong code has a bucket of its own, and shares one with all other such
sessions: a million codes outlast any room, however many sockets try. A session that has not
guessed wrong is never delayed by sessions that have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lingua_scheduler.session.rate import TokenBucket
from lingua_scheduler.session.rooms import RoomProblem
from lingua_wire.codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Container

    from lingua_scheduler.clock import Clock

# One session: typing errors are few.
OWN_PER_S = 0.2
OWN_AT_ONCE = 10
# All sessions that guessed wrong, together.
ALL_PER_S = 20
ALL_AT_ONCE = 200
# Of how many it is remembered; the one that guessed longest ago is forgotten first.
GUESSERS_MAX = 10_000


class Guesses:
    """The wrong codes of all sessions of an instance."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._all = TokenBucket(ALL_PER_S, ALL_AT_ONCE)
        # Only for sessions that gave a wrong code.
        self._own: dict[str, TokenBucket] = {}

    def check(self, session: str) -> None:
        """Raise if this session has guessed too often."""
        own, now = self._own.get(session), self._clock.now_ms()
        if own is not None and (own.wait_ms(now) or self._all.wait_ms(now)):
            raise RoomProblem(ErrorCode.RATE_LIMITED)

    def wrong(self, session: str) -> None:
        """Count a wrong code."""
        now = self._clock.now_ms()
        own = self._own.pop(session, None) or TokenBucket(OWN_PER_S, OWN_AT_ONCE)
        self._own[session] = own
        own.take(now)
        self._all.take(now)
        if len(self._own) > GUESSERS_MAX:
            del self._own[next(iter(self._own))]

    def forget(self, present: Container[str]) -> None:
        """Forget sessions that have ended."""
        for session in [name for name in self._own if name not in present]:
            del self._own[session]
