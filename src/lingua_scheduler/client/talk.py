"""What a session says and hears, over whatever connection it has at the moment.

Messages are handled in the read callback; audio goes out through `pump` only, so that what is sent
again and what is new keep their order. Finding the next connection is `session.py`.
"""

from __future__ import annotations

import asyncio
from time import monotonic, time
from typing import TYPE_CHECKING, Any, Final

from lingua_scheduler.client.events import Notice, Outcome, Partial, Reset, SessionLost
from lingua_scheduler.client.heard import Heard
from lingua_scheduler.client.mailbox import Mailbox
from lingua_scheduler.client.pace import Pace
from lingua_scheduler.client.replay import Replay
from lingua_scheduler.client.rooms import Rooms
from lingua_scheduler.messages.from_client import (
    AudioChunk,
    FromClient,
    OutcomeAck,
    SessionClose,
    SessionResume,
    TokenRefresh,
)
from lingua_scheduler.messages.to_client import (
    AsrPartial,
    AudioAck,
    Backpressure,
    GoAway,
    MissingResult,
    OutcomePassed,
    ResumeRejected,
    ServerHeartbeat,
    ServerMessage,
    SessionCloseAck,
    SessionInitAck,
    SessionReset,
    SessionResumed,
    ToClient,
    TokenExpiring,
    TranslationResult,
    UtteranceAccepted,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from lingua_scheduler.client.line import Line
    from lingua_scheduler.client.options import Options, Wish
    from lingua_scheduler.errors import LinguaError
    from lingua_scheduler.messages.shared import Coverage

EVENT_BYTES: Final = 256
# How long a session is kept for us, if the server does not say.
RESUME_MS: Final = 120_000


class Talk:
    """One conversation: it outlives its connections, and may become another session."""

    def __init__(self, wish: Wish, options: Options) -> None:
        # Its name at the server.
        self.id = ""
        # Proves that the session is ours; without one there is no resuming.
        self.resume_token = ""
        self.resume_ms = RESUME_MS
        self.replay = Replay(options.replay_bytes)
        self.heard = Heard(wish.outcomes_per_utterance)
        self.mailbox = Mailbox(
            options.events_max, options.event_bytes_max, self._pause_line, self._unpause_line
        )
        self.rooms = Rooms(self._say, lambda: self.id)
        # The connection that messages come from; it may have ended.
        self.line: Line | None = None
        # It is being left for another one: it gets no more audio.
        self.is_leaving = False
        # Done when it is to be left: how long to wait before.
        self.go_away: asyncio.Future[float]
        # The connection's token ends soon.
        self.expiring = asyncio.Event()
        # Closed as asked, or failed with an error.
        self.over = asyncio.Event()
        self.error: LinguaError | None = None
        self.coverage: Coverage | None = None
        self.is_closing = False
        self._close_reason = ""
        self._is_close_sent = False
        self._wish = wish
        self._options = options
        # The server said PAUSE; the connection takes no more now.
        self._is_paused = False
        self._is_congested = False
        # Set while nobody need wait before speaking.
        self._may_speak = asyncio.Event()
        self._may_speak.set()
        # Audio that runs ahead of real time, and when it may go on.
        self._pace = Pace()
        self._pace_timer: asyncio.TimerHandle | None = None
        self._ack_timer: asyncio.TimerHandle | None = None
        # Set when the server accepts something, and at the end.
        self._has_news = asyncio.Event()
        # Who waits for the next connection.
        self._movers: list[asyncio.Future[None]] = []
        self._actions: dict[type, Callable[[Any], None]] = {
            TranslationResult: self._take_outcome,
            MissingResult: self._take_outcome,
            OutcomePassed: self._take_passed,
            AsrPartial: self._take_partial,
            UtteranceAccepted: self._take_accepted,
            AudioAck: self._take_audio_ack,
            Backpressure: self._take_backpressure,
            SessionReset: self._take_reset,
            SessionCloseAck: self._take_close_ack,
            GoAway: self._take_go_away,
            TokenExpiring: self._take_expiring,
            ServerHeartbeat: self._ignore,
            SessionInitAck: self._ignore,
            SessionResumed: self._ignore,
            ResumeRejected: self._ignore,
        }

    @property
    def progress(self) -> tuple[object, ...]:
        """Return what changes when speech is taken or answered."""
        return self.id, self.replay.open_seq, self.heard.epoch, self.heard.seq

    # Out

    async def speak(self, payload: bytes, *, is_final: bool) -> None:
        """Say a chunk; waits while the server, the connection or the memory takes no more."""
        self.check_open()
        while not self._may_speak.is_set():
            await self._may_speak.wait()
            self.check_open()
        self.replay.add(payload, is_final=is_final, timestamp_ms=int(time() * 1000))
        self._pump()

    async def until_accepted(self) -> None:
        """End what is being said, and wait until the server has all that was said so far.

        Before the audience changes: what a lost connection makes the client say again would be
        heard by those who are there then.
        """
        replay = self.replay
        if not self.resume_token or replay.open_seq == replay.next_seq:
            return
        replay.add(b"", is_final=True, timestamp_ms=int(time() * 1000))
        last = replay.next_seq
        self._pump()
        while replay.open_seq < last:
            self._has_news.clear()
            await self._has_news.wait()
            self.check_open()

    def close(self, reason: str) -> None:
        """Ask for the end, after all that was said."""
        self.is_closing = True
        self._close_reason = reason
        self.mailbox.last_call()
        self._pump()

    def refresh(self, token: str) -> None:
        """Show a newer token on the connection."""
        self._say(TokenRefresh(token=token))

    def leave(self) -> None:
        """Ask for the end without waiting for it."""
        if not self._is_close_sent:
            self._say(SessionClose(session_id=self.id, reason="left"))
        self.end(SessionLost("left before it was closed"))

    def check_open(self) -> None:
        """Raise unless something may be said."""
        if self.error is not None:
            raise self.error
        if self.is_closing or self.over.is_set():
            raise SessionLost("it was closed")

    def resume_message(self, token: str | None) -> SessionResume:
        """Return what asks another server to go on with this session, with the token to show."""
        return SessionResume(
            session_id=self.id, resume_token=self.resume_token, epoch=self.heard.epoch,
            last_seq=self.heard.seq, next_audio_seq=self.replay.first_seq,
            audio_ms=self.replay.audio_ms, token=token,
        )  # fmt: skip

    def _pump(self) -> None:
        """Send what was not sent yet, as far as the server wants it; then the wish to close."""
        line = self._open_line()
        if line is not None and not self.is_leaving:
            while self._may_send() and (chunk := self.replay.take_unsent()) is not None:
                self._pace.sent(self._wish.duration_ms(len(chunk.payload)), monotonic() * 1000)
                line.send(
                    AudioChunk(
                        session_id=self.id, seq=chunk.seq, is_final=chunk.is_final,
                        payload=chunk.payload or None, client_timestamp_ms=chunk.timestamp_ms,
                    )
                )  # fmt: skip
            if self.is_closing and not self._is_close_sent and self.replay.is_sent:
                self._is_close_sent = True
                line.send(SessionClose(session_id=self.id, reason=self._close_reason))
        self._refresh()

    def _may_send(self) -> bool:
        """Tell whether the server wants more audio now; if it is only early, try again later."""
        if self._is_paused or self._pace_timer is not None:
            return False
        if not self.resume_token:  # nothing would be acknowledged
            return True
        replay = self.replay
        sent_ms = self._wish.duration_ms(replay.sent_size)
        wait_ms = self._pace.wait_ms(replay.sent_ends, sent_ms, monotonic() * 1000)
        if wait_ms and not replay.is_sent:
            loop = asyncio.get_running_loop()
            self._pace_timer = loop.call_later(wait_ms / 1000, self._pump_again)
        return not wait_ms

    def _pump_again(self) -> None:
        """Look again whether more audio may go out: time has passed, or some is acknowledged."""
        if self._pace_timer is not None:
            self._pace_timer.cancel()
            self._pace_timer = None
        self._pump()

    def _say(self, message: FromClient) -> None:
        line = self._open_line()
        if line is not None:
            line.send(message)

    def _open_line(self) -> Line | None:
        line = self.line
        if line is None or line.ended.done() or self.over.is_set():
            return None
        return line

    def _refresh(self) -> None:
        is_behind = self._pace_timer is not None and not self.replay.is_sent
        is_slow = self._is_paused or self._is_congested or is_behind
        is_free = not (is_slow or self.replay.is_full)
        if is_free or self.over.is_set():
            self._may_speak.set()
        else:
            self._may_speak.clear()

    # In

    def _take(self, message: ServerMessage) -> None:
        action = self._actions.get(type(message))
        if action is not None:
            action(message)
        else:
            self.rooms.take(message)
            self._notice(message)

    def _notice(self, message: ToClient) -> None:
        self.mailbox.put(Notice(message), EVENT_BYTES)

    def _ignore(self, _: ServerMessage) -> None:
        """Take no note of it."""

    def _take_outcome(self, message: TranslationResult | MissingResult) -> None:
        heard = self.heard
        is_own = message.session_id == self.id
        if not heard.is_new(message):
            return
        if is_own:
            index = message.utterance_index
            if heard.answered(index):
                self.replay.answered(index)
        outcome = Outcome(message, is_own)
        self.mailbox.put(outcome, EVENT_BYTES + len(outcome.audio))
        self._acknowledge_soon()

    def _acknowledge_soon(self) -> None:
        heard = self.heard
        if heard.unacknowledged >= self._options.ack_every:
            self._acknowledge()
        elif heard.unacknowledged and self._ack_timer is None:
            loop = asyncio.get_running_loop()
            self._ack_timer = loop.call_later(self._options.ack_s, self._acknowledge)

    def _take_passed(self, message: OutcomePassed) -> None:
        """Others heard it: here only the position moves."""
        self.heard.passed(message.epoch, message.seq)
        self._notice(message)
        self._acknowledge_soon()

    def _acknowledge(self) -> None:
        """Tell the server the position, so that it need not keep what is before."""
        self._stop_ack_timer()
        heard = self.heard
        if heard.unacknowledged and self.resume_token:
            self._say(OutcomeAck(session_id=self.id, epoch=heard.epoch, seq=heard.seq))
        heard.unacknowledged = 0

    def _take_partial(self, message: AsrPartial) -> None:
        self.mailbox.put(Partial(message), EVENT_BYTES)

    def _take_accepted(self, message: UtteranceAccepted) -> None:
        index, is_answered = message.utterance_index, True
        if not self.rooms.code:  # in a room outcomes go to the others
            is_answered = self.heard.accepted(index, message.end_ms - message.start_ms)
        if message.last_seq is not None:
            self.replay.accept(message.last_seq, message.end_ms, index, is_answered=is_answered)
            self._has_news.set()
        self._notice(message)
        self._pump_again()

    def _take_audio_ack(self, message: AudioAck) -> None:
        self.replay.accept(message.seq, message.audio_ms, None, is_answered=True)
        self._has_news.set()
        self._pump_again()

    def _take_backpressure(self, message: Backpressure) -> None:
        if message.action != "SLOW_DOWN":
            self._is_paused = message.action == "PAUSE"
        self._notice(message)
        self._pump()

    def _take_reset(self, message: SessionReset) -> None:
        self.heard.start_over(message.epoch)
        self._notice(message)

    def _take_close_ack(self, message: SessionCloseAck) -> None:
        self.coverage = message.coverage
        self.end(None)

    def _take_go_away(self, message: GoAway) -> None:
        self._notice(message)
        if not self.go_away.done():
            self.go_away.set_result(message.reconnect_after_ms / 1000)

    def _take_expiring(self, message: TokenExpiring) -> None:
        self._notice(message)
        self.expiring.set()

    # Another connection (called in its read callback)

    def opened(self, line: Line, ack: SessionInitAck, reason: str) -> None:
        """Go on as a new session on this line: the first one, or one after a loss."""
        former_id, self.id = self.id, ack.session_id
        if former_id:
            self.mailbox.put(Reset(reason, self.heard.open_ms, former_id, self.id))
        self.resume_token = ack.resume_token or ""
        self.resume_ms = ack.resume_ms or RESUME_MS
        self.heard.begin(ack.epoch or "")
        self.replay.is_lossy = not self.resume_token
        self.replay.forget_accepted()
        self.replay.audio_ms = 0
        self.replay.go_back(None)
        self._adopt(line, is_other_session=bool(former_id))

    def resumed(self, line: Line, message: SessionResumed) -> None:
        """Go on with the same session on this line."""
        if message.reset or message.epoch != self.heard.epoch:
            self.heard.start_over(message.epoch)
            self.heard.forget_from(self.id, message.next_utterance_index)
        self.heard.unacknowledged = 0
        self.replay.go_back(message.next_audio_seq)
        if message.next_audio_seq == self.replay.first_seq:
            self.replay.audio_ms = message.audio_ms
        self._adopt(line, is_other_session=False)
        self._notice(message)

    def next_line(self) -> asyncio.Future[None]:
        """Return what is done with the next connection, or with the end."""
        moved = asyncio.get_running_loop().create_future()
        if self.over.is_set():
            moved.set_result(None)
        else:
            self._movers.append(moved)
        return moved

    def _adopt(self, line: Line, *, is_other_session: bool) -> None:
        if self.line is not None:
            self.line.mute()
        self.line = line
        line.connect(self._take, self._take_congestion)
        self.go_away = asyncio.get_running_loop().create_future()
        self.expiring.clear()
        self.is_leaving = self._is_close_sent = False
        self._is_paused = self._is_congested = False
        if self.mailbox.is_full:
            line.pause()
        self.rooms.connected(is_other_session=is_other_session)
        self._release_movers()
        self._pump_again()

    def _take_congestion(self, is_congested: bool) -> None:
        self._is_congested = is_congested
        self._refresh()

    def _pause_line(self) -> None:
        if self.line is not None:
            self.line.pause()

    def _unpause_line(self) -> None:
        if self.line is not None:
            self.line.go_on()

    # The end

    def end(self, error: LinguaError | None) -> None:
        """Nothing more comes or goes; the first call counts."""
        if self.over.is_set():
            return
        self.error = error
        self.over.set()
        self._has_news.set()
        self._stop_ack_timer()
        if self._pace_timer is not None:
            self._pace_timer.cancel()
        self.mailbox.end(error)
        self.rooms.end(error or SessionLost("it was closed"))
        self._release_movers()
        self._refresh()

    def _release_movers(self) -> None:
        for mover in self._movers:
            if not mover.done():
                mover.set_result(None)
        self._movers.clear()

    def _stop_ack_timer(self) -> None:
        if self._ack_timer is not None:
            self._ack_timer.cancel()
            self._ack_timer = None
