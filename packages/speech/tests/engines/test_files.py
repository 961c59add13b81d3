"""Audio files: decoded, bounded, refused with a reason."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile

from engines.watches import StopAfter
from lingua_speech.engine import EngineError, ModelMissing, Stopped, Unwatched
from lingua_speech.engines import files
from lingua_wire.recording import write_wav

pytestmark = pytest.mark.unit

WEBM = b"\x1a\x45\xdf\xa3" + bytes(60)


def tone(seconds: float, rate: int = 16_000) -> np.ndarray:
    return (8000 * np.sin(2 * np.pi * 440 * np.arange(int(seconds * rate)) / rate)).astype(np.int16)


def packed(samples: np.ndarray, kind: str, coding: str, rate: int = 16_000) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format=kind, subtype=coding)
    return file.getvalue()


@pytest.mark.parametrize("rate", [8_000, 16_000, 48_000])
def test_an_ogg_of_opus_is_decoded(rate: int) -> None:
    sound = files.make({}).read(packed(tone(1.5, rate), "OGG", "OPUS", rate), Unwatched())
    assert sound.duration_ms == pytest.approx(1500, abs=30)
    heard = np.frombuffer(sound.pcm, "<i2").astype(float)
    spectrum = np.abs(np.fft.rfft(heard))
    assert spectrum.argmax() * sound.sample_rate / len(heard) == pytest.approx(440, abs=5)


def test_stereo_and_other_lossless_files_become_one_channel() -> None:
    both = np.stack([tone(0.5), np.zeros(8000, np.int16)], axis=1)
    sound = files.make({}).read(packed(both, "FLAC", "PCM_16"), Unwatched())
    assert (sound.sample_rate, len(sound.pcm)) == (16_000, 16_000)
    assert np.abs(np.frombuffer(sound.pcm, "<i2") - tone(0.5) // 2).max() <= 1


def test_of_a_stream_that_is_cut_off_what_is_there_is_read() -> None:
    opus = packed(tone(4), "OGG", "OPUS")
    sound = files.make({}).read(opus[: len(opus) * 2 // 3], Unwatched())
    assert 1000 < sound.duration_ms < 3000


def test_a_damaged_file_is_refused_for_good() -> None:
    opus = packed(tone(0.5), "OGG", "OPUS")
    for data in (opus[:60], opus[:28] + bytes(500), b"fLaC" + bytes(100)):
        with pytest.raises(EngineError) as refused:
            files.make({}).read(data, Unwatched())
        assert refused.value.code == "UNSUPPORTED_FEATURE"


def test_a_small_file_that_lasts_long_is_refused_without_being_decoded_whole() -> None:
    silence = packed(np.zeros(16_000 * (files.LONGEST_S + 60), np.int16), "FLAC", "PCM_16")
    assert len(silence) < 1 << 20
    with pytest.raises(EngineError, match="longer than 300 s"):
        files.make({}).read(silence, Unwatched())
    dense = packed(np.zeros(192_000 * 100, np.int16), "FLAC", "PCM_16", 192_000)
    with pytest.raises(EngineError, match="longer than 87 s"):
        files.make({}).read(dense, Unwatched())


def test_without_a_decoder_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ModelMissing, match="webm cannot be decoded here: install ffmpeg"):
        files.make({}).read(WEBM, Unwatched())
    opus = packed(tone(0.1), "OGG", "OPUS")
    monkeypatch.setitem(sys.modules, "soundfile", None)
    with pytest.raises(ModelMissing, match=r"install soundfile .*\[engines\].* or ffmpeg"):
        files.make({}).read(opus, Unwatched())
    # A WAV file needs neither.
    wav = io.BytesIO()
    write_wav(wav, tone(0.1).tobytes(), 16_000)
    assert files.make({}).read(wav.getvalue(), Unwatched()).duration_ms == 100


def test_nothing_is_decoded_that_nobody_wants() -> None:
    with pytest.raises(Stopped):
        files.make({}).read(packed(tone(0.1), "OGG", "OPUS"), StopAfter(0))
