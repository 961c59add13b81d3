"""Tokens of open sockets: warned of, closed when they expire, closed when they are revoked.

One loop for all sockets of an instance looks once a second at what each one's token says. A socket
is closed when its token would not be let in any more, so that whoever is closed cannot come back
with the same token. What the store says of revoked tokens is read in the same loop; while it is
away, what was read last counts.
"""

from __future__ import annotations

import asyncio
from time import time
from typing import TYPE_CHECKING, Final, Protocol

from lingua_scheduler.errors import StoreRejected, StoreUnavailable
from lingua_scheduler.messages.codes import CloseCode
from lingua_scheduler.tokens import LEEWAY_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from lingua_scheduler.logs import EventLog
    from lingua_scheduler.state.revocations import Revocations
    from lingua_scheduler.tokens import ClientGrant, NodeGrant

LOOK_EVERY_S: Final = 1.0
# How long before its end a token is warned of; of one that lives shortly, in its last fifth.
WARN_S: Final = 60.0
WARN_SHARE: Final = 5
# How often those that are gone are let go.
SWEEP_EVERY_S: Final = 10.0


class Holder(Protocol):
    """An open socket and what its token allows."""

    @property
    def grant(self) -> ClientGrant | NodeGrant | None:
        """Return what the token allows; None where nobody is asked."""

    @property
    def is_open(self) -> bool:
        """Tell whether the socket is there."""

    def token_expires(self, in_ms: int) -> bool:
        """Warn the peer, if it listens yet; tells whether it did."""

    def token_ends(self, code: CloseCode, reason: str) -> None:
        """Close: the token gives no right any more."""


class Permits:
    """The tokens of all open sockets of an instance."""

    def __init__(
        self, revocations: Revocations, log: EventLog, clock: Callable[[], float] = time
    ) -> None:
        self.revocations = revocations
        self._log = log
        # Wall clock in seconds, as tokens have it.
        self._clock = clock
        # Socket -> when to look at it next, in seconds since 1970.
        self._holders: dict[Holder, float] = {}
        # Socket -> the end it was warned of: of each end once.
        self._warned: dict[Holder, float] = {}
        # When all were last looked at, for those that are gone.
        self._swept_at = 0.0
        # Which state of the list all holders were held against.
        self._seen = revocations.changes

    def is_revoked(self, grant: ClientGrant | NodeGrant) -> bool:
        """Tell whether a token is on the list, by its id or its subject."""
        return self.revocations.holds(grant.id, grant.subject, grant.tenant)

    def hold(self, holder: Holder) -> None:
        """Look at this socket and the token it has now; one that is gone is let go by itself."""
        assert holder.grant is not None, "nobody is asked: there is nothing to look at"
        self._holders[holder] = self._due_at(holder, holder.grant)
        if self.is_revoked(holder.grant):
            self._revoke(holder)

    def _due_at(self, holder: Holder, grant: ClientGrant | NodeGrant) -> float:
        if self._warned.get(holder) != grant.holds_until:
            return warned_at(grant)
        return grant.holds_until + LEEWAY_S

    async def run(self) -> None:
        """Read the list and look at all sockets until cancelled."""
        while True:
            await self.read()
            self.look()
            await asyncio.sleep(LOOK_EVERY_S)

    async def read(self) -> None:
        """Read what is revoked; a store that is away changes nothing."""
        try:
            async with asyncio.timeout(LOOK_EVERY_S):
                await self.revocations.read()
        except (StoreUnavailable, StoreRejected, TimeoutError):
            return  # told by the loops that cannot do without

    def look(self) -> None:
        """Warn of what ends soon, close what has ended; the others cost one comparison each."""
        now = self._clock()
        if self._seen != self.revocations.changes or now - self._swept_at >= SWEEP_EVERY_S:
            self._sweep(now)
        for holder in [holder for holder, due in self._holders.items() if due <= now]:
            self._look_at(holder, now)

    def _sweep(self, now: float) -> None:
        """Let go of those that are gone, close those that are revoked."""
        self._seen, self._swept_at = self.revocations.changes, now
        for holder in tuple(self._holders):
            if holder.grant is None or not holder.is_open:
                self._let_go(holder)
            elif self.is_revoked(holder.grant):
                self._revoke(holder)

    def _look_at(self, holder: Holder, now: float) -> None:
        grant = holder.grant
        if grant is None or not holder.is_open:
            self._let_go(holder)
        elif grant.holds_until + LEEWAY_S <= now:
            self._let_go(holder)
            holder.token_ends(CloseCode.TOKEN_EXPIRED, "the token has expired")
        elif holder.token_expires(max(0, int((grant.holds_until - now) * 1000))):
            self._warned[holder] = grant.holds_until
            self._holders[holder] = self._due_at(holder, grant)

    def _let_go(self, holder: Holder) -> None:
        del self._holders[holder]
        self._warned.pop(holder, None)

    def _revoke(self, holder: Holder) -> None:
        self._let_go(holder)
        self._log("token.revoked", socket=type(holder).__name__)
        holder.token_ends(CloseCode.TOKEN_REVOKED, "the token was revoked")

    def left(self, grant: ClientGrant | NodeGrant) -> dict[str, int]:
        """Return how long a token lasts, as `token_refreshed` tells it."""
        left_ms = max(0, int((grant.holds_until - self._clock()) * 1000))
        return {"expires_at_ms": int(grant.holds_until * 1000), "expires_in_ms": left_ms}


def warned_at(grant: ClientGrant | NodeGrant) -> float:
    """Return when the end of a token is told, in seconds since 1970."""
    lifetime_s = grant.holds_until - grant.issued_at
    return grant.holds_until - min(WARN_S, lifetime_s / WARN_SHARE)
