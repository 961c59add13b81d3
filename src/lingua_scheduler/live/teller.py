"""What a client is told besides its outcomes: steps, failures, pressure, refusals.

Additions of this protocol go only to clients that asked for them; the same trouble is told at most
once a second. A client that is gone is told nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from lingua_scheduler.messages.codes import ErrorCode
from lingua_scheduler.messages.to_client import (
    AsrPartial,
    Backpressure,
    ErrorMessage,
    UiEvent,
    UtteranceAccepted,
)
from lingua_scheduler.state.reply import Reply

if TYPE_CHECKING:
    from lingua_scheduler.live.board import JobBoard
    from lingua_scheduler.live.job import LiveJob
    from lingua_scheduler.live.piece import Piece
    from lingua_scheduler.messages.codec import Sound
    from lingua_scheduler.messages.from_client import Utterance
    from lingua_scheduler.messages.to_client import ToClient, TranslationResult
    from lingua_scheduler.state.records import JobSpec, Submitted

# How often one session is told the same trouble.
TELL_EVERY_MS = 1000
# Why the scheduler itself ended a job -> the code that clients know.
OWN_REASONS = {
    "queue_full": ErrorCode.BUSY,
    "no_pool_for_lang_pair": ErrorCode.NO_AVAILABLE_NODE,
    "audio_lost": ErrorCode.NODE_UNAVAILABLE,
}


class Outlet(Protocol):
    """The client's socket, as a session sees it."""

    # Whether the client asked for the additions of this protocol, and for `ui_event`s.
    speaks_additions: bool
    wants_events: bool

    def send(self, message: ToClient) -> None:
        """Send one message; a client that does not read is dropped by its socket."""

    def send_with(self, message: TranslationResult, sound: Sound) -> None:
        """Send a result whose audio is shared with others who get it."""

    @property
    def is_behind(self) -> bool:
        """Tell whether so much is unread that large messages had better wait."""

    def close(self, code: int, reason: str) -> None:
        """Close the socket."""


class Teller:
    """One session's way of talking to its client."""

    __slots__ = ("_clock", "_metrics", "_retry_after_ms", "_session", "_told_at_ms", "outlet")

    def __init__(self, session: str, outlet: Outlet, board: JobBoard, retry_after_ms: int) -> None:
        # None once the client is gone.
        self.outlet: Outlet | None = outlet
        self._session = session
        self._clock = board.clock
        self._metrics = board.metrics
        self._retry_after_ms = retry_after_ms
        self._told_at_ms: dict[str, float] = {}

    def event(self, job: LiveJob, event: str) -> None:
        """Show a step on a job's way to a client that wants to see it."""
        if self.outlet is not None and self.outlet.wants_events:
            self._show(job, event, "ok")

    def failed(self, job: LiveJob, reason: str) -> None:
        """Tell at once that a job failed, in our own words; its outcome follows in order."""
        if job.told:
            return
        job.told = True
        code = code_for(reason)
        self._show(job, "ERROR", "error", code, code.failure)
        self.tell(ErrorMessage(code=code, message=code.failure))

    def _show(
        self, job: LiveJob, event: str, status: str,
        code: ErrorCode | None = None, hint: str | None = None,
    ) -> None:  # fmt: skip
        assign = job.assign
        self.tell(
            UiEvent(
                trace_id=assign.trace_id, session_id=self._session, job_id=job.id,
                utterance_index=job.spec.index, event=event,
                elapsed_ms=max(0, round(self._clock.now_ms() - job.marks.cut)), status=status,
                error_code=code, hint=hint,
            )
        )  # fmt: skip

    def partial(self, job: LiveJob, text: str, *, is_final: bool) -> None:
        """Pass on what was recognised so far."""
        self.tell(
            AsrPartial(
                session_id=self._session, utterance_index=job.spec.index, job_id=job.id, text=text,
                is_final=is_final, trace_id=job.assign.trace_id,
            )
        )  # fmt: skip
        self.event(job, "ASR_PARTIAL")

    def tell(self, message: ToClient) -> None:
        """Send a message if the client is there."""
        if self.outlet is not None:
            self.outlet.send(message)

    def tell_with(self, message: TranslationResult, sound: Sound) -> None:
        """Send a result with audio that others get too, if the client is there."""
        if self.outlet is not None:
            self.outlet.send_with(message, sound)

    def addition(self, message: ToClient) -> None:
        """Send a message that only clients of this protocol know."""
        if self.outlet is not None and self.outlet.speaks_additions:
            self.outlet.send(message)

    def store_lost(self) -> None:
        """The store cannot be reached: say so, now and then, while it is tried again."""
        if self._may_tell("store"):
            code = ErrorCode.SCHEDULER_DEPENDENCY_DOWN
            self.tell(ErrorMessage(code=code, message=code.hint, retry_after_ms=TELL_EVERY_MS))

    def accepted(self, piece: Piece) -> None:
        """An utterance is in the store: exactly one outcome per language follows."""
        if piece.accepted:
            return
        piece.accepted = True
        self.addition(
            UtteranceAccepted(
                session_id=self._session, utterance_index=piece.index, first_seq=piece.first_seq,
                last_seq=piece.last_seq, start_ms=piece.start_ms, end_ms=piece.end_ms,
                requested_index=piece.requested_index,
            )
        )  # fmt: skip

    def unserved(self, job: LiveJob, answer: Submitted) -> None:
        """No known node serves a job now; it waits for one."""
        code = ErrorCode.NO_AVAILABLE_NODE
        self._show(job, "ERROR", "error", code, code.hint)
        reason = answer.code.name if answer.code is not None else ""
        self.tell(
            ErrorMessage(
                code=code, message=f"{code.hint} ({reason}, {answer.label})",
                details={
                    "utterance_index": job.spec.index, "tgt_lang": job.assign.tgt_lang,
                    "reason": reason, "label": answer.label,
                },
            )
        )  # fmt: skip

    def refuse(self, code: ErrorCode, problem: str, message: Utterance) -> None:
        """A whole utterance is not taken; it may be sent again."""
        self._metrics.backpressure_total.labels(action=code.value).inc()
        self.tell(
            ErrorMessage(
                code=code, message=problem,
                details={"utterance_index": message.utterance_index},
                retry_after_ms=self._retry_after_ms,
            )
        )  # fmt: skip

    def draining(self, message: Utterance) -> None:
        """The instance stops and takes nothing more."""
        self.refuse(ErrorCode.SESSION_CLOSED, "the instance stops: reconnect", message)

    def invalid(self, problem: str, message: Utterance) -> None:
        """A whole utterance cannot be used, as was found out later than it came."""
        code = ErrorCode.INVALID_MESSAGE
        self._metrics.invalid_messages_total.labels(socket="session", code=code).inc()
        self.tell(
            ErrorMessage(
                code=code, message=problem, details={"utterance_index": message.utterance_index}
            )
        )

    def conflict(self, message: Utterance) -> None:
        """A request id was used for something else."""
        details = {"utterance_index": message.utterance_index, "request_id": message.request_id}
        code = ErrorCode.REQUEST_CONFLICT
        self._metrics.invalid_messages_total.labels(socket="session", code=code).inc()
        self.tell(ErrorMessage(code=code, message=code.hint, details=details))

    def in_conflict(self, spec: JobSpec) -> None:
        """A request id was used for something else at the same time; its place is filled."""
        code = ErrorCode.REQUEST_CONFLICT
        self.tell(
            ErrorMessage(code=code, message=code.hint, details={"utterance_index": spec.index})
        )

    def accepted_before(self, index: int, length_ms: int, asked: int) -> None:
        """A request that was sent again is in the store under this index."""
        self.addition(
            UtteranceAccepted(
                session_id=self._session, utterance_index=index, start_ms=0, end_ms=length_ms,
                requested_index=asked if asked != index else None,
            )
        )  # fmt: skip

    def pressure(self, action: str) -> None:
        """Slow down, pause or go on."""
        self._metrics.backpressure_total.labels(action=action).inc()
        after = None if action == "RESUME" else self._retry_after_ms
        self.tell(Backpressure(action=action, resume_after_ms=after))

    def busy(self) -> None:
        """Audio is not taken now."""
        if self._may_tell("BUSY"):
            code, retry = ErrorCode.BUSY, self._retry_after_ms
            self.tell(ErrorMessage(code=code, message=code.hint, retry_after_ms=retry))

    def not_taken(self, job: LiveJob, answer: Submitted) -> None:
        """The store does not take a job; an explicit outcome follows in its place."""
        code = ErrorCode.BUSY if answer.reply is Reply.QUEUE_FULL else ErrorCode.NO_AVAILABLE_NODE
        self.tell(
            ErrorMessage(
                code=code, message=answer.reply.meaning,
                details={"utterance_index": job.spec.index, "reason": answer.reply.name},
                retry_after_ms=self._retry_after_ms,
            )
        )  # fmt: skip

    def _may_tell(self, what: str) -> bool:
        now = self._clock.now_ms()
        if now - self._told_at_ms.get(what, -TELL_EVERY_MS) < TELL_EVERY_MS:
            return False
        self._told_at_ms[what] = now
        return True


def code_for(reason: str) -> ErrorCode:
    """Return the code a client is told: never a word that is none of the catalogue's."""
    if reason in ErrorCode.__members__:
        return ErrorCode[reason]
    return OWN_REASONS.get(reason, ErrorCode.PROCESSING_ERROR)
