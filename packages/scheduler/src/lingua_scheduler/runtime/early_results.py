"""What a client is sent before an outcome: words while somebody speaks, and parts of speech.

Best effort, and only for clients that ask for it. Nothing of it is sent to a client that is behind
with reading, and nothing after the outcome of its utterance. A part of a spoken translation is sent
only if nothing has to be heard before it; otherwise the outcome alone has it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lingua_wire.text_joints import joined_text
from lingua_wire.to_client import AsrPartial, PartialResult, TtsPart

if TYPE_CHECKING:
    from lingua_scheduler.jobs.profile import Profile
    from lingua_scheduler.peers.messages import PartSpoken
    from lingua_scheduler.runtime.job import LiveJob
    from lingua_scheduler.runtime.outlet import Outlet

# How many speakers' latest outcomes are remembered.
SPEAKERS_MAX: Final = 1024


class EarlyResults:
    """What one client wants before outcomes, and what it may still be sent."""

    __slots__ = (
        "_ended",
        "_outlet",
        "_session",
        "wants_any",
        "wants_old",
        "wants_partials",
        "wants_parts",
    )

    def __init__(self, session: str, profile: Profile | None = None) -> None:
        self._session = session
        self._outlet: Outlet | None = None
        # `partial_result` of everybody it hears; `asr_partial` of its own speech; `tts_part`.
        self.wants_partials = profile is not None and profile.partials
        self.wants_old = profile is not None and profile.old_partials
        self.wants_parts = profile is not None and profile.tts_parts
        self.wants_any = self.wants_partials or self.wants_old or self.wants_parts
        # Speaker -> the latest utterance with an outcome; only for those who want anything.
        self._ended: dict[str, int] | None = None

    def attach(self, outlet: Outlet | None) -> None:
        """Send to this socket from now on; to none, if there is none."""
        self._outlet = outlet

    def outcome_sent(self, speaker: str, index: int) -> None:
        """Note an outcome: nothing of its utterance may follow; called if anything is wanted."""
        if self._ended is None or len(self._ended) >= SPEAKERS_MAX:
            self._ended = {}
        self._ended[speaker] = max(index, self._ended_of(speaker))

    def _ended_of(self, speaker: str) -> int:
        return -1 if self._ended is None else self._ended.get(speaker, -1)

    def partial(self, message: PartialResult, stream_id: str) -> bool:
        """Send what was said so far, if the client wants it; tells whether it was sent."""
        outlet, speaker, index = self._outlet, message.session_id, message.utterance_index
        if outlet is None or outlet.is_behind or index <= self._ended_of(speaker):
            return False
        if self.wants_partials:
            outlet.send(message)
            return True
        if not self.wants_old or speaker != self._session:
            return False
        outlet.send(
            AsrPartial(
                session_id=speaker,
                utterance_index=index,
                job_id=stream_id,
                text=joined_text(message.stable, message.unstable),
                is_final=False,
                trace_id=stream_id,
            )
        )
        return True

    def text_of(self, job: LiveJob, text: str, now_ms: float) -> None:
        """Send the text that is recognised after the cut, if no node heard the utterance before."""
        if job.spec.stream:
            return
        end_ms = max(0, job.spec.heard_ms)
        message = PartialResult(
            session_id=self._session,
            utterance_index=job.spec.index,
            revision=max(0, round(now_ms - job.times.cut)),
            start_ms=max(0, end_ms - job.spec.ms),
            upto_ms=end_ms,
            stable="",
            unstable=text,
        )
        self.partial(message, job.id)

    def part(self, job: LiveJob, part: PartSpoken) -> None:
        """Send a part of a spoken translation, if nothing has to be heard before it."""
        outlet, spec = self._outlet, job.spec
        if outlet is None or not self.wants_parts or outlet.is_behind or spec.audience:
            return
        if part.attempt != job.attempt or spec.index != self._ended_of(self._session) + 1:
            return
        outlet.send(
            TtsPart(
                session_id=self._session,
                utterance_index=spec.index,
                job_id=job.id,
                attempt_id=part.attempt,
                tgt_lang=spec.lane,
                part_index=part.part_index,
                audio=part.audio,
                tts_format=part.audio_format,
            )
        )
