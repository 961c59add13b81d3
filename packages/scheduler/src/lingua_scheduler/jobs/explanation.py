"""What every cell would do with a job, and why: the answer of `lingua explain` and of the API.

Reads whole cells and changes nothing. `jobs/placement.py` decides; this module makes one typed
answer for programs and tables.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from lingua_scheduler.errors import InvalidDemand
from lingua_scheduler.jobs.fleet import read_fleet
from lingua_scheduler.jobs.placement import PlacementRequest, explain
from lingua_scheduler.jobs.requirement import SERVICES, Languages, PipelineStages, demand
from lingua_scheduler.state.keys import identifier

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lingua_scheduler.config import Settings
    from lingua_scheduler.jobs.placement import CellFleet, Explained
    from lingua_scheduler.state.keys import Cell
    from lingua_scheduler.state.store import Store

DEFAULT_SERVICES = ("asr", "nmt", "tts")


class CellVerdict(msgspec.Struct, frozen=True):
    """The node a job would go to, or the code and the label of the refusal."""

    node: str
    code: str
    label: str


class ExplainedNode(msgspec.Struct, frozen=True):
    """A node, and the filter that removed it; empty if it could take the job."""

    node: str
    pool: str
    taken: int
    slots: int
    removed_by: str
    chosen: bool
    labels: tuple[str, ...] = ()
    # The labels that the tenant is pinned to and the node lacks, if that removed it.
    lacks: tuple[str, ...] = ()


class ExplainedCell(msgspec.Struct, frozen=True):
    """What one cell would do."""

    cell: str
    verdict: CellVerdict
    nodes: tuple[ExplainedNode, ...]


class Explanation(msgspec.Struct, frozen=True):
    """What the whole deployment would do with a job of this demand."""

    demand: str
    cells: tuple[ExplainedCell, ...]


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """The job in question; its languages are canonical or `auto`."""

    source: str
    target: str
    services: tuple[str, ...] = DEFAULT_SERVICES
    tenant: str = ""
    prefer: str = ""

    def wish(self, settings: Settings) -> PlacementRequest:
        """Return the demand of such a job, with the labels that its tenant is pinned to."""
        for kind, value in (("tenant", self.tenant), ("node", self.prefer)):
            if value:
                identifier(kind, value)
        pipeline = PipelineStages(**{f"use_{name}": name in self.services for name in SERVICES})
        labels = next((one.pinned for one in settings.tenants if one.id == self.tenant), ())
        languages = Languages(self.source, self.target)
        wanted = demand(languages, pipeline, tenant=self.tenant, labels=labels)
        return PlacementRequest(wanted, preferred=self.prefer)


def service_names(text: str) -> tuple[str, ...]:
    """Read a list of services, or raise if one of them does not exist."""
    names = tuple(text.split(","))
    unknown = sorted(set(names) - set(SERVICES))
    if unknown:
        raise InvalidDemand("no such service", ", ".join(unknown))
    return names


async def explain_in(
    store: Store, cells: Iterable[Cell], wish: PlacementRequest, *, seen_by: str = ""
) -> Explanation:
    """Read every cell and decide in each; a tenant does not see other tenants' nodes."""
    names = list(cells)
    fleets = await asyncio.gather(*(read_fleet(store, cell) for cell in names))
    answers = (
        _cell(cell.name, fleet, wish, seen_by) for cell, fleet in zip(names, fleets, strict=True)
    )
    return Explanation(wish.demand.text, tuple(answers))


def _cell(name: str, fleet: CellFleet, wish: PlacementRequest, seen_by: str) -> ExplainedCell:
    verdict, lines = explain(fleet, wish)
    nodes = tuple(
        _node(fleet, line)
        for line in lines
        if not seen_by or fleet.pools[line.pool].can.owner in ("", seen_by)
    )
    return ExplainedCell(name, CellVerdict(verdict.node, verdict.code, verdict.label), nodes)


def _node(fleet: CellFleet, line: Explained) -> ExplainedNode:
    node = fleet.nodes[line.node]
    taken = node.leased + node.extra
    return ExplainedNode(
        line.node,
        line.pool,
        taken=taken,
        slots=node.max_jobs,
        removed_by=line.removed_by,
        chosen=line.chosen,
        labels=fleet.pools[line.pool].can.labels,
        lacks=line.lacks,
    )
