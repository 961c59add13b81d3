"""What a session sends and receives, over any of its connections.

    state (SessionState)          the session's id and its end
    current (CurrentConnection)   the connection at present
    audio (AudioSender)           chunks, until the server has accepted them
    tracker (OutcomeTracker)      the position of the last outcome
    early (EarlyFilter)          partial texts and parts of speech, until their outcome
    events (EventQueue)           events, until the user has read them
    room (RoomMembership)         the room of the session

Messages are handled in the read callback. `session.py` finds the next connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lingua_client.acknowledger import OutcomeAcknowledger
from lingua_client.audio_sender import AudioSender
from lingua_client.current_connection import CurrentConnection
from lingua_client.early_filter import EarlyFilter
from lingua_client.event_queue import EventQueue
from lingua_client.events import Notice, Outcome, Partial, Reset, SessionLost, SpeechPart
from lingua_client.outcome_tracker import OutcomeTracker
from lingua_client.room_membership import RoomMembership
from lingua_client.session_state import SessionState
from lingua_wire.from_client import SessionClose, SessionResume, TokenRefresh
from lingua_wire.to_client import (
    AsrPartial,
    AudioAck,
    Backpressure,
    GoAway,
    MissingResult,
    OutcomePassed,
    PartialResult,
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
    TtsPart,
    UtteranceAccepted,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from lingua_client.connection import SessionConnection
    from lingua_client.options import Options, SessionRequest
    from lingua_wire.errors import LinguaError

EVENT_BYTES: Final = 256


class Conversation:
    """The messages of one user's session; it outlives connections, and may become a new session."""

    def __init__(self, request: SessionRequest, options: Options) -> None:
        self.state = SessionState()
        self.current = CurrentConnection(self.state)
        self.audio = AudioSender(request, options.replay_bytes, self.state, self.current)
        self.tracker = OutcomeTracker(request.outcomes_per_utterance)
        self.early = EarlyFilter()
        self.events = EventQueue(
            options.events_max, options.event_bytes_max, self.current.pause, self.current.resume
        )
        self.room = RoomMembership(self.current.send, lambda: self.state.id)
        self._acks = OutcomeAcknowledger(self.tracker, options, self.state, self.current)
        self._handlers: dict[type, Callable[[Any], None]] = {
            TranslationResult: self._handle_outcome,
            MissingResult: self._handle_outcome,
            OutcomePassed: self._handle_passed,
            AsrPartial: self._handle_partial,
            PartialResult: self._handle_partial,
            TtsPart: self._handle_part,
            UtteranceAccepted: self._handle_accepted,
            AudioAck: self._handle_audio_ack,
            Backpressure: self._handle_backpressure,
            SessionReset: self._handle_reset,
            SessionCloseAck: self._handle_close_ack,
            GoAway: self._handle_go_away,
            TokenExpiring: self._handle_token_expiring,
            ServerHeartbeat: self._ignore,
            SessionInitAck: self._ignore,
            SessionResumed: self._ignore,
            ResumeRejected: self._ignore,
        }

    @property
    def progress(self) -> tuple[object, ...]:
        """Return values that change when speech is accepted or answered."""
        return self.state.id, self.audio.replay.open_seq, self.tracker.epoch, self.tracker.seq

    def close(self, reason: str) -> None:
        """Ask the server to end the session after all speech is answered."""
        self.state.is_closing = True
        self.events.lift_bound()
        self.audio.close(reason)

    def leave(self) -> None:
        """Inform the server that the session ends, and end it without an answer."""
        if not self.audio.is_close_sent:
            self.current.send(SessionClose(session_id=self.state.id, reason="left"))
        self.end(SessionLost("left before it was closed"))

    def present_token(self, token: str) -> None:
        """Present a newer token on the connection."""
        self.current.send(TokenRefresh(token=token))

    def resume_message(self, token: str | None) -> SessionResume:
        """Return the request to resume this session on another connection."""
        return SessionResume(
            session_id=self.state.id,
            resume_token=self.state.resume_token,
            epoch=self.tracker.epoch,
            last_seq=self.tracker.seq,
            next_audio_seq=self.audio.replay.first_seq,
            audio_ms=self.audio.replay.audio_ms,
            token=token,
        )

    def end(self, error: LinguaError | None) -> None:
        """End the session: nothing more is sent or received; only the first call counts."""
        if self.state.over.is_set():
            return
        self.state.error = error
        self.state.over.set()
        self._acks.stop()
        self.audio.end()
        self.events.end(error)
        self.room.end(error or SessionLost("it was closed"))
        self.current.wake_waiting()

    # Another connection (called in its read callback)

    def begin_session(
        self, connection: SessionConnection, ack: SessionInitAck, reason: str
    ) -> None:
        """Continue as a new session on this connection: the first one, or one after a loss."""
        former_id = self.state.id
        if former_id:
            lost_ms = self.tracker.open_ms
            self.events.put(Reset(reason, lost_ms, former_id, ack.session_id))
        self.state.open(ack)
        self.tracker.begin_session(ack.epoch or "")
        self.early.begin_session()
        self.audio.begin_session()
        self._use(connection, is_new_session=bool(former_id))

    def resume_session(self, connection: SessionConnection, message: SessionResumed) -> None:
        """Continue the same session on this connection."""
        if message.reset or message.epoch != self.tracker.epoch:
            self.tracker.reset_positions(message.epoch)
            self.tracker.forget_from(self.state.id, message.next_utterance_index)
            self.early.forget_from(self.state.id, message.next_utterance_index)
        self.tracker.unacknowledged = 0
        self.audio.resume_session(message.next_audio_seq, message.audio_ms)
        self._use(connection, is_new_session=False)
        self._notify(message)

    def _use(self, connection: SessionConnection, *, is_new_session: bool) -> None:
        self.current.replace(connection, self._handle, self.audio.set_congested)
        self.audio.begin_connection()
        if self.events.is_full:
            connection.pause()
        self.room.begin_connection(is_new_session=is_new_session)
        self.current.wake_waiting()
        self.audio.pump_again()

    # Received messages

    def _handle(self, message: ServerMessage) -> None:
        handler = self._handlers.get(type(message))
        if handler is not None:
            handler(message)
        else:
            self.room.handle(message)
            self._notify(message)

    def _notify(self, message: ToClient) -> None:
        self.events.put(Notice(message), EVENT_BYTES)

    def _ignore(self, _: ServerMessage) -> None:
        """Do nothing: the message has no meaning here."""

    def _handle_outcome(self, message: TranslationResult | MissingResult) -> None:
        is_own = message.session_id == self.state.id
        if not self.tracker.record(message):
            return
        self.early.record_outcome(message)
        if is_own:
            index = message.utterance_index
            if self.tracker.record_answer(index):
                self.audio.replay.mark_answered(index)
        outcome = Outcome(message, is_own)
        self.events.put(outcome, EVENT_BYTES + len(outcome.audio))
        self._acks.schedule()

    def _handle_passed(self, message: OutcomePassed) -> None:
        """Record that other members of the room received the outcome."""
        self.tracker.record_passed(message.epoch, message.seq)
        self.early.record_outcome(message)
        self._notify(message)
        self._acks.schedule()

    def _handle_partial(self, message: AsrPartial | PartialResult) -> None:
        if self.early.takes_partial(message):
            is_own = message.session_id == self.state.id
            self.events.put_newest(Partial(message, is_own), EVENT_BYTES)

    def _handle_part(self, message: TtsPart) -> None:
        if self.early.takes_part(message):
            is_own = message.session_id == self.state.id
            self.events.put(SpeechPart(message, is_own), EVENT_BYTES + len(message.audio))

    def _handle_accepted(self, message: UtteranceAccepted) -> None:
        index, is_answered = message.utterance_index, True
        if not self.room.code:  # in a room the other members receive the outcomes
            is_answered = self.tracker.record_accepted(index, message.end_ms - message.start_ms)
        if message.last_seq is not None:
            self.audio.record_accepted(
                message.last_seq, message.end_ms, index, is_answered=is_answered
            )
        self._notify(message)
        self.audio.pump_again()

    def _handle_audio_ack(self, message: AudioAck) -> None:
        self.audio.record_accepted(message.seq, message.audio_ms, None, is_answered=True)
        self.audio.pump_again()

    def _handle_backpressure(self, message: Backpressure) -> None:
        if message.action != "SLOW_DOWN":
            self.audio.set_paused(is_paused=message.action == "PAUSE")
        self._notify(message)
        self.audio.pump()

    def _handle_reset(self, message: SessionReset) -> None:
        self.tracker.reset_positions(message.epoch)
        self._notify(message)

    def _handle_close_ack(self, message: SessionCloseAck) -> None:
        self.state.coverage = message.coverage
        self.end(None)

    def _handle_go_away(self, message: GoAway) -> None:
        self._notify(message)
        if not self.current.go_away.done():
            self.current.go_away.set_result(message.reconnect_after_ms / 1000)

    def _handle_token_expiring(self, message: TokenExpiring) -> None:
        self._notify(message)
        self.current.token_expiring.set()
