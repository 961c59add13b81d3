"""Commands of members, one after the other: each is answered before the next begins.

A command waits for the store. A command that cannot be done is answered with `room_error`, an
unavailable store with `error` and when to try again. Nothing here knows what a command is about:
see `service.py`.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from lingua_scheduler.errors import StoreUnavailable
from lingua_scheduler.session.rooms import RoomProblem
from lingua_wire.codes import ErrorCode
from lingua_wire.errors import InvalidInput, LinguaError
from lingua_wire.to_client import ErrorMessage, RoomError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lingua_scheduler.rooms.member import MemberSession
    from lingua_scheduler.tasks import Tasks

    Command = Callable[[], Awaitable[None]]

# Commands of one session that may wait for those before them.
WAITING_MAX = 64


class MovedAway(LinguaError):
    """Another instance owns the session by now; its client sends the command there."""

    def __init__(self) -> None:
        super().__init__("the session went on at another instance")


class RoomCommandQueue:
    """The commands of all sessions, a queue for each."""

    def __init__(self, tasks: Tasks, retry_after_ms: int) -> None:
        self._tasks = tasks
        # How long a client is asked to wait while the store is unavailable.
        self._retry_after_ms = retry_after_ms
        # Session -> its commands; the first one is being worked on.
        self._queues: dict[str, deque[Command]] = {}

    def is_idle(self, session: MemberSession) -> bool:
        """Tell whether all commands of a session are answered."""
        return session.record.id not in self._queues

    def add(self, session: MemberSession, command: Command) -> None:
        """Work on a command when those before it are answered."""
        record = session.record
        queue = self._queues.get(record.id)
        if queue is None:
            self._queues[record.id] = deque((command,))
            self._tasks.start(self._run(session))
        elif len(queue) >= WAITING_MAX and not (record.is_closing or record.is_over):
            refuse(session, RoomProblem(ErrorCode.RATE_LIMITED))
        else:
            queue.append(command)

    async def _run(self, session: MemberSession) -> None:
        queue = self._queues[session.record.id]
        try:
            while queue:
                await self._answer(session, queue[0])
                queue.popleft()
        finally:
            # An error of ours: the next command must not wait for ever.
            if queue:
                queue.popleft()
            if queue:
                self._tasks.start(self._run(session))
            else:
                del self._queues[session.record.id]

    async def _answer(self, session: MemberSession, command: Command) -> None:
        try:
            await command()
        except InvalidInput as problem:
            refuse(session, problem)
        except MovedAway:
            return
        except StoreUnavailable:
            code = ErrorCode.SCHEDULER_DEPENDENCY_DOWN
            retry_ms = self._retry_after_ms
            session.notifier.send(
                ErrorMessage(code=code, message=code.hint, retry_after_ms=retry_ms)
            )


def refuse(session: MemberSession, problem: InvalidInput) -> None:
    """Report to a member why a command was refused."""
    if isinstance(problem, RoomProblem):
        room_code = problem.room_code or None
        error = RoomError(code=problem.code, message=str(problem), room_code=room_code)
    else:
        error = RoomError(code=ErrorCode.INVALID_MESSAGE, message=str(problem))
    session.notifier.send(error)
