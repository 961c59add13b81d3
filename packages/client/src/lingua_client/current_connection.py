"""The connection that a session uses at present, and its replacement by the next one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from lingua_client.connection import Receive, SessionConnection
    from lingua_client.session_state import SessionState
    from lingua_wire.from_client import FromClient


class CurrentConnection:
    """Sends over the present connection of a session, if it is open."""

    def __init__(self, state: SessionState) -> None:
        # Messages are received from it; it may have ended.
        self.connection: SessionConnection | None = None
        # It is being replaced: no more audio is sent on it.
        self.is_leaving = False
        # Done when the server asks to leave it; the result is how long to wait before that.
        self.go_away: asyncio.Future[float]
        # Set when its token expires soon.
        self.token_expiring = asyncio.Event()
        self._state = state
        # Callers of `next_connection`.
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def open(self) -> SessionConnection | None:
        """Return the connection if messages can be sent on it."""
        connection = self.connection
        if connection is None or connection.ended.done() or self._state.over.is_set():
            return None
        return connection

    def send(self, message: FromClient) -> None:
        """Send a message; without an open connection it is dropped."""
        connection = self.open
        if connection is not None:
            connection.send(message)

    def pause(self) -> None:
        """Read nothing until `resume`."""
        if self.connection is not None:
            self.connection.pause()

    def resume(self) -> None:
        """Read again."""
        if self.connection is not None:
            self.connection.resume()

    def replace(
        self,
        connection: SessionConnection,
        receive: Receive,
        on_congestion: Callable[[bool], None],
    ) -> None:
        """Use another connection from now on."""
        if self.connection is not None:
            self.connection.detach()
        self.connection = connection
        connection.attach(receive, on_congestion)
        self.go_away = asyncio.get_running_loop().create_future()
        self.token_expiring.clear()
        self.is_leaving = False

    def next_connection(self) -> asyncio.Future[None]:
        """Return a future that is done with the next connection, or when the session ends."""
        moved = asyncio.get_running_loop().create_future()
        if self._state.over.is_set():
            moved.set_result(None)
        else:
            self._waiting.append(moved)
        return moved

    def wake_waiting(self) -> None:
        """Complete the futures of `next_connection`."""
        for moved in self._waiting:
            if not moved.done():
                moved.set_result(None)
        self._waiting.clear()
