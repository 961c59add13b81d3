"""Whole utterances: messages that carry all their audio, with an index and perhaps a name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lingua_scheduler.runtime.lifecycle import InstanceState
from lingua_scheduler.session.utterance import UtteranceCut
from lingua_scheduler.state.records import JobSpec
from lingua_wire.codes import ErrorCode

if TYPE_CHECKING:
    from lingua_scheduler.metrics import Counter
    from lingua_scheduler.runtime.admission import Admission
    from lingua_scheduler.runtime.language_changes import LanguageChanges
    from lingua_scheduler.runtime.lifecycle import Lifecycle
    from lingua_scheduler.runtime.requests import WholeRequest
    from lingua_scheduler.session.rate import TokenBucket
    from lingua_scheduler.state.retry import StoreRetry
    from lingua_wire.from_client import Utterance


# Looked up once, not for every utterance.
DRAINING: Final = InstanceState.DRAINING


class WholeUtterances:
    """Receives the whole utterances of one session."""

    __slots__ = (
        "_admission",
        "_bucket",
        "_clock",
        "_finalized",
        "_languages",
        "_lifecycle",
        "_retry",
    )

    def __init__(
        self,
        admission: Admission,
        *,
        languages: LanguageChanges,
        bucket: TokenBucket,
        lifecycle: Lifecycle,
        retry: StoreRetry,
        finalized: Counter,
    ) -> None:
        self._admission = admission
        self._languages = languages
        self._clock = admission.clock
        self._lifecycle = lifecycle
        self._retry = retry
        self._finalized = finalized
        # How many utterances a second are accepted.
        self._bucket = bucket

    def receive(self, message: Utterance) -> None:
        """Accept one whole utterance, or refuse it."""
        parts = self._admission.parts
        if self._lifecycle.state is DRAINING:
            parts.replies.draining(message)
            return
        now = self._clock.now_ms()
        if not self._bucket.take(now):
            problem = "too many utterances per second"
            parts.replies.refuse(ErrorCode.RATE_LIMITED, problem, message)
            return
        profile = self._languages.profile.for_utterance(message)
        profile.audio.check_utterance(len(message.audio))
        if not self._admission.has_room():
            self._refuse_full(message)
            return
        request = parts.requests.take(message, profile)
        if request is not None:
            parts.requests.remember(request, self.admit(request, now))

    def _refuse_full(self, message: Utterance) -> None:
        """Refuse because too many utterances wait: for earlier ones, or for the store."""
        code, problem = ErrorCode.BUSY, "too many utterances wait"
        if not self._retry.is_store_available:
            code = ErrorCode.SCHEDULER_DEPENDENCY_DOWN
            problem = code.hint
        self._admission.parts.replies.refuse(code, problem, message)

    # What `Requests` needs for those that it has looked up

    def admit(self, request: WholeRequest, now_ms: float) -> int:
        """Admit a whole utterance that is new; returns the index it gets."""
        message, profile, parts = request.message, request.profile, self._admission.parts
        record = parts.record
        requested, request_id = message.utterance_index, message.request_id
        index = parts.indices.take_requested(requested)
        self._finalized.inc()
        utterance = UtteranceCut(
            index=index,
            audio=message.audio,
            profile=profile,
            trace_id=message.trace_id or record.trace_id,
            trigger="manual" if message.manual_cut else "whole",
            speech_end_ms=now_ms,
            cut_ms=now_ms,
            end_ms=profile.audio.duration_ms(len(message.audio)),
            turn_id=f"{record.id}-u{index}",
            request_id=request_id,
            sound=str(request.sound) if request_id is not None else "",
            requested_index=requested if index != requested else None,
            # Who does not want to hear of it is told only that it got another index.
            is_accepted_sent=not message.wants_acceptance and index == requested,
        )
        self._admission.admit(utterance)
        return index

    def place(self, request: WholeRequest, lanes: tuple[str, ...]) -> list[JobSpec]:
        """Give a whole utterance whose answer exists its place in the order, without a job."""
        message, parts = request.message, self._admission.parts
        index = parts.indices.take_requested(message.utterance_index)
        length_ms = int(request.profile.audio.duration_ms(len(message.audio)))
        parts.ledger.admit(index, length_ms, lanes=len(lanes))
        self._admission.expect(index, len(lanes))
        return [
            parts.indices.in_lane(
                JobSpec(
                    session=parts.record.id,
                    index=index,
                    lane=lane,
                    demand="",
                    ms=length_ms,
                    lanes=len(lanes),
                )
            )
            for lane in lanes
        ]

    def waiting(self) -> None:
        """Note that a request waits to be looked up."""
        self._admission.idle.clear()

    def done(self) -> None:
        """Note that no request waits any more."""
        self._admission.pump()
