"""The reference of `lingua bench live`: the same hops with nothing in between.

A message of an utterance's size goes client -> relay -> node -> relay -> client, one of a result's
size comes back: the sockets' share of the work, in the same run and on the same machine, so that
ratios outlive its noise. The relay is a process of its own; the other two ends are here and run in
the processes of the clients and of the nodes.
"""

from __future__ import annotations

import asyncio
import signal
from time import monotonic
from typing import TYPE_CHECKING, Final

import uvloop
from picows import WSFrame, WSListener, WSMsgType, WSTransport, ws_connect, ws_create_server

from lingua_bench.live_speaker import PICOWS_LOG

if TYPE_CHECKING:
    from collections.abc import Callable

    from picows import WSUpgradeRequest

NODE_PATH, CLIENT_PATH = "/node", "/client"
REQUEST_BYTES, ANSWER_BYTES = 2300, 600
ID_BYTES: Final = 4
WAIT_S: Final = 10.0


class BareRelay:
    """Forwards messages of clients to the node, and its answers back."""

    def __init__(self) -> None:
        self._node: WSTransport | None = None
        # By the number that travels with each message.
        self._clients: dict[bytes, WSTransport] = {}

    def listener(self, request: WSUpgradeRequest) -> WSListener:
        """Return the listener of a new connection."""
        return NodeSide(self) if request.path == NODE_PATH.encode() else ClientSide(self)

    def add_node(self, transport: WSTransport) -> None:
        """Register the node."""
        self._node = transport

    def add_client(self, transport: WSTransport) -> bytes:
        """Register a client and return its number."""
        number = len(self._clients).to_bytes(ID_BYTES, "big")
        self._clients[number] = transport
        return number

    def to_node(self, data: bytes) -> None:
        """Forward a message."""
        if self._node is not None:
            self._node.send(WSMsgType.BINARY, data)

    def to_client(self, data: bytes) -> None:
        """Send an answer back."""
        self._clients[data[:ID_BYTES]].send(WSMsgType.BINARY, data[ID_BYTES:])


class ClientSide(WSListener):
    """A client's connection at the relay."""

    def __init__(self, relay: BareRelay) -> None:
        self._relay = relay

    def on_ws_connected(self, transport: WSTransport) -> None:
        """Get a number."""
        self._number = self._relay.add_client(transport)

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:  # noqa: ARG002
        """Forward a message to the node."""
        if frame.msg_type is WSMsgType.BINARY:
            self._relay.to_node(self._number + frame.get_payload_as_bytes())


class NodeSide(WSListener):
    """The node's connection at the relay."""

    def __init__(self, relay: BareRelay) -> None:
        self._relay = relay

    def on_ws_connected(self, transport: WSTransport) -> None:
        """Register this connection."""
        self._relay.add_node(transport)

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:  # noqa: ARG002
        """Send an answer back to its client."""
        if frame.msg_type is WSMsgType.BINARY:
            self._relay.to_client(frame.get_payload_as_bytes())


class BareNode(WSListener):
    """The other end of the node's connection: answers at once."""

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        """Send the beginning back, in the size of a result."""
        if frame.msg_type is WSMsgType.BINARY:
            transport.send(WSMsgType.BINARY, frame.get_payload_as_bytes()[:ANSWER_BYTES])


class BareClient(WSListener):
    """The other end of a client's connection: keeps so many messages in progress."""

    def __init__(self, each: int, on_answer: Callable[[float], None]) -> None:
        self.is_stopped = False
        self._each = each
        # Receives the duration of each round trip.
        self._on_answer = on_answer
        self._sent_at: list[float] = []
        self._request = bytes(REQUEST_BYTES)

    def on_ws_connected(self, transport: WSTransport) -> None:
        """Send the first messages."""
        for _ in range(self._each):
            self._send(transport)

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        """Check that an answer is in order, and send the next message."""
        if frame.msg_type is WSMsgType.BINARY:
            self._on_answer(monotonic() - self._sent_at.pop(0))
            if not self.is_stopped:
                self._send(transport)

    def _send(self, transport: WSTransport) -> None:
        self._sent_at.append(monotonic())
        transport.send(WSMsgType.BINARY, self._request)


async def connect_bare(listener: WSListener, url: str) -> WSTransport:
    """Connect one of the two ends."""
    async with asyncio.timeout(WAIT_S):
        transport, _ = await ws_connect(lambda: listener, url, logger_name=PICOWS_LOG)
    return transport


async def serve() -> None:
    """Relay until stopped; the first line of output is the address."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    server = await ws_create_server(
        BareRelay().listener, "127.0.0.1", 0, logger_name=PICOWS_LOG, read_buffer_init_size=4096
    )
    port = server.sockets[0].getsockname()[1]
    print(f"ws://127.0.0.1:{port}", flush=True)  # noqa: T201 what the starter waits for
    await stopped.wait()
    server.close()


if __name__ == "__main__":
    uvloop.run(serve())
