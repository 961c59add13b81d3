"""The audio devices of this machine, if there is a library for them."""

from __future__ import annotations

import importlib
from typing import Any, Literal


def sound_library(way: Literal["input", "output"], sample_rate: int) -> Any:
    """Return `sounddevice` if it is installed and finds a device for this; else None."""
    try:
        library: Any = importlib.import_module("sounddevice")
    except (ImportError, OSError):  # Not installed, or without PortAudio.
        return None
    check = library.check_input_settings if way == "input" else library.check_output_settings
    try:
        check(channels=1, dtype="int16", samplerate=sample_rate)
    except (library.PortAudioError, ValueError):
        return None
    return library
