"""Keys and tokens for servers that ask for them: short-lived ones, and whoever shows them."""

from __future__ import annotations

import time
from typing import Any

from lingua_scheduler.auth.tokens import LEEWAY_S, TokenKeys
from lingua_scheduler.secret import Secret

CLIENT_KEY, NODE_KEY = "client-key-" * 4, "node-key-" * 4
LOCKED: dict[str, Any] = {"auth__client_keys": [CLIENT_KEY], "auth__node_keys": [NODE_KEY]}


def keys(shift_s: float = 0.0) -> TokenKeys:
    """Return the keys with a clock that is so far off."""
    return TokenKeys([Secret(CLIENT_KEY)], [Secret(NODE_KEY)], lambda: time.time() + shift_s)


def client_token(**grant: Any) -> str:
    """Return a client's token that lasts."""
    return keys().issue_client(**grant).reveal()


def node_token(name: str, **grant: Any) -> str:
    """Return a node's token that lasts."""
    return keys().issue_node(name, **grant).reveal()


def ending(left_s: float) -> TokenKeys:
    """Return keys whose tokens of 10 s are let in for about so long from now on."""
    return keys(left_s - LEEWAY_S - 10)


def ending_client(left_s: float = 2, **grant: Any) -> str:
    """Return a client's token that is let in for about so long."""
    return ending(left_s).issue_client(ttl_s=10, **grant).reveal()


def ending_node(name: str, left_s: float = 2, **grant: Any) -> str:
    """Return a node's token that is let in for about so long."""
    return ending(left_s).issue_node(name, ttl_s=10, **grant).reveal()
