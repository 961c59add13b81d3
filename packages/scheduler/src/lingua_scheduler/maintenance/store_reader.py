"""Reads a store that may be large or damaged, page by page.

Keys come from all masters of a cluster. A command on a key of the wrong type returns None, so that
one damaged key does not stop the scan. This module does not know the meaning of keys.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from lingua_scheduler.errors import StoreRejected
from lingua_scheduler.state.keys import FAMILIES, INSTANCE_FAMILIES, TAGGED
from lingua_wire.errors import LinguaError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from lingua_scheduler.state.connection import Connection
    from lingua_scheduler.state.keys import KeyFamily
    from lingua_scheduler.state.script import Word

# The most elements that one command returns.
PAGE = 500
# The most keys that one scan reads; if there are more, the result says so.
KEYS_MAX = 2_000_000
INSTANCE_TAG = re.compile(r":v1:\{i:([^{}]+)\}:")
GLOB = re.compile(r"([*?\[\]\\])")


class NotAllowed(LinguaError):
    """The store user may not use a command that only operators need."""

    def __init__(self, command: str, user_hint: str) -> None:
        self.command = command
        super().__init__(f"this user of the store may not use {command}: {user_hint}")


class KeyName(NamedTuple):
    """A key of the data dictionary: its cell or instance, its family, the rest of its name."""

    key: str
    # `c0`, or '' for a key of an instance.
    cell: str
    instance: str
    family: KeyFamily
    rest: str


_BY_HEAD: dict[tuple[bool, str], tuple[KeyFamily, re.Pattern[str]]] = {
    (of_cell, family.pattern.partition(":")[0]): (family, family.regex())
    for of_cell, families in ((True, FAMILIES), (False, INSTANCE_FAMILIES))
    for family in families
}


def read_key(key: str, prefix: str) -> KeyName | None:
    """Parse a key's name; None if the data dictionary does not have it."""
    found = TAGGED.fullmatch(key[len(prefix) :]) if key.startswith(prefix) else None
    if found is None:
        return None
    cell = found["cell"] or ""
    head, _, rest = found["rest"].partition(":")
    known = _BY_HEAD.get((bool(cell), head))
    if known is None or not known[1].fullmatch(found["rest"]):
        return None
    tag = INSTANCE_TAG.match(key[len(prefix) :])
    return KeyName(key, cell, tag[1] if tag else "", known[0], rest)


class StoreReader:
    """Reads one store and counts the keys it has seen."""

    def __init__(self, connection: Connection, prefix: str, keys_max: int = KEYS_MAX) -> None:
        self._connection = connection
        self._prefix = prefix
        self._keys_max = keys_max
        # Keys seen so far; some may count twice.
        self.keys_seen = 0
        # Whether there are more keys than one scan reads.
        self.is_cut = False

    async def keys(self) -> AsyncIterator[list[str]]:
        """Yield all keys under the prefix, master by master."""
        pattern = GLOB.sub(r"\\\1", self._prefix) + ":*"
        for slot in self._connection.masters():
            cursor: bytes = b"0"
            while True:
                cursor, found = await self._scan(slot, cursor, pattern)
                if found:
                    self.keys_seen += len(found)
                    yield [key.decode(errors="replace") for key in found]
                if cursor == b"0":
                    break
                if self.keys_seen >= self._keys_max:
                    self.is_cut = True
                    return

    async def scores(self, slot: int, key: Word) -> AsyncIterator[list[tuple[str, int]]]:
        """Yield the members of a sorted set by score; a member that moves meanwhile may repeat."""
        start: Word = "-inf"
        skip = 0
        while True:
            (raw,) = await self.ask(
                slot,
                [("ZRANGEBYSCORE", key, start, "+inf", "WITHSCORES", "LIMIT", skip, PAGE)],
            )
            rows = [(raw[i].decode(), int(float(raw[i + 1]))) for i in range(0, len(raw or ()), 2)]
            if rows:
                yield rows
            if len(rows) < PAGE:
                return
            last = rows[-1][1]
            same = sum(score == last for _, score in rows)
            # Members with the last score are skipped by count: more of them may follow.
            skip = skip + same if start == last else same
            start = last

    async def fields(self, slot: int, key: Word) -> AsyncIterator[list[tuple[str, str]]]:
        """Yield the fields of a hash."""
        cursor: Word = "0"
        while True:
            (answer,) = await self.ask(slot, [("HSCAN", key, cursor, "COUNT", PAGE)])
            if answer is None:
                return
            cursor, flat = answer
            yield [(flat[i].decode(), flat[i + 1].decode()) for i in range(0, len(flat), 2)]
            if cursor == b"0":
                return

    async def names(self, slot: int, key: Word) -> AsyncIterator[list[str]]:
        """Yield the members of a sorted set whose scores are all the same, by name."""
        after = "-"
        while True:
            (raw,) = await self.ask(slot, [("ZRANGEBYLEX", key, after, "+", "LIMIT", 0, PAGE)])
            if not raw:
                return
            yield [name.decode() for name in raw]
            after = f"({raw[-1].decode()}"

    async def ask(self, slot: int, calls: Iterable[tuple[Word, ...]]) -> list[Any]:
        """Send commands in one write; None stands for a key of the wrong type."""
        sent = [self._connection.command(slot, *words) for words in calls]
        return [await self._answer(future) for future in sent]

    async def _answer(self, future: Any) -> Any:
        try:
            return await future
        except StoreRejected as error:
            if error.reply.startswith("WRONGTYPE"):
                return None
            raise

    async def _scan(self, slot: int, cursor: bytes, pattern: str) -> tuple[bytes, list[bytes]]:
        words: tuple[Word, ...] = ("SCAN", cursor, "MATCH", pattern, "COUNT", PAGE)
        try:
            found: tuple[bytes, list[bytes]] = await self._connection.command(slot, *words)
        except StoreRejected as error:
            if error.reply.startswith("NOPERM"):
                hint = "use the user of docs/operations.md, `lingua doctor`"
                raise NotAllowed("SCAN", hint) from None
            raise
        return found
