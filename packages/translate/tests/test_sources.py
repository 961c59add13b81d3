"""Sources of speech: a recording's pace, pipes with raw and WAV audio, programs that record."""

from __future__ import annotations

import asyncio
import io
import os
import sys
import time
import tracemalloc
from array import array
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lingua_translate import (
    NoMicrophone,
    PipeSource,
    RecordingSource,
    SourceFailed,
    microphone,
)
from lingua_wire.recording import Recording, UnreadableRecording, write_wav

if TYPE_CHECKING:
    from lingua_translate import AudioSource

pytestmark = pytest.mark.unit

PCM = array("h", [at % 1000 for at in range(8000)]).tobytes()


async def all_of(source: AudioSource) -> list[bytes]:
    async with asyncio.timeout(20):
        return [chunk async for chunk in source.chunks()]


def in_pipe(data: bytes) -> int:
    """Return the end of a pipe with this content, which is closed on the other side."""
    read_end, write_end = os.pipe()
    with os.fdopen(write_end, "wb") as file:
        file.write(data)
    return read_end


def test_a_recording_comes_in_small_chunks_with_silence_after_it() -> None:
    source = RecordingSource(Recording(PCM, 16_000), is_live=False, tail_ms=120)
    chunks = asyncio.run(all_of(source))
    assert {len(chunk) for chunk in chunks[:-1]} == {1600}
    assert b"".join(chunks) == PCM + bytes(2 * 1920)


def test_a_live_recording_never_runs_ahead_of_its_speaker() -> None:
    async def scenario() -> None:
        source = RecordingSource(Recording(PCM, 16_000), is_live=True)
        began = time.monotonic()
        said = 0
        async for chunk in source.chunks():
            said += len(chunk) // 2
            assert time.monotonic() - began >= said / 16_000 - 0.001

    asyncio.run(scenario())


def test_raw_audio_of_a_pipe_has_the_rate_that_is_said() -> None:
    async def scenario() -> None:
        with os.fdopen(in_pipe(PCM + b"x"), "rb", buffering=0) as pipe:
            source = await PipeSource.open(pipe, 8000)
            assert source.sample_rate == 8000
            assert b"".join(await all_of(source)) == PCM

    asyncio.run(scenario())


def test_a_wav_file_in_a_pipe_is_known_by_its_beginning() -> None:
    file = io.BytesIO()
    write_wav(file, PCM, 22_050)

    async def scenario() -> None:
        with os.fdopen(in_pipe(file.getvalue()), "rb", buffering=0) as pipe:
            source = await PipeSource.open(pipe, 8000)
            assert source.sample_rate == 22_050
            assert b"".join(await all_of(source)) == PCM

    asyncio.run(scenario())


@pytest.mark.parametrize("size", [4, 60, 2000])
def test_a_wav_file_that_breaks_off_in_a_pipe_is_told(size: int) -> None:
    file = io.BytesIO()
    write_wav(file, PCM, 16_000)

    async def scenario() -> None:
        with os.fdopen(in_pipe(file.getvalue()[:size]), "rb", buffering=0) as pipe:
            await all_of(await PipeSource.open(pipe, 16_000))

    with pytest.raises(UnreadableRecording):
        asyncio.run(scenario())


def test_a_pipe_in_which_nothing_comes_does_not_hold_up_the_end() -> None:
    async def scenario() -> None:
        read_end, write_end = os.pipe()
        with os.fdopen(read_end, "rb", buffering=0) as pipe, os.fdopen(write_end, "wb") as other:
            other.write(PCM[:1600])
            other.flush()
            source = await PipeSource.open(pipe, 16_000)
            chunks = source.chunks()
            assert await anext(chunks) == PCM[:1600]
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await anext(chunks)

    asyncio.run(scenario())


def program(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!{sys.executable}\nimport sys, time\n{script}\n")
    path.chmod(0o755)


@pytest.fixture
def on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with the only programs that exist; there is no audio library either."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "sounddevice", None)
    (tmp_path / "speech.raw").write_bytes(PCM)
    return tmp_path


async def record() -> bytes:
    async with microphone() as source:
        return b"".join(await all_of(source))


SPEAK = "sys.stdout.buffer.write(open({!r}, 'rb').read())"


def test_the_first_program_that_gives_sound_is_the_microphone(on_path: Path) -> None:
    program(on_path, "arecord", "sys.exit('arecord: no such device')")
    program(on_path, "parecord", SPEAK.format(str(on_path / "speech.raw")))
    assert asyncio.run(record()) == PCM


def test_where_nothing_records_the_message_says_what_was_tried_and_what_to_install(
    on_path: Path,
) -> None:
    program(on_path, "arecord", "sys.exit('arecord: no such device')")
    with pytest.raises(NoMicrophone, match=r"arecord: no such device.*install"):
        asyncio.run(record())
    (on_path / "arecord").unlink()
    with pytest.raises(NoMicrophone, match="sounddevice"):
        asyncio.run(record())


def test_a_microphone_that_breaks_is_an_error_and_not_the_end(on_path: Path) -> None:
    script = SPEAK.format(str(on_path / "speech.raw")) + "\nsys.exit('unplugged')"
    program(on_path, "arecord", script)
    with pytest.raises(SourceFailed, match="unplugged"):
        asyncio.run(record())


def test_the_recording_program_ends_with_its_use(on_path: Path) -> None:
    pid_file = on_path / "pid"
    script = f"import os\nopen({str(pid_file)!r}, 'w').write(str(os.getpid()))\n"
    script += SPEAK.format(str(on_path / "speech.raw"))
    program(on_path, "arecord", f"{script}\nsys.stdout.flush()\ntime.sleep(60)")

    async def scenario() -> None:
        async with microphone() as source:
            assert await anext(source.chunks()) == PCM[:1600]
            os.kill(int(pid_file.read_text()), 0)

    asyncio.run(scenario())
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_file.read_text()), 0)


def test_a_wav_file_in_a_pipe_may_go_on_for_longer_than_any_recording() -> None:
    file = io.BytesIO()
    write_wav(file, b"", 8000)

    async def scenario() -> None:
        with os.fdopen(in_pipe(file.getvalue()), "rb", buffering=0) as pipe:
            source = await PipeSource.open(pipe, 8000)
            wav = source._read.__self__  # type: ignore[attr-defined]
            # As if two days had passed.
            wav._taken = 2 * 48 * 3600 * 8000
            assert await all_of(source) == []

    asyncio.run(scenario())


def test_a_file_is_read_while_it_is_spoken_and_never_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "talk.wav"
    write_wav(path, PCM * 1000, 16_000)

    async def scenario() -> int:
        size = 0
        async with RecordingSource.open(path, is_live=False, tail_ms=120) as source:
            async for chunk in source.chunks():
                size += len(chunk)
        return size

    tracemalloc.start()
    try:
        assert asyncio.run(scenario()) == 1000 * len(PCM) + 2 * 1920
        assert tracemalloc.get_traced_memory()[1] < 2 << 20
    finally:
        tracemalloc.stop()


def test_a_file_that_is_cut_off_is_told_after_all_that_is_there(tmp_path: Path) -> None:
    path = tmp_path / "talk.wav"
    write_wav(path, PCM, 16_000)
    path.write_bytes(path.read_bytes()[:-3200])
    chunks: list[bytes] = []

    async def scenario() -> None:
        async with RecordingSource.open(path, is_live=False) as source:
            async for chunk in source.chunks():
                chunks.append(chunk)  # noqa: PERF401 it raises

    with pytest.raises(UnreadableRecording, match="cut off"):
        asyncio.run(scenario())
    assert b"".join(chunks) == PCM[:-3200]


def test_a_speaker_is_silent_while_the_process_is_stopped() -> None:
    async def scenario() -> None:
        source = RecordingSource(Recording(PCM, 16_000), is_live=True)
        chunks = source.chunks()
        await anext(chunks)
        # As with Ctrl-Z: nothing runs for a while.
        asyncio.get_running_loop().call_soon(time.sleep, 1.2)
        await anext(chunks)
        began = time.monotonic()
        for _ in range(5):
            await anext(chunks)
        assert time.monotonic() - began >= 0.24

    asyncio.run(scenario())


def test_a_pipe_without_anything_in_it_is_told() -> None:
    async def scenario() -> None:
        with os.fdopen(in_pipe(b""), "rb", buffering=0) as pipe:
            await PipeSource.open(pipe, 16_000)

    with pytest.raises(SourceFailed, match="empty"):
        asyncio.run(scenario())


def test_a_pipe_may_have_a_name(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)

    async def scenario() -> None:
        writing = asyncio.create_task(asyncio.to_thread(path.write_bytes, PCM))
        source = await PipeSource.open(path, 16_000)
        assert b"".join(await all_of(source)) == PCM
        await writing

    asyncio.run(scenario())


@pytest.mark.parametrize("kind", [str, Path])
def test_a_place_may_be_a_text_or_a_path(kind: type[str] | type[Path], tmp_path: Path) -> None:
    write_wav(tmp_path / "talk.wav", PCM, 16_000)

    async def scenario() -> None:
        async with RecordingSource.open(kind(tmp_path / "talk.wav"), is_live=False) as recording:
            assert b"".join(await all_of(recording)) == PCM
        pipe = await PipeSource.open(kind(tmp_path / "talk.wav"), 8000)
        assert b"".join(await all_of(pipe)) == PCM

    asyncio.run(scenario())


class Faulty:
    """A stream with an error that is not one of ours."""

    sample_rate = 16_000

    def read_frames(self, count: int) -> bytes:
        raise ValueError(f"no {count} frames")

    def close(self) -> None:
        """Close nothing."""


def test_whatever_a_reader_raises_is_raised_where_it_is_waited_for() -> None:
    source = RecordingSource(Faulty(), is_live=False)
    for _ in range(2):
        with pytest.raises(ValueError, match="no 32000 frames"):
            asyncio.run(all_of(source))
