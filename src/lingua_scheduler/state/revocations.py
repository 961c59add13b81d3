"""The list of revoked tokens in the store: by id and by subject, each until a time.

One sorted set in the first cell, and a version beside it, so that whoever reads the list every
second reads it only when it changed. A writer changes the set first and the version after it. What
an instance knows outlives a store that forgets: if the version is gone or older than the known one,
the reader puts back what is missing. No entry outlives the longest token there can be.
"""

from __future__ import annotations

import secrets
from time import monotonic, time
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

if TYPE_CHECKING:
    from lingua_scheduler.state.keys import Cell
    from lingua_scheduler.state.script import Connection

Kind = Literal["id", "subject"]
# Whatever the version says, the list is read so often: a writer may have died between its steps.
WHOLE_EVERY_S: Final = 30.0


class Revoked(NamedTuple):
    """What is revoked: tokens with this id or this subject, of one tenant or (empty) of any."""

    kind: Kind
    name: str
    tenant: str = ""

    @property
    def member(self) -> str:
        """Return its name in the set; the tenant holds no bar, what comes last may."""
        return f"{self.kind}|{self.tenant}|{self.name}"

    @classmethod
    def parse(cls, member: str) -> Revoked:
        """Read the name in the set."""
        kind, tenant, name = member.split("|", 2)
        return cls("id" if kind == "id" else "subject", name, tenant)


class Revocations:
    """The list as one process knows it."""

    def __init__(self, connection: Connection, cell: Cell) -> None:
        self._connection = connection
        self._slot = cell.slot
        self._set, self._version_key = cell.key("revoked"), cell.key("revocations")
        # What is revoked -> ms since 1970 until which it is; as last read.
        self.until_ms: dict[Revoked, int] = {}
        # Which version that was.
        self._version = ""
        self._whole_at = 0.0
        # Grows with every change that was seen here.
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
        """Bring what is known here up to date: one small read, unless something changed."""
        raw = await self._connection.command(self._slot, "GET", self._version_key)
        version = raw.decode() if raw is not None else ""
        if version == self._version and monotonic() < self._whole_at:
            return
        rows = await self._connection.command(self._slot, "ZRANGE", self._set, 0, -1, "WITHSCORES")
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
        """Refuse such tokens until a time, here at once and elsewhere with their next read."""
        version = await self._write({one: until_ms})
        self._take({**self.until_ms, one: until_ms}, version)
        self._whole_at = 0.0

    async def restore(self, one: Revoked) -> bool:
        """Refuse such tokens no longer; tells whether they were refused."""
        ask, slot = self._connection.command, self._slot
        was_there = await ask(slot, "ZREM", self._set, one.member)
        if was_there:
            await self._write({})
        self.until_ms = {other: until for other, until in self.until_ms.items() if other != one}
        self.changes += 1
        self._whole_at = 0.0
        return bool(was_there)

    async def _write(self, entries: dict[Revoked, int]) -> str:
        """Add entries, drop those that are over, and give the list a new version."""
        ask, slot, now_ms = self._connection.command, self._slot, int(time() * 1000)
        scored = [part for one, until in entries.items() for part in (until, one.member)]
        if scored:
            await ask(slot, "ZADD", self._set, *scored)
        await ask(slot, "ZREMRANGEBYSCORE", self._set, "-inf", now_ms)
        last = await ask(slot, "ZRANGE", self._set, -1, -1, "WITHSCORES")
        version = await self._next_version()
        await ask(slot, "SET", self._version_key, version)
        for key in (self._set, self._version_key) if last else ():
            await ask(slot, "PEXPIRE", key, max(1, int(float(last[1])) - now_ms))
        return version

    async def _next_version(self) -> str:
        """Return a version after the present one and after the known one, whatever clocks say."""
        raw = await self._connection.command(self._slot, "GET", self._version_key)
        present = _order_of(raw.decode() if raw is not None else "")
        order = max(int(time() * 1000), present + 1, _order_of(self._version) + 1)
        return f"{order}-{secrets.token_hex(4)}"


def _order_of(version: str) -> int:
    """Return the part of a version that grows; 0 for none."""
    return int(version.partition("-")[0] or 0)
