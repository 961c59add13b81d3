"""The minimal rights of the store's user: our own keys, and the commands that we use.

`lingua config acl` prints the line, docs/operations.md shows it, and tests compare it with the
sources (nothing missing, nothing superfluous) and run the product with it. The commands that a
script calls are listed too: the store checks them as if the user had sent them.
"""

from __future__ import annotations

from typing import Final

# The placeholder that the operator replaces by the password.
PASSWORD: Final = "PASSWORD"  # noqa: S105 a placeholder

# In the form of ACL rules; kept sorted within each group.
COMMANDS: Final = (
    # Connections: log in, choose the database, find the masters, follow a slot that is moved.
    *("asking", "auth", "cluster|slots", "hello", "select"),
    # Functions: called by name, and before that loaded once.
    *("fcall", "function|load"),
    # Keys of any kind, and single values.
    *("del", "exists", "get", "getdel", "pexpire", "set", "time", "unlink"),
    # Hashes.
    *("hdel", "hexists", "hget", "hgetall", "hincrby", "hkeys", "hlen", "hmget", "hset"),
    *("hsetnx",),
    # Lists.
    *("lindex", "llen", "lpop", "lrange", "lrem", "lset", "ltrim", "rpush"),
    # Sets, and sorted sets.
    *("sadd", "smembers", "srem"),
    *("zadd", "zcard", "zcount", "zrange", "zrangebylex", "zrangebyscore", "zrem"),
    *("zremrangebyscore", "zscore"),
    # Streams: the inboxes of instances.
    *("xack", "xadd", "xclaim", "xdel", "xgroup|create", "xinfo|groups", "xlen", "xpending"),
    *("xrange", "xreadgroup", "xrevrange"),
)

# The additional commands of `lingua doctor`. Schedulers do not get them: SCAN returns the names of
# all keys of the database, regardless of the user's key pattern.
OPERATOR_COMMANDS: Final = ("function|list", "hscan", "pttl", "scan", "type")


def acl_rules(prefix: str) -> tuple[str, ...]:
    """Return the rules of a user with exactly the rights of a scheduler.

    They begin with `reset`, so that an existing user keeps no other right.
    """
    return ("reset", "on", f"~{prefix}:v1:*", *(f"+{name}" for name in COMMANDS))


def operator_rules(prefix: str) -> tuple[str, ...]:
    """Return the rules of a user for `lingua doctor`: those of a scheduler, and a few more."""
    return (*acl_rules(prefix), *(f"+{name}" for name in OPERATOR_COMMANDS))


def acl_line(prefix: str, user: str = "lingua") -> str:
    """Return the command that makes the user, with a placeholder for the password."""
    reset, on, *rest = acl_rules(prefix)
    return " ".join(("ACL SETUSER", user, reset, on, f">{PASSWORD}", *rest))
