"""This instance among its peers: heartbeats, the inbox, and what dead instances left.

A heartbeat each second shows that this instance lives, and which others do. A survivor reads a dead
instance's inbox to the end and moves the work of its nodes that did not come back. The sessions of
the dead instance wait for their clients, which may come back to any instance.
"""

from __future__ import annotations

import asyncio
import os
import platform
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING

from lingua_scheduler.errors import StoreUnavailable
from lingua_scheduler.peers.adoption import Adopter
from lingua_scheduler.peers.inbox import Inbox
from lingua_scheduler.peers.presence import BEATS_PER_SILENCE, InstanceInfo, Presence

if TYPE_CHECKING:
    from collections.abc import Collection

    from lingua_cli.logs import EventLog
    from lingua_scheduler.config import Settings
    from lingua_scheduler.metrics import LiveMetrics
    from lingua_scheduler.runtime.effects import Effects
    from lingua_scheduler.runtime.lifecycle import Lifecycle
    from lingua_scheduler.runtime.peer_messages import PeerMessageHandler
    from lingua_scheduler.state.connection import Connection

# How long nodes that were on a former process of this name have to come back with their jobs.
COME_BACK_MS = 2000
# The first release that knows messages about partial results.
PARTIALS_SINCE = (0, 2)


class PeerInstances:
    """This instance among the others."""

    def __init__(
        self,
        settings: Settings,
        connection: Connection,
        *,
        effects: Effects,
        messages: PeerMessageHandler,
        lifecycle: Lifecycle,
        log: EventLog,
    ) -> None:
        self._effects = effects
        self._messages = messages
        self._log = log
        self._metrics: LiveMetrics = effects.metrics
        self._instance = instance = effects.peers.instance
        prefix, instances = settings.redis.key_prefix, settings.instances
        about = InstanceInfo(
            platform.node(), os.getpid(), version("lingua-scheduler"), instances.url
        )
        self.presence = Presence(
            connection,
            prefix,
            instance,
            about,
            presence_ms=instances.silence_ms,
            is_draining=lambda: lifecycle.is_draining,
        )
        self.inbox = Inbox(
            connection,
            prefix,
            instance,
            messages.apply,
            log=log,
            deliveries_max=instances.deliveries_max,
        )
        self._adopter = Adopter(connection, prefix, self.presence, log=log)
        # Dead instances whose inbox is being adopted now.
        self._adopting: set[str] = set()
        self.beat_s = instances.silence_ms / BEATS_PER_SILENCE / 1000
        for result in ("applied", "failed", "retried", "buried"):
            counted = self._metrics.peers.letters_total.labels(result=result)
            counted.follow(partial(getattr, self.inbox.counts, result))

    def count(self) -> None:
        """Bring the metrics of peers up to date, at a scrape."""
        view = self.presence.view
        self._metrics.peers.instances.labels(state="alive").set(len(view.alive) if view else 0)
        self._metrics.peers.instances.labels(state="dead").set(len(view.dead) if view else 0)

    @property
    def are_there(self) -> bool:
        """Tell whether another live instance accepts sessions and nodes that leave here."""
        return self.are_besides(())

    def are_besides(self, leaving: Collection[str]) -> bool:
        """Tell the same without the instances that are about to drain, too."""
        view = self.presence.view
        if view is None:
            return False
        away = {self._instance, *leaving}
        return any(name not in away and not row.draining for name, row in view.alive.items())

    def know_partials(self, instance: str) -> bool:
        """Tell whether an instance is of a release that knows partial results."""
        view = self.presence.view
        row = view.alive.get(instance) if view is not None else None
        return row is not None and release_of(row.about.version) >= PARTIALS_SINCE

    def speaks_for(self, place: int) -> bool:
        """Tell whether this instance reports the counts of the cell at a place.

        Exactly one does, so that the sum over all instances is right; while instances come and go
        they may disagree for a beat.
        """
        view = self.presence.view
        names = sorted(view.alive) if view is not None else []
        return not names or names[place % len(names)] == self._instance

    async def open(self) -> None:
        """Become reachable for peers, before the first socket is accepted."""
        await self.inbox.open()
        await self._beat_once()
        # If a process of this name was here before, its nodes are coming back, or are lost.
        lost = self._effects.dispatcher.instance_lost(self._instance, keep_ms=COME_BACK_MS)
        self._effects.perform(await lost)

    async def beat(self) -> bool:
        """Send a heartbeat and adopt dead instances; tells whether the store still knew us."""
        was_known = await self._beat_once()
        view = self.presence.view
        assert view is not None
        for name in {*view.dead, *view.orphans} - self._adopting:
            self._adopting.add(name)
            self._effects.tasks.start(self._adopt(name))
        return was_known

    async def _beat_once(self) -> bool:
        return (await self.presence.beat()).was_known

    async def _adopt(self, dead: str) -> None:
        """Do the work of a dead instance; the rest is tried again with a later heartbeat."""
        effects = self._effects
        try:
            effects.perform(await effects.dispatcher.instance_lost(dead))
            adopted = await self._adopter.adopt(dead, self._messages.apply_adopted)
        except StoreUnavailable:
            return
        finally:
            self._adopting.discard(dead)
        self._metrics.peers.letters_adopted_total.inc(adopted.entries)
        if adopted.finished:
            self._metrics.peers.instances_adopted_total.inc()

    async def leave(self) -> None:
        """Sign off: peers need not wait until our heartbeats time out."""
        try:
            async with asyncio.timeout(2):
                await self.inbox.close(forget=True)
                await self.presence.leave()
        except (StoreUnavailable, TimeoutError):
            self._log("instance.left_to_others", instance=self._instance)


def release_of(version_text: str) -> tuple[int, ...]:
    """Return the first two numbers of a version; of an unknown one, none."""
    numbers = version_text.split(".")[:2]
    return tuple(int(number) for number in numbers) if all(map(str.isdigit, numbers)) else ()
