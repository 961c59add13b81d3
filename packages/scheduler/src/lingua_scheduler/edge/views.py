"""Builds response bodies of the HTTP API from live objects and rows of the store.

It only reads. A caller of a tenant (`seen_by`; empty: an operator of the whole deployment) sees the
sessions, jobs and nodes of that tenant, and the nodes that accept jobs of all tenants.
"""

from __future__ import annotations

from collections import Counter
from heapq import nsmallest
from typing import TYPE_CHECKING, TypeVar

import msgspec

from lingua_scheduler.edge.answers import (
    ClientStats,
    JobAnswer,
    JobPage,
    JobStats,
    LanguageCount,
    LanguageUse,
    NodeAnswer,
    NodeLanguages,
    NodePage,
    NodeSocketAnswer,
    NodeStats,
    OverAnswer,
    SessionAnswer,
    SessionPage,
    StatsAnswer,
)
from lingua_scheduler.nodes.capability import read_descriptor
from lingua_scheduler.nodes.pressure import read_pressure
from lingua_scheduler.runtime.node_declaration import ready_services
from lingua_scheduler.session.timeline import timeline
from lingua_wire.languages import AUTO

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lingua_scheduler.nodes.capability import Capability
    from lingua_scheduler.runtime.instance import Instance
    from lingua_scheduler.runtime.job import LiveJob
    from lingua_scheduler.runtime.node import LiveNode
    from lingua_scheduler.runtime.session import LiveSession
    from lingua_scheduler.session.timeline import Marks
    from lingua_scheduler.state.keys import Cell
    from lingua_scheduler.state.records import NodeRow

TOP_LANGUAGES = 10
# The marks of a job, in the order in which they are set.
STEPS = ("placed", "push", "accepted", "result", "settled", "released")

T = TypeVar("T")


# Sessions


def session_page(instance: Instance, after: str, limit: int, seen_by: str) -> SessionPage:
    """Return one page of this instance's sessions."""
    sessions = {
        name: session
        for name, session in instance.sessions.items()
        if not seen_by or session.record.tenant == seen_by
    }
    ids, following = page_of(sessions, after, limit)
    return SessionPage(
        instance=instance.id,
        sessions=tuple(session_answer(instance, sessions[name]) for name in ids),
        next=following,
    )


def session_answer(instance: Instance, session: LiveSession) -> SessionAnswer:
    """Return the current state of a session."""
    profile, room = session.languages.profile, instance.rooms.cache.rooms.room_of(session.id)
    parts = session.admission.parts
    return SessionAnswer(
        id=session.id,
        tenant=session.record.tenant,
        source=profile.source,
        targets=profile.targets,
        two_way=profile.two_way,
        audio=f"{profile.audio.name} {profile.audio.sample_rate}",
        opened_at_ms=session.opened_at_ms,
        age_ms=max(0, instance.clock.wall_ms() - session.opened_at_ms),
        connected=session.notifier.is_attached,
        open_utterances=len(parts.window.open),
        backlog=len(parts.backlog),
        next_index=parts.indices.next,
        coverage=parts.ledger.summary(),
        room=room.code if room is not None else None,
        cell=session.record.home.name,
    )


# Jobs


def job_page(instance: Instance, after: str, limit: int, seen_by: str) -> JobPage:
    """Return one page of this instance's jobs."""
    jobs = {
        job.id: job
        for job in instance.jobs
        if not seen_by or tenant_of_job(instance, job) == seen_by
    }
    ids, following = page_of(jobs, after, limit)
    return JobPage(
        instance=instance.id,
        jobs=tuple(job_answer(instance, jobs[name]) for name in ids),
        next=following,
    )


def tenant_of_job(instance: Instance, job: LiveJob) -> str:
    """Return the tenant of a job of this instance's sessions."""
    session = instance.sessions.get(job.spec.session)
    return session.record.tenant if session is not None else ""


def job_answer(instance: Instance, job: LiveJob) -> JobAnswer:
    """Return the current state of a job."""
    now = instance.clock.now_ms()
    return JobAnswer(
        id=job.id,
        session=job.owner.id,
        utterance_index=job.spec.index,
        lane=job.spec.lane,
        state=job.status,
        attempt=job.attempt,
        node=job.node,
        age_ms=max(0, round(now - job.times.cut)),
        cell=job.home.name,
        timeline=timeline(times_until(job.times, now)),
    )


def times_until(times: Marks, now_ms: float) -> Marks:
    """Return the times of a job in flight as if its current step ended now."""
    step = next((name for name in STEPS if not getattr(times, name)), None)
    return msgspec.structs.replace(times, **{step: now_ms}) if step is not None else times


def page_of(items: Mapping[str, T], after: str, limit: int) -> tuple[list[str], str | None]:
    """Return the ids of one page, and where the next one starts."""
    ids = nsmallest(limit + 1, (name for name in items if name > after))
    return ids[:limit], ids[limit - 1] if len(ids) > limit else None


# Nodes


async def node_page(instance: Instance, after: str, limit: int, seen_by: str) -> NodePage:
    """Return one page of the deployment's nodes, cell by cell."""
    cells = instance.cells.all
    first = cells.index(instance.cells.of_node(after)) if after else 0
    found: list[NodeAnswer] = []
    for cell in cells[first:]:
        found += await _nodes_in(instance, cell, after, limit + 1 - len(found))
        after = ""
        if len(found) > limit:
            break
    following = found[limit - 1].id if len(found) > limit else None
    nodes = tuple(node for node in found[:limit] if is_seen(node, seen_by))
    return NodePage(nodes=nodes, next=following)


async def node_answer(instance: Instance, name: str) -> NodeAnswer | None:
    """Return one node from the store, or None if it is unknown."""
    # The store pages by id, and no id has a character as high as \x7f: the page starts at `name`.
    before = f"{name[:-1]}{chr(ord(name[-1]) - 1)}\x7f"
    found = await _nodes_in(instance, instance.cells.of_node(name), before, 1)
    return next((node for node in found if node.id == name), None)


def is_seen(node: NodeAnswer, seen_by: str) -> bool:
    """Tell whether a tenant may see a node."""
    return not seen_by or node.private_to in ("", seen_by)


async def _nodes_in(instance: Instance, cell: Cell, after: str, limit: int) -> list[NodeAnswer]:
    rows = await instance.store.cells.nodes(cell, after, limit)
    if not rows:
        return []
    pools, _, _ = await instance.store.cells.pools(cell)
    wanted = {row.pool for row in rows}
    known = {
        pool.pool: read_descriptor(pool.descriptor)[0] for pool in pools if pool.pool in wanted
    }
    return [_node(instance, cell, row, known.get(row.pool)) for row in rows]


def _node(instance: Instance, cell: Cell, row: NodeRow, can: Capability | None) -> NodeAnswer:
    platform, _, version = row.info.partition(" ")
    return NodeAnswer(
        id=row.node,
        status=row.status,
        draining=row.draining,
        drained_by_operator=row.held,
        over=row.over,
        over_by=tuple(
            OverAnswer(resource=one.resource, percent=one.percent, percent_max=one.percent_max)
            for one in (read_pressure(row.pressure) if row.over else ())
        ),
        slots=row.max,
        leased=row.leased,
        extra=row.extra,
        streams=row.streams_max,
        streams_open=row.streams,
        languages=_languages(can) if can is not None else None,
        services=tuple(sorted(can.services)) if can is not None else (),
        features=can.features if can is not None else (),
        labels=can.labels if can is not None else (),
        # Only an operator may see a node whose capabilities are unknown.
        private_to=can.owner if can is not None else "?",
        pool=row.pool,
        cell=cell.name,
        boot=row.boot,
        acks=row.acks,
        instance=row.instance,
        beat_age_ms=row.beat_age_ms,
        platform=platform,
        version=version,
        socket=_socket(instance.nodes.get(row.node)),
    )


def node_sockets(instance: Instance) -> dict[str, NodeSocketAnswer]:
    """Return what this instance knows of the nodes whose sockets it has."""
    known = ((name, _socket(node)) for name, node in instance.nodes.items())
    return {name: socket for name, socket in known if socket is not None}


def _socket(node: LiveNode | None) -> NodeSocketAnswer | None:
    if node is None:
        return None
    return NodeSocketAnswer(
        old_protocol=node.traits.buffers_slices, tenant=node.tenant, jobs_pushed=node.assigned
    )


def _languages(can: Capability) -> NodeLanguages:
    return NodeLanguages(
        pairs=can.pairs, sources=can.sources, targets=can.targets, voices=can.speech
    )


# Counts


def stats_answer(instance: Instance, seen_by: str) -> StatsAnswer:
    """Return the counts of this instance."""
    sessions = [s for s in instance.sessions.values() if not seen_by or s.record.tenant == seen_by]
    jobs = (j for j in instance.jobs if not seen_by or tenant_of_job(instance, j) == seen_by)
    states = Counter(job.status for job in jobs)
    return StatsAnswer(
        instance=instance.id,
        web_clients=client_stats(sessions),
        nodes=node_stats(instance.nodes.values()),
        jobs=JobStats(in_flight=states.total(), by_state=dict(states)),
    )


def client_stats(sessions: Iterable[LiveSession]) -> ClientStats:
    """Count clients and languages; `auto` does not count, a two-way session counts both twice."""
    sources: Counter[str] = Counter()
    targets: Counter[str] = Counter()
    active = 0
    for session in sessions:
        active += session.notifier.is_attached
        profile = session.languages.profile
        sources.update(profile.two_way or (profile.source,))
        targets.update(profile.two_way or profile.targets)
    del sources[AUTO]
    return client_counts(active, sources, targets)


def client_counts(active: int, sources: Counter[str], targets: Counter[str]) -> ClientStats:
    """Return the counts of clients and of the languages they use."""
    total = sources + targets
    return ClientStats(
        active_users=active,
        top_languages=tuple(
            LanguageCount(language=code, count=count)
            for code, count in total.most_common(TOP_LANGUAGES)
        ),
        language_usage={
            code: LanguageUse(as_source=sources[code], as_target=targets[code], total=count)
            for code, count in sorted(total.items())
        },
    )


def node_stats(nodes: Iterable[LiveNode]) -> NodeStats:
    """Count nodes, their slots and their ready services."""
    known = list(nodes)
    services: Counter[str] = Counter()
    for node in known:
        services.update(ready_services(node.declaration.services, node.declaration.by_type).keys())
    return NodeStats(
        connected_nodes=len(known),
        ready_nodes=sum(node.status == "ready" for node in known),
        slots=sum(node.max_jobs for node in known),
        type_node_counts=dict(sorted(services.items())),
    )
