"""The token of a request: from its `Authorization` header, or from an offered subprotocol."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

# A browser cannot set headers, but it can offer `lingua.token.<token>` as a subprotocol.
TOKEN_SUBPROTOCOL = "lingua.token."  # noqa: S105 a prefix, not a secret


def bearer_token(authorization: str) -> str | None:
    """Return the token of an `Authorization` header; None if it has none."""
    scheme, _, token = authorization.partition(" ")
    return token.strip() if scheme.lower() == "bearer" and token else None


def offered_token(
    authorization: str, subprotocols: Iterable[str], prefix: str = TOKEN_SUBPROTOCOL
) -> str | None:
    """Return the token of the header, else that of the first subprotocol with this prefix."""
    token = bearer_token(authorization)
    if token is not None:
        return token
    for offered in subprotocols:
        if offered.startswith(prefix):
            return offered.removeprefix(prefix)
    return None
