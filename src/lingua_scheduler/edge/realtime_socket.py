"""`/v1/realtime/translations`: a live session, told in the events of OpenAI's translation API.

Ready (connected, nothing said) -> Opening (the first audio opens a session) -> Talking -> Ended.
Only what is final is told, since deltas are never taken back. Where a client of our own protocol
would be told to pause, its socket is not read for a while. docs/openai.md has what deviates.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from lingua_scheduler.edge import advice
from lingua_scheduler.edge.head import Refusal
from lingua_scheduler.edge.openai import events as e
from lingua_scheduler.edge.openai.answers import spaced
from lingua_scheduler.edge.openai.models import model_list
from lingua_scheduler.edge.openai.sound import at_realtime_rate, speech_of
from lingua_scheduler.edge.openai.trouble import ApiError, invalid
from lingua_scheduler.edge.session_socket import ERRORS_MAX, Forbidden, allow_languages
from lingua_scheduler.edge.waiting import Waiting
from lingua_scheduler.errors import InvalidInput, StoreUnavailable
from lingua_scheduler.languages import AUTO
from lingua_scheduler.live.visitor import abandon, open_without_return
from lingua_scheduler.messages.codes import CloseCode, ErrorCode
from lingua_scheduler.messages.from_client import SessionInit, SessionUpdate
from lingua_scheduler.messages.shared import PipelineConfig
from lingua_scheduler.messages.to_client import (
    Backpressure,
    ErrorMessage,
    Gap,
    GoAway,
    MissingResult,
    TranslationResult,
    UtteranceAccepted,
)
from lingua_scheduler.recording import UnreadableRecording
from lingua_scheduler.tokens import InvalidToken

if TYPE_CHECKING:
    from lingua_scheduler.edge.door import Door
    from lingua_scheduler.edge.head import Head
    from lingua_scheduler.edge.wire import Wire
    from lingua_scheduler.live.instance import Instance
    from lingua_scheduler.live.session import LiveSession
    from lingua_scheduler.messages.codec import Sound
    from lingua_scheduler.messages.to_client import ToClient
    from lingua_scheduler.tokens import ClientGrant

SUBPROTOCOL = "realtime"
# A browser cannot set headers; this is how OpenAI's clients say their key in one.
KEY_SUBPROTOCOL = "openai-insecure-api-key."
DEFAULT_MODEL = "gpt-realtime-translate"
# A session that nobody ends is ended.
SESSION_S = 24 * 3600
# `elapsed_ms` advances in such steps.
STEP_MS = 200
# One audio delta: a second of speech.
DELTA_BYTES = 2 * e.RATE
# Shorter speech is resampled at once: a thread would cost more.
AT_ONCE_BYTES = 8 * 1024
# Appended audio is heard in such pieces, however much of it comes at once: where speech ends is
# looked for between them.
HEARD_BYTES = 2 * e.RATE // 10
# What waits to be told to a client that reads slowly: events, and minutes of speech.
UNTOLD_MAX = 256
UNTOLD_BYTES_MAX = 16 << 20
# Unsent bytes above which speech waits, and how often it is looked at.
UNSENT_BYTES_MAX = 1 << 20
LOOK_S = 0.02
# How long a closing socket may take to tell the rest.
FLUSH_S = 30.0
# How often a store that cannot be reached is asked again for a session.
AGAIN_S = 0.25
GOING_AWAY = "the instance stops; connect again"
SILENCE = "silence_detected"


def admitted(instance: Instance, door: Door, head: Head) -> tuple[ClientGrant | None, str]:
    """Return what a client may do and the model it names, or raise `Refusal`."""
    try:
        grant = door.client(key_of(head))
    except InvalidToken as problem:
        raise Refusal(401, str(problem), advice.challenge(problem)) from None
    if grant is not None and not grant.allows("speak"):
        raise Refusal(403, "the token lacks the scope `speak`")
    model = head.query.get("model") or DEFAULT_MODEL
    tenant = grant.tenant if grant is not None else ""
    if all(known.id != model for known in model_list(instance, tenant)):
        raise Refusal(404, "no such model")
    return grant, model


def key_of(head: Head) -> str | None:
    """Return the key of a request's header or subprotocol, if it has one."""
    scheme, _, token = head.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and token:
        return token.strip()
    for offered in head.subprotocols:
        if offered.startswith(KEY_SUBPROTOCOL):
            return offered.removeprefix(KEY_SUBPROTOCOL)
    return None


class RealtimeSocket:
    """What the phases of one socket share, and the session's way out."""

    def __init__(self, wire: Wire, instance: Instance, grant: ClientGrant | None, model: str):
        self.wire = wire
        self.instance = instance
        self.grant = grant
        # What an outlet says of its client; see `open_without_return`.
        self.speaks_additions = False
        self.wants_events = False
        self.state = e.RealtimeSession.new(model, int(time.time()) + SESSION_S)
        # None until something was said.
        self.session: LiveSession | None = None
        # Events refused since the last one that was used.
        self.errors = 0
        # Outcomes to be told, in order; speech takes time to be made ready.
        self._untold: asyncio.Queue[TranslationResult | e.ToClient | None] = asyncio.Queue()
        self._untold.put_nowait(e.Created(session=self.state))
        # How much speech is in them.
        self._untold_bytes = 0
        # Set when all of it was told, or nobody is there to be told.
        self._is_told = asyncio.Event()
        # Utterance -> where it ended, until its outcome.
        self._ends_ms: dict[int, int] = {}
        # What the deltas so far end with, for the space before the next.
        self._heard_before = self._told_before = ""
        self._is_over = False
        self._expiry = asyncio.get_running_loop().call_later(SESSION_S, self._expired)

    def begin(self, door: Door) -> None:
        """Greet: the wire is open, or was."""
        self.instance.tasks.start(self._tell_all())
        door.hold(self)

    # Telling

    def tell(self, event: e.ToClient) -> None:
        """Tell one event in its turn."""
        self._put(event)

    def _put(self, item: TranslationResult | e.ToClient) -> None:
        if isinstance(item, TranslationResult):
            self._untold_bytes += len(item.tts_audio)
        if self._untold.qsize() >= UNTOLD_MAX or self._untold_bytes > UNTOLD_BYTES_MAX:
            self.wire.close(CloseCode.SLOW_READER, "slow reader")
        elif not self._is_over:
            self._untold.put_nowait(item)

    def refuse(self, problem: ApiError, event_id: object = None) -> None:
        """Answer an event that cannot be used; too many in a row end the socket."""
        metrics = self.instance.metrics
        metrics.invalid_messages_total.labels(
            socket="session", code=ErrorCode.INVALID_MESSAGE
        ).inc()
        self.fail(problem, event_id)
        self.errors += 1
        if self.errors >= ERRORS_MAX:
            self.wire.close(CloseCode.TOO_MANY_ERRORS, "too many invalid events in a row")

    def fail(self, problem: ApiError, event_id: object = None) -> None:
        """Tell that something could not be done."""
        body = problem.body.error
        self.tell(
            e.Failed(
                error=e.ErrorBody(
                    type=body.type, code=problem.code, message=body.message, param=body.param,
                    event_id=event_id[:128] if isinstance(event_id, str) else None,
                )
            )
        )  # fmt: skip

    async def _tell_all(self) -> None:
        try:
            while (item := await self._untold.get()) is not None:
                if isinstance(item, TranslationResult):
                    await self._tell_result(item)
                    self._untold_bytes -= len(item.tts_audio)
                else:
                    self._send(item)
        finally:
            self._is_told.set()

    async def _tell_result(self, result: TranslationResult) -> None:
        end_ms = self._ends_ms.pop(result.utterance_index, None)
        elapsed_ms = None if end_ms is None else -(-end_ms // STEP_MS) * STEP_MS
        heard, text = result.text_asr.strip(), result.text_translated.strip()
        if heard and self.state.audio.input.transcription is not None:
            delta = spaced(self._heard_before, heard)
            self._heard_before = heard
            self._send(e.InputDelta(delta=delta, elapsed_ms=elapsed_ms))
        if text:
            delta = spaced(self._told_before, text)
            self._told_before = text
            self._send(e.OutputDelta(delta=delta, elapsed_ms=elapsed_ms))
        if result.tts_audio:
            await self._tell_speech(result, elapsed_ms)

    async def _tell_speech(self, result: TranslationResult, elapsed_ms: int | None) -> None:
        try:
            if len(result.tts_audio) < AT_ONCE_BYTES and result.tts_format == "pcm16":
                pcm = speech_in(result.tts_audio, result.tts_format)
            else:
                pcm = await asyncio.to_thread(speech_in, result.tts_audio, result.tts_format)
        except UnreadableRecording:
            problem = f"speech came in a format that cannot be read: {result.tts_format[:40]!r}"
            self._send(
                e.Failed(
                    error=e.ErrorBody(
                        type="server_error", code="speech_unreadable", message=problem
                    )
                )
            )
            return
        for at in range(0, len(pcm), DELTA_BYTES):
            await self._until_read()
            self._send(e.AudioDelta(delta=pcm[at : at + DELTA_BYTES], elapsed_ms=elapsed_ms))

    async def _until_read(self) -> None:
        wire = self.wire
        while wire.is_open and wire.buffered > UNSENT_BYTES_MAX:  # noqa: ASYNC110 it has no event
            await asyncio.sleep(LOOK_S)

    def _send(self, event: e.ToClient) -> None:
        self.wire.send_text(e.encode_event(event))

    # The outlet of the session

    # It is in no room: what it gets is its own.
    is_behind = False

    def send_with(self, message: TranslationResult, sound: Sound) -> None:
        """Send a result whose audio is shared with others who get it."""
        self.send(msgspec.structs.replace(message, tts_audio=sound.raw))

    def send(self, message: ToClient) -> None:
        """Tell what a client of our own protocol would be told."""
        if isinstance(message, TranslationResult):
            self._put(message)
        elif isinstance(message, UtteranceAccepted):
            self._ends_ms[message.utterance_index] = message.end_ms
        elif isinstance(message, MissingResult):
            self._missed(message)
        elif isinstance(message, Backpressure):
            self._press(message.action)
        elif isinstance(message, Gap):
            problem = f"audio from {message.start_ms} to {message.end_ms} ms was not taken"
            self.fail(ApiError(503, "audio_not_taken", f"{problem}: {message.reason}"))
        elif isinstance(message, GoAway):
            self.fail(ApiError(503, "going_away", GOING_AWAY))
        elif isinstance(message, ErrorMessage) and message.retry_after_ms is not None:
            self.fail(ApiError(503, message.code.lower(), message.message))

    def close(self, code: int, reason: str) -> None:
        """End the socket after what is still to be told; nothing follows the word of its end."""
        if not self._is_over:
            self.tell(e.Closed())
            self._stop_telling()
            self.instance.tasks.start(self._hang_up(code, reason))

    def _press(self, action: str) -> None:
        """Read no more, or read on; soon and not here, for the session is in the middle of it."""
        if action == "PAUSE":
            self.wire.pause()
        elif action == "RESUME":
            asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        if isinstance(self.wire.receiver, Talking):
            self.wire.receiver.go_on()
        else:
            self.wire.resume()

    def _missed(self, message: MissingResult) -> None:
        self._ends_ms.pop(message.utterance_index, None)
        if message.reason == SILENCE:
            return
        problem = f"utterance {message.utterance_index} has no translation: "
        problem += message.detail or message.reason
        self.fail(ApiError(503, "utterance_missing", problem))

    # The end

    def lost(self) -> None:
        """The client went away: nobody hears the rest."""
        self._expiry.cancel()
        self._stop_telling()
        if self.session is not None:
            abandon(self.instance, self.session)

    def finish(
        self, code: CloseCode = CloseCode.NORMAL, reason: str = "the session was closed"
    ) -> None:
        """The client has said all: tell the rest, then close."""
        if not isinstance(self.wire.receiver, Ended):
            self.wire.receiver = Ended(self)
            # Nobody else would: it may have been paused for what was said before.
            self.wire.resume()
            self.instance.tasks.start(self._finish(code, reason))

    async def _finish(self, code: CloseCode, reason: str) -> None:
        if self.session is not None:
            await self.instance.reception.end(self.session, "closed")
        self.close(code, reason)

    @property
    def is_open(self) -> bool:
        """Tell whether the socket is there."""
        return self.wire.is_open

    def token_expires(self, in_ms: int) -> bool:  # noqa: ARG002 these clients have no word for it
        """Say nothing: these clients know no other token than the one they connected with."""
        return True

    def token_ends(self, code: CloseCode, reason: str) -> None:
        """Take nothing more. What was said before an expiry is told, as nobody can come back."""
        if code is CloseCode.TOKEN_EXPIRED:
            self.fail(ApiError(401, "token_expired", "the token has expired; connect again"))
            self.finish(code, reason)
        else:
            self.wire.close(code, reason)

    async def _hang_up(self, code: int, reason: str) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(FLUSH_S):
                await self._is_told.wait()
        # To hear the answer to the goodbye.
        self.wire.resume()
        self.wire.close(code, reason)

    def _stop_telling(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._untold.put_nowait(None)

    def _expired(self) -> None:
        self.fail(ApiError(400, "session_expired", "the session has reached its longest duration"))
        self.finish()

    def turn_away(self) -> None:
        """The instance stops: no session begins here any more."""
        self.fail(ApiError(503, "going_away", GOING_AWAY))
        self.close(CloseCode.GOING_AWAY, "the instance stops")


class Ready:
    """Connected; nothing was said yet."""

    def __init__(self, socket: RealtimeSocket) -> None:
        self._socket = socket

    def text(self, data: bytes) -> None:
        """Take an event."""
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

    def binary(self, data: bytes) -> None:  # noqa: ARG002 whatever it is
        """Refuse what is no event."""
        self._socket.refuse(invalid(None, "events are JSON in text frames", "invalid_frame"))

    def lost(self) -> None:
        """The client went away."""
        self._socket.lost()

    def _handle(self, event: e.ClientEvent) -> None:
        if isinstance(event, e.Append):
            self._append(event)
        elif isinstance(event, e.Update):
            self._update(event)
        else:
            self._socket.finish()

    def _append(self, event: e.Append) -> None:
        e.check_audio(event.audio)
        socket = self._socket
        if socket.instance.draining:
            socket.turn_away()
        elif event.audio:
            opening = socket.wire.receiver = Opening(socket)
            socket.instance.tasks.start(opening.see_through(opening.open(event.audio)))

    def _update(self, event: e.Update) -> None:
        socket = self._socket
        state = socket.state.changed(event.session)
        allow_languages(socket.grant, state.audio.input.language, state.audio.output.language)
        socket.state = state
        socket.tell(e.Updated(session=state))


class Opening(Waiting):
    """The store opens the session; what comes meanwhile waits."""

    def __init__(self, socket: RealtimeSocket) -> None:
        super().__init__(socket.wire)
        self._socket = socket

    async def open(self, first: bytes) -> None:
        """Open the session and go on with what came early, or wait for other audio."""
        socket = self._socket
        unserved: tuple[str, ...] = ()
        # What comes meanwhile waits in the client's socket, but for what was read already.
        socket.wire.pause()
        session = await self._insist()
        if session is not None:
            unserved = await socket.instance.reception.unserved(session.profile)
        if not self._is_wanted:
            self._give_up(session)
        elif session is None:
            socket.wire.receiver = Ready(socket)
            socket.wire.resume()
            self.go_on()
        else:
            if unserved:
                tell_unserved(socket)
            self._talk(session, first)

    def _talk(self, session: LiveSession, first: bytes) -> None:
        socket = self._socket
        socket.session = session
        talking = socket.wire.receiver = Talking(socket, session)
        talking.hear(first)
        self.go_on()
        if socket.wire.receiver is talking:
            talking.go_on()

    def _give_up(self, session: LiveSession | None) -> None:
        if session is not None:
            abandon(self._socket.instance, session)
        if self._socket.instance.draining:
            self._socket.turn_away()

    def lost(self) -> None:
        """The client went away before its session was open."""
        super().lost()
        self._socket.lost()

    @property
    def _is_wanted(self) -> bool:
        """Tell whether the client is there, has not been told its end, and may begin here."""
        wire, instance = self._wire, self._socket.instance
        return wire.is_open and wire.receiver is self and not self.is_lost and not instance.draining

    async def _insist(self) -> LiveSession | None:
        """Open a session, as soon as the store can be reached: what is said waits for it."""
        socket, is_told = self._socket, False
        tenant = socket.grant.tenant if socket.grant is not None else ""
        while self._is_wanted:
            try:
                return await open_without_return(
                    socket.instance.reception, init_of(socket.state), socket, tenant=tenant
                )
            except InvalidInput as problem:
                socket.refuse(invalid("session", str(problem)))
                return None
            except StoreUnavailable:
                if not is_told:
                    code, is_told = ErrorCode.SCHEDULER_DEPENDENCY_DOWN, True
                    socket.fail(ApiError(503, code.lower(), code.hint))
                await asyncio.sleep(AGAIN_S)
        return None


class Talking(Ready):
    """The session is open. What was read already when it must pause is held, not lost."""

    def __init__(self, socket: RealtimeSocket, session: LiveSession) -> None:
        super().__init__(socket)
        self._session = session
        # Events that were read after the session had enough; not many, as reading stops then.
        self._held: deque[bytes] = deque()
        # What is left of audio in the middle of which it had enough.
        self._unheard = b""

    def text(self, data: bytes) -> None:
        """Take an event, or hold it until there is room."""
        if self._held or self._unheard or self._session.admission.paused:
            self._held.append(data)
        else:
            super().text(data)

    def go_on(self) -> None:
        """Take what was held, as far as there is room, then read on."""
        admission, wire = self._session.admission, self._socket.wire
        self.hear(self._unheard)
        while self._held and not self._unheard and not admission.paused:
            data = self._held.popleft()
            if wire.receiver is self:
                super().text(data)
            else:
                wire.receiver.text(data)
        if not admission.paused:
            wire.resume()

    def _append(self, event: e.Append) -> None:
        e.check_audio(event.audio)
        self.hear(event.audio)

    def hear(self, audio: bytes) -> None:
        """Take audio piece by piece, as far as there is room."""
        session, at = self._session, 0
        # A stopping instance refuses all of it, which is told once.
        size = len(audio) if self._socket.instance.draining else HEARD_BYTES
        while at < len(audio) and not session.admission.paused:
            session.audio(audio[at : at + size], seq=None, is_final=False)
            at += size
        self._unheard = audio[at:]

    def _update(self, event: e.Update) -> None:
        socket, before = self._socket, self._socket.state
        if event.session.output_modalities not in (msgspec.UNSET, before.output_modalities):
            name = "session.output_modalities"
            raise invalid(name, "is fixed once audio was sent", "immutable_value")
        super()._update(event)
        now = socket.state.audio
        if now.output == before.audio.output and now.input.language == before.audio.input.language:
            return
        change = SessionUpdate(
            session_id=self._session.id, src_lang=now.input.language or AUTO,
            tgt_lang=now.output.language,
        )  # fmt: skip
        self._session.update(change)
        socket.instance.tasks.start(self._look_for_nodes(change))

    async def _look_for_nodes(self, change: SessionUpdate) -> None:
        profile = self._session.profile.changed(change)
        if await self._socket.instance.reception.unserved(profile):
            tell_unserved(self._socket)


class Ended:
    """The session is being closed: nothing more is taken."""

    def __init__(self, socket: RealtimeSocket) -> None:
        self._socket = socket
        self._is_told = False

    def text(self, data: bytes) -> None:
        """Refuse what comes too late, once: a microphone may go on, and the rest is still told."""
        if not self._is_told:
            self._is_told = True
            problem = invalid(None, "the session is being closed", "session_closed")
            self._socket.refuse(problem, e.event_id_of(data))

    def binary(self, data: bytes) -> None:
        """Refuse what comes too late."""
        self.text(data)

    def lost(self) -> None:
        """The client went away."""
        self._socket.lost()


def init_of(state: e.RealtimeSession) -> SessionInit:
    """Return how a session begins that is asked for by these clients."""
    speaks = "audio" in state.output_modalities
    return SessionInit(
        client_version="openai-realtime", platform="realtime",
        src_lang=state.audio.input.language or AUTO, tgt_lang=state.audio.output.language,
        audio_format="pcm16", sample_rate=e.RATE, enable_streaming_asr=False, ui_events=False,
        pipeline=PipelineConfig(use_asr=True, use_nmt=True, use_tts=speaks),
    )  # fmt: skip


def tell_unserved(socket: RealtimeSocket) -> None:
    """Tell that no node is there for a session's languages; what is said waits for one."""
    audio = socket.state.audio
    way = f"{audio.input.language or AUTO} to {audio.output.language}"
    socket.fail(ApiError(503, "language_not_served", f"no node that is connected serves {way}"))


def speech_in(audio: bytes, tts_format: str) -> bytes:
    """Return a node's speech as these clients hear it."""
    return at_realtime_rate(*speech_of(audio, tts_format))
