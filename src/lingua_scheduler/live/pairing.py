"""Pairing codes: six digits that let a session use one node, once, within five minutes.

Codes are random, rate limited when redeemed, and known to this instance only.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from lingua_scheduler.errors import InvalidInput
from lingua_scheduler.session.rate import TokenBucket

if TYPE_CHECKING:
    from lingua_scheduler.live.clock import Clock

VALID_MS = 5 * 60_000
CODES_MAX = 10_000
# Guesses per second, all sessions together: a million codes outlast any five minutes.
GUESSES_PER_S = 5


class InvalidPairingCode(InvalidInput):
    """A pairing code that is wrong, used or too old, or one guess too many."""


class Pairing:
    """The codes that were issued and not used yet."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # Code -> node and when it ends, oldest first.
        self._codes: dict[str, tuple[str, float]] = {}
        self._guesses = TokenBucket(GUESSES_PER_S, GUESSES_PER_S * 4)

    def issue(self, node: str) -> str:
        """Return a new code for a node."""
        now = self._clock.now_ms()
        for code, (_, ends_at) in list(self._codes.items()):
            if ends_at > now and len(self._codes) < CODES_MAX:
                break
            del self._codes[code]
        while (code := f"{secrets.randbelow(1_000_000):06d}") in self._codes:
            pass
        self._codes[code] = (node, now + VALID_MS)
        return code

    def redeem(self, code: str) -> str:
        """Return the node of a code and forget it, or raise."""
        now = self._clock.now_ms()
        if not self._guesses.take(now):
            raise InvalidPairingCode("too many pairing codes were tried; wait a moment")
        node, ends_at = self._codes.pop(code, ("", 0.0))
        if ends_at <= now:
            raise InvalidPairingCode("the pairing code is wrong, used or too old")
        return node
