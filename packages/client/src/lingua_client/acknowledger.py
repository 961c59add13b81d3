"""Acknowledging received outcomes, so that the server need not keep them for this client."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from lingua_wire.from_client import OutcomeAck

if TYPE_CHECKING:
    from lingua_client.current_connection import CurrentConnection
    from lingua_client.options import Options
    from lingua_client.outcome_tracker import OutcomeTracker
    from lingua_client.session_state import SessionState


class OutcomeAcknowledger:
    """Sends the position of a session: after some outcomes, or after some time."""

    def __init__(
        self,
        tracker: OutcomeTracker,
        options: Options,
        state: SessionState,
        current: CurrentConnection,
    ) -> None:
        self._tracker = tracker
        self._options = options
        self._state = state
        self._current = current
        self._timer: asyncio.TimerHandle | None = None

    def schedule(self) -> None:
        """Acknowledge now if many outcomes are unacknowledged, otherwise later."""
        if self._tracker.unacknowledged >= self._options.ack_every:
            self._acknowledge()
        elif self._tracker.unacknowledged and self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._options.ack_s, self._acknowledge)

    def stop(self) -> None:
        """Send nothing later."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _acknowledge(self) -> None:
        self.stop()
        tracker = self._tracker
        if self._current.is_leaving:
            return  # a request to resume with an earlier position may be on its way
        if tracker.unacknowledged and self._state.resume_token:
            self._current.send(
                OutcomeAck(session_id=self._state.id, epoch=tracker.epoch, seq=tracker.seq)
            )
        tracker.unacknowledged = 0
