"""Chooses the voice detector of a session: the energy detector, WebRTC's, or none.

The energy detector follows levels and costs some 3 µs per 100 ms of audio. WebRTC's (the extra
`vad`) models speech, is robust in noise and costs some 70 µs. It supports 8, 16, 32 and 48 kHz; a
session with another sample rate gets the energy detector.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lingua_cli.extras import install_command
from lingua_scheduler.session.voice import EnergyDetector
from lingua_wire.errors import ConfigError

if TYPE_CHECKING:
    from lingua_scheduler.session.voice import VoiceDetector

WEBRTC_RATES = frozenset({8000, 16_000, 32_000, 48_000})
WINDOW_MS = 30
# From 0 (reports voice easily) to 3 (only if it is certain).
AGGRESSIVENESS = 2
# The share of a chunk's windows that must be voice.
VOICED_SHARE = 0.3


class WebrtcDetector:
    """The detector of WebRTC: Gaussian models over six bands."""

    __slots__ = ("_model", "_rate", "_rest", "_window_bytes")

    def __init__(self, sample_rate: int) -> None:
        self._model = _webrtcvad().Vad(AGGRESSIVENESS)
        self._rate = sample_rate
        self._window_bytes = sample_rate * WINDOW_MS // 1000 * 2
        # Bytes that do not fill a window yet.
        self._rest = b""

    def is_voice(self, pcm: bytes) -> bool:
        """Tell whether a chunk contains speech; a chunk that fills no window counts as speech."""
        data = self._rest + pcm if self._rest else pcm
        size, voiced, windows = self._window_bytes, 0, 0
        for at in range(0, len(data) - size + 1, size):
            windows += 1
            voiced += self._model.is_speech(data[at : at + size], self._rate)
        self._rest = data[windows * size :]
        return windows == 0 or voiced >= VOICED_SHARE * windows


def detector_for(kind: str, sample_rate: int) -> VoiceDetector | None:
    """Return a new detector of the configured kind; None if detection is off."""
    if kind == "off":
        return None
    if kind == "webrtc" and sample_rate in WEBRTC_RATES:
        return WebrtcDetector(sample_rate)
    return EnergyDetector(sample_rate)


def check_detector(kind: str) -> None:
    """Raise `ConfigError` if the configured detector is not installed."""
    if kind == "webrtc":
        _webrtcvad()


def _webrtcvad() -> Any:
    try:
        import webrtcvad  # noqa: PLC0415 an extra
    except ImportError as error:
        problem = f"`webrtc` needs an extra; run: {install_command('lingua-scheduler', 'vad')}"
        raise ConfigError("segmentation.voice_detector", problem) from error
    return webrtcvad
