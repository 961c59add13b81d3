"""The node's end of the socket to one worker process: whole frames in, whole frames out.

It copies nothing but what the kernel gives: long frames are received where they stay. It decides
nothing: frames, a breach of the rules and the end go to the `Worker` that it belongs to.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from lingua_scheduler.speech.host import wire

if TYPE_CHECKING:
    from lingua_scheduler.speech.host.worker import Worker


class Link(asyncio.BufferedProtocol):
    """The node's end of the socket."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._assembler = wire.Assembler(worker.received)
        self._transport: asyncio.Transport | None = None
        # Nothing more will come.
        self.ended = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport."""
        self._transport = cast("asyncio.Transport", transport)

    @property
    def is_connected(self) -> bool:
        """Tell whether there was ever a connection."""
        return self._transport is not None

    def send(self, framed: bytearray) -> None:
        """Send a frame; nothing happens if the process is gone, as `wait` will tell that."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(framed)

    def close(self) -> None:
        """Close our end."""
        if self._transport is not None:
            self._transport.abort()

    def get_buffer(self, _sizehint: int) -> memoryview:
        """Return where to put what comes next."""
        return self._assembler.space()

    def buffer_updated(self, nbytes: int) -> None:
        """Take what has come."""
        try:
            self._assembler.arrived(nbytes)
        except wire.FrameTooLarge as error:
            self._worker.kill("died", f"a worker sent {error}")
            self.close()

    def eof_received(self) -> bool:
        """Close: a process that sends no more is gone, or as good as gone."""
        return False

    def connection_lost(self, _exc: Exception | None) -> None:
        """Tell that there is no way to the process any more."""
        self.ended.set()
        self._worker.link_lost()
