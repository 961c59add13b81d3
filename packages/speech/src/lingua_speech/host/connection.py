"""The node's end of the socket to one worker process: whole frames in, whole frames out.

Long frames are received directly into their final buffer, without a copy. This module decides
nothing: frames, protocol errors and the end of the connection go to a `ConnectionHandler`.
"""

from __future__ import annotations

import asyncio
from typing import Protocol, cast

from lingua_speech.host import messages


class ConnectionHandler(Protocol):
    """Receives the events of one connection; a `WorkerProcess` in production."""

    def handle_frame(self, body: memoryview) -> None:
        """Handle a whole frame; the view is valid during this call only."""

    def handle_protocol_error(self, problem: str) -> None:
        """Handle data that is not a valid frame; the connection closes."""

    def handle_connection_lost(self) -> None:
        """Handle the end of the connection."""


class WorkerConnection(asyncio.BufferedProtocol):
    """The node's end of the socket."""

    def __init__(self, handler: ConnectionHandler) -> None:
        self._handler = handler
        self._assembler = messages.FrameAssembler(handler.handle_frame)
        self._transport: asyncio.Transport | None = None
        # Set when no more data will arrive.
        self.ended = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        self._transport = cast("asyncio.Transport", transport)

    @property
    def was_connected(self) -> bool:
        """Tell whether the connection was ever made."""
        return self._transport is not None

    def send(self, framed: bytearray) -> None:
        """Send a frame; does nothing after the end of the process, which is reported elsewhere."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(framed)

    def close(self) -> None:
        """Close the node's end."""
        if self._transport is not None:
            self._transport.abort()

    def get_buffer(self, _sizehint: int) -> memoryview:
        """Return the buffer for the next bytes."""
        return self._assembler.space()

    def buffer_updated(self, nbytes: int) -> None:
        """Process bytes that were written into the buffer."""
        try:
            self._assembler.arrived(nbytes)
        except messages.FrameTooLarge as error:
            self._handler.handle_protocol_error(f"a worker sent {error}")
            self.close()

    def eof_received(self) -> bool:
        """Close: a process that stops sending has ended or is of no more use."""
        return False

    def connection_lost(self, _exc: Exception | None) -> None:
        """Report the end of the connection."""
        self.ended.set()
        self._handler.handle_connection_lost()
