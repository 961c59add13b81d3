"""The recordings of the benchmark, from the model store, with their texts.

LibriVox English at 16 kHz and studio prompts of Asterisk at 8 kHz, whose keys are the same in every
language. Several recordings are joined with silence between them.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lingua_scheduler.session.audio import pcm16_level
from lingua_speech.prompt_corpus import parallel_prompts, transcripts
from lingua_wire.recording import Recording, read

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from lingua_speech.models import ModelStore
    from lingua_speech.prompt_corpus import Prompt

LIBRIVOX: Final = "recordings-librivox-en"
PROMPTS: Final = "recordings-prompts-{language}"
WINDOW_MS: Final = 20
# Anything quieter is not part of a prompt.
SILENCE_LEVEL: Final = 0.006
# Clearly longer than the pause that ends an utterance.
PAUSE_MS: Final = 1000


@dataclass(frozen=True, slots=True)
class LabelledRecording:
    """A recording and its text."""

    key: str
    text: str
    recording: Recording

    @property
    def duration_ms(self) -> float:
        """Return how long it lasts."""
        return len(self.recording.pcm) * 500 / self.recording.sample_rate


@dataclass(frozen=True, slots=True)
class JoinedRecording:
    """Several recordings joined to one, with their text."""

    recording: Recording
    text: str
    # The part of it that is speech.
    speech_ms: float


def librivox(store: ModelStore) -> list[LabelledRecording]:
    """Return the five utterances of a reader of Jane Austen."""
    return _all_of(store.path(LIBRIVOX), None)


def prompts(store: ModelStore, language: str, keys: Iterable[str]) -> list[LabelledRecording]:
    """Return studio prompts in a language, without the silence around them."""
    found = _all_of(store.path(PROMPTS.format(language=language)), set(keys))
    return [LabelledRecording(one.key, one.text, trimmed(one.recording)) for one in found]


def parallel(store: ModelStore, first: str, second: str) -> list[Prompt]:
    """Return the sentences on which translation is measured."""
    paths = (store.path(PROMPTS.format(language=code)) for code in (first, second))
    one, other = (path / "transcripts.tsv" for path in paths)
    return parallel_prompts(one, other)


def join_recordings(
    parts: Sequence[LabelledRecording], pause_ms: int = PAUSE_MS
) -> JoinedRecording:
    """Join recordings, with silence before, between and after them."""
    rate = parts[0].recording.sample_rate
    assert all(part.recording.sample_rate == rate for part in parts)
    pause = bytes(2 * (rate * pause_ms // 1000))
    pcm = pause + b"".join(part.recording.pcm + pause for part in parts)
    text = " ".join(part.text for part in parts)
    return JoinedRecording(Recording(pcm, rate), text, sum(part.duration_ms for part in parts))


def trimmed(recording: Recording) -> Recording:
    """Return a recording without silence at its ends."""
    rate, pcm = recording.sample_rate, recording.pcm
    size = 2 * (rate * WINDOW_MS // 1000)
    loud = [
        at for at in range(0, len(pcm), size) if pcm16_level(pcm[at : at + size]) > SILENCE_LEVEL
    ]
    if not loud:
        return recording
    return Recording(pcm[max(0, loud[0] - size) : loud[-1] + 2 * size], rate)


def softened(recording: Recording, fade_ms: int = 10) -> Recording:
    """Return a recording that begins and ends without a click."""
    samples = array("h", recording.pcm)
    count = min(len(samples) // 2, recording.sample_rate * fade_ms // 1000)
    for at in range(count):
        samples[at] = samples[at] * at // count
        samples[-1 - at] = samples[-1 - at] * at // count
    return Recording(samples.tobytes(), recording.sample_rate)


def _all_of(folder: Path, keys: set[str] | None) -> list[LabelledRecording]:
    said = transcripts(folder / "transcripts.tsv")
    wanted = [key for key in sorted(said) if keys is None or key in keys]
    files = [(key, folder / "wav" / f"{key}.wav") for key in wanted]
    return [LabelledRecording(key, said[key], read(file)) for key, file in files if file.is_file()]
