"""The other instances: that this one lives, letters from them, and what dead ones left.

A beat each second says that this instance lives and shows who else does. A survivor reads a dead
instance's inbox to the end and moves the work of its nodes that did not come back elsewhere; its
sessions wait for their clients, who may come back to any instance.
"""

from __future__ import annotations

import asyncio
import os
import platform
from importlib.metadata import version
from typing import TYPE_CHECKING

from lingua_scheduler.between.adoption import Adopter
from lingua_scheduler.between.inbox import Inbox
from lingua_scheduler.between.presence import BEATS_PER_SILENCE, About, Presence
from lingua_scheduler.errors import StoreUnavailable

if TYPE_CHECKING:
    from lingua_scheduler.config import Settings
    from lingua_scheduler.live.board import JobBoard
    from lingua_scheduler.live.mail import Mail
    from lingua_scheduler.logs import EventLog
    from lingua_scheduler.state.script import Connection

# How long nodes that were on a former process of this name have to come back with their jobs.
COME_BACK_MS = 2000


class Neighbours:
    """This instance among the others."""

    def __init__(
        self,
        settings: Settings,
        connection: Connection,
        board: JobBoard,
        mail: Mail,
        log: EventLog,
    ) -> None:
        self._board = board
        self._mail = mail
        self._metrics = board.metrics
        prefix, instances = settings.redis.key_prefix, settings.instances
        about = About(platform.node(), os.getpid(), version("lingua-scheduler"), instances.url)
        self.presence = Presence(
            connection, prefix, board.instance, about, presence_ms=instances.silence_ms
        )
        self.inbox = Inbox(
            connection, prefix, board.instance, mail.apply, log=log,
            deliveries_max=instances.deliveries_max,
        )  # fmt: skip
        self._adopter = Adopter(connection, prefix, self.presence, log=log)
        # The dead that are being seen to now.
        self._under_way: set[str] = set()
        self.beat_s = instances.silence_ms / BEATS_PER_SILENCE / 1000
        self._metrics.sources.append(self._count)

    def _count(self) -> None:
        counts, view = self.inbox.counts, self.presence.view
        for result in ("applied", "failed", "retried", "buried"):
            self._metrics.letters_total.labels(result=result).value = getattr(counts, result)
        self._metrics.instances.labels(state="alive").set(len(view.alive) if view else 0)
        self._metrics.instances.labels(state="dead").set(len(view.dead) if view else 0)

    @property
    def are_there(self) -> bool:
        """Tell whether any other instance lives that would take what leaves here."""
        view = self.presence.view
        if view is None:
            return False
        own = self._board.instance
        return any(name != own and not row.draining for name, row in view.alive.items())

    def speaks_for(self, place: int) -> bool:
        """Tell whether it is this instance that tells the counts of the cell at a place.

        Exactly one does, so that the sum over all instances is right; while instances come and go
        they may disagree for a beat.
        """
        view = self.presence.view
        names = sorted(view.alive) if view is not None else []
        return not names or names[place % len(names)] == self._board.instance

    async def open(self) -> None:
        """Be reachable: before the first socket is."""
        await self.inbox.open()
        await self._beat_once()
        # A process of this name was here before: its nodes are coming back, or are gone.
        own = self._board.instance
        self._board.perform(await self._board.dispatcher.instance_lost(own, keep_ms=COME_BACK_MS))

    async def beat(self) -> bool:
        """Say that we live, and see to the dead; tells whether the store still knew us."""
        was_known = await self._beat_once()
        view = self.presence.view
        assert view is not None
        for name in {*view.dead, *view.orphans} - self._under_way:
            self._under_way.add(name)
            self._board.tasks.start(self._adopt(name))
        return was_known

    async def _beat_once(self) -> bool:
        return (await self.presence.beat()).was_known

    async def _adopt(self, dead: str) -> None:
        """Do what a dead instance cannot; what is not finished is tried again with a later beat."""
        board = self._board
        try:
            board.perform(await board.dispatcher.instance_lost(dead))
            adopted = await self._adopter.adopt(dead, self._mail.apply_adopted)
        except StoreUnavailable:
            return
        finally:
            self._under_way.discard(dead)
        self._metrics.letters_adopted_total.inc(adopted.entries)
        if adopted.finished:
            self._metrics.instances_adopted_total.inc()

    async def leave(self) -> None:
        """End in good order: nobody waits for our silence."""
        try:
            async with asyncio.timeout(2):
                await self.inbox.close(forget=True)
                await self.presence.leave()
        except (StoreUnavailable, TimeoutError):
            self._board.log("instance.left_to_others", instance=self._board.instance)
