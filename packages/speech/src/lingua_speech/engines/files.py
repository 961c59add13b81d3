"""Decodes audio files: Ogg (Opus), WebM, FLAC, WAV. Every node has this engine.

A file whose format is known (`containers.py`) is decoded in a worker process and not in the node's
own, because decoders get data from untrusted clients: one that crashes, hangs or uses all memory
costs only a worker. WAV needs no decoder, the other formats need soundfile or ffmpeg.
"""

from __future__ import annotations

import importlib
import shutil
from typing import TYPE_CHECKING, Final

from lingua_cli.extras import install_command
from lingua_speech.containers import format_of
from lingua_speech.engine import About, EngineError, ModelMissing, Sound
from lingua_speech.plugins import take
from lingua_wire import __version__, recording

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lingua_speech.engine import Watch

# A small file may decode into hours of audio; longer audio is not recognised in time anyway.
LONGEST_S: Final = 300
LIMITS: Final = recording.Limits(duration_s_max=LONGEST_S)
# The limit of the samples at any rate: they are sent to the node, and back to the recogniser.
PCM_BYTES_MAX: Final = 32 << 20


def make(options: Mapping[str, str]) -> FileDecoder:
    """Make the engine; decoders are loaded when they are needed."""
    take(options, {})
    return FileDecoder()


class FileDecoder:
    """Decodes files with the decoders that are installed."""

    def about(self) -> About:
        """Return the description of the engine."""
        return About(engine="files", version=__version__)

    def read(self, data: bytes, watch: Watch) -> Sound:
        """Return the sound of a file."""
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
        """Do nothing: no resource is held."""


def _missing(kind: str) -> str:
    """Return what must be installed to read such a file; empty if it can be read."""
    if kind == "wav" or shutil.which("ffmpeg"):
        return ""
    if kind == "webm":
        return "ffmpeg"
    return (
        ""
        if _has_soundfile()
        else f"soundfile ({install_command('lingua-speech', 'engines')}) or ffmpeg"
    )


def _has_soundfile() -> bool:
    try:
        importlib.import_module("soundfile")
    except (ImportError, OSError):
        # OSError: the package is installed, but its shared library is missing.
        return False
    return True
