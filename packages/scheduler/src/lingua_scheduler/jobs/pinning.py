"""Tenants that are pinned to labels, and whether any known node has these labels.

If no node has a label, the tenant's jobs wait, which is not visible before the first speech. It is
not an error, because the node may connect later. Therefore it is logged, at the start and whenever
it changes.
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
    """The labels that the tenants of a deployment are pinned to."""

    def __init__(self, settings: Settings) -> None:
        self._pinned = {one.id: one.pinned for one in settings.tenants if one.pinned}
        # Tenant -> the problem at the last check.
        self._problems: dict[str, str] = {}

    @property
    def exist(self) -> bool:
        """Tell whether any tenant is pinned."""
        return bool(self._pinned)

    def problems(self, pools: Iterable[PoolView]) -> dict[str, str]:
        """Return the missing labels of each tenant that no node can serve."""
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

    def changes(self, pools: Iterable[PoolView]) -> tuple[list[str], list[str]]:
        """Return the new problems, and the tenants that can be served again."""
        before, self._problems = self._problems, self.problems(pools)
        new = [text for tenant, text in self._problems.items() if before.get(tenant) != text]
        return new, sorted(before.keys() - self._problems.keys())
