"""The lifecycle of a node by its heartbeats, as `node_beat.lua` and `node_check.lua` implement it.

    registering --good_beats good--> ready --bad_beats bad in the window--> degraded
         |  ^                          ^                                       |
         |  +-- first beat again --+   +--------------- first good beat -------+
         +-- warmup_ms passed --> degraded         any --silence--> offline

Draining is independent of health: a draining node can be healthy.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol


class HealthRules(Protocol):
    """The numbers the lifecycle follows."""

    @property
    def good_beats(self) -> int:
        """Good beats in a row that make a registering node ready."""

    @property
    def bad_beats(self) -> int:
        """Bad beats within the window that degrade a ready node."""

    @property
    def bad_beats_window(self) -> int:
        """How many of the latest beats are looked at."""

    @property
    def warmup_ms(self) -> int:
        """How long a node may be registering before it counts as degraded."""


@dataclass(frozen=True, slots=True)
class Health:
    """A node's status and what led to it."""

    status: str = "registering"
    good: int = 0
    # The latest beats, oldest first: True where a beat was bad.
    bad: tuple[bool, ...] = ()
    registered_at_ms: int = 0
    beat_at_ms: int = 0


def after_beat(health: Health, *, good: bool, now_ms: int, rules: HealthRules) -> Health:
    """Return the health after one heartbeat."""
    bad = (*health.bad, not good)[-rules.bad_beats_window :]
    goods = health.good + 1 if good else 0
    status = health.status
    if status == "offline":
        status, goods = "registering", 1 if good else 0
        health = replace(health, registered_at_ms=now_ms)
    health = replace(health, good=goods, bad=bad, beat_at_ms=now_ms)
    if status == "registering":
        if goods >= rules.good_beats:
            return replace(health, status="ready", bad=())
        warm = now_ms - health.registered_at_ms >= rules.warmup_ms
        return replace(health, status="degraded" if warm else "registering")
    if status == "degraded" and good:
        return replace(health, status="ready", bad=())
    if status == "ready" and sum(bad) >= rules.bad_beats:
        return replace(health, status="degraded")
    return replace(health, status=status)


def after_silence(health: Health) -> Health:
    """Return the health of a node that stopped beating or lost its socket."""
    return replace(health, status="offline", good=0, bad=())
