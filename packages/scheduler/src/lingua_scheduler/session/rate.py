"""A rate limit: a token bucket that keeps a single number. Pure.

Instead of tokens it keeps the time at which the bucket will be full again. Taking a token moves
that time into the future and is refused if it would exceed the time to fill an empty bucket.
"""

from __future__ import annotations

# Clock readings are rounded; a wait of exactly the returned time must be enough.
SLACK_MS = 0.001


class TokenBucket:
    """Allows `rate_per_s` in the long run and `burst` at once; it starts full."""

    __slots__ = ("_began_ms", "_full_at_ms", "_reach_ms", "_token_ms")

    def __init__(self, rate_per_s: float, burst: float) -> None:
        assert rate_per_s > 0, "a bucket that never fills lets nothing through"
        assert burst >= 1, "a bucket must hold the one token a take asks for"
        # The time to refill one token.
        self._token_ms = 1000.0 / rate_per_s
        # The time to fill an empty bucket.
        self._reach_ms = burst * self._token_ms + SLACK_MS
        # The first time it was given. Times are counted from it: sums of large numbers, such as
        # the milliseconds since 1970, would be rounded more than `SLACK_MS` allows.
        self._began_ms: float | None = None
        # When the bucket will be full; it is full if this is in the past.
        self._full_at_ms = float("-inf")

    def take(self, now_ms: float, n: float = 1) -> bool:
        """Take tokens and return True, or return False if there are too few."""
        if self._began_ms is None:
            self._began_ms = now_ms
        since_ms = now_ms - self._began_ms
        full_at_ms = max(self._full_at_ms, since_ms) + n * self._token_ms
        if full_at_ms - since_ms > self._reach_ms:
            return False
        self._full_at_ms = full_at_ms
        return True

    def wait_ms(self, now_ms: float) -> float:
        """Return the time until one token is available; 0 if one is."""
        since_ms = now_ms - (now_ms if self._began_ms is None else self._began_ms)
        missing_ms = self._full_at_ms + self._token_ms - self._reach_ms + SLACK_MS - since_ms
        return missing_ms if missing_ms > SLACK_MS else 0.0
