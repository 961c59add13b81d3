"""The way from a session to its client: messages, the steps of its jobs, their failures.

Additions of this protocol go only to clients that asked for them. The same trouble is reported at
most once a second. Nothing is sent while no socket is attached.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lingua_scheduler.runtime.early_results import EarlyResults
from lingua_wire.codes import ErrorCode
from lingua_wire.to_client import AsrPartial, ErrorMessage, UiEvent

if TYPE_CHECKING:
    from lingua_scheduler.clock import Clock
    from lingua_scheduler.jobs.profile import Profile
    from lingua_scheduler.peers.messages import PartSpoken
    from lingua_scheduler.runtime.job import LiveJob
    from lingua_scheduler.runtime.outlet import Outlet
    from lingua_wire.codec import EncodedAudio
    from lingua_wire.to_client import ToClient, TranslationResult

# How often one session is sent the same trouble.
REPORT_EVERY_MS = 1000
# Why the scheduler itself ended a job -> the code that clients know.
OWN_REASONS = {
    "queue_full": ErrorCode.BUSY,
    "no_pool_for_lang_pair": ErrorCode.NO_AVAILABLE_NODE,
    "audio_lost": ErrorCode.NODE_UNAVAILABLE,
}


class ClientNotifier:
    """One session's way to its client."""

    __slots__ = ("_clock", "_sent_at_ms", "_session", "early", "outlet")

    def __init__(self, session: str, clock: Clock, profile: Profile | None = None) -> None:
        # The client's socket; None while none is attached.
        self.outlet: Outlet | None = None
        self._session = session
        self._clock = clock
        # Trouble -> when it was last reported; None while there was none.
        self._sent_at_ms: dict[str, float] | None = None
        # What it is sent before outcomes.
        self.early = EarlyResults(session, profile)

    def attach(self, outlet: Outlet) -> None:
        """Send to this socket from now on."""
        self.outlet = outlet
        self.early.attach(outlet)

    def detach(self) -> None:
        """Send nothing until another socket is attached."""
        self.outlet = None
        self.early.attach(None)

    @property
    def is_attached(self) -> bool:
        """Tell whether the client's socket is here."""
        return self.outlet is not None

    @property
    def is_behind(self) -> bool:
        """Tell whether the client's socket is here and so much is unread that it should wait."""
        return self.outlet is not None and self.outlet.is_behind

    def close(self, code: int, reason: str) -> None:
        """Close the client's socket, if it is here."""
        if self.outlet is not None:
            self.outlet.close(code, reason)

    # Messages

    def send(self, message: ToClient) -> None:
        """Send a message."""
        if self.outlet is not None:
            self.outlet.send(message)

    def send_with(self, message: TranslationResult, sound: EncodedAudio) -> None:
        """Send a result with audio that is shared with other receivers."""
        if self.outlet is not None:
            self.outlet.send_with(message, sound)

    def addition(self, message: ToClient) -> None:
        """Send a message that only clients of this protocol know."""
        if self.outlet is not None and self.outlet.speaks_additions:
            self.outlet.send(message)

    # Jobs

    def event(self, job: LiveJob, event: str) -> None:
        """Report a step of a job, if the client wants such events."""
        if self.outlet is not None and self.outlet.wants_events:
            self.send(self._step(job, event))

    def error_event(self, job: LiveJob, code: ErrorCode, hint: str) -> None:
        """Report a failing step of a job."""
        self.send(self._step(job, "ERROR", code, hint))

    def failed(self, job: LiveJob, reason: str) -> None:
        """Report at once that a job failed, in our own words; its outcome follows in order."""
        if job.first_failure():
            code = code_for(reason)
            self.error_event(job, code, code.failure)
            self.send(ErrorMessage(code=code, message=code.failure))

    def partial(self, job: LiveJob, text: str, *, is_final: bool) -> None:
        """Pass on the text that is recognised after the cut."""
        if self.early.wants_partials:
            self.early.text_of(job, text, self._clock.now_ms())
            self.event(job, "ASR_PARTIAL")
            return
        self.send(
            AsrPartial(
                session_id=self._session,
                utterance_index=job.spec.index,
                job_id=job.id,
                text=text,
                is_final=is_final,
                trace_id=job.assign.trace_id,
            )
        )
        self.event(job, "ASR_PARTIAL")

    def part(self, job: LiveJob, part: PartSpoken) -> None:
        """Send a part of a spoken translation before its outcome."""
        self.early.part(job, part)

    def _step(
        self, job: LiveJob, event: str, code: ErrorCode | None = None, hint: str | None = None
    ) -> UiEvent:
        return UiEvent(
            trace_id=job.assign.trace_id,
            session_id=self._session,
            job_id=job.id,
            utterance_index=job.spec.index,
            event=event,
            elapsed_ms=max(0, round(self._clock.now_ms() - job.times.cut)),
            status="ok" if code is None else "error",
            error_code=code,
            hint=hint,
        )

    def store_lost(self) -> None:
        """Report, now and then, that the store is unavailable."""
        if self.may_report("store"):
            code = ErrorCode.SCHEDULER_DEPENDENCY_DOWN
            self.send(ErrorMessage(code=code, message=code.hint, retry_after_ms=REPORT_EVERY_MS))

    def may_report(self, trouble: str) -> bool:
        """Tell whether a trouble was not reported a moment ago, and note that it is now."""
        now, sent_at_ms = self._clock.now_ms(), self._sent_at_ms or {}
        if now - sent_at_ms.get(trouble, -REPORT_EVERY_MS) < REPORT_EVERY_MS:
            return False
        self._sent_at_ms = sent_at_ms | {trouble: now}
        return True


def code_for(reason: str) -> ErrorCode:
    """Return the code that a client is sent; always one of the catalogue."""
    if reason in ErrorCode.__members__:
        return ErrorCode[reason]
    return OWN_REASONS.get(reason, ErrorCode.PROCESSING_ERROR)
