"""The results of `lingua bench placement` as data: a row per fleet and one summary.

Times are microseconds, rates are pairs of submit and settle per second. Nothing here measures or
prints.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lingua_bench.fleet import FleetShape

SMALL, LARGE = 10, 10_000


@dataclass(frozen=True, slots=True)
class FleetRow:
    """One fleet on one server."""

    nodes: int
    signatures: int
    # Whether the server wrote the append-only file, as `local` mode does.
    aof: bool
    pairs_per_s_64: float | None
    pairs_per_s_256: float
    ceiling_pairs_per_s_256: float
    ratio_to_ceiling: float
    submit_server_us: float
    submit_server_us_min: float
    settle_server_us: float
    settle_server_us_min: float
    ceiling_submit_server_us: float
    ceiling_settle_server_us: float
    # Calls of tasks, each sent alone; as an instance makes them; the ceiling's, like the first.
    client_us_per_call: float
    client_us_per_call_in_steps: float
    ceiling_client_us_per_call: float
    commands_per_pair: float
    ceiling_commands_per_pair: float
    slices: int
    batches: int
    pairs_checked: int


@dataclass(frozen=True, slots=True)
class PlacementSummary:
    """The numbers to quote, at 1,000 nodes in 20 signatures; None for what was not measured."""

    ratio_to_ceiling: float | None
    growth_10_to_10000: float | None
    pairs_per_s_64: float | None
    pairs_per_s_256: float | None
    submit_server_us: float | None
    settle_server_us: float | None
    client_us_per_call: float | None


@dataclass(frozen=True, slots=True)
class PlacementReport:
    """All results."""

    rows: Sequence[FleetRow]
    summary: PlacementSummary
    # Commands of one pair by name, in the fleet that is measured most often: ours, and the
    # ceiling's.
    commands: tuple[dict[str, float], dict[str, float]]


def summary(rows: Sequence[FleetRow], focus: FleetShape) -> PlacementSummary:
    """Return the numbers to quote, from the server without persistence."""
    found = {(row.nodes, row.signatures): row for row in rows if not row.aof}
    at = found.get((focus.nodes, focus.signatures))
    small, large = (found.get((nodes, focus.signatures)) for nodes in (SMALL, LARGE))
    return PlacementSummary(
        growth_10_to_10000=growth(small, large),
        ratio_to_ceiling=at.ratio_to_ceiling if at else None,
        pairs_per_s_64=at.pairs_per_s_64 if at else None,
        pairs_per_s_256=at.pairs_per_s_256 if at else None,
        submit_server_us=at.submit_server_us if at else None,
        settle_server_us=at.settle_server_us if at else None,
        client_us_per_call=at.client_us_per_call if at else None,
    )


def growth(small: FleetRow | None, large: FleetRow | None) -> float | None:
    """Return how many times more server time a larger fleet costs: submit or settle, the worse."""
    if small is None or large is None:
        return None
    return max(
        large.submit_server_us / small.submit_server_us,
        large.settle_server_us / small.settle_server_us,
    )


def as_json_object(found: FleetRow | PlacementSummary) -> dict[str, Any]:
    """Return the fields with numbers rounded to the precision of the measurement."""
    return {
        name: round(value, 3) if isinstance(value, float) else value
        for name, value in asdict(found).items()
    }
