"""Pages that are about a whole service, whichever of its workers answers.

A worker knows its own sessions and jobs only. `SiblingPages` answers the questions of siblings;
`Siblings` asks them. The functions here put the answers together. An instance that is a service of
its own has no siblings and answers alone.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

from lingua_scheduler.edge import answers, job_history, views
from lingua_scheduler.edge.console.own_part import ConsolePart, own_part

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from lingua_scheduler.runtime.instance import Instance

Page = TypeVar("Page", answers.SessionPage, answers.JobPage)
A = TypeVar("A")


class Siblings(Protocol):
    """The other workers of the service."""

    # The name of the service; for an instance without siblings its own.
    service: str

    async def ask(self, page: str, **about: str | int) -> Sequence[bytes]:
        """Return the answers of the siblings that answered in time."""

    async def metrics(self, own: bytes) -> bytes:
        """Return the metrics of the whole service."""


class NoSiblings:
    """An instance that is a service of its own."""

    def __init__(self, service: str) -> None:
        self.service = service

    async def ask(self, page: str, **about: str | int) -> Sequence[bytes]:  # noqa: ARG002
        """Return no answers."""
        return ()

    async def metrics(self, own: bytes) -> bytes:
        """Return the metrics of this instance."""
        return own


class Counts(msgspec.Struct, frozen=True):
    """What one worker has, for the health of the service."""

    sessions: int
    nodes: int
    jobs: int
    draining: bool
    uptime_ms: int


class SiblingPages:
    """Answers questions of siblings about this instance."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._started_ms = instance.clock.now_ms()
        self._started_at_ms = instance.clock.wall_ms()
        self._finders: dict[str, Callable[..., Awaitable[object]]] = {
            "counts": self._counts,
            "sessions": self._sessions,
            "session": self._session,
            "jobs": self._jobs,
            "history": self._history,
            "stats": self._stats,
            "node_sockets": self._node_sockets,
            "console": self._console,
        }

    async def answer(self, page: str, about: dict[str, Any]) -> bytes:
        """Return what this instance knows, as JSON."""
        return msgspec.json.encode(await self._finders[page](**about))

    async def _counts(self) -> Counts:
        return counts(self._instance, self._started_ms)

    async def _sessions(self, after: str, limit: int, seen_by: str) -> answers.SessionPage:
        return views.session_page(self._instance, after, limit, seen_by)

    async def _session(self, id: str, seen_by: str) -> answers.SessionAnswer | None:  # noqa: A002
        found = self._instance.sessions.get(id)
        if found is None or seen_by not in ("", found.record.tenant):
            return None
        return views.session_answer(self._instance, found)

    async def _jobs(self, after: str, limit: int, seen_by: str) -> answers.JobPage:
        return views.job_page(self._instance, after, limit, seen_by)

    async def _history(self, of: str, seen_by: str) -> answers.HistoryAnswer:
        return await job_history.history(self._instance, of, seen_by)

    async def _stats(self, seen_by: str) -> answers.StatsAnswer:
        return views.stats_answer(self._instance, seen_by)

    async def _node_sockets(self) -> dict[str, answers.NodeSocketAnswer]:
        return views.node_sockets(self._instance)

    async def _console(self, after: int) -> ConsolePart:
        return own_part(self._instance, self._started_at_ms, after)


def counts(instance: Instance, started_ms: float) -> Counts:
    """Return what an instance has that serves since a time of its monotonic clock."""
    return Counts(
        sessions=len(instance.sessions),
        nodes=len(instance.nodes),
        jobs=len(instance.jobs),
        draining=instance.lifecycle.is_draining,
        uptime_ms=int(instance.clock.now_ms() - started_ms),
    )


def decoded(texts: Iterable[bytes], kind: type[A]) -> list[A]:
    """Return the answers of siblings, typed."""
    return [msgspec.json.decode(text, type=kind) for text in texts]


def one_page(pages: Sequence[Page], name: str, limit: int, service: str) -> Page:
    """Return pages of several workers as one: the first `limit` elements by id."""
    found = sorted((item for page in pages for item in getattr(page, name)), key=lambda i: i.id)
    is_cut = len(found) > limit or any(page.next is not None for page in pages)
    items = tuple(found[:limit])
    following = items[-1].id if is_cut and items else None
    return msgspec.structs.replace(pages[0], instance=service, next=following, **{name: items})


def one_history(histories: Sequence[answers.HistoryAnswer], service: str) -> answers.HistoryAnswer:
    """Return histories of several workers as one; the worker of the session knows the most."""
    known: dict[str, answers.JobStory] = {}
    for story in (story for history in histories for story in history.jobs):
        if story.id not in known or known[story.id].timeline is None:
            known[story.id] = story
    return answers.HistoryAnswer(instance=service, jobs=tuple(known.values()))


def one_statistic(all_stats: Sequence[answers.StatsAnswer], service: str) -> answers.StatsAnswer:
    """Return the counts of several workers as those of one service."""
    sources: Counter[str] = Counter()
    targets: Counter[str] = Counter()
    states: Counter[str] = Counter()
    services: Counter[str] = Counter()
    for stats in all_stats:
        for code, use in stats.web_clients.language_usage.items():
            sources[code] += use.as_source
            targets[code] += use.as_target
        states.update(stats.jobs.by_state)
        services.update(stats.nodes.type_node_counts)
    return answers.StatsAnswer(
        instance=service,
        web_clients=views.client_counts(
            sum(stats.web_clients.active_users for stats in all_stats), sources, targets
        ),
        nodes=answers.NodeStats(
            connected_nodes=sum(stats.nodes.connected_nodes for stats in all_stats),
            ready_nodes=sum(stats.nodes.ready_nodes for stats in all_stats),
            slots=sum(stats.nodes.slots for stats in all_stats),
            type_node_counts=dict(sorted(services.items())),
        ),
        jobs=answers.JobStats(in_flight=states.total(), by_state=dict(states)),
    )
