"""What every cell would do with a job, and why: the answer of `lingua explain` and of the API.

Reads cells whole and changes nothing in them. The decision is `jobs/placement.py`; here it becomes
one typed answer that programs read and tables are made from.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from lingua_scheduler.errors import InvalidDemand
from lingua_scheduler.jobs.fleet import read_fleet
from lingua_scheduler.jobs.placement import Wish, explain
from lingua_scheduler.jobs.requirement import SERVICES, Languages, Pipeline, demand
from lingua_scheduler.state.keys import identifier

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lingua_scheduler.config import Settings
    from lingua_scheduler.jobs.placement import Explained, Fleet
    from lingua_scheduler.state.keys import Cell
    from lingua_scheduler.state.store import Store

DEFAULT_SERVICES = ("asr", "nmt", "tts")


class CellVerdict(msgspec.Struct, frozen=True):
    """The node a job would go to, or the code and the label of the refusal."""

    node: str
    code: str
    label: str


class ExplainedNode(msgspec.Struct, frozen=True):
    """A node, and the filter that removed it; none if it could take the job."""

    node: str
    pool: str
    taken: int
    slots: int
    removed_by: str
    chosen: bool
    labels: tuple[str, ...] = ()
    # Labels its tenant is pinned to that the node lacks, if that is what removed it.
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
    """A job that may be asked about; the languages are in their one form or `auto`."""

    source: str
    target: str
    services: tuple[str, ...] = DEFAULT_SERVICES
    tenant: str = ""
    prefer: str = ""

    def wish(self, settings: Settings) -> Wish:
        """Return what such a job asks of a node, with the labels its tenant is pinned to."""
        for kind, value in (("tenant", self.tenant), ("node", self.prefer)):
            if value:
                identifier(kind, value)
        pipeline = Pipeline(**{f"use_{name}": name in self.services for name in SERVICES})
        labels = next((one.pinned for one in settings.tenants if one.id == self.tenant), ())
        languages = Languages(self.source, self.target)
        wanted = demand(languages, pipeline, tenant=self.tenant, labels=labels)
        return Wish(wanted, preferred=self.prefer)


def service_names(text: str) -> tuple[str, ...]:
    """Read a list of services, or raise if one of them is none."""
    names = tuple(text.split(","))
    unknown = sorted(set(names) - set(SERVICES))
    if unknown:
        raise InvalidDemand("no such service", ", ".join(unknown))
    return names


async def explain_in(
    store: Store, cells: Iterable[Cell], wish: Wish, *, seen_by: str = ""
) -> Explanation:
    """Read every cell and decide in each; a tenant that looks sees no other tenant's nodes."""
    names = list(cells)
    fleets = await asyncio.gather(*(read_fleet(store, cell) for cell in names))
    answers = (
        _cell(cell.name, fleet, wish, seen_by) for cell, fleet in zip(names, fleets, strict=True)
    )
    return Explanation(wish.demand.text, tuple(answers))


def _cell(name: str, fleet: Fleet, wish: Wish, seen_by: str) -> ExplainedCell:
    verdict, lines = explain(fleet, wish)
    nodes = tuple(
        _node(fleet, line)
        for line in lines
        if not seen_by or fleet.pools[line.pool].can.owner in ("", seen_by)
    )
    return ExplainedCell(name, CellVerdict(verdict.node, verdict.code, verdict.label), nodes)


def _node(fleet: Fleet, line: Explained) -> ExplainedNode:
    node = fleet.nodes[line.node]
    taken = node.leased + node.extra
    return ExplainedNode(
        line.node, line.pool, taken, node.max_jobs, line.removed_by, line.chosen,
        labels=fleet.pools[line.pool].can.labels, lacks=line.lacks,
    )  # fmt: skip
