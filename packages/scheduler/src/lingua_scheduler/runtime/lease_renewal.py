"""The leases of this instance's sessions: renewed together; lost ones are opened again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lingua_scheduler.tasks import all_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lingua_scheduler.runtime.session import LiveSession
    from lingua_scheduler.state.keys import Cell, Cells
    from lingua_scheduler.state.store import Store

# Sessions renewed by one call.
RENEWED_AT_ONCE = 500


class LeaseRenewal:
    """Renews the leases of sessions."""

    def __init__(
        self, instance: str, sessions: Mapping[str, LiveSession], store: Store, cells: Cells
    ) -> None:
        self._instance = instance
        self._sessions = sessions
        self._store = store
        self._cells = cells

    async def renew_all(self) -> None:
        """Renew all leases; a session whose lease is lost is opened again."""
        groups: dict[tuple[str, int], list[str]] = {}
        for session in self._sessions.values():
            groups.setdefault((session.record.home.name, session.lease_ms), []).append(session.id)
        await all_of(
            self._renew(self._cells.named(name), ids[at : at + RENEWED_AT_ONCE], lease_ms)
            for (name, lease_ms), ids in groups.items()
            for at in range(0, len(ids), RENEWED_AT_ONCE)
        )

    async def renew(self, session: LiveSession) -> None:
        """Renew one lease."""
        await self._renew(session.record.home, [session.id], session.lease_ms)

    async def _renew(self, cell: Cell, ids: list[str], lease_ms: int) -> None:
        for session_id in await self._store.sessions.renew(cell, self._instance, ids, lease_ms):
            found = self._sessions.get(session_id)
            if found is not None and not found.record.is_over:
                await found.reopening.reopen()
