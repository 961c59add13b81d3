"""Dead letters: messages that could not be applied, with the reason, for operators to handle.

They are in a stream of the instance they were sent to, also after that instance has ended; the set
`dlqs` lists the instances that have any. A replayed dead letter is sent unchanged to an instance of
the caller's choice.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

from lingua_scheduler.state.keys import Cell, InstanceKeys

if TYPE_CHECKING:
    from lingua_scheduler.state.connection import Connection
    from lingua_scheduler.state.script import Word

# Field names of a dead letter and of the original entry; other fields are kept as `x:<name>`.
FIELD_OF = {
    "version": "v",
    "kind": "k",
    "sender": "f",
    "correlation": "c",
    "attempt": "a",
    "sent_at": "t",
    "body": "b",
}
UNKNOWN = "x:"


class DeadLetter(NamedTuple):
    """One dead letter; unreadable numbers are 0."""

    instance: str
    id: str
    source_id: str
    kind: str
    correlation: str
    attempt: int | None
    sender: str
    sent_at_ms: int
    deliveries: int
    reason: str
    moved_at_ms: int
    body: bytes
    # The fields of the entry as it was sent.
    entry: tuple[Word, ...]


class DeadLetters:
    """The dead letters of all instances."""

    def __init__(self, connection: Connection, prefix: str) -> None:
        self._connection = connection
        self._prefix = prefix
        self._directory = Cell(prefix, 0)

    async def counts(self) -> dict[str, int]:
        """Return how many dead letters each instance has; those without any are left out."""
        names = sorted(name.decode() for name in await self._listed("SMEMBERS"))
        lengths = await asyncio.gather(*(self._length(name) for name in names))
        return {name: length for name, length in zip(names, lengths, strict=True) if length}

    async def list(self, limit: int = 100) -> tuple[DeadLetter, ...]:
        """Return the newest dead letters of all instances, newest first."""
        found: list[DeadLetter] = []
        for instance in await self.counts():
            found += await self.list_of(instance, limit)
        found.sort(key=lambda letter: letter.moved_at_ms, reverse=True)
        return tuple(found[:limit])

    async def list_of(self, instance: str, limit: int = 100) -> tuple[DeadLetter, ...]:
        """Return the newest dead letters of one instance, newest first."""
        words = ("XREVRANGE", "+", "-", "COUNT", limit)
        rows = await self._ask(instance, *words)
        return tuple(read_dead_letter(instance, *row) for row in rows)

    async def show(self, instance: str, letter_id: str) -> DeadLetter | None:
        """Return one dead letter."""
        rows = await self._ask(instance, "XRANGE", letter_id, letter_id)
        return read_dead_letter(instance, *rows[0]) if rows else None

    async def replay(self, letter: DeadLetter, to: str) -> bool:
        """Send the original message to an instance again; False if that instance has no inbox."""
        keys = InstanceKeys(self._prefix, to)
        words = ("XADD", keys.inbox, "NOMKSTREAM", "*", *letter.entry)
        added = await self._connection.command(keys.slot, *words)
        if added is None:
            return False
        await self.drop(letter.instance, letter.id)
        return True

    async def drop(self, instance: str, letter_id: str) -> bool:
        """Delete one dead letter; False if it did not exist."""
        dropped = await self._ask(instance, "XDEL", letter_id)
        if not await self._length(instance):
            await self._listed("SREM", instance)
        return bool(dropped)

    async def _length(self, instance: str) -> int:
        length: int = await self._ask(instance, "XLEN")
        return length

    async def _ask(self, instance: str, verb: Word, *words: Word) -> Any:
        keys = InstanceKeys(self._prefix, instance)
        return await self._connection.command(keys.slot, verb, keys.dlq, *words)

    async def _listed(self, verb: str, *words: Word) -> Any:
        cell = self._directory
        return await self._connection.command(cell.slot, verb, cell.key("dlqs"), *words)


def read_dead_letter(instance: str, entry_id: bytes, flat: list[bytes]) -> DeadLetter:
    """Read one entry of a dead letter stream, even if the message was malformed."""
    found = {
        name.decode(errors="replace"): value
        for name, value in zip(flat[::2], flat[1::2], strict=True)
    }

    def text(name: str) -> str:
        return found.get(name, b"").decode(errors="replace")

    def number(name: str) -> int:
        return int(text(name)) if text(name).isdecimal() else 0

    entry: list[Word] = []
    for name, value in found.items():
        field = FIELD_OF.get(name, name.removeprefix(UNKNOWN) if name.startswith(UNKNOWN) else "")
        if field:
            entry += [field, value]
    return DeadLetter(
        instance=instance,
        id=entry_id.decode(),
        source_id=text("id"),
        kind=text("kind"),
        correlation=text("correlation"),
        attempt=number("attempt") or None,
        sender=text("sender"),
        sent_at_ms=number("sent_at"),
        deliveries=number("deliveries"),
        reason=text("reason"),
        moved_at_ms=number("moved_at"),
        body=found.get("body", b""),
        entry=tuple(entry),
    )
