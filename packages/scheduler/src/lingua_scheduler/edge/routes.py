"""A route of the HTTP API: its path, who may call it, what it reads and what it returns.

`http_api.py` serves the routes and `openapi.py` describes them, so that both know the same paths.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import msgspec

JSON = "application/json"
API = "/api/v1"

# Who may call a route: anyone; anyone on this machine, else an admin; an admin; a caller with the
# scope `speak` (the paths of OpenAI's API, which have their own error format); a caller who may
# enter the room of the path, or read its captions.
Access = Literal["open", "near", "admin", "speak", "room"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiRoute:
    """One path and method of the HTTP API."""

    method: Literal["GET", "POST"] = "GET"
    path: str
    summary: str
    handler: Callable[[Any], Awaitable[Any]]
    access: Access = "admin"
    # The type of the response body; a plain page has a content type instead.
    answer: type[msgspec.Struct] | None = None
    content_type: str = JSON
    query: type[msgspec.Struct] | None = None
    body: type[msgspec.Struct] | None = None
    # The fields of a multipart form; its field `file` is the only one with a file.
    form: type[msgspec.Struct] | None = None
    # Whether the handler needs the store.
    asks_store: bool = False
    # Whether the answer is a stream of events: the handler gets the plain request, checks the
    # caller itself, and has no time limit.
    is_stream: bool = False

    @property
    def is_ready_check(self) -> bool:
        """Tell whether its 503 is a regular response, not an error."""
        return self.path == "/readyz"
