"""One stage of the pipeline: a worker pool called with a time limit and at most one retry.

Converts the errors of an engine into the failure of a job. The pool replaces a worker that died or
ran out of memory, so the call is repeated once if there is time. After a hang it is not repeated
here: another node does the job. `pipeline.py` defines the order of the stages.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from lingua_node import JobFailed
from lingua_speech.engine import EngineError
from lingua_speech.host import Urgency, WorkerBusy, WorkerLost
from lingua_speech.host.messages import FrameTooLarge
from lingua_wire.codes import RETRYABLE_NODE_ERRORS

if TYPE_CHECKING:
    from lingua_speech.abilities import LoadedEngine
    from lingua_speech.host import WorkerPool
    from lingua_speech.metrics import NodeMetrics
    from lingua_wire.shared import ServiceType

OnPartial = Callable[[str], None]

# The error code of a stage that takes too long.
TIMEOUT_CODES: Final[dict[str, str]] = {
    "asr": "PROCESSING_ERROR",
    "nmt": "NMT_TIMEOUT",
    "tts": "TTS_TIMEOUT",
}
# A scheduler gives a job to another node after 30 s (`jobs.attempt_ms`): a hanging worker must be
# detected well before that, with time left for a second try.
SECOND_TRY_WITHIN_S: Final = 15.0
TRY_S: Final = 13.0
# Decoding takes a hundredth of the length of the audio.
DECODE_S: Final = 8.0


def recognition_s(audio_ms: float) -> float:
    """Return the time limit of a recognition, after which its worker counts as hung."""
    return _hung_after_s(audio_ms / 1000, audio_ms / 2000)


def translation_s(text: str) -> float:
    """Return the time limit of a translation."""
    return _hung_after_s(len(text) / 50, len(text) / 100)


def synthesis_s(text: str) -> float:
    """Return the time limit of speech synthesis."""
    return _hung_after_s(len(text) / 20, len(text) / 100)


def _hung_after_s(generous_s: float, least_s: float) -> float:
    """Return a limit that fits twice into an attempt, unless the input is too long for that.

    A longer call may be ended by the time limit of its job, which does not kill the worker.
    """
    return max(min(5.0 + generous_s, TRY_S), least_s)


class PipelineStage:
    """The engines of one service, in a pool of worker processes."""

    def __init__(self, service: ServiceType, pool: WorkerPool, metrics: NodeMetrics) -> None:
        self.service = service
        self.pool = pool
        self._metrics = metrics

    @property
    def has_room(self) -> bool:
        """Tell whether no call is waiting for a worker."""
        return self.pool.is_ready and not self.pool.waiting

    async def call(
        self,
        engine: LoadedEngine,
        *args: Any,
        within_s: float,
        partial: OnPartial | None = None,
        urgency: Urgency = Urgency.JOB,
    ) -> Any:
        """Call an engine; raises `JobFailed` with the failure to report to the scheduler."""
        began = monotonic()

        async def call_once() -> Any:
            return await self.pool.call(
                engine.number, *args, timeout_s=within_s, partial=partial, urgency=urgency
            )

        try:
            try:
                return await call_once()
            except WorkerLost as lost:
                is_late = monotonic() - began > SECOND_TRY_WITHIN_S
                # What is not a job must not cost a second worker.
                if lost.why == "hung" or is_late or urgency is not Urgency.JOB:
                    raise
                self._metrics.second_tries.labels(self.service).inc()
                return await call_once()
        except WorkerBusy as error:
            raise JobFailed("NODE_OVERLOADED", str(error)) from error
        except WorkerLost as error:
            code = TIMEOUT_CODES[self.service] if error.why == "hung" else "PROCESSING_ERROR"
            raise JobFailed(code, f"the {self.service} worker was lost: {error.why}") from error
        except EngineError as error:
            raise self._failure(engine, error) from error
        except FrameTooLarge as error:
            # Not to be retried on another node, where it is just as large.
            raise JobFailed("UNSUPPORTED_FEATURE", str(error)) from error
        finally:
            self._metrics.engine_seconds.labels(engine.role).observe(monotonic() - began)

    def _failure(self, engine: LoadedEngine, error: EngineError) -> JobFailed:
        if engine.role == "file":
            # Not a service of the node: a file that cannot be decoded must not disable one.
            return JobFailed(error.code, error.message)
        if error.code == "MODEL_NOT_AVAILABLE":
            return JobFailed(error.code, error.message, {"service_id": engine.service_id})
        code = error.code if error.code in RETRYABLE_NODE_ERRORS else "PROCESSING_ERROR"
        return JobFailed(code, error.message)
