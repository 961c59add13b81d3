"""The list of revoked tokens in the store: by id and by subject, each until a time.

One sorted set in the first cell, and a version beside it, so that an instance that checks every
second reads the list only after a change. A writer changes the set first and then the version. A
store that loses data is repaired: if the version is missing or older than the known one, the reader
writes the missing entries again. No entry outlives the longest possible token.
"""

from __future__ import annotations

import secrets
from time import monotonic, time
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from lingua_scheduler.state.connection import Connection
    from lingua_scheduler.state.keys import Cell
    from lingua_scheduler.state.script import Word

Kind = Literal["id", "subject"]
# The list is also read this often without a new version: a writer may have died between its steps.
WHOLE_EVERY_S: Final = 30.0


class Revoked(NamedTuple):
    """What is revoked: tokens with this id or this subject, of one tenant or (empty) of any."""

    kind: Kind
    name: str
    tenant: str = ""

    @property
    def member(self) -> str:
        """Return its name in the set; only the last part may contain a bar."""
        return f"{self.kind}|{self.tenant}|{self.name}"

    @classmethod
    def parse(cls, member: str) -> Revoked:
        """Read the name in the set."""
        kind, tenant, name = member.split("|", 2)
        return cls("id" if kind == "id" else "subject", name, tenant)


class Revocations:
    """The list as known to one process."""

    def __init__(self, connection: Connection, cell: Cell) -> None:
        self._connection = connection
        self._slot = cell.slot
        self._set, self._version_key = cell.key("revoked"), cell.key("revocations")
        # Revoked tokens -> the end of the revocation in ms since 1970; as last read.
        self.until_ms: dict[Revoked, int] = {}
        # The version of that read.
        self._version = ""
        self._whole_at = 0.0
        # The number of changes seen by this process.
        self.changes = 0

    def holds(self, token_id: str, subject: str, tenant: str) -> bool:
        """Tell whether a token of this id, subject and tenant is revoked now."""
        if not self.until_ms:
            return False
        now_ms = time() * 1000
        asked = [Revoked("id", token_id), Revoked("id", token_id, tenant)]
        if subject:
            asked += [Revoked("subject", subject), Revoked("subject", subject, tenant)]
        return any(self.until_ms.get(one, 0) > now_ms for one in asked)

    async def read(self) -> None:
        """Update the list: one small read, unless it has changed."""
        raw = await self._ask("GET", self._version_key)
        version = raw.decode() if raw is not None else ""
        if version == self._version and monotonic() < self._whole_at:
            return
        rows = await self._ask("ZRANGE", self._set, 0, -1, "WITHSCORES")
        now_ms = int(time() * 1000)
        found = {
            Revoked.parse(member.decode()): int(float(until))
            for member, until in zip(rows[::2], rows[1::2], strict=True)
            if float(until) > now_ms
        }
        if _order_of(version) < _order_of(self._version):
            lost = {one: until for one, until in self.until_ms.items() if until > now_ms}
            lost = {one: until for one, until in lost.items() if found.get(one, 0) < until}
            found |= lost
            version = await self._write(lost) if lost else version
        self._take(found, version)

    def _take(self, found: dict[Revoked, int], version: str) -> None:
        self._version, self._whole_at = version, monotonic() + WHOLE_EVERY_S
        if found != self.until_ms:
            self.until_ms = found
            self.changes += 1

    async def revoke(self, one: Revoked, until_ms: int) -> None:
        """Revoke tokens until a time; other instances follow with their next read."""
        version = await self._write({one: until_ms})
        self._take({**self.until_ms, one: until_ms}, version)
        self._whole_at = 0.0

    async def restore(self, one: Revoked) -> bool:
        """End a revocation; tells whether there was one."""
        was_there = await self._ask("ZREM", self._set, one.member)
        if was_there:
            await self._write({})
        self.until_ms = {other: until for other, until in self.until_ms.items() if other != one}
        self.changes += 1
        self._whole_at = 0.0
        return bool(was_there)

    async def _write(self, entries: dict[Revoked, int]) -> str:
        """Add entries, drop expired ones, and set a new version."""
        now_ms = int(time() * 1000)
        scored = [part for one, until in entries.items() for part in (until, one.member)]
        if scored:
            await self._ask("ZADD", self._set, *scored)
        await self._ask("ZREMRANGEBYSCORE", self._set, "-inf", now_ms)
        last = await self._ask("ZRANGE", self._set, -1, -1, "WITHSCORES")
        version = await self._next_version()
        await self._ask("SET", self._version_key, version)
        for key in (self._set, self._version_key) if last else ():
            await self._ask("PEXPIRE", key, max(1, int(float(last[1])) - now_ms))
        return version

    def _ask(self, *words: Word) -> Awaitable[Any]:
        return self._connection.command(self._slot, *words)

    async def _next_version(self) -> str:
        """Return a version greater than the stored and the known one, independent of clocks."""
        raw = await self._ask("GET", self._version_key)
        present = _order_of(raw.decode() if raw is not None else "")
        order = max(int(time() * 1000), present + 1, _order_of(self._version) + 1)
        return f"{order}-{secrets.token_hex(4)}"


def _order_of(version: str) -> int:
    """Return the increasing part of a version; 0 if there is no version."""
    return int(version.partition("-")[0] or 0)
