"""Presence of instances: each writes a heartbeat every second and reads those of all others.

An instance is declared dead when its last heartbeat has not changed for `presence_ms`, measured by
this process' monotonic clock, and this instance's own heartbeats succeeded during all that time.
After an outage of the store, which silences all instances, no instance is declared dead for
`presence_ms`. Steps of a machine's wall clock have no effect. This module only reports deaths; the
callers act on them (`adoption.py` for the inbox).
"""

from __future__ import annotations

import uuid
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from lingua_scheduler.state.keys import Cell, identifier
from lingua_scheduler.state.reply import Reply
from lingua_scheduler.state.scripts import load_scripts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lingua_scheduler.state.connection import Connection
    from lingua_scheduler.state.script import Word


# Heartbeats within the silence after which an instance is declared dead.
BEATS_PER_SILENCE = 5


class InstanceInfo(NamedTuple):
    """What an instance reports about itself."""

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
    about: InstanceInfo
    draining: bool
    # Its last heartbeat, by the clock of the cell.
    beat_at_ms: int


class LastBeat(NamedTuple):
    """The last heartbeat of an instance, and since when it is the last, in monotonic time."""

    at_ms: int
    since: float


class InstancesView(NamedTuple):
    """All instances at one moment; `alive` includes this one."""

    alive: dict[str, InstanceRow]
    dead: tuple[str, ...]
    # False at the first heartbeat, and later if the record is missing: the store was emptied, or
    # this instance was silent for so long that a survivor removed the record.
    was_known: bool
    # Names with an inbox and no record, for long enough that they are not just starting.
    orphans: tuple[str, ...] = ()


class Directory:
    """The records of all instances; a process can read them without a record of its own."""

    def __init__(self, connection: Connection, prefix: str) -> None:
        self._connection = connection
        self._cell = Cell(prefix, 0)
        self._scripts = load_scripts()

    async def beat(
        self, instance: str, boot: str, started_at_ms: int, *fields: Word
    ) -> tuple[bool, dict[str, InstanceRow], tuple[str, ...]]:
        """Write a heartbeat; return whether it was known, all rows, and orphaned inboxes."""
        raw = await self._run("instance_beat", instance, boot, started_at_ms, *fields)
        _, now_ms, was_known, rows, orphans, wall_ms = raw
        read = [read_row(row, now_ms, wall_ms) for row in rows]
        names = tuple(sorted(name.decode() for name in orphans))
        return bool(was_known), {row.instance: row for row in read}, names

    async def read(self) -> tuple[dict[str, InstanceRow], tuple[str, ...]]:
        """Return all rows and orphaned inboxes, and write nothing."""
        _, rows, orphans = await self.beat("", "", 0)
        return rows, orphans

    async def forget(self, instance: str, beat_at_ms: int) -> bool:
        """Delete the record of an instance without a later heartbeat; True if this call did it."""
        raw = await self._run("instance_forget", instance, "", beat_at_ms)
        return bool(raw[0] == Reply.OK and raw[1])

    async def leave(self, instance: str, boot: str) -> None:
        """Delete a process' own record, unless another process uses the name by now."""
        await self._run("instance_forget", instance, boot, 0)

    async def _run(self, name: str, *args: Word) -> list[Any]:
        cell = self._cell
        raw: list[Any] = await self._connection.run(
            self._scripts[name], cell.slot, cell.keys, (0, *args)
        )
        return raw


class Presence:
    """Writes the heartbeats of this instance and knows which other instances are alive."""

    def __init__(
        self,
        connection: Connection,
        prefix: str,
        instance: str,
        about: InstanceInfo,
        *,
        presence_ms: int = 5000,
        is_draining: Callable[[], bool] = lambda: False,
    ) -> None:
        self.instance = identifier("instance", instance)
        self.presence_ms = presence_ms
        # Whether the instance is draining, written with each heartbeat.
        self._is_draining = is_draining
        # As of the last heartbeat; None before the first.
        self.view: InstancesView | None = None

        self._directory = Directory(connection, prefix)
        self._about = about
        # Distinguishes this process from others with the same instance name.
        self._boot = uuid.uuid4().hex
        # By the server's clock; 0 until the first heartbeat succeeds.
        self._started_at_ms = 0
        # Start and end of the period in which all own heartbeats succeeded, in monotonic time.
        self._connected_since: float | None = None
        self._beat_at = 0.0
        # The last heartbeat of each instance.
        self._beats: dict[str, LastBeat] = {}
        # When each name was first seen with an inbox and no record, in monotonic time.
        self._orphan_since: dict[str, float] = {}

    async def beat(self) -> InstancesView:
        """Write a heartbeat; return all known instances."""
        connected_since, self._connected_since = self._connected_since, None  # if it fails
        about = self._about
        fields: dict[str, Word] = {
            "host": about.host,
            "pid": about.pid,
            "version": about.version,
            "url": about.url,
            "draining": int(self._is_draining()),
        }
        words = (word for field in fields.items() for word in field)
        was_known, rows, orphans = await self._directory.beat(
            self.instance, self._boot, self._started_at_ms, *words
        )
        now = monotonic()
        # Half: the heartbeats of others may have failed slightly longer, and they need time too.
        if connected_since is None or (now - self._beat_at) * 2000 > self.presence_ms:
            connected_since = now
        self._connected_since, self._beat_at = connected_since, now
        self._started_at_ms = rows[self.instance].started_at_ms
        self._note_beats(rows.values())
        dead = self._dead_of(rows)
        alive = {name: row for name, row in rows.items() if name not in dead}
        self.view = InstancesView(alive, dead, was_known, self._lasting(orphans))
        return self.view

    def is_alive(self, instance: str) -> bool:
        """Tell whether an instance is alive, as of the last heartbeat; before the first, True."""
        return self.view is None or instance in self.view.alive

    async def forget(self, instance: str) -> bool:
        """Delete the record of a dead instance whose inbox is removed; True if this call did it.

        False if the instance is back, or if another survivor was first.
        """
        known = self._beats.get(instance)
        return await self._directory.forget(instance, known.at_ms if known is not None else 0)

    async def leave(self) -> None:
        """Delete the own record at an orderly end, so that no other instance has to wait."""
        await self._directory.leave(self.instance, self._boot)

    def _note_beats(self, rows: Iterable[InstanceRow]) -> None:
        """Note new heartbeats; the age in the row is trusted up to the usual interval."""
        known, usual_ms = self._beats, self.presence_ms / BEATS_PER_SILENCE
        self._beats = {}
        for row in rows:
            beat = known.get(row.instance)
            if beat is None or beat.at_ms != row.beat_at_ms:
                age_ms = min(max(0, row.age_ms), usual_ms)
                beat = LastBeat(row.beat_at_ms, self._beat_at - age_ms / 1000)
            self._beats[row.instance] = beat

    def _dead_of(self, names: Iterable[str]) -> tuple[str, ...]:
        if not self._has_lasted(self._connected_since):
            return ()
        return tuple(name for name in names if self._has_lasted(self._beats[name].since))

    def _lasting(self, orphans: tuple[str, ...]) -> tuple[str, ...]:
        since = self._orphan_since
        self._orphan_since = {name: since.get(name, self._beat_at) for name in orphans}
        return tuple(name for name in orphans if self._has_lasted(self._orphan_since[name]))

    def _has_lasted(self, since: float | None) -> bool:
        return since is not None and (self._beat_at - since) * 1000 >= self.presence_ms


def read_row(raw: list[Any], now_ms: int, wall_ms: int) -> InstanceRow:
    """Read one row of a heartbeat reply: beats by the cell clock, the start by the wall clock."""
    instance, beat_at_ms, flat = raw
    found = {
        field.decode(): value.decode() for field, value in zip(flat[::2], flat[1::2], strict=True)
    }
    started_at_ms = int(found.get("started_at", beat_at_ms))
    about = InstanceInfo(
        host=found.get("host", ""),
        pid=int(found.get("pid", 0)),
        version=found.get("version", ""),
        url=found.get("url", ""),
    )
    return InstanceRow(
        instance=instance.decode(),
        age_ms=now_ms - beat_at_ms,
        started_at_ms=started_at_ms,
        uptime_ms=wall_ms - started_at_ms,
        about=about,
        draining=found.get("draining") == "1",
        beat_at_ms=beat_at_ms,
    )
