"""Recordings: any audio file as 16-bit mono PCM, and PCM as a WAV file.

WAV (8 to 32 bits, float, any channels) is read here, without any library; other formats by
`soundfile` if it is installed, else by `ffmpeg` if it is on the PATH. How much is read is bounded,
in bytes and in seconds, whatever a file claims. A file that cannot be read raises
`UnreadableRecording`, never anything else. It does not resample and does not play.
"""

from __future__ import annotations

import importlib
import io
import math
import shutil
import struct
import subprocess
import sys
import tempfile
import wave
from array import array
from contextlib import closing
from dataclasses import dataclass
from itertools import repeat
from operator import add, floordiv
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from lingua_scheduler.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SAMPLE_BYTES: Final = 2
RATE_MIN, RATE_MAX = 8000, 192_000
CHANNELS_MAX: Final = 32
# What is read from a file at a time.
BLOCK_BYTES: Final = 1 << 20
INSTALL_HINT: Final = "install the Python package soundfile, or ffmpeg"
FFMPEG_S: Final = 300.0
# Containers of sound; not playlists, which would make ffmpeg open other files and addresses.
FFMPEG_FORMATS: Final = (
    "aac,ac3,adts,aiff,amr,ape,asf,au,avi,caf,dsf,flac,flv,matroska,mov,mp3,mpeg,mpegts,ogg,tta,"
    "voc,w64,wav,webm,wv"
)
# A WAV file that was written to a pipe has size 0 or one from here on, as nobody knew it: ffmpeg
# writes 0xFFFFFFFF, arecord 0x80000000, sox 0x7FFFF000.
UNKNOWN_FROM: Final = 0x7FFFF000
# What is kept of a WAV file's description of its samples.
HEAD_BYTES_MAX: Final = 64
PCM, FLOAT, EXTENSIBLE = 1, 3, 0xFFFE


class UnreadableRecording(InvalidInput):
    """The audio cannot be read: damaged, of an unknown format, or nothing here can decode it."""


class RecordingTooLarge(UnreadableRecording):
    """The audio is larger or longer than is accepted."""


@dataclass(frozen=True, slots=True)
class Recording:
    """Speech as it goes over the wire: little-endian 16-bit samples of one channel."""

    pcm: bytes
    sample_rate: int

    @property
    def duration_ms(self) -> int:
        """Return how long it is."""
        return len(self.pcm) * 1000 // (SAMPLE_BYTES * self.sample_rate)


@dataclass(frozen=True, slots=True)
class Limits:
    """How much is read at most."""

    # Of the file as it is.
    bytes_max: int = 1 << 30
    # Of the sound in it: a small file may claim, or decode into, days.
    duration_s_max: float = 4 * 3600.0


def read(source: bytes | Path | BinaryIO, limits: Limits | None = None) -> Recording:
    """Return the whole audio of a file."""
    limits = limits or Limits()
    data = _bytes_of(source, limits)
    if not data:
        raise UnreadableRecording("the recording is empty")
    try:
        with closing(WavStream(io.BytesIO(data), limits)) as wav:
            return Recording(b"".join(wav), wav.sample_rate)
    except UnknownFormat as unknown:
        return _read_otherwise(data, limits, unknown)


def write_wav(path: Path | BinaryIO, pcm: bytes, sample_rate: int) -> None:
    """Write 16-bit mono samples as a WAV file."""
    target = path if not isinstance(path, Path) else str(path)
    with wave.open(target, "wb") as wav:
        wav.setnchannels(1)
        wav.setsampwidth(SAMPLE_BYTES)
        wav.setframerate(sample_rate)
        wav.writeframes(pcm)


class UnknownFormat(UnreadableRecording):
    """Not a WAV file, or one whose samples are coded in a way that is not read here."""


class WavStream:
    """A WAV file read piece by piece, from a file or a pipe; iterates 16-bit mono samples."""

    def __init__(self, source: BinaryIO, limits: Limits | None = None) -> None:
        limits = limits or Limits()
        self._source = source
        # Bytes that are read of the samples, and those that should be there.
        self._taken = 0
        self._shape, self._size = _read_head(source)
        self.sample_rate = self._shape.sample_rate
        self._bytes_max = int(limits.duration_s_max * self.sample_rate) * self._shape.frame_bytes
        if self._size is not None and self._size > self._bytes_max:
            raise RecordingTooLarge(f"longer than {limits.duration_s_max:g} s")

    def __iter__(self) -> Iterator[bytes]:
        """Give all of it, in pieces of about a megabyte."""
        frames = max(1, BLOCK_BYTES // self._shape.frame_bytes)
        while piece := self.read_frames(frames):
            yield piece

    def read_frames(self, count: int) -> bytes:
        """Return so many samples, fewer at the end, none after it."""
        frame = self._shape.frame_bytes
        wanted = count * frame
        if self._size is not None:
            wanted = min(wanted, self._size - self._taken)
        data = _read_up_to(self._source, wanted)
        self._taken += len(data)
        if self._taken > self._bytes_max:
            raise RecordingTooLarge(f"longer than {self._bytes_max // frame // self.sample_rate} s")
        if not data and self._size is not None and wanted > 0:
            raise UnreadableRecording(
                f"cut off: {self._taken} of {self._size} bytes of sound are there"
            )
        return self._shape.to_mono(data[: len(data) - len(data) % frame])

    def close(self) -> None:
        """Leave the source."""
        self._source.close()


@dataclass(frozen=True, slots=True)
class Shape:
    """How samples are written in a WAV file."""

    coding: int
    channels: int
    sample_rate: int
    bits: int

    @property
    def frame_bytes(self) -> int:
        """Return the size of one sample of all channels."""
        return self.channels * self.bits // 8

    def to_mono(self, data: bytes) -> bytes:
        """Return the samples as 16 bits of one channel."""
        if self.bits == 16 and self.channels == 1:
            return data
        return _mixed(_CONVERSIONS[self.coding, self.bits](data), self.channels)


def _read_head(source: BinaryIO) -> tuple[Shape, int | None]:
    """Read up to the first sample; returns how they are written, and how many bytes if known."""
    head = _read_up_to(source, 12)
    if head[:4] != b"RIFF" or head[8:] != b"WAVE":
        raise UnknownFormat("not a WAV file")
    shape = None
    while len(start := _read_up_to(source, 8)) == 8:
        name, size = struct.unpack("<4sI", start)
        if name == b"data":
            if shape is None:
                raise UnreadableRecording("a WAV file that does not say its format")
            is_known = 0 < size < UNKNOWN_FROM
            return shape, size - size % shape.frame_bytes if is_known else None
        # Chunks are padded to an even size.
        rest = size + size % 2
        if name == b"fmt ":
            body = _read_up_to(source, min(rest, HEAD_BYTES_MAX))
            shape = _shape_of(body)
            rest -= len(body)
        while rest > 0 and (passed := source.read(min(rest, BLOCK_BYTES))):
            rest -= len(passed)
    raise UnreadableRecording("a WAV file without any sound")


def _shape_of(body: bytes) -> Shape:
    if len(body) < 16:
        raise UnreadableRecording("a WAV file with a damaged head")
    coding, channels, rate, _, _, bits = struct.unpack_from("<HHIIHH", body)
    if coding == EXTENSIBLE and len(body) >= 26:
        (coding,) = struct.unpack_from("<H", body, 24)
    if (coding, bits) not in _CONVERSIONS:
        raise UnknownFormat(f"a WAV file of coding {coding} with {bits} bits")
    if not (0 < channels <= CHANNELS_MAX and RATE_MIN <= rate <= RATE_MAX):
        raise UnreadableRecording(f"a WAV file of {channels} channels at {rate} Hz")
    return Shape(coding, channels, rate, bits)


def _read_up_to(source: BinaryIO, size: int) -> bytes:
    """Read so many bytes, fewer only at the end, however little a pipe gives at a time."""
    parts: list[bytes] = []
    while size > 0 and (part := source.read(min(size, BLOCK_BYTES))):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _from_8(data: bytes) -> bytes:
    out = bytearray(2 * len(data))
    out[1::2] = data.translate(bytes(value ^ 0x80 for value in range(256)))
    return bytes(out)


def _from_24(data: bytes) -> bytes:
    out = bytearray(len(data) // 3 * 2)
    out[0::2], out[1::2] = data[1::3], data[2::3]
    return bytes(out)


def _from_32(data: bytes) -> bytes:
    out = bytearray(len(data) // 2)
    out[0::2], out[1::2] = data[2::4], data[3::4]
    return bytes(out)


def _from_float(data: bytes) -> bytes:
    return _from_floats(_little_endian(array("f", data)))


def _from_double(data: bytes) -> bytes:
    return _from_floats(_little_endian(array("d", data)))


def _from_floats(values: array[float]) -> bytes:
    samples = array("h", (_sample(value) for value in values))
    return _little_endian(samples).tobytes()


def _sample(value: float) -> int:
    """Return a number between -1 and 1 as a sample; what is none is silence."""
    if math.isnan(value):
        return 0
    return max(-32768, min(32767, round(32768 * max(-1.0, min(1.0, value)))))


_CONVERSIONS: Final[dict[tuple[int, int], Callable[[bytes], bytes]]] = {
    (PCM, 8): _from_8,
    (PCM, 16): bytes,
    (PCM, 24): _from_24,
    (PCM, 32): _from_32,
    (FLOAT, 32): _from_float,
    (FLOAT, 64): _from_double,
}


def _mixed(data: bytes, channels: int) -> bytes:
    """Return the mean of all channels."""
    if channels == 1:
        return data
    samples = _little_endian(array("h", data))
    total: Any = samples[0::channels]
    for channel in range(1, channels):
        total = map(add, total, samples[channel::channels])
    return _little_endian(array("h", map(floordiv, total, repeat(channels)))).tobytes()


def _little_endian(values: array[Any]) -> array[Any]:
    """Turn from the order of files to that of this machine, or back."""
    if sys.byteorder == "big":
        values.byteswap()
    return values


def _bytes_of(source: bytes | Path | BinaryIO, limits: Limits) -> bytes:
    if isinstance(source, bytes):
        data = source
    elif isinstance(source, Path):
        try:
            with source.open("rb") as file:
                data = _read_up_to(file, limits.bytes_max + 1)
        except OSError as error:
            raise UnreadableRecording(f"{source}: {error.strerror}") from error
    else:
        data = _read_up_to(source, limits.bytes_max + 1)
    if len(data) > limits.bytes_max:
        raise RecordingTooLarge(f"larger than {limits.bytes_max} bytes")
    return data


# Formats other than WAV


def _read_otherwise(data: bytes, limits: Limits, unknown: UnknownFormat) -> Recording:
    """Read with whatever is here that can."""
    why: UnreadableRecording = unknown
    is_anything_here = False
    if (library := _soundfile()) is not None:
        is_anything_here = True
        try:
            return _read_with_soundfile(library, data, limits)
        except UnknownFormat as error:
            why = error
    if (program := shutil.which("ffmpeg")) is not None:
        return _read_with_ffmpeg(program, data, limits)
    if is_anything_here:
        raise UnreadableRecording(f"{why} (with ffmpeg on the PATH more formats are read)")
    raise UnreadableRecording(f"{unknown}; to read other formats, {INSTALL_HINT}")


def _soundfile() -> Any:
    """Return the library, or None where it is not, or cannot be loaded."""
    try:
        return importlib.import_module("soundfile")
    except (ImportError, OSError):
        return None


def _read_with_soundfile(library: Any, data: bytes, limits: Limits) -> Recording:
    try:
        with library.SoundFile(io.BytesIO(data)) as file:
            rate, channels = int(file.samplerate), int(file.channels)
            if not (0 < channels <= CHANNELS_MAX and RATE_MIN <= rate <= RATE_MAX):
                raise UnreadableRecording(f"a recording of {channels} channels at {rate} Hz")
            frames_max = int(limits.duration_s_max * rate)
            parts: list[bytes] = []
            frames = 0
            while block := bytes(file.buffer_read(BLOCK_BYTES // (2 * channels), dtype="int16")):
                frames += len(block) // (SAMPLE_BYTES * channels)
                if frames > frames_max:
                    raise RecordingTooLarge(f"longer than {limits.duration_s_max:g} s")
                parts.append(_mixed(_little_endian(array("h", block)).tobytes(), channels))
    except library.SoundFileError as error:
        what = getattr(error, "error_string", error)
        raise UnknownFormat(f"no format that can be read: {what}") from error
    if not parts:
        raise UnreadableRecording("a recording without any sound")
    return Recording(b"".join(parts), rate)


def _read_with_ffmpeg(program: str, data: bytes, limits: Limits) -> Recording:
    """Let ffmpeg write a WAV file; from a file, as some formats have their head at the end."""
    with tempfile.TemporaryDirectory(prefix="lingua-") as folder:
        path, out = Path(folder, "in"), Path(folder, "out.wav")
        path.write_bytes(data)
        command = [
            program, "-v", "error", "-nostdin", "-y", "-protocol_whitelist", "file",
            "-format_whitelist", FFMPEG_FORMATS, "-i", str(path), "-vn", "-sn", "-dn", "-ac", "1",
            "-t", f"{limits.duration_s_max + 1:g}", "-c:a", "pcm_s16le", "-f", "wav", str(out),
        ]  # fmt: skip
        try:
            done = subprocess.run(  # noqa: S603 the program is found on the user's own PATH
                command, capture_output=True, timeout=FFMPEG_S, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise UnreadableRecording("ffmpeg did not come to an end") from error
        if done.returncode != 0 or not out.exists():
            tail = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
            raise UnreadableRecording(f"no format that can be read: {''.join(tail)[:200]}")
        with closing(WavStream(out.open("rb"), limits)) as wav:
            return Recording(b"".join(wav), wav.sample_rate)
