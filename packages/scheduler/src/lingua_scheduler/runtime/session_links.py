"""The calls between parts of a session whose receiver is built after the caller.

Some parts call each other: an outcome frees a place in the window, which submits what waited; a
submission may find that the store lost the session, which submits everything again. Each part gets
such a call as a function and does not know the other part. The functions are methods of one object:
an instance has many sessions, most of them idle, and a closure for each call would take a sixth of
a session's memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Coroutine
    from typing import Any

    from lingua_scheduler.clock import Clock
    from lingua_scheduler.rooms.audience import AudienceFinder
    from lingua_scheduler.runtime.admission import Admission
    from lingua_scheduler.runtime.job import LiveJob
    from lingua_scheduler.runtime.requests import WholeRequest
    from lingua_scheduler.runtime.session import LiveSession
    from lingua_scheduler.runtime.whole_utterances import WholeUtterances
    from lingua_scheduler.session.ledger import Fate
    from lingua_scheduler.state.records import JobSpec, Submitted
    from lingua_scheduler.state.reply import Reply
    from lingua_scheduler.state.retry import StoreRetry
    from lingua_scheduler.tasks import Tasks


class SessionLinks:
    """Passes calls on to the parts of one session."""

    __slots__ = (
        "_admission",
        "_audience",
        "_clock",
        "_retry",
        "_session_id",
        "_tasks",
        "_utterances",
        "session",
    )

    _admission: Admission
    session: LiveSession
    _utterances: WholeUtterances

    def __init__(
        self,
        session_id: str,
        *,
        audience: AudienceFinder,
        retry: StoreRetry,
        tasks: Tasks,
        clock: Clock,
    ) -> None:
        self._session_id = session_id
        self._audience = audience
        self._retry = retry
        self._tasks = tasks
        self._clock = clock

    def connect(
        self, session: LiveSession, admission: Admission, utterances: WholeUtterances
    ) -> None:
        """Name the receivers, once all parts are built."""
        self.session, self._admission, self._utterances = session, admission, utterances

    # The session

    def is_in_room(self) -> bool:
        """Tell whether the session is in a room."""
        return self._audience.is_in_room(self._session_id)

    def open_in_store(self, restart: bool) -> Awaitable[tuple[Reply, str, int]]:
        """Open the session in the store again."""
        return self.session.open_in_store(restart=restart)

    def start_epoch(self, epoch: str) -> None:
        """Start positions over."""
        self.session.start_epoch(epoch)

    def give_up(self) -> None:
        """Drop everything: another instance is the owner."""
        self.session.give_up()

    def end_turn(self, turn: str) -> None:
        """End a turn without a closing part."""
        self._tasks.start(self.session.end_turn(turn))

    # Outcomes

    def catch_up(self) -> Awaitable[object]:
        """Look for outcomes that were not announced."""
        return self._retry.until_stored(self.session.deliverer.catch_up)

    def delivered(self) -> dict[str, int]:
        """Return the last index delivered of each lane."""
        return self.session.deliverer.delivered.lanes

    # Admission

    def settled(self, index: int, fate: Fate, reason: str, lane: str, now_ms: float) -> None:
        """Note the outcome of one language of an utterance."""
        self._admission.settled(index, fate, reason, lane, now_ms)

    def unfilled(self, spec: JobSpec, reply: Reply) -> None:
        """Note that a place could not be filled."""
        self._admission.unfilled(spec, reply)

    def enter(self, job: LiveJob) -> Coroutine[Any, Any, Submitted]:
        """Submit a job to the store."""
        return self._admission.enter(job)

    # Whole utterances

    def admit(self, request: WholeRequest) -> int:
        """Admit a whole utterance that was looked up."""
        return self._utterances.admit(request, self._clock.now_ms())

    def place(self, request: WholeRequest, lanes: tuple[str, ...]) -> list[JobSpec]:
        """Give a whole utterance whose answer exists its place."""
        return self._utterances.place(request, lanes)

    def waiting(self) -> None:
        """Note that a request waits to be looked up."""
        self._utterances.waiting()

    def done(self) -> None:
        """Note that no request waits any more."""
        self._utterances.done()
