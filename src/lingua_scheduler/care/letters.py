"""Dead letters for people: one by its id, what is in it, where it could go once more.

What somebody said never leaves the store this way: of audio and of texts only the size is shown.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lingua_scheduler.between.deadletters import DeadLetters, read_dead_letter
from lingua_scheduler.between.presence import Directory
from lingua_scheduler.errors import LinguaError
from lingua_scheduler.state.keys import InstanceKeys

if TYPE_CHECKING:
    from lingua_scheduler.between.deadletters import DeadLetter
    from lingua_scheduler.config import Settings
    from lingua_scheduler.state.script import Connection

# The parts of a letter that are ids and numbers of ours, never what somebody said.
PLAIN: Final = frozenset(
    {
        "job", "attempt", "node", "home", "host", "session", "epoch", "seq", "fence", "code",
        "reason", "step", "is_final", "context_reset", "ends_at_ms", "id", "line", "cell",
    }
)  # fmt: skip
PLAIN_CHARS = 128
ENTRY_ID = re.compile(r"\d{1,20}-\d{1,20}")
# How many are read at once when all are dropped: each may carry audio.
DROP_PAGE = 100


class NoSuchLetter(LinguaError):
    """There is no dead letter of this id, or more than one."""


class CannotReplay(LinguaError):
    """Nobody would read the letter."""


class Desk:
    """Where an operator handles the dead letters of a deployment."""

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
        keys = InstanceKeys(self._prefix, instance)
        rows = await self._connection.command(
            keys.slot, "XREVRANGE", keys.dlq, "+", "-", "COUNT", limit
        )
        return tuple(read_dead_letter(instance, *row) for row in rows)

    async def counts(self, instance: str = "") -> dict[str, int]:
        """Return how many there are, by instance."""
        counts = await self._letters.counts()
        return {k: v for k, v in counts.items() if not instance or k == instance}

    async def find(self, letter_id: str, instance: str = "") -> DeadLetter:
        """Return a letter by its id; of which instance must be said if several have that id."""
        if not ENTRY_ID.fullmatch(letter_id):
            raise NoSuchLetter(f"not an id of a dead letter: {letter_id[:40]!r}")
        names = [instance] if instance else await self._letters.counts()
        found = [await self._letters.show(name, letter_id) for name in names]
        letters = [letter for letter in found if letter is not None]
        if not letters:
            where = f" of {instance}" if instance else ""
            raise NoSuchLetter(f"there is no dead letter {letter_id}{where}: see `lingua dlq ls`")
        if len(letters) > 1:
            whose = " and ".join(letter.instance for letter in letters)
            raise NoSuchLetter(f"{whose} each have a dead letter {letter_id}: say --instance")
        return letters[0]

    async def replay(self, letter: DeadLetter, to: str = "") -> str:
        """Send a letter again; returns to whom."""
        target = await self._target(letter, to)
        if not await self._letters.replay(letter, target):
            raise CannotReplay(f"{target} has no inbox: the letter stays where it is")
        return target

    async def drop(self, letter: DeadLetter) -> bool:
        """Delete a letter; False if it was not there any more."""
        return await self._letters.drop(letter.instance, letter.id)

    async def drop_all(self, instance: str = "") -> int:
        """Delete all that are there now; those that come meanwhile may be among them or not."""
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
        rows, _ = await self._directory.look()
        alive = {name: row for name, row in rows.items() if row.age_ms <= self._silence_ms}
        if to:
            if to not in alive:
                living = ", ".join(sorted(alive)) or "nobody"
                raise CannotReplay(f"{to} does not live (alive: {living}): the letter stays")
            return to
        if letter.instance in alive:
            return letter.instance
        if not alive:
            raise CannotReplay("no instance lives that could read it: the letter stays")
        return min(alive, key=lambda name: (alive[name].draining, name))


def shown_body(body: bytes) -> dict[str, Any]:
    """Return what may be shown of a letter's body: ids and numbers; of the rest the size."""
    try:
        parts = msgspec.msgpack.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return {"unreadable": size_of(body)}
    if not isinstance(parts, dict):
        return {"unreadable": size_of(body)}
    return {str(name)[:64]: shown_part(str(name), value) for name, value in parts.items()}


def shown_part(name: str, value: Any) -> Any:
    """Return a part as it is if it is one of ours, else its size."""
    is_short = not isinstance(value, str) or len(value) <= PLAIN_CHARS
    if name in PLAIN and isinstance(value, str | int | bool) and is_short:
        return value
    return size_of(value)


def size_of(value: Any) -> str:
    """Return how much there is of something."""
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    if isinstance(value, str):
        return f"{len(value)} characters"
    if isinstance(value, list | dict):
        return f"{len(value)} parts"
    return type(value).__name__
