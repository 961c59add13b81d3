"""The sources of speech: a recording, a pipe, a microphone. All give 16-bit mono in small chunks.

A recording comes at the pace at which it was spoken, or as fast as it is read, and is read while it
is spoken. A pipe comes as it comes. The microphone is read by `sounddevice` if that works, else by
a recording program of the system that is on the PATH, as a child.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import shutil
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from time import monotonic
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Protocol, TypeVar

from lingua_translate.devices import sound_library
from lingua_wire.errors import LinguaError
from lingua_wire.recording import Limits, Recording, WavStream, open_recording

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from lingua_wire.recording import RecordingStream

T = TypeVar("T")

CHUNK_MS: Final = 50
# How much of a file is read at a time.
BLOCK_S: Final = 2
# A process that wakes up so late was not busy but stopped (Ctrl-Z): the speaker was silent, too.
STOPPED_S: Final = 1.0
MICROPHONE_RATE: Final = 16_000
# Chunks of a microphone that are not read: after so many the oldest are dropped (10 s).
BACKLOG_CHUNKS: Final = 200
TAIL_BYTES: Final = 2000
END_S: Final = 2.0
RIFF: Final = b"RIFF"
# Nothing of it is kept: it may continue for years.
ENDLESS: Final = Limits(bytes_max=1 << 62, duration_s_max=1e9)

# Programs that write the audio of a microphone to their standard output.
RECORDERS: Final[tuple[tuple[str, ...], ...]] = (
    ("arecord", "-q", "-t", "raw", "-f", "S16_LE", "-c", "1", "-r", "{rate}"),
    ("parecord", "--raw", "--format=s16le", "--channels=1", "--rate={rate}", "--latency-msec=50"),
    ("pw-record", "--raw", "--format", "s16", "--channels", "1", "--rate", "{rate}", "-"),
    (
        "ffmpeg",
        "-v",
        "error",
        "-nostdin",
        "-f",
        "pulse",
        "-i",
        "default",
        "-ac",
        "1",
        "-ar",
        "{rate}",
        "-f",
        "s16le",
        "-",
    ),
    ("rec", "-q", "-t", "raw", "-e", "signed", "-b", "16", "-c", "1", "-r", "{rate}", "-"),
)


class SourceFailed(LinguaError):
    """The source failed: no more speech can be read."""


class NoMicrophone(SourceFailed):
    """This machine has nothing that could record."""

    def __init__(self, tried: Sequence[str] = ()) -> None:
        names = ", ".join(words[0] for words in RECORDERS)
        hint = f"install the Python package sounddevice (with PortAudio), or one of {names}"
        why = f" ({'; '.join(tried)})" if tried else ""
        super().__init__(f"no microphone can be read{why}: {hint}")


class AudioSource(Protocol):
    """A source of speech."""

    @property
    def sample_rate(self) -> int:
        """Return samples per second."""

    @property
    def is_live(self) -> bool:
        """Tell whether it comes at the pace of speech."""

    def chunks(self) -> AsyncIterator[bytes]:
        """Give the speech, 16-bit mono, until it ends."""


class RecordingSource:
    """A recording, in memory or read as it is spoken; in real time or as fast as it is read."""

    def __init__(
        self, recording: Recording | RecordingStream, *, is_live: bool = True, tail_ms: int = 0
    ) -> None:
        self.sample_rate = recording.sample_rate
        self.is_live = is_live
        self._recording = recording
        # Silence after it, as a microphone would record it: so that the last words end as others
        # do.
        self._tail = bytes(2 * (recording.sample_rate * tail_ms // 1000))
        # The reader of a file that is not in memory; started by `open`, else by the first chunk.
        self._reader: _Reader | None = None

    @classmethod
    @contextlib.asynccontextmanager
    async def open(
        cls, path: Path | str, *, is_live: bool = True, tail_ms: int = 0
    ) -> AsyncIterator[RecordingSource]:
        """Read a file until the block is left; raises `UnreadableRecording` if that fails."""
        reader = _Reader()
        stream = await reader.call(lambda: open_recording(path, ENDLESS))
        source = cls(stream, is_live=is_live, tail_ms=tail_ms)
        source._reader = reader
        try:
            yield source
        finally:
            # Closed by its reader: not while it is being read.
            await reader.call(stream.close)

    async def chunks(self) -> AsyncIterator[bytes]:
        """Give a chunk as soon as its last sample was spoken."""
        began, said = monotonic(), 0
        async for chunk in _cut(self._blocks(), self.sample_rate):
            if self.is_live:
                said += len(chunk)
                began += await _wait_until(began + said / (2 * self.sample_rate))
            yield chunk

    async def _blocks(self) -> AsyncIterator[bytes]:
        if isinstance(self._recording, Recording):
            yield self._recording.pcm
        else:
            stream, reader = self._recording, self._reader or _Reader()
            count = BLOCK_S * self.sample_rate
            while block := await reader.call(lambda: stream.read_frames(count)):
                yield block
        yield self._tail


async def _wait_until(due: float) -> float:
    """Wait for a time; return how long the process was stopped meanwhile."""
    left = due - monotonic()
    await asyncio.sleep(max(0.0, left))
    late = monotonic() - due
    return late if left > 0 and late > STOPPED_S else 0.0


class PipeSource:
    """Speech from a pipe, raw or WAV, as it comes; created by `open`."""

    def __init__(
        self, reader: _Reader, read: Callable[[int], bytes], sample_rate: int, *, is_live: bool
    ) -> None:
        self.sample_rate = sample_rate
        self.is_live = is_live
        self._reader = reader
        # Reads up to a number of samples; waits for some of them.
        self._read = read

    @classmethod
    async def open(
        cls, place: BinaryIO | Path | str, sample_rate: int, *, is_live: bool = False
    ) -> PipeSource:
        """Find out whether an unbuffered pipe has a WAV file or raw samples of this rate."""
        reader = _Reader()
        pipe = await reader.call(lambda: _opened(place))
        head = await reader.call(lambda: _read_exactly(pipe, len(RIFF)))
        if not head:
            raise SourceFailed("no audio: the input is empty")
        rest: Any = _Prefixed(head, pipe)
        if head == RIFF:
            wav = await reader.call(lambda: WavStream(rest, ENDLESS))
            return cls(reader, wav.read_frames, wav.sample_rate, is_live=is_live)
        return cls(
            reader, lambda count: _read_exactly(rest, 2 * count), sample_rate, is_live=is_live
        )

    async def chunks(self) -> AsyncIterator[bytes]:
        """Give the audio in chunks of 50 ms."""
        count = self.sample_rate * CHUNK_MS // 1000
        while chunk := await self._reader.call(lambda: self._read(count)):
            if whole := len(chunk) - len(chunk) % 2:
                yield chunk[:whole]


class _Reader:
    """A thread that reads; nothing waits for its end, since it may block on a pipe for ever."""

    def __init__(self) -> None:
        self._asked: SimpleQueue[tuple[Callable[[], Any], asyncio.Future[Any]]] = SimpleQueue()
        self._loop = asyncio.get_running_loop()
        Thread(target=self._work, name="reader", daemon=True).start()

    async def call(self, read: Callable[[], T]) -> T:
        """Return the result of a function that may block; raises what it raises."""
        done: asyncio.Future[T] = self._loop.create_future()
        self._asked.put((read, done))
        return await done

    def _work(self) -> None:
        while True:
            read, done = self._asked.get()
            value = None
            with _Kept() as kept:
                value = read()
            # The loop is closed when the result is not wanted any more.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(_settle, done, value, kept.error)


class _Kept:
    """Passes an exception of a block to the waiting caller, who would otherwise wait for ever."""

    def __init__(self) -> None:
        self.error: BaseException | None = None

    def __enter__(self) -> _Kept:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> bool:
        self.error = error
        if isinstance(error, OSError):
            self.error = SourceFailed(f"it cannot be read any further: {error.strerror}")
        return True


def _settle(done: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
    if done.done():
        return
    if error is not None:
        done.set_exception(error)
    else:
        done.set_result(value)


@contextlib.asynccontextmanager
async def microphone(sample_rate: int = MICROPHONE_RATE) -> AsyncIterator[AudioSource]:
    """Record until the block is left; raises `NoMicrophone` if nothing here can record."""
    device = sound_library("input", sample_rate)
    opened = _device(device, sample_rate) if device is not None else _recorder(sample_rate)
    async with opened as source:
        yield source


@contextlib.asynccontextmanager
async def _device(device: Any, sample_rate: int) -> AsyncIterator[AudioSource]:
    queue: asyncio.Queue[bytes] = asyncio.Queue(BACKLOG_CHUNKS)
    loop = asyncio.get_running_loop()

    def put(chunk: bytes) -> None:
        if queue.full():
            queue.get_nowait()
        queue.put_nowait(chunk)

    def heard(data: Any, *_: Any) -> None:
        loop.call_soon_threadsafe(put, bytes(data))

    block = sample_rate * CHUNK_MS // 1000
    stream = device.RawInputStream(
        samplerate=sample_rate, channels=1, dtype="int16", blocksize=block, callback=heard
    )
    with stream:
        yield _Queued(queue, sample_rate)


class _Queued:
    """The audio that a device put into a queue."""

    is_live = True

    def __init__(self, queue: asyncio.Queue[bytes], sample_rate: int) -> None:
        self.sample_rate = sample_rate
        self._queue = queue

    async def chunks(self) -> AsyncIterator[bytes]:
        """Give the audio; it does not end by itself."""
        while True:
            yield await self._queue.get()


@contextlib.asynccontextmanager
async def _recorder(sample_rate: int) -> AsyncIterator[AudioSource]:
    """Start the first program that really gives audio."""
    tried: list[str] = []
    for words in RECORDERS:
        program = shutil.which(words[0])
        if program is None:
            continue
        arguments = [word.format(rate=sample_rate) for word in words[1:]]
        process = await asyncio.create_subprocess_exec(
            program,
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        try:
            source = _Recorder(words[0], process, sample_rate)
            if await source.has_begun():
                yield source
                return
            tried.append(await source.complaint())
        finally:
            await _end(process)
    raise NoMicrophone(tried)


class _Recorder:
    """The audio that a recording program writes."""

    is_live = True

    def __init__(self, name: str, process: asyncio.subprocess.Process, sample_rate: int) -> None:
        self.sample_rate = sample_rate
        self._name = name
        self._process = process
        self._first = b""

    async def has_begun(self) -> bool:
        """Wait for the first chunk; return whether there is one."""
        self._first = await self._chunk()
        return bool(self._first)

    async def chunks(self) -> AsyncIterator[bytes]:
        """Give the audio until the program ends; its failure is an error."""
        chunk, self._first = self._first, b""
        while chunk:
            if whole := len(chunk) - len(chunk) % 2:
                yield chunk[:whole]
            chunk = await self._chunk()
        if await self._process.wait() != 0:
            raise SourceFailed(await self.complaint())

    async def complaint(self) -> str:
        """Return the error output of the program."""
        assert self._process.stderr is not None
        said = (await self._process.stderr.read(TAIL_BYTES)).decode(errors="replace").strip()
        return f"{self._name}: {(said.splitlines() or ['gave no sound'])[-1][:200]}"

    async def _chunk(self) -> bytes:
        assert self._process.stdout is not None
        size = 2 * (self.sample_rate * CHUNK_MS // 1000)
        try:
            return await self._process.stdout.readexactly(size)
        except asyncio.IncompleteReadError as end:
            return end.partial


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.terminate()
    try:
        async with asyncio.timeout(END_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


class _Prefixed(io.RawIOBase):
    """A pipe whose first bytes were read already."""

    def __init__(self, head: bytes, pipe: BinaryIO) -> None:
        super().__init__()
        self._head = head
        self._pipe = pipe

    def read(self, size: int = -1, /) -> bytes:
        """Return the next bytes."""
        if self._head:
            taken, self._head = self._head[:size], self._head[size:]
            return taken
        return self._pipe.read(size)


def _opened(place: BinaryIO | Path | str) -> Any:
    # Unbuffered: speech must not wait for a full buffer.
    return Path(place).open("rb", buffering=0) if isinstance(place, (Path, str)) else place


def _read_exactly(pipe: Any, size: int) -> bytes:
    parts: list[bytes] = []
    while size > 0 and (part := pipe.read(size)):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


async def _cut(blocks: AsyncIterator[bytes], sample_rate: int) -> AsyncIterator[bytes]:
    """Give everything in equal chunks; the last may be shorter."""
    size = 2 * (sample_rate * CHUNK_MS // 1000)
    rest = b""
    async for block in blocks:
        data = rest + block
        whole = len(data) - len(data) % size
        for at in range(0, whole, size):
            yield data[at : at + size]
        rest = data[whole:]
    if rest:
        yield rest
