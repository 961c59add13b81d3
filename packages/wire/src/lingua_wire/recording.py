"""Recordings: any audio file as 16-bit mono PCM, and PCM as a WAV file.

    open_recording ──> RecordingStream (WavStream, SoundfileStream, FfmpegStream)
    read ──> all of it

WAV (8 to 32 bits, float, any channels) is read here, without a library; other formats by
`soundfile` if it is installed, else by `ffmpeg` if it is on the PATH. Reading is limited in bytes
and in seconds, independent of what a file claims. A file that cannot be read always raises
`UnreadableRecording`. Nothing is resampled or played.
"""

from __future__ import annotations

import errno
import importlib
import io
import math
import os
import select
import shutil
import stat
import struct
import subprocess
import sys
import tempfile
import wave
from array import array
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import repeat
from operator import add, floordiv
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Protocol

from lingua_wire.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable

SAMPLE_BYTES: Final = 2
RATE_MIN, RATE_MAX = 8000, 192_000
CHANNELS_MAX: Final = 32
# Bytes read from a file at a time.
BLOCK_BYTES: Final = 1 << 20
BLOCK_FRAMES: Final = BLOCK_BYTES // SAMPLE_BYTES
# A WAV file gives its size in 32 bits.
WAV_BYTES_MAX: Final = (1 << 32) - 1024
INSTALL_HINT: Final = "install the Python package soundfile, or ffmpeg"
# CPU time that ffmpeg may use, and how long it may write nothing.
FFMPEG_S: Final = 300
# Audio containers; not playlists, which would make ffmpeg open other files and addresses.
FFMPEG_FORMATS: Final = (
    "aac,ac3,adts,aiff,amr,ape,asf,au,avi,caf,dsf,flac,flv,matroska,mov,mp3,mpeg,mpegts,ogg,tta,"
    "voc,w64,wav,webm,wv"
)
# A WAV file that was written to a pipe has an unknown size, given as 0 or as a number from here on:
# ffmpeg writes 0xFFFFFFFF, arecord 0x80000000, sox 0x7FFFF000.
UNKNOWN_FROM: Final = 0x7FFFF000
# Bytes read of a WAV file's description of its samples.
HEAD_BYTES_MAX: Final = 64
PCM, FLOAT, EXTENSIBLE = 1, 3, 0xFFFE


class UnreadableRecording(InvalidInput):
    """The audio cannot be read: damaged, of an unknown format, or without a decoder here."""


class RecordingTooLarge(UnreadableRecording):
    """The audio is larger or longer than is accepted."""


@dataclass(frozen=True, slots=True)
class Recording:
    """Speech as it is sent: little-endian 16-bit samples of one channel."""

    pcm: bytes
    sample_rate: int

    @property
    def duration_ms(self) -> int:
        """Return how long it is."""
        return len(self.pcm) * 1000 // (SAMPLE_BYTES * self.sample_rate)


@dataclass(frozen=True, slots=True)
class Limits:
    """The largest recording that is read."""

    # Size of the file.
    bytes_max: int = 1 << 30
    # Length of the audio: a small file may claim, or decode into, days.
    duration_s_max: float = 4 * 3600.0


class RecordingStream(Protocol):
    """A recording that is read piece by piece."""

    @property
    def sample_rate(self) -> int:
        """Return samples per second."""

    def read_frames(self, count: int) -> bytes:
        """Return `count` samples, 16-bit mono; fewer at the end, none after it."""

    def close(self) -> None:
        """Close the source."""


def read(source: bytes | str | Path | BinaryIO, limits: Limits | None = None) -> Recording:
    """Return the whole audio of a file."""
    with closing(open_recording(source, limits)) as stream:
        pieces = iter(lambda: stream.read_frames(BLOCK_FRAMES), b"")
        return Recording(b"".join(pieces), stream.sample_rate)


def open_recording(
    source: bytes | str | Path | BinaryIO, limits: Limits | None = None
) -> RecordingStream:
    """Begin to read a recording; files are read piece by piece, other sources into memory."""
    limits = limits or Limits()
    source = Path(source) if isinstance(source, str) else source
    if not isinstance(source, Path):
        return _open_bytes(source if isinstance(source, bytes) else _all_of(source, limits), limits)
    try:
        file = source.open("rb")
    except OSError as error:
        raise UnreadableRecording(f"{source}: {error.strerror}") from error
    with ExitStack() as stack:
        stack.callback(file.close)
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            return _open_bytes(_all_of(file, limits), limits)
        _check_size(status.st_size, limits)
        try:
            stream = WavStream(file, limits)
        except UnknownFormat as unknown:
            return _open_otherwise(source, limits, unknown)
        stack.pop_all()
        return stream


def _open_bytes(data: bytes, limits: Limits) -> RecordingStream:
    _check_size(len(data), limits)
    try:
        return WavStream(io.BytesIO(data), limits)
    except UnknownFormat as unknown:
        return _open_otherwise(data, limits, unknown)


def _all_of(source: BinaryIO, limits: Limits) -> bytes:
    return _read_up_to(source, limits.bytes_max + 1)


def _check_size(size: int, limits: Limits) -> None:
    if size == 0:
        raise UnreadableRecording("the recording is empty")
    if size > limits.bytes_max:
        raise RecordingTooLarge(f"larger than {limits.bytes_max} bytes")


def write_wav(path: Path | BinaryIO, pcm: bytes, sample_rate: int) -> None:
    """Write 16-bit mono samples as a WAV file."""
    with closing(WavWriter(path, sample_rate)) as wav:
        wav.write(pcm)


class WavWriter:
    """A growing WAV file of 16-bit mono samples; after each `write` the file is complete."""

    def __init__(self, target: Path | BinaryIO, sample_rate: int) -> None:
        self.sample_rate = sample_rate
        # Samples written so far.
        self.frames = 0
        opened = str(target) if isinstance(target, Path) else target
        self._wav = wave.open(opened, "wb")  # noqa: SIM115 until `close`
        self._wav.setnchannels(1)
        self._wav.setsampwidth(SAMPLE_BYTES)
        self._wav.setframerate(sample_rate)

    def write(self, pcm: bytes) -> None:
        """Append samples; OSError if the file would become too large."""
        frames = self.frames + len(pcm) // SAMPLE_BYTES
        if SAMPLE_BYTES * frames > WAV_BYTES_MAX:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        self._wav.writeframes(pcm)
        self.frames = frames

    def close(self) -> None:
        """Close the file."""
        self._wav.close()


class UnknownFormat(UnreadableRecording):
    """Not a WAV file, or one with an encoding that is not read here."""


class WavStream:
    """A WAV file, from a file or a pipe."""

    def __init__(self, source: BinaryIO, limits: Limits | None = None) -> None:
        limits = limits or Limits()
        self._source = source
        # Bytes of samples read so far.
        self._taken = 0
        self._format, self._size = _read_head(source)
        self.sample_rate = self._format.sample_rate
        self._bytes_max = int(limits.duration_s_max * self.sample_rate) * self._format.frame_bytes
        if self._size is not None and self._size > self._bytes_max:
            raise RecordingTooLarge(f"longer than {limits.duration_s_max:g} s")

    def read_frames(self, count: int) -> bytes:
        """Return `count` samples; fewer at the end, none after it."""
        frame = self._format.frame_bytes
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
        return self._format.to_mono(data[: len(data) - len(data) % frame])

    def close(self) -> None:
        """Close the source."""
        self._source.close()


@dataclass(frozen=True, slots=True)
class SampleFormat:
    """How samples are encoded in a WAV file."""

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


def _read_head(source: BinaryIO) -> tuple[SampleFormat, int | None]:
    """Read up to the first sample; return the format of samples, and their bytes if known."""
    head = _read_up_to(source, 12)
    if head[:4] != b"RIFF" or head[8:] != b"WAVE":
        raise UnknownFormat("not a WAV file")
    found = None
    while len(start := _read_up_to(source, 8)) == 8:
        name, size = struct.unpack("<4sI", start)
        if name == b"data":
            if found is None:
                raise UnreadableRecording("a WAV file without a format")
            is_known = 0 < size < UNKNOWN_FROM
            return found, size - size % found.frame_bytes if is_known else None
        # Chunks are padded to an even size.
        rest = size + size % 2
        if name == b"fmt ":
            body = _read_up_to(source, min(rest, HEAD_BYTES_MAX))
            found = _format_of(body)
            rest -= len(body)
        while rest > 0 and (passed := source.read(min(rest, BLOCK_BYTES))):
            rest -= len(passed)
    raise UnreadableRecording("a WAV file without any sound")


def _format_of(body: bytes) -> SampleFormat:
    if len(body) < 16:
        raise UnreadableRecording("a WAV file with a damaged head")
    coding, channels, rate, _, _, bits = struct.unpack_from("<HHIIHH", body)
    if coding == EXTENSIBLE and len(body) >= 26:
        (coding,) = struct.unpack_from("<H", body, 24)
    if (coding, bits) not in _CONVERSIONS:
        raise UnknownFormat(f"a WAV file of coding {coding} with {bits} bits")
    if not (0 < channels <= CHANNELS_MAX and RATE_MIN <= rate <= RATE_MAX):
        raise UnreadableRecording(f"a WAV file of {channels} channels at {rate} Hz")
    return SampleFormat(coding, channels, rate, bits)


def _read_up_to(source: BinaryIO, size: int) -> bytes:
    """Read `size` bytes, fewer only at the end, also from a pipe that returns little at a time."""
    parts: list[bytes] = []
    try:
        while size > 0 and (part := source.read(min(size, BLOCK_BYTES))):
            parts.append(part)
            size -= len(part)
    except OSError as error:
        raise UnreadableRecording(f"it cannot be read any further: {error.strerror}") from error
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
    """Return a number between -1 and 1 as a sample; NaN is silence."""
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
    """Convert between the byte order of files and that of this machine."""
    if sys.byteorder == "big":
        values.byteswap()
    return values


# Formats other than WAV


def _open_otherwise(
    source: bytes | Path, limits: Limits, unknown: UnknownFormat
) -> RecordingStream:
    """Read with a library or program that is installed."""
    why: UnreadableRecording = unknown
    library = _soundfile()
    if library is not None:
        try:
            return SoundfileStream(library, source, limits)
        except UnknownFormat as error:
            why = error
    if (program := shutil.which("ffmpeg")) is not None:
        return FfmpegStream(program, source, limits)
    if library is not None:
        raise UnreadableRecording(f"{why} (with ffmpeg on the PATH more formats are read)")
    raise UnreadableRecording(f"{unknown}; to read other formats, {INSTALL_HINT}")


def _soundfile() -> Any:
    """Return the library, or None if it is not installed or cannot be loaded."""
    try:
        return importlib.import_module("soundfile")
    except (ImportError, OSError):
        return None


class SoundfileStream:
    """A recording that `soundfile` can read."""

    def __init__(self, library: Any, source: bytes | Path, limits: Limits) -> None:
        self._error = library.SoundFileError
        self._duration_s_max = limits.duration_s_max
        with ExitStack() as stack:
            file = io.BytesIO(source) if isinstance(source, bytes) else source.open("rb")
            stack.callback(file.close)
            try:
                self._file = library.SoundFile(file)
            except self._error as error:
                raise UnknownFormat(f"no format that can be read: {_what(error)}") from error
            stack.callback(self._file.close)
            self.sample_rate, self._channels = int(self._file.samplerate), int(self._file.channels)
            self._check()
            self._stack = stack.pop_all()
        # Samples that may still be read.
        self._frames_left = int(limits.duration_s_max * self.sample_rate)

    def _check(self) -> None:
        rate, channels = self.sample_rate, self._channels
        if not (0 < channels <= CHANNELS_MAX and RATE_MIN <= rate <= RATE_MAX):
            raise UnreadableRecording(f"a recording of {channels} channels at {rate} Hz")
        if self._file.frames == 0:
            raise UnreadableRecording("a recording without any sound")

    def read_frames(self, count: int) -> bytes:
        """Return `count` samples; fewer at the end, none after it."""
        try:
            block = bytes(self._file.buffer_read(count, dtype="int16"))
        except self._error as error:
            raise UnreadableRecording(f"the recording is damaged: {_what(error)}") from error
        self._frames_left -= len(block) // (SAMPLE_BYTES * self._channels)
        if self._frames_left < 0:
            raise RecordingTooLarge(f"longer than {self._duration_s_max:g} s")
        return _mixed(_little_endian(array("h", block)).tobytes(), self._channels)

    def close(self) -> None:
        """Close the file."""
        self._stack.close()


def _what(error: Exception) -> str:
    return str(getattr(error, "error_string", error))


class FfmpegStream:
    """A recording that ffmpeg turns into a WAV file, which is read while it is written."""

    def __init__(self, program: str, source: bytes | Path, limits: Limits) -> None:
        with ExitStack() as stack:
            # From a file, because some formats have their header at the end.
            path = source if isinstance(source, Path) else _on_disk(source, stack)
            self._errors = stack.enter_context(tempfile.TemporaryFile())
            self._process = subprocess.Popen(  # noqa: S603 the program is on the user's own PATH
                _ffmpeg_command(program, path, limits),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                start_new_session=True,
            )
            stack.callback(self._end)
            assert self._process.stdout is not None
            pipe: Any = _PipeReader(self._process.stdout.fileno())
            try:
                self._wav = WavStream(pipe, limits)
            except UnknownFormat:
                self._check_end()
                raise
            self._stack = stack.pop_all()
        self.sample_rate = self._wav.sample_rate

    def read_frames(self, count: int) -> bytes:
        """Return `count` samples; fewer at the end, none after it."""
        piece = self._wav.read_frames(count)
        if not piece:
            self._check_end()
        return piece

    def close(self) -> None:
        """End the program."""
        self._stack.close()

    def _check_end(self) -> None:
        """Raise its last error message if it failed."""
        if self._process.wait() != 0:
            self._errors.seek(0)
            last = self._errors.read().decode(errors="replace").strip().splitlines()[-1:]
            raise UnreadableRecording(f"no format that can be read: {''.join(last)[:200]}")

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


class _PipeReader:
    """Reads a pipe with a timeout."""

    def __init__(self, number: int) -> None:
        self._number = number
        # Not `select`, which supports only the first 1024 file descriptors.
        self._poll = select.poll()
        self._poll.register(number, select.POLLIN)

    def read(self, size: int) -> bytes:
        """Return up to `size` bytes, nothing at the end."""
        if not self._poll.poll(1000 * FFMPEG_S):
            raise UnreadableRecording(f"ffmpeg gave nothing for {FFMPEG_S} s")
        return os.read(self._number, size)


def _on_disk(data: bytes, stack: ExitStack) -> Path:
    file = tempfile.NamedTemporaryFile(prefix="lingua-")  # noqa: SIM115 as long as the stack
    stack.enter_context(file)
    file.write(data)
    file.flush()
    return Path(file.name)


def _ffmpeg_command(program: str, path: Path, limits: Limits) -> list[str]:
    reading = f"-timelimit {FFMPEG_S} -protocol_whitelist file -format_whitelist {FFMPEG_FORMATS}"
    writing = f"-ac 1 -t {limits.duration_s_max + 1:.0f} -c:a pcm_s16le -f wav pipe:1"
    return [
        *(program, "-v", "error", "-nostdin"),
        *reading.split(),
        *("-i", f"file:{path}", "-vn", "-sn", "-dn"),
        *writing.split(),
    ]
