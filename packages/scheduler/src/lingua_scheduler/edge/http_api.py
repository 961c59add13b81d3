"""The HTTP side of an instance: pages for people, the API of operators, and the OpenAI surface.

`http_app` makes the application that the TCP listener hands plain requests to; WebSockets are
served elsewhere. Every response is bounded in time by `ANSWER_S`, so that an unavailable store also
gives a response, except captions, which are sent as long as somebody reads. No response holds
speech or text of users, except those of `openai/` and of `room_pages.py`, which have their own
rules. docs/http.md has the rules, /api/v1/openapi.json the routes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from aiohttp import web

from lingua_scheduler.edge import answers
from lingua_scheduler.edge.api_call import (
    BODY_BYTES_MAX,
    ApiCall,
    json_response,
    read_body,
    read_query,
)
from lingua_scheduler.edge.console.deployment import DeploymentReader
from lingua_scheduler.edge.console.feed import ConsoleFeed
from lingua_scheduler.edge.console.pages import ConsolePages
from lingua_scheduler.edge.guard import Guard, Problem
from lingua_scheduler.edge.health_pages import HealthPages
from lingua_scheduler.edge.job_pages import JobPages
from lingua_scheduler.edge.node_pages import NodePages
from lingua_scheduler.edge.openai.errors import ApiError
from lingua_scheduler.edge.openai.pages import OpenAiPages
from lingua_scheduler.edge.openapi import document
from lingua_scheduler.edge.room_pages import RoomPages
from lingua_scheduler.edge.routes import API, JSON, ApiRoute
from lingua_scheduler.edge.session_pages import SessionPages
from lingua_scheduler.edge.sibling_pages import NoSiblings
from lingua_scheduler.edge.token_pages import TokenPages
from lingua_scheduler.edge.web_pages import WebPages
from lingua_scheduler.errors import StoreRejected, StoreUnavailable
from lingua_wire import __version__
from lingua_wire.codes import ErrorCode
from lingua_wire.errors import InvalidInput

if TYPE_CHECKING:
    from lingua_scheduler.auth.gate import TokenGate
    from lingua_scheduler.edge.sibling_pages import Siblings
    from lingua_scheduler.runtime.instance import Instance

ANSWER_S = 0.9
# Paths whose errors have the format of OpenAI's API.
OPENAI_PATHS = "/v1/"
HEADERS = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", "Server": "lingua"}
CODES = {404: "NOT_FOUND", 405: "METHOD_NOT_ALLOWED", 413: "BODY_TOO_LARGE"}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def http_app(
    instance: Instance, gate: TokenGate, siblings: Siblings | None = None
) -> web.Application:
    """Return the application that serves the HTTP API of an instance."""
    api = HttpApi(instance, gate, siblings)
    app = web.Application(middlewares=[_errors_as_json], client_max_size=BODY_BYTES_MAX)
    for route in api.routes:
        add = app.router.add_get if route.method == "GET" else app.router.add_post
        add(route.path, api.serving(route))
    api.web.add_files(app.router)
    app.on_shutdown.append(api.end_streams)
    return app


class HttpApi:
    """All routes of an instance, with access checks and error handling."""

    def __init__(
        self, instance: Instance, gate: TokenGate, siblings: Siblings | None = None
    ) -> None:
        siblings = siblings or NoSiblings(instance.id)
        self._guard = Guard(instance.settings.server, gate)
        self._rooms = rooms = RoomPages(instance, self._guard, gate)
        self._openai = OpenAiPages(instance, self._guard)
        self.web = WebPages(instance, gate, self._guard)
        deployment = DeploymentReader(instance, siblings)
        self._feed = ConsoleFeed(deployment, instance.tasks, instance.metrics)
        own = ApiRoute(path=f"{API}/openapi.json", summary="This document.", handler=self.openapi)
        self.routes: tuple[ApiRoute, ...] = (
            *self.web.routes,
            *HealthPages(instance, siblings).routes,
            *SessionPages(instance, siblings).routes,
            *NodePages(instance, siblings).routes,
            *JobPages(instance, siblings).routes,
            *ConsolePages(self._feed, self._guard, gate).routes,
            own,
            *TokenPages(gate).routes,
            *rooms.routes,
            *self._openai.routes,
        )
        self._document = document(self.routes, __version__)

    async def openapi(self, _: ApiCall) -> web.Response:
        """Return the OpenAPI document."""
        return web.Response(body=self._document, headers={"Content-Type": JSON})

    async def end_streams(self, _: web.Application) -> None:
        """End the streams of events, which would otherwise outlast the port."""
        self._feed.close()

    def serving(self, route: ApiRoute) -> Handler:
        """Return the function that aiohttp calls for a route."""
        if route.access == "speak":
            return self._openai.serving(route)
        if route.access == "room":
            return self._rooms.serving(route)
        if route.is_stream:
            return route.handler

        async def serve(request: web.Request) -> web.StreamResponse:
            call = ApiCall(
                request=request,
                seen_by=self._guard.let_in(request, route),
                query=read_query(request, route),
                body=await read_body(request, route),
            )
            try:
                async with asyncio.timeout(ANSWER_S):
                    answer = await route.handler(call)
            except (StoreUnavailable, StoreRejected, TimeoutError):
                down = ErrorCode.SCHEDULER_DEPENDENCY_DOWN
                raise Problem(503, down, down.hint, {"Retry-After": "1"}) from None
            except InvalidInput as problem:
                raise Problem(422, "INVALID_PARAMETER", str(problem)) from None
            return answer if isinstance(answer, web.StreamResponse) else json_response(answer)

        return serve


@web.middleware
async def _errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        response = await handler(request)
    except Problem as problem:
        response = _error_response(problem.status, problem.code, str(problem), problem.headers)
    except ApiError as problem:
        response = _openai_error_response(problem)
    except web.HTTPException as error:
        code = CODES.get(error.status, "INVALID_REQUEST")
        kept = {name: error.headers[name] for name in ("Allow",) if name in error.headers}
        if request.path.startswith(OPENAI_PATHS):
            reason = f"{error.reason} ({request.method} {request.path[:80]})"
            refused = ApiError(error.status, code.lower(), reason, headers=kept)
            response = _openai_error_response(refused)
        else:
            response = _error_response(error.status, code, error.reason.lower(), kept)
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    return response


def _openai_error_response(problem: ApiError) -> web.Response:
    response = json_response(problem.body, problem.status)
    response.headers.update(problem.headers)
    return response


def _error_response(status: int, code: str, message: str, headers: dict[str, str]) -> web.Response:
    trouble = answers.Trouble(code=code, message=message)
    response = json_response(answers.ErrorAnswer(error=trouble), status)
    response.headers.update(headers)
    return response
