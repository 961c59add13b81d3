"""The numbers that the scripts use, packed once per process.

There are two groups, so that the scripts of the hot path do not decode what only the scripts about
nodes need. Names are those of the settings; Lua reads them as `policy.<name>` and ignores unknown
ones, so that instances of two successive releases can share a store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from lingua_scheduler.config import Settings

# How long an instance has to act on a claimed timer before another instance may claim it.
CLAIM_MS = 1000
# A step for this many listeners takes less than a millisecond.
HEAR_AT_ONCE = 16
# Captions that are kept for readers who lost their connection, also if rooms keep none.
CAPTIONS_MIN = 32


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of placement, deadlines and order."""

    attempt_ms: int = 30_000
    ack_ms: int = 2_000
    attempts_max: int = 3
    pending_ms: int = 10_000
    pending_jobs_max: int = 1_000
    binding_ms: int = 90_000
    in_flight_max: int = 8
    outbox_max: int = 1_000
    gap_ms: int = 10_000
    reserve_ms: int = 2_000
    lease_grace_ms: int = 5_000
    refuse_unserved_pairs: bool = False
    spread: bool = False
    spread_ms: int = 30_000
    # How long results are kept for disconnected listeners, and how many bytes per speaker.
    resume_ms: int = 120_000
    kept_bytes_max: int = 16 << 20
    sticky_pools: bool = True
    # Listeners that get an outcome in the step that releases it; others get it in later steps.
    hear_at_once: int = HEAR_AT_ONCE
    # Captions of a room in one language that are kept, and their bytes.
    captions_max: int = 200
    caption_bytes_max: int = 256 << 10
    # Placements return the nodes that they considered.
    explains: bool = False

    @classmethod
    def of(cls, settings: Settings) -> Policy:
        """Take the numbers from the settings."""
        return cls(**of_jobs(settings))


class FleetPolicy(Policy, frozen=True, kw_only=True):
    """Also the numbers of the scripts about nodes, sessions and timers."""

    claim_ms: int = CLAIM_MS
    good_beats: int = 1
    bad_beats: int = 3
    bad_beats_window: int = 5
    warmup_ms: int = 60_000
    stale_ms: int = 600_000
    unavailable_ms: int = 60_000
    debounce_ms: int = 5_000
    rate_window_ms: int = 10_000
    rate_max: int = 30

    @classmethod
    def of(cls, settings: Settings) -> FleetPolicy:
        """Take the numbers from the settings."""
        nodes, models = settings.nodes, settings.models
        return cls(
            **of_jobs(settings),
            good_beats=nodes.good_beats,
            bad_beats=nodes.bad_beats,
            bad_beats_window=nodes.bad_beats_window,
            warmup_ms=nodes.warmup_ms,
            stale_ms=nodes.stale_ms,
            unavailable_ms=models.unavailable_ms,
            debounce_ms=models.debounce_ms,
            rate_window_ms=models.rate_window_ms,
            rate_max=models.rate_max,
        )

    def for_jobs(self) -> Policy:
        """Return the part for the hot path."""
        return Policy(**{name: getattr(self, name) for name in Policy.__struct_fields__})


def of_jobs(settings: Settings) -> dict[str, Any]:
    """Return the numbers of `Policy` from the settings."""
    jobs = settings.jobs
    elsewhere = {
        "resume_ms": settings.sessions.resume_ms,
        "kept_bytes_max": settings.rooms.kept_bytes_max,
        "captions_max": max(CAPTIONS_MIN, settings.rooms.captions_kept),
        "caption_bytes_max": settings.rooms.caption_bytes_max,
        "explains": settings.log.jobs == "all",
        "hear_at_once": HEAR_AT_ONCE,
    }
    names = [name for name in Policy.__struct_fields__ if name not in elsewhere]
    return elsewhere | {name: getattr(jobs, name) for name in names}
