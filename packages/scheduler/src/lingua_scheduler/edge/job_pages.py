"""The HTTP pages about jobs: those under way, their history, and where a job would be placed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from lingua_scheduler.edge import answers, job_history, views
from lingua_scheduler.edge.api_call import PageQuery
from lingua_scheduler.edge.guard import Problem
from lingua_scheduler.edge.routes import API, ApiRoute
from lingua_scheduler.edge.sibling_pages import decoded, one_history, one_page
from lingua_scheduler.jobs.explanation import (
    DEFAULT_SERVICES,
    Explanation,
    Question,
    explain_in,
    service_names,
)
from lingua_scheduler.jobs.profile import source_of
from lingua_scheduler.state.keys import identifier
from lingua_wire.codes import ErrorCode
from lingua_wire.languages import language

if TYPE_CHECKING:
    from lingua_scheduler.edge.api_call import ApiCall
    from lingua_scheduler.edge.sibling_pages import Siblings
    from lingua_scheduler.runtime.instance import Instance


class HistoryQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which jobs."""

    of: Annotated[
        str,
        Meta(
            min_length=1, max_length=256, description="A job's id, `session:index`, or a trace id."
        ),
    ]


class ExplainQuery(Struct, frozen=True, forbid_unknown_fields=True, rename={"source": "from"}):
    """What the job would need."""

    source: Annotated[str, Meta(max_length=64, description="Language spoken, or `auto`.")]
    to: Annotated[str, Meta(max_length=64, description="Language wanted.")]
    services: Annotated[str, Meta(max_length=64)] = ",".join(DEFAULT_SERVICES)
    tenant: Annotated[str, Meta(max_length=128)] = ""
    prefer: Annotated[str, Meta(max_length=128, description="The preferred node.")] = ""


class JobPages:
    """The pages about jobs."""

    def __init__(self, instance: Instance, siblings: Siblings) -> None:
        self._instance = instance
        self._siblings = siblings
        self.routes = (
            ApiRoute(
                path=f"{API}/jobs",
                summary="Jobs under way on this instance.",
                handler=self.jobs,
                answer=answers.JobPage,
                query=PageQuery,
            ),
            ApiRoute(
                path=f"{API}/jobs/{{id}}",
                summary="One job, also after its end.",
                handler=self.job,
                answer=answers.JobStory,
                asks_store=True,
            ),
            ApiRoute(
                path=f"{API}/history",
                summary="The jobs of an id, an utterance or a trace.",
                handler=self.history,
                answer=answers.HistoryAnswer,
                query=HistoryQuery,
                asks_store=True,
            ),
            ApiRoute(
                path=f"{API}/explain",
                summary="Where a job would be placed now, and why.",
                handler=self.explain,
                answer=Explanation,
                query=ExplainQuery,
                asks_store=True,
            ),
        )

    async def jobs(self, call: ApiCall) -> answers.JobPage:
        """Return a page of jobs."""
        after, limit, seen_by = call.query.after, call.query.limit, call.seen_by
        others = await self._siblings.ask("jobs", after=after, limit=limit, seen_by=seen_by)
        own = views.job_page(self._instance, after, limit, seen_by)
        pages = [own, *decoded(others, answers.JobPage)]
        return one_page(pages, "jobs", limit, self._siblings.service)

    async def job(self, call: ApiCall) -> answers.JobStory:
        """Return the history of one job."""
        job = identifier("job", call.id)
        found = await job_history.find_job(self._instance, job, call.seen_by)
        if found is not None and found.timeline is not None:
            return found
        others = await self._siblings.ask("history", of=job, seen_by=call.seen_by)
        stories = [story for one in decoded(others, answers.HistoryAnswer) for story in one.jobs]
        known = next((story for story in stories if story.timeline is not None), found)
        if known is None:
            raise Problem(404, "NOT_FOUND", "no such job, or its record is not kept any more")
        return known

    async def history(self, call: ApiCall) -> answers.HistoryAnswer:
        """Return the history of all jobs that an id stands for."""
        own = await job_history.history(self._instance, call.query.of, call.seen_by)
        others = await self._siblings.ask("history", of=call.query.of, seen_by=call.seen_by)
        histories = [own, *decoded(others, answers.HistoryAnswer)]
        return one_history(histories, self._siblings.service)

    async def explain(self, call: ApiCall) -> Explanation:
        """Explain where a job would be placed."""
        instance, query = self._instance, call.query
        if call.seen_by and query.tenant not in ("", call.seen_by):
            raise Problem(403, ErrorCode.FORBIDDEN, "the token is another tenant's")
        question = Question(
            source=source_of(query.source),
            target=language(query.to),
            services=service_names(query.services),
            tenant=query.tenant or call.seen_by,
            prefer=query.prefer,
        )
        wish = question.wish(instance.settings)
        return await explain_in(instance.store, instance.cells.all, wish, seen_by=call.seen_by)
