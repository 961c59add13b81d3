"""Which instances live: each beats every second and sees all others.

An instance is dead when its last beat has been the same for longer than `presence_ms`, by this
process' own clock that only goes forward, while this one was heard all that time: after an outage
of the store, which silences all, nobody is declared dead for as long; and no step of any machine's
clock makes a dead one live or a living one dead.
Acting on a death is the owner's (`adoption.py` for the inbox); this only says who and when.
"""

from __future__ import annotations

import uuid
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from lingua_scheduler.state.keys import Cell, identifier
from lingua_scheduler.state.reply import Reply
from lingua_scheduler.state.scripts import load_scripts

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lingua_scheduler.state.script import Connection, Word


# How often an instance beats within the silence that makes it dead.
BEATS_PER_SILENCE = 5


class About(NamedTuple):
    """What an instance says of itself."""

    host: str = ""
    pid: int = 0
    version: str = ""
    url: str = ""


class InstanceRow(NamedTuple):
    """One instance as the store knows it."""

    instance: str
    age_ms: int
    started_at_ms: int
    uptime_ms: int
    about: About
    draining: bool
    # Its last beat, by the time of the cell.
    beat_at_ms: int


class Beat(NamedTuple):
    """The last beat of an instance, and since when it is the last, in monotonic time."""

    at_ms: int
    since: float


class View(NamedTuple):
    """All instances at one moment; `alive` includes this one."""

    alive: dict[str, InstanceRow]
    dead: tuple[str, ...]
    # False at the first beat, and later if the record is gone: the store was emptied, or this
    # instance was silent for so long that a survivor forgot it.
    was_known: bool
    # Names with an inbox and no record, for long enough not to be starting just now.
    orphans: tuple[str, ...] = ()


class Directory:
    """The records of all instances; reading them needs no presence of one's own."""

    def __init__(self, connection: Connection, prefix: str) -> None:
        self._connection = connection
        self._cell = Cell(prefix, 0)
        self._scripts = load_scripts()

    async def beat(
        self, instance: str, boot: str, started_at_ms: int, *fields: Word
    ) -> tuple[bool, dict[str, InstanceRow], tuple[str, ...]]:
        """Write a beat; return whether the process was known, all rows, and orphaned inboxes."""
        raw = await self._run("instance_beat", instance, boot, started_at_ms, *fields)
        _, now_ms, was_known, rows, orphans, wall_ms = raw
        read = [read_row(row, now_ms, wall_ms) for row in rows]
        names = tuple(sorted(name.decode() for name in orphans))
        return bool(was_known), {row.instance: row for row in read}, names

    async def look(self) -> tuple[dict[str, InstanceRow], tuple[str, ...]]:
        """Return all rows and orphaned inboxes, and write nothing."""
        _, rows, orphans = await self.beat("", "", 0)
        return rows, orphans

    async def forget(self, instance: str, beat_at_ms: int) -> bool:
        """Drop the record of an instance that has not beaten since; True if this call did it."""
        raw = await self._run("instance_forget", instance, "", beat_at_ms)
        return bool(raw[0] == Reply.OK and raw[1])

    async def leave(self, instance: str, boot: str) -> None:
        """Drop a process' own record, unless another process has the name by now."""
        await self._run("instance_forget", instance, boot, 0)

    async def _run(self, name: str, *args: Word) -> list[Any]:
        cell = self._cell
        raw: list[Any] = await self._connection.run(
            self._scripts[name], cell.slot, cell.keys, (0, *args)
        )
        return raw


class Presence:
    """This instance among all: says that it lives, and sees who else does."""

    def __init__(
        self,
        connection: Connection,
        prefix: str,
        instance: str,
        about: About,
        *,
        presence_ms: int = 5000,
    ) -> None:
        self.instance = identifier("instance", instance)
        self.presence_ms = presence_ms
        # Told with the next beat.
        self.draining = False
        # What the last beat saw; None before the first.
        self.view: View | None = None

        self._directory = Directory(connection, prefix)
        self._about = about
        # Tells this process from one before or after it under the same name.
        self._boot = uuid.uuid4().hex
        # By the server's clock; 0 until the first beat is answered.
        self._started_at_ms = 0
        # Since when and until when this instance was heard without a break, in monotonic time.
        self._heard_since: float | None = None
        self._heard_at = 0.0
        # The last beat of each instance and since when it is known, in monotonic time.
        self._beats: dict[str, Beat] = {}
        # When each name was first seen with an inbox and no record, in monotonic time.
        self._orphan_since: dict[str, float] = {}

    async def beat(self) -> View:
        """Say that this instance lives; return all that are known."""
        heard_since, self._heard_since = self._heard_since, None  # for a beat that fails
        about = self._about
        was_known, rows, orphans = await self._directory.beat(
            self.instance, self._boot, self._started_at_ms,
            "host", about.host, "pid", about.pid, "version", about.version,
            "url", about.url, "draining", int(self.draining),
        )  # fmt: skip
        now = monotonic()
        # Half: others may have been heard a little less, and need time to come back too.
        if heard_since is None or (now - self._heard_at) * 2000 > self.presence_ms:
            heard_since = now
        self._heard_since, self._heard_at = heard_since, now
        self._started_at_ms = rows[self.instance].started_at_ms
        self._take_beats(rows.values())
        dead = self._dead_of(rows)
        alive = {name: row for name, row in rows.items() if name not in dead}
        self.view = View(alive, dead, was_known, self._lasting(orphans))
        return self.view

    def is_alive(self, instance: str) -> bool:
        """Tell whether an instance lives, as of the last beat; before the first, all may."""
        return self.view is None or instance in self.view.alive

    async def forget(self, instance: str) -> bool:
        """Drop the record of a dead instance whose inbox is removed; True if this call did it.

        Not if it is back, nor if another survivor was first.
        """
        known = self._beats.get(instance)
        return await self._directory.forget(instance, known.at_ms if known is not None else 0)

    async def leave(self) -> None:
        """Drop the own record at the orderly end, so that nobody waits for the silence."""
        await self._directory.leave(self.instance, self._boot)

    def _take_beats(self, rows: Iterable[InstanceRow]) -> None:
        """Note whose last beat is a new one; it is as old as it says, up to the usual distance."""
        known, usual_ms = self._beats, self.presence_ms / BEATS_PER_SILENCE
        self._beats = {}
        for row in rows:
            beat = known.get(row.instance)
            if beat is None or beat.at_ms != row.beat_at_ms:
                age_ms = min(max(0, row.age_ms), usual_ms)
                beat = Beat(row.beat_at_ms, self._heard_at - age_ms / 1000)
            self._beats[row.instance] = beat

    def _dead_of(self, names: Iterable[str]) -> tuple[str, ...]:
        if not self._has_lasted(self._heard_since):
            return ()
        return tuple(name for name in names if self._has_lasted(self._beats[name].since))

    def _lasting(self, orphans: tuple[str, ...]) -> tuple[str, ...]:
        since = self._orphan_since
        self._orphan_since = {name: since.get(name, self._heard_at) for name in orphans}
        return tuple(name for name in orphans if self._has_lasted(self._orphan_since[name]))

    def _has_lasted(self, since: float | None) -> bool:
        return since is not None and (self._heard_at - since) * 1000 >= self.presence_ms


def read_row(raw: list[Any], now_ms: int, wall_ms: int) -> InstanceRow:
    """Read one instance of a beat's answer; beats are by the cell's time, its start by the wall."""
    instance, beat_at_ms, flat = raw
    found = {
        field.decode(): value.decode() for field, value in zip(flat[::2], flat[1::2], strict=True)
    }
    started_at_ms = int(found.get("started_at", beat_at_ms))
    about = About(
        found.get("host", ""), int(found.get("pid", 0)), found.get("version", ""),
        found.get("url", ""),
    )  # fmt: skip
    return InstanceRow(
        instance.decode(), now_ms - beat_at_ms, started_at_ms, wall_ms - started_at_ms, about,
        found.get("draining") == "1", beat_at_ms,
    )  # fmt: skip
