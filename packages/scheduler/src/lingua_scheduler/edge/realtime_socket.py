"""`/v1/realtime/translations`: a live session in the events of OpenAI's translation API.

Ready (connected, no audio yet) -> opening (the first audio opens a session) -> talking -> ended.
While somebody speaks only words that stay are sent, because a delta cannot be taken back. Where a
client of our own protocol is asked to pause, this socket is not read for a while. docs/openai.md
lists the deviations.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from lingua_scheduler.auth.bearer import offered_token
from lingua_scheduler.auth.policy import Forbidden, allow_languages, tenant_of
from lingua_scheduler.auth.tokens import InvalidToken
from lingua_scheduler.edge import token_advice
from lingua_scheduler.edge.client_access import ERRORS_MAX
from lingua_scheduler.edge.early_buffer import EarlyBuffer
from lingua_scheduler.edge.openai import events as e
from lingua_scheduler.edge.openai.errors import ApiError, invalid
from lingua_scheduler.edge.openai.models import model_list
from lingua_scheduler.edge.realtime_sender import RealtimeSender, error_event
from lingua_scheduler.edge.request_head import Refusal
from lingua_scheduler.errors import StoreUnavailable
from lingua_wire.codes import CloseCode, ErrorCode
from lingua_wire.errors import InvalidInput
from lingua_wire.from_client import SessionInit, SessionUpdate
from lingua_wire.languages import AUTO
from lingua_wire.shared import PipelineConfig
from lingua_wire.to_client import (
    Backpressure,
    ErrorMessage,
    Gap,
    GoAway,
    MissingResult,
    PartialResult,
    TranslationResult,
    UtteranceAccepted,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lingua_scheduler.auth.gate import TokenGate
    from lingua_scheduler.auth.tokens import ClientGrant
    from lingua_scheduler.edge.client_access import ClientServices
    from lingua_scheduler.edge.request_head import RequestHead
    from lingua_scheduler.edge.websocket import WebSocket
    from lingua_scheduler.runtime.node import LiveNode
    from lingua_scheduler.runtime.session import LiveSession
    from lingua_wire.codec import EncodedAudio
    from lingua_wire.to_client import ToClient

SUBPROTOCOL = "realtime"
# A browser cannot set headers; OpenAI's browser clients send their key in a subprotocol.
KEY_SUBPROTOCOL = "openai-insecure-api-key."
DEFAULT_MODEL = "gpt-realtime-translate"
# The longest duration of a session.
SESSION_S = 24 * 3600
# Appended audio is passed on in pieces of this size, however large the event is: the end of speech
# is looked for between pieces.
PIECE_BYTES = 2 * e.RATE // 10
# How long a closing socket may take to send the rest.
FLUSH_S = 30.0
# The pause between attempts to open a session in an unavailable store.
RETRY_S = 0.25
GOING_AWAY = "the instance stops; connect again"


def admitted(
    nodes: Mapping[str, LiveNode], gate: TokenGate, head: RequestHead
) -> tuple[ClientGrant | None, str]:
    """Return what a client may do and the model it names, or raise `Refusal`."""
    try:
        grant = gate.client(key_of(head))
    except InvalidToken as problem:
        raise Refusal(401, str(problem), token_advice.challenge(problem)) from None
    if grant is not None and not grant.allows("speak"):
        raise Refusal(403, "the token lacks the scope `speak`")
    model = head.query.get("model") or DEFAULT_MODEL
    if all(known.id != model for known in model_list(nodes, tenant_of(grant))):
        raise Refusal(404, "no such model")
    return grant, model


def key_of(head: RequestHead) -> str | None:
    """Return the key of a request's header or subprotocol, if it has one."""
    authorization = head.headers.get("authorization", "")
    return offered_token(authorization, head.subprotocols, KEY_SUBPROTOCOL)


class RealtimeSocket:
    """What the phases of one socket share; also the outlet of the session."""

    def __init__(
        self, wire: WebSocket, services: ClientServices, grant: ClientGrant | None, model: str
    ) -> None:
        self.wire = wire
        self.services = services
        self.grant = grant
        self.state = e.RealtimeSession.new(model, int(time.time()) + SESSION_S)
        # None until audio was received.
        self.session: LiveSession | None = None
        # Events refused since the last valid one.
        self.errors = 0
        self.sender = RealtimeSender(wire, lambda: self.state)
        self.sender.put(e.CreatedEvent(session=self.state))
        self._expiry = asyncio.get_running_loop().call_later(SESSION_S, self._expired)

    def begin(self) -> None:
        """Start sending, with `session.created` first, and watch the token."""
        self.services.tasks.start(self.sender.send_all())
        self.services.gate.watch(self)

    # Sending

    def send_event(self, event: e.ServerEvent) -> None:
        """Send one event after those that wait."""
        self.sender.put(event)

    def refuse(self, problem: ApiError, event_id: object = None) -> None:
        """Answer an event that cannot be used; too many in a row end the socket."""
        metrics = self.services.metrics
        metrics.sockets.invalid_messages_total.labels(
            socket="session", code=ErrorCode.INVALID_MESSAGE
        ).inc()
        self.fail(problem, event_id)
        self.errors += 1
        if self.errors >= ERRORS_MAX:
            self.wire.close(CloseCode.TOO_MANY_ERRORS, "too many invalid events in a row")

    def fail(self, problem: ApiError, event_id: object = None) -> None:
        """Report that something could not be done."""
        self.send_event(error_event(problem, event_id))

    # The outlet of the session

    # The client gets the additions of our protocol, and no events of jobs.
    speaks_additions = True
    wants_events = False
    # It is in no room, so that it never receives results of others.
    is_behind = False

    def choose(self, *, speaks_additions: bool, wants_events: bool) -> None:
        """Restore nothing: these sessions cannot be resumed."""

    def send_with(self, message: TranslationResult, sound: EncodedAudio) -> None:
        """Send a result whose audio is shared with other receivers."""
        self.send(msgspec.structs.replace(message, tts_audio=sound.raw))

    def send(self, message: ToClient) -> None:
        """Translate a message of our own protocol into events."""
        if isinstance(message, TranslationResult | MissingResult):
            self.sender.put(message)
        elif isinstance(message, PartialResult):
            self.sender.put_partial(message)
        elif isinstance(message, UtteranceAccepted):
            self.sender.record_accepted(message.utterance_index, message.end_ms)
        elif isinstance(message, Backpressure):
            self._apply_pressure(message.action)
        elif isinstance(message, Gap):
            problem = f"audio from {message.start_ms} to {message.end_ms} ms was not taken"
            self.fail(ApiError(503, "audio_not_taken", f"{problem}: {message.reason}"))
        elif isinstance(message, GoAway):
            self.fail(ApiError(503, "going_away", GOING_AWAY))
        elif isinstance(message, ErrorMessage) and message.retry_after_ms is not None:
            self.fail(ApiError(503, message.code.lower(), message.message))

    def close(self, code: int, reason: str) -> None:
        """Close the socket after everything that waits; `session.closed` is the last event."""
        if not self.sender.is_over:
            self.send_event(e.ClosedEvent())
            self.sender.stop()
            self.services.tasks.start(self._close_when_sent(code, reason))

    def _apply_pressure(self, action: str) -> None:
        """Stop reading, or resume soon: not inside this call, which the session makes."""
        if action == "PAUSE":
            self.wire.pause()
        elif action == "RESUME":
            asyncio.get_running_loop().call_soon(self._resume_reading)

    def _resume_reading(self) -> None:
        if isinstance(self.wire.receiver, RealtimeTalking):
            self.wire.receiver.resume()
        else:
            self.wire.resume()

    # The end

    def lost(self) -> None:
        """Abandon the session: a disconnected client cannot receive the rest."""
        self._expiry.cancel()
        self.sender.stop()
        if self.session is not None:
            self.services.registry.abandon(self.session)

    def finish(
        self, code: CloseCode = CloseCode.NORMAL, reason: str = "the session was closed"
    ) -> None:
        """Finish accepted speech and send the rest, then close."""
        if not isinstance(self.wire.receiver, RealtimeEnded):
            self.wire.receiver = RealtimeEnded(self)
            # The socket may be paused, and nothing else would resume it.
            self.wire.resume()
            self.services.tasks.start(self._finish(code, reason))

    async def _finish(self, code: CloseCode, reason: str) -> None:
        if self.session is not None:
            await self.services.registry.end(self.session, "closed")
        self.close(code, reason)

    @property
    def is_open(self) -> bool:
        """Tell whether the socket is open."""
        return self.wire.is_open

    def token_expires(self, in_ms: int) -> bool:  # noqa: ARG002 no event for it
        """Send nothing: these clients cannot replace the token they connected with."""
        return True

    def token_ends(self, code: CloseCode, reason: str) -> None:
        """Accept nothing more. Speech from before an expiry is finished: resuming is impossible."""
        if code is CloseCode.TOKEN_EXPIRED:
            self.fail(ApiError(401, "token_expired", "the token has expired; connect again"))
            self.finish(code, reason)
        else:
            self.wire.close(code, reason)

    async def _close_when_sent(self, code: int, reason: str) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(FLUSH_S):
                await self.sender.all_sent.wait()
        # To receive the client's close frame.
        self.wire.resume()
        self.wire.close(code, reason)

    def _expired(self) -> None:
        self.fail(ApiError(400, "session_expired", "the session has reached its longest duration"))
        self.finish()

    def turn_away(self) -> None:
        """Refuse a session because the instance stops."""
        self.fail(ApiError(503, "going_away", GOING_AWAY))
        self.close(CloseCode.GOING_AWAY, "the instance stops")


class Ready:
    """Connected; no audio was received yet."""

    def __init__(self, socket: RealtimeSocket) -> None:
        self._socket = socket

    def text(self, data: bytes) -> None:
        """Handle an event."""
        socket = self._socket
        try:
            self._handle(e.decoded(data))
        except ApiError as problem:
            socket.refuse(problem, e.event_id_of(data))
        except Forbidden as problem:
            refused = ApiError(403, "insufficient_permissions", str(problem))
            socket.refuse(refused, e.event_id_of(data))
        else:
            socket.errors = 0

    def binary(self, data: bytes) -> None:  # noqa: ARG002 refused unread
        """Refuse a frame that is not an event."""
        self._socket.refuse(invalid(None, "events are JSON in text frames", "invalid_frame"))

    def lost(self) -> None:
        """Handle the loss of the client's socket."""
        self._socket.lost()

    def _handle(self, event: e.ClientEvent) -> None:
        if isinstance(event, e.AppendEvent):
            self._append(event)
        elif isinstance(event, e.UpdateEvent):
            self._update(event)
        else:
            self._socket.finish()

    def _append(self, event: e.AppendEvent) -> None:
        e.check_audio(event.audio)
        socket = self._socket
        if socket.services.lifecycle.is_draining:
            socket.turn_away()
        elif event.audio:
            opening = socket.wire.receiver = RealtimeOpening(socket)
            socket.services.tasks.start(opening.close_unless_answered(opening.open(event.audio)))

    def _update(self, event: e.UpdateEvent) -> None:
        socket = self._socket
        state = socket.state.changed(event.session)
        allow_languages(socket.grant, state.audio.input.language, state.audio.output.language)
        socket.state = state
        socket.send_event(e.UpdatedEvent(session=state))


class RealtimeOpening(EarlyBuffer):
    """The store opens the session; events received meanwhile wait."""

    def __init__(self, socket: RealtimeSocket) -> None:
        super().__init__(socket.wire)
        self._socket = socket

    async def open(self, first: bytes) -> None:
        """Open the session and handle events that came early, or wait for other audio."""
        socket = self._socket
        unserved: tuple[str, ...] = ()
        # Later events wait in the client's socket, except those that were read already.
        socket.wire.pause()
        session = await self._open_when_available()
        if session is not None:
            unserved = await socket.services.served.unserved(session.languages.profile)
        if not self._is_wanted:
            self._give_up(session)
        elif session is None:
            socket.wire.receiver = Ready(socket)
            socket.wire.resume()
            self.deliver()
        else:
            if unserved:
                report_unserved(socket)
            self._begin(session, first)

    def _begin(self, session: LiveSession, first: bytes) -> None:
        socket = self._socket
        socket.session = session
        talking = socket.wire.receiver = RealtimeTalking(socket, session)
        talking.receive_audio(first)
        self.deliver()
        if socket.wire.receiver is talking:
            talking.resume()

    def _give_up(self, session: LiveSession | None) -> None:
        if session is not None:
            self._socket.services.registry.abandon(session)
        if self._socket.services.lifecycle.is_draining:
            self._socket.turn_away()

    def lost(self) -> None:
        """Handle the loss of the client before its session was open."""
        super().lost()
        self._socket.lost()

    @property
    def _is_wanted(self) -> bool:
        """Tell whether the client is connected and not ended, and the instance does not drain."""
        wire, is_draining = self._wire, self._socket.services.lifecycle.is_draining
        return wire.is_open and wire.receiver is self and not self.is_lost and not is_draining

    async def _open_when_available(self) -> LiveSession | None:
        """Open a session as soon as the store is available; speech waits for it."""
        socket, is_reported = self._socket, False
        registry, tenant = socket.services.registry, tenant_of(socket.grant)
        while self._is_wanted:
            try:
                init = init_of(socket.state)
                session, _ = await registry.open(init, socket, tenant=tenant, is_resumable=False)
            except InvalidInput as problem:
                socket.refuse(invalid("session", str(problem)))
                return None
            except StoreUnavailable:
                if not is_reported:
                    code, is_reported = ErrorCode.SCHEDULER_DEPENDENCY_DOWN, True
                    socket.fail(ApiError(503, code.lower(), code.hint))
                await asyncio.sleep(RETRY_S)
            else:
                return session
        return None


class RealtimeTalking(Ready):
    """The session is open. Events that were read before a pause took effect are held."""

    def __init__(self, socket: RealtimeSocket, session: LiveSession) -> None:
        super().__init__(socket)
        self._session = session
        # Events that were read after the session had paused; few, because reading stops then.
        self._held: deque[bytes] = deque()
        # The rest of audio in the middle of which the session paused.
        self._rest = b""

    def text(self, data: bytes) -> None:
        """Handle an event, or hold it until there is room."""
        if self._held or self._rest or self._session.admission.parts.backlog.is_paused:
            self._held.append(data)
        else:
            super().text(data)

    def resume(self) -> None:
        """Handle what was held, as far as there is room, then resume reading."""
        backlog, wire = self._session.admission.parts.backlog, self._socket.wire
        self.receive_audio(self._rest)
        while self._held and not self._rest and not backlog.is_paused:
            data = self._held.popleft()
            if wire.receiver is self:
                super().text(data)
            else:
                wire.receiver.text(data)
        if not backlog.is_paused:
            wire.resume()

    def _append(self, event: e.AppendEvent) -> None:
        e.check_audio(event.audio)
        self.receive_audio(event.audio)

    def receive_audio(self, audio: bytes) -> None:
        """Pass audio on piece by piece, as far as there is room."""
        session, at = self._session, 0
        # A stopping instance refuses all of it, which is reported once.
        size = len(audio) if self._socket.services.lifecycle.is_draining else PIECE_BYTES
        while at < len(audio) and not session.admission.parts.backlog.is_paused:
            session.input.audio(audio[at : at + size], seq=None, is_final=False)
            at += size
        self._rest = audio[at:]

    def _update(self, event: e.UpdateEvent) -> None:
        socket, before = self._socket, self._socket.state
        if event.session.output_modalities not in (msgspec.UNSET, before.output_modalities):
            name = "session.output_modalities"
            raise invalid(name, "is fixed once audio was sent", "immutable_value")
        super()._update(event)
        now = socket.state.audio
        if now.output == before.audio.output and now.input.language == before.audio.input.language:
            return
        change = SessionUpdate(
            session_id=self._session.id,
            src_lang=now.input.language or AUTO,
            tgt_lang=now.output.language,
        )
        self._session.update(change)
        socket.services.tasks.start(self._look_for_nodes(change))

    async def _look_for_nodes(self, change: SessionUpdate) -> None:
        profile = self._session.languages.profile.changed(change)
        if await self._socket.services.served.unserved(profile):
            report_unserved(self._socket)


class RealtimeEnded:
    """The session is being closed: nothing more is accepted."""

    def __init__(self, socket: RealtimeSocket) -> None:
        self._socket = socket
        self._is_refused = False

    def text(self, data: bytes) -> None:
        """Refuse late events, once: a microphone may go on, and the rest is still sent."""
        if not self._is_refused:
            self._is_refused = True
            problem = invalid(None, "the session is being closed", "session_closed")
            self._socket.refuse(problem, e.event_id_of(data))

    def binary(self, data: bytes) -> None:
        """Refuse a late frame."""
        self.text(data)

    def lost(self) -> None:
        """Handle the loss of the client's socket."""
        self._socket.lost()


def init_of(state: e.RealtimeSession) -> SessionInit:
    """Return the `session_init` that corresponds to a client's settings."""
    speaks = "audio" in state.output_modalities
    return SessionInit(
        client_version="openai-realtime",
        platform="realtime",
        src_lang=state.audio.input.language or AUTO,
        tgt_lang=state.audio.output.language,
        audio_format="pcm16",
        sample_rate=e.RATE,
        enable_streaming_asr=False,
        partials=True,
        ui_events=False,
        pipeline=PipelineConfig(use_asr=True, use_nmt=True, use_tts=speaks),
    )


def report_unserved(socket: RealtimeSocket) -> None:
    """Report that no connected node serves a session's languages; its speech waits for one."""
    audio = socket.state.audio
    way = f"{audio.input.language or AUTO} to {audio.output.language}"
    socket.fail(ApiError(503, "language_not_served", f"no node that is connected serves {way}"))
