"""The phase of a socket between its first message and the answer, while the store is asked.

Messages that arrive meanwhile are buffered and delivered afterwards. Peers need not wait for the
answer, but the messages that they send before it are bounded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lingua_wire.codes import CloseCode

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from lingua_scheduler.edge.websocket import WebSocket

MESSAGES_MAX = 256
BYTES_MAX = 4 << 20


class EarlyBuffer:
    """Buffers the messages of a WebSocket until the next phase can receive them."""

    messages_max = MESSAGES_MAX

    def __init__(self, wire: WebSocket) -> None:
        self._wire = wire
        self._early: list[tuple[bool, bytes]] = []
        self._bytes = 0
        # The peer disconnected before it got an answer.
        self.is_lost = False

    def text(self, data: bytes) -> None:
        """Buffer a text message."""
        self._keep(is_text=True, data=data)

    def binary(self, data: bytes) -> None:
        """Buffer a binary message."""
        self._keep(is_text=False, data=data)

    def lost(self) -> None:
        """Note that the peer disconnected."""
        self.is_lost = True

    def deliver(self) -> None:
        """Deliver the buffered messages; each may change the receiver of the next one."""
        for is_text, data in self._early:
            if self._wire.is_open:
                receiver = self._wire.receiver
                (receiver.text if is_text else receiver.binary)(data)

    async def close_unless_answered(self, answer: Awaitable[None]) -> None:
        """Wait for the answer; close the WebSocket if an error of ours prevents it."""
        is_answered = False
        try:
            await answer
            is_answered = True
        finally:
            if not is_answered:
                self._wire.close(CloseCode.INTERNAL, "the first message could not be answered")

    def _keep(self, *, is_text: bool, data: bytes) -> None:
        self._early.append((is_text, data))
        self._bytes += len(data)
        if len(self._early) > self.messages_max or self._bytes > BYTES_MAX:
            self._wire.close(CloseCode.RATE_LIMITED, "too much before the first answer")
