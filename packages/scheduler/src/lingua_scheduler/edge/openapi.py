"""The OpenAPI document of the HTTP API, made from the routes and types that serve it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from lingua_scheduler.edge.answers import ErrorAnswer
from lingua_scheduler.edge.openai.errors import ApiErrorAnswer
from lingua_scheduler.edge.routes import API, JSON

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lingua_scheduler.edge.routes import ApiRoute

REF = "#/components/schemas/{name}"
SECURITY, SPEAKER, GUEST = "admin_token", "speaker_token", "room_token"
TOKENS = {"admin": SECURITY, "near": SECURITY, "speak": SPEAKER, "room": GUEST}
BEARER = {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"}
FORM = "multipart/form-data"
PATH_PARAMETER = re.compile(r"\{(\w+)\}")
ABOUT = """\
The sessions, nodes and jobs that a scheduler instance knows. Only ids, counts and times: no \
response holds speech or text of users. Where client keys are set, a client token with the scope \
`admin` is needed; a token that is bound to a tenant sees only that tenant. The paths below `/v1` \
are those of OpenAI's speech API (docs/openai.md): they transfer speech and text, and need the \
scope `speak`. The pages of a room hold what was said in it: they need the scope `captions`, or \
`listen` and rooms; the token may be the parameter `token`, because a browser cannot set a header \
for Server-Sent Events."""


def document(routes: Iterable[ApiRoute], version: str) -> bytes:
    """Return the document as JSON."""
    known = list(routes)
    types = {kind for route in known for kind in (route.answer, route.body) if kind is not None}
    types |= {_error_type(route) for route in known} | {route.form for route in known if route.form}
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
                "securitySchemes": dict.fromkeys((SECURITY, SPEAKER, GUEST), BEARER),
            },
        }
    )


def _operation(route: ApiRoute) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": _operation_id(route),
        "summary": route.summary,
        "parameters": [*_path_parameters(route), *_query_parameters(route)],
        "responses": _responses(route),
    }
    if route.access != "open":
        # The empty one: without client keys, no token is needed.
        operation["security"] = [{TOKENS[route.access]: []}, {}]
    if route.body is not None:
        operation["requestBody"] = {"required": True, "content": _json_of(route.body)}
    if route.form is not None:
        schema = {"$ref": REF.format(name=route.form.__name__)}
        operation["requestBody"] = {"required": True, "content": {FORM: {"schema": schema}}}
    return operation


def _operation_id(route: ApiRoute) -> str:
    words = re.findall(r"\w+", route.path.removeprefix(f"{API}/")) or ["index"]
    return "_".join([route.method.lower(), *words])


def _path_parameters(route: ApiRoute) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in PATH_PARAMETER.findall(route.path)
    ]


def _query_parameters(route: ApiRoute) -> list[dict[str, Any]]:
    if route.query is None:
        return []
    (_, *_), parts = msgspec.json.schema_components([route.query], ref_template=REF)
    schema = parts[route.query.__name__]
    needed = schema.get("required", ())
    return [
        {"name": name, "in": "query", "required": name in needed, "schema": kind}
        for name, kind in schema["properties"].items()
    ]


def _responses(route: ApiRoute) -> dict[str, Any]:
    content = _json_of(route.answer) if route.answer is not None else {}
    if route.is_stream:
        # The data of an event.
        content = {route.content_type: content[JSON]}
    elif route.content_type != JSON:
        content[route.content_type] = {"schema": {"type": "string"}}
    responses: dict[str, Any] = {"200": {"description": route.summary, "content": content}}
    if route.is_ready_check:
        responses["503"] = {"description": "Not ready.", "content": content}
    for status, text in _errors(route):
        responses[status] = {"description": text, "content": _json_of(_error_type(route))}
    return responses


def _error_type(route: ApiRoute) -> type[msgspec.Struct]:
    return ApiErrorAnswer if route.access == "speak" else ErrorAnswer


def _errors(route: ApiRoute) -> list[tuple[str, str]]:
    is_own, is_read = route.access != "speak", bool(route.query or route.body or route.asks_store)
    possible = (
        (route.access == "speak" and route.method == "POST", "400", "A parameter is wrong."),
        (route.access != "open", "401", "A token is missing or not valid."),
        (
            route.access != "open",
            "403",
            "The token or the origin of the request does not allow this.",
        ),
        ("{" in route.path, "404", "It does not exist, or belongs to another tenant."),
        (bool(route.body or route.form), "413", "The body is too large."),
        (is_own and route.body is not None, "415", "The content type is not JSON."),
        (is_own and is_read, "422", "A parameter is wrong."),
        (route.form is not None, "429", "Too many recordings are under way; try again later."),
        (route.access == "room", "429", "Too many wrong codes of rooms."),
        (
            route.form is not None,
            "503",
            "No node serves this language, or the instance is stopping.",
        ),
        (
            route.form is not None,
            "504",
            "The time limit for a recording of this length was exceeded.",
        ),
        (route.asks_store, "503", "The store is unavailable."),
        (route.is_stream, "503", "Too many readers, or the instance is stopping."),
    )
    return [(status, text) for may_be, status, text in possible if may_be]


def _json_of(kind: type[msgspec.Struct]) -> dict[str, Any]:
    return {JSON: {"schema": {"$ref": REF.format(name=kind.__name__)}}}
