"""Tokens of open sockets: the peer is warned, and the socket closed on expiry or revocation.

One loop for all sockets of an instance checks each token once a second. A socket is closed when its
token would be refused, so that its peer cannot reconnect with the same token. The list of revoked
tokens is read from the store in the same loop; while the store is unavailable, the last one counts.
"""

from __future__ import annotations

import asyncio
from time import time
from typing import TYPE_CHECKING, Final, Protocol

from lingua_scheduler.auth.tokens import LEEWAY_S
from lingua_scheduler.errors import StoreRejected, StoreUnavailable
from lingua_wire.codes import CloseCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from lingua_cli.logs import EventLog
    from lingua_scheduler.auth.tokens import ClientGrant, NodeGrant
    from lingua_scheduler.state.revocations import Revocations

LOOK_EVERY_S: Final = 1.0
# How long before its expiry the peer is warned; for short-lived tokens, in the last fifth.
WARN_S: Final = 60.0
WARN_SHARE: Final = 5
# How often closed sockets are removed.
SWEEP_EVERY_S: Final = 10.0


class TokenHolder(Protocol):
    """An open socket and what its token allows."""

    @property
    def grant(self) -> ClientGrant | NodeGrant | None:
        """Return what the token allows; None where no keys are set."""

    @property
    def is_open(self) -> bool:
        """Tell whether the socket is open."""

    def token_expires(self, in_ms: int) -> bool:
        """Warn the peer if it is past its handshake; tells whether it was warned."""

    def token_ends(self, code: CloseCode, reason: str) -> None:
        """Close the socket: the token is not valid any more."""


class TokenWatch:
    """The tokens of all open sockets of an instance."""

    def __init__(
        self, revocations: Revocations, log: EventLog, clock: Callable[[], float] = time
    ) -> None:
        self.revocations = revocations
        self._log = log
        # Wall clock in seconds, as in tokens.
        self._clock = clock
        # Socket -> when to check it next, in seconds since 1970.
        self._holders: dict[TokenHolder, float] = {}
        # Socket -> the expiry it was warned of: once for each expiry.
        self._warned: dict[TokenHolder, float] = {}
        # When closed sockets were last removed.
        self._swept_at = 0.0
        # The version of the list that all holders were last checked against.
        self._seen = revocations.changes

    def is_revoked(self, grant: ClientGrant | NodeGrant) -> bool:
        """Tell whether a token is on the list, by its id or its subject."""
        return self.revocations.holds(grant.id, grant.subject, grant.tenant)

    def hold(self, holder: TokenHolder) -> None:
        """Watch this socket and its present token; a closed socket is removed by the loop."""
        assert holder.grant is not None, "no keys are set: there is nothing to watch"
        self._holders[holder] = self._due_at(holder, holder.grant)
        if self.is_revoked(holder.grant):
            self._revoke(holder)

    def _due_at(self, holder: TokenHolder, grant: ClientGrant | NodeGrant) -> float:
        if self._warned.get(holder) != grant.holds_until:
            return warned_at(grant)
        return grant.holds_until + LEEWAY_S

    async def run(self) -> None:
        """Read the list and check all sockets until cancelled."""
        while True:
            await self.read()
            self.look()
            await asyncio.sleep(LOOK_EVERY_S)

    async def read(self) -> None:
        """Read the list of revoked tokens; an unavailable store changes nothing."""
        try:
            async with asyncio.timeout(LOOK_EVERY_S):
                await self.revocations.read()
        except (StoreUnavailable, StoreRejected, TimeoutError):
            return  # reported by the loops that need the store

    def look(self) -> None:
        """Warn of tokens that end soon, close sockets whose token ended.

        The others cost one comparison each.
        """
        now = self._clock()
        if self._seen != self.revocations.changes or now - self._swept_at >= SWEEP_EVERY_S:
            self._sweep(now)
        for holder in [holder for holder, due in self._holders.items() if due <= now]:
            self._look_at(holder, now)

    def _sweep(self, now: float) -> None:
        """Remove closed sockets, close those whose token is revoked."""
        self._seen, self._swept_at = self.revocations.changes, now
        for holder in tuple(self._holders):
            if holder.grant is None or not holder.is_open:
                self._let_go(holder)
            elif self.is_revoked(holder.grant):
                self._revoke(holder)

    def _look_at(self, holder: TokenHolder, now: float) -> None:
        grant = holder.grant
        if grant is None or not holder.is_open:
            self._let_go(holder)
        elif grant.holds_until + LEEWAY_S <= now:
            self._let_go(holder)
            holder.token_ends(CloseCode.TOKEN_EXPIRED, "the token has expired")
        elif holder.token_expires(max(0, int((grant.holds_until - now) * 1000))):
            self._warned[holder] = grant.holds_until
            self._holders[holder] = self._due_at(holder, grant)

    def _let_go(self, holder: TokenHolder) -> None:
        del self._holders[holder]
        self._warned.pop(holder, None)

    def _revoke(self, holder: TokenHolder) -> None:
        self._let_go(holder)
        self._log("token.revoked", socket=type(holder).__name__)
        holder.token_ends(CloseCode.TOKEN_REVOKED, "the token was revoked")

    def left(self, grant: ClientGrant | NodeGrant) -> dict[str, int]:
        """Return how long a token lasts, as `token_refreshed` reports it."""
        left_ms = max(0, int((grant.holds_until - self._clock()) * 1000))
        return {"expires_at_ms": int(grant.holds_until * 1000), "expires_in_ms": left_ms}


def warned_at(grant: ClientGrant | NodeGrant) -> float:
    """Return when the holder of a token is warned, in seconds since 1970."""
    lifetime_s = grant.holds_until - grant.issued_at
    return grant.holds_until - min(WARN_S, lifetime_s / WARN_SHARE)
