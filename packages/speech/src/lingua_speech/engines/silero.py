"""Silero (MIT): finds speech in steps of 32 ms. The default speech detector.

Sound of any rate is resampled to 16 kHz. With `enough_ms` it stops as soon as so much speech was
found, which is sufficient for a gate; the rest of the sound then counts as speech. The model for
single steps is enough; the model for whole sequences gives the same result three times as fast.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from lingua_speech.engine import About, ModelMissing, SpeechSpan
from lingua_speech.models import ModelNotInstalled, default_store
from lingua_speech.plugins import take
from lingua_speech.sound import HEARING_RATE, Samples, hearing
from lingua_wire.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lingua_speech.engine import Sound, Watch

KNOWN: Final = {
    "dir": "",
    # A step of at least this probability begins speech; speech ends below `threshold` - `drop`.
    "threshold": "0.5",
    "drop": "0.15",
    # Shorter speech is ignored, and shorter silence does not end speech.
    "speech_ms": "100",
    "silence_ms": "200",
    # How much is added before and after speech.
    "margin_ms": "60",
    # Stop after so much speech; 0: process the whole sound.
    "enough_ms": "0",
}
# Samples of a step, and samples of the step before it that the network gets as context.
STEP: Final = 512
CONTEXT: Final = 64
STEP_MS: Final = STEP * 1000 // HEARING_RATE
# Steps per call of the network: about a second.
BATCH: Final = 32
BY_SEQUENCE: Final = "silero_vad_sequence.onnx"
BY_STEP: Final = "silero_vad.onnx"

Probabilities = npt.NDArray[np.float32]


class SpeechThresholds(NamedTuple):
    """The thresholds that decide which steps are speech, and which speech counts."""

    threshold: float
    drop: float
    speech_ms: int
    silence_ms: int
    margin_ms: int
    enough_ms: int


class Silero:
    """The engine, with one loaded model."""

    def __init__(self, network: _Network, thresholds: SpeechThresholds) -> None:
        self._network = network
        self._thresholds = thresholds

    def about(self) -> About:
        """Return the description of the engine; it is independent of the language."""
        return About(
            engine="silero",
            version=f"onnxruntime {ort.__version__}",
            model="silero-vad-6",
            licence="MIT",
        )

    def close(self) -> None:
        """Do nothing: the model is freed with the process."""

    def spans(self, sound: Sound, watch: Watch) -> tuple[SpeechSpan, ...]:
        """Return the spans of speech; after `enough_ms`, if set, the rest counts as speech."""
        length_ms = int(sound.duration_ms)
        finder = _Finder(self._thresholds)
        for probabilities in self._network.probabilities(hearing(sound)):
            watch.check()
            finder.add(probabilities)
            if finder.has_enough:
                *before, last = finder.spans(length_ms)
                # The rest was not examined and may be speech, so it must not be cut off.
                return (*before, SpeechSpan(last.start_ms, length_ms))
        return finder.spans(length_ms)


class _Finder:
    """Turns the probabilities of steps, in order, into spans."""

    def __init__(self, thresholds: SpeechThresholds) -> None:
        self._thresholds = thresholds
        self._at_ms = 0
        # Where the current speech began and last occurred; -1: no current speech.
        self._start_ms = -1
        self._end_ms = 0
        self._found: list[SpeechSpan] = []
        self._found_ms = 0

    @property
    def has_enough(self) -> bool:
        going_on = self._end_ms - self._start_ms if self._start_ms >= 0 else 0
        counted = going_on if going_on >= self._thresholds.speech_ms else 0
        return 0 < self._thresholds.enough_ms <= self._found_ms + counted

    def add(self, probabilities: Probabilities) -> None:
        for probability in probabilities.tolist():
            self._step(probability)

    def _step(self, probability: float) -> None:
        now_ms, self._at_ms = self._at_ms, self._at_ms + STEP_MS
        is_in = self._start_ms >= 0
        if probability >= self._thresholds.threshold - (self._thresholds.drop if is_in else 0):
            self._start_ms = self._start_ms if is_in else now_ms
            self._end_ms = self._at_ms
        elif is_in and self._at_ms - self._end_ms >= self._thresholds.silence_ms:
            self._close()

    def _close(self) -> None:
        spoken_ms = self._end_ms - self._start_ms
        if self._start_ms >= 0 and spoken_ms >= self._thresholds.speech_ms:
            self._found.append(SpeechSpan(self._start_ms, self._end_ms))
            self._found_ms += spoken_ms
        self._start_ms = -1

    def spans(self, length_ms: int) -> tuple[SpeechSpan, ...]:
        """Return the spans with margins that neither overlap nor leave the sound."""
        self._close()
        margin = self._thresholds.margin_ms
        joined: list[SpeechSpan] = []
        for start, end in self._found:
            begin, last = max(0, start - margin), min(length_ms, end + margin)
            if joined and begin <= joined[-1].end_ms:
                begin = joined.pop().start_ms
            joined.append(SpeechSpan(begin, last))
        return tuple(joined)


class _Network(Protocol):
    def probabilities(self, samples: Samples) -> Iterator[Probabilities]:
        """Yield the probability of speech of each step, in batches."""


class _BySequence:
    """The model for sequences: one call per second of sound."""

    def __init__(self, session: Any) -> None:
        self._session = session

    def probabilities(self, samples: Samples) -> Iterator[Probabilities]:
        hidden = cell = np.zeros((1, 1, 128), np.float32)
        for steps in _batches(samples):
            fed = {"input": steps, "h": hidden, "c": cell}
            found, hidden, cell = self._session.run(None, fed)
            yield found


class _ByStep:
    """The model for single steps."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._rate = np.array(HEARING_RATE, np.int64)

    def probabilities(self, samples: Samples) -> Iterator[Probabilities]:
        state = np.zeros((2, 1, 128), np.float32)
        for steps in _batches(samples):
            found = np.empty(len(steps), np.float32)
            for at in range(len(steps)):
                fed = {"input": steps[at : at + 1], "state": state, "sr": self._rate}
                probability, state = self._session.run(None, fed)
                found[at] = probability[0, 0]
            yield found


def _batches(samples: Samples) -> Iterator[Samples]:
    """Yield arrays of (steps, `CONTEXT` + `STEP`); the last step is padded with silence."""
    count = -(-len(samples) // STEP)
    padded = np.zeros(CONTEXT + count * STEP, np.float32)
    padded[CONTEXT : CONTEXT + len(samples)] = samples
    if not count:
        return
    steps = np.lib.stride_tricks.sliding_window_view(padded, CONTEXT + STEP)[::STEP]
    for at in range(0, count, BATCH):
        yield np.ascontiguousarray(steps[at : at + BATCH])


def make(options: Mapping[str, str]) -> Silero:
    """Load the model; options are those of `KNOWN`."""
    chosen = take(options, KNOWN)
    try:
        thresholds = SpeechThresholds(
            float(chosen["threshold"]),
            float(chosen["drop"]),
            *(int(chosen[key]) for key in ("speech_ms", "silence_ms", "margin_ms", "enough_ms")),
        )
    except ValueError as error:
        raise ConfigError("engines", f"silero: {error}") from error
    if not 0 < thresholds.threshold < 1 or min(thresholds) < 0:
        raise ConfigError("engines", "silero: threshold must be between 0 and 1, no option below 0")
    return Silero(_network(_directory(chosen["dir"])), thresholds)


def _directory(named: str) -> Path:
    if named:
        return Path(named).expanduser()
    try:
        return default_store().path("silero-vad")
    except ModelNotInstalled as error:
        raise ModelMissing(str(error)) from error


def _network(directory: Path) -> _Network:
    path = next((p for name in (BY_SEQUENCE, BY_STEP) if (p := directory / name).is_file()), None)
    if path is None:
        raise ModelMissing(f"{directory} has no {BY_STEP}: lingua models install silero-vad")
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return _BySequence(session) if path.name == BY_SEQUENCE else _ByStep(session)
