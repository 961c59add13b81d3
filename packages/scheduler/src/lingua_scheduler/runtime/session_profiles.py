"""What tenants add to their sessions: pinned labels, cells, glossaries."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from lingua_scheduler.jobs.profile import Profile
from lingua_wire import glossary as glossaries

if TYPE_CHECKING:
    from lingua_scheduler.config import Settings
    from lingua_scheduler.state.keys import Cell, Cells
    from lingua_wire.from_client import SessionInit
    from lingua_wire.shared import Term


class SessionProfiles:
    """The profiles and the cells of sessions, by their tenant."""

    def __init__(self, settings: Settings, cells: Cells) -> None:
        self._cells = cells
        self._tenants = {tenant.id: tenant for tenant in settings.tenants}
        self._glossaries = glossaries_of(settings)

    def profile(
        self, init: SessionInit, tenant: str, paired: str, glossary: tuple[Term, ...]
    ) -> Profile:
        """Return the profile of a session, or raise what is wrong with its first message."""
        pinned = self._tenants.get(tenant)
        labels = pinned.pinned if pinned else ()
        terms = glossaries.merged(self._glossaries.get(tenant, ()), glossary)
        return Profile.of(init, tenant=tenant, labels=labels, paired=paired, glossary=terms)

    def home(self, tenant: str, session: str) -> Cell:
        """Return the cell of a session."""
        pinned = self._tenants.get(tenant)
        return self._cells.home_of(tenant or session, session, pinned.cells if pinned else 1)


def glossaries_of(settings: Settings) -> dict[str, tuple[Term, ...]]:
    """Read the tenants' glossaries; raises `ConfigError` for the first that cannot be used."""
    return {
        tenant.id: glossaries.read(
            Path(tenant.glossary_file).expanduser(), f"tenants[{index}].glossary_file"
        )
        for index, tenant in enumerate(settings.tenants)
        if tenant.glossary_file
    }
