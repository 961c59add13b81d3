"""The placement policy. Pure; the reference of `pick.lua` and the code behind `explain`.

Narrow pools are tried first. Among equally broad pools the first two with a free node are compared.
The order starts at a pool chosen by the job's random number (`tie`), or at the pool that last
served its session and languages (`sticky`), which loses only to a clearly less loaded one. Within a
pool the least loaded node wins; of its least loaded nodes, one on the instance of the session
(`near`) wins unless another one is clearly less loaded: that saves messages between instances.
Every node that is not chosen has a reason.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lingua_wire.languages import understands

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lingua_scheduler.jobs.requirement import Demand
    from lingua_scheduler.nodes.capability import Capability

PINNED = "not_in_pinned_pool"
# Filters in the order of application; the reason of the last passed filter is the most specific.
FILTERS = (
    "lang_pair_unsupported",
    "tts_lang_unsupported",
    "model_not_available",
    "feature_unsupported",
    "not_in_public_pool",
    PINNED,
)
# Labels of nodes that cannot take work; on ties the first one wins.
NODE_LABELS = (
    "status_not_ready",
    "offline",
    "capacity_exceeded",
    "resource_threshold_exceeded",
)
# How much more loaded the sticky pool may be, in thousandths of its slots.
STICKY = 250
# The same for a node of the session's own instance, and how many nodes of a pool are considered.
NEARER = 250
NEAR_LOOK = 8


@dataclass(frozen=True, slots=True)
class PoolView:
    """A pool and the abilities of its nodes. `services` are those that work now."""

    id: str
    can: Capability
    services: frozenset[str]

    @property
    def breadth(self) -> int:
        """Return how broad the abilities of these nodes are."""
        return self.can.breadth * 1000 + len(self.services) * 20 + len(self.can.features)


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node for placement."""

    id: str
    pool: str
    boot: str = ""
    status: str = "ready"
    draining: bool = False
    over: bool = False
    max_jobs: int = 4
    # Unexpired leases, and reported jobs without a lease.
    leased: int = 0
    extra: int = 0
    tie: float = 0.0
    # The instance that has its socket.
    instance: str = ""

    @property
    def blocked_by(self) -> str | None:
        """Return the label of the reason why this node gets no new work, or None."""
        if self.status == "offline":
            return "offline"
        if self.draining or self.status != "ready":
            return "status_not_ready"
        if self.over:
            return "resource_threshold_exceeded"
        return "capacity_exceeded" if self.leased + self.extra >= self.max_jobs else None

    @property
    def load(self) -> float:
        """Return the used slots in thousandths, with the tie-break as the fraction."""
        return math.floor(1000 * (self.leased + self.extra) / self.max_jobs) + self.tie


def pool_refuses(pool: PoolView, wanted: Demand, *, paired: bool = False) -> str | None:
    """Return the first filter that removes a pool for a demand, or None if it serves it."""
    can = pool.can
    passes = (
        all(serves_direction(can, *direction.split(">")) for direction in wanted.directions),
        all(understands(can.speech, code) for code in wanted.speech),
        set(wanted.services) <= pool.services,
        set(wanted.features) <= set(can.features),
        paired or can.owner in ("", wanted.tenant),
        paired or set(wanted.labels) <= set(can.labels),
    )
    return next((name for name, passed in zip(FILTERS, passes, strict=True) if not passed), None)


def serves_direction(can: Capability, source: str, target: str) -> bool:
    """Tell whether a node recognises `source` (`*`: any) and translates into `target` ('': no)."""
    if can.pairs is None:
        hears = source == "*" or understands(can.sources, source)
        return hears and (target == "" or understands(can.targets, target))
    known = (pair.split(">") for pair in can.pairs)
    return any(
        (source == "*" or understands((heard,), source))
        and (target == "" or understands((given,), target))
        for heard, given in known
    )


def rank_pools(pools: Iterable[PoolView], wanted: Demand) -> list[list[PoolView]]:
    """Return the pools that serve a demand, in groups of equal breadth, narrow ones first."""
    fits = sorted(
        (pool for pool in pools if pool_refuses(pool, wanted) is None),
        key=lambda pool: (pool.breadth, pool.id),
    )
    groups: dict[int, list[PoolView]] = {}
    for pool in fits:
        groups.setdefault(pool.breadth, []).append(pool)
    return list(groups.values())


@dataclass(frozen=True, slots=True)
class PlacementRequest:
    """A job's demand, its wanted, excluded and avoided nodes, and its random number."""

    demand: Demand
    affinity: str = ""
    preferred: str = ""
    # The excluded ones, as (node, boot).
    tried: frozenset[tuple[str, str]] = frozenset()
    # A node to avoid if another one can take it.
    avoid: str = ""
    # The pool that last served its session and its languages.
    sticky: str = ""
    # The instance of its session; '' if that does not matter.
    near: str = ""
    tie: float = 0.0

    def prefers(self, node: NodeView) -> int:
        """Return how much more loaded this node may be than another one, in thousandths."""
        is_near = bool(self.near) and node.instance == self.near
        return STICKY * (node.pool == self.sticky) + NEARER * is_near


@dataclass(frozen=True, slots=True)
class PlacementVerdict:
    """The chosen node, or the code and label of the refusal."""

    node: str = ""
    code: str = ""
    label: str = ""


@dataclass(slots=True)
class CellFleet:
    """Pools and nodes of one cell."""

    pools: dict[str, PoolView] = field(default_factory=dict)
    nodes: dict[str, NodeView] = field(default_factory=dict)

    def members(self) -> Mapping[str, list[NodeView]]:
        """Return the nodes of each pool."""
        members: dict[str, list[NodeView]] = {pool: [] for pool in self.pools}
        for node in self.nodes.values():
            members[node.pool].append(node)
        return members


def choose(fleet: CellFleet, wish: PlacementRequest) -> PlacementVerdict:
    """Return the node for a job (affinity, preferred, then the pools), or the refusal."""
    for named in (wish.affinity, wish.preferred):
        if named and may_take(fleet, wish, named):
            return PlacementVerdict(named)
    groups = rank_pools(fleet.pools.values(), wish.demand)
    members = fleet.members()
    for avoid in (wish.avoid, "") if wish.avoid else ("",):
        for group in groups:
            node = best_of_group(group, members, wish, avoid)
            if node is not None:
                return PlacementVerdict(node.id)
    return refusal(fleet, groups, members, wish.demand)


def may_take(fleet: CellFleet, wish: PlacementRequest, name: str) -> bool:
    """Tell whether a named node is fully eligible and has a slot."""
    node = fleet.nodes.get(name)
    if node is None or node.blocked_by or (name, node.boot) in wish.tried:
        return False
    pool = fleet.pools[node.pool]
    if pool_refuses(pool, wish.demand) is None:
        return True
    return wish.demand.paired == name and pool_refuses(pool, wish.demand, paired=True) is None


def best_of_group(
    group: Sequence[PoolView],
    members: Mapping[str, list[NodeView]],
    wish: PlacementRequest,
    avoid: str,
) -> NodeView | None:
    """Return the less loaded of the first two free nodes that equally broad pools offer."""
    ids = [pool.id for pool in group]
    is_kept = wish.sticky in ids
    first = ids.index(wish.sticky) if is_kept else math.floor(wish.tie * len(group))
    offers: list[NodeView] = []
    for step in range(len(group)):
        pool = group[(first + step) % len(group)]
        free = [
            node
            for node in members[pool.id]
            if not node.blocked_by and node.id != avoid and (node.id, node.boot) not in wish.tried
        ]
        if free:
            offers.append(best_of_pool(free, wish))
        if len(offers) == 2:
            break
    return min(offers, key=lambda node: node.load - wish.prefers(node), default=None)


def best_of_pool(free: Iterable[NodeView], wish: PlacementRequest) -> NodeView:
    """Return the least loaded node, or one of the session's instance that is hardly more loaded."""
    ranked = sorted(free, key=lambda node: (node.load, node.id))[:NEAR_LOOK]
    near = (
        node
        for node in ranked
        if node.instance == wish.near and node.load - ranked[0].load < NEARER
    )
    return next(near, ranked[0]) if wish.near else ranked[0]


def refusal(
    fleet: CellFleet,
    groups: list[list[PoolView]],
    members: Mapping[str, list[NodeView]],
    wanted: Demand,
) -> PlacementVerdict:
    """Return the code and the most specific label of a refusal."""
    if not groups:
        furthest = furthest_filter(fleet.pools.values(), wanted)
        if furthest in ("no_nodes", *FILTERS[:2]):
            return PlacementVerdict(code="NO_POOL_FOR_LANG_PAIR", label=furthest)
        return PlacementVerdict(code="NO_AVAILABLE_NODE", label=furthest)
    nodes = [node for group in groups for pool in group for node in members[pool.id]]
    if all(node.status == "offline" for node in nodes):
        return PlacementVerdict(code="EMPTY_POOL", label="offline")
    counts = Counter(node.blocked_by for node in nodes)
    label = max(NODE_LABELS, key=lambda name: counts[name])
    return PlacementVerdict(code="NO_AVAILABLE_NODE", label=label if counts[label] else "excluded")


def furthest_filter(pools: Iterable[PoolView], wanted: Demand) -> str:
    """Return the reason of the pool that passed most filters."""
    reasons = [reason for pool in pools if (reason := pool_refuses(pool, wanted)) is not None]
    return max(reasons, key=FILTERS.index, default="no_nodes")


@dataclass(frozen=True, slots=True)
class Explained:
    """One line of `explain`: a node with its load, and the filter that removed it."""

    pool: str
    node: str
    removed_by: str
    load: float
    chosen: bool
    # The labels that the demand is pinned to and the node lacks.
    lacks: tuple[str, ...] = ()


def explain(fleet: CellFleet, wish: PlacementRequest) -> tuple[PlacementVerdict, list[Explained]]:
    """Return the verdict and a line for every node."""
    verdict = choose(fleet, wish)
    lines = []
    for node in sorted(fleet.nodes.values(), key=lambda n: (n.pool, n.load, n.id)):
        removed = removed_by(fleet, wish, node) or ""
        chosen = node.id == verdict.node
        lacks = lacking(fleet, wish, node) if removed == PINNED and not chosen else ()
        lines.append(
            Explained(
                pool=node.pool,
                node=node.id,
                removed_by="" if chosen else removed,
                load=node.load,
                chosen=chosen,
                lacks=lacks,
            )
        )
    return verdict, lines


def lacking(fleet: CellFleet, wish: PlacementRequest, node: NodeView) -> tuple[str, ...]:
    """Return the labels that a request is pinned to and a node lacks."""
    return tuple(sorted(set(wish.demand.labels) - set(fleet.pools[node.pool].can.labels)))


def removed_by(fleet: CellFleet, wish: PlacementRequest, node: NodeView) -> str | None:
    """Return the filter that removes a node for a request."""
    paired = wish.demand.paired == node.id and node.id in (wish.affinity, wish.preferred)
    reason = pool_refuses(fleet.pools[node.pool], wish.demand, paired=paired)
    if reason is None and (node.id, node.boot) in wish.tried:
        reason = "excluded"
    return reason or node.blocked_by
