"""The addresses of the scheduler's instances: tried in turn, with a wait after failures."""

from __future__ import annotations

from secrets import SystemRandom
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

# Before the next address: the nodes of a lost instance must not reconnect in the same millisecond.
JITTER_S: Final = 0.05
# After every address has failed; the bound doubles with each round.
BACKOFF_FIRST_S, BACKOFF_MAX_S = 0.1, 5.0

_random = SystemRandom()


def addresses(url: str | Sequence[str]) -> tuple[str, ...]:
    """Return one address or several in their order, each once."""
    return tuple(dict.fromkeys([url] if isinstance(url, str) else url))


class AddressRotation:
    """The addresses of one node, in turn."""

    def __init__(self, url: str | Sequence[str]) -> None:
        self._urls = addresses(url)
        self._index = 0
        # Attempts in a row since the last good connection, over all addresses.
        self._failures = 0

    @property
    def current(self) -> str:
        """Return the address of the present attempt."""
        return self._urls[self._index]

    @property
    def is_single(self) -> bool:
        """Tell whether there is no other address."""
        return len(self._urls) == 1

    def advance(self) -> None:
        """Go to the next address."""
        self._index = (self._index + 1) % len(self._urls)

    def reset_backoff(self) -> None:
        """Forget the failures so far: the scheduler asked for the reconnect."""
        self._failures = 0

    def wait_s(self, *, was_good: bool = False, was_redirected: bool = False) -> float:
        """Return the wait before the next address: long only after a round of failures.

        Then it is random up to a bound that doubles, so that the nodes of a fleet spread out.
        """
        self._failures = 0 if was_good else self._failures + 1
        rounds, tried = divmod(self._failures, len(self._urls))
        if tried or not rounds:
            return 0.0 if was_redirected else _random.uniform(0, JITTER_S)
        longest = min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2 ** min(rounds - 1, 10))
        return _random.uniform(0, longest)
