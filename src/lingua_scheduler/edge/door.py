"""Who may come in: reads tokens where keys are set, asks nobody where none are.

What a token allows is known here for as long as its socket is open: see `permits.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lingua_scheduler.tokens import InvalidToken, TokenKeys

if TYPE_CHECKING:
    from lingua_scheduler.config import Settings
    from lingua_scheduler.edge.head import Head
    from lingua_scheduler.edge.permits import Holder, Permits
    from lingua_scheduler.tokens import ClientGrant, NodeGrant

# A browser cannot set headers, but it can offer `lingua.token.<token>` as a subprotocol.
TOKEN_SUBPROTOCOL = "lingua.token."  # noqa: S105 a prefix, not a secret


class Door:
    """Checks tokens for one deployment."""

    def __init__(self, settings: Settings, permits: Permits | None = None) -> None:
        auth = settings.auth
        # Who is revoked, and who is looked at while its socket is open; None: nobody.
        self.permits = permits
        self._keys = TokenKeys(auth.client_keys, auth.node_keys)
        self.asks_clients = bool(auth.client_keys)
        self.asks_nodes = bool(auth.node_keys)

    def client(self, token: str | None) -> ClientGrant | None:
        """Return what a client may do; None where nobody is asked. Raises `InvalidToken`."""
        if not self.asks_clients:
            return None
        if not token:
            raise InvalidToken("missing")
        grant = self._keys.read_client(token)
        self._check(grant)
        return grant

    def node(self, token: str | None, node_id: str) -> NodeGrant | None:
        """Return what a node may do; None where nobody is asked. Raises `InvalidToken`."""
        if not self.asks_nodes:
            return None
        if not token:
            raise InvalidToken("missing")
        grant = self._keys.read_node(token, node_id)
        self._check(grant)
        return grant

    def hold(self, holder: Holder) -> None:
        """Look at a socket's token from now on, until the socket ends."""
        if self.permits is not None and holder.grant is not None:
            self.permits.hold(holder)

    def _check(self, grant: ClientGrant | NodeGrant) -> None:
        if self.permits is not None and self.permits.is_revoked(grant):
            raise InvalidToken("revoked")


def bearer_of(head: Head) -> str | None:
    """Return the token of a request's header or subprotocol, if it has one."""
    scheme, _, token = head.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and token:
        return token.strip()
    for offered in head.subprotocols:
        if offered.startswith(TOKEN_SUBPROTOCOL):
            return offered.removeprefix(TOKEN_SUBPROTOCOL)
    return None
