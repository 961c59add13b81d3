"""The HTTP pages about sessions of this instance and of its siblings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lingua_scheduler.edge import answers, views
from lingua_scheduler.edge.api_call import PageQuery
from lingua_scheduler.edge.guard import Problem
from lingua_scheduler.edge.routes import API, ApiRoute
from lingua_scheduler.edge.sibling_pages import decoded, one_page

if TYPE_CHECKING:
    from lingua_scheduler.edge.api_call import ApiCall
    from lingua_scheduler.edge.sibling_pages import Siblings
    from lingua_scheduler.runtime.instance import Instance


class SessionPages:
    """The pages about sessions."""

    def __init__(self, instance: Instance, siblings: Siblings) -> None:
        self._instance = instance
        self._siblings = siblings
        self.routes = (
            ApiRoute(
                path=f"{API}/sessions",
                summary="Sessions of this instance.",
                handler=self.sessions,
                answer=answers.SessionPage,
                query=PageQuery,
            ),
            ApiRoute(
                path=f"{API}/sessions/{{id}}",
                summary="One session.",
                handler=self.session,
                answer=answers.SessionAnswer,
            ),
        )

    async def sessions(self, call: ApiCall) -> answers.SessionPage:
        """Return a page of sessions."""
        after, limit, seen_by = call.query.after, call.query.limit, call.seen_by
        others = await self._siblings.ask("sessions", after=after, limit=limit, seen_by=seen_by)
        own = views.session_page(self._instance, after, limit, seen_by)
        pages = [own, *decoded(others, answers.SessionPage)]
        return one_page(pages, "sessions", limit, self._siblings.service)

    async def session(self, call: ApiCall) -> answers.SessionAnswer:
        """Return one session."""
        session = self._instance.sessions.get(call.id)
        if session is not None and call.seen_by in ("", session.record.tenant):
            return views.session_answer(self._instance, session)
        others = await self._siblings.ask("session", id=call.id, seen_by=call.seen_by)
        for found in decoded(others, answers.SessionAnswer | None):  # type: ignore[arg-type]
            if found is not None:
                return found
        raise Problem(404, "NOT_FOUND", "no such session on this instance")
