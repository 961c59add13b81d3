"""The inbox stream of one instance, as its own reader or an adopter uses it.

Each method is one command or one script, without policy: `processor.py` decides which entries are
applied, retried or moved to the dead letters. `sender.py` writes into inboxes; `deadletters.py`
handles dead letters.
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

    from lingua_scheduler.state.connection import Connection
    from lingua_scheduler.state.link import StoreLink
    from lingua_scheduler.state.script import Word

# The only consumer group of every inbox; the scripts use the same name.
GROUP = "scheduler"
DEAD_LETTERS_MAX = 10_000


class StreamEntry(NamedTuple):
    """One entry as the server returns it: fields and values alternate."""

    id: bytes
    fields: list[bytes]


class PendingEntry(NamedTuple):
    """An entry that was read and not acknowledged, and how often it was delivered."""

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

    # Lifecycle.

    async def create(self) -> None:
        """Create the stream and its group if they are missing; existing entries will be read."""
        # Listed first: a stream that is not listed could never be cleaned up.
        await self._list("SADD", "inboxes")
        words = ("XGROUP", "CREATE", self.keys.inbox, GROUP, 0, "MKSTREAM")
        try:
            await self._command(*words)
        except StoreRejected as error:
            if not error.reply.startswith("BUSYGROUP"):
                raise

    async def exists(self) -> bool:
        """Tell whether the inbox exists."""
        return bool(await self._command("EXISTS", self.keys.inbox))

    async def remove(self) -> bool:
        """Delete the inbox if it has no unprocessed entries; False if it has."""
        raw = await self._run("inbox_remove")
        return bool(raw[0] == Reply.OK)

    async def unlist(self) -> None:
        """Remove the inbox from the list of inboxes."""
        await self._list("SREM", "inboxes")

    async def lease(self, adopter: str, lease_ms: int) -> bool:
        """Take or renew the adoption lease; 0 ms releases it. False: another instance holds it."""
        raw = await self._run("inbox_lease", adopter, lease_ms)
        return bool(raw[0] == Reply.OK)

    # Entries.

    async def read_new(self, limit: int) -> list[StreamEntry]:
        """Read entries that have not been delivered yet, without waiting."""
        return entries_of(await self._command(*self._read_words(limit)))

    async def wait_new(self, link: StoreLink, limit: int, block_ms: int) -> list[StreamEntry]:
        """Read entries that have not been delivered yet; blocks on a dedicated connection."""
        return entries_of(await link.command(*self._read_words(limit, "BLOCK", block_ms)))

    async def pending(
        self, limit: int, *, idle_ms: int = 0, after: bytes = b""
    ) -> list[PendingEntry]:
        """List entries that were delivered to any reader and not acknowledged, in stream order."""
        start = b"(" + after if after else b"-"
        words = ("XPENDING", self.keys.inbox, GROUP, "IDLE", idle_ms, start, "+", limit)
        rows = await self._command(*words)
        return [PendingEntry(row[0], row[3]) for row in rows]

    async def claim(self, ids: Sequence[bytes], idle_ms: int = 0) -> list[StreamEntry]:
        """Claim pending entries; each counts as delivered once more.

        Entries that another reader claimed meanwhile, and trimmed entries, are not returned.
        """
        words: tuple[Word, ...] = ("XCLAIM", self.keys.inbox, GROUP, self._reader, idle_ms, *ids)
        rows = await self._command(*words)
        return [StreamEntry(*row) for row in rows if row is not None]

    async def finish(self, ids: Sequence[bytes]) -> None:
        """Acknowledge and delete entries that were applied; one write, two replies."""
        acknowledged = self._command("XACK", self.keys.inbox, GROUP, *ids)
        deleted = self._command("XDEL", self.keys.inbox, *ids)
        await acknowledged
        await deleted

    async def bury(self, entry_id: bytes, reason: str) -> bool:
        """Move an entry to the dead letters; False if it no longer exists."""
        # Listed before, so that every dead letter can be found; and again after, in case the
        # last earlier dead letter was dropped in between, which removes the instance's listing.
        await self._list("SADD", "dlqs")
        raw = await self._run("inbox_bury", entry_id, reason, DEAD_LETTERS_MAX)
        await self._list("SADD", "dlqs")
        return bool(raw[0] == Reply.OK)

    def _read_words(self, limit: int, *waiting: Word) -> tuple[Word, ...]:
        group = ("GROUP", GROUP, self._reader)
        return ("XREADGROUP", *group, "COUNT", limit, *waiting, "STREAMS", self.keys.inbox, ">")

    def _command(self, *words: Word) -> asyncio.Future[Any]:
        return self._connection.command(self.keys.slot, *words)

    async def _run(self, name: str, *args: Word) -> list[Any]:
        script, keys = self._scripts[name], self.keys
        raw: list[Any] = await self._connection.run(script, keys.slot, keys.keys, (0, *args))
        return raw

    async def _list(self, verb: str, family: str) -> None:
        """Add this instance to a list of the directory, or remove it."""
        directory = self._directory
        await self._connection.command(
            directory.slot, verb, directory.key(family), self.keys.instance
        )


def entries_of(reply: list[Any] | None) -> list[StreamEntry]:
    """Read the reply of XREADGROUP on one stream."""
    return [StreamEntry(*row) for row in reply[0][1]] if reply else []
