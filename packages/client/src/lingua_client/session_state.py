"""What is known of a session: its identity at the server, and whether it has ended."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from lingua_client.events import SessionLost

if TYPE_CHECKING:
    from lingua_wire.errors import LinguaError
    from lingua_wire.shared import Coverage
    from lingua_wire.to_client import SessionInitAck

# How long the server keeps a session without a connection, if it does not announce it.
RESUME_MS: Final = 120_000


class SessionState:
    """The state that all parts of one session share."""

    def __init__(self) -> None:
        # The session's id at the server; empty before the first answer.
        self.id = ""
        # Proves that the session is ours; empty if it cannot be resumed.
        self.resume_token = ""
        self.resume_ms = RESUME_MS
        # `close()` was called.
        self.is_closing = False
        # Set when the session was closed, or failed with an error.
        self.over = asyncio.Event()
        self.error: LinguaError | None = None
        self.coverage: Coverage | None = None

    def open(self, ack: SessionInitAck) -> None:
        """Adopt the identity that the server gave to a new session."""
        self.id = ack.session_id
        self.resume_token = ack.resume_token or ""
        self.resume_ms = ack.resume_ms or RESUME_MS

    def check_open(self) -> None:
        """Raise unless the session accepts speech and requests."""
        if self.error is not None:
            raise self.error
        if self.is_closing or self.over.is_set():
            raise SessionLost("it was closed")
