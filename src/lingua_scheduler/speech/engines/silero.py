"""Silero (MIT): where there is speech, in steps of 32 ms. The default voice finder.

It looks at any rate, resampled to 16 kHz. With `enough_ms` it stops as soon as so much speech was
found, which is all that a gate wants to know: what it returns then is only the beginning.
The model in one file per step is enough; that for whole sequences does the same, thrice as fast.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from lingua_scheduler.errors import ConfigError
from lingua_scheduler.models import ModelNotInstalled, default_store
from lingua_scheduler.speech.engine import About, ModelMissing, Span
from lingua_scheduler.speech.plugins import take
from lingua_scheduler.speech.sound import HEARING_RATE, Samples, hearing

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lingua_scheduler.speech.engine import Sound, Watch

KNOWN: Final = {
    "dir": "",
    # From this probability on a step is speech; it ends below the threshold less `drop`.
    "threshold": "0.5",
    "drop": "0.15",
    # Speech shorter than this is none, silence shorter than this ends none.
    "speech_ms": "100",
    "silence_ms": "200",
    # How much around it belongs to it.
    "margin_ms": "60",
    # Stop once so much speech was found; 0: look at everything.
    "enough_ms": "0",
}
# A step, and how much of the one before the network looks back at.
STEP: Final = 512
LOOK_BACK: Final = 64
STEP_MS: Final = STEP * 1000 // HEARING_RATE
# So many steps go into the network at once: about a second.
BATCH: Final = 32
BY_SEQUENCE: Final = "silero_vad_sequence.onnx"
BY_STEP: Final = "silero_vad.onnx"

Chances = npt.NDArray[np.float32]


class Rules(NamedTuple):
    """When a step is speech, and which speech counts."""

    threshold: float
    drop: float
    speech_ms: int
    silence_ms: int
    margin_ms: int
    enough_ms: int


class Silero:
    """One loaded model."""

    def __init__(self, network: _Network, rules: Rules) -> None:
        self._network = network
        self._rules = rules

    def about(self) -> About:
        """Tell what it is; it knows any language."""
        return About(
            engine="silero",
            version=f"onnxruntime {ort.__version__}",
            model="silero-vad-6",
            licence="MIT",
        )

    def close(self) -> None:
        """Let go of nothing: the model goes with the process."""

    def spans(self, sound: Sound, watch: Watch) -> tuple[Span, ...]:
        """Tell where there is speech; after `enough_ms` of it, if set, the rest is taken for it."""
        length_ms = int(sound.duration_ms)
        finder = _Finder(self._rules)
        for chances in self._network.chances(hearing(sound)):
            watch.check()
            finder.look(chances)
            if finder.has_enough:
                *before, last = finder.spans(length_ms)
                # What was not looked at may be speech as well: nobody must cut it off.
                return (*before, Span(last.start_ms, length_ms))
        return finder.spans(length_ms)


class _Finder:
    """Chances of steps, in order -> spans."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._at_ms = 0
        # Where the present speech began and was last heard; -1: there is none.
        self._start_ms = -1
        self._end_ms = 0
        self._found: list[Span] = []
        self._found_ms = 0

    @property
    def has_enough(self) -> bool:
        going_on = self._end_ms - self._start_ms if self._start_ms >= 0 else 0
        counted = going_on if going_on >= self._rules.speech_ms else 0
        return 0 < self._rules.enough_ms <= self._found_ms + counted

    def look(self, chances: Chances) -> None:
        for chance in chances.tolist():
            self._step(chance)

    def _step(self, chance: float) -> None:
        now_ms, self._at_ms = self._at_ms, self._at_ms + STEP_MS
        is_in = self._start_ms >= 0
        if chance >= self._rules.threshold - (self._rules.drop if is_in else 0):
            self._start_ms = self._start_ms if is_in else now_ms
            self._end_ms = self._at_ms
        elif is_in and self._at_ms - self._end_ms >= self._rules.silence_ms:
            self._close()

    def _close(self) -> None:
        spoken_ms = self._end_ms - self._start_ms
        if self._start_ms >= 0 and spoken_ms >= self._rules.speech_ms:
            self._found.append(Span(self._start_ms, self._end_ms))
            self._found_ms += spoken_ms
        self._start_ms = -1

    def spans(self, length_ms: int) -> tuple[Span, ...]:
        """Return what was found, with margins that neither overlap nor leave the sound."""
        self._close()
        margin = self._rules.margin_ms
        joined: list[Span] = []
        for start, end in self._found:
            begin, last = max(0, start - margin), min(length_ms, end + margin)
            if joined and begin <= joined[-1].end_ms:
                begin = joined.pop().start_ms
            joined.append(Span(begin, last))
        return tuple(joined)


class _Network(Protocol):
    def chances(self, samples: Samples) -> Iterator[Chances]:
        """Yield the chance of speech of each step, in batches."""


class _BySequence:
    """A second at a time."""

    def __init__(self, session: Any) -> None:
        self._session = session

    def chances(self, samples: Samples) -> Iterator[Chances]:
        hidden = cell = np.zeros((1, 1, 128), np.float32)
        for steps in _batches(samples):
            fed = {"input": steps, "h": hidden, "c": cell}
            found, hidden, cell = self._session.run(None, fed)
            yield found


class _ByStep:
    """One step at a time."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._rate = np.array(HEARING_RATE, np.int64)

    def chances(self, samples: Samples) -> Iterator[Chances]:
        state = np.zeros((2, 1, 128), np.float32)
        for steps in _batches(samples):
            found = np.empty(len(steps), np.float32)
            for at in range(len(steps)):
                fed = {"input": steps[at : at + 1], "state": state, "sr": self._rate}
                chance, state = self._session.run(None, fed)
                found[at] = chance[0, 0]
            yield found


def _batches(samples: Samples) -> Iterator[Samples]:
    """Yield (steps, `LOOK_BACK` + `STEP`); the last step is filled with silence."""
    count = -(-len(samples) // STEP)
    padded = np.zeros(LOOK_BACK + count * STEP, np.float32)
    padded[LOOK_BACK : LOOK_BACK + len(samples)] = samples
    if not count:
        return
    steps = np.lib.stride_tricks.sliding_window_view(padded, LOOK_BACK + STEP)[::STEP]
    for at in range(0, count, BATCH):
        yield np.ascontiguousarray(steps[at : at + BATCH])


def make(options: Mapping[str, str]) -> Silero:
    """Load the model; options are those of `KNOWN`."""
    chosen = take(options, KNOWN)
    try:
        rules = Rules(
            float(chosen["threshold"]),
            float(chosen["drop"]),
            *(int(chosen[key]) for key in ("speech_ms", "silence_ms", "margin_ms", "enough_ms")),
        )
    except ValueError as error:
        raise ConfigError("engines", f"silero: {error}") from error
    if not 0 < rules.threshold < 1 or min(rules) < 0:
        raise ConfigError("engines", "silero: threshold is between 0 and 1, nothing below 0")
    return Silero(_network(_directory(chosen["dir"])), rules)


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
