"""The way from a session to its client: messages, the steps of its jobs, their failures.

Additions of this protocol go only to clients that asked for them. The same trouble is reported at
most once a second. Nothing is sent while no socket is attached.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Protocol

from lingua_wire.codes import ErrorCode
from lingua_wire.to_client import AsrPartial, ErrorMessage, PartialResult, UiEvent

if TYPE_CHECKING:
    from lingua_scheduler.clock import Clock
    from lingua_scheduler.jobs.profile import Profile
    from lingua_scheduler.runtime.job import LiveJob
    from lingua_wire.codec import EncodedAudio
    from lingua_wire.to_client import ToClient, TranslationResult

# How often one session is sent the same trouble.
REPORT_EVERY_MS = 1000
# How many speakers' latest outcomes are remembered.
SPEAKERS_MAX = 1024
# Why the scheduler itself ended a job -> the code that clients know.
OWN_REASONS = {
    "queue_full": ErrorCode.BUSY,
    "no_pool_for_lang_pair": ErrorCode.NO_AVAILABLE_NODE,
    "audio_lost": ErrorCode.NODE_UNAVAILABLE,
}


class Outlet(Protocol):
    """The client's socket, as a session sees it."""

    @property
    def speaks_additions(self) -> bool:
        """Tell whether the client knows the additions of this protocol."""

    @property
    def wants_events(self) -> bool:
        """Tell whether the client wants `ui_event`s."""

    @property
    def is_behind(self) -> bool:
        """Tell whether so much is unread that large messages should wait."""

    def choose(self, *, speaks_additions: bool, wants_events: bool) -> None:
        """Restore what the client chose when it opened the session."""

    def send(self, message: ToClient) -> None:
        """Send one message; the socket drops a client that does not read."""

    def send_with(self, message: TranslationResult, sound: EncodedAudio) -> None:
        """Send a result whose audio is shared with other receivers."""

    def close(self, code: int, reason: str) -> None:
        """Close the socket."""


class PartialWish(Enum):
    """What a client wants while somebody speaks."""

    NONE = "none"
    # `asr_partial` of its own speech, as older clients know it.
    OLD = "old"
    # `partial_result` of everybody it hears.
    NEW = "new"

    @classmethod
    def of(cls, profile: Profile) -> PartialWish:
        """Read what a session's profile says."""
        if profile.partials:
            return cls.NEW
        return cls.OLD if profile.old_partials else cls.NONE


class ClientNotifier:
    """One session's way to its client."""

    __slots__ = ("_clock", "_ended", "_sent_at_ms", "_session", "_wish", "outlet")

    def __init__(self, session: str, clock: Clock, wish: PartialWish = PartialWish.NONE) -> None:
        # The client's socket; None while none is attached.
        self.outlet: Outlet | None = None
        self._session = session
        self._clock = clock
        # Trouble -> when it was last reported.
        self._sent_at_ms: dict[str, float] = {}
        self._wish = wish
        # Speaker -> the latest utterance with an outcome; only for those who want partials.
        self._ended: dict[str, int] = {}

    def attach(self, outlet: Outlet) -> None:
        """Send to this socket from now on."""
        self.outlet = outlet

    def detach(self) -> None:
        """Send nothing until another socket is attached."""
        self.outlet = None

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

    def outcome_sent(self, speaker: str, index: int) -> None:
        """Note an outcome: no partial of its utterance may follow."""
        if self._wish is not PartialWish.NONE and index > self._ended.get(speaker, -1):
            if len(self._ended) >= SPEAKERS_MAX:
                self._ended.clear()
            self._ended[speaker] = index

    def partial_result(self, message: PartialResult, stream_id: str) -> bool:
        """Send what was said so far, if the client wants it; tells whether it was sent."""
        outlet, speaker, index = self.outlet, message.session_id, message.utterance_index
        if outlet is None or self._wish is PartialWish.NONE or outlet.is_behind:
            return False
        if index <= self._ended.get(speaker, -1):
            return False
        if self._wish is PartialWish.NEW:
            outlet.send(message)
            return True
        if speaker != self._session:
            return False
        outlet.send(
            AsrPartial(
                session_id=speaker,
                utterance_index=index,
                job_id=stream_id,
                text=f"{message.stable} {message.unstable}".strip(),
                is_final=False,
                trace_id=stream_id,
            )
        )
        return True

    def partial(self, job: LiveJob, text: str, *, is_final: bool) -> None:
        """Pass on the text that is recognised after the cut, if nothing better was sent before."""
        self.event(job, "ASR_PARTIAL")
        if self._wish is PartialWish.NEW:
            if not job.spec.stream:
                self.partial_result(self._partial_of(job, text), job.id)
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

    def _partial_of(self, job: LiveJob, text: str) -> PartialResult:
        """Return the text of a job that no node heard before."""
        end_ms = max(0, job.spec.heard_ms)
        return PartialResult(
            session_id=self._session,
            utterance_index=job.spec.index,
            revision=max(0, round(self._clock.now_ms() - job.times.cut)),
            start_ms=max(0, end_ms - job.spec.ms),
            upto_ms=end_ms,
            stable="",
            unstable=text,
        )

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
        now = self._clock.now_ms()
        if now - self._sent_at_ms.get(trouble, -REPORT_EVERY_MS) < REPORT_EVERY_MS:
            return False
        self._sent_at_ms[trouble] = now
        return True


def code_for(reason: str) -> ErrorCode:
    """Return the code that a client is sent; always one of the catalogue."""
    if reason in ErrorCode.__members__:
        return ErrorCode[reason]
    return OWN_REASONS.get(reason, ErrorCode.PROCESSING_ERROR)
