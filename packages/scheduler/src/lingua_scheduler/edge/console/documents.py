"""What the stream of the console says, as types. Pure.

Like all answers of the API: ids, counts and times, never speech or text of users. A state that
changes all the time would make every update a whole document: times are points in time, not ages.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from lingua_scheduler.edge.answers import (  # noqa: TC001 msgspec reads them at run time
    NodeLanguages,
    OverAnswer,
)

T = TypeVar("T")


class ConsoleDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The base of all parts of the stream."""


class ServiceState(ConsoleDocument, frozen=True, kw_only=True):
    """The service whose address was asked: one instance, or the workers of one command."""

    service: str
    # Its workers that answered.
    workers: int
    release: str
    started_at_ms: int
    draining: bool
    # Whether the store answered.
    store_up: bool
    # Its jobs whose outcome is not delivered yet.
    jobs: int


class ConsoleProblem(ConsoleDocument, frozen=True, kw_only=True):
    """One thing that is not as it should be."""

    # `bad`: people notice, or will soon. `warn`: an operator should look.
    level: str
    code: str
    text: str
    # The names of nodes, instances or cells that it is about; the first few.
    about: tuple[str, ...] = ()


class ConsoleVerdict(ConsoleDocument, frozen=True, kw_only=True):
    """Whether all is well."""

    # `well`, `warn` or `bad`: the worst of its problems.
    state: str
    sentence: str
    problems: tuple[ConsoleProblem, ...] = ()


class ConsoleInstance(ConsoleDocument, frozen=True, kw_only=True):
    """One instance of the deployment."""

    id: str
    # As in `lingua cluster`: alive, draining, dead, orphan, gone.
    state: str
    # Whether it is a worker of the service that was asked.
    is_here: bool
    started_at_ms: int | None
    version: str
    host: str
    pid: int
    url: str
    inbox: int
    dead_letters: int
    # The nodes that are connected to it.
    nodes: int


class ConsoleNode(ConsoleDocument, frozen=True, kw_only=True):
    """One node of the deployment; its languages are those of its pool."""

    id: str
    # One word for its health: ready, full, busy, degraded, registering, draining, drained, offline.
    health: str
    status: str
    draining: bool
    drained_by_operator: bool
    over_by: tuple[OverAnswer, ...]
    slots: int
    leased: int
    extra: int
    # How many utterances it may hear while they are spoken, and how many it hears.
    streams: int
    streams_open: int
    pool: str
    cell: str
    instance: str
    # About when its last heartbeat came, by the clock of the asked instance.
    beat_at_ms: int
    platform: str
    version: str


class ConsolePool(ConsoleDocument, frozen=True, kw_only=True):
    """The nodes of one capability in one cell."""

    id: str
    cell: str
    languages: NodeLanguages
    # Whether the lists of languages are cut; `/api/v1/nodes` has them whole.
    is_cut: bool
    # The services that work now.
    services: tuple[str, ...]
    features: tuple[str, ...]
    labels: tuple[str, ...]
    private_to: str
    nodes: int
    # The nodes with a free slot, and those that are offline.
    free: int
    offline: int


class QueuedDemand(ConsoleDocument, frozen=True, kw_only=True):
    """Jobs of one kind that wait; at most so many are counted."""

    demand: str
    jobs: int

    @property
    def directions(self) -> str:
        """Return what is to be translated: the first part of a demand."""
        return self.demand.partition("|")[0]


class ConsoleQueue(ConsoleDocument, frozen=True, kw_only=True):
    """The jobs of one cell that wait for a node."""

    cell: str
    waiting: int
    nodes: int
    demands: tuple[QueuedDemand, ...] = ()


class ConsoleSession(ConsoleDocument, frozen=True, kw_only=True):
    """One session of the asked service."""

    id: str
    tenant: str
    source: str
    targets: tuple[str, ...]
    room: str | None
    connected: bool
    opened_at_ms: int
    # Utterances that wait for earlier ones, or for the store.
    backlog: int
    instance: str


class ConsoleSessions(ConsoleDocument, frozen=True, kw_only=True):
    """The sessions of the asked service: how many, and the newest of them."""

    total: int
    newest: tuple[ConsoleSession, ...]


class ConsoleRoom(ConsoleDocument, frozen=True, kw_only=True):
    """One room with members on the asked service; members are counted on all instances."""

    code: str
    members: int
    away: int
    languages: tuple[str, ...]
    created_at_ms: int
    spoke_at_ms: int


class ConsoleRooms(ConsoleDocument, frozen=True, kw_only=True):
    """The rooms with members on the asked service: how many, and the newest of them."""

    total: int
    newest: tuple[ConsoleRoom, ...]


class ConsoleDeadLetter(ConsoleDocument, frozen=True, kw_only=True):
    """One dead letter, without its content."""

    id: str
    instance: str
    kind: str
    correlation: str
    reason: str
    deliveries: int
    moved_at_ms: int


class ConsoleDeadLetters(ConsoleDocument, frozen=True, kw_only=True):
    """The dead letters of all instances: how many, and the newest of them."""

    total: int
    newest: tuple[ConsoleDeadLetter, ...]


class RateRow(ConsoleDocument, frozen=True, kw_only=True, omit_defaults=True):
    """What happened in one bucket of time; what did not happen is left out."""

    at_ms: int
    # How much of the bucket is over.
    covers_ms: int
    utterances: int = 0
    # By outcome, and by kind and reason.
    outcomes: dict[str, int] = {}
    refused: dict[str, int] = {}
    # The mean duration of each part of an utterance's time.
    parts_ms: dict[str, float] = {}
    # The whole time, from the end of speech to the delivered outcome; estimates of a histogram.
    mean_ms: float | None = None
    p50_ms: float | None = None
    p95_ms: float | None = None


class ConsoleRates(ConsoleDocument, frozen=True, kw_only=True):
    """The last hour of one service, not of the deployment; in an update the rows that changed."""

    # The service that the rows are about.
    of: str
    bucket_ms: int
    rows: tuple[RateRow, ...]


class ConsoleState(ConsoleDocument, frozen=True, kw_only=True):
    """The data of an event: `snapshot` has every field, `update` those that changed."""

    # The time of the asked instance.
    at_ms: int
    service: ServiceState | UnsetType = UNSET
    verdict: ConsoleVerdict | UnsetType = UNSET
    instances: tuple[ConsoleInstance, ...] | UnsetType = UNSET
    # By id. In an update: the nodes that changed, null for one that is gone.
    nodes: dict[str, ConsoleNode | None] | UnsetType = UNSET
    # All nodes of the deployment, also those beyond the limit of `nodes`.
    nodes_total: int | UnsetType = UNSET
    pools: tuple[ConsolePool, ...] | UnsetType = UNSET
    queues: tuple[ConsoleQueue, ...] | UnsetType = UNSET
    sessions: ConsoleSessions | UnsetType = UNSET
    rooms: ConsoleRooms | UnsetType = UNSET
    dead_letters: ConsoleDeadLetters | UnsetType = UNSET
    rates: ConsoleRates | UnsetType = UNSET


# The fields that an update has whole if they changed.
WHOLE = (
    *("service", "verdict", "instances", "nodes_total", "pools", "queues", "sessions", "rooms"),
    "dead_letters",
)


def update_between(before: ConsoleState, after: ConsoleState) -> ConsoleState:
    """Return what a reader needs that has the state before."""
    changed = {
        name: getattr(after, name)
        for name in WHOLE
        if getattr(after, name) != getattr(before, name)
    }
    old_nodes, new_nodes = _given(before.nodes), _given(after.nodes)
    nodes: dict[str, ConsoleNode | None] = {
        name: node for name, node in new_nodes.items() if node != old_nodes.get(name)
    }
    nodes |= dict.fromkeys(old_nodes.keys() - new_nodes.keys())
    old_rates, new_rates = _given(before.rates), _given(after.rates)
    known = {row.at_ms: row for row in old_rates.rows}
    # Rows that are over stay the same objects.
    rows = tuple(
        row for row in new_rates.rows if row is not (was := known.get(row.at_ms)) and row != was
    )
    return ConsoleState(
        at_ms=after.at_ms,
        nodes=nodes or UNSET,
        rates=msgspec.structs.replace(new_rates, rows=rows) if rows else UNSET,
        **changed,
    )


def updated(state: ConsoleState, update: ConsoleState, rows_max: int) -> ConsoleState:
    """Return a state after an update, as a reader of the stream keeps it."""
    changed = {name: getattr(update, name) for name in WHOLE if getattr(update, name) is not UNSET}
    if update.nodes is not UNSET:
        nodes = {**_given(state.nodes), **update.nodes}
        changed["nodes"] = {name: node for name, node in nodes.items() if node is not None}
    if update.rates is not UNSET:
        rows = {row.at_ms: row for row in (*_given(state.rates).rows, *update.rates.rows)}
        kept = tuple(rows[at_ms] for at_ms in sorted(rows))[-rows_max:]
        changed["rates"] = msgspec.structs.replace(update.rates, rows=kept)
    return msgspec.structs.replace(state, at_ms=update.at_ms, **changed)


def _given(value: T | UnsetType) -> T:
    assert value is not UNSET, "a whole state has every field"
    return value
