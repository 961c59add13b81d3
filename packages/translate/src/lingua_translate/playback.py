"""Plays translated speech, one piece after another, if the machine can play.

Uses `sounddevice` if that works, else a playing program of the system that is on the PATH. It is a
listener that never delays the interpreting: pieces wait in a queue, and leaving the block waits
until they are played.
"""

from __future__ import annotations

import asyncio
import shutil
from threading import Event
from typing import TYPE_CHECKING, Any, Final

from lingua_translate.devices import sound_library
from lingua_translate.run import NullListener
from lingua_wire.errors import LinguaError

if TYPE_CHECKING:
    from collections.abc import Callable

    from lingua_translate.report import Rendition, TranslatedUtterance

# Programs that play raw 16-bit mono from their standard input.
PLAYERS: Final[tuple[tuple[str, ...], ...]] = (
    ("aplay", "-q", "-t", "raw", "-f", "S16_LE", "-c", "1", "-r", "{rate}"),
    ("paplay", "--raw", "--format=s16le", "--channels=1", "--rate={rate}"),
    ("pw-play", "--raw", "--format", "s16", "--channels", "1", "--rate", "{rate}", "-"),
    ("ffplay", "-v", "error", "-nodisp", "-autoexit", "-f", "s16le", "-ar", "{rate}", "-i", "-"),
    ("play", "-q", "-t", "raw", "-e", "signed", "-b", "16", "-c", "1", "-r", "{rate}", "-"),
)
# Devices are asked for this rate; programs take any.
VOICE_RATE: Final = 16_000
# How long a hanging player may take beyond the length of a piece.
PATIENCE_S: Final = 10.0
# How much is written to a device at a time.
PART_MS: Final = 100


class NoPlayer(LinguaError):
    """This machine has nothing that could play."""

    def __init__(self) -> None:
        names = ", ".join(words[0] for words in PLAYERS)
        hint = f"install the Python package sounddevice (with PortAudio), or one of {names}"
        super().__init__(f"nothing can play sound here: {hint}")


class Playback(NullListener):
    """A queue of speech and the task that plays it; use with `async with`."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._device = sound_library("output", VOICE_RATE)
        self._words = next((words for words in PLAYERS if shutil.which(words[0])), None)
        if self._device is None and self._words is None:
            raise NoPlayer
        # Receives the reason, once, if something cannot be played.
        self._tell = tell
        self._has_failed = False
        # The language that is played: the first that has speech.
        self._language = ""
        self._queue: asyncio.Queue[tuple[bytes, int] | None] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None
        # Set when nothing more is to be played; for the thread that writes to a device.
        self._is_over = Event()

    def rendered(self, _: TranslatedUtterance, rendition: Rendition) -> None:
        """Play this after everything that came before."""
        if rendition.pcm:
            self._language = self._language or rendition.target
            if rendition.target == self._language:
                self._queue.put_nowait((rendition.pcm, rendition.sample_rate))

    async def __aenter__(self) -> Playback:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Wait until everything is played; after an error nothing more is played."""
        assert self._task is not None
        if kind is not None:
            self._task.cancel()
        self._queue.put_nowait(None)
        try:
            await asyncio.wait({self._task})
        finally:
            self._is_over.set()
            self._task.cancel()

    async def _run(self) -> None:
        while (piece := await self._queue.get()) is not None:
            pcm, rate = piece
            if self._device is not None:
                problem = await asyncio.to_thread(self._play_on, self._device, pcm, rate)
            else:
                problem = await self._play_with_program(pcm, rate)
            if problem and not self._has_failed:
                self._has_failed = True
                self._tell(f"the translated speech cannot be played: {problem[:200]}")

    async def _play_with_program(self, pcm: bytes, rate: int) -> str:
        """Let a program play; return its error output."""
        assert self._words is not None
        words = [word.format(rate=rate) for word in self._words]
        process = await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        complaint = b""
        try:
            async with asyncio.timeout(len(pcm) / (2 * rate) + PATIENCE_S):
                _, complaint = await process.communicate(pcm)
        except TimeoutError:
            complaint = b"it does not come to an end"
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode == 0:
            return ""
        said = complaint.decode(errors="replace").strip().splitlines()
        return f"{words[0]}: {said[-1] if said else 'it failed'}"

    def _play_on(self, device: Any, pcm: bytes, rate: int) -> str:
        """Write to a device in small parts, in a thread, which cannot be cancelled."""
        part = 2 * (rate * PART_MS // 1000)
        try:
            with device.RawOutputStream(samplerate=rate, channels=1, dtype="int16") as stream:
                for at in range(0, len(pcm), part):
                    if self._is_over.is_set():
                        break
                    stream.write(pcm[at : at + part])
        except device.PortAudioError as error:
            return str(error)
        return ""
