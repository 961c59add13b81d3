"""The text for a refused token: what is wrong with it, and what to do.

A missing token and an invalid one are different mistakes. Both are `UNAUTHORIZED`, because a
program handles both in the same way: it gets a valid token. No text holds any part of a token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from lingua_scheduler.auth.tokens import InvalidToken

CLIENT: Final = "`lingua token create --client`"
ADMIN: Final = "`lingua token create --client --scopes admin`"
NODE: Final = "`lingua token create --node NODE_ID`"
REALM: Final = 'Bearer realm="lingua"'

# The remedy by reason; `{make}` is the command that makes a token of the right kind.
REMEDIES: Final = {
    "missing": "make one with {make} and send it as `Authorization: Bearer TOKEN`",
    "malformed": "it is not a token, or is incomplete; {make} makes one",
    "bad_signature": "it was changed, or signed with another key; make a new one with {make}",
    "unknown_key": "it was signed with a key this scheduler does not have; make one with {make} "
    "and this scheduler's settings",
    "revoked": "ask the operator who revoked it, or make a new one with {make}",
    "expired": "make a new one with {make}",
    "not_yet": "the clocks of the machine that made it and of this one differ",
    "wrong_audience": "it is for another kind of peer; make one with {make}",
    "wrong_type": "it is for another kind of peer; make one with {make}",
    "wrong_node": "it is for another node id; make one for this node with {make}",
}


def refusal_text(problem: InvalidToken, make: str) -> str:
    """Return the text for a refused caller."""
    remedy = REMEDIES.get(problem.reason, "make a new one with {make}")
    return f"{problem}; {remedy.format(make=make)}"


def challenge(problem: InvalidToken) -> dict[str, str]:
    """Return the header of a 401 (RFC 6750); without an error if no token was given."""
    if problem.reason == "missing":
        return {"WWW-Authenticate": REALM}
    what = f'error="invalid_token", error_description="{problem.reason}"'
    return {"WWW-Authenticate": f"{REALM}, {what}"}
