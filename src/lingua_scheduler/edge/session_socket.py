"""The client's socket, phase by phase: handshake, opening, talking, ended.

Each phase is a receiver of its own, so that a message that is illegal in a phase needs no `if`.
Messages are decoded here, once; behind this file only typed messages travel.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from lingua_scheduler.edge import advice
from lingua_scheduler.edge.counting import counters
from lingua_scheduler.edge.waiting import Waiting
from lingua_scheduler.errors import (
    InvalidInput,
    InvalidLanguage,
    InvalidMessage,
    StoreUnavailable,
)
from lingua_scheduler.languages import AUTO, language
from lingua_scheduler.live.pairing import InvalidPairingCode
from lingua_scheduler.live.reception import ResumeRefused, SessionEnded
from lingua_scheduler.messages import from_client as m
from lingua_scheduler.messages.codec import CLIENT_MESSAGES, form_of, with_sound
from lingua_scheduler.messages.codes import CloseCode, ErrorCode
from lingua_scheduler.messages.to_client import (
    ErrorMessage,
    ResumeRejected,
    ServerHeartbeat,
    SessionCloseAck,
    SessionInitAck,
    TokenExpiring,
    TokenRefreshed,
)
from lingua_scheduler.tokens import InvalidToken

if TYPE_CHECKING:
    from collections.abc import Callable

    from lingua_scheduler.edge.door import Door
    from lingua_scheduler.edge.wire import Wire
    from lingua_scheduler.live.instance import Instance
    from lingua_scheduler.live.profile import Profile
    from lingua_scheduler.live.reception import Back
    from lingua_scheduler.live.session import LiveSession
    from lingua_scheduler.messages.codec import Sound
    from lingua_scheduler.messages.to_client import ToClient, TranslationResult
    from lingua_scheduler.state.keys import Cell
    from lingua_scheduler.tokens import ClientGrant

# Invalid messages in a row before the client is shown the door.
ERRORS_MAX = 50
PROTOCOL_VERSION = "1.0"


class SessionSocket:
    """What the phases of one client's socket share, and the session's way out."""

    def __init__(self, wire: Wire, instance: Instance, door: Door, bearer: str | None) -> None:
        self.wire = wire
        self.instance = instance
        self.door = door
        self.bearer = bearer
        self.codec = CLIENT_MESSAGES[form_of(wire.subprotocol)]
        self._encode = self.codec.encode
        self._write = wire.send_binary if self.codec.is_binary else wire.send_text
        self.speaks_additions = wire.subprotocol is not None
        self.wants_events = wire.subprotocol is None
        # What the client's token allows; None where nobody is asked.
        self.grant: ClientGrant | None = None
        # Why it does not allow to speak as the session does now; empty: it does.
        self.barred = ""
        # Messages refused since the last one that was used.
        self.errors = 0
        self._seen = counters(instance.metrics, "session", m.ClientMessage)

    def send(self, message: ToClient) -> None:
        """Send one message; the wire drops a client that does not read."""
        self._write(self._encode(message))

    def send_with(self, message: TranslationResult, sound: Sound) -> None:
        """Send a result whose audio is shared with others who get it."""
        is_binary = self.codec.is_binary
        if not sound.raw:
            self._write(self._encode(message))
        else:
            parts = with_sound(self._encode(message), sound, is_binary=is_binary)
            self.wire.send_parts(parts, is_binary=is_binary)

    @property
    def is_behind(self) -> bool:
        """Tell whether so much is unread that large messages had better wait."""
        return self.wire.is_behind

    def close(self, code: int, reason: str) -> None:
        """Close the socket."""
        if code == CloseCode.SLOW_READER:
            self.wire.drop_slow()
        else:
            self.wire.close(code, reason)

    def show(self, token: str | None) -> ClientGrant | None:
        """Let a client in by its token, which is looked at from now on; raises `InvalidToken`."""
        self.grant = self.door.client(token or self.bearer)
        self.door.hold(self)
        return self.grant

    @property
    def is_open(self) -> bool:
        """Tell whether the socket is there."""
        return self.wire.is_open

    def token_expires(self, in_ms: int) -> bool:
        """Warn a client that knows what to do, when it is in its session."""
        if not isinstance(self.wire.receiver, Talking):
            return False
        if self.speaks_additions:
            self.send(TokenExpiring(expires_in_ms=in_ms))
        return True

    def token_ends(self, code: CloseCode, reason: str) -> None:
        """Close: the session waits for its client, who needs another token."""
        self.close(code, reason)

    def decode(self, data: bytes) -> m.ClientMessage | None:
        """Read a message, or answer that it is none."""
        try:
            message = self.codec.decode(data)
        except InvalidMessage as problem:
            self.refuse(ErrorCode.INVALID_MESSAGE, str(problem))
            return None
        self._seen[type(message)].inc()
        return message

    def refuse(self, code: ErrorCode, problem: str, **more: Any) -> None:
        """Answer a message that cannot be used."""
        self.instance.metrics.invalid_messages_total.labels(socket="session", code=code).inc()
        self.send(ErrorMessage(code=code, message=problem, **more))
        self.count_error()

    def check_speech(self) -> None:
        """Raise `Forbidden` if the token does not allow what the session says now."""
        if self.barred:
            raise Forbidden(self.barred)

    def count_error(self) -> None:
        """Count a message that was refused; too many in a row end the socket."""
        self.errors += 1
        if self.errors >= ERRORS_MAX:
            self.close(CloseCode.TOO_MANY_ERRORS, "too many invalid messages in a row")


class Handshake:
    """Waits for the first message: `session_init` or `session_resume`."""

    def __init__(self, socket: SessionSocket) -> None:
        self._socket = socket
        loop = asyncio.get_running_loop()
        limit = socket.instance.settings.server.handshake_ms / 1000
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
        """The client went away."""
        self._timer.cancel()

    def _first(self, message: m.ClientMessage) -> None:
        socket = self._socket
        if not isinstance(message, m.SessionInit | m.SessionResume):
            socket.refuse(ErrorCode.INVALID_SESSION, "the first message must be session_init")
        elif socket.instance.draining:
            socket.close(CloseCode.GOING_AWAY, "the instance stops")
        else:
            self._timer.cancel()
            if isinstance(message, m.SessionResume):
                resuming = socket.wire.receiver = Resuming(socket)
                socket.instance.tasks.start(resuming.see_through(resuming.resume(message)))
            else:
                opening = socket.wire.receiver = Opening(socket)
                socket.instance.tasks.start(opening.see_through(opening.open(message)))

    def _too_late(self) -> None:
        self._socket.close(CloseCode.HANDSHAKE_TIMEOUT, "no session_init in time")


class Opening(Waiting):
    """The store opens the session."""

    def __init__(self, socket: SessionSocket) -> None:
        super().__init__(socket.wire)
        self._socket = socket

    async def open(self, init: m.SessionInit) -> None:
        """Open the session and go on with what came early, or go back to the handshake."""
        socket = self._socket
        if init.audio_format or init.tgt_langs or init.sample_rate:
            socket.speaks_additions = True
        if init.ui_events is not None:
            socket.wants_events = init.ui_events
        found = await self._try(init)
        if found is None:
            self.go_back()
            return
        session, token = found
        unserved = await socket.instance.reception.unserved(session.profile)
        if self.is_lost:
            socket.instance.reception.untold(session, socket)
            return
        socket.errors = 0
        socket.wire.receiver = Talking(socket, session)
        socket.send(ack_of(socket, session, init, Told(token, unserved)))
        self.go_on()

    def go_back(self) -> None:
        """Wait for another first message."""
        socket = self._socket
        if not self.is_lost and socket.wire.is_open:
            socket.wire.receiver = Handshake(socket)
            self.go_on()

    async def _try(self, init: m.SessionInit) -> tuple[LiveSession, str] | None:
        socket, retry = self._socket, self._socket.instance.settings.jobs.retry_after_ms
        try:
            grant = socket.show(init.token)
            allow(grant, init)
            tenant = grant.tenant if grant is not None else ""
            return await socket.instance.reception.open(init, socket, tenant=tenant)
        except InvalidToken as problem:
            socket.refuse(ErrorCode.UNAUTHORIZED, advice.told(problem, advice.CLIENT))
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
    """The store is asked whether a session goes on here."""

    # Who is told where to go on sends again at once all that it kept, in small chunks.
    messages_max = 4096

    async def resume(self, ask: m.SessionResume) -> None:
        """Go on with a session and with what came early, or go back to the handshake."""
        socket = self._socket
        # Who comes back was given a token: it knows the additions.
        socket.speaks_additions = True
        back = await self._try_resume(ask)
        if back is None:
            self.go_back()
            return
        session = back.session
        socket.errors = 0
        try:
            is_back = not self.is_lost and await socket.instance.reception.attach(back, socket)
        except StoreUnavailable:
            is_back = False
        if is_back and not self.is_lost:
            socket.wire.receiver = Talking(socket, session)
            self.go_on()
            return
        socket.instance.reception.away(session, socket)
        socket.close(CloseCode.TRY_AGAIN_LATER, "the session could not be read; come back")

    async def _try_resume(self, ask: m.SessionResume) -> Back | None:
        socket, retry = self._socket, self._socket.instance.settings.jobs.retry_after_ms
        try:
            grant = socket.show(ask.token)
            tenant = grant.tenant if grant is not None else ""
            try:
                return await socket.instance.reception.resume(ask, socket, tenant=tenant)
            except SessionEnded as ended:
                home = ended.home
            await self._tell_the_rest(ask, home)
        except ResumeRefused as problem:
            socket.send(ResumeRejected(session_id=ask.session_id, reason=problem.reason))
            socket.count_error()
        except InvalidToken as problem:
            socket.refuse(ErrorCode.UNAUTHORIZED, advice.told(problem, advice.CLIENT))
            socket.close(CloseCode.UNAUTHORIZED, str(problem))
        except InvalidInput as problem:
            socket.refuse(ErrorCode.INVALID_MESSAGE, str(problem))
        except StoreUnavailable:
            code = ErrorCode.SCHEDULER_DEPENDENCY_DOWN
            socket.refuse(code, code.hint, retry_after_ms=retry)
        return None

    async def _tell_the_rest(self, ask: m.SessionResume, home: Cell) -> None:
        """The session was closed while its client was away: it hears the rest, and that."""
        socket = self._socket
        for message in await socket.instance.reception.last_words(ask, home):
            socket.send(message)
        socket.close(CloseCode.NORMAL, "the session was closed")


class Talking:
    """The session is open."""

    def __init__(self, socket: SessionSocket, session: LiveSession) -> None:
        self._socket = socket
        self._session = session
        self._session_id = session.id
        socket.barred = barred_by(socket.grant, session.next_profile)

    def text(self, data: bytes) -> None:
        """Take a JSON message."""
        socket = self._socket
        if socket.codec.is_binary:
            socket.refuse(ErrorCode.INVALID_MESSAGE, "this socket speaks MessagePack")
        elif (message := socket.decode(data)) is not None:
            self._handle(message)

    def binary(self, data: bytes) -> None:
        """Take a MessagePack message; on a JSON socket the frame is one chunk of audio."""
        socket = self._socket
        if not socket.codec.is_binary:
            self._raw_audio(data)
        elif (message := socket.decode(data)) is not None:
            self._handle(message)

    def lost(self) -> None:
        """The client went away."""
        self._socket.instance.reception.lost(self._session, self._socket)

    def _handle(self, message: m.ClientMessage) -> None:
        # What has no session id of its own (rooms, signalling) is about this connection's.
        session_id = getattr(message, "session_id", self._session_id)
        if session_id != self._session_id:
            self._socket.refuse(ErrorCode.INVALID_SESSION, "not the session of this connection")
            return
        try:
            if type(message) is m.AudioChunk:  # by far the most: not by way of the table
                self._audio(message)
            else:
                self.HANDLERS[type(message)](self, message)
        except InvalidLanguage as problem:
            self._socket.refuse(ErrorCode.UNSUPPORTED_LANGUAGE, str(problem))
        except InvalidToken as problem:
            self._socket.refuse(ErrorCode.UNAUTHORIZED, str(problem))
        except InvalidInput as problem:
            self._socket.refuse(ErrorCode.INVALID_MESSAGE, str(problem))
        except Forbidden as problem:
            self._socket.refuse(ErrorCode.FORBIDDEN, str(problem))
        else:
            self._socket.errors = 0

    def _raw_audio(self, data: bytes) -> None:
        try:
            self._socket.check_speech()
            self._session.audio(data, seq=None, is_final=False)
        except InvalidInput as problem:
            self._socket.refuse(ErrorCode.INVALID_MESSAGE, str(problem))
        except Forbidden as problem:
            self._socket.refuse(ErrorCode.FORBIDDEN, str(problem))
        else:
            self._socket.errors = 0

    def _audio(self, chunk: m.AudioChunk) -> None:
        if self._socket.barred:
            self._socket.check_speech()
        self._session.audio(
            chunk.payload or b"", seq=chunk.seq, is_final=chunk.is_final,
            client_ts_ms=chunk.client_timestamp_ms,
        )  # fmt: skip

    def _utterance(self, message: m.Utterance) -> None:
        allow_speech(self._socket.grant)
        allow_languages(self._socket.grant, message.src_lang, message.tgt_lang)
        self._session.admission.utterance(message)

    def _confirmed(self, ack: m.OutcomeAck) -> None:
        if ack.epoch == self._session.epoch:
            self._session.deliverer.confirmed(ack.seq)

    def _heartbeat(self, beat: m.ClientHeartbeat) -> None:
        now = self._socket.instance.clock.wall_ms()
        self._socket.send(ServerHeartbeat(session_id=beat.session_id, timestamp=now))

    def _update(self, change: m.SessionUpdate) -> None:
        wanted = (change.src_lang, change.tgt_lang, change.preferred_lang)
        allow_languages(self._socket.grant, *wanted, *(change.tgt_langs or ()))
        preferred = language(change.preferred_lang) if change.preferred_lang else None
        self._session.update(change)
        self._socket.barred = barred_by(self._socket.grant, self._session.next_profile)
        if preferred is not None:
            self._socket.instance.hall.set_language(self._session, preferred)

    def _refresh_token(self, message: m.TokenRefresh) -> None:
        """A newer token counts from the next utterance, the next room and the next change on."""
        socket = self._socket
        grant = socket.grant = renewed(socket.door, socket.grant, message.token)
        socket.barred = barred_by(grant, self._session.next_profile)
        socket.door.hold(socket)
        permits = socket.door.permits
        socket.send(TokenRefreshed(**(permits.left(grant) if permits and grant else {})))

    def _room_create(self, ask: m.RoomCreate) -> None:
        allow_room(self._socket.grant, ask.preferred_lang)
        self._socket.instance.hall.create(self._session, ask)

    def _room_join(self, ask: m.RoomJoin) -> None:
        allow_room(self._socket.grant, ask.preferred_lang)
        self._socket.instance.hall.join(self._session, ask)

    def _tts_started(self, _: m.TtsStarted) -> None:
        self._session.tts_started()

    def _tts_ended(self, _: m.TtsPlayEnded) -> None:
        self._session.tts_ended()

    def _room_leave(self, ask: m.RoomLeave) -> None:
        self._socket.instance.hall.leave(self._session, ask.room_code)

    def _prefer_raw_voice(self, ask: m.RoomRawVoicePreference) -> None:
        self._socket.instance.hall.prefer_raw_voice(self._session, ask)

    def _relay(self, signal: m.WebrtcOffer | m.WebrtcAnswer | m.WebrtcIce) -> None:
        self._socket.instance.hall.relay(self._session, signal)

    def _again(self, _: object) -> None:
        raise InvalidMessage("the session is open already")

    def _close(self, _: m.SessionClose) -> None:
        socket, session = self._socket, self._session
        session.closing = True
        socket.wire.receiver = Ended(socket, session)
        socket.instance.tasks.start(self._finish())

    async def _finish(self) -> None:
        socket, session = self._socket, self._session
        coverage = await socket.instance.reception.end(session, "closed")
        socket.send(
            SessionCloseAck(
                session_id=session.id, coverage=coverage if socket.speaks_additions else None
            )
        )
        socket.close(CloseCode.NORMAL, "the session was closed")

    # One table for all sessions: an idle one costs no table of its own.
    HANDLERS: ClassVar[dict[type, Callable[[Talking, Any], None]]] = {
        m.AudioChunk: _audio,
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


class Ended:
    """The session is being closed: nothing more is taken."""

    def __init__(self, socket: SessionSocket, session: LiveSession) -> None:
        self._socket = socket
        self._session = session

    def text(self, data: bytes) -> None:
        """Refuse what comes too late."""
        if self._socket.decode(data) is not None:
            self._socket.refuse(ErrorCode.SESSION_CLOSED, "the session was closed")

    def binary(self, data: bytes) -> None:  # noqa: ARG002 whatever it is
        """Refuse what comes too late."""
        self._socket.refuse(ErrorCode.SESSION_CLOSED, "the session was closed")

    def lost(self) -> None:
        """The client went away; what it said is still finished."""
        self._session.detach()


class Told(NamedTuple):
    """What the answer to `session_init` says besides."""

    token: str
    unserved: tuple[str, ...]


class Forbidden(Exception):
    """A token that does not allow what was asked for."""


def allow(grant: ClientGrant | None, init: m.SessionInit) -> None:
    """Raise `Forbidden` if a token does not allow this session."""
    if grant is None:
        return
    if not grant.allows("speak") and not grant.allows("listen"):
        raise Forbidden("the token allows neither to speak nor to listen")
    wanted = (init.src_lang, init.tgt_lang, init.lang_a, init.lang_b)
    allow_languages(grant, *wanted, *(init.tgt_langs or ()), *(init.auto_langs or ()))


def renewed(door: Door, former: ClientGrant | None, token: str) -> ClientGrant | None:
    """Return what a newer token of a socket allows, or raise `Forbidden` if it is not its own."""
    grant = door.client(token)
    if grant is None or former is None:
        return grant
    if (grant.tenant, grant.subject) != (former.tenant, former.subject):
        raise Forbidden("the token is not of this connection's tenant and subject")
    if not grant.allows("speak") and not grant.allows("listen"):
        raise Forbidden("the token allows neither to speak nor to listen")
    return grant


def barred_by(grant: ClientGrant | None, profile: Profile) -> str:
    """Return why a token does not allow to speak in a session of this profile; empty: it does."""
    two_way = profile.two_way or ()
    try:
        allow_speech(grant)
        allow_languages(grant, profile.source, *profile.targets, *profile.auto_langs, *two_way)
    except Forbidden as problem:
        return str(problem)
    return ""


def allow_speech(grant: ClientGrant | None) -> None:
    """Raise `Forbidden` if a token allows to listen only."""
    if grant is not None and not grant.allows("speak"):
        raise Forbidden("the token does not allow to speak")


def allow_room(grant: ClientGrant | None, language_code: str | None) -> None:
    """Raise `Forbidden` if a token allows no rooms, or not this language in one."""
    if grant is not None and not grant.rooms:
        raise Forbidden("the token does not allow rooms")
    allow_languages(grant, language_code)


def allow_languages(grant: ClientGrant | None, *codes: str | None) -> None:
    """Raise `Forbidden` if a token does not allow one of these languages."""
    if grant is None or grant.languages is None:
        return
    for code in codes:
        if code and code.lower() != AUTO and not grant.allows_language(language(code)):
            raise Forbidden(f"the token does not allow the language {code[:16]!r}")


def ack_of(
    socket: SessionSocket, session: LiveSession, init: m.SessionInit, told: Told
) -> SessionInitAck:
    """Return the answer to `session_init`: old clients are told what they were always told."""
    audio, news, unserved = session.profile.audio, socket.speaks_additions, told.unserved
    resume_ms = socket.instance.settings.sessions.resume_ms
    message = "session created"
    if unserved:
        message = f"session created; no node serves {', '.join(unserved)} now"
    return SessionInitAck(
        session_id=session.id, assigned_node_id=session.profile.paired or None, message=message,
        trace_id=session.trace_id, protocol_version=PROTOCOL_VERSION,
        use_binary_frame=bool(init.audio_format), negotiated_codec=audio.name,
        negotiated_audio_format=audio.name, negotiated_sample_rate=audio.sample_rate,
        negotiated_channel_count=1, epoch=session.epoch if news else None,
        resume_token=told.token or None, resume_ms=resume_ms if told.token else None,
        unserved_langs=unserved or None if news else None,
    )  # fmt: skip
