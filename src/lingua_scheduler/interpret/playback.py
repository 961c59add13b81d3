"""Plays translated speech, one piece after another, where there is something to play it with.

`sounddevice` where that works, else whichever playing program of the system is on the PATH. It
never holds up the interpreting: pieces wait in a queue, and `close` waits until they are played.
"""

from __future__ import annotations

import asyncio
import shutil
from typing import Any, Final

from lingua_scheduler.errors import LinguaError
from lingua_scheduler.interpret.devices import sound_library

# Programs that play raw 16-bit mono from their standard input.
PLAYERS: Final[tuple[tuple[str, ...], ...]] = (
    ("aplay", "-q", "-t", "raw", "-f", "S16_LE", "-c", "1", "-r", "{rate}"),
    ("paplay", "--raw", "--format=s16le", "--channels=1", "--rate={rate}"),
    ("pw-play", "--raw", "--format", "s16", "--channels", "1", "--rate", "{rate}", "-"),
    ("ffplay", "-v", "error", "-nodisp", "-autoexit", "-f", "s16le", "-ar", "{rate}", "-i", "-"),
    ("play", "-q", "-t", "raw", "-e", "signed", "-b", "16", "-c", "1", "-r", "{rate}", "-"),
)  # fmt: skip
# Devices are asked for this rate; programs take any.
VOICE_RATE: Final = 16_000
# What is taken for the end of a piece whose player hangs, beyond its length.
PATIENCE_S: Final = 10.0


class NoPlayer(LinguaError):
    """There is nothing here that could play."""

    def __init__(self) -> None:
        names = ", ".join(words[0] for words in PLAYERS)
        hint = f"install the Python package sounddevice (with PortAudio), or one of {names}"
        super().__init__(f"nothing can play sound here: {hint}")


class Playback:
    """A queue of speech and the task that plays it; use with `async with`."""

    def __init__(self) -> None:
        self._device = sound_library("output", VOICE_RATE)
        self._words = next((words for words in PLAYERS if shutil.which(words[0])), None)
        if self._device is None and self._words is None:
            raise NoPlayer
        self._queue: asyncio.Queue[tuple[bytes, int] | None] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None
        # Pieces that no player took.
        self.failures = 0

    def play(self, pcm: bytes, sample_rate: int) -> None:
        """Play this after all that came before."""
        if pcm:
            self._queue.put_nowait((pcm, sample_rate))

    async def __aenter__(self) -> Playback:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Wait until all is played; after an error nothing more is."""
        assert self._task is not None
        if kind is not None:
            self._task.cancel()
        self._queue.put_nowait(None)
        await asyncio.wait({self._task})

    async def _run(self) -> None:
        while (piece := await self._queue.get()) is not None:
            pcm, rate = piece
            if self._device is not None:
                await asyncio.to_thread(_play_on, self._device, pcm, rate)
            else:
                await self._play_with_program(pcm, rate)

    async def _play_with_program(self, pcm: bytes, rate: int) -> None:
        assert self._words is not None
        words = [word.format(rate=rate) for word in self._words]
        process = await asyncio.create_subprocess_exec(
            *words, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        try:
            async with asyncio.timeout(len(pcm) / (2 * rate) + PATIENCE_S):
                await process.communicate(pcm)
        except TimeoutError:
            self.failures += 1
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode != 0:
            self.failures += 1


def _play_on(device: Any, pcm: bytes, rate: int) -> None:
    with device.RawOutputStream(samplerate=rate, channels=1, dtype="int16") as stream:
        stream.write(pcm)
