"""Which languages of a session known nodes serve now."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from lingua_scheduler.errors import StoreUnavailable

if TYPE_CHECKING:
    from lingua_scheduler.clock import Clock
    from lingua_scheduler.jobs.fleet import FleetSnapshot
    from lingua_scheduler.jobs.profile import Profile

# Sessions that find no node for their languages may look again this often, all together.
LOOK_AGAIN_MS = 100


class ServedLanguages:
    """What the fleet serves, as this instance knows it."""

    def __init__(self, fleet: FleetSnapshot, clock: Clock) -> None:
        self._fleet = fleet
        self._clock = clock
        self._looked_at_ms = 0.0

    async def unserved(self, profile: Profile) -> tuple[str, ...]:
        """Return the wanted languages that no known node serves; reads the fleet if needed."""
        found, now = self.unserved_now(profile), self._clock.now_ms()
        if found and now - self._looked_at_ms > LOOK_AGAIN_MS:
            self._looked_at_ms = now
            await self.look()
            found = self.unserved_now(profile)
        return found

    def unserved_now(self, profile: Profile) -> tuple[str, ...]:
        """Return the wanted languages that no node serves, as far as is known."""
        serves = self._fleet.serves
        return tuple(code for code in profile.targets if not serves(profile.demand_of(code)))

    async def look(self) -> None:
        """Read the fleet now; an unavailable store changes nothing."""
        with suppress(StoreUnavailable):
            await self._fleet.refresh()
