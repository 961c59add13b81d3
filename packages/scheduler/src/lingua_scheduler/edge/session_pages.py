"""The HTTP pages about sessions of this instance."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lingua_scheduler.edge import answers, views
from lingua_scheduler.edge.api_call import PageQuery
from lingua_scheduler.edge.guard import Problem
from lingua_scheduler.edge.routes import API, ApiRoute

if TYPE_CHECKING:
    from lingua_scheduler.edge.api_call import ApiCall
    from lingua_scheduler.runtime.instance import Instance


class SessionPages:
    """The pages about sessions."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
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
        query = call.query
        return views.session_page(self._instance, query.after, query.limit, call.seen_by)

    async def session(self, call: ApiCall) -> answers.SessionAnswer:
        """Return one session."""
        session = self._instance.sessions.get(call.id)
        if session is None or call.seen_by not in ("", session.record.tenant):
            raise Problem(404, "NOT_FOUND", "no such session on this instance")
        return views.session_answer(self._instance, session)
