"""Writes that wait for the end of a turn of the event loop: one for all that a peer gets in it.

A turn may handle the data of many sockets, each of which may cause another message to the same
peer. So a writer waits until the turn ends. Only the replies of the store come all in one read:
what they cause leaves when they are handled, without another turn of the loop.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from collections.abc import Callable


class PendingWrites:
    """The writes of one event loop that wait for the end of this turn."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        # It has no reference to its loop, which would then never be freed.
        self._waiting: list[Callable[[], None]] = []

    def add(self, send: Callable[[], None]) -> None:
        """Call this at the end of the turn."""
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self.send_all)
        self._waiting.append(send)

    def send_all(self) -> None:
        """Let all leave; the error of a closed transport does not concern the others."""
        waiting = self._waiting
        if not waiting:
            return  # sent already in this turn
        self._waiting = []
        for send in waiting:
            try:
                send()
            except RuntimeError as error:
                about = {"message": "a write failed", "exception": error}
                asyncio.get_running_loop().call_exception_handler(about)


_OF_LOOPS: WeakKeyDictionary[asyncio.AbstractEventLoop, PendingWrites] = WeakKeyDictionary()


def pending_writes() -> PendingWrites:
    """Return those of the running loop."""
    loop = asyncio.get_running_loop()
    found = _OF_LOOPS.get(loop)
    if found is None:
        found = _OF_LOOPS[loop] = PendingWrites()
    return found
