"""A stream as its handler sees it: its audio, its end, and partials that only grow."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lingua_node import Stream
from lingua_node.stream import STREAM_S_MAX
from lingua_wire.from_node import FromNode, StreamPartial
from lingua_wire.shared import PartialTranslation, PipelineConfig
from lingua_wire.to_node import StreamOpen
from node_peer import run

pytestmark = pytest.mark.unit


def opening(stream_id: str = "st1", **fields: Any) -> StreamOpen:
    filled: dict[str, Any] = {
        "session_id": "s1",
        "src_lang": "en",
        "tgt_langs": ("es",),
        "pipeline": PipelineConfig(use_asr=True, use_nmt=True, use_tts=True),
        "audio_format": "pcm16",
        "sample_rate": 16_000,
        "trace_id": "t1",
        **fields,
    }
    return StreamOpen(stream_id=stream_id, **filled)


def stream_with(sent: list[FromNode] | None = None, **fields: Any) -> Stream:
    return Stream(opening(**fields), (sent if sent is not None else []).append)


def test_the_iterator_gives_all_audio_once_and_ends_with_the_cut() -> None:
    async def scenario() -> None:
        stream = stream_with()
        given: list[bytes] = []

        async def listen() -> None:
            given.extend([audio async for audio in stream])

        task = asyncio.create_task(listen())
        stream.add(b"ab")
        await asyncio.sleep(0)
        stream.add(b"cd")
        # What arrives while the handler is busy comes in one piece.
        stream.add(b"ef")
        await asyncio.sleep(0)
        assert not task.done()
        stream.cut(4)
        await task
        assert given == [b"ab", b"cdef"]
        assert (stream.audio, stream.audio_bytes, stream.is_cut) == (b"abcdef", 4, True)

    run(scenario())


def test_audio_before_the_first_step_of_the_handler_is_not_lost() -> None:
    async def scenario() -> None:
        stream = stream_with()
        stream.add(b"ab")
        stream.cut(None)
        assert [audio async for audio in stream] == [b"ab"]
        assert stream.audio_bytes == 2

    run(scenario())


def test_its_length_is_known_and_bounded() -> None:
    async def scenario() -> None:
        stream = stream_with(sample_rate=8000)
        assert stream.add(bytes(16_000 * 59))
        assert stream.audio_ms == 59_000
        assert not stream.add(bytes(16_000 * (STREAM_S_MAX - 59) + 2))
        assert stream.audio_ms == 59_000

    run(scenario())


def test_audio_after_the_cut_is_ignored() -> None:
    async def scenario() -> None:
        stream = stream_with()
        stream.cut(0)
        assert stream.add(b"ab")
        assert stream.audio == b""

    run(scenario())


def test_partials_are_numbered_and_have_their_hints() -> None:
    async def scenario() -> None:
        sent: list[FromNode] = []
        stream = stream_with(sent)
        await stream.partial(stable="", unstable="he", upto_ms=300)
        await stream.partial(
            stable="hello.",
            unstable="wor",
            upto_ms=900,
            src_lang="en",
            translations={"es": ("hola.", "mun")},
            sentence_end_ms=700,
            is_complete=False,
        )
        assert sent == [
            StreamPartial(stream_id="st1", revision=1, upto_ms=300, unstable="he"),
            StreamPartial(
                stream_id="st1",
                revision=2,
                upto_ms=900,
                src_lang="en",
                stable="hello.",
                unstable="wor",
                translations=(PartialTranslation(tgt_lang="es", stable="hola.", unstable="mun"),),
                sentence_end_ms=700,
                is_complete=False,
            ),
        ]

    run(scenario())


def test_what_is_stable_must_not_change() -> None:
    async def scenario() -> None:
        stream = stream_with()
        await stream.partial(stable="one", upto_ms=1, translations={"es": ("uno", "")})
        with pytest.raises(ValueError, match="only grow"):
            await stream.partial(stable="on", upto_ms=2)
        with pytest.raises(ValueError, match="into es"):
            await stream.partial(stable="one", upto_ms=2, translations={"es": ("una", "")})
        # A language may be left out of a partial; it keeps what it had.
        await stream.partial(stable="one two", upto_ms=2)
        with pytest.raises(ValueError, match="into es"):
            await stream.partial(stable="one two", upto_ms=3, translations={"es": ("", "")})

    run(scenario())


@pytest.mark.parametrize("end", ["cut", "dropped"])
def test_nothing_is_reported_when_nobody_listens_any_more(end: str) -> None:
    async def scenario() -> None:
        sent: list[FromNode] = []
        stream = stream_with(sent)
        if end == "cut":
            stream.cut(None)
        else:
            stream.dropped = True
        await stream.partial(stable="late", upto_ms=1)
        assert sent == []

    run(scenario())
