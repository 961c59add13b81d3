"""The phase of a socket in which the store is asked: what arrives meanwhile is kept, and handed on.

Both sockets have it between their first message and its answer. Peers need not wait for the answer
before they go on, but what they send ahead of it is bounded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lingua_scheduler.messages.codes import CloseCode

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from lingua_scheduler.edge.wire import Wire

MESSAGES_MAX = 256
BYTES_MAX = 4 << 20


class Waiting:
    """Keeps the messages of a wire until somebody may take them."""

    messages_max = MESSAGES_MAX

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._early: list[tuple[bool, bytes]] = []
        self._bytes = 0
        # The peer went away before it was answered.
        self.is_lost = False

    def text(self, data: bytes) -> None:
        """Keep a text message."""
        self._keep(is_text=True, data=data)

    def binary(self, data: bytes) -> None:
        """Keep a binary message."""
        self._keep(is_text=False, data=data)

    def lost(self) -> None:
        """Note that the peer went away."""
        self.is_lost = True

    def go_on(self) -> None:
        """Hand on what came early; each message may change who takes the next one."""
        for is_text, data in self._early:
            if self._wire.is_open:
                receiver = self._wire.receiver
                (receiver.text if is_text else receiver.binary)(data)

    async def see_through(self, answer: Awaitable[None]) -> None:
        """Wait for the answer; a peer that gets none, for an error of ours, is not left hanging."""
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
