"""A WebSocket against raw peers: messages, refusals with their codes, and the end."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from edge.raw_peer import (
    BINARY,
    CLOSE,
    LOOPS,
    PING,
    PONG,
    TEXT,
    Echo,
    Peer,
    a_door,
    a_peer,
    masked,
    run,
    until,
)
from lingua_scheduler.edge.websocket import READ_BUFFER_BYTES, SLOW_READER, WebSocketLimits

if TYPE_CHECKING:
    from lingua_scheduler.edge.tcp_listener import RequestHead
    from lingua_scheduler.edge.websocket import WebSocket

pytestmark = pytest.mark.unit

both_loops = pytest.mark.parametrize("loop", LOOPS)
CONTINUATION = 0
SMALL = WebSocketLimits(message_bytes_max=1000)
# A peer that runs in a process of its own, answers pings, and can be frozen.
LIVE_PEER = """
import asyncio, sys, picows
async def main():
    transport, _ = await picows.ws_connect(picows.WSListener, sys.argv[1])
    print("open", flush=True)
    await transport.wait_disconnected()
asyncio.run(main())
"""


@both_loops
@pytest.mark.parametrize("size", [0, 1, 125, 126, 8192, 8193, 65535, 65536, 200_000])
def test_messages_of_any_size_go_both_ways_unchanged(loop: str, size: int) -> None:
    async def scenario() -> None:
        async with a_door() as door, a_peer(door) as peer:
            for kind in (TEXT, BINARY):
                peer.frame(kind, os.urandom(size))
                assert await peer.hear() == (kind, door.guests[0].got[-1])
                assert len(door.guests[0].got[-1]) == size

    run(scenario(), loop)


def test_frames_sent_together_with_the_upgrade_request_are_not_lost() -> None:
    async def scenario() -> None:
        async with a_door() as door:
            peer = await Peer.connect(door.port)
            peer.request()
            peer.send(b"".join(masked(BINARY, bytes([n]) * 5000) for n in range(9)))
            assert (await peer.answer())[0] == 101
            assert [await peer.hear() for _ in range(9)] == [
                (BINARY, bytes([n]) * 5000) for n in range(9)
            ]
            await peer.close()

    run(scenario())


@both_loops
def test_fragments_are_assembled_and_control_frames_may_come_between(loop: str) -> None:
    async def scenario() -> None:
        async with a_door() as door, a_peer(door) as peer:
            peer.frame(TEXT, b"one ", fin=False)
            peer.frame(PING, b"still there?")
            peer.frame(CONTINUATION, b"two ", fin=False)
            peer.frame(CONTINUATION, b"", fin=False)
            peer.frame(CONTINUATION, b"three")
            assert await peer.hear() == (PONG, b"still there?")
            assert await peer.hear() == (TEXT, b"one two three")
            peer.frame(BINARY, b"\x00", fin=False)
            peer.frame(CONTINUATION, b"\xff")
            assert await peer.hear() == (BINARY, b"\x00\xff")

    run(scenario(), loop)


def test_a_frame_that_trickles_in_byte_by_byte_is_taken() -> None:
    async def scenario() -> None:
        async with a_door() as door, a_peer(door) as peer:
            for byte in masked(TEXT, b"slowly but surely" * 10):
                peer.send(bytes([byte]))
                await asyncio.sleep(0)
            assert await peer.hear() == (TEXT, b"slowly but surely" * 10)

    run(scenario())


@both_loops
def test_a_connection_keeps_no_headers_and_a_buffer_of_one_chunk(loop: str) -> None:
    async def scenario() -> None:
        async with a_door() as door, a_peer(door) as peer:
            # 100 ms of pcm16 at 16 kHz in a message of the usual size.
            for _ in range(3):
                peer.frame(BINARY, bytes(3200 + 150))
                await peer.hear()
            wire = door.guests[0].wire
            picows = wire._picows
            assert not picows.request.headers
            assert not picows.response.headers
            protocol = wire._transport.get_protocol()
            assert len(protocol.get_buffer(-1)) == 2 * (READ_BUFFER_BYTES - 256)

    run(scenario(), loop)


def test_text_that_is_not_utf8_is_left_to_the_receiver() -> None:
    async def scenario() -> None:
        async with a_door() as door, a_peer(door) as peer:
            peer.frame(TEXT, b"\xff\xfe")
            assert await peer.hear() == (TEXT, b"\xff\xfe")

    run(scenario())


@both_loops
@pytest.mark.parametrize(
    "beyond",
    [
        masked(BINARY, b"x" * 1001),
        masked(BINARY, b"x" * 900, fin=False) + masked(CONTINUATION, b"x" * 101),
        masked(TEXT, b"x" * 900, fin=False) + masked(CONTINUATION, b"x" * 101, fin=False),
        # Only the header of a frame of 8 GB, and then a complete frame of 2 MB.
        b"\x82\xff" + (1 << 33).to_bytes(8, "big") + bytes(4),
        masked(BINARY, b"x" * 2_000_000),
    ],
    ids=["frame", "last fragment", "middle fragment", "announced", "streamed"],
)
def test_a_message_beyond_the_limit_ends_the_wire_with_1009(loop: str, beyond: bytes) -> None:
    async def scenario() -> None:
        async with a_door(limits=SMALL) as door, a_peer(door) as peer:
            peer.frame(BINARY, b"x" * 1000)
            assert await peer.hear() == (BINARY, b"x" * 1000)
            peer.send(beyond)
            assert (await peer.hear_close())[0] == 1009
            peer.frame(CLOSE, (1009).to_bytes(2, "big"))
            assert await peer.ended() == b""
            await peer.close()
            await until(lambda: door.guests[0].losses == 1)
            assert door.guests[0].got == [b"x" * 1000]
            assert door.guests[0].wire.close_code == 1009

    run(scenario(), loop)


@both_loops
def test_a_peer_that_sends_on_after_1009_is_heard_out_and_not_reset(loop: str) -> None:
    async def scenario() -> None:
        async with a_door(limits=SMALL) as door, a_peer(door) as peer:
            peer.send(b"\x82\xff" + (1 << 33).to_bytes(8, "big") + bytes(4))
            assert (await peer.hear_close())[0] == 1009
            # picows would close after 10 ms, and later data would be answered by a reset.
            for _ in range(10):
                peer.send(bytes(50_000))
                await peer.writer.drain()
                await asyncio.sleep(0.01)
            assert await peer.reader.read() == b""
            assert door.front.connections == 1
            await peer.close()
            await until(lambda: door.front.connections == 0)

    run(scenario(), loop)


@both_loops
@pytest.mark.parametrize(
    "broken",
    [
        masked(TEXT, b"x", rsv=4),
        masked(BINARY, b"x", rsv=2),
        masked(PING, b"x", rsv=1),
        masked(TEXT, b"x", fin=False, rsv=4),
        masked(CONTINUATION, b"x"),
        masked(TEXT, b"x", fin=False) + masked(TEXT, b"x"),
        masked(PING, b"x", fin=False),
        masked(PING, b"x" * 126),
        masked(3, b"x"),
        b"\x82\x01x",
        masked(CLOSE, b"x"),
        *(masked(CLOSE, code.to_bytes(2, "big")) for code in (0, 999, 1004, 1005, 1006, 1015)),
        *(masked(CLOSE, code.to_bytes(2, "big")) for code in (2000, 5000, 65535)),
    ],
    ids=[
        "rsv1",
        "rsv2",
        "rsv3 on a control frame",
        "rsv1 on a fragment",
        "continuation of nothing",
        "message within a message",
        "fragmented ping",
        "long ping",
        "unknown opcode",
        "not masked",
        "close of one byte",
        *(f"close {code}" for code in (0, 999, 1004, 1005, 1006, 1015, 2000, 5000, 65535)),
    ],
)
def test_a_broken_frame_ends_the_wire_with_1002(loop: str, broken: bytes) -> None:
    async def scenario() -> None:
        async with a_door() as door, a_peer(door) as peer:
            peer.send(broken + masked(TEXT, b"never seen"))
            assert (await peer.hear_close())[0] == 1002
            peer.frame(CLOSE, (1002).to_bytes(2, "big"))
            assert await peer.ended() == b""
            await peer.close()
            await until(lambda: door.guests[0].losses == 1)
            assert door.guests[0].got == []
            assert door.guests[0].wire.close_code == 1002

    run(scenario(), loop)


@both_loops
@pytest.mark.parametrize("code", [1000, 1001, 1012, 3000, 4000, 4408, 4999])
def test_a_close_code_of_ours_is_seen_by_the_peer_exactly(loop: str, code: int) -> None:
    async def scenario() -> None:
        async with a_door() as door, a_peer(door) as peer:
            door.guests[0].wire.close(code, "because")
            door.guests[0].wire.send_text(b"too late")
            door.guests[0].wire.close(4001, "twice")
            assert await peer.hear() == (CLOSE, code.to_bytes(2, "big") + b"because")
            peer.frame(TEXT, b"not delivered any more")
            peer.frame(CLOSE, code.to_bytes(2, "big"))
            assert await peer.ended() == b""
            await until(lambda: door.guests[0].losses == 1)
            assert door.guests[0].got == []
            assert door.guests[0].wire.close_code == code

    run(scenario(), loop)


def test_a_peer_that_does_not_answer_a_close_is_cut_off() -> None:
    async def scenario() -> None:
        async with a_door() as door, a_peer(door) as peer:
            door.guests[0].wire.close(4001, "go")
            assert await peer.hear_close() == (4001, "go")
            assert await peer.ended() == b""
            await until(lambda: door.guests[0].losses == 1)

    run(scenario())


def test_a_reason_that_is_too_long_is_cut_between_characters() -> None:
    async def scenario() -> None:
        async with a_door() as door, a_peer(door) as peer:
            door.guests[0].wire.close(4001, "é" * 100)
            assert await peer.hear_close() == (4001, "é" * 61)

    run(scenario())


@both_loops
@pytest.mark.parametrize("payload", [b"", b"\x03\xe8bye", b"\x0f\xa1", b"\x13\x87now"])
def test_the_peers_close_is_answered_with_its_own_code(loop: str, payload: bytes) -> None:
    async def scenario() -> None:
        async with a_door() as door, a_peer(door) as peer:
            peer.frame(CLOSE, payload)
            peer.frame(TEXT, b"after the end")
            assert await peer.hear() == (CLOSE, payload[:2])
            assert await peer.ended() == b""
            await until(lambda: door.guests[0].losses == 1)
            assert door.guests[0].got == []

    run(scenario(), loop)


@both_loops
def test_a_connection_that_breaks_off_is_lost_once_with_1006(loop: str) -> None:
    async def scenario() -> None:
        async with a_door() as door:
            for how in ("reset", "end of stream", "abort"):
                peer = await Peer.connect(door.port)
                await peer.upgrade()
                guest = door.guests[-1]
                if how == "reset":
                    linger = b"\x01\x00\x00\x00\x00\x00\x00\x00"
                    sock = peer.writer.get_extra_info("socket")
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                elif how == "abort":
                    guest.wire.abort()
                    guest.wire.abort()
                await peer.close()
                await until(lambda guest=guest: guest.losses == 1)  # type: ignore[misc]
                assert guest.wire.close_code == 1006
                guest.wire.send_binary(b"to nobody")
                guest.wire.close(1000, "to nobody")
                guest.wire.abort()
                assert guest.wire.buffered == 0

    run(scenario(), loop)


def test_pings_are_answered_and_unasked_pongs_ignored() -> None:
    async def scenario() -> None:
        async with a_door() as door, a_peer(door) as peer:
            peer.frame(PONG, b"unasked")
            peer.frame(PING)
            peer.frame(PING, b"p" * 125)
            assert await peer.hear() == (PONG, b"")
            assert await peer.hear() == (PONG, b"p" * 125)
            assert door.guests[0].got == []

    run(scenario())


@pytest.mark.parametrize(
    "empty",
    [masked(PING, b""), masked(PONG, b""), masked(CONTINUATION, b"", fin=False)],
    ids=["pings", "pongs", "empty fragments"],
)
def test_a_flood_of_frames_that_say_nothing_ends_with_1008(empty: bytes) -> None:
    async def scenario() -> None:
        async with a_door() as door, a_peer(door) as peer:
            peer.frame(TEXT, b"x", fin=False)
            peer.send(empty * 300)
            assert (await peer.hear_close())[0] == 1008

    run(scenario())


class Failing(Echo):
    """Raises for the word "fail", and when it is lost."""

    def text(self, data: bytes) -> None:
        if data == b"fail":
            raise ZeroDivisionError
        super().text(data)

    def lost(self) -> None:
        super().lost()
        raise LookupError


@both_loops
def test_an_error_of_a_receiver_ends_its_wire_with_1011_and_no_other(loop: str) -> None:
    guests: list[Failing] = []

    def welcome(wire: WebSocket, head: RequestHead) -> Failing:
        guests.append(Failing(wire, head))
        return guests[-1]

    async def scenario() -> None:
        async with a_door(accept=welcome) as door, a_peer(door) as bad, a_peer(door) as good:
            bad.send(masked(TEXT, b"fail") + masked(TEXT, b"never seen"))
            assert await bad.hear_close() == (1011, "internal error")
            bad.frame(CLOSE, (1011).to_bytes(2, "big"))
            assert await bad.ended() == b""
            await until(lambda: len(door.errors) == 2)
            assert [type(error) for error in door.errors] == [ZeroDivisionError, LookupError]
            assert guests[0].got == []
            assert guests[0].losses == 1
            assert len(door.front.websockets) == 1
            good.frame(TEXT, b"unharmed")
            assert await good.hear() == (TEXT, b"unharmed")

    run(scenario(), loop)


class Upper(Echo):
    """The second phase of a conversation."""

    def text(self, data: bytes) -> None:
        self.got.append(data)
        self.wire.send_text(data.upper())


def test_a_receiver_may_be_replaced_between_two_messages_of_one_read() -> None:
    class Handshake(Echo):
        def text(self, data: bytes) -> None:
            self.got.append(data)
            self.wire.receiver = phases[1]

    phases: list[Echo] = []

    def welcome(wire: WebSocket, head: RequestHead) -> Echo:
        phases.extend([Handshake(wire, head), Upper(wire, head)])
        return phases[0]

    async def scenario() -> None:
        async with a_door(accept=welcome) as door:
            async with a_peer(door) as peer:
                peer.send(masked(TEXT, b"hello") + masked(TEXT, b"speech"))
                assert await peer.hear() == (TEXT, b"SPEECH")
            await until(lambda: phases[1].losses == 1)
            assert [phase.got for phase in phases] == [[b"hello"], [b"speech"]]
            assert phases[0].losses == 0

    run(scenario())


@both_loops
def test_a_slow_reader_is_dropped_with_bounded_memory_while_others_go_on(loop: str) -> None:
    limits = WebSocketLimits(send_bytes_max=100_000)

    async def scenario() -> None:
        async with a_door(limits=limits) as door, a_peer(door) as slow, a_peer(door) as good:
            slow.writer.transport.pause_reading()  # type: ignore[attr-defined]
            guest, most, sent = door.guests[0], 0, 0
            while not guest.losses:
                assert sent < 200_000_000
                for _ in range(8):
                    guest.wire.send_binary(bytes(4000))
                    sent += 4000
                    most = max(most, guest.wire.buffered)
                good.frame(BINARY, sent.to_bytes(8, "big"))
                assert await good.hear() == (BINARY, sent.to_bytes(8, "big"))
            # The bound, and what one turn of the loop adds before the kernel was offered the bytes.
            assert 100_000 < most < 100_000 + 8 * 4010
            assert not guest.wire.is_open
            assert guest.wire.close_code == SLOW_READER
            assert guest.wire not in door.front.websockets
            await until(lambda: door.front.connections == 1)
            good.frame(TEXT, b"still here")
            assert await good.hear() == (TEXT, b"still here")
            assert guest.losses == 1

    run(scenario(), loop)


@both_loops
def test_a_slow_reader_that_reads_on_soon_enough_learns_why(loop: str) -> None:
    async def scenario() -> None:
        async with a_door() as door, a_peer(door) as peer:
            peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
            while door.guests[0].wire.is_open:
                door.guests[0].wire.send_binary(bytes(4000))
            assert door.guests[0].losses == 0, "the loss came from within a send"
            peer.writer.transport.resume_reading()  # type: ignore[attr-defined]
            assert await peer.hear_close() == (SLOW_READER, "slow reader")

    run(scenario(), loop)


def test_a_peer_that_pings_and_does_not_read_the_pongs_is_bounded_too() -> None:
    limits = WebSocketLimits(send_bytes_max=1000)

    async def scenario() -> None:
        async with a_door(limits=limits) as door, a_peer(door) as peer:
            guest = door.guests[0]
            peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
            while guest.wire.buffered + 250 < 1000:
                guest.wire.send_binary(bytes(200))
            peer.send(masked(PING, b"p" * 125) * 50)
            await until(lambda: guest.losses == 1)
            assert guest.wire.close_code == SLOW_READER

    run(scenario())


@both_loops
def test_large_messages_of_a_backlog_keep_their_headers(loop: str) -> None:
    limits = WebSocketLimits(send_bytes_max=1 << 26)
    sizes = range(8000, 64_000, 250)

    async def scenario() -> None:
        async with a_door(limits=limits) as door, a_peer(door) as peer:
            peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
            for size in sizes:
                door.guests[0].wire.send_binary(bytes([size % 251]) * size)
            assert door.guests[0].wire.buffered > 100_000
            peer.writer.transport.resume_reading()  # type: ignore[attr-defined]
            for size in sizes:
                assert await peer.hear() == (BINARY, bytes([size % 251]) * size)

    run(scenario(), loop)


@both_loops
def test_a_paused_wire_reads_nothing_until_resumed(loop: str) -> None:
    limits = WebSocketLimits(ping_ms=50, dead_ms=150)

    async def scenario() -> None:
        async with a_door(limits=limits) as door, a_peer(door) as peer:
            wire = door.guests[0].wire
            wire.pause()
            peer.frame(TEXT, b"patience")
            checks = door.front.keep_alive.checks
            await until(lambda: door.front.keep_alive.checks >= checks + 3)
            assert door.guests[0].got == []
            assert wire.is_open, "the silence of a paused wire was held against its peer"
            wire.resume()
            assert await peer.hear() == (TEXT, b"patience")

    run(scenario(), loop)


def test_a_quiet_peer_is_pinged_and_lives_as_long_as_it_answers() -> None:
    limits = WebSocketLimits(ping_ms=100, dead_ms=600)

    async def scenario() -> None:
        async with a_door(limits=limits) as door, a_peer(door) as peer:
            for _ in range(6):
                assert await peer.hear() == (PING, b"")
                peer.frame(PONG)
            assert door.guests[0].losses == 0
            assert door.front.keep_alive.found_dead == 0

    run(scenario())


def test_a_message_on_its_way_is_a_sign_of_life() -> None:
    limits = WebSocketLimits(ping_ms=10_000, dead_ms=10_000)

    async def scenario() -> None:
        async with a_door(limits=limits) as door, a_peer(door) as peer:
            wire = door.guests[0].wire
            before = wire.last_received
            peer.send(masked(TEXT, b"only the first half")[:12])
            await until(lambda: wire.last_received > before)
            assert door.guests[0].got == []

    run(scenario())


async def answer_pings(peer: Peer) -> None:
    while True:
        assert await peer.hear() == (PING, b"")
        peer.frame(PONG)


@both_loops
def test_a_frozen_process_is_found_dead_and_no_earlier(loop: str) -> None:
    limits = WebSocketLimits(ping_ms=200, dead_ms=900)

    async def scenario() -> None:
        async with a_door(limits=limits) as door, a_peer(door) as alive:
            # From the beginning: the other process may take long to start.
            answering = asyncio.ensure_future(answer_pings(alive))
            with frozen_later(door.port) as process:
                await until(lambda: len(door.guests) == 2)
                wire = door.guests[1].wire
                opened = wire.last_ping
                await until(lambda: opened < wire.last_ping < wire.last_received)
                process.send_signal(signal.SIGSTOP)
                await until(lambda: door.guests[1].losses > 0)
                assert time.monotonic() - wire.last_received >= 0.9
            assert door.front.keep_alive.found_dead == 1
            assert door.guests[0].losses == 0
            answering.cancel()

    run(scenario(), loop)


class frozen_later:  # noqa: N801 - used as a statement
    """A real client process, which is always ended."""

    def __init__(self, port: int) -> None:
        command = [sys.executable, "-c", LIVE_PEER, f"ws://127.0.0.1:{port}/ws"]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)

    def __enter__(self) -> subprocess.Popen[bytes]:
        return self.process

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()


@both_loops
def test_a_stall_of_our_own_loop_is_not_held_against_the_peers(loop: str) -> None:
    limits = WebSocketLimits(ping_ms=100, dead_ms=1500)

    async def scenario() -> None:
        # The peer is in this process: what else the machine does cannot silence it alone.
        async with a_door(limits=limits) as door, a_peer(door) as peer:
            answering = asyncio.ensure_future(answer_pings(peer))
            wire = door.guests[0].wire
            opened = wire.last_received
            await until(lambda: wire.last_received > opened)
            time.sleep(2.0)  # noqa: ASYNC251 - the stall itself
            checks = door.front.keep_alive.checks
            await until(lambda: door.front.keep_alive.checks >= checks + 4)
            assert door.front.keep_alive.found_dead == 0
            assert door.guests[0].losses == 0
            answering.cancel()

    run(scenario(), loop)
