"""The node's side of one WebSocket, and the outbox for messages to the scheduler."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lingua_wire.codec import ASSIGNMENTS, NODE_MESSAGES
from lingua_wire.from_node import FromNode
from lingua_wire.socket_client import Socket, SocketCodecs, open_socket
from lingua_wire.to_node import SchedulerToNode

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Sequence

NodeSocket = Socket[SchedulerToNode, FromNode]


async def open_node_socket(
    url: str,
    offered: Sequence[str],
    receive: Callable[[SchedulerToNode], None],
    *,
    silence_s: float,
    tls: ssl.SSLContext | None = None,
) -> NodeSocket:
    """Open a socket that ends by itself when the peer sends nothing for `silence_s`."""
    codecs = SocketCodecs(ASSIGNMENTS, NODE_MESSAGES, tuple(offered))
    return await open_socket(url, codecs, receive, silence_s=silence_s, tls=tls)


class Outbox:
    """Sends messages while the node is registered on a socket, and drops them otherwise."""

    def __init__(self) -> None:
        self._socket: NodeSocket | None = None

    @property
    def is_open(self) -> bool:
        """Tell whether the node is registered on an open socket."""
        return self._socket is not None

    def open(self, socket: NodeSocket) -> None:
        """Send on this socket from now on."""
        self._socket = socket

    def close(self) -> None:
        """Drop messages from now on."""
        self._socket = None

    def send(self, message: FromNode) -> None:
        """Send on the open socket; without one the message is dropped."""
        if self._socket is not None:
            self._socket.send(message)
