"""The HTTP side of an instance: is it alive, how is it, what does it do; and a few operator's acts.

`http_app` makes the application that the front hands plain requests to; the WebSockets are not
here. Every answer is bounded in time by `ANSWER_S`, so that a store that is away is an answer too,
and none holds anything that was said; but for those of `openai/`, which have their own rules.
docs/http.md has the rules, /api/v1/openapi.json the routes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from aiohttp import web
from msgspec import Meta, Struct

from lingua_scheduler import __version__
from lingua_scheduler.edge import answers, job_stories, views
from lingua_scheduler.edge.guard import Guard, Problem
from lingua_scheduler.edge.openai.pages import OpenAiPages
from lingua_scheduler.edge.openai.trouble import ApiError
from lingua_scheduler.edge.openapi import Route, document
from lingua_scheduler.edge.token_pages import TokenPages
from lingua_scheduler.errors import InvalidInput, StoreRejected, StoreUnavailable
from lingua_scheduler.jobs.explanation import (
    DEFAULT_SERVICES,
    Explanation,
    Question,
    explain_in,
    service_names,
)
from lingua_scheduler.languages import language
from lingua_scheduler.live.pairing import VALID_MS
from lingua_scheduler.live.profile import source_of
from lingua_scheduler.messages.codes import ErrorCode
from lingua_scheduler.metrics import CONTENT_TYPE
from lingua_scheduler.state.keys import identifier
from lingua_scheduler.state.reply import Reply

if TYPE_CHECKING:
    from lingua_scheduler.edge.door import Door
    from lingua_scheduler.live.instance import Instance
    from lingua_scheduler.state.keys import Cell

ANSWER_S = 0.9
PROBE_S = 0.5
# How long the store's last sign of life is believed, so that a flood of checks is one call.
PROBE_FRESH_MS = 100
# Cells that are asked: one that answers is enough, for the others' sake it stays in service.
PROBED_CELLS = 4
BODY_BYTES_MAX = 64 * 1024
BODY_S = 5
# Paths whose errors look like OpenAI's.
OPENAI_PATHS = "/v1/"
PAGE_MAX = 500
JSON = "application/json"
PLAIN = "text/plain; charset=utf-8"
HTML = "text/html; charset=utf-8"
HEADERS = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", "Server": "lingua"}
CODES = {404: "NOT_FOUND", 405: "METHOD_NOT_ALLOWED", 413: "BODY_TOO_LARGE"}

INDEX = f"""<!doctype html>
<html lang="en">
<title>Lingua Scheduler</title>
<h1>Lingua Scheduler {__version__}</h1>
<p>A control plane for live speech translation. Clients connect to <code>/ws/session</code>, nodes
to <code>/ws/node</code>.</p>
<ul>
<li><a href="/health">health</a>, <a href="/livez">alive</a>, <a href="/readyz">ready</a>
<li><a href="/metrics">metrics</a> for Prometheus
<li><a href="/api/v1/sessions">sessions</a>, <a href="/api/v1/nodes">nodes</a>,
<a href="/api/v1/jobs">jobs</a>, <a href="/api/v1/stats">counts</a>
<li><a href="/api/v1/openapi.json">the API</a> as an OpenAPI document
<li>clients of OpenAI's speech API use <code>/v1</code>
</ul>
"""


def http_app(instance: Instance, door: Door) -> web.Application:
    """Return the application that serves an instance's HTTP side."""
    pages = Pages(instance, door)
    app = web.Application(middlewares=[_troubles_as_json], client_max_size=BODY_BYTES_MAX)
    for route in pages.routes:
        add = app.router.add_get if route.method == "GET" else app.router.add_post
        add(route.path, pages.serving(route))
    return app


class PageQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which part of a list."""

    limit: Annotated[int, Meta(ge=1, le=PAGE_MAX)] = 100
    after: Annotated[str, Meta(max_length=128)] = ""


class HistoryQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Whose history."""

    of: Annotated[
        str,
        Meta(
            min_length=1, max_length=256, description="A job's id, `session:index`, or a trace id."
        ),
    ]


class ExplainQuery(Struct, frozen=True, forbid_unknown_fields=True, rename={"source": "from"}):
    """Which job."""

    source: Annotated[str, Meta(max_length=64, description="Language spoken, or `auto`.")]
    to: Annotated[str, Meta(max_length=64, description="Language wanted.")]
    services: Annotated[str, Meta(max_length=64)] = ",".join(DEFAULT_SERVICES)
    tenant: Annotated[str, Meta(max_length=128)] = ""
    prefer: Annotated[str, Meta(max_length=128, description="The node it should go to.")] = ""


@dataclass(frozen=True, slots=True)
class Call:
    """A request that was let in and read."""

    request: web.Request
    # The tenant whose things the caller sees; empty: everybody's.
    seen_by: str
    query: Any = None
    body: Any = None

    @property
    def id(self) -> str:
        """Return the id in the path."""
        return self.request.match_info["id"]


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Pages:
    """Everything an instance answers by HTTP."""

    def __init__(self, instance: Instance, door: Door) -> None:
        self._instance = instance
        self._guard = Guard(instance.settings.server, door)
        self._probe = StoreProbe(instance)
        self._began_ms = instance.clock.now_ms()
        self._openai = OpenAiPages(instance, self._guard)
        self.routes = self._routes() + TokenPages(door).routes + self._openai.routes
        self._document = document(self.routes, __version__)

    def _routes(self) -> tuple[Route, ...]:
        page, api = PageQuery, "/api/v1"
        return (
            Route("GET", "/", "What this is.", self.index, "open", None, HTML),
            Route("GET", "/livez", "Whether the process runs.", self.alive, "open",
                  answers.LiveAnswer),
            Route("GET", "/readyz", "Whether new sessions should come here.", self.ready, "open",
                  answers.ReadyAnswer),
            Route("GET", "/health", "How the instance is: `OK`, or JSON if that is accepted.",
                  self.health, "near", answers.HealthAnswer, PLAIN),
            Route("GET", "/metrics", "Numbers for Prometheus.", self.metrics, "near", None,
                  CONTENT_TYPE),
            Route("GET", f"{api}/sessions", "Sessions of this instance.", self.sessions,
                  answer=answers.SessionPage, query=page),
            Route("GET", f"{api}/sessions/{{id}}", "One session.", self.session,
                  answer=answers.SessionAnswer),
            Route("GET", f"{api}/nodes", "Nodes of the deployment.", self.nodes,
                  answer=answers.NodePage, query=page, asks_store=True),
            Route("GET", f"{api}/nodes/{{id}}", "One node.", self.node,
                  answer=answers.NodeAnswer, asks_store=True),
            Route("POST", f"{api}/nodes/{{id}}/drain", "Stop or resume new work for a node.",
                  self.drain, answer=answers.DrainAnswer, body=answers.DrainRequest,
                  asks_store=True),
            Route("POST", f"{api}/nodes/{{id}}/pairing", "A code that pairs a session with a node.",
                  self.pair, answer=answers.PairingAnswer, asks_store=True),
            Route("GET", f"{api}/jobs", "Jobs under way on this instance.", self.jobs,
                  answer=answers.JobPage, query=page),
            Route("GET", f"{api}/jobs/{{id}}", "One job, also after its end.", self.job,
                  answer=answers.JobStory, asks_store=True),
            Route("GET", f"{api}/history", "The jobs of an id, an utterance or a trace.",
                  self.history, answer=answers.HistoryAnswer, query=HistoryQuery, asks_store=True),
            Route("GET", f"{api}/explain", "Where a job would go now, and why.", self.explain,
                  answer=Explanation, query=ExplainQuery, asks_store=True),
            Route("GET", f"{api}/stats", "Counts of this instance.", self.stats,
                  answer=answers.StatsAnswer),
            Route("GET", f"{api}/openapi.json", "This document.", self.openapi),
        )  # fmt: skip

    def serving(self, route: Route) -> Handler:
        """Return what aiohttp calls for a route."""
        if route.access == "speak":
            return self._openai.serving(route)

        async def serve(request: web.Request) -> web.StreamResponse:
            call = Call(
                request, self._guard.let_in(request, route), read_query(request, route),
                await read_body(request, route),
            )  # fmt: skip
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

    # How the instance is

    async def index(self, _: Call) -> web.Response:
        """Say what this is."""
        csp = {"Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'"}
        return web.Response(body=INDEX.encode(), headers={"Content-Type": HTML, **csp})

    async def alive(self, _: Call) -> answers.LiveAnswer:
        """Answer while the loop runs."""
        return answers.LiveAnswer(alive=True)

    async def ready(self, _: Call) -> web.Response:
        """Tell whether new sessions and nodes should come here."""
        reason = ""
        if self._instance.draining:
            reason = "draining"
        elif not await self._probe.answers():
            reason = "the store does not answer"
        answer = answers.ReadyAnswer(ready=not reason, reason=reason)
        return json_response(answer, 503 if reason else 200)

    async def health(self, call: Call) -> web.Response:
        """Answer `OK`, or a summary to those who accept JSON."""
        if JSON not in call.request.headers.get("Accept", ""):
            return web.Response(body=b"OK", headers={"Content-Type": PLAIN})
        instance, board = self._instance, self._instance.board
        return json_response(
            answers.HealthAnswer(
                version=__version__,
                instance=instance.id,
                uptime_ms=int(instance.clock.now_ms() - self._began_ms),
                sessions=len(board.sessions),
                nodes=len(board.nodes),
                jobs=len(board.jobs),
                store="up" if await self._probe.answers() else "down",
                draining=instance.draining,
            )
        )

    async def metrics(self, _: Call) -> web.Response:
        """Return the numbers."""
        text = self._instance.metrics.render()
        return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE})

    async def stats(self, call: Call) -> answers.StatsAnswer:
        """Return the counts."""
        return views.stats_answer(self._instance, call.seen_by)

    async def openapi(self, _: Call) -> web.Response:
        """Return the description of all this."""
        return web.Response(body=self._document, headers={"Content-Type": JSON})

    # What it does

    async def sessions(self, call: Call) -> answers.SessionPage:
        """Return a page of sessions."""
        query = call.query
        return views.session_page(self._instance, query.after, query.limit, call.seen_by)

    async def session(self, call: Call) -> answers.SessionAnswer:
        """Return one session."""
        session = self._instance.board.sessions.get(call.id)
        if session is None or call.seen_by not in ("", session.tenant):
            raise Problem(404, "NOT_FOUND", "no such session on this instance")
        return views.session_answer(self._instance, session)

    async def jobs(self, call: Call) -> answers.JobPage:
        """Return a page of jobs."""
        query = call.query
        return views.job_page(self._instance, query.after, query.limit, call.seen_by)

    async def job(self, call: Call) -> answers.JobStory:
        """Return what became of one job."""
        found = await job_stories.story(self._instance, identifier("job", call.id), call.seen_by)
        if found is None:
            raise Problem(404, "NOT_FOUND", "no such job, or its record is not kept any more")
        return found

    async def history(self, call: Call) -> answers.HistoryAnswer:
        """Return what became of the jobs that an id stands for."""
        return await job_stories.history(self._instance, call.query.of, call.seen_by)

    async def explain(self, call: Call) -> Explanation:
        """Say where a job would go."""
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

    # Nodes

    async def nodes(self, call: Call) -> answers.NodePage:
        """Return a page of nodes."""
        query = call.query
        return await views.node_page(self._instance, query.after, query.limit, call.seen_by)

    async def node(self, call: Call) -> answers.NodeAnswer:
        """Return one node."""
        found = await views.node_answer(self._instance, identifier("node", call.id))
        if found is None or not views.is_seen(found, call.seen_by):
            raise Problem(404, "NOT_FOUND", "no such node")
        return found

    async def drain(self, call: Call) -> answers.DrainAnswer:
        """Stop or resume new work for a node, wherever its socket is."""
        node, draining = await self._own_node(call), call.body.draining
        instance = self._instance
        cell = instance.cells.of_node(node.id)
        reply, leased = await instance.store.node_drain(
            cell, node.id, drain=draining, operator=True
        )
        if reply.reply is not Reply.OK:
            raise Problem(404, "NOT_FOUND", "no such node")
        if (here := instance.board.nodes.get(node.id)) is not None:
            here.draining = draining
        instance.log("node.drains" if draining else "node.resumes", node=node.id, leases=leased)
        for placement in reply.placed:
            instance.board.push(placement)
        return answers.DrainAnswer(id=node.id, draining=draining, leased=leased)

    async def pair(self, call: Call) -> answers.PairingAnswer:
        """Issue a code that lets one session use a node."""
        node = await self._own_node(call)
        code = await self._instance.pairing.issue(node.id)
        self._instance.log("node.pairing_issued", node=node.id)
        return answers.PairingAnswer(id=node.id, code=code, expires_in_s=VALID_MS // 1000)

    async def _own_node(self, call: Call) -> answers.NodeAnswer:
        """Return a node the caller may act on: a tenant's admin may on that tenant's alone."""
        node = await self.node(call)
        if call.seen_by and node.private_to != call.seen_by:
            raise Problem(403, ErrorCode.FORBIDDEN, "the node is not this tenant's own")
        return node


class StoreProbe:
    """Asks the store now and then whether it is there."""

    def __init__(self, instance: Instance) -> None:
        self._store = instance.store
        self._clock = instance.clock
        cells = instance.cells.all
        self._cells = cells[:: max(1, len(cells) // PROBED_CELLS)][:PROBED_CELLS]
        # Held by the one that asks; the others take its answer.
        self._lock = asyncio.Lock()
        self._was_there = False
        self._asked_at_ms = float("-inf")

    async def answers(self) -> bool:
        """Tell whether the store answered just now."""
        async with self._lock:
            if self._clock.now_ms() - self._asked_at_ms > PROBE_FRESH_MS:
                replies = await asyncio.gather(*(self._ask(cell) for cell in self._cells))
                self._was_there = any(replies)
                self._asked_at_ms = self._clock.now_ms()
            return self._was_there

    async def _ask(self, cell: Cell) -> bool:
        try:
            async with asyncio.timeout(PROBE_S):
                await self._store.cell_nodes(cell, "", 1)
        except (StoreUnavailable, StoreRejected, TimeoutError):
            return False
        return True


def read_query(request: web.Request, route: Route) -> Struct | None:
    """Return the parameters after the question mark, or raise `Problem`."""
    if route.query is None:
        return None
    given = request.query
    if len(set(given)) != len(given):
        raise Problem(422, "INVALID_PARAMETER", "a parameter is given twice")
    try:
        return msgspec.convert(dict(given), route.query, strict=False)
    except msgspec.ValidationError as problem:
        raise Problem(422, "INVALID_PARAMETER", str(problem)) from None


async def read_body(request: web.Request, route: Route) -> Struct | None:
    """Return the body, or raise `Problem`."""
    if (request.content_length or 0) > BODY_BYTES_MAX:
        raise Problem(413, "BODY_TOO_LARGE", f"the body exceeds {BODY_BYTES_MAX} bytes")
    if route.body is None:
        return None
    if request.content_type != JSON:
        raise Problem(415, "UNSUPPORTED_MEDIA_TYPE", f"the content type must be {JSON}")
    try:
        async with asyncio.timeout(BODY_S):
            data = await request.read()
        return msgspec.json.decode(data, type=route.body)
    except TimeoutError:
        raise Problem(408, "TOO_SLOW", "the body did not come in time") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as problem:
        raise Problem(422, "INVALID_PARAMETER", str(problem)) from None


def json_response(answer: Struct, status: int = 200) -> web.Response:
    """Return an answer as JSON."""
    return web.Response(
        body=msgspec.json.encode(answer), status=status, headers={"Content-Type": JSON}
    )


@web.middleware
async def _troubles_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        response = await handler(request)
    except Problem as problem:
        response = _trouble(problem.status, problem.code, str(problem), problem.headers)
    except ApiError as problem:
        response = _api_trouble(problem)
    except web.HTTPException as error:
        code = CODES.get(error.status, "INVALID_REQUEST")
        kept = {name: error.headers[name] for name in ("Allow",) if name in error.headers}
        if request.path.startswith(OPENAI_PATHS):
            reason = f"{error.reason} ({request.method} {request.path[:80]})"
            response = _api_trouble(ApiError(error.status, code.lower(), reason, headers=kept))
        else:
            response = _trouble(error.status, code, error.reason.lower(), kept)
    response.headers.update(HEADERS)
    return response


def _api_trouble(problem: ApiError) -> web.Response:
    response = json_response(problem.body, problem.status)
    response.headers.update(problem.headers)
    return response


def _trouble(status: int, code: str, message: str, headers: dict[str, str]) -> web.Response:
    trouble = answers.Trouble(code=code, message=message)
    response = json_response(answers.ErrorAnswer(error=trouble), status)
    response.headers.update(headers)
    return response
