"""The input and output of a handler: `Job`, `Result`, `JobFailed`.

A handler is an async function from a `Job` to a `Result`. It raises `JobFailed` when the job cannot
be done here; it is cancelled (`asyncio.CancelledError`) when the answer is no longer needed. None
of these has a socket: a job sends its partials and the parts of its speech through a function.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from time import perf_counter, time
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

import msgspec

from lingua_wire.errors import LinguaError
from lingua_wire.from_node import JobAudioPart, JobResult, NodeAsrPartial
from lingua_wire.shared import (
    ErrorDetail,
    ExtraResult,
    FeatureFlags,
    PipelineConfig,
    ServiceTimings,
    Term,
)

if TYPE_CHECKING:
    from lingua_node.stream import Stream
    from lingua_wire.to_node import JobAssign

TEXT_CHARACTERS_MAX = 65_536
CODE_CHARACTERS_MAX = 128
MESSAGE_CHARACTERS_MAX = 256
TIMINGS = frozenset(ServiceTimings.__struct_fields__)

Value = TypeVar("Value")
# What a job says while it runs.
JobNews = NodeAsrPartial | JobAudioPart
Send = Callable[[JobNews], None]


class JobFailed(LinguaError):
    """Raised by a handler: the job cannot be done here, for the reason of this code."""

    def __init__(self, code: str, message: str = "", details: Any = None) -> None:
        self.code = code
        self.message = message
        self.details = details
        super().__init__(f"{code}: {message}" if message else code)


class Field(Generic[Value]):
    """A field of the job's `job_assign`, read from the message: audio is not copied."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, job: None, owner: type) -> Field[Value]: ...
    @overload
    def __get__(self, job: Job, owner: type) -> Value: ...
    def __get__(self, job: Job | None, owner: type) -> Field[Value] | Value:
        return self if job is None else getattr(job.assign, self._name)


class Job:
    """One utterance to be translated into one language, as the scheduler assigned it."""

    __slots__ = ("_node_id", "_send", "assign", "audio_parts", "cancelled", "started_at", "stream")

    job_id = Field[str]()
    attempt_id = Field[int]()
    session_id = Field[str]()
    utterance_index = Field[int]()
    src_lang = Field[str]()
    tgt_lang = Field[str]()
    dialect = Field[str | None]()
    features = Field[FeatureFlags | None]()
    pipeline = Field[PipelineConfig]()
    audio = Field[bytes]()
    audio_format = Field[str]()
    sample_rate = Field[int]()
    mode = Field[str | None]()
    lang_a = Field[str | None]()
    lang_b = Field[str | None]()
    auto_langs = Field[tuple[str, ...] | None]()
    enable_streaming_asr = Field[bool | None]()
    partial_update_interval_ms = Field[int | None]()
    trace_id = Field[str]()
    group_id = Field[str | None]()
    part_index = Field[int | None]()
    context_text = Field[str | None]()
    glossary = Field[tuple[Term, ...]]()
    padding_ms = Field[int | None]()
    is_manual_cut = Field[bool]()
    is_pause_triggered = Field[bool]()
    is_timeout_triggered = Field[bool]()
    is_max_duration_triggered = Field[bool]()
    turn_id = Field[str | None]()
    context_reset = Field[bool]()
    deadline_ms = Field[int | None]()
    traceparent = Field[str | None]()
    stream_id = Field[str | None]()
    tts_parts = Field[bool | None]()

    def __init__(
        self, assign: JobAssign, node_id: str, send: Send, stream: Stream | None = None
    ) -> None:
        # The message that assigned it.
        self.assign = assign
        # The utterance as this node heard it while it was spoken; mostly None.
        self.stream = stream
        # Parts of its speech sent so far.
        self.audio_parts = 0
        # The answer is no longer needed. For work in threads, which cannot be cancelled.
        self.cancelled = False
        # When the handler was started, by `perf_counter`.
        self.started_at = perf_counter()
        self._node_id = node_id
        self._send = send

    @property
    def remaining_ms(self) -> float | None:
        """Return how long the scheduler still waits, 0 if no longer; None without a deadline."""
        if self.deadline_ms is None:
            return None
        return max(0.0, self.deadline_ms - self.running_ms)

    @property
    def running_ms(self) -> float:
        """For how long it has run."""
        return (perf_counter() - self.started_at) * 1000

    def __repr__(self) -> str:
        return f"<Job {self.job_id} attempt {self.attempt_id} {self.src_lang}>{self.tgt_lang}>"

    async def partial(self, text: str, *, is_final: bool = False) -> None:
        """Send the text recognised so far; without a connection it is dropped."""
        if self.cancelled:
            return
        assign = self.assign
        self._send(
            NodeAsrPartial(
                job_id=assign.job_id,
                node_id=self._node_id,
                session_id=assign.session_id,
                utterance_index=assign.utterance_index,
                text=text[:TEXT_CHARACTERS_MAX],
                is_final=is_final,
                trace_id=assign.trace_id,
                attempt_id=assign.attempt_id,
            )
        )

    async def audio_part(self, audio: bytes, *, audio_format: str = "pcm16") -> None:
        """Send the next part of the speech; nothing is sent unless parts are wanted.

        The `tts_audio` of the result must be all parts in order: a part may be lost.
        """
        if self.cancelled or not self.assign.tts_parts or not audio:
            return
        part = JobAudioPart(
            job_id=self.assign.job_id,
            attempt_id=self.assign.attempt_id,
            part_index=self.audio_parts,
            audio=audio,
            audio_format=audio_format,
        )
        self.audio_parts += 1
        self._send(part)


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a job. `timings` takes asr_ms, nmt_ms, tts_ms and total_ms."""

    text_asr: str = ""
    text_translated: str = ""
    tts_audio: bytes = b""
    tts_format: str = "pcm16"
    timings: Mapping[str, float] | None = None
    extra: ExtraResult | None = None
    asr_quality_level: str | None = None
    reason_codes: tuple[str, ...] | None = None
    quality_score: float | None = None
    rerun_count: int | None = None
    segments_meta: Any = None

    def __post_init__(self) -> None:
        # The scheduler would refuse the message, and the job would wait for its deadline.
        for name in ("text_asr", "text_translated"):
            text = getattr(self, name)
            if not isinstance(text, str) or len(text) > TEXT_CHARACTERS_MAX:
                raise TypeError(f"{name} must be a text of at most {TEXT_CHARACTERS_MAX}")
        if not isinstance(self.tts_audio, bytes):
            raise TypeError("tts_audio must be bytes")
        if self.timings and not TIMINGS.issuperset(self.timings):
            raise TypeError(f"timings may have {', '.join(sorted(TIMINGS))}")

    @classmethod
    def empty(cls, reason: str = "ASR_EMPTY") -> Result:
        """Return the result of an utterance without speech."""
        return cls(extra=ExtraResult(reason=reason))

    def _extra(self) -> ExtraResult | None:
        if not self.timings:
            return self.extra
        timings = ServiceTimings(**{name: float(ms) for name, ms in self.timings.items()})
        if self.extra is None:
            return ExtraResult(service_timings=timings)
        return msgspec.structs.replace(self.extra, service_timings=timings)

    def as_message(self, job: Job, node_id: str) -> JobResult:
        """Return the `job_result` that reports this."""
        assign = job.assign
        return JobResult(
            job_id=assign.job_id,
            attempt_id=assign.attempt_id,
            node_id=node_id,
            session_id=assign.session_id,
            utterance_index=assign.utterance_index,
            success=True,
            text_asr=self.text_asr,
            text_translated=self.text_translated,
            tts_audio=self.tts_audio or None,
            tts_format=self.tts_format if self.tts_audio else None,
            extra=self._extra(),
            processing_time_ms=job.running_ms,
            trace_id=assign.trace_id,
            group_id=assign.group_id,
            part_index=assign.part_index,
            node_completed_at_ms=int(time() * 1000),
            asr_quality_level=self.asr_quality_level,
            reason_codes=self.reason_codes,
            quality_score=self.quality_score,
            rerun_count=self.rerun_count,
            segments_meta=self.segments_meta,
            audio_parts=job.audio_parts or None,
        )


def failure_message(assign: JobAssign, node_id: str, failed: JobFailed) -> JobResult:
    """Return the `job_result` that reports a failure."""
    return JobResult(
        job_id=assign.job_id,
        attempt_id=assign.attempt_id,
        node_id=node_id,
        session_id=assign.session_id,
        utterance_index=assign.utterance_index,
        success=False,
        error=ErrorDetail(
            code=failed.code[:CODE_CHARACTERS_MAX],
            message=failed.message[:MESSAGE_CHARACTERS_MAX],
            details=failed.details,
        ),
        trace_id=assign.trace_id,
        group_id=assign.group_id,
        part_index=assign.part_index,
        node_completed_at_ms=int(time() * 1000),
    )


Handler = Callable[[Job], Coroutine[Any, Any, Result]]
