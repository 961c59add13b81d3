"""The HTTP routes of the OpenAI surface: recordings, models, and secrets for browsers.

A recording is processed by a session without a socket (`runtime/file_session.py`), within a time
limit that
depends on its length. If the client disconnects, the session ends. The number of recordings under
way is bounded, so that uploads use a bounded amount of disk and memory.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from aiohttp import web

from lingua_scheduler.auth.policy import Forbidden, allow_languages
from lingua_scheduler.auth.tokens import TokenKeys
from lingua_scheduler.edge.guard import Problem
from lingua_scheduler.edge.openai import answers, form
from lingua_scheduler.edge.openai.audio import decode, open_wav
from lingua_scheduler.edge.openai.errors import NO_RETRY, ApiError, invalid
from lingua_scheduler.edge.openai.events import RealtimeSession
from lingua_scheduler.edge.openai.models import model_list
from lingua_scheduler.edge.routes import ApiRoute
from lingua_scheduler.errors import StoreRejected, StoreUnavailable
from lingua_scheduler.runtime.file_session import (
    FileInterrupted,
    LanguagesUnserved,
    PartLost,
)
from lingua_wire.codes import ErrorCode
from lingua_wire.errors import InvalidInput
from lingua_wire.from_client import SessionInit
from lingua_wire.languages import AUTO
from lingua_wire.recording import Limits, RecordingTooLarge, UnreadableRecording
from lingua_wire.shared import PipelineConfig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from lingua_scheduler.auth.tokens import ClientGrant
    from lingua_scheduler.edge.guard import Guard
    from lingua_scheduler.edge.openai.audio import OpenRecording
    from lingua_scheduler.runtime.file_session import FileSession, FileSessions, FileUtterance
    from lingua_scheduler.runtime.instance import Instance

MISSING_HEADER = "x-lingua-missing-ms"
SESSION_HEADER = "x-lingua-session"
EVENTS = "text/event-stream; charset=utf-8"
CLIENT_GONE = 499
# How often the connection of a waiting client is checked.
GONE_EVERY_S = 0.25
# How long a client may leave events unread once the send buffers are full.
UNREAD_S = 30.0
SECRET_S, SECRET_S_MIN, SECRET_S_MAX = 600, 10, 7200
# The secret of a deployment without client keys, where none is needed.
NO_KEYS = "no-key-needed"
BODY_BYTES_MAX = 64 * 1024


class TranscriptionForm(msgspec.Struct, frozen=True, kw_only=True):
    """A recording to be transcribed; unknown fields are ignored."""

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
    """How long a secret is valid."""

    anchor: Literal["created_at"] = "created_at"
    seconds: int = SECRET_S


class SecretRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Requests a secret for a browser; the session is only echoed."""

    session: dict[str, Any]
    expires_after: ExpiresAfter = ExpiresAfter()


class SecretAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A client token with a short life."""

    value: str
    expires_at: int
    session: RealtimeSession


class OpenAiPages:
    """The HTTP pages of the OpenAI surface."""

    def __init__(self, instance: Instance, guard: Guard) -> None:
        self._instance = instance
        self._guard = guard
        self._limits = instance.settings.openai
        auth = instance.settings.auth
        self._keys = TokenKeys(auth.client_keys, auth.node_keys)
        # Recordings under way, counted from the first byte of the upload.
        self._under_way = 0
        # Held while a file is decoded, which may need much memory; WAV files are not decoded.
        self._decoding = asyncio.Lock()
        self.routes = self._routes()

    def _routes(self) -> tuple[ApiRoute, ...]:
        return (
            ApiRoute(
                method="POST",
                path="/v1/audio/transcriptions",
                summary="A recording as text.",
                handler=self.transcriptions,
                access="speak",
                answer=answers.TranscriptionAnswer,
                form=TranscriptionForm,
            ),
            ApiRoute(
                method="POST",
                path="/v1/audio/translations",
                summary="A recording as text in another language.",
                handler=self.translations,
                access="speak",
                answer=answers.TranscriptionAnswer,
                form=TranslationForm,
            ),
            ApiRoute(
                path="/v1/models",
                summary="Models that a request may name.",
                handler=self.models,
                access="speak",
                answer=answers.ModelList,
            ),
            ApiRoute(
                path="/v1/models/{id}",
                summary="One model.",
                handler=self.model,
                access="speak",
                answer=answers.ModelAnswer,
            ),
            ApiRoute(
                method="POST",
                path="/v1/realtime/translations/client_secrets",
                summary="A secret for one browser's realtime translation.",
                handler=self.client_secret,
                access="speak",
                answer=SecretAnswer,
                body=SecretRequest,
            ),
        )

    def serving(self, route: ApiRoute) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        """Return the function that aiohttp calls for a route."""

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
        return answered(
            answers.ModelList(data=model_list(self._instance.nodes, tenant_of(call[1])))
        )

    async def model(self, call: tuple[web.Request, ClientGrant | None]) -> web.Response:
        """Return one model."""
        return answered(self._model(call[0].match_info["id"], call[1]))

    def _model(self, name: str, grant: ClientGrant | None) -> answers.ModelAnswer:
        for known in model_list(self._instance.nodes, tenant_of(grant)):
            if known.id == name:
                return known
        raise ApiError(
            404, "model_not_found", f"the model {name[:80]!r} does not exist here", param="model"
        )

    async def client_secret(self, call: tuple[web.Request, ClientGrant | None]) -> web.Response:
        """Issue a token that allows no more than the caller's token, and expires no later."""
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
        """Transcribe a recording."""
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
        with self._counted():
            async with form.receive_upload(request, limits.upload_bytes_max) as upload:
                wanted = form.read_request(upload, translates=translates)
                self._model(wanted.model, grant)
                allow_languages(grant, wanted.source, wanted.target)
                recording = await self._open(upload)
                try:
                    within_ms = limits.answer_ms + limits.answer_factor * recording.duration_ms
                    task = RecordingTask(
                        self._instance.client_parts.files, wanted, recording, tenant_of(grant)
                    )
                    return await task.answer(request, within_ms / 1000)
                finally:
                    recording.close()

    async def _open(self, upload: form.Upload) -> OpenRecording:
        limits = Limits(self._limits.upload_bytes_max, self._limits.max_duration_ms / 1000)
        try:
            if (recording := await asyncio.to_thread(open_wav, upload.path, limits)) is not None:
                return recording
            async with self._decoding:
                return await asyncio.to_thread(decode, upload.path, limits)
        except RecordingTooLarge as problem:
            raise invalid("file", str(problem), "audio_too_long") from None
        except UnreadableRecording as problem:
            raise invalid("file", f"invalid file format: {problem}", "invalid_audio") from None

    def _check_not_draining(self) -> None:
        if self._instance.lifecycle.is_draining:
            raise interrupted("the instance stops")

    @contextmanager
    def _counted(self) -> Iterator[None]:
        """Count a recording as under way, or refuse it if there are too many."""
        if self._under_way >= self._limits.requests_max:
            problem = "too many recordings are under way; try again soon"
            raise ApiError(429, "rate_limit_exceeded", problem, headers={"Retry-After": "2"})
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1


class RecordingTask:
    """Processes one recording and makes its response."""

    def __init__(
        self,
        files: FileSessions,
        wanted: form.RecordingRequest,
        recording: OpenRecording,
        tenant: str,
    ) -> None:
        self._files = files
        self._wanted = wanted
        self._recording = recording
        self._tenant = tenant
        self._spoken: list[FileUtterance] = []
        # Texts that are streamed as they arrive; None marks the end.
        self._deltas: asyncio.Queue[str | None] = asyncio.Queue()
        self._session: FileSession

    async def answer(self, request: web.Request, within_s: float) -> web.StreamResponse:
        """Return the response, or raise `ApiError`."""
        try:
            self._session = await self._files.open(
                self._init(), self._add, tenant=self._tenant, prompt=self._wanted.prompt
            )
        except LanguagesUnserved:
            raise self._unserved() from None
        except InvalidInput as problem:
            raise invalid(None, str(problem)) from None
        is_done = False
        try:
            if self._wanted.stream:
                response = await self._streamed(request, within_s)
            else:
                response = await self._whole(request, within_s)
            is_done = True
        finally:
            self._session.end() if is_done else self._session.abandon()
        return response

    def _init(self) -> SessionInit:
        wanted = self._wanted
        # Without a translation, the target language has no effect.
        target = wanted.target or (answers.UNDETERMINED if wanted.source == AUTO else wanted.source)
        return SessionInit(
            client_version="openai",
            platform="http",
            src_lang=wanted.source,
            tgt_lang=target,
            audio_format="pcm16",
            sample_rate=self._recording.sample_rate,
            pipeline=PipelineConfig(use_asr=True, use_nmt=wanted.is_translated, use_tts=False),
            enable_streaming_asr=False,
            ui_events=False,
        )

    def _add(self, part: FileUtterance) -> None:
        self._spoken.append(part)
        if self._wanted.stream and (text := answers.text_of(self._wanted, part)):
            self._deltas.put_nowait(text)

    async def _process(self, within_s: float) -> None:
        try:
            async with asyncio.timeout(within_s):
                await self._session.process(self._recording.blocks())
        except TimeoutError:
            problem = f"not done within {within_s:.0f} s"
            raise ApiError(504, "processing_timeout", problem, headers=NO_RETRY) from None
        except FileInterrupted as problem:
            raise interrupted(str(problem)) from None
        except PartLost as problem:
            raise ApiError(503, "part_not_processed", str(problem), headers=NO_RETRY) from None
        except UnreadableRecording as problem:
            raise invalid("file", f"invalid file format: {problem}", "invalid_audio") from None

    async def _whole(self, request: web.Request, within_s: float) -> web.Response:
        await while_connected(request, self._process(within_s))
        result = self._result()
        body, content_type = answers.render(result)
        headers = {"Content-Type": content_type, SESSION_HEADER: self._session.session.id}
        if result.missing_ms:
            headers[MISSING_HEADER] = str(result.missing_ms)
        return web.Response(body=body, headers=headers)

    def _result(self) -> answers.RecordingResult:
        result = answers.RecordingResult(self._wanted, self._spoken, self._recording.duration_ms)
        if result.missing and not result.has_text:
            reasons = ", ".join(sorted({part.reason for part in result.missing}))
            raise ApiError(
                503,
                "nothing_could_be_processed",
                f"none of {len(result.missing)} utterances could be processed: {reasons}",
                headers={**NO_RETRY, MISSING_HEADER: str(result.missing_ms)},
            )
        return result

    def _unserved(self) -> ApiError:
        wanted = self._wanted
        direction = f"{wanted.source} to {wanted.target}" if wanted.target else wanted.source
        problem = f"no connected node serves this language: {direction}"
        return ApiError(503, "language_not_served", problem, headers={"Retry-After": "5"})

    # As events

    async def _streamed(self, request: web.Request, within_s: float) -> web.StreamResponse:
        headers = {
            "Content-Type": EVENTS,
            "X-Accel-Buffering": "no",
            "Cache-Control": "no-store",
            SESSION_HEADER: self._session.session.id,
        }
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        processing = asyncio.create_task(self._process(within_s))
        processing.add_done_callback(lambda _: self._deltas.put_nowait(None))
        try:
            await while_connected(request, self._stream_deltas(request, response))
            await processing
            result = self._result()
            done = event(answers.TextDone(text=result.text, missing=result.missing))
        except ApiError as problem:
            if problem.status == CLIENT_GONE:
                raise
            done = b"event: error\n" + event(problem.body)
        finally:
            processing.cancel()
            await asyncio.gather(processing, return_exceptions=True)
        async with read_by(request):
            await response.write(done)
            await response.write_eof()
        return response

    async def _stream_deltas(self, request: web.Request, response: web.StreamResponse) -> None:
        before = ""
        while (text := await self._deltas.get()) is not None:
            delta = answers.spaced(before, text)
            before = text
            async with read_by(request):
                await response.write(event(answers.TextDelta(delta=delta)))


def tenant_of(grant: ClientGrant | None) -> str:
    """Return the tenant of a caller; empty if it has none."""
    return grant.tenant if grant is not None else ""


@asynccontextmanager
async def read_by(request: web.Request) -> AsyncIterator[None]:
    """Bound the time of a write: a client that does not read counts as disconnected."""
    try:
        async with asyncio.timeout(UNREAD_S):
            yield
    except (TimeoutError, ConnectionError):
        if request.transport is not None:
            request.transport.abort()
        raise client_gone() from None


async def while_connected(request: web.Request, work: Awaitable[None]) -> None:
    """Wait for some work, but cancel it if the client disconnects."""
    task = asyncio.ensure_future(work)
    try:
        while not task.done():
            await asyncio.wait([task], timeout=GONE_EVERY_S)
            if not task.done() and (request.transport is None or request.transport.is_closing()):
                raise client_gone()
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
        raise ApiError(408, "upload_too_slow", "the body did not arrive in time") from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as problem:
        raise invalid(None, str(problem), "invalid_json") from None


def answered(answer: msgspec.Struct) -> web.Response:
    """Return an answer as JSON."""
    return web.Response(body=msgspec.json.encode(answer), headers={"Content-Type": answers.JSON})


def event(answer: msgspec.Struct) -> bytes:
    """Return an answer as one server-sent event."""
    return b"data: " + msgspec.json.encode(answer) + b"\n\n"


def client_gone() -> ApiError:
    """Return the error of a disconnected client, which cannot read it."""
    return ApiError(CLIENT_GONE, "client_gone", "the client disconnected, or does not read")


def interrupted(why: str) -> ApiError:
    """Return the error for a recording that should be sent again, to any instance."""
    return ApiError(
        503, "going_away", f"{why}; send the recording again", headers={"Retry-After": "1"}
    )
