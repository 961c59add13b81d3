"""Administration of dead letters: find one by its id, show its fields, replay or delete it.

Speech and text of users are never shown: of audio and of texts only the size is shown.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lingua_scheduler.peers.deadletters import DeadLetters
from lingua_scheduler.peers.presence import Directory
from lingua_wire.errors import LinguaError

if TYPE_CHECKING:
    from lingua_scheduler.config import Settings
    from lingua_scheduler.peers.deadletters import DeadLetter
    from lingua_scheduler.state.connection import Connection

# The fields of a message that hold ids and numbers, never speech or text of users.
PLAIN: Final = frozenset(
    [
        "job",
        "attempt",
        "node",
        "home",
        "host",
        "session",
        "epoch",
        "seq",
        "fence",
        "code",
        "reason",
        "step",
        "is_final",
        "context_reset",
        "ends_at_ms",
        "id",
        "line",
        "cell",
        "stream",
        "owner",
        "at_bytes",
        "audio_bytes",
        "audio_format",
        "part_index",
    ]
)
PLAIN_CHARS = 128
ENTRY_ID = re.compile(r"\d{1,20}-\d{1,20}")
# How many are read at once when all are deleted: each may carry audio.
DROP_PAGE = 100


class NoSuchDeadLetter(LinguaError):
    """There is no dead letter with this id, or more than one."""


class CannotReplay(LinguaError):
    """No instance would read the message."""


class DeadLetterAdmin:
    """An operator's actions on the dead letters of a deployment."""

    def __init__(self, connection: Connection, settings: Settings) -> None:
        self._connection = connection
        self._prefix = settings.redis.key_prefix
        self._letters = DeadLetters(connection, self._prefix)
        self._directory = Directory(connection, self._prefix)
        self._silence_ms = settings.instances.silence_ms

    async def list(self, instance: str = "", limit: int = 100) -> tuple[DeadLetter, ...]:
        """Return the newest dead letters, of one instance or of all."""
        if not instance:
            return await self._letters.list(limit)
        return await self._letters.list_of(instance, limit)

    async def counts(self, instance: str = "") -> dict[str, int]:
        """Return the number of dead letters by instance."""
        counts = await self._letters.counts()
        return {k: v for k, v in counts.items() if not instance or k == instance}

    async def find(self, letter_id: str, instance: str = "") -> DeadLetter:
        """Return a dead letter by its id; `instance` is needed if several have that id."""
        if not ENTRY_ID.fullmatch(letter_id):
            raise NoSuchDeadLetter(f"not a valid id of a dead letter: {letter_id[:40]!r}")
        names = [instance] if instance else await self._letters.counts()
        found = [await self._letters.show(name, letter_id) for name in names]
        letters = [letter for letter in found if letter is not None]
        if not letters:
            where = f" of {instance}" if instance else ""
            raise NoSuchDeadLetter(
                f"there is no dead letter {letter_id}{where}: see `lingua dlq ls`"
            )
        if len(letters) > 1:
            whose = " and ".join(letter.instance for letter in letters)
            raise NoSuchDeadLetter(f"{whose} each have a dead letter {letter_id}: give --instance")
        return letters[0]

    async def replay(self, letter: DeadLetter, to: str = "") -> str:
        """Send a dead letter again; return the instance it was sent to."""
        target = await self._target(letter, to)
        if not await self._letters.replay(letter, target):
            raise CannotReplay(f"{target} has no inbox: the dead letter is kept")
        return target

    async def drop(self, letter: DeadLetter) -> bool:
        """Delete a dead letter; False if it no longer existed."""
        return await self._letters.drop(letter.instance, letter.id)

    async def drop_all(self, instance: str = "") -> int:
        """Delete all dead letters; those that arrive meanwhile may or may not be among them."""
        left = sum((await self.counts(instance)).values())
        dropped = 0
        while left > 0:
            page = await self.list(instance, min(left, DROP_PAGE))
            if not page:
                break
            for letter in page:
                dropped += await self.drop(letter)
            left -= len(page)
        return dropped

    async def _target(self, letter: DeadLetter, to: str) -> str:
        rows, _ = await self._directory.read()
        alive = {name: row for name, row in rows.items() if row.age_ms <= self._silence_ms}
        if to:
            if to not in alive:
                names = ", ".join(sorted(alive)) or "none"
                raise CannotReplay(f"{to} is not alive (alive: {names}): the dead letter is kept")
            return to
        if letter.instance in alive:
            return letter.instance
        if not alive:
            raise CannotReplay("no instance is alive to read it: the dead letter is kept")
        return min(alive, key=lambda name: (alive[name].draining, name))


def shown_body(body: bytes) -> dict[str, Any]:
    """Return the fields of a message's body: ids and numbers, for all others the size."""
    try:
        parts = msgspec.msgpack.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return {"unreadable": size_of(body)}
    if not isinstance(parts, dict):
        return {"unreadable": size_of(body)}
    return {str(name)[:64]: shown_part(str(name), value) for name, value in parts.items()}


def shown_part(name: str, value: Any) -> Any:
    """Return a field's value if it is an id or a number, else its size."""
    is_short = not isinstance(value, str) or len(value) <= PLAIN_CHARS
    if name in PLAIN and isinstance(value, str | int | bool) and is_short:
        return value
    return size_of(value)


def size_of(value: Any) -> str:
    """Return the size of a value, in words."""
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    if isinstance(value, str):
        return f"{len(value)} characters"
    if isinstance(value, list | dict):
        return f"{len(value)} parts"
    return type(value).__name__
