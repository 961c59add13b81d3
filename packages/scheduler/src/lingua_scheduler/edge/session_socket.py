"""The client's socket, phase by phase: handshake, opening, talking, ended.

Each phase is a receiver of its own, so that a message that is illegal in a phase needs no `if`.
Messages are decoded here, once; behind this file only typed messages travel.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from lingua_scheduler.auth.policy import (
    Forbidden,
    allow_languages,
    allow_room,
    allow_session,
    allow_speech,
    tenant_of,
)
from lingua_scheduler.auth.tokens import InvalidToken
from lingua_scheduler.edge import token_advice
from lingua_scheduler.edge.client_access import ClientAccess, ErrorLimit, ForeignSession, code_of
from lingua_scheduler.edge.early_buffer import EarlyBuffer
from lingua_scheduler.edge.message_counters import counters
from lingua_scheduler.edge.old_protocol import ClientChoices
from lingua_scheduler.errors import StoreUnavailable
from lingua_scheduler.runtime.pairing import InvalidPairingCode
from lingua_scheduler.runtime.session_registry import ResumeRefused, SessionEnded
from lingua_scheduler.runtime.session_state import SessionState
from lingua_wire import from_client as m
from lingua_wire.codec import CLIENT_MESSAGES, UNREADABLE, form_of, refusal_of, with_audio
from lingua_wire.codes import CloseCode, ErrorCode
from lingua_wire.errors import InvalidInput, InvalidLanguage, InvalidMessage
from lingua_wire.from_client import AudioChunk
from lingua_wire.languages import language
from lingua_wire.to_client import (
    ErrorMessage,
    ResumeRejected,
    ServerHeartbeat,
    SessionCloseAck,
    SessionInitAck,
    TokenExpiring,
    TokenRefreshed,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from lingua_scheduler.auth.tokens import ClientGrant
    from lingua_scheduler.edge.client_access import ClientServices
    from lingua_scheduler.edge.websocket import Receiver, WebSocket
    from lingua_scheduler.runtime.session import LiveSession
    from lingua_scheduler.runtime.session_registry import ReturnedClient
    from lingua_scheduler.state.keys import Cell
    from lingua_wire.codec import EncodedAudio
    from lingua_wire.to_client import ToClient, TranslationResult

PROTOCOL_VERSION = "1.0"


class SessionSocket:
    """What the phases of one client's socket share; also the outlet of the session."""

    __slots__ = (
        "__weakref__",
        "_encode",
        "_write",
        "access",
        "codec",
        "errors",
        "seen",
        "services",
        "speaks_additions",
        "wants_events",
        "wire",
    )

    def __init__(self, wire: WebSocket, services: ClientServices, bearer: str | None) -> None:
        self.wire = wire
        self.services = services
        self.codec = CLIENT_MESSAGES[form_of(wire.subprotocol)]
        self._encode = self.codec.encode
        self._write = wire.send_binary if self.codec.is_binary else wire.send_text
        # Which optional messages the client gets.
        self.speaks_additions, self.wants_events = ClientChoices.at_first(wire.subprotocol)
        self.access = ClientAccess(services.gate, bearer)
        self.errors = ErrorLimit(self.close)
        self.seen = counters(services.metrics, "session", m.ClientMessage)

    def choose(self, *, speaks_additions: bool, wants_events: bool) -> None:
        """Restore what the client chose when it opened the session."""
        self.speaks_additions, self.wants_events = speaks_additions, wants_events

    def choose_by(self, init: m.SessionInit) -> None:
        """Note what the first message declares about the client."""
        choices = ClientChoices(self.speaks_additions, self.wants_events).after(init)
        self.speaks_additions, self.wants_events = choices

    def send(self, message: ToClient) -> None:
        """Send one message; the socket drops a client that does not read."""
        self._write(self._encode(message))

    def send_with(self, message: TranslationResult, sound: EncodedAudio) -> None:
        """Send a result whose audio is shared with other receivers."""
        is_binary = self.codec.is_binary
        if not sound.raw:
            self._write(self._encode(message))
        else:
            parts = with_audio(self._encode(message), sound, is_binary=is_binary)
            self.wire.send_parts(parts, is_binary=is_binary)

    @property
    def is_behind(self) -> bool:
        """Tell whether so much is unread that large messages should wait."""
        return self.wire.is_behind

    def close(self, code: int, reason: str) -> None:
        """Close the socket."""
        if code == CloseCode.SLOW_READER:
            self.wire.drop_slow()
        else:
            self.wire.close(code, reason)

    @property
    def grant(self) -> ClientGrant | None:
        """Return what the client's token allows; None where no keys are set."""
        return self.access.grant

    @property
    def is_open(self) -> bool:
        """Tell whether the socket is open."""
        return self.wire.is_open

    def token_expires(self, in_ms: int) -> bool:
        """Warn a client that knows the additions, once its session is open."""
        if not isinstance(self.wire.receiver, Talking):
            return False
        if self.speaks_additions:
            self.send(TokenExpiring(expires_in_ms=in_ms))
        return True

    def token_ends(self, code: CloseCode, reason: str) -> None:
        """Close the socket: the client may resume its session with another token."""
        self.close(code, reason)

    def decode(self, data: bytes) -> m.ClientMessage | None:
        """Decode a message, or answer that it is invalid."""
        try:
            message = self.codec.decode(data)
        except InvalidMessage as problem:
            self.refuse(ErrorCode.INVALID_MESSAGE, str(problem))
            return None
        self.seen[type(message)].inc()
        return message

    def refuse(self, code: ErrorCode, problem: str, **more: Any) -> None:
        """Answer a message that cannot be used."""
        self.services.metrics.sockets.invalid_messages_total.labels(
            socket="session", code=code
        ).inc()
        self.send(ErrorMessage(code=code, message=problem, **more))
        self.errors.count()


class Handshake:
    """Waits for the first message: `session_init` or `session_resume`."""

    def __init__(self, socket: SessionSocket) -> None:
        self._socket = socket
        loop = asyncio.get_running_loop()
        limit = socket.services.settings.server.handshake_ms / 1000
        self._timer = loop.call_later(limit, self._too_late)

    def text(self, data: bytes) -> None:
        """Take a JSON message."""
        socket = self._socket
        if socket.codec.is_binary:
            socket.refuse(ErrorCode.INVALID_MESSAGE, "this socket speaks MessagePack")
        elif (message := socket.decode(data)) is not None:
            self._first(message)

    def binary(self, data: bytes) -> None:
        """Take a MessagePack message."""
        socket = self._socket
        if not socket.codec.is_binary:
            socket.refuse(ErrorCode.INVALID_MESSAGE, "audio needs an open session first")
        elif (message := socket.decode(data)) is not None:
            self._first(message)

    def lost(self) -> None:
        """Handle the loss of the client's socket before its first message."""
        self._timer.cancel()

    def _first(self, message: m.ClientMessage) -> None:
        socket = self._socket
        if not isinstance(message, m.SessionInit | m.SessionResume):
            socket.refuse(ErrorCode.INVALID_SESSION, "the first message must be session_init")
        elif socket.services.lifecycle.is_draining:
            socket.close(CloseCode.GOING_AWAY, "the instance stops")
        else:
            self._timer.cancel()
            if isinstance(message, m.SessionResume):
                resuming = Resuming(socket)
                step = resuming.close_unless_answered(resuming.resume(message))
                socket.wire.receiver = resuming
            else:
                opening = Opening(socket)
                step = opening.close_unless_answered(opening.open(message))
                socket.wire.receiver = opening
            socket.services.tasks.start(step)

    def _too_late(self) -> None:
        self._socket.close(CloseCode.HANDSHAKE_TIMEOUT, "no session_init in time")


class Opening(EarlyBuffer):
    """The store opens the session."""

    def __init__(self, socket: SessionSocket) -> None:
        super().__init__(socket.wire)
        self._socket = socket

    async def open(self, init: m.SessionInit) -> None:
        """Open the session and handle messages that came early, or return to the handshake."""
        socket = self._socket
        socket.choose_by(init)
        found = await self._try(init)
        if found is None:
            self.go_back()
            return
        session, token = found
        services = socket.services
        unserved = await services.served.unserved(session.languages.profile)
        if self.is_lost:
            services.registry.never_answered(session, socket)
            return
        socket.errors.reset()
        socket.wire.receiver = TALKING[socket.codec.is_binary](socket, session)
        socket.send(ack_of(socket, session, init, OpeningAnswer(token, unserved)))
        self.deliver()

    def go_back(self) -> None:
        """Wait for another first message."""
        socket = self._socket
        if not self.is_lost and socket.wire.is_open:
            socket.wire.receiver = Handshake(socket)
            self.deliver()

    async def _try(self, init: m.SessionInit) -> tuple[LiveSession, str] | None:
        socket, retry = self._socket, self._socket.services.retry_after_ms
        try:
            grant = socket.access.authenticate(init.token, socket)
            allow_session(grant, init)
            registry = socket.services.registry
            return await registry.open(init, socket, tenant=tenant_of(grant))
        except InvalidToken as problem:
            socket.refuse(
                ErrorCode.UNAUTHORIZED, token_advice.refusal_text(problem, token_advice.CLIENT)
            )
            socket.close(CloseCode.UNAUTHORIZED, str(problem))
        except Forbidden as problem:
            socket.refuse(ErrorCode.FORBIDDEN, str(problem))
            socket.close(CloseCode.FORBIDDEN, "the token does not allow this")
        except InvalidPairingCode as problem:
            socket.refuse(ErrorCode.INVALID_PAIRING_CODE, str(problem))
        except InvalidLanguage as problem:
            socket.refuse(ErrorCode.UNSUPPORTED_LANGUAGE, str(problem))
        except InvalidInput as problem:
            socket.refuse(ErrorCode.INVALID_MESSAGE, str(problem))
        except StoreUnavailable:
            code = ErrorCode.SCHEDULER_DEPENDENCY_DOWN
            socket.refuse(code, code.hint, retry_after_ms=retry)
        return None


class Resuming(Opening):
    """The store is asked whether a session may resume here."""

    # A client that resumes sends all the audio it kept at once, in small chunks.
    messages_max = 4096

    async def resume(self, ask: m.SessionResume) -> None:
        """Resume a session and handle messages that came early, or return to the handshake."""
        socket = self._socket
        # A client that resumes was given a resume token: it knows the additions.
        socket.choose(speaks_additions=True, wants_events=socket.wants_events)
        back = await self._try_resume(ask)
        if back is None:
            self.go_back()
            return
        session = back.session
        socket.errors.reset()
        registry = socket.services.registry
        try:
            is_back = not self.is_lost and await registry.attach(back, socket)
        except StoreUnavailable:
            is_back = False
        if is_back and not self.is_lost:
            socket.wire.receiver = TALKING[socket.codec.is_binary](socket, session)
            self.deliver()
            return
        registry.unattached(session, socket)
        socket.close(CloseCode.TRY_AGAIN_LATER, "the session could not be read; come back")

    async def _try_resume(self, ask: m.SessionResume) -> ReturnedClient | None:
        socket, retry = self._socket, self._socket.services.retry_after_ms
        try:
            tenant = tenant_of(socket.access.authenticate(ask.token, socket))
            try:
                return await socket.services.registry.resume(ask, socket, tenant=tenant)
            except SessionEnded as ended:
                home = ended.home
            await self._send_the_rest(ask, home)
        except ResumeRefused as problem:
            socket.send(ResumeRejected(session_id=ask.session_id, reason=problem.reason))
            socket.errors.count()
        except InvalidToken as problem:
            socket.refuse(
                ErrorCode.UNAUTHORIZED, token_advice.refusal_text(problem, token_advice.CLIENT)
            )
            socket.close(CloseCode.UNAUTHORIZED, str(problem))
        except InvalidInput as problem:
            socket.refuse(ErrorCode.INVALID_MESSAGE, str(problem))
        except StoreUnavailable:
            code = ErrorCode.SCHEDULER_DEPENDENCY_DOWN
            socket.refuse(code, code.hint, retry_after_ms=retry)
        return None

    async def _send_the_rest(self, ask: m.SessionResume, home: Cell) -> None:
        """Send the outcomes a client missed if its session was closed while it was disconnected."""
        socket = self._socket
        for message in await socket.services.ended.rest_of(ask, home):
            socket.send(message)
        socket.close(CloseCode.NORMAL, "the session was closed")


class Talking:
    """The session is open; what a frame of each kind is depends on the form of its messages."""

    __slots__ = (
        "_errors",
        "_input",
        "_read",
        "_rooms",
        "_seen",
        "_session",
        "_session_id",
        "_socket",
        "_speech_problem",
    )

    def __init__(self, socket: SessionSocket, session: LiveSession) -> None:
        self._socket = socket
        self._session = session
        self._rooms = socket.services.rooms
        # What every message needs, without a way through others.
        self._session_id = session.id
        self._input = session.input
        self._read = socket.codec.read
        self._seen = socket.seen
        self._errors = socket.errors
        # Why the token does not allow to speak as the session does now; empty: it does.
        self._speech_problem = ""
        self._check_languages()

    def lost(self) -> None:
        """Handle the loss of the client's socket."""
        self._socket.services.registry.disconnected(self._session, self._socket)

    def receive(self, data: bytes) -> None:
        """Take a message; positional arguments and no table for audio, the most frequent by far."""
        try:
            message = self._read(data)
        except UNREADABLE as error:
            self._socket.refuse(ErrorCode.INVALID_MESSAGE, str(refusal_of(error)))
            return
        self._seen[type(message)].value += 1
        try:
            if type(message) is not AudioChunk:
                # Messages without a session id (rooms, signalling) belong to this session.
                if getattr(message, "session_id", self._session_id) != self._session_id:
                    raise ForeignSession
                self.HANDLERS[type(message)](self, message)
            elif message.session_id != self._session_id:
                raise ForeignSession
            else:
                if self._speech_problem:
                    self._forbid()
                self._input.audio(
                    message.payload or b"",
                    message.seq,
                    message.is_final,
                    message.client_timestamp_ms,
                )
        except (InvalidInput, InvalidToken, Forbidden) as problem:
            self._socket.refuse(code_of(problem), str(problem))
        else:
            if self._errors.in_a_row:
                self._errors.reset()

    def receive_audio(self, data: bytes) -> None:
        """Take one chunk of audio without a message around it."""
        try:
            if self._speech_problem:
                self._forbid()
            self._input.audio(data, None)
        except (InvalidInput, Forbidden) as problem:
            self._socket.refuse(code_of(problem), str(problem))
        else:
            if self._errors.in_a_row:
                self._errors.reset()

    def refuse_text(self, data: bytes) -> None:  # noqa: ARG002 refused unread
        """Refuse a frame of the other form."""
        self._socket.refuse(ErrorCode.INVALID_MESSAGE, "this socket speaks MessagePack")

    def _forbid(self) -> None:
        self._socket.access.forbid(self._speech_problem, self._rooms.code_of(self._session))

    def _utterance(self, message: m.Utterance) -> None:
        if (grant := self._socket.access.grant) is not None:
            allow_speech(grant)
            allow_languages(grant, message.src_lang, message.tgt_lang)
            self._socket.access.check_guest(self._rooms.code_of(self._session))
        self._session.utterances.receive(message)

    def _confirmed(self, ack: m.OutcomeAck) -> None:
        if ack.epoch == self._session.record.epoch:
            self._session.deliverer.confirmed(ack.seq)

    def _heartbeat(self, beat: m.ClientHeartbeat) -> None:
        now = self._socket.services.clock.wall_ms()
        self._socket.send(ServerHeartbeat(session_id=beat.session_id, timestamp=now))

    def _update(self, change: m.SessionUpdate) -> None:
        wanted = (change.src_lang, change.tgt_lang, change.preferred_lang)
        allow_languages(self._socket.grant, *wanted, *(change.tgt_langs or ()))
        preferred = language(change.preferred_lang) if change.preferred_lang else None
        self._session.update(change)
        self._check_languages()
        if preferred is not None:
            self._rooms.set_language(self._session, preferred)

    def _check_languages(self) -> None:
        """Note whether the token allows speech in the session's languages."""
        profile = self._session.languages.next_profile
        self._speech_problem = self._socket.access.problem_of(profile)

    def _refresh_token(self, message: m.TokenRefresh) -> None:
        """Apply a newer token from the next utterance, room command or change of languages on."""
        socket = self._socket
        grant = socket.access.renew(message.token, socket)
        self._check_languages()
        socket.send(TokenRefreshed(**socket.services.gate.left(grant)))

    def _room_create(self, ask: m.RoomCreate) -> None:
        allow_room(self._socket.grant, ask.preferred_lang)
        self._rooms.create(self._session, ask)

    def _room_join(self, ask: m.RoomJoin) -> None:
        allow_room(self._socket.grant, ask.preferred_lang, ask.room_code)
        self._rooms.join(self._session, ask)

    def _tts_started(self, _: m.TtsStarted) -> None:
        self._session.playback(starts=True)

    def _tts_ended(self, _: m.TtsPlayEnded) -> None:
        self._session.playback(starts=False)

    def _room_leave(self, ask: m.RoomLeave) -> None:
        self._rooms.leave(self._session, ask.room_code)

    def _prefer_raw_voice(self, ask: m.RoomRawVoicePreference) -> None:
        self._rooms.prefer_raw_voice(self._session, ask)

    def _relay(self, signal: m.WebrtcOffer | m.WebrtcAnswer | m.WebrtcIce) -> None:
        self._rooms.relay(self._session, signal)

    def _again(self, _: object) -> None:
        raise InvalidMessage("the session is open already")

    def _close(self, _: m.SessionClose) -> None:
        socket, session = self._socket, self._session
        if not session.record.is_over:
            session.record.move(SessionState.CLOSING)
        socket.wire.receiver = Ended(socket, session)
        socket.services.tasks.start(self._finish())

    async def _finish(self) -> None:
        socket, session = self._socket, self._session
        coverage = await socket.services.registry.end(session, "closed")
        socket.send(
            SessionCloseAck(
                session_id=session.id, coverage=coverage if socket.speaks_additions else None
            )
        )
        socket.close(CloseCode.NORMAL, "the session was closed")

    # One table for all sessions, which saves memory in idle ones.
    HANDLERS: ClassVar[dict[type, Callable[[Talking, Any], None]]] = {
        m.Utterance: _utterance,
        m.OutcomeAck: _confirmed,
        m.TokenRefresh: _refresh_token,
        m.ClientHeartbeat: _heartbeat,
        m.SessionClose: _close,
        m.SessionUpdate: _update,
        m.TtsStarted: _tts_started,
        m.TtsPlayEnded: _tts_ended,
        m.RoomCreate: _room_create,
        m.RoomJoin: _room_join,
        m.RoomLeave: _room_leave,
        m.RoomRawVoicePreference: _prefer_raw_voice,
        m.WebrtcOffer: _relay,
        m.WebrtcAnswer: _relay,
        m.WebrtcIce: _relay,
        m.SessionInit: _again,
        m.SessionResume: _again,
    }


class JsonTalking(Talking):
    """Messages are text; a binary frame is one chunk of audio."""

    __slots__ = ()

    # The methods themselves: every frame comes here, so there is no step between.
    text = Talking.receive
    binary = Talking.receive_audio


class MessagePackTalking(Talking):
    """Messages are binary."""

    __slots__ = ()

    text = Talking.refuse_text
    binary = Talking.receive


# By whether messages are binary.
TALKING: tuple[Callable[[SessionSocket, LiveSession], Receiver], ...]
TALKING = (JsonTalking, MessagePackTalking)


class Ended:
    """The session is being closed: nothing more is accepted."""

    def __init__(self, socket: SessionSocket, session: LiveSession) -> None:
        self._socket = socket
        self._session = session

    def text(self, data: bytes) -> None:
        """Refuse what comes too late."""
        if self._socket.decode(data) is not None:
            self._socket.refuse(ErrorCode.SESSION_CLOSED, "the session was closed")

    def binary(self, data: bytes) -> None:  # noqa: ARG002 refused unread
        """Refuse what comes too late."""
        self._socket.refuse(ErrorCode.SESSION_CLOSED, "the session was closed")

    def lost(self) -> None:
        """Send nothing more; accepted speech is still finished."""
        self._session.notifier.detach()


class OpeningAnswer(NamedTuple):
    """What else the answer to `session_init` contains."""

    token: str
    unserved: tuple[str, ...]


def ack_of(
    socket: SessionSocket, session: LiveSession, init: m.SessionInit, answer: OpeningAnswer
) -> SessionInitAck:
    """Return the answer to `session_init`; older clients get it without the additions."""
    profile, news, unserved = session.languages.profile, socket.speaks_additions, answer.unserved
    resume_ms = socket.services.settings.sessions.resume_ms
    message = "session created"
    if unserved:
        message = f"session created; no node serves {', '.join(unserved)} now"
    record, audio = session.record, profile.audio
    return SessionInitAck(
        session_id=record.id,
        assigned_node_id=profile.paired or None,
        message=message,
        trace_id=record.trace_id,
        protocol_version=PROTOCOL_VERSION,
        use_binary_frame=bool(init.audio_format),
        negotiated_codec=audio.name,
        negotiated_audio_format=audio.name,
        negotiated_sample_rate=audio.sample_rate,
        negotiated_channel_count=1,
        epoch=record.epoch if news else None,
        resume_token=answer.token or None,
        resume_ms=resume_ms if answer.token else None,
        unserved_langs=unserved or None if news else None,
    )
