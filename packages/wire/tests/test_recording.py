"""Recordings: every kind of WAV without a library, other formats, limits, damaged files."""

from __future__ import annotations

import io
import math
import os
import struct
import sys
import tracemalloc
import wave
from array import array
from contextlib import closing
from pathlib import Path
from threading import Thread

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lingua_wire.recording import (
    Limits,
    RecordingTooLarge,
    UnreadableRecording,
    WavStream,
    WavWriter,
    open_recording,
    read,
    write_wav,
)

pytestmark = pytest.mark.unit

RATE = 16_000
TONE = [round(12_000 * math.sin(at / 7)) for at in range(RATE // 4)]
PCM = array("h", TONE).tobytes()


def wav(coding: int, bits: int, channels: int, data: bytes, *, size: int | None = None) -> bytes:
    """Return a WAV file with any header."""
    frame = channels * bits // 8
    head = struct.pack("<HHIIHH", coding, channels, RATE, RATE * frame, frame, bits)
    return _riff(head, data, len(data) if size is None else size)


def extensible(coding: int, bits: int, channels: int, data: bytes) -> bytes:
    frame = channels * bits // 8
    head = struct.pack("<HHIIHH", 0xFFFE, channels, RATE, RATE * frame, frame, bits)
    guid = struct.pack("<H", coding) + bytes.fromhex("000000001000800000aa00389b71")
    return _riff(head + struct.pack("<HHI", 22, bits, 0) + guid, data, len(data))


def _riff(head: bytes, data: bytes, size: int) -> bytes:
    # A chunk of odd length before the samples: it is padded.
    other = b"LIST" + struct.pack("<I", 3) + b"abc\0"
    body = b"WAVEfmt " + struct.pack("<I", len(head)) + head + other
    body += b"data" + struct.pack("<I", size) + data
    return b"RIFF" + struct.pack("<I", len(body) & 0xFFFFFFFF) + body


def worst_difference(pcm: bytes, expected: list[int]) -> int:
    samples = array("h", pcm)
    assert len(samples) == len(expected)
    return max(abs(one - other) for one, other in zip(samples, expected, strict=True))


CODED = {
    "8 bits": (1, 8, bytes((value + 32768) >> 8 for value in TONE), 256),
    "16 bits": (1, 16, PCM, 0),
    "24 bits": (
        1,
        24,
        b"".join((value << 8).to_bytes(3, "little", signed=True) for value in TONE),
        0,
    ),
    "32 bits": (1, 32, array("i", [value << 16 for value in TONE]).tobytes(), 0),
    "float": (3, 32, array("f", [value / 32768 for value in TONE]).tobytes(), 1),
    "double": (3, 64, array("d", [value / 32768 for value in TONE]).tobytes(), 1),
}


@pytest.mark.parametrize("kind", CODED)
@pytest.mark.parametrize("make", [wav, extensible])
def test_every_kind_of_samples_is_read(kind: str, make: object) -> None:
    coding, bits, data, error = CODED[kind]
    assert callable(make)
    found = read(make(coding, bits, 1, data))
    assert (found.sample_rate, found.duration_ms) == (RATE, 250)
    assert worst_difference(found.pcm, TONE) <= error


@pytest.mark.parametrize("channels", [2, 3, 6])
def test_channels_are_mixed_to_their_mean(channels: int) -> None:
    frames = array("h", [value // (1 + channel) for value in TONE for channel in range(channels)])
    expected = [sum(value // (1 + c) for c in range(channels)) // channels for value in TONE]
    found = read(wav(1, 16, channels, frames.tobytes()))
    assert worst_difference(found.pcm, expected) == 0


def test_floats_that_are_too_loud_or_no_numbers_are_cut_and_silent() -> None:
    data = array("f", [2.0, -2.0, math.inf, -math.inf, math.nan]).tobytes()
    assert array("h", read(wav(3, 32, 1, data)).pcm).tolist() == [32767, -32768, 32767, -32768, 0]


def test_what_is_written_is_read_and_known_to_the_standard_library(tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    write_wav(path, PCM, 22_050)
    with wave.open(str(path)) as file:
        assert (file.getnchannels(), file.getsampwidth(), file.getframerate()) == (1, 2, 22_050)
    for source in (path, path.read_bytes(), io.BytesIO(path.read_bytes())):
        found = read(source)
        assert (found.pcm, found.sample_rate) == (PCM, 22_050)


@pytest.mark.parametrize(
    ("kind", "subtype", "error"),
    [("FLAC", "PCM_16", 0), ("AIFF", "PCM_16", 0), ("WAV", "ULAW", 800), ("OGG", "VORBIS", 3000)],
)
def test_other_formats_are_read_by_a_library(kind: str, subtype: str | None, error: int) -> None:
    import numpy as np  # noqa: PLC0415 as the library wants it
    import soundfile  # noqa: PLC0415

    file = io.BytesIO()
    both = np.array([TONE, TONE], dtype=np.int16).T
    soundfile.write(file, both, RATE, format=kind, subtype=subtype)
    found = read(file.getvalue())
    assert found.sample_rate == RATE
    samples = array("h", found.pcm)[500:3500]
    assert max(abs(one - other) for one, other in zip(samples, TONE[500:3500], strict=True)) <= (
        error
    )


def test_an_mp3_is_about_as_long_and_as_loud_as_what_it_was_made_of() -> None:
    import numpy as np  # noqa: PLC0415
    import soundfile  # noqa: PLC0415

    file = io.BytesIO()
    soundfile.write(file, np.array(TONE * 8, dtype=np.int16), RATE, format="MP3")
    found = read(file.getvalue())
    assert abs(found.duration_ms - 2000) < 150
    assert math.sqrt(sum(v * v for v in array("h", found.pcm)) / (8 * len(TONE))) == pytest.approx(
        12_000 / math.sqrt(2), rel=0.1
    )


def test_without_a_library_another_program_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sound.wav").write_bytes(wav(1, 16, 1, PCM, size=0xFFFFFFFF))
    program = tmp_path / "ffmpeg"
    program.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/words\ncat {tmp_path}/sound.wav\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setitem(sys.modules, "soundfile", None)
    assert read(b"something else").pcm == PCM
    words = (tmp_path / "words").read_text()
    assert "-protocol_whitelist file" in words
    assert "hls" not in words


def test_a_program_that_cannot_read_it_is_quoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "ffmpeg"
    program.write_text("#!/bin/sh\necho 'Invalid data found' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(UnreadableRecording, match="Invalid data found"):
        read(b"something else")


def test_where_nothing_can_read_it_the_message_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "soundfile", None)
    with pytest.raises(UnreadableRecording, match="soundfile, or ffmpeg"):
        read(b"something else")


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "empty"),
        (wav(1, 16, 1, PCM)[:20], "damaged head"),
        (wav(1, 16, 1, PCM)[:30], "damaged head"),
        (wav(1, 16, 1, PCM)[:36], "without any sound"),
        (wav(1, 16, 1, PCM)[:-100], r"cut off: 7900 of 8000 bytes"),
        (wav(1, 16, 0, PCM), "0 channels"),
        (wav(99, 12, 1, PCM), "no format that can be read"),
    ],
)
def test_damage_is_reported(data: bytes, problem: str) -> None:
    with pytest.raises(UnreadableRecording, match=problem):
        read(data)


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UnreadableRecording, match="No such file"):
        read(tmp_path / "none.wav")
    with pytest.raises(UnreadableRecording, match="directory"):
        read(tmp_path)


def test_a_file_may_be_neither_too_large_nor_too_long() -> None:
    whole = wav(1, 16, 1, PCM)
    assert read(whole, Limits(len(whole), 0.25)).duration_ms == 250
    with pytest.raises(RecordingTooLarge, match="larger"):
        read(whole, Limits(bytes_max=len(whole) - 1))
    with pytest.raises(RecordingTooLarge, match="longer"):
        read(whole, Limits(duration_s_max=0.2))
    with pytest.raises(RecordingTooLarge, match="longer"):
        read(wav(1, 16, 1, PCM, size=0xFFFFFFFF), Limits(duration_s_max=0.2))


def test_a_compressed_file_may_not_become_too_long() -> None:
    import soundfile  # noqa: PLC0415

    file = io.BytesIO()
    soundfile.write(file, [0.0] * RATE * 20, RATE, format="FLAC")
    with pytest.raises(RecordingTooLarge, match="longer"):
        read(file.getvalue(), Limits(duration_s_max=10))


def test_a_pipe_is_read_as_it_comes_though_its_length_is_not_known() -> None:
    read_end, write_end = os.pipe()
    data = wav(1, 16, 2, array("h", [v for v in TONE for _ in range(2)]).tobytes(), size=0)

    def trickle() -> None:
        with os.fdopen(write_end, "wb", buffering=0) as file:
            file.writelines(data[at : at + 777] for at in range(0, len(data), 777))

    writer = Thread(target=trickle)
    writer.start()
    with os.fdopen(read_end, "rb", buffering=0) as source:
        stream = WavStream(source)
        pieces = []
        while piece := stream.read_frames(800):
            pieces.append(piece)
    writer.join()
    assert {len(piece) for piece in pieces} == {1600}
    assert b"".join(pieces) == PCM


@settings(max_examples=150)
@given(st.binary(max_size=200), st.integers(0, 60), st.integers(0, 255))
def test_whatever_the_bytes_are_it_is_a_recording_or_our_error(
    noise: bytes, place: int, value: int
) -> None:
    damaged = bytearray(wav(1, 16, 1, PCM[:400]))
    damaged[place] = value
    for data in (noise, b"RIFF" + noise, bytes(damaged), bytes(damaged) + noise):
        try:
            assert len(read(data, Limits(1 << 20, 10)).pcm) % 2 == 0
        except UnreadableRecording:
            continue


@pytest.mark.parametrize("size", [0, 0x7FFFF000, 0x80000000, 0xFFFFFFDB, 0xFFFFFFFF])
def test_a_size_that_only_says_that_it_is_not_known_is_not_believed(size: int) -> None:
    assert read(wav(1, 16, 1, PCM, size=size)).pcm == PCM


def test_a_long_file_is_not_taken_into_memory(tmp_path: Path) -> None:
    path = tmp_path / "long.wav"
    head = wav(1, 16, 1, b"", size=200 << 20)
    with path.open("wb") as file:
        file.write(head)
        file.truncate(len(head) + (200 << 20))
    tracemalloc.start()
    try:
        with closing(open_recording(path)) as stream:
            taken = [len(stream.read_frames(100_000)) for _ in range(100)]
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
    assert set(taken) == {200_000}


@pytest.mark.parametrize("kind", ["WAV", "FLAC", "ffmpeg"])
def test_what_is_read_piece_by_piece_is_what_is_read_at_once(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import numpy as np  # noqa: PLC0415
    import soundfile  # noqa: PLC0415

    path = tmp_path / "talk"
    soundfile.write(
        path, np.array([TONE, TONE], dtype=np.int16).T, RATE, format=kind.replace("ffmpeg", "WAV")
    )
    if kind == "ffmpeg":
        (tmp_path / "ffmpeg").write_text(f"#!/bin/sh\ncat {path}\n")
        (tmp_path / "ffmpeg").chmod(0o755)
        path = tmp_path / "other"
        path.write_bytes(b"something else")
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with closing(open_recording(path)) as stream:
        pieces = [piece for _ in range(60) if (piece := stream.read_frames(77))]
        assert stream.read_frames(77) == b""
    assert b"".join(pieces) == PCM == read(path).pcm
    assert {len(piece) for piece in pieces[:-1]} == {2 * 77}


def test_a_program_that_gives_nothing_is_not_waited_for_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ffmpeg").write_text("#!/bin/sh\nexec sleep 600\n")
    (tmp_path / "ffmpeg").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr("lingua_wire.recording.FFMPEG_S", 0.1)
    with pytest.raises(UnreadableRecording, match="gave nothing"):
        read(b"something else")


def test_a_disk_that_breaks_is_our_error(tmp_path: Path) -> None:
    class Broken(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            raise OSError(5, "Input/output error")

    with pytest.raises(UnreadableRecording, match="Input/output error"):
        WavStream(Broken())


def test_a_wav_file_that_grows_is_whole_after_each_piece_and_not_larger_than_it_can_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.wav"
    with closing(WavWriter(path, RATE)) as file:
        for number in (1, 2):
            file.write(PCM)
            assert read(path).pcm == number * PCM
        monkeypatch.setattr("lingua_wire.recording.WAV_BYTES_MAX", 3 * len(PCM) - 1)
        with pytest.raises(OSError, match="too large"):
            file.write(PCM)
    assert read(path).pcm == 2 * PCM
