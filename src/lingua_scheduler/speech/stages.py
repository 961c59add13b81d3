"""One stage of the pipeline: a crew of workers, asked with a time bound, once more if one dies.

Turns what can go wrong with an engine into what a node reports. A worker that died or ran out of
memory is replaced by its crew, so the same work is tried a second time if there is time; one that
hung is not waited for twice: another node does it. What the stages are is `pipeline.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from lingua_scheduler.messages.codes import RETRYABLE_NODE_ERRORS
from lingua_scheduler.node import JobFailed
from lingua_scheduler.speech.engine import EngineError
from lingua_scheduler.speech.host import WorkerBusy, WorkerLost
from lingua_scheduler.speech.host.wire import FrameTooLarge

if TYPE_CHECKING:
    from lingua_scheduler.messages.shared import ServiceType
    from lingua_scheduler.speech.abilities import Engine
    from lingua_scheduler.speech.host import Crew
    from lingua_scheduler.speech.meters import Meters

Tell = Callable[[str], None]

# What a stage that takes too long is reported as.
TOO_LONG: Final[dict[str, str]] = {
    "asr": "PROCESSING_ERROR", "nmt": "NMT_TIMEOUT", "tts": "TTS_TIMEOUT",
}  # fmt: skip
# A scheduler gives a job to another node after 30 s (`jobs.attempt_ms`): a worker that hangs must
# be found out well before that, and a second try must have a chance.
SECOND_TRY_WITHIN_S: Final = 15.0
TRY_S: Final = 13.0
# Decoding takes a hundredth of the sound's length.
READING_S: Final = 8.0


def listening_s(audio_ms: float) -> float:
    """Return how long a recognition may take before its worker counts as hung."""
    return _hung_after_s(audio_ms / 1000, audio_ms / 2000)


def translating_s(text: str) -> float:
    """Return how long a translation may take."""
    return _hung_after_s(len(text) / 50, len(text) / 100)


def speaking_s(text: str) -> float:
    """Return how long speaking may take."""
    return _hung_after_s(len(text) / 20, len(text) / 100)


def _hung_after_s(generous_s: float, least_s: float) -> float:
    """Return a bound of which two fit into an attempt, unless there is too much to do for that.

    What is that long is ended by the job's own clock if need be, which costs no worker.
    """
    return max(min(5.0 + generous_s, TRY_S), least_s)


class Stage:
    """The engines of one service, in a crew of worker processes."""

    def __init__(self, service: ServiceType, crew: Crew, meters: Meters) -> None:
        self.service = service
        self.crew = crew
        self._meters = meters

    @property
    def has_room(self) -> bool:
        """Tell whether a call would not have to wait behind another that waits."""
        return self.crew.is_ready and not self.crew.waiting

    async def call(
        self, engine: Engine, *args: Any, within_s: float, partial: Tell | None = None
    ) -> Any:
        """Ask an engine; raises `JobFailed` with what the scheduler is to be told."""
        began = monotonic()
        try:
            try:
                return await self._ask(engine, args, within_s, partial)
            except WorkerLost as lost:
                if lost.why == "hung" or monotonic() - began > SECOND_TRY_WITHIN_S:
                    raise
                self._meters.second_tries.labels(self.service).inc()
                return await self._ask(engine, args, within_s, partial)
        except WorkerBusy as error:
            raise JobFailed("NODE_OVERLOADED", str(error)) from error
        except WorkerLost as error:
            code = TOO_LONG[self.service] if error.why == "hung" else "PROCESSING_ERROR"
            raise JobFailed(code, f"the {self.service} worker was lost: {error.why}") from error
        except EngineError as error:
            raise self._failure(engine, error) from error
        except FrameTooLarge as error:
            # Not to be tried elsewhere: it is as large there.
            raise JobFailed("UNSUPPORTED_FEATURE", str(error)) from error
        finally:
            self._meters.engine_seconds.labels(engine.role).observe(monotonic() - began)

    async def _ask(
        self, engine: Engine, args: tuple[Any, ...], within_s: float,
        partial: Tell | None,
    ) -> Any:  # fmt: skip
        return await self.crew.call(engine.number, *args, timeout_s=within_s, partial=partial)

    def _failure(self, engine: Engine, error: EngineError) -> JobFailed:
        if engine.role == "file":
            # No service of the node's: what cannot be decoded here is no reason to leave one out.
            return JobFailed(error.code, error.message)
        if error.code == "MODEL_NOT_AVAILABLE":
            return JobFailed(error.code, error.message, {"service_id": engine.service_id})
        code = error.code if error.code in RETRYABLE_NODE_ERRORS else "PROCESSING_ERROR"
        return JobFailed(code, error.message)
