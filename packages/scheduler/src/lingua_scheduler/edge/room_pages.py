"""Pages of one room: captions as Server-Sent Events, the transcript, invitations of guests.

Unlike all other pages these hold what people said: only for those who may enter the room or read
its captions, and only what the room keeps (`rooms.captions_kept`).
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from aiohttp import HttpVersion11, web
from msgspec import Meta, Struct

from lingua_scheduler.auth.policy import Forbidden, allow_invite
from lingua_scheduler.auth.tokens import INVITE_TTL_S, INVITE_TTL_S_MAX, TokenKeys
from lingua_scheduler.edge.answers import ApiAnswer
from lingua_scheduler.edge.api_call import json_response, read_body, read_query
from lingua_scheduler.edge.guard import Problem
from lingua_scheduler.edge.room_door import RoomDoor, Visitor
from lingua_scheduler.edge.routes import ApiRoute
from lingua_scheduler.edge.transcripts import transcript
from lingua_scheduler.errors import StoreRejected, StoreUnavailable
from lingua_scheduler.state.caption_scripts import CaptionScripts
from lingua_wire.codes import CloseCode, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lingua_scheduler.auth.gate import TokenGate
    from lingua_scheduler.auth.tokens import ClientGrant
    from lingua_scheduler.edge.guard import Guard
    from lingua_scheduler.rooms.caption_events import CaptionEvent
    from lingua_scheduler.runtime.instance import Instance
    from lingua_scheduler.state.caption_scripts import StoredCaption

EVENTS = "text/event-stream; charset=utf-8"
# No proxy may hold events back, and no cache keep them.
EVENT_HEADERS = {
    "Content-Type": EVENTS,
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",
    "X-Content-Type-Options": "nosniff",
}
# The first bytes: a browser that loses the connection comes back after this time.
HELLO = b"retry: 2000\n\n"
BEAT = b":\n\n"
# Unread bytes of a reader above which partial texts are left out, and above which it is dropped.
BEHIND_BYTES = 16 << 10
UNREAD_BYTES_MAX = 256 << 10
ANSWER_S = 0.9
CONTENT_TYPES = {
    "srt": "application/x-subrip; charset=utf-8",
    "vtt": "text/vtt; charset=utf-8",
    "txt": "text/plain; charset=utf-8",
}

Token = Annotated[str, Meta(max_length=4096)]
Lang = Annotated[str, Meta(min_length=1, max_length=128)]


class CaptionQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which captions are read, and after which event, if no `Last-Event-ID` says it."""

    lang: Lang
    after: Annotated[str, Meta(max_length=64)] = ""
    token: Token = ""


class TranscriptQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which transcript, and how."""

    lang: Lang
    format: Literal["srt", "vtt", "txt"] = "srt"
    token: Token = ""


class InviteRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """What the guest may do in the room, and for how long."""

    scopes: Annotated[tuple[Literal["speak", "listen", "captions"], ...], Meta(min_length=1)] = (
        "speak",
        "listen",
    )
    ttl_s: Annotated[int, Meta(ge=60, le=INVITE_TTL_S_MAX)] = INVITE_TTL_S


class InviteAnswer(ApiAnswer, frozen=True, kw_only=True):
    """An invitation; `token` and `expires_at_ms` are None on a service without client keys."""

    token: str | None
    expires_at_ms: int | None
    # The path of the page, with the token after `#`, which browsers do not send.
    url: str


@dataclass(frozen=True, slots=True)
class RoomCall:
    """A request about one room."""

    request: web.Request
    visitor: Visitor
    # Its parameters or its body.
    asked: Any

    @property
    def code(self) -> str:
        """Return the room's code, as it was given."""
        return self.request.match_info["code"]


class SseReader:
    """A reader of captions over HTTP; also the holder of its token."""

    def __init__(
        self, transport: asyncio.Transport, grant: ClientGrant | None, *, is_chunked: bool
    ) -> None:
        self._transport = transport
        self._is_chunked = is_chunked
        self.grant = grant
        # Set when nothing more is sent.
        self.closed = asyncio.Event()

    @property
    def is_open(self) -> bool:
        """Tell whether the reader is connected."""
        return not (self.closed.is_set() or self._transport.is_closing())

    @property
    def is_behind(self) -> bool:
        """Tell whether so much is unread that partial texts are left out."""
        return self._transport.get_write_buffer_size() > BEHIND_BYTES

    def send(self, event: CaptionEvent) -> None:
        """Send an event; a reader that is far behind is dropped."""
        self._write(event.chunked if self._is_chunked else event.lines)

    def beat(self) -> None:
        """Show that the connection lives: proxies close silent ones."""
        self._write(b"%x\r\n%s\r\n" % (len(BEAT), BEAT) if self._is_chunked else BEAT)

    def _write(self, data: bytes) -> None:
        if not self.is_open:
            return
        if self._transport.get_write_buffer_size() > UNREAD_BYTES_MAX:
            self._transport.abort()
            self.closed.set()
        else:
            self._transport.write(data)

    def close(self, reason: str) -> None:  # noqa: ARG002 an event said it, or it is not known
        """End the response; a browser comes back by itself unless the room has ended."""
        self.closed.set()

    def token_expires(self, in_ms: int) -> bool:  # noqa: ARG002 no event for it
        """Send nothing: a reader comes back with another token."""
        return True

    def token_ends(self, code: CloseCode, reason: str) -> None:  # noqa: ARG002
        """End the response: coming back with the same token is refused."""
        self.closed.set()


class RoomPages:
    """The pages of rooms."""

    def __init__(self, instance: Instance, guard: Guard, gate: TokenGate) -> None:
        self._settings = instance.settings
        self._guard = guard
        self._gate = gate
        self._clock = instance.clock
        auth = instance.settings.auth
        self._keys = TokenKeys(auth.client_keys, auth.node_keys)
        self.door = RoomDoor(instance.rooms.captions)
        self._lifecycle = instance.lifecycle
        self.routes = self._routes()

    def _routes(self) -> tuple[ApiRoute, ...]:
        return (
            ApiRoute(
                path="/captions/{code}",
                summary="The captions of a room in one language, as Server-Sent Events: `caption`,"
                " `partial`, `members`, `end`.",
                handler=self.captions,
                access="room",
                query=CaptionQuery,
                content_type="text/event-stream",
                asks_store=True,
            ),
            ApiRoute(
                path="/room/{code}/transcript",
                summary="The captions that are kept, as a file; times from the first of them.",
                handler=self.transcript,
                access="room",
                query=TranscriptQuery,
                content_type="text/plain",
                asks_store=True,
            ),
            ApiRoute(
                method="POST",
                path="/room/{code}/invite",
                summary="A short-lived token for a guest of this room.",
                handler=self.invite,
                access="room",
                body=InviteRequest,
                answer=InviteAnswer,
                asks_store=True,
            ),
        )

    def serving(self, route: ApiRoute) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        """Return the function that aiohttp calls for a route."""

        async def serve(request: web.Request) -> web.StreamResponse:
            visitor = Visitor(self._guard.guest(request, route), self._guard.address(request))
            asked = read_query(request, route) or await read_body(request, route)
            try:
                answer: web.StreamResponse = await route.handler(RoomCall(request, visitor, asked))
            except (StoreUnavailable, StoreRejected, TimeoutError):
                down = ErrorCode.SCHEDULER_DEPENDENCY_DOWN
                raise Problem(503, down, down.hint, {"Retry-After": "1"}) from None
            return answer

        return serve

    # Captions

    async def captions(self, call: RoomCall) -> web.StreamResponse:
        """Send captions until the room or the connection ends."""
        request, visitor = call.request, call.visitor
        query: CaptionQuery = call.asked
        if self._lifecycle.is_draining:
            raise Problem(503, "GOING_AWAY", "the instance stops", {"Retry-After": "1"})
        async with asyncio.timeout(ANSWER_S):
            feed = await self.door.feed(visitor, call.code, query.lang)
        response = web.StreamResponse(headers=EVENT_HEADERS)
        is_chunked = request.version >= HttpVersion11
        if is_chunked:
            response.enable_chunked_encoding()
        await response.prepare(request)
        # With the head; from here on events are written to the transport, encoded once for all.
        await response.write(HELLO)
        transport = request.transport
        if transport is None:
            return response
        reader = SseReader(transport, visitor.grant, is_chunked=is_chunked)
        self._gate.watch(reader)
        feed.attach(reader, request.headers.get("Last-Event-ID", "") or query.after)
        try:
            await reader.closed.wait()
        finally:
            feed.detach(reader)
        if not transport.is_closing():
            await response.write_eof()
        return response

    # The transcript

    async def transcript(self, call: RoomCall) -> web.Response:
        """Return the transcript of a room as a file."""
        code, visitor = call.code, call.visitor
        query: TranscriptQuery = call.asked
        lang = self.door.language(visitor, code, query.lang)
        async with asyncio.timeout(ANSWER_S):
            room = await self.door.room(visitor, code)
            if not self._settings.rooms.captions_kept:
                problem = "this service keeps no transcripts (rooms.captions_kept is 0)"
                raise Problem(404, "NOT_FOUND", problem)
            if lang not in room.captioned:
                there_are = ", ".join(room.captioned) or "none yet"
                problem = f"no captions in {lang}; languages with captions: {there_are}"
                raise Problem(404, "NOT_FOUND", problem)
            captions = await self._read(code, visitor.tenant, lang)
        name = f"room-{code}-{lang}.{query.format}"
        headers = {
            "Content-Type": CONTENT_TYPES[query.format],
            "Content-Disposition": f'attachment; filename="{name}"',
        }
        return web.Response(body=transcript(captions, query.format).encode(), headers=headers)

    async def _read(self, code: str, tenant: str, lang: str) -> list[StoredCaption]:
        found: list[StoredCaption] = []
        born, after, scripts = "", 0, CaptionScripts(self.door.store)
        while True:
            page = await scripts.read(code, tenant, lang, born=born, after=after)
            if page is None or not page.captions:
                return found
            found += [caption for _, caption in page.captions]
            born, after = page.born, page.captions[-1][0]
            if after >= page.last:
                return found

    # Invitations

    async def invite(self, call: RoomCall) -> web.Response:
        """Return a token with which a guest may enter this room and no other."""
        code, visitor, grant = call.code, call.visitor, call.visitor.grant
        asked: InviteRequest = call.asked
        try:
            allow_invite(grant, asked.scopes)
        except Forbidden as problem:
            raise Problem(403, ErrorCode.FORBIDDEN, str(problem)) from None
        async with asyncio.timeout(ANSWER_S):
            await self.door.room(visitor, code)
        page = f"/room/{code}"
        if grant is None:
            return json_response(InviteAnswer(token=None, expires_at_ms=None, url=page))
        token = self._keys.issue_invite(grant, code, asked.scopes, asked.ttl_s).reveal()
        expires_at = min(grant.expires_at, time.time() + asked.ttl_s)
        return json_response(
            InviteAnswer(
                token=token, expires_at_ms=int(expires_at * 1000), url=f"{page}#token={token}"
            )
        )
