"""Reads and checks tokens if keys are set; allows everybody if none are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lingua_scheduler.auth.tokens import InvalidToken, TokenKeys

if TYPE_CHECKING:
    from lingua_scheduler.auth.expiry import TokenHolder, TokenWatch
    from lingua_scheduler.auth.tokens import ClientGrant, NodeGrant
    from lingua_scheduler.config import Settings
    from lingua_scheduler.state.revocations import Revocations


class TokenGate:
    """Checks tokens for one deployment."""

    def __init__(self, settings: Settings, watch: TokenWatch | None = None) -> None:
        auth = settings.auth
        # Knows revoked tokens and watches the tokens of open sockets; None: neither is done.
        self._watch = watch
        self._keys = TokenKeys(auth.client_keys, auth.node_keys)
        self.asks_clients = bool(auth.client_keys)
        self.asks_nodes = bool(auth.node_keys)

    def client(self, token: str | None) -> ClientGrant | None:
        """Return what a client may do; None where no keys are set. Raises `InvalidToken`."""
        if not self.asks_clients:
            return None
        if not token:
            raise InvalidToken("missing")
        grant = self._keys.read_client(token)
        self._check(grant)
        return grant

    def node(self, token: str | None, node_id: str) -> NodeGrant | None:
        """Return what a node may do; None where no keys are set. Raises `InvalidToken`."""
        if not self.asks_nodes:
            return None
        if not token:
            raise InvalidToken("missing")
        grant = self._keys.read_node(token, node_id)
        self._check(grant)
        return grant

    def watch(self, holder: TokenHolder) -> None:
        """Watch a socket's token from now on, until the socket ends."""
        if self._watch is not None and holder.grant is not None:
            self._watch.hold(holder)

    def left(self, grant: ClientGrant | NodeGrant | None) -> dict[str, int]:
        """Return how long a token lasts, as `token_refreshed` reports it."""
        return self._watch.left(grant) if self._watch is not None and grant is not None else {}

    def look(self) -> None:
        """Check the tokens of open sockets now: the list of revoked ones has changed."""
        if self._watch is not None:
            self._watch.look()

    @property
    def revocations(self) -> Revocations:
        """Return the list of revoked tokens."""
        assert self._watch is not None, "a gate that serves has the list"
        return self._watch.revocations

    def _check(self, grant: ClientGrant | NodeGrant) -> None:
        if self._watch is not None and self._watch.is_revoked(grant):
            raise InvalidToken("revoked")
