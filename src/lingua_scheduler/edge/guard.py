"""Who may call what on the HTTP side, and how a request is refused.

Where client keys are set, a client token with the scope `admin` is asked for (`speak` for what is
in `openai/`). Where none are, only this machine can connect; then the danger is a web page that
uses a visitor's browser to come in: a page of another origin may not act, and a name that is not
this machine's is not answered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lingua_scheduler.edge import advice
from lingua_scheduler.edge.head import is_loopback, is_origin_allowed
from lingua_scheduler.messages.codes import ErrorCode
from lingua_scheduler.tokens import InvalidToken

if TYPE_CHECKING:
    from aiohttp import web

    from lingua_scheduler.config import Server
    from lingua_scheduler.edge.door import Door
    from lingua_scheduler.edge.openapi import Route
    from lingua_scheduler.tokens import ClientGrant


class Problem(Exception):
    """A request that is answered with an error."""

    def __init__(
        self, status: int, code: str, message: str, headers: dict[str, str] | None = None
    ) -> None:
        self.status = status
        self.code = code
        self.headers = headers or {}
        super().__init__(message)


class Guard:
    """Who may call what."""

    def __init__(self, server: Server, door: Door) -> None:
        self._door = door
        self._origins = frozenset(origin.lower() for origin in server.origins)
        self._behind_proxy = server.behind_proxy

    def let_in(self, request: web.Request, route: Route) -> str:
        """Return the tenant a caller is bound to, empty for none; or raise `Problem`."""
        self._check_page(request, route)
        if route.access == "open":
            return ""
        if not self._door.asks_clients:
            self._check_host(request, route)
            return ""
        if route.access == "near" and self._is_near(request):
            return ""
        return self._tenant_of(request)

    def speaker(self, request: web.Request, route: Route) -> ClientGrant | None:
        """Return what a caller with speech may do, None where nobody is asked; or `Problem`."""
        self._check_page(request, route)
        if not self._door.asks_clients:
            self._check_host(request, route)
            return None
        grant = self._grant_of(request, advice.CLIENT)
        if not grant.allows("speak"):
            raise Problem(403, ErrorCode.FORBIDDEN, "the token lacks the scope `speak`")
        return grant

    def _tenant_of(self, request: web.Request) -> str:
        grant = self._grant_of(request, advice.ADMIN)
        if not grant.allows("admin"):
            problem = f"the token lacks the scope `admin`; make one with {advice.ADMIN}"
            raise Problem(403, ErrorCode.FORBIDDEN, problem)
        return grant.tenant

    def _grant_of(self, request: web.Request, make: str) -> ClientGrant:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        try:
            grant = self._door.client(token.strip() if scheme.lower() == "bearer" else None)
        except InvalidToken as problem:
            told, asked = advice.told(problem, make), advice.challenge(problem)
            raise Problem(401, ErrorCode.UNAUTHORIZED, told, asked) from None
        assert grant is not None, "this door asks clients"
        return grant

    def _is_near(self, request: web.Request) -> bool:
        """Tell whether the peer is on this machine; behind a proxy that cannot be told."""
        return not self._behind_proxy and is_loopback(request.remote or "")

    def _check_page(self, request: web.Request, route: Route) -> None:
        """Refuse acts that a web page of elsewhere asks a visitor's browser for."""
        origin, host = request.headers.get("Origin"), request.headers.get("Host", "")
        if route.method == "GET" or origin is None:
            return
        near = _by_loopback(request)
        if not is_origin_allowed(origin, host, self._origins, by_loopback=near):
            raise Problem(403, ErrorCode.FORBIDDEN, "origin not allowed")

    def _check_host(self, request: web.Request, route: Route) -> None:
        """Where no token protects: refuse a name that anybody may have pointed at this machine."""
        host = request.headers.get("Host", "").lower()
        if route.access not in ("admin", "speak") or not self._origins.isdisjoint(
            {f"http://{host}", f"https://{host}"}
        ):
            return
        if not is_origin_allowed(f"http://{host}", host, frozenset(), by_loopback=True):
            problem = "ask by an address or as localhost, or set client keys or server.origins"
            raise Problem(403, ErrorCode.FORBIDDEN, problem)


def _by_loopback(request: web.Request) -> bool:
    """Tell whether a connection came in at an address of this machine alone."""
    ours = request.transport.get_extra_info("sockname") if request.transport else None
    return is_loopback(ours[0]) if ours else True
