"""Audio that comes as a file: Ogg (Opus), WebM, FLAC, WAV. Every node has it.

What says what it is (`containers.py`) is decoded beside the recogniser and not in the node's own
process, because decoders are given what strangers send: one that crashes, hangs or takes all memory
costs a worker. WAV needs nothing, the others soundfile or ffmpeg.
"""

from __future__ import annotations

import importlib
import shutil
from typing import TYPE_CHECKING, Final

from lingua_scheduler import __version__, recording
from lingua_scheduler.extras import install_command
from lingua_scheduler.speech.containers import format_of
from lingua_scheduler.speech.engine import About, EngineError, ModelMissing, Sound
from lingua_scheduler.speech.plugins import take

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lingua_scheduler.speech.engine import Watch

# A small file may decode into hours; what lasts longer than this is not recognised in time anyway.
LONGEST_S: Final = 300
LIMITS: Final = recording.Limits(duration_s_max=LONGEST_S)
# Of the samples, whatever their rate: they go to the node, and back to the recogniser.
PCM_BYTES_MAX: Final = 32 << 20


def make(options: Mapping[str, str]) -> Files:
    """Make it; there is nothing to load before it is needed."""
    take(options, {})
    return Files()


class Files:
    """Reads files with whatever decoders are here."""

    def about(self) -> About:
        """Tell what it is."""
        return About(engine="files", version=__version__)

    def read(self, data: bytes, watch: Watch) -> Sound:
        """Return the sound in a file."""
        watch.check()
        kind = format_of(data)
        if missing := _missing(kind):
            raise ModelMissing(f"{kind} cannot be decoded here: install {missing}")
        try:
            found = recording.read(data, LIMITS)
        except recording.UnreadableRecording as error:
            raise EngineError("UNSUPPORTED_FEATURE", f"the audio ({kind}): {error}") from error
        if len(found.pcm) > PCM_BYTES_MAX:
            longest_s = PCM_BYTES_MAX // 2 // found.sample_rate
            raise EngineError("UNSUPPORTED_FEATURE", f"the audio is longer than {longest_s} s")
        return Sound(found.pcm, found.sample_rate)

    def close(self) -> None:
        """Nothing is held."""


def _missing(kind: str) -> str:
    """Return what must be installed to read such a file; nothing if it can be read."""
    if kind == "wav" or shutil.which("ffmpeg"):
        return ""
    if kind == "webm":
        return "ffmpeg"
    return "" if _has_soundfile() else f"soundfile ({install_command('speech')}) or ffmpeg"


def _has_soundfile() -> bool:
    try:
        importlib.import_module("soundfile")
    except (ImportError, OSError):
        # OSError: the package is here, the library that it is made for is not.
        return False
    return True
