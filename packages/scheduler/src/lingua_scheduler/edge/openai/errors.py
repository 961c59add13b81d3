"""Errors as clients of OpenAI's API read them: `{"error": {message, type, param, code}}`.

The official clients choose the exception by the HTTP status, and show `code` and `param`. They
retry on 408, 409, 429 and on 500 or more, unless `x-should-retry` is `false`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from lingua_scheduler.edge.guard import Problem

NO_RETRY = {"x-should-retry": "false"}
# Codes of our own HTTP API that have another name in OpenAI's API.
KNOWN_AS = {"UNAUTHORIZED": "invalid_api_key", "FORBIDDEN": "insufficient_permissions"}
TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "invalid_request_error",
    429: "rate_limit_error",
}


class ApiError(Exception):
    """A request of the OpenAI surface that gets an error response."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        param: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        self.status = status
        self.code = code
        self.param = param
        self.headers = headers or {}
        super().__init__(message)

    @classmethod
    def of(cls, problem: Problem) -> ApiError:
        """Return a problem of our own HTTP API as an error of this surface."""
        code = KNOWN_AS.get(problem.code, problem.code.lower())
        return cls(problem.status, code, str(problem), headers=problem.headers)

    @property
    def body(self) -> ApiErrorAnswer:
        """Return the response body."""
        kind = "server_error" if self.status >= 500 else "invalid_request_error"
        return ApiErrorAnswer(
            error=ApiTrouble(
                message=str(self),
                type=TYPES.get(self.status, kind),
                param=self.param,
                code=self.code,
            )
        )


class ApiTrouble(msgspec.Struct, frozen=True, kw_only=True):
    """What went wrong."""

    message: str
    type: str
    param: str | None
    code: str | None


class ApiErrorAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The request could not be served."""

    error: ApiTrouble


def invalid(param: str | None, message: str, code: str = "invalid_value") -> ApiError:
    """Return the error for an invalid parameter."""
    return ApiError(400, code, message, param=param)
