"""What members ask for, one thing after the other: each ask is answered before the next begins.

An ask waits for the store; what cannot be is answered with `room_error`, a store that is away with
`error` and when to try again. Nothing here knows what an ask is about: see `hall.py`.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from lingua_scheduler.errors import InvalidInput, LinguaError, StoreUnavailable
from lingua_scheduler.messages.codes import ErrorCode
from lingua_scheduler.messages.to_client import ErrorMessage, RoomError
from lingua_scheduler.session.rooms import RoomProblem

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lingua_scheduler.live.session import LiveSession
    from lingua_scheduler.live.tasks import Tasks

    Ask = Callable[[], Awaitable[None]]


class MovedAway(LinguaError):
    """The session is another instance's by now: its client asks there."""

    def __init__(self) -> None:
        super().__init__("the session went on at another instance")


# Asks of one session that may wait for those before them.
WAITING_MAX = 64


class RoomDesk:
    """The asks of all sessions, a queue for each."""

    def __init__(self, tasks: Tasks, retry_after_ms: int) -> None:
        self._tasks = tasks
        # What a client is told to wait while the store is away.
        self._retry_after_ms = retry_after_ms
        # Session -> what it asks for; the first is being worked on.
        self._queues: dict[str, deque[Ask]] = {}

    def ask(self, session: LiveSession, ask: Ask) -> None:
        """Work on an ask when those before it are answered."""
        queue = self._queues.get(session.id)
        if queue is None:
            self._queues[session.id] = deque((ask,))
            self._tasks.start(self._serve(session))
        elif len(queue) >= WAITING_MAX and not session.closing:
            refuse(session, RoomProblem(ErrorCode.RATE_LIMITED))
        else:
            queue.append(ask)

    async def _serve(self, session: LiveSession) -> None:
        queue = self._queues[session.id]
        try:
            while queue:
                await self._answer(session, queue[0])
                queue.popleft()
        finally:
            # An error of ours: what was asked for next is not to wait for ever.
            if queue:
                queue.popleft()
            if queue:
                self._tasks.start(self._serve(session))
            else:
                del self._queues[session.id]

    async def _answer(self, session: LiveSession, ask: Ask) -> None:
        try:
            await ask()
        except InvalidInput as problem:
            refuse(session, problem)
        except MovedAway:
            return
        except StoreUnavailable:
            code = ErrorCode.SCHEDULER_DEPENDENCY_DOWN
            session.teller.tell(
                ErrorMessage(code=code, message=code.hint, retry_after_ms=self._retry_after_ms)
            )


def refuse(session: LiveSession, problem: InvalidInput) -> None:
    """Tell a member what cannot be."""
    if isinstance(problem, RoomProblem):
        room_code = problem.room_code or None
        error = RoomError(code=problem.code, message=str(problem), room_code=room_code)
    else:
        error = RoomError(code=ErrorCode.INVALID_MESSAGE, message=str(problem))
    session.teller.tell(error)
