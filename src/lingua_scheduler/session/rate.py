"""How often something may happen: a token bucket that keeps a single number. Pure.

Instead of counting tokens it remembers when the bucket will be full again; a take moves that
moment further away, and is refused where it would move out of the bucket's reach.
"""

from __future__ import annotations

# Clock readings are rounded; waiting exactly as long as was told must be enough.
SLACK_MS = 0.001


class TokenBucket:
    """Lets `rate_per_s` through in the long run and `burst` at once; it starts full."""

    __slots__ = ("_full_at_ms", "_reach_ms", "_token_ms")

    def __init__(self, rate_per_s: float, burst: float) -> None:
        assert rate_per_s > 0, "a bucket that never fills lets nothing through"
        assert burst >= 1, "a bucket must hold the one token a take asks for"
        # How long one token takes to come back.
        self._token_ms = 1000.0 / rate_per_s
        # How long an empty bucket takes to fill.
        self._reach_ms = burst * self._token_ms + SLACK_MS
        # When nothing will be missing any more; in the past: nothing is.
        self._full_at_ms = float("-inf")

    def take(self, now_ms: float, n: float = 1) -> bool:
        """Take tokens and return True, or take none and return False: too many, too soon."""
        full_at_ms = max(self._full_at_ms, now_ms) + n * self._token_ms
        if full_at_ms - now_ms > self._reach_ms:
            return False
        self._full_at_ms = full_at_ms
        return True

    def wait_ms(self, now_ms: float) -> float:
        """Return how long until one token can be taken; 0 if one can be now."""
        missing_ms = self._full_at_ms + self._token_ms - self._reach_ms + SLACK_MS - now_ms
        return missing_ms if missing_ms > SLACK_MS else 0.0
