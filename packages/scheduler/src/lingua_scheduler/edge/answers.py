"""The response bodies of the HTTP API as types, from which the OpenAPI document is made.

They hold only ids, counts and times, never speech or text of users. Every duration and age is in
milliseconds, and its name says so. `edge/views.py` builds them; `lingua sessions`, `nodes` and
`jobs` read them.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from lingua_wire.shared import (  # noqa: TC001 msgspec reads them at run time
    Coverage,
    Timeline,
)


class ApiAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The base of all response bodies."""


# Errors


class Trouble(ApiAnswer, frozen=True, kw_only=True):
    """An error: a code for programs, a sentence for people."""

    code: str
    message: str


class ErrorAnswer(ApiAnswer, frozen=True, kw_only=True):
    """The request could not be served."""

    error: Trouble


# The instance


class LiveAnswer(ApiAnswer, frozen=True, kw_only=True):
    """The process runs."""

    alive: bool


class ReadyAnswer(ApiAnswer, frozen=True, kw_only=True):
    """Whether this instance accepts new sessions and nodes; if not, the reason."""

    ready: bool
    reason: str


class HealthAnswer(ApiAnswer, frozen=True, kw_only=True):
    """The state of this instance."""

    version: str
    instance: str
    uptime_ms: int
    sessions: int
    nodes: int
    jobs: int
    # `up` or `down`.
    store: str
    draining: bool


# Sessions


class SessionAnswer(ApiAnswer, frozen=True, kw_only=True):
    """A session of this instance."""

    id: str
    tenant: str
    source: str
    targets: tuple[str, ...]
    # Both languages of a two-way session, each translated into the other.
    two_way: tuple[str, str] | None
    audio: str
    opened_at_ms: int
    age_ms: int
    connected: bool
    # Utterances in the store that lack outcomes, and utterances not yet in the store.
    open_utterances: int
    backlog: int
    next_index: int
    coverage: Coverage
    room: str | None
    cell: str


class SessionPage(ApiAnswer, frozen=True, kw_only=True):
    """Sessions of this instance, by id."""

    instance: str
    sessions: tuple[SessionAnswer, ...]
    # The value of `after` for the next page; None on the last page.
    next: str | None


# Nodes


class NodeSocketAnswer(ApiAnswer, frozen=True, kw_only=True):
    """What only the instance with the node's socket knows."""

    # The node uses the older protocol: no acknowledgements, no boot id.
    old_protocol: bool
    tenant: str
    jobs_pushed: int


class NodeLanguages(ApiAnswer, frozen=True, kw_only=True):
    """The languages of a node: directions, or any source into any target; None means all."""

    # Directions such as `en>es`; if set, sources and targets are None.
    pairs: tuple[str, ...] | None
    sources: tuple[str, ...] | None
    targets: tuple[str, ...] | None
    # The languages that it synthesises.
    voices: tuple[str, ...] | None


class OverAnswer(ApiAnswer, frozen=True, kw_only=True):
    """A resource of a node's machine that is busier than `nodes.resource_percent_max`."""

    # cpu, memory or gpu
    resource: str
    percent: float
    percent_max: float


class NodeAnswer(ApiAnswer, frozen=True, kw_only=True):
    """A node of the deployment."""

    id: str
    status: str
    draining: bool
    # Drained by an operator, until an operator resumes it, also across its restarts.
    drained_by_operator: bool = False
    # Whether its machine is busier than the settings allow, and which resources by how much.
    over: bool
    over_by: tuple[OverAnswer, ...]
    slots: int
    leased: int
    # Jobs that it reports as running and that have no lease.
    extra: int
    # How many utterances it may hear while they are spoken, and how many it hears.
    streams: int = 0
    streams_open: int = 0
    # None if its capabilities are unknown.
    languages: NodeLanguages | None
    services: tuple[str, ...]
    features: tuple[str, ...]
    labels: tuple[str, ...] = ()
    # The tenant whose jobs it accepts: empty for all tenants, `!` for sessions that are paired
    # with it, `?` if its capabilities are unknown.
    private_to: str
    pool: str
    cell: str
    boot: str
    acks: bool
    # The instance with its socket.
    instance: str
    beat_age_ms: int
    platform: str
    version: str
    # Set if its socket is on the responding instance.
    socket: NodeSocketAnswer | None


class NodePage(ApiAnswer, frozen=True, kw_only=True):
    """Nodes of the deployment, cell by cell, by id."""

    nodes: tuple[NodeAnswer, ...]
    # The value of `after` for the next page; None on the last page.
    next: str | None


class DrainRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whether a node gets no new jobs."""

    draining: bool


class DrainAnswer(ApiAnswer, frozen=True, kw_only=True):
    """The node gets no new jobs, or gets jobs again."""

    id: str
    draining: bool
    # Attempts that it still has.
    leased: int


class PairingAnswer(ApiAnswer, frozen=True, kw_only=True):
    """A code that lets one session use the node; known to this instance only."""

    id: str
    code: str
    expires_in_s: int


# Jobs


class JobAnswer(ApiAnswer, frozen=True, kw_only=True):
    """A job of a session of this instance whose outcome has not been delivered."""

    id: str
    session: str
    utterance_index: int
    lane: str
    state: str
    attempt: int
    node: str
    age_ms: int
    cell: str
    # The durations of its steps so far.
    timeline: Timeline


class JobPage(ApiAnswer, frozen=True, kw_only=True):
    """Jobs of this instance, by id."""

    instance: str
    jobs: tuple[JobAnswer, ...]
    # The value of `after` for the next page; None on the last page.
    next: str | None


class AttemptAnswer(ApiAnswer, frozen=True, kw_only=True):
    """One attempt of a job on a node; times by the store's clock."""

    attempt: int
    node: str
    placed_at_ms: int
    # When the attempt ended, and how long it lasted; None while it is running.
    left_at_ms: int | None
    lasted_ms: int | None
    # Why or how the attempt ended; empty while it is running.
    reason: str


class JobStory(ApiAnswer, frozen=True, kw_only=True):
    """The history of a job, also after its end, for as long as its record is kept."""

    id: str
    session: str
    utterance_index: int
    lane: str
    trace: str
    # `pending`, `assigned`, `processing`, or how it ended.
    state: str
    attempt: int
    # The current or last node; empty while the job waits.
    node: str
    age_ms: int
    cell: str
    # The durations of its steps so far; None if the responding instance does not know them.
    timeline: Timeline | None
    created_at_ms: int
    # The deadline of the current attempt: then follows another attempt, or the end of the job.
    deadline_at_ms: int | None
    # How and why it ended; empty before its end.
    outcome: str
    reason: str
    ended_at_ms: int | None
    attempts: tuple[AttemptAnswer, ...]


class HistoryAnswer(ApiAnswer, frozen=True, kw_only=True):
    """The jobs that an id stands for: one job, or one per language of an utterance or a trace."""

    instance: str
    jobs: tuple[JobStory, ...]


# Counts


class LanguageCount(ApiAnswer, frozen=True, kw_only=True):
    """How many sessions use a language as source or target."""

    language: str
    count: int


class LanguageUse(ApiAnswer, frozen=True, kw_only=True):
    """How many sessions use a language, by role."""

    as_source: int
    as_target: int
    total: int


class ClientStats(ApiAnswer, frozen=True, kw_only=True):
    """The clients of this instance."""

    active_users: int
    top_languages: tuple[LanguageCount, ...]
    language_usage: dict[str, LanguageUse]


class NodeStats(ApiAnswer, frozen=True, kw_only=True):
    """The nodes with a socket on this instance."""

    connected_nodes: int
    ready_nodes: int
    slots: int
    # Service type -> number of nodes on which it is ready.
    type_node_counts: dict[str, int]


class JobStats(ApiAnswer, frozen=True, kw_only=True):
    """The jobs under way on this instance, by state."""

    in_flight: int
    by_state: dict[str, int]


class StatsAnswer(ApiAnswer, frozen=True, kw_only=True):
    """Counts of this instance, cheap enough for one request per second."""

    instance: str
    web_clients: ClientStats
    nodes: NodeStats
    jobs: JobStats


# The pages for people


class WebLanguage(ApiAnswer, frozen=True, kw_only=True):
    """A language that nodes recognise or translate into."""

    code: str
    # In English; a page translates it if it can.
    name: str


Sockets = Literal["open", "full", "full_for_address", "draining", "origin_not_allowed"]


class WebConfig(ApiAnswer, frozen=True, kw_only=True):
    """What the page for people asks before it opens a session."""

    version: str
    tokens_required: bool
    # A node serves every language; then `languages` are all that have a name.
    serves_any: bool
    languages: tuple[WebLanguage, ...]
    # `en>es`: spoken English becomes Spanish. Only those that nodes declare.
    pairs: tuple[str, ...]
    # Whether a page of the given origin would get a socket now, and else when to try again. A
    # browser does not tell its page why one was refused.
    sockets: Sockets
    retry_after_s: int
