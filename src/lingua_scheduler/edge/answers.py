"""What the HTTP API answers, as types: the OpenAPI document is made from them.

Only ids, counts and times; nothing that was said. Every duration and age is in milliseconds and
says so. Who builds them: `edge/views.py`. Who reads them: `lingua sessions`, `nodes` and `jobs`.
"""

from __future__ import annotations

import msgspec

from lingua_scheduler.messages.shared import (  # noqa: TC001 msgspec reads them at run time
    Coverage,
    Timeline,
)


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """Any answer."""


# Errors


class Trouble(Answer, frozen=True, kw_only=True):
    """What went wrong: a code for programs, a sentence for people."""

    code: str
    message: str


class ErrorAnswer(Answer, frozen=True, kw_only=True):
    """The request could not be served."""

    error: Trouble


# The instance


class LiveAnswer(Answer, frozen=True, kw_only=True):
    """The process runs."""

    alive: bool


class ReadyAnswer(Answer, frozen=True, kw_only=True):
    """Whether new sessions and nodes should come here, and why not."""

    ready: bool
    reason: str


class HealthAnswer(Answer, frozen=True, kw_only=True):
    """How this instance is."""

    version: str
    instance: str
    uptime_ms: int
    sessions: int
    nodes: int
    jobs: int
    # `up`, or why it is not.
    store: str
    draining: bool


# Sessions


class SessionAnswer(Answer, frozen=True, kw_only=True):
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
    # Utterances in the store without all their outcomes, and those that wait to get there.
    open_utterances: int
    backlog: int
    next_index: int
    coverage: Coverage
    room: str | None
    cell: str


class SessionPage(Answer, frozen=True, kw_only=True):
    """Sessions of this instance, by id."""

    instance: str
    sessions: tuple[SessionAnswer, ...]
    # What to give as `after` for the next page; none when this is the last.
    next: str | None


# Nodes


class NodeSocketAnswer(Answer, frozen=True, kw_only=True):
    """What only the instance that has the node's socket knows."""

    # The node speaks the older protocol: no acknowledgements, no boot id.
    old_protocol: bool
    tenant: str
    jobs_pushed: int


class NodeLanguages(Answer, frozen=True, kw_only=True):
    """What a node translates: its directions, or every source into every target; None is any."""

    # As `en>es`; then sources and targets are none.
    pairs: tuple[str, ...] | None
    sources: tuple[str, ...] | None
    targets: tuple[str, ...] | None
    # The languages it speaks.
    voices: tuple[str, ...] | None


class OverAnswer(Answer, frozen=True, kw_only=True):
    """A resource of a node's machine that is busier than `nodes.resource_percent_max`."""

    # cpu, memory or gpu
    resource: str
    percent: float
    percent_max: float


class NodeAnswer(Answer, frozen=True, kw_only=True):
    """A node of the deployment."""

    id: str
    status: str
    draining: bool
    # It drains because an operator said so: until an operator resumes it, over its restarts too.
    drained_by_operator: bool = False
    # Its machine is busier than the settings allow, and what of it by how much.
    over: bool
    over_by: tuple[OverAnswer, ...]
    slots: int
    leased: int
    # Jobs it says it runs that no lease explains.
    extra: int
    # None if its abilities are not known.
    languages: NodeLanguages | None
    services: tuple[str, ...]
    features: tuple[str, ...]
    labels: tuple[str, ...] = ()
    # Whose jobs it takes: empty for anybody's, `!` for those of sessions paired with it, `?` if
    # its abilities are not known.
    private_to: str
    pool: str
    cell: str
    boot: str
    acks: bool
    # The instance that has its socket.
    instance: str
    beat_age_ms: int
    platform: str
    version: str
    # Set if its socket is on the instance that was asked.
    socket: NodeSocketAnswer | None


class NodePage(Answer, frozen=True, kw_only=True):
    """Nodes of the deployment, cell by cell, by id."""

    nodes: tuple[NodeAnswer, ...]
    # What to give as `after` for the next page; none when this is the last.
    next: str | None


class DrainRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whether a node gets no new work."""

    draining: bool


class DrainAnswer(Answer, frozen=True, kw_only=True):
    """The node gets no new work, or gets it again."""

    id: str
    draining: bool
    # Attempts it still holds.
    leased: int


class PairingAnswer(Answer, frozen=True, kw_only=True):
    """A code that lets one session use the node; known to this instance only."""

    id: str
    code: str
    expires_in_s: int


# Jobs


class JobAnswer(Answer, frozen=True, kw_only=True):
    """A job of a session of this instance whose outcome is not delivered yet."""

    id: str
    session: str
    utterance_index: int
    lane: str
    state: str
    attempt: int
    node: str
    age_ms: int
    cell: str
    # Where its time went so far.
    timeline: Timeline


class JobPage(Answer, frozen=True, kw_only=True):
    """Jobs of this instance, by id."""

    instance: str
    jobs: tuple[JobAnswer, ...]
    # What to give as `after` for the next page; none when this is the last.
    next: str | None


class AttemptAnswer(Answer, frozen=True, kw_only=True):
    """One node that was to do a job; times by the store's clock."""

    attempt: int
    node: str
    placed_at_ms: int
    # When it was taken away or ended, and how long it lasted; none while it goes on.
    left_at_ms: int | None
    lasted_ms: int | None
    # Why it was taken away, or how it ended; empty while it goes on.
    reason: str


class JobStory(Answer, frozen=True, kw_only=True):
    """What became of a job, also after its end, for as long as its record is kept."""

    id: str
    session: str
    utterance_index: int
    lane: str
    trace: str
    # `pending`, `assigned`, `processing`, or how it ended.
    state: str
    attempt: int
    # The current or last one; empty while it waits.
    node: str
    age_ms: int
    cell: str
    # Where its time went so far; none if the instance that was asked did not see that.
    timeline: Timeline | None
    created_at_ms: int
    # When something happens at the latest: another attempt, or its end.
    deadline_at_ms: int | None
    # How it ended and why; empty before.
    outcome: str
    reason: str
    ended_at_ms: int | None
    attempts: tuple[AttemptAnswer, ...]


class HistoryAnswer(Answer, frozen=True, kw_only=True):
    """The jobs that an id stands for: one, or one per language of an utterance or of a trace."""

    instance: str
    jobs: tuple[JobStory, ...]


# Counts


class LanguageCount(Answer, frozen=True, kw_only=True):
    """How many sessions speak or want a language."""

    language: str
    count: int


class LanguageUse(Answer, frozen=True, kw_only=True):
    """How a language is used."""

    as_source: int
    as_target: int
    total: int


class ClientStats(Answer, frozen=True, kw_only=True):
    """The clients of this instance."""

    active_users: int
    top_languages: tuple[LanguageCount, ...]
    language_usage: dict[str, LanguageUse]


class NodeStats(Answer, frozen=True, kw_only=True):
    """The nodes whose sockets are on this instance."""

    connected_nodes: int
    ready_nodes: int
    slots: int
    # Service type -> nodes on which it works.
    type_node_counts: dict[str, int]


class JobStats(Answer, frozen=True, kw_only=True):
    """The jobs under way on this instance, by state."""

    in_flight: int
    by_state: dict[str, int]


class StatsAnswer(Answer, frozen=True, kw_only=True):
    """Counts of this instance, cheap enough to be asked every second."""

    instance: str
    web_clients: ClientStats
    nodes: NodeStats
    jobs: JobStats
