"""The audio that a session sends, over any of its connections, and its `session_close` after it.

All audio goes through `pump`, so that chunks sent again and new chunks keep their order.
"""

from __future__ import annotations

import asyncio
from time import monotonic, time
from typing import TYPE_CHECKING

from lingua_client.audio_pacer import AudioPacer
from lingua_client.replay_buffer import ReplayBuffer
from lingua_wire.from_client import AudioChunk, SessionClose

if TYPE_CHECKING:
    from lingua_client.current_connection import CurrentConnection
    from lingua_client.options import SessionRequest
    from lingua_client.session_state import SessionState


class AudioSender:
    """Keeps, paces and sends the chunks of one session."""

    def __init__(
        self,
        request: SessionRequest,
        replay_bytes: int,
        state: SessionState,
        current: CurrentConnection,
    ) -> None:
        self.replay = ReplayBuffer(replay_bytes)
        self.is_close_sent = False
        self._request = request
        self._state = state
        self._current = current
        self._close_reason = ""
        # The server sent PAUSE; the connection accepts no more now.
        self._is_paused = False
        self._is_congested = False
        # Set while `send` need not wait.
        self._may_add = asyncio.Event()
        self._may_add.set()
        # Delays audio that runs ahead of real time.
        self._pacer = AudioPacer()
        self._pace_timer: asyncio.TimerHandle | None = None
        # Set when the server accepts audio, and at the end.
        self._progress = asyncio.Event()

    async def send(self, payload: bytes, *, is_final: bool) -> None:
        """Send a chunk; waits while the server, the connection or the buffer accepts no more."""
        self._state.check_open()
        while not self._may_add.is_set():
            await self._may_add.wait()
            self._state.check_open()
        self._add(payload, is_final=is_final)
        self.pump()

    async def wait_until_accepted(self) -> None:
        """End the current utterance, and wait until the server has accepted all audio so far.

        Called before the audience changes: audio sent again after a connection loss would reach
        the new audience.
        """
        replay = self.replay
        if not self._state.resume_token or replay.open_seq == replay.next_seq:
            return
        self._add(b"", is_final=True)
        last = replay.next_seq
        self.pump()
        while replay.open_seq < last:
            self._progress.clear()
            await self._progress.wait()
            self._state.check_open()

    def close(self, reason: str) -> None:
        """Send `session_close` after all audio."""
        self._close_reason = reason
        self.pump()

    def pump(self) -> None:
        """Send what was not sent yet, as far as the server accepts it; then `session_close`."""
        connection = self._current.open
        if connection is not None and not self._current.is_leaving:
            while self._may_send() and (chunk := self.replay.next_unsent()) is not None:
                duration_ms = self._request.duration_ms(len(chunk.payload))
                self._pacer.record_sent(duration_ms, monotonic() * 1000)
                connection.send(
                    AudioChunk(
                        session_id=self._state.id,
                        seq=chunk.seq,
                        is_final=chunk.is_final,
                        payload=chunk.payload or None,
                        client_timestamp_ms=chunk.timestamp_ms,
                    )
                )
            if self._state.is_closing and not self.is_close_sent and self.replay.is_sent:
                self.is_close_sent = True
                reason = self._close_reason
                connection.send(SessionClose(session_id=self._state.id, reason=reason))
        self._update_may_add()

    def pump_again(self) -> None:
        """Send more audio now: time has passed, or some of it was acknowledged."""
        self._stop_timer()
        self.pump()

    def record_accepted(
        self, seq: int, audio_ms: int, index: int | None, *, is_answered: bool
    ) -> None:
        """Record that the server accepted the chunks up to a number."""
        self.replay.accept(seq, audio_ms, index, is_answered=is_answered)
        self._progress.set()

    def set_paused(self, *, is_paused: bool) -> None:
        """Stop sending while the server asks for it."""
        self._is_paused = is_paused

    def set_congested(self, is_congested: bool) -> None:
        """Let `send` wait while the connection accepts no more."""
        self._is_congested = is_congested
        self._update_may_add()

    def begin_session(self) -> None:
        """Send all audio that was not accepted to a new session."""
        self.replay.is_lossy = not self._state.resume_token
        self.replay.forget_accepted()
        self.replay.audio_ms = 0
        self.replay.rewind(None)

    def resume_session(self, next_seq: int | None, audio_ms: int) -> None:
        """Send again from the chunk on that the server needs."""
        self.replay.rewind(next_seq)
        if next_seq == self.replay.first_seq:
            self.replay.audio_ms = audio_ms

    def begin_connection(self) -> None:
        """Forget what the former connection was asked for."""
        self.is_close_sent = self._is_paused = self._is_congested = False

    def end(self) -> None:
        """Let every caller that waits continue: the session is over."""
        self._progress.set()
        self._stop_timer()
        self._may_add.set()

    def _add(self, payload: bytes, *, is_final: bool) -> None:
        self.replay.add(payload, is_final=is_final, timestamp_ms=int(time() * 1000))

    def _may_send(self) -> bool:
        """Tell whether audio may be sent now; if it is only too early, pump again later."""
        if self._is_paused or self._pace_timer is not None:
            return False
        if not self._state.resume_token:  # the server acknowledges nothing
            return True
        replay = self.replay
        sent_ms = self._request.duration_ms(replay.sent_size)
        wait_ms = self._pacer.wait_ms(replay.sent_ends, sent_ms, monotonic() * 1000)
        if wait_ms and not replay.is_sent:
            loop = asyncio.get_running_loop()
            self._pace_timer = loop.call_later(wait_ms / 1000, self.pump_again)
        return not wait_ms

    def _update_may_add(self) -> None:
        is_behind = self._pace_timer is not None and not self.replay.is_sent
        is_slow = self._is_paused or self._is_congested or is_behind
        is_free = not (is_slow or self.replay.is_full)
        if is_free or self._state.over.is_set():
            self._may_add.set()
        else:
            self._may_add.clear()

    def _stop_timer(self) -> None:
        if self._pace_timer is not None:
            self._pace_timer.cancel()
            self._pace_timer = None
