"""One instance's streams in the store: the inbox, as its own reader or an adopter uses it.

A method is a command or a script, and no policy: what is applied, tried again or put aside is
decided in `handling.py`. Writing into an inbox is `post.py`'s, dead letters are `deadletters.py`'s.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from lingua_scheduler.errors import StoreRejected
from lingua_scheduler.state.keys import Cell, InstanceKeys
from lingua_scheduler.state.reply import Reply
from lingua_scheduler.state.scripts import load_scripts

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    from lingua_scheduler.state.link import Link
    from lingua_scheduler.state.script import Connection, Word

# The one consumer group of every inbox; the scripts know it by the same name.
GROUP = "scheduler"
DEAD_LETTERS_MAX = 10_000


class Entry(NamedTuple):
    """One entry as the server gives it: fields and values take turns."""

    id: bytes
    fields: list[bytes]


class Pending(NamedTuple):
    """An entry that was read and not acknowledged, and how often it was read."""

    id: bytes
    deliveries: int


class InboxStream:
    """The inbox of one instance, read under the name of one reader."""

    def __init__(
        self, connection: Connection, prefix: str, instance: str, *, reader: str = ""
    ) -> None:
        self.keys = InstanceKeys(prefix, instance)
        self._connection = connection
        self._reader = reader or instance
        self._scripts = load_scripts()
        self._directory = Cell(prefix, 0)

    # Life.

    async def create(self) -> None:
        """Make the stream and its group unless they are there; all that lies in it will be read."""
        # Listed first: a stream that nobody knows of could never be cleaned up.
        await self._list("SADD", "inboxes")
        try:
            await self._command("XGROUP", "CREATE", self.keys.inbox, GROUP, 0, "MKSTREAM")
        except StoreRejected as error:
            if not error.reply.startswith("BUSYGROUP"):
                raise

    async def exists(self) -> bool:
        """Tell whether there is an inbox."""
        return bool(await self._command("EXISTS", self.keys.inbox))

    async def remove(self) -> bool:
        """Delete the inbox if nothing is left to do in it; False if something is."""
        raw = await self._run("inbox_remove")
        return bool(raw[0] == Reply.OK)

    async def unlist(self) -> None:
        """Say that there is no inbox any more."""
        await self._list("SREM", "inboxes")

    async def lease(self, who: str, lease_ms: int) -> bool:
        """Take or keep the right to adopt; 0 ms gives it back. False: another has it."""
        raw = await self._run("inbox_lease", who, lease_ms)
        return bool(raw[0] == Reply.OK)

    # Entries.

    async def read_new(self, limit: int) -> list[Entry]:
        """Take entries nobody has read, without waiting."""
        return entries_of(await self._command(*self._read_words(limit)))

    async def wait_new(self, link: Link, limit: int, block_ms: int) -> list[Entry]:
        """Take entries nobody has read; waits for one on a connection of its own."""
        return entries_of(await link.command(*self._read_words(limit, "BLOCK", block_ms)))

    async def pending(self, limit: int, *, idle_ms: int = 0, after: bytes = b"") -> list[Pending]:
        """List entries that anybody has read and not acknowledged, in stream order."""
        start = b"(" + after if after else b"-"
        rows = await self._command(
            "XPENDING", self.keys.inbox, GROUP, "IDLE", idle_ms, start, "+", limit
        )
        return [Pending(row[0], row[3]) for row in rows]

    async def claim(self, ids: Sequence[bytes], idle_ms: int = 0) -> list[Entry]:
        """Take over pending entries; each counts as delivered once more.

        What another took meanwhile is not among them, nor what was trimmed.
        """
        rows = await self._command("XCLAIM", self.keys.inbox, GROUP, self._reader, idle_ms, *ids)
        return [Entry(*row) for row in rows if row is not None]

    async def finish(self, ids: Sequence[bytes]) -> None:
        """Acknowledge and delete entries that have had their effect; one write, two replies."""
        acknowledged = self._command("XACK", self.keys.inbox, GROUP, *ids)
        deleted = self._command("XDEL", self.keys.inbox, *ids)
        await acknowledged
        await deleted

    async def bury(self, entry_id: bytes, reason: str) -> bool:
        """Move an entry to the dead letters; False if it is not there any more."""
        # Before, so that no dead letter is unknown to people; and after, in case the last of the
        # former ones was dropped in between and its list with it.
        await self._list("SADD", "dlqs")
        raw = await self._run("inbox_bury", entry_id, reason, DEAD_LETTERS_MAX)
        await self._list("SADD", "dlqs")
        return bool(raw[0] == Reply.OK)

    def _read_words(self, limit: int, *waiting: Word) -> tuple[Word, ...]:
        return (
            "XREADGROUP", "GROUP", GROUP, self._reader, "COUNT", limit, *waiting,
            "STREAMS", self.keys.inbox, ">",
        )  # fmt: skip

    def _command(self, *words: Word) -> asyncio.Future[Any]:
        return self._connection.command(self.keys.slot, *words)

    async def _run(self, name: str, *args: Word) -> list[Any]:
        script, keys = self._scripts[name], self.keys
        raw: list[Any] = await self._connection.run(script, keys.slot, keys.keys, (0, *args))
        return raw

    async def _list(self, verb: str, family: str) -> None:
        """Enter this instance in a list of the directory, or take it out."""
        directory = self._directory
        await self._connection.command(
            directory.slot, verb, directory.key(family), self.keys.instance
        )


def entries_of(reply: list[Any] | None) -> list[Entry]:
    """Read the answer of XREADGROUP on one stream."""
    return [Entry(*row) for row in reply[0][1]] if reply else []
