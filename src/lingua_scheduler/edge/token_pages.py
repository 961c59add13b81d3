"""The HTTP side of the list of revoked tokens: put on it, take off it, show it.

A caller that is bound to a tenant revokes and sees that tenant's tokens alone.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from lingua_scheduler.edge.answers import Answer
from lingua_scheduler.edge.guard import Problem
from lingua_scheduler.edge.openapi import Route
from lingua_scheduler.state.keys import identifier
from lingua_scheduler.state.revocations import Revoked
from lingua_scheduler.tokens import NAME_CHARS_MAX, named, until_of

if TYPE_CHECKING:
    from lingua_scheduler.edge.door import Door
    from lingua_scheduler.edge.http import Call
    from lingua_scheduler.state.revocations import Revocations

API = "/api/v1/tokens"
SHOWN_MAX = 500
_Name = Annotated[str, Meta(min_length=1, max_length=NAME_CHARS_MAX)]


class RestoreRequest(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which tokens: the one with this `id`, or all of this `subject`."""

    id: _Name | None = None
    subject: _Name | None = None
    tenant: Annotated[str, Meta(max_length=128)] = ""


class RevokeRequest(RestoreRequest, frozen=True, kw_only=True):
    """Which tokens are refused, and until when; without `until_ms` as long as any can live."""

    until_ms: Annotated[int, Meta(ge=0, le=1 << 53)] | None = None


class RevokedAnswer(Answer, frozen=True, kw_only=True):
    """Tokens that are refused: `kind` is `id` or `subject`; an empty tenant is any."""

    kind: str
    name: str
    tenant: str
    until_ms: int


class RestoredAnswer(Answer, frozen=True, kw_only=True):
    """Whether these tokens were refused before."""

    was_revoked: bool


class RevokedPage(Answer, frozen=True, kw_only=True):
    """What is revoked, the longest first; `more` tells how many are not shown."""

    revoked: tuple[RevokedAnswer, ...]
    more: int


class TokenPages:
    """Who is revoked."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self.routes = (
            Route("GET", f"{API}/revoked", "Tokens that are refused.", self.revoked,
                  answer=RevokedPage, asks_store=True),
            Route("POST", f"{API}/revoke", "Refuse a token, or all of a subject, everywhere.",
                  self.revoke, answer=RevokedAnswer, body=RevokeRequest, asks_store=True),
            Route("POST", f"{API}/restore", "Refuse them no longer.", self.restore,
                  answer=RestoredAnswer, body=RestoreRequest, asks_store=True),
        )  # fmt: skip

    async def revoked(self, call: Call) -> RevokedPage:
        """Show the list."""
        known = self._known
        await known.read()
        seen = [
            RevokedAnswer(kind=one.kind, name=one.name, tenant=one.tenant, until_ms=until)
            for one, until in known.until_ms.items()
            if call.seen_by in ("", one.tenant)
        ]
        seen.sort(key=lambda one: (-one.until_ms, one.kind, one.name))
        return RevokedPage(revoked=tuple(seen[:SHOWN_MAX]), more=max(0, len(seen) - SHOWN_MAX))

    async def revoke(self, call: Call) -> RevokedAnswer:
        """Put tokens on the list; sockets here are closed at once."""
        one, asked = which(call), call.body.until_ms
        until_ms = until_of(None if asked is None else asked / 1000, time.time())
        await self._known.revoke(one, until_ms)
        assert self._door.permits is not None
        self._door.permits.look()
        return RevokedAnswer(kind=one.kind, name=one.name, tenant=one.tenant, until_ms=until_ms)

    async def restore(self, call: Call) -> RestoredAnswer:
        """Take tokens off the list."""
        return RestoredAnswer(was_revoked=await self._known.restore(which(call)))

    @property
    def _known(self) -> Revocations:
        assert self._door.permits is not None, "a served door knows the list"
        return self._door.permits.revocations


def which(call: Call) -> Revoked:
    """Return the tokens that a request means, or raise `Problem`."""
    body: RestoreRequest = call.body
    if (body.id is None) is (body.subject is None):
        raise Problem(422, "INVALID_PARAMETER", "give either `id` or `subject`")
    tenant = identifier("tenant", body.tenant) if body.tenant else call.seen_by
    if call.seen_by and tenant != call.seen_by:
        raise Problem(403, "FORBIDDEN", "the token is bound to another tenant")
    if body.id is not None:
        return Revoked("id", named("id", body.id), tenant)
    return Revoked("subject", named("subject", body.subject or ""), tenant)
