"""What the sockets of clients share: the services they use, their token, their error limit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lingua_scheduler.auth.policy import NOT_IN_ROOM, Forbidden, allow_renewal, speech_problem
from lingua_scheduler.auth.tokens import InvalidToken
from lingua_wire.codes import CloseCode, ErrorCode
from lingua_wire.errors import InvalidInput, InvalidLanguage

if TYPE_CHECKING:
    from collections.abc import Callable

    from lingua_scheduler.auth.expiry import TokenHolder
    from lingua_scheduler.auth.gate import TokenGate
    from lingua_scheduler.auth.tokens import ClientGrant
    from lingua_scheduler.clock import Clock
    from lingua_scheduler.config import Settings
    from lingua_scheduler.jobs.profile import Profile
    from lingua_scheduler.metrics import LiveMetrics
    from lingua_scheduler.rooms.service import RoomService
    from lingua_scheduler.runtime.ended_session import EndedSessions
    from lingua_scheduler.runtime.lifecycle import Lifecycle
    from lingua_scheduler.runtime.served_languages import ServedLanguages
    from lingua_scheduler.runtime.session_registry import SessionRegistry
    from lingua_scheduler.tasks import Tasks

# Invalid messages in a row before the client is disconnected.
ERRORS_MAX = 50


class ForeignSession(InvalidInput):
    """A message names another session than that of its connection."""

    def __init__(self) -> None:
        super().__init__("not the session of this connection")


def code_of(problem: InvalidInput | InvalidToken | Forbidden) -> ErrorCode:
    """Return the code that a message is refused with."""
    if isinstance(problem, Forbidden):
        return ErrorCode.FORBIDDEN
    if isinstance(problem, InvalidToken):
        return ErrorCode.UNAUTHORIZED
    if isinstance(problem, InvalidLanguage):
        return ErrorCode.UNSUPPORTED_LANGUAGE
    if isinstance(problem, ForeignSession):
        return ErrorCode.INVALID_SESSION
    return ErrorCode.INVALID_MESSAGE


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientServices:
    """What the sockets of clients use of the instance."""

    settings: Settings
    gate: TokenGate
    lifecycle: Lifecycle
    registry: SessionRegistry
    ended: EndedSessions
    served: ServedLanguages
    rooms: RoomService
    tasks: Tasks
    clock: Clock
    metrics: LiveMetrics

    @property
    def retry_after_ms(self) -> int:
        """Return how long a client is asked to wait while the store is unavailable."""
        return self.settings.jobs.retry_after_ms


class ClientAccess:
    """What the token of one client allows."""

    __slots__ = ("_bearer", "_gate", "grant")

    def __init__(self, gate: TokenGate, bearer: str | None) -> None:
        self._gate = gate
        self._bearer = bearer
        # None where no keys are set.
        self.grant: ClientGrant | None = None

    def authenticate(self, token: str | None, holder: TokenHolder) -> ClientGrant | None:
        """Let a client in by its token, which is watched from now on; raises `InvalidToken`."""
        self.grant = self._gate.client(token or self._bearer)
        self._gate.watch(holder)
        return self.grant

    def renew(self, token: str, holder: TokenHolder) -> ClientGrant | None:
        """Take a newer token of the client; raises `InvalidToken` or `Forbidden`."""
        grant = self._gate.client(token)
        allow_renewal(self.grant, grant)
        self.grant = grant
        self._gate.watch(holder)
        return grant

    def problem_of(self, profile: Profile) -> str:
        """Return why the token does not allow to speak with this profile; empty: it does."""
        return speech_problem(self.grant, profile)

    def forbid(self, problem: str, room: str) -> None:
        """Raise `Forbidden` for this problem, unless it is a guest's who is in its room."""
        if problem != NOT_IN_ROOM or self.grant is None or self.grant.room != room:
            raise Forbidden(problem)

    def check_guest(self, room: str) -> None:
        """Raise `Forbidden` if this is a guest outside of its room."""
        if self.grant is not None and self.grant.room not in ("", room):
            raise Forbidden(NOT_IN_ROOM)


class ErrorLimit:
    """Counts the messages of a socket that were refused; too many in a row close it."""

    __slots__ = ("_close", "in_a_row")

    def __init__(self, close: Callable[[int, str], None]) -> None:
        self._close = close
        # Messages that were refused since one was used.
        self.in_a_row = 0

    def reset(self) -> None:
        """Note that a message was used."""
        self.in_a_row = 0

    def count(self) -> None:
        """Note that a message was refused."""
        self.in_a_row += 1
        if self.in_a_row >= ERRORS_MAX:
            self._close(CloseCode.TOO_MANY_ERRORS, "too many invalid messages in a row")
