"""Tenants that are pinned to labels, and whether any known node has these labels.

A label that no node has keeps a tenant's jobs waiting, which nobody sees before somebody speaks. It
is no error: the node may come later. So it is told, at the start and whenever it changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lingua_scheduler.config import Settings
    from lingua_scheduler.jobs.placement import PoolView


def old_names(settings: Settings) -> list[str]:
    """Return a sentence for each tenant that still names its labels `pools`."""
    return [
        f"tenants[{index}].pools of {tenant.id} is an old name: what it lists counts as "
        "tenants[].labels, labels of nodes"
        for index, tenant in enumerate(settings.tenants)
        if tenant.pools
    ]


class Pins:
    """What the tenants of a deployment are pinned to."""

    def __init__(self, settings: Settings) -> None:
        self._pinned = {one.id: one.pinned for one in settings.tenants if one.pinned}
        # Tenant -> what was wrong when it was last looked at.
        self._problems: dict[str, str] = {}

    @property
    def are_there(self) -> bool:
        """Tell whether any tenant is pinned."""
        return bool(self._pinned)

    def problems(self, pools: Iterable[PoolView]) -> dict[str, str]:
        """Return, for each tenant that no node can serve, which labels are missing where."""
        known = [frozenset(pool.can.labels) for pool in pools]
        anywhere = frozenset().union(*known)
        found = {}
        for tenant, labels in self._pinned.items():
            if not any(has.issuperset(labels) for has in known):
                missing = [label for label in labels if label not in anywhere]
                whose = f"is pinned to {', '.join(labels)}"
                lack = f"has {', '.join(missing)}" if missing else "has all of them"
                found[tenant] = f"tenant {tenant} {whose}, but no known node {lack}"
        return found

    def news(self, pools: Iterable[PoolView]) -> tuple[list[str], list[str]]:
        """Return what is wrong now and was not before, and the tenants that are served again."""
        before, self._problems = self._problems, self.problems(pools)
        new = [text for tenant, text in self._problems.items() if before.get(tenant) != text]
        return new, sorted(before.keys() - self._problems.keys())
