"""The report of interpreting: each utterance, its translation in each language, and the latencies.

Records and arithmetic only. Times `..._ms` of utterances are positions in the source's audio;
`latency_ms` is from the end of the voice, as spoken, to the arrival of the result here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lingua_client import Partial
    from lingua_wire.errors import LinguaError
    from lingua_wire.shared import Coverage, ServiceTimings, Timeline

# The parts of the timeline that are the scheduler's own: neither the way to the node and its work
# (`accept_ms` and the following) nor waiting for a free node (`queue_ms`), for an earlier utterance
# (`order_wait_ms`) or for the end of a pause.
OWN_PARTS: Final = ("place_ms", "push_ms", "settle_ms")
STAGES: Final = ("asr", "mt", "tts", "scheduler")
# A pause without speech is not a failure.
SILENT_REASONS: Final = frozenset({"silence_detected"})


@dataclass(slots=True)
class Rendition:
    """An utterance in one language, or the reason why there is no translation."""

    target: str
    text: str = ""
    # Translated speech, 16-bit mono; empty if it was not asked for.
    pcm: bytes = b""
    sample_rate: int = 0
    # Why there is no text; empty if there is one.
    reason: str = ""
    detail: str = ""
    # When it arrived, by the monotonic clock, and how long after the end of the voice.
    arrived_s: float = 0.0
    latency_ms: float | None = None
    timings: ServiceTimings | None = None
    timeline: Timeline | None = None
    # The probability of each language, where it had to be detected.
    languages: dict[str, float] = field(default_factory=dict)

    @property
    def is_silent(self) -> bool:
        """Tell whether nothing was spoken."""
        return self.reason in SILENT_REASONS

    @property
    def has_failed(self) -> bool:
        """Tell whether something was spoken that could not be translated."""
        return bool(self.reason) and not self.is_silent

    def stages_ms(self) -> dict[str, float]:
        """Return how long each stage took, as far as it is known."""
        known: dict[str, float | None] = {}
        if self.timings is not None:
            took = self.timings
            known = {"asr": took.asr_ms, "mt": took.nmt_ms, "tts": took.tts_ms}
        if self.timeline is not None:
            known["scheduler"] = own_share_ms(self.timeline)
        return {name: ms for name, ms in known.items() if ms is not None}


@dataclass(slots=True)
class TranslatedUtterance:
    """One piece of speech, as the scheduler cut it."""

    index: int
    start_ms: float = 0.0
    end_ms: float = 0.0
    # Where the voice in it ends.
    voice_end_ms: float = 0.0
    # When that was spoken, by the monotonic clock; None if the source is not spoken live.
    voice_end_s: float | None = None
    text_asr: str = ""
    # By language; filled as they arrive.
    renditions: dict[str, Rendition] = field(default_factory=dict)
    # The newest text of it while it is spoken, with the translations; None after an outcome.
    so_far: Partial | None = None


@dataclass(slots=True)
class InterpretationReport:
    """The report of one source."""

    utterances: list[TranslatedUtterance] = field(default_factory=list)
    # The scheduler's account of the speech; None if there is none.
    coverage: Coverage | None = None
    # Speech that was never admitted, or whose outcome was lost with a session.
    lost_ms: float = 0.0
    audio_ms: float = 0.0
    took_s: float = 0.0
    # Whether the source came at the pace of speech: only then latencies are meaningful.
    is_live: bool = True
    resumes: int = 0
    # The error that ended it early.
    error: LinguaError | None = None

    @property
    def renditions(self) -> list[Rendition]:
        """Return the renditions of all utterances, in order."""
        return [one for said in self.utterances for one in said.renditions.values()]

    @property
    def failures(self) -> int:
        """Return how many failures there were."""
        failed = sum(one.has_failed for one in self.renditions)
        return failed + bool(self.lost_ms) + (self.error is not None)

    def latencies_ms(self) -> dict[str, list[float]]:
        """Return all values of each stage, and of the whole as `total`."""
        values: dict[str, list[float]] = {name: [] for name in ("total", *STAGES)}
        for one in self.renditions:
            if one.latency_ms is not None and not one.reason:
                values["total"].append(one.latency_ms)
            for name, ms in one.stages_ms().items():
                values[name].append(ms)
        return values


def own_share_ms(timeline: Timeline) -> int:
    """Return the scheduler's own part of an utterance's time."""
    return sum(int(getattr(timeline, name)) for name in OWN_PARTS)


def quantile(values: Sequence[float], part: float) -> float:
    """Return the smallest value that so many of them do not exceed; 0 if there are none."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(len(ranked) * part))] if ranked else 0.0


def languages_of(utterances: Iterable[TranslatedUtterance]) -> list[str]:
    """Return every language of the utterances, in order of appearance."""
    return list(dict.fromkeys(code for said in utterances for code in said.renditions))
