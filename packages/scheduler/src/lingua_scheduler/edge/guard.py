"""Access control of the HTTP API, and how a request is refused.

If client keys are set, a client token with the scope `admin` is required (`speak` for `openai/`).
If none are set, only this machine can connect. Then the danger is a web page that sends requests
through a local user's browser: pages of another origin may not change anything, and requests for a
host name that is not this machine's are refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lingua_scheduler.auth.bearer import bearer_token
from lingua_scheduler.auth.policy import NOT_IN_ROOM
from lingua_scheduler.auth.tokens import InvalidToken
from lingua_scheduler.edge import token_advice
from lingua_scheduler.edge.request_head import client_address, is_loopback, is_origin_allowed
from lingua_wire.codes import ErrorCode

if TYPE_CHECKING:
    from aiohttp import web

    from lingua_scheduler.auth.gate import TokenGate
    from lingua_scheduler.auth.tokens import ClientGrant
    from lingua_scheduler.config import ServerSettings
    from lingua_scheduler.edge.routes import ApiRoute


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
    """Decides which requests are allowed."""

    def __init__(self, server: ServerSettings, gate: TokenGate) -> None:
        self._gate = gate
        self._origins = frozenset(origin.lower() for origin in server.origins)
        self._behind_proxy = server.behind_proxy

    def let_in(self, request: web.Request, route: ApiRoute) -> str:
        """Return the tenant a caller is bound to, empty for none; or raise `Problem`."""
        self._check_page(request, route)
        if route.access == "open":
            return ""
        if not self._gate.asks_clients:
            self._check_host(request, route)
            return ""
        if route.access == "near" and self._is_near(request):
            return ""
        return self._admin_of(request).tenant

    def speaker(self, request: web.Request, route: ApiRoute) -> ClientGrant | None:
        """Return the grant of a caller that sends speech, None without keys; or raise `Problem`."""
        self._check_page(request, route)
        if not self._gate.asks_clients:
            self._check_host(request, route)
            return None
        grant = self._grant_of(request, token_advice.CLIENT)
        if not grant.allows("speak"):
            raise Problem(403, ErrorCode.FORBIDDEN, "the token lacks the scope `speak`")
        if grant.room:
            raise Problem(403, ErrorCode.FORBIDDEN, NOT_IN_ROOM)
        return grant

    def guest(self, request: web.Request, route: ApiRoute) -> ClientGrant | None:
        """Return the grant of a caller of a room's page, None without keys; or raise `Problem`.

        A browser cannot set a header for Server-Sent Events: the token may be a parameter.
        """
        self._check_page(request, route)
        if not self._gate.asks_clients:
            self._check_host(request, route)
            return None
        return self._grant_of(request, token_advice.CLIENT, request.query.get("token", ""))

    def operator(self, request: web.Request, route: ApiRoute) -> ClientGrant | None:
        """Return the grant of an operator of all tenants, None without keys; or raise `Problem`."""
        self._check_page(request, route)
        if not self._gate.asks_clients:
            self._check_host(request, route)
            return None
        grant = self._admin_of(request)
        if grant.tenant:
            problem = "the token is bound to a tenant, and this is about all of them"
            raise Problem(403, ErrorCode.FORBIDDEN, problem)
        return grant

    def address(self, request: web.Request) -> str:
        """Return the caller's address; behind a proxy the one that the proxy names."""
        peer = request.remote or ""
        if not self._behind_proxy:
            return peer
        return client_address(peer, ",".join(request.headers.getall("X-Forwarded-For", ())))

    def _admin_of(self, request: web.Request) -> ClientGrant:
        grant = self._grant_of(request, token_advice.ADMIN)
        if not grant.allows("admin"):
            problem = f"the token lacks the scope `admin`; make one with {token_advice.ADMIN}"
            raise Problem(403, ErrorCode.FORBIDDEN, problem)
        return grant

    def _grant_of(self, request: web.Request, make: str, given: str = "") -> ClientGrant:
        try:
            token = bearer_token(request.headers.get("Authorization", "")) or given
            grant = self._gate.client(token)
        except InvalidToken as problem:
            text, headers = (
                token_advice.refusal_text(problem, make),
                token_advice.challenge(problem),
            )
            raise Problem(401, ErrorCode.UNAUTHORIZED, text, headers) from None
        assert grant is not None, "keys of clients are set"
        return grant

    def _is_near(self, request: web.Request) -> bool:
        """Tell whether the peer is on this machine; behind a proxy that is unknown, hence False."""
        return not self._behind_proxy and is_loopback(request.remote or "")

    def _check_page(self, request: web.Request, route: ApiRoute) -> None:
        """Refuse changes that a web page of another origin requests through a user's browser."""
        origin = request.headers.get("Origin")
        if route.method == "GET" or origin is None:
            return
        if not self.allows_page(request, origin):
            raise Problem(403, ErrorCode.FORBIDDEN, "origin not allowed")

    def allows_page(self, request: web.Request, origin: str) -> bool:
        """Tell whether a page of this origin may change things, and open sockets."""
        host, near = request.headers.get("Host", ""), _by_loopback(request)
        return is_origin_allowed(origin, host, self._origins, by_loopback=near)

    def _check_host(self, request: web.Request, route: ApiRoute) -> None:
        """Refuse, if no keys are set, a host name that anybody may have pointed at this machine."""
        host = request.headers.get("Host", "").lower()
        if route.access not in ("admin", "speak", "room") or not self._origins.isdisjoint(
            {f"http://{host}", f"https://{host}"}
        ):
            return
        if not is_origin_allowed(f"http://{host}", host, frozenset(), by_loopback=True):
            problem = "ask by an address or as localhost, or set client keys or server.origins"
            raise Problem(403, ErrorCode.FORBIDDEN, problem)


def _by_loopback(request: web.Request) -> bool:
    """Tell whether a connection arrived at a loopback address."""
    ours = request.transport.get_extra_info("sockname") if request.transport else None
    return is_loopback(ours[0]) if ours else True
