"""The results of the benchmark of real speech, and the numbers to quote."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from lingua_speech.scores import word_error_rate
from lingua_translate import own_share_ms, quantile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lingua_bench.speech.caption_log import CaptionLog
    from lingua_bench.speech.material import JoinedRecording
    from lingua_translate import InterpretationReport, Rendition


@dataclass(frozen=True, slots=True)
class RecognitionResult:
    """The results of one joined recording that was spoken into the service."""

    name: str
    utterances: int
    speech_s: float
    # Errors per word of what was recognised.
    wer: float
    # End of voice to the first translated audio, at the client.
    first_audio_p50_s: float
    first_audio_p95_s: float
    asr_p50_ms: float
    asr_p95_ms: float
    mt_p50_ms: float
    tts_p50_ms: float
    # The scheduler's own part of each utterance's time.
    scheduler_p50_ms: float
    scheduler_p99_ms: float
    # The node's work per second of speech.
    rtf: float
    # The account of the audio.
    admitted_ms: int
    unaccounted_ms: int
    failed: int
    # End of a word to the captions that show it for good: as it was said, and translated. Words
    # have no times here: they are spread evenly over the parts with voice.
    caption_lag_p50_s: float = 0.0
    caption_lag_p95_s: float = 0.0
    translated_lag_p50_s: float = 0.0
    # Words of captions that were taken back, per word: as it was said.
    erasure: float = 0.0


@dataclass(frozen=True, slots=True)
class Translated:
    """One direction, text to text, on prompts with a reference."""

    direction: str
    prompts: int
    chrf: float
    # The same programs without our rules, in the same run.
    chrf_plain: float
    # Of the half that was not looked at while the rules were written.
    chrf_held_out: float
    chrf_held_out_plain: float
    p50_ms: float
    p95_ms: float


@dataclass(frozen=True, slots=True)
class Long:
    """Continuous speech in slices, against the same speech recognised in one pass."""

    speech_s: float
    slices: int
    longest_s: float
    words_one_pass: int
    words_sliced: int
    # Of words of the one pass, those that are missing in the slices, near a border or elsewhere.
    missing_at_borders: int
    missing_elsewhere: int
    # Against the true text.
    wer_one_pass: float
    wer_sliced: float
    in_order: bool
    covered_percent: float
    # End of a word to its spoken translation: until that arrived, and until it was heard.
    arrived_lag_mean_s: float = 0.0
    arrived_lag_p95_s: float = 0.0
    heard_lag_mean_s: float = 0.0


@dataclass(slots=True)
class SpeechReport:
    """All results."""

    heard: list[RecognitionResult] = field(default_factory=list)
    translated: list[Translated] = field(default_factory=list)
    long: list[Long] = field(default_factory=list)
    rss_mb: float = 0.0
    start_s: float = 0.0

    def summary(self) -> dict[str, float]:
        """Return the numbers to quote: of the first recording, or of continuous speech alone."""
        if not self.heard:
            return {
                "spoken_lag_mean_s": round(self.long[0].arrived_lag_mean_s, 3),
                "heard_lag_mean_s": round(self.long[0].heard_lag_mean_s, 3),
                "missing_words": self.long[0].missing_at_borders + self.long[0].missing_elsewhere,
                "start_s": round(self.start_s, 2),
            }
        first = self.heard[0]
        scores = {one.direction: one.chrf for one in self.translated}
        return {
            "wer_en": round(first.wer, 4),
            "chrf_en_es": round(scores.get("en>es", 0.0), 2),
            "chrf_es_en": round(scores.get("es>en", 0.0), 2),
            "first_audio_p50_s": round(first.first_audio_p50_s, 3),
            "first_audio_p95_s": round(first.first_audio_p95_s, 3),
            "rtf": round(first.rtf, 4),
            "rss_mb": round(self.rss_mb, 1),
            "scheduler_p99_ms": round(first.scheduler_p99_ms, 1),
            "caption_lag_p50_s": round(first.caption_lag_p50_s, 3),
            "caption_lag_p95_s": round(first.caption_lag_p95_s, 3),
            "translated_lag_p50_s": round(first.translated_lag_p50_s, 3),
            "erasure": round(first.erasure, 3),
            "start_s": round(self.start_s, 2),
        }

    def objects(self) -> list[dict[str, object]]:
        """Return everything measured, one object each, the summary last."""
        measured: dict[str, Sequence[RecognitionResult | Translated | Long]] = {
            "heard": self.heard,
            "translated": self.translated,
            "long": self.long,
        }
        rows = [{"kind": kind, **asdict(row)} for kind, rows in measured.items() for row in rows]
        return [*rows, dict(self.summary())]


def recognition_of(
    name: str, joined: JoinedRecording, report: InterpretationReport, log: CaptionLog
) -> RecognitionResult:
    """Return the results of one joined recording, and of the captions that were shown."""
    values = report.latencies_ms()
    captions = log.figures()
    said_s = [lag_ms / 1000 for one in captions for lag_ms in one.stable_ms]
    translated_s = [lag_ms / 1000 for one in captions for lag_ms in one.translated_ms]
    words = sum(one.words for one in captions)
    spoken = [one for one in report.renditions if one.latency_ms is not None and one.pcm]
    first_s = [(one.latency_ms or 0.0) / 1000 for one in spoken]
    text = " ".join(said.text_asr for said in report.utterances)
    own = [float(own_share_ms(one.timeline)) for one in report.renditions if one.timeline]
    coverage = report.coverage
    return RecognitionResult(
        name=name,
        utterances=len(spoken),
        speech_s=round(joined.speech_ms / 1000, 2),
        wer=word_error_rate([(joined.text, text)]),
        first_audio_p50_s=quantile(first_s, 0.5),
        first_audio_p95_s=quantile(first_s, 0.95),
        asr_p50_ms=quantile(values["asr"], 0.5),
        asr_p95_ms=quantile(values["asr"], 0.95),
        mt_p50_ms=quantile(values["mt"], 0.5),
        tts_p50_ms=quantile(values["tts"], 0.5),
        scheduler_p50_ms=quantile(own, 0.5),
        scheduler_p99_ms=quantile(own, 0.99),
        rtf=_node_ms(report.renditions) / joined.speech_ms,
        admitted_ms=coverage.admitted_ms if coverage else 0,
        unaccounted_ms=_unaccounted_ms(report),
        failed=report.failures,
        caption_lag_p50_s=quantile(said_s, 0.5),
        caption_lag_p95_s=quantile(said_s, 0.95),
        translated_lag_p50_s=quantile(translated_s, 0.5),
        erasure=sum(one.erasure * one.words for one in captions) / max(1, words),
    )


def _node_ms(renditions: list[Rendition]) -> float:
    return sum(one.timings.total_ms or 0.0 for one in renditions if one.timings is not None)


def _unaccounted_ms(report: InterpretationReport) -> int:
    found = report.coverage
    if found is None:
        return int(report.audio_ms)
    known = found.delivered_ms + found.silent_ms + found.failed_ms + found.skipped_ms
    return found.admitted_ms - known
