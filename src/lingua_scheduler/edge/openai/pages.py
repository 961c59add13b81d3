"""The HTTP routes of this surface: recordings in, texts out; models; secrets for browsers.

A recording is a visit (`live/visitor.py`): its answer takes as long as it takes, within a bound by
its length. A client that goes away ends its visit. How many recordings are under way at once is
bounded, so that uploads cost a known amount of disk and memory.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from aiohttp import web

from lingua_scheduler.edge.guard import Problem
from lingua_scheduler.edge.openai import answers, form
from lingua_scheduler.edge.openai.events import RealtimeSession
from lingua_scheduler.edge.openai.models import model_list
from lingua_scheduler.edge.openai.sound import decode, open_wav
from lingua_scheduler.edge.openai.trouble import NEVER_AGAIN, ApiError, invalid
from lingua_scheduler.edge.openapi import Route
from lingua_scheduler.edge.session_socket import Forbidden, allow_languages
from lingua_scheduler.errors import InvalidInput, StoreRejected, StoreUnavailable
from lingua_scheduler.languages import AUTO
from lingua_scheduler.live.visitor import (
    NobodyServes,
    PartLost,
    Spoken,
    VisitInterrupted,
    Visitor,
)
from lingua_scheduler.messages.codes import ErrorCode
from lingua_scheduler.messages.from_client import SessionInit
from lingua_scheduler.messages.shared import PipelineConfig
from lingua_scheduler.recording import Limits, RecordingTooLarge, UnreadableRecording
from lingua_scheduler.tokens import TokenKeys

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from lingua_scheduler.edge.guard import Guard
    from lingua_scheduler.edge.openai.sound import Sound
    from lingua_scheduler.live.instance import Instance
    from lingua_scheduler.tokens import ClientGrant

MISSING_HEADER = "x-lingua-missing-ms"
SESSION_HEADER = "x-lingua-session"
EVENTS = "text/event-stream; charset=utf-8"
CLIENT_GONE = 499
# How often a client that waits is looked at: it may have gone.
GONE_EVERY_S = 0.25
# How long a client may leave events unread when no more of them fit on their way.
UNREAD_S = 30.0
SECRET_S, SECRET_S_MIN, SECRET_S_MAX = 600, 10, 7200
# What is told as a secret where nobody is asked for one.
NO_KEYS = "no-key-needed"
BODY_BYTES_MAX = 64 * 1024


class TranscriptionForm(msgspec.Struct, frozen=True, kw_only=True):
    """A recording to be written down; unknown fields are ignored."""

    file: bytes
    model: str
    language: str = ""
    prompt: str = ""
    response_format: Literal["json", "text", "srt", "vtt", "verbose_json"] = "json"
    temperature: float = 0.0
    stream: bool = False


class TranslationForm(msgspec.Struct, frozen=True, kw_only=True):
    """A recording to be translated; `source_language` and `target_language` are additions."""

    file: bytes
    model: str
    prompt: str = ""
    response_format: Literal["json", "text", "srt", "vtt", "verbose_json"] = "json"
    temperature: float = 0.0
    source_language: str = "auto"
    target_language: str = "en"


class ExpiresAfter(msgspec.Struct, frozen=True, kw_only=True):
    """How long a secret is good for."""

    anchor: Literal["created_at"] = "created_at"
    seconds: int = SECRET_S


class SecretRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Asks for a secret that a browser may be given; the session is only echoed."""

    session: dict[str, Any]
    expires_after: ExpiresAfter = ExpiresAfter()


class SecretAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A client token that ends soon."""

    value: str
    expires_at: int
    session: RealtimeSession


class OpenAiPages:
    """Everything of this surface that is asked for by HTTP."""

    def __init__(self, instance: Instance, guard: Guard) -> None:
        self._instance = instance
        self._guard = guard
        self._limits = instance.settings.openai
        auth = instance.settings.auth
        self._keys = TokenKeys(auth.client_keys, auth.node_keys)
        # Recordings under way, from the first byte of the upload on.
        self._under_way = 0
        # Held while a file is decoded, which may take much memory; a WAV file is not.
        self._decoding = asyncio.Lock()
        self.routes = self._routes()

    def _routes(self) -> tuple[Route, ...]:
        return (
            Route("POST", "/v1/audio/transcriptions", "A recording as text.",
                  self.transcriptions, "speak", answers.TranscriptionAnswer,
                  form=TranscriptionForm),
            Route("POST", "/v1/audio/translations", "A recording as text in another language.",
                  self.translations, "speak", answers.TranscriptionAnswer, form=TranslationForm),
            Route("GET", "/v1/models", "Models that may be named.", self.models, "speak",
                  answers.ModelList),
            Route("GET", "/v1/models/{id}", "One model.", self.model, "speak",
                  answers.ModelAnswer),
            Route("POST", "/v1/realtime/translations/client_secrets",
                  "A secret for one browser's realtime translation.", self.client_secret, "speak",
                  SecretAnswer, body=SecretRequest),
        )  # fmt: skip

    def serving(self, route: Route) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        """Return what aiohttp calls for a route."""

        async def serve(request: web.Request) -> web.StreamResponse:
            try:
                grant = self._guard.speaker(request, route)
                answer: web.StreamResponse = await route.handler((request, grant))
            except Problem as problem:
                raise ApiError.of(problem) from None
            except Forbidden as problem:
                raise ApiError(403, "insufficient_permissions", str(problem)) from None
            except (StoreUnavailable, StoreRejected):
                down = ErrorCode.SCHEDULER_DEPENDENCY_DOWN
                headers = {"Retry-After": "1"}
                raise ApiError(503, down.lower(), down.hint, headers=headers) from None
            return answer

        return serve

    # Models and secrets

    async def models(self, call: tuple[web.Request, ClientGrant | None]) -> web.Response:
        """Return the models."""
        return answered(answers.ModelList(data=model_list(self._instance, tenant_of(call[1]))))

    async def model(self, call: tuple[web.Request, ClientGrant | None]) -> web.Response:
        """Return one model."""
        return answered(self._model(call[0].match_info["id"], call[1]))

    def _model(self, name: str, grant: ClientGrant | None) -> answers.ModelAnswer:
        for known in model_list(self._instance, tenant_of(grant)):
            if known.id == name:
                return known
        raise ApiError(
            404, "model_not_found", f"the model {name[:80]!r} does not exist here", param="model"
        )

    async def client_secret(self, call: tuple[web.Request, ClientGrant | None]) -> web.Response:
        """Make a token that allows no more than the caller's, and not for longer."""
        request, grant = call
        ask = await read_json(request)
        seconds = ask.expires_after.seconds
        if not SECRET_S_MIN <= seconds <= SECRET_S_MAX:
            between = f"must be from {SECRET_S_MIN} to {SECRET_S_MAX}"
            raise invalid("expires_after.seconds", f"{between}: {seconds}")
        session = RealtimeSession.asked_for(ask.session, expires_at=int(time.time()) + seconds)
        if grant is None:
            value = NO_KEYS
        else:
            allow_languages(grant, session.audio.output.language)
            seconds = min(seconds, int(grant.expires_at - time.time()))
            if seconds < 1:
                raise ApiError(401, "invalid_api_key", "the token is about to expire")
            value = self._keys.issue_secret(grant, seconds).reveal()
        expires_at = int(time.time()) + seconds
        return answered(SecretAnswer(value=value, expires_at=expires_at, session=session))

    # Recordings

    async def transcriptions(
        self, call: tuple[web.Request, ClientGrant | None]
    ) -> web.StreamResponse:
        """Write a recording down."""
        return await self._recording(*call, translates=False)

    async def translations(
        self, call: tuple[web.Request, ClientGrant | None]
    ) -> web.StreamResponse:
        """Translate a recording."""
        return await self._recording(*call, translates=True)

    async def _recording(
        self, request: web.Request, grant: ClientGrant | None, *, translates: bool
    ) -> web.StreamResponse:
        self._check_not_draining()
        limits = self._limits
        with self._place():
            async with form.received(request, limits.upload_bytes_max) as upload:
                wish = form.wish_of(upload, translates=translates)
                self._model(wish.model, grant)
                allow_languages(grant, wish.source, wish.target)
                sound = await self._open(upload)
                try:
                    within_ms = limits.answer_ms + limits.answer_factor * sound.duration_ms
                    task = Task(self._instance, wish, sound, tenant_of(grant))
                    return await task.answer(request, within_ms / 1000)
                finally:
                    sound.close()

    async def _open(self, upload: form.Upload) -> Sound:
        limits = Limits(self._limits.upload_bytes_max, self._limits.max_duration_ms / 1000)
        try:
            if (sound := await asyncio.to_thread(open_wav, upload.path, limits)) is not None:
                return sound
            async with self._decoding:
                return await asyncio.to_thread(decode, upload.path, limits)
        except RecordingTooLarge as problem:
            raise invalid("file", str(problem), "audio_too_long") from None
        except UnreadableRecording as problem:
            raise invalid("file", f"invalid file format: {problem}", "invalid_audio") from None

    def _check_not_draining(self) -> None:
        if self._instance.draining:
            raise interrupted("the instance stops")

    @contextmanager
    def _place(self) -> Iterator[None]:
        """Take one of the places for recordings, or say that there is none."""
        if self._under_way >= self._limits.requests_max:
            raise ApiError(
                429, "rate_limit_exceeded", "too many recordings are under way; try again soon",
                headers={"Retry-After": "2"},
            )  # fmt: skip
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1


class Task:
    """One recording from its sound to its answer."""

    def __init__(self, instance: Instance, wish: form.Wish, sound: Sound, tenant: str) -> None:
        self._instance = instance
        self._wish = wish
        self._sound = sound
        self._tenant = tenant
        self._spoken: list[Spoken] = []
        # What is told as it comes; None is the end of it.
        self._deltas: asyncio.Queue[str | None] = asyncio.Queue()
        self._visitor = Visitor(instance, self._heard)

    async def answer(self, request: web.Request, within_s: float) -> web.StreamResponse:
        """Return the answer, or raise `ApiError`."""
        try:
            await self._visitor.open(self._init(), tenant=self._tenant, prompt=self._wish.prompt)
        except NobodyServes:
            raise self._unserved() from None
        except InvalidInput as problem:
            raise invalid(None, str(problem)) from None
        is_done = False
        try:
            if self._wish.stream:
                response = await self._streamed(request, within_s)
            else:
                response = await self._whole(request, within_s)
            is_done = True
        finally:
            self._visitor.end() if is_done else self._visitor.abandon()
        return response

    def _init(self) -> SessionInit:
        wish = self._wish
        # A text in the language of the speech: no translation, so that any target will do.
        target = wish.target or (answers.UNDETERMINED if wish.source == AUTO else wish.source)
        return SessionInit(
            client_version="openai", platform="http", src_lang=wish.source, tgt_lang=target,
            audio_format="pcm16", sample_rate=self._sound.sample_rate,
            pipeline=PipelineConfig(use_asr=True, use_nmt=wish.is_translated, use_tts=False),
            enable_streaming_asr=False, ui_events=False,
        )  # fmt: skip

    def _heard(self, part: Spoken) -> None:
        self._spoken.append(part)
        if self._wish.stream and (text := answers.text_of(self._wish, part)):
            self._deltas.put_nowait(text)

    async def _speak(self, within_s: float) -> None:
        try:
            async with asyncio.timeout(within_s):
                await self._visitor.speak(self._sound.blocks())
        except TimeoutError:
            problem = f"not done within {within_s:.0f} s"
            raise ApiError(504, "processing_timeout", problem, headers=NEVER_AGAIN) from None
        except VisitInterrupted as problem:
            raise interrupted(str(problem)) from None
        except PartLost as problem:
            raise ApiError(503, "part_not_processed", str(problem), headers=NEVER_AGAIN) from None
        except UnreadableRecording as problem:
            raise invalid("file", f"invalid file format: {problem}", "invalid_audio") from None

    async def _whole(self, request: web.Request, within_s: float) -> web.Response:
        await while_connected(request, self._speak(within_s))
        told = self._told()
        body, content_type = answers.rendered(told)
        headers = {"Content-Type": content_type, SESSION_HEADER: self._visitor.session.id}
        if told.missing_ms:
            headers[MISSING_HEADER] = str(told.missing_ms)
        return web.Response(body=body, headers=headers)

    def _told(self) -> answers.Told:
        told = answers.Told(self._wish, self._spoken, self._sound.duration_ms)
        if told.missing and not told.has_text:
            reasons = ", ".join(sorted({part.reason for part in told.missing}))
            raise ApiError(
                503, "nothing_could_be_processed",
                f"none of {len(told.missing)} utterances could be processed: {reasons}",
                headers={**NEVER_AGAIN, MISSING_HEADER: str(told.missing_ms)},
            )  # fmt: skip
        return told

    def _unserved(self) -> ApiError:
        wish = self._wish
        way = f"{wish.source} to {wish.target}" if wish.target else wish.source
        problem = f"no node that is connected serves this language: {way}"
        return ApiError(503, "language_not_served", problem, headers={"Retry-After": "5"})

    # As events

    async def _streamed(self, request: web.Request, within_s: float) -> web.StreamResponse:
        headers = {"Content-Type": EVENTS, "X-Accel-Buffering": "no", "Cache-Control": "no-store",
                   SESSION_HEADER: self._visitor.session.id}  # fmt: skip
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        speaking = asyncio.create_task(self._speak(within_s))
        speaking.add_done_callback(lambda _: self._deltas.put_nowait(None))
        try:
            await while_connected(request, self._pass_on(request, response))
            await speaking
            told = self._told()
            done = event(answers.TextDone(text=told.text, missing=told.missing))
        except ApiError as problem:
            if problem.status == CLIENT_GONE:
                raise
            done = b"event: error\n" + event(problem.body)
        finally:
            speaking.cancel()
            await asyncio.gather(speaking, return_exceptions=True)
        async with read_by(request):
            await response.write(done)
            await response.write_eof()
        return response

    async def _pass_on(self, request: web.Request, response: web.StreamResponse) -> None:
        before = ""
        while (text := await self._deltas.get()) is not None:
            delta = answers.spaced(before, text)
            before = text
            async with read_by(request):
                await response.write(event(answers.TextDelta(delta=delta)))


def tenant_of(grant: ClientGrant | None) -> str:
    """Return whose caller it is; empty: nobody's in particular."""
    return grant.tenant if grant is not None else ""


@asynccontextmanager
async def read_by(request: web.Request) -> AsyncIterator[None]:
    """Write to a client, but not for ever: one that does not read is one that went away."""
    try:
        async with asyncio.timeout(UNREAD_S):
            yield
    except (TimeoutError, ConnectionError):
        if request.transport is not None:
            request.transport.abort()
        raise gone() from None


async def while_connected(request: web.Request, work: Awaitable[None]) -> None:
    """Wait for some work, but end it when nobody waits for the answer any more."""
    task = asyncio.ensure_future(work)
    try:
        while not task.done():
            await asyncio.wait([task], timeout=GONE_EVERY_S)
            if not task.done() and (request.transport is None or request.transport.is_closing()):
                raise gone()
        task.result()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def read_json(request: web.Request) -> SecretRequest:
    """Return a request's body, or raise `ApiError`."""
    if (request.content_length or 0) > BODY_BYTES_MAX:
        raise ApiError(413, "body_too_large", f"the body exceeds {BODY_BYTES_MAX} bytes")
    try:
        async with asyncio.timeout(form.SILENCE_S):
            data = await request.read()
        return msgspec.json.decode(data, type=SecretRequest)
    except TimeoutError:
        raise ApiError(408, "upload_too_slow", "the body did not come in time") from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as problem:
        raise invalid(None, str(problem), "invalid_json") from None


def answered(answer: msgspec.Struct) -> web.Response:
    """Return an answer as JSON."""
    return web.Response(body=msgspec.json.encode(answer), headers={"Content-Type": answers.JSON})


def event(answer: msgspec.Struct) -> bytes:
    """Return an answer as one server-sent event."""
    return b"data: " + msgspec.json.encode(answer) + b"\n\n"


def gone() -> ApiError:
    """Return the error that nobody reads, for there is nobody."""
    return ApiError(CLIENT_GONE, "client_gone", "the client went away, or does not read")


def interrupted(why: str) -> ApiError:
    """Return the error of a recording that should be sent again, to whoever listens then."""
    return ApiError(
        503, "going_away", f"{why}; send the recording again", headers={"Retry-After": "1"}
    )
