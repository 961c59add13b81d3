"""An authorized request of the HTTP API: its parameters and body, checked, and its response."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from aiohttp import web
from msgspec import Meta, Struct

from lingua_scheduler.edge.guard import Problem
from lingua_scheduler.edge.routes import JSON

if TYPE_CHECKING:
    from lingua_scheduler.edge.routes import ApiRoute

BODY_BYTES_MAX = 64 * 1024
BODY_S = 5
PAGE_MAX = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiCall:
    """A request that was authorized and read."""

    request: web.Request
    # The tenant whose data the caller may see; empty: all tenants.
    seen_by: str
    query: Any = None
    body: Any = None

    @property
    def id(self) -> str:
        """Return the id in the path."""
        return self.request.match_info["id"]


class PageQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which part of a list is returned."""

    limit: Annotated[int, Meta(ge=1, le=PAGE_MAX)] = 100
    after: Annotated[str, Meta(max_length=128)] = ""


def read_query(request: web.Request, route: ApiRoute) -> Struct | None:
    """Return the query parameters, or raise `Problem`."""
    if route.query is None:
        return None
    given = request.query
    if len(set(given)) != len(given):
        raise Problem(422, "INVALID_PARAMETER", "a parameter is given twice")
    try:
        return msgspec.convert(dict(given), route.query, strict=False)
    except msgspec.ValidationError as problem:
        raise Problem(422, "INVALID_PARAMETER", str(problem)) from None


async def read_body(request: web.Request, route: ApiRoute) -> Struct | None:
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
        raise Problem(408, "TOO_SLOW", "the body did not arrive in time") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as problem:
        raise Problem(422, "INVALID_PARAMETER", str(problem)) from None


def json_response(answer: Struct, status: int = 200) -> web.Response:
    """Return an answer as JSON."""
    return web.Response(
        body=msgspec.json.encode(answer), status=status, headers={"Content-Type": JSON}
    )
