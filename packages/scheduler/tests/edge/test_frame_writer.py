"""Messages in parts and large messages over real sockets: exact bytes, and slow readers."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from edge.raw_peer import BINARY, LOOPS, TEXT, a_door, a_peer, run, until
from lingua_scheduler.edge.frame_writer import BEHIND_PART
from lingua_scheduler.edge.frames import COPIED_BYTES_MAX
from lingua_scheduler.edge.websocket import SLOW_READER, WebSocketLimits
from lingua_wire.codec import SERVER_MESSAGES, EncodedAudio, with_audio
from lingua_wire.to_client import TranslationResult

if TYPE_CHECKING:
    from edge.raw_peer import Echo, Peer
    from lingua_scheduler.edge.websocket import WebSocket

pytestmark = pytest.mark.unit

both_loops = pytest.mark.parametrize("loop", LOOPS)
LIMITS = WebSocketLimits(send_bytes_max=100_000)
# More than the kernel buffers for a peer that does not read.
LARGE = 8_000_000


def stops_reading(peer: Peer) -> None:
    peer.writer.transport.pause_reading()  # type: ignore[attr-defined]


def reads_on(peer: Peer) -> None:
    peer.writer.transport.resume_reading()  # type: ignore[attr-defined]


@both_loops
@pytest.mark.parametrize("is_binary", [False, True])
def test_a_message_in_parts_is_the_message(loop: str, is_binary: bool) -> None:
    limits = WebSocketLimits(send_bytes_max=1 << 26)
    sizes = (0, 1, 124, 125, 126, 8192, COPIED_BYTES_MAX - 1, COPIED_BYTES_MAX, 3_000_000)

    async def scenario() -> None:
        async with a_door(limits=limits) as door, a_peer(door) as peer:
            wire, kind = door.guests[0].wire, BINARY if is_binary else TEXT
            said = []
            for size in sizes:
                for parts in ((b"", os.urandom(size), b""), (b"{", os.urandom(size), b"", b"}")):
                    wire.send_text(b"before")
                    wire.send_parts(parts, is_binary=is_binary)
                    wire.send_binary(b"after")
                    said += [(TEXT, b"before"), (kind, b"".join(parts)), (BINARY, b"after")]
            for message in said:
                assert await peer.hear() == message
            # Each alone too, when nothing else is being sent.
            for size in sizes:
                parts = (b"x", os.urandom(size))
                wire.send_parts(parts, is_binary=is_binary)
                assert await peer.hear() == (kind, b"".join(parts))

    run(scenario(), loop)


@both_loops
@pytest.mark.parametrize("is_binary", [False, True])
def test_a_result_with_shared_sound_arrives_as_one_that_was_sent_whole(
    loop: str, is_binary: bool
) -> None:
    async def scenario() -> None:
        async with a_door(limits=LIMITS) as door, a_peer(door) as one, a_peer(door) as two:
            sound, codec = EncodedAudio(os.urandom(200_000)), SERVER_MESSAGES[is_binary]
            for guest in door.guests:
                guest.wire.send_parts(
                    with_audio(codec.encode(result()), sound, is_binary=is_binary),
                    is_binary=is_binary,
                )
            for peer in (one, two):
                _, data = await peer.hear()
                assert codec.decode(data) == result(sound.raw)

    run(scenario(), loop)


def result(audio: bytes = b"") -> TranslationResult:
    return TranslationResult(
        session_id="s", utterance_index=0, job_id="j", text_asr="a", text_translated="b",
        tts_audio=audio, tts_format="pcm16", trace_id="t",
    )  # fmt: skip


@both_loops
@pytest.mark.parametrize("in_parts", [False, True])
def test_one_message_larger_than_the_bound_is_no_fault_of_who_reads(
    loop: str, in_parts: bool
) -> None:
    async def scenario() -> None:
        async with a_door(limits=LIMITS) as door, a_peer(door) as peer:
            wire = door.guests[0].wire
            for number in range(3):
                large = bytes([number]) * LARGE
                send(wire, large, in_parts=in_parts)
                # Messages that follow while it is being sent are small, as usual.
                wire.send_text(b"small")
                assert wire.is_behind
                assert await peer.hear() == (BINARY, large)
                assert await peer.hear() == (TEXT, b"small")
                await until(lambda: wire.buffered == 0)
                assert not wire.is_behind
            assert wire.is_open

    run(scenario(), loop)


def send(wire: WebSocket, data: bytes, *, in_parts: bool) -> None:
    if in_parts:
        wire.send_parts((data[:10], data[10:]), is_binary=True)
    else:
        wire.send_binary(data)


@both_loops
@pytest.mark.parametrize("in_parts", [False, True])
@pytest.mark.parametrize("size", [4000, LARGE])
def test_who_never_reads_is_dropped_whatever_the_size_of_messages(
    loop: str, in_parts: bool, size: int
) -> None:
    async def scenario() -> None:
        async with a_door(limits=LIMITS) as door, a_peer(door) as peer:
            stops_reading(peer)
            guest = door.guests[0]
            await flood(guest, size, in_parts=in_parts)
            assert guest.wire.close_code == SLOW_READER

    run(scenario(), loop)


async def flood(guest: Echo, size: int, *, in_parts: bool) -> None:
    """Send until the peer is dropped; it uses a bounded part of the memory of one message."""
    sent, most = 0, 0
    while guest.wire.is_open:
        assert sent < 100_000_000
        send(guest.wire, bytes(size), in_parts=in_parts)
        sent += size
        most = max(most, guest.wire.buffered)
        await until(lambda: guest.wire._writer.is_empty)
    assert most <= LIMITS.send_bytes_max + 2 * size + 1000


def test_who_is_behind_is_known_before_it_is_dropped() -> None:
    async def scenario() -> None:
        async with a_door(limits=LIMITS) as door, a_peer(door) as peer:
            stops_reading(peer)
            wire = door.guests[0].wire
            while not wire.is_behind:
                assert wire.buffered <= LIMITS.send_bytes_max // BEHIND_PART
                wire.send_binary(bytes(4000))
                await until(lambda: wire._writer.is_empty)
            assert wire.is_open
            reads_on(peer)
            await until(lambda: not wire.is_behind)
            assert wire.is_open

    run(scenario())


def test_the_bound_is_as_before_once_a_large_message_is_out() -> None:
    async def scenario() -> None:
        async with a_door(limits=LIMITS) as door, a_peer(door) as peer:
            wire = door.guests[0].wire
            wire.send_binary(bytes(LARGE))
            assert (await peer.hear())[1] == bytes(LARGE)
            wire.send_text(b"next")
            assert await peer.hear() == (TEXT, b"next")
            stops_reading(peer)
            await flood(door.guests[0], 4000, in_parts=False)

    run(scenario())
