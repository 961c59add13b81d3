"""The node's end of the socket to a worker: frames, protocol errors and the end."""

from __future__ import annotations

import asyncio
import socket

import pytest

from host.worker_pools import run
from lingua_speech.host import messages
from lingua_speech.host.connection import WorkerConnection

pytestmark = pytest.mark.unit


class Handler:
    """Records the events of a connection."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.problems: list[str] = []
        self.losses = 0

    def handle_frame(self, body: memoryview) -> None:
        self.frames.append(bytes(body))

    def handle_protocol_error(self, problem: str) -> None:
        self.problems.append(problem)

    def handle_connection_lost(self) -> None:
        self.losses += 1


async def connected() -> tuple[Handler, WorkerConnection, socket.socket]:
    ours, theirs = socket.socketpair()
    handler = Handler()
    connection = WorkerConnection(handler)
    assert not connection.was_connected
    loop = asyncio.get_running_loop()
    await loop.create_unix_connection(lambda: connection, sock=ours)
    assert connection.was_connected
    return handler, connection, theirs


def test_frames_pass_in_both_directions_until_the_end() -> None:
    async def scenario() -> None:
        handler, connection, theirs = await connected()
        framed = messages.frame(messages.PartialText(1, "text"))
        theirs.sendall(framed * 2)
        connection.send(framed)
        theirs.settimeout(0)
        assert await asyncio.get_running_loop().sock_recv(theirs, 1000) == bytes(framed)
        theirs.close()
        await connection.ended.wait()
        body = bytes(framed[messages.HEADER.size :])
        assert (handler.frames, handler.problems, handler.losses) == ([body, body], [], 1)
        # Sending after the end has no effect.
        connection.send(framed)

    run(scenario())


def test_a_frame_that_is_too_large_is_an_error_and_ends_the_connection() -> None:
    async def scenario() -> None:
        handler, connection, theirs = await connected()
        theirs.sendall(messages.HEADER.pack(messages.FRAME_BYTES_MAX + 1))
        await connection.ended.wait()
        [problem] = handler.problems
        assert "a worker sent a frame of" in problem
        assert (handler.frames, handler.losses) == ([], 1)
        theirs.close()

    run(scenario())
