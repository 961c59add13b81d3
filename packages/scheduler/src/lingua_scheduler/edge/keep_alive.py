"""Finds dead WebSocket peers: one timer pings the silent ones and aborts those that stay silent."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from lingua_scheduler.edge.websocket import WebSocket, WebSocketLimits

# How often all sockets are checked. A dead peer is found at most this late.
CHECK_S: Final = 0.2


class KeepAlive:
    """Checks all WebSockets of a process by one timer."""

    def __init__(self) -> None:
        # Peers found dead, and checks of all sockets, since the start.
        self.found_dead = 0
        self.checks = 0

        self._loop = asyncio.get_running_loop()
        # By limits, so that one comparison per socket finds the few that need attention.
        self._sockets: dict[WebSocketLimits, set[WebSocket]] = {}
        self._next_check = monotonic() + CHECK_S
        self._timer = self._loop.call_later(CHECK_S, self._check_all)

    def add(self, socket: WebSocket) -> None:
        """Start to check this socket."""
        self._sockets.setdefault(socket.limits, set()).add(socket)

    def discard(self, socket: WebSocket) -> None:
        """Stop checking this socket."""
        self._sockets.get(socket.limits, set()).discard(socket)

    def stop(self) -> None:
        """Cancel the timer."""
        self._timer.cancel()

    def _check_all(self) -> None:
        now = monotonic()
        self.checks += 1
        self._forgive_own_stall(now - self._next_check)
        for limits, sockets in self._sockets.items():
            quiet_since = now - limits.ping_ms / 1000
            for socket in [socket for socket in sockets if socket.last_received <= quiet_since]:
                self._check(socket, now)
        self._next_check = now + CHECK_S
        self._timer = self._loop.call_later(CHECK_S, self._check_all)

    def _check(self, socket: WebSocket, now: float) -> None:
        if socket.is_paused or not socket.is_open:
            return
        if (now - socket.last_received) * 1000 >= socket.limits.dead_ms:
            self.found_dead += 1
            socket.abort()
        elif (now - socket.last_ping) * 1000 >= socket.limits.ping_ms:
            socket.ping(now)

    def _forgive_own_stall(self, late_s: float) -> None:
        """Ignore the time that our own loop was blocked: data of the peers is still unread."""
        if late_s > CHECK_S:
            for sockets in self._sockets.values():
                for socket in sockets:
                    socket.last_received += late_s
