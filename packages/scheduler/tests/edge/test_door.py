"""Access without a socket: tokens are required where keys are set, and nowhere else.

The same over real sockets is in `test_access.py`.
"""

from __future__ import annotations

from typing import get_args

import pytest

from lingua_scheduler.auth.gate import TokenGate
from lingua_scheduler.auth.tokens import InvalidToken, Reason, TokenKeys
from lingua_scheduler.config import AuthSettings, Settings
from lingua_scheduler.edge import token_advice
from lingua_scheduler.edge.request_head import RequestHead
from lingua_scheduler.edge.server import bearer_of
from lingua_scheduler.secret import Secret

pytestmark = pytest.mark.unit

CLIENT_KEY, NODE_KEY, OLD_KEY = (Secret(name * 8) for name in ("client", "node-key", "old-key"))
KEYS = TokenKeys([CLIENT_KEY], [NODE_KEY])


def door(*, client: tuple[Secret, ...] = (), node: tuple[Secret, ...] = ()) -> TokenGate:
    return TokenGate(Settings(auth=AuthSettings(client_keys=client, node_keys=node)))


def head(
    authorization: str | None = None, *subprotocols: str, query: str | None = None
) -> RequestHead:
    headers = {} if authorization is None else {"authorization": authorization}
    return RequestHead(
        "/ws/session", {} if query is None else {"token": query}, headers, subprotocols, ""
    )


def refusal(token: str | None, node: str | None = None) -> str:
    """Return why a locked door refuses a token."""
    locked = door(client=(CLIENT_KEY,), node=(NODE_KEY,))
    with pytest.raises(InvalidToken) as refused:
        locked.client(token) if node is None else locked.node(token, node)
    return refused.value.reason


@pytest.mark.parametrize("token", [None, "", "whatever", KEYS.issue_client().reveal()])
def test_where_no_key_is_set_nobody_is_asked(token: str | None) -> None:
    open_door = door()
    assert not open_door.asks_clients
    assert not open_door.asks_nodes
    assert open_door.client(token) is None
    assert open_door.node(token, "node-a") is None


def test_keys_of_one_kind_do_not_ask_the_other() -> None:
    for_clients = door(client=(CLIENT_KEY,))
    assert (for_clients.asks_clients, for_clients.asks_nodes) == (True, False)
    assert for_clients.node(None, "node-a") is None
    for_nodes = door(node=(NODE_KEY,))
    assert (for_nodes.asks_clients, for_nodes.asks_nodes) == (False, True)
    assert for_nodes.client(None) is None


def test_a_valid_token_says_what_its_bearer_may_do() -> None:
    locked = door(client=(CLIENT_KEY,), node=(NODE_KEY,))
    client = locked.client(KEYS.issue_client(tenant="acme", scopes=["listen"]).reveal())
    assert client is not None
    assert (client.tenant, client.allows("listen"), client.allows("speak")) == ("acme", True, False)
    node = locked.node(KEYS.issue_node("node-a", tenant="acme", max_jobs=3).reveal(), "node-a")
    assert node is not None
    assert (node.node_id, node.tenant, node.max_jobs) == ("node-a", "acme", 3)


@pytest.mark.parametrize(
    ("token", "reason"), [(None, "missing"), ("", "missing"), ("words", "malformed")]
)
@pytest.mark.parametrize("node", [None, "node-a"])
def test_no_token_and_a_bad_one_are_told_apart(
    token: str | None, reason: str, node: str | None
) -> None:
    assert refusal(token, node) == reason


def test_every_reason_is_told_with_what_to_do_about_it() -> None:
    told = {
        reason: token_advice.refusal_text(InvalidToken(reason), token_advice.NODE)
        for reason in get_args(Reason)
    }
    assert len(set(told.values())) == len(told)
    for reason, sentence in told.items():
        if reason != "not_yet":
            assert "lingua token create --node NODE_ID" in sentence, reason


def test_a_token_opens_only_its_own_door() -> None:
    client, node = KEYS.issue_client().reveal(), KEYS.issue_node("node-a").reveal()
    assert refusal(node) == "unknown_key"
    assert refusal(client, "node-a") == "unknown_key"
    assert refusal(node, "node-b") == "wrong_node"
    assert refusal(node, "") == "wrong_node"


def test_every_key_of_the_settings_is_accepted() -> None:
    old = TokenKeys([OLD_KEY], []).issue_client().reveal()
    assert door(client=(CLIENT_KEY, OLD_KEY)).client(old) is not None
    assert refusal(old) == "unknown_key"


@pytest.mark.parametrize(
    ("asked", "token"),
    [
        (head(), None),
        (head("Bearer abc"), "abc"),
        (head("bearer  abc "), "abc"),
        (head("BEARER abc"), "abc"),
        (head("Bearer"), None),
        (head("Bearer "), None),
        (head("Basic abc"), None),
        (head("abc"), None),
        (head(None, "lingua.v1.json"), None),
        (head(None, "lingua.v1.json", "lingua.token.a.b.c"), "a.b.c"),
        (head("Basic abc", "lingua.token.a.b.c"), "a.b.c"),
        (head("Bearer abc", "lingua.token.a.b.c"), "abc"),
        (head(query="abc"), None),
    ],
    ids=range(13),
)
def test_a_token_is_read_from_the_header_or_else_from_a_subprotocol(
    asked: RequestHead, token: str | None
) -> None:
    assert bearer_of(asked) == token
