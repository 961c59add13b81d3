"""What a client is answered about its utterances: accepted, refused, or not now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lingua_scheduler.state.reply import Reply
from lingua_wire.codes import ErrorCode
from lingua_wire.to_client import Backpressure, ErrorMessage, UtteranceAccepted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lingua_scheduler.metrics import LiveMetrics
    from lingua_scheduler.runtime.client_notifier import ClientNotifier
    from lingua_scheduler.runtime.job import LiveJob
    from lingua_scheduler.runtime.utterance import PendingUtterance
    from lingua_scheduler.state.records import JobSpec, Submitted
    from lingua_wire.from_client import Utterance


class UtteranceReplies:
    """Answers about the utterances of one session."""

    __slots__ = ("_metrics", "_notifier", "_retry_after_ms", "_session")

    def __init__(
        self, session: str, notifier: ClientNotifier, metrics: LiveMetrics, retry_after_ms: int
    ) -> None:
        self._session = session
        self._notifier = notifier
        self._metrics = metrics
        # What a client is asked to wait before it tries again.
        self._retry_after_ms = retry_after_ms

    def accepted(self, utterance: PendingUtterance) -> None:
        """Report that an utterance is in the store: one outcome per language follows."""
        if utterance.first_acceptance():
            self._notifier.addition(
                UtteranceAccepted(
                    session_id=self._session,
                    utterance_index=utterance.index,
                    first_seq=utterance.first_seq,
                    last_seq=utterance.last_seq,
                    start_ms=utterance.start_ms,
                    end_ms=utterance.end_ms,
                    requested_index=utterance.requested_index,
                )
            )

    def accepted_before(self, index: int, length_ms: int, requested: int) -> None:
        """Report under which index a repeated request is in the store."""
        self._notifier.addition(
            UtteranceAccepted(
                session_id=self._session,
                utterance_index=index,
                start_ms=0,
                end_ms=length_ms,
                requested_index=requested if requested != index else None,
            )
        )

    # Not now

    def pressure(self, action: str) -> None:
        """Ask the client to slow down, to pause or to go on."""
        self._metrics.sockets.backpressure_total.labels(action=action).inc()
        after_ms = None if action == "RESUME" else self._retry_after_ms
        self._notifier.send(Backpressure(action=action, resume_after_ms=after_ms))

    def busy(self) -> None:
        """Report, now and then, that audio is not accepted."""
        if self._notifier.may_report("BUSY"):
            code, retry_ms = ErrorCode.BUSY, self._retry_after_ms
            self._notifier.send(ErrorMessage(code=code, message=code.hint, retry_after_ms=retry_ms))

    def unserved(self, job: LiveJob, answer: Submitted) -> None:
        """Report that no known node serves a job now; it waits for one."""
        code = ErrorCode.NO_AVAILABLE_NODE
        self._notifier.error_event(job, code, code.hint)
        reason = answer.code.name if answer.code is not None else ""
        details = {
            "utterance_index": job.spec.index,
            "tgt_lang": job.assign.tgt_lang,
            "reason": reason,
            "label": answer.label,
        }
        message = f"{code.hint} ({reason}, {answer.label})"
        self._notifier.send(ErrorMessage(code=code, message=message, details=details))

    # Refused

    def not_taken(self, job: LiveJob, answer: Submitted) -> None:
        """Report that the store refused a job; an explicit outcome follows in its place."""
        code = ErrorCode.BUSY if answer.reply is Reply.QUEUE_FULL else ErrorCode.NO_AVAILABLE_NODE
        self._notifier.send(
            ErrorMessage(
                code=code,
                message=answer.reply.meaning,
                details={"utterance_index": job.spec.index, "reason": answer.reply.name},
                retry_after_ms=self._retry_after_ms,
            )
        )

    def refuse(self, code: ErrorCode, problem: str, message: Utterance) -> None:
        """Refuse a whole utterance; it may be sent again."""
        self._metrics.sockets.backpressure_total.labels(action=code.value).inc()
        self._notifier.send(
            ErrorMessage(
                code=code,
                message=problem,
                details={"utterance_index": message.utterance_index},
                retry_after_ms=self._retry_after_ms,
            )
        )

    def draining(self, message: Utterance) -> None:
        """Refuse a whole utterance because the instance stops."""
        self.refuse(ErrorCode.SESSION_CLOSED, "the instance stops: reconnect", message)

    def invalid(self, problem: str, message: Utterance) -> None:
        """Refuse a whole utterance that was found to be invalid after it was received."""
        details = {"utterance_index": message.utterance_index}
        self._invalid(ErrorCode.INVALID_MESSAGE, problem, details)

    def conflict(self, message: Utterance) -> None:
        """Refuse a whole utterance whose request id was used for another one."""
        details = {"utterance_index": message.utterance_index, "request_id": message.request_id}
        code = ErrorCode.REQUEST_CONFLICT
        self._invalid(code, code.hint, details)

    def in_conflict(self, spec: JobSpec) -> None:
        """Report that a request id was used for two utterances at once; its place is filled."""
        code = ErrorCode.REQUEST_CONFLICT
        details = {"utterance_index": spec.index}
        self._notifier.send(ErrorMessage(code=code, message=code.hint, details=details))

    def _invalid(
        self, code: ErrorCode, problem: str, details: Mapping[str, int | str | None]
    ) -> None:
        self._metrics.sockets.invalid_messages_total.labels(socket="session", code=code).inc()
        self._notifier.send(ErrorMessage(code=code, message=problem, details=details))
