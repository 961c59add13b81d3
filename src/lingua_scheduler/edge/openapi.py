"""The OpenAPI document of the HTTP side, made from the same routes and types that serve it.

A `Route` says everything about one path: who may call it, what it reads and answers. `http.py`
serves it, and `document` describes it; neither knows a path the other does not.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from lingua_scheduler.edge.answers import ErrorAnswer
from lingua_scheduler.edge.openai.trouble import ApiErrorAnswer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

REF = "#/components/schemas/{name}"
SECURITY, SPEAKER = "admin_token", "speaker_token"
BEARER = {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"}
JSON, FORM = "application/json", "multipart/form-data"
PATH_PARAMETER = re.compile(r"\{(\w+)\}")
ABOUT = """\
What a scheduler instance knows of its sessions, nodes and jobs. Ids, counts and times only: no \
answer holds anything that was said. Where client keys are set, a client token with the scope \
`admin` is needed; one that is bound to a tenant sees that tenant alone. The paths below `/v1` are \
those of OpenAI's speech API (docs/openai.md): they take and give what is said, and need the scope \
`speak`."""

# Who may call: anyone; anyone on this machine, else an admin; an admin; whoever may speak, on the
# surface of OpenAI's API, which has errors of its own.
Access = Literal["open", "near", "admin", "speak"]


@dataclass(frozen=True, slots=True)
class Route:
    """One path and method of the HTTP side."""

    method: Literal["GET", "POST"]
    path: str
    summary: str
    handler: Callable[[Any], Awaitable[Any]]
    access: Access = "admin"
    # The type of the answer; a plain page has a content type instead.
    answer: type[msgspec.Struct] | None = None
    content_type: str = JSON
    query: type[msgspec.Struct] | None = None
    body: type[msgspec.Struct] | None = None
    # The fields of a multipart form; its field `file` is the only one with a file.
    form: type[msgspec.Struct] | None = None
    # Whether the store must answer first.
    asks_store: bool = False

    @property
    def trouble(self) -> type[msgspec.Struct]:
        """Return the type of its errors."""
        return ApiErrorAnswer if self.access == "speak" else ErrorAnswer

    @property
    def is_ready_check(self) -> bool:
        """Tell whether a 503 of it is an answer, not an error."""
        return self.path == "/readyz"


def document(routes: Iterable[Route], version: str) -> bytes:
    """Return the document as JSON."""
    known = list(routes)
    types = {kind for route in known for kind in (route.answer, route.body) if kind is not None}
    types |= {route.trouble for route in known} | {route.form for route in known if route.form}
    ordered = sorted(types, key=lambda kind: kind.__name__)
    _, schemas = msgspec.json.schema_components(ordered, ref_template=REF)
    paths: dict[str, dict[str, Any]] = {}
    for route in known:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {"title": "Lingua Scheduler", "version": version, "description": ABOUT},
            "servers": [{"url": "/"}],
            "paths": paths,
            "components": {
                "schemas": schemas,
                "securitySchemes": {SECURITY: BEARER, SPEAKER: BEARER},
            },
        }
    )


def _operation(route: Route) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": _operation_id(route),
        "summary": route.summary,
        "parameters": [*_path_parameters(route), *_query_parameters(route)],
        "responses": _responses(route),
    }
    if route.access != "open":
        # The empty one: nobody is asked where no keys are set.
        operation["security"] = [{SPEAKER if route.access == "speak" else SECURITY: []}, {}]
    if route.body is not None:
        operation["requestBody"] = {"required": True, "content": _json_of(route.body)}
    if route.form is not None:
        schema = {"$ref": REF.format(name=route.form.__name__)}
        operation["requestBody"] = {"required": True, "content": {FORM: {"schema": schema}}}
    return operation


def _operation_id(route: Route) -> str:
    words = re.findall(r"\w+", route.path.removeprefix("/api/v1/")) or ["index"]
    return "_".join([route.method.lower(), *words])


def _path_parameters(route: Route) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in PATH_PARAMETER.findall(route.path)
    ]


def _query_parameters(route: Route) -> list[dict[str, Any]]:
    if route.query is None:
        return []
    (_, *_), parts = msgspec.json.schema_components([route.query], ref_template=REF)
    schema = parts[route.query.__name__]
    needed = schema.get("required", ())
    return [
        {"name": name, "in": "query", "required": name in needed, "schema": kind}
        for name, kind in schema["properties"].items()
    ]


def _responses(route: Route) -> dict[str, Any]:
    content = _json_of(route.answer) if route.answer is not None else {}
    if route.content_type != JSON:
        content[route.content_type] = {"schema": {"type": "string"}}
    responses: dict[str, Any] = {"200": {"description": route.summary, "content": content}}
    if route.is_ready_check:
        responses["503"] = {"description": "Not ready.", "content": content}
    for status, text in _troubles(route):
        responses[status] = {"description": text, "content": _json_of(route.trouble)}
    return responses


def _troubles(route: Route) -> list[tuple[str, str]]:
    is_own, is_read = route.access != "speak", bool(route.query or route.body or route.asks_store)
    possible = (
        (route.access == "speak" and route.method == "POST", "400", "A parameter is wrong."),
        (route.access != "open", "401", "A token is needed, or this one is not valid."),
        (route.access != "open", "403", "The token, or where it comes from, does not allow this."),
        ("{" in route.path, "404", "There is no such thing, or not for this tenant."),
        (bool(route.body or route.form), "413", "The body is too large."),
        (is_own and route.body is not None, "415", "The body is not said to be JSON."),
        (is_own and is_read, "422", "A parameter is wrong."),
        (route.form is not None, "429", "Too many recordings are under way; come back later."),
        (route.form is not None, "503", "No node serves this language, or the instance stops."),
        (route.form is not None, "504", "It took longer than a recording of this length may."),
        (route.asks_store, "503", "The store cannot be reached."),
    )
    return [(status, text) for may_be, status, text in possible if may_be]


def _json_of(kind: type[msgspec.Struct]) -> dict[str, Any]:
    return {JSON: {"schema": {"$ref": REF.format(name=kind.__name__)}}}
