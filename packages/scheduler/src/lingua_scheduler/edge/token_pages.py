"""The HTTP pages of the revocation list: revoke tokens, restore them, show the list.

A caller that is bound to a tenant revokes and sees only that tenant's tokens.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from lingua_scheduler.auth.tokens import NAME_CHARS_MAX, named, until_of
from lingua_scheduler.edge.answers import ApiAnswer
from lingua_scheduler.edge.guard import Problem
from lingua_scheduler.edge.routes import API, ApiRoute
from lingua_scheduler.state.keys import identifier
from lingua_scheduler.state.revocations import Revoked

if TYPE_CHECKING:
    from lingua_scheduler.auth.gate import TokenGate
    from lingua_scheduler.edge.api_call import ApiCall
    from lingua_scheduler.state.revocations import Revocations

TOKENS = f"{API}/tokens"
SHOWN_MAX = 500
_Name = Annotated[str, Meta(min_length=1, max_length=NAME_CHARS_MAX)]


class RestoreRequest(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Selects tokens: the one with this `id`, or all of this `subject`."""

    id: _Name | None = None
    subject: _Name | None = None
    tenant: Annotated[str, Meta(max_length=128)] = ""


class RevokeRequest(RestoreRequest, frozen=True, kw_only=True):
    """Selects tokens to refuse until `until_ms` (default: until every token has expired)."""

    until_ms: Annotated[int, Meta(ge=0, le=1 << 53)] | None = None


class RevokedAnswer(ApiAnswer, frozen=True, kw_only=True):
    """Refused tokens: `kind` is `id` or `subject`; an empty tenant means any tenant."""

    kind: str
    name: str
    tenant: str
    until_ms: int


class RestoredAnswer(ApiAnswer, frozen=True, kw_only=True):
    """Whether these tokens were refused before."""

    was_revoked: bool


class RevokedPage(ApiAnswer, frozen=True, kw_only=True):
    """The revocation list, latest end first; `more` counts the entries that are not shown."""

    revoked: tuple[RevokedAnswer, ...]
    more: int


class TokenPages:
    """The pages of the revocation list."""

    def __init__(self, gate: TokenGate) -> None:
        self._gate = gate
        self.routes = (
            ApiRoute(
                path=f"{TOKENS}/revoked",
                summary="Tokens that are refused.",
                handler=self.revoked,
                answer=RevokedPage,
                asks_store=True,
            ),
            ApiRoute(
                method="POST",
                path=f"{TOKENS}/revoke",
                summary="Refuse a token, or all tokens of a subject, on every instance.",
                handler=self.revoke,
                answer=RevokedAnswer,
                body=RevokeRequest,
                asks_store=True,
            ),
            ApiRoute(
                method="POST",
                path=f"{TOKENS}/restore",
                summary="Accept revoked tokens again.",
                handler=self.restore,
                answer=RestoredAnswer,
                body=RestoreRequest,
                asks_store=True,
            ),
        )

    async def revoked(self, call: ApiCall) -> RevokedPage:
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

    async def revoke(self, call: ApiCall) -> RevokedAnswer:
        """Add tokens to the list; their sockets on this instance are closed at once."""
        one, asked = selected_tokens(call), call.body.until_ms
        until_ms = until_of(None if asked is None else asked / 1000, time.time())
        await self._known.revoke(one, until_ms)
        self._gate.look()
        return RevokedAnswer(kind=one.kind, name=one.name, tenant=one.tenant, until_ms=until_ms)

    async def restore(self, call: ApiCall) -> RestoredAnswer:
        """Remove tokens from the list."""
        return RestoredAnswer(was_revoked=await self._known.restore(selected_tokens(call)))

    @property
    def _known(self) -> Revocations:
        return self._gate.revocations


def selected_tokens(call: ApiCall) -> Revoked:
    """Return the tokens that a request selects, or raise `Problem`."""
    body: RestoreRequest = call.body
    if (body.id is None) is (body.subject is None):
        raise Problem(422, "INVALID_PARAMETER", "give either `id` or `subject`")
    tenant = identifier("tenant", body.tenant) if body.tenant else call.seen_by
    if call.seen_by and tenant != call.seen_by:
        raise Problem(403, "FORBIDDEN", "the token is bound to another tenant")
    if body.id is not None:
        return Revoked("id", named("id", body.id), tenant)
    return Revoked("subject", named("subject", body.subject or ""), tenant)
