"""The path of the console's stream: `GET /api/v1/events`, server-sent events for operators."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec
from aiohttp import web

from lingua_scheduler.edge.console.documents import ConsoleState
from lingua_scheduler.edge.console.feed import FeedReader
from lingua_scheduler.edge.guard import Problem
from lingua_scheduler.edge.routes import API, ApiRoute

if TYPE_CHECKING:
    from lingua_scheduler.auth.gate import TokenGate
    from lingua_scheduler.edge.console.feed import ConsoleFeed
    from lingua_scheduler.edge.guard import Guard

EVENTS: Final = "text/event-stream"
HEADERS: Final = {
    "Content-Type": EVENTS,
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    # A proxy that collects answers would hold the events back.
    "X-Accel-Buffering": "no",
}
# How long an event may take to be taken by the reader's machine.
UNREAD_S: Final = 10.0
# Unsent bytes that the kernel keeps for a reader.
KERNEL_UNSENT_BYTES_MAX: Final = 64 * 1024
TOO_MANY: Final = "TOO_MANY_READERS"


class EndOfStream(msgspec.Struct, frozen=True):
    """Why a stream ends: the data of its last event, `end`."""

    reason: str


class ConsolePages:
    """The stream of the console."""

    def __init__(self, feed: ConsoleFeed, guard: Guard, gate: TokenGate) -> None:
        self._feed = feed
        self._guard = guard
        self._gate = gate
        self._route = ApiRoute(
            path=f"{API}/events",
            summary="The state of the service as a stream: `snapshot`, then an `update` a second.",
            handler=self.events,
            answer=ConsoleState,
            content_type=EVENTS,
            is_stream=True,
        )
        self.routes = (self._route,)

    async def events(self, request: web.Request) -> web.StreamResponse:
        """Send the stream until the reader, its token or the process ends."""
        grant = self._guard.operator(request, self._route)
        if self._feed.is_full:
            text = "too many consoles are open on this instance, or it is ending"
            raise Problem(503, TOO_MANY, text, {"Retry-After": "5"})
        reader = FeedReader(grant, lambda: _abort(request))
        response = web.StreamResponse(headers=HEADERS)
        self._feed.join(reader)
        try:
            await response.prepare(request)
            _limit_kernel(request)
            self._gate.watch(reader)
            await _send_all(reader, response)
        except (TimeoutError, ConnectionError):
            reader.end("gone")
            _abort(request)
        finally:
            self._feed.leave(reader)
        return response


async def _send_all(reader: FeedReader, response: web.StreamResponse) -> None:
    while (event := await reader.next()) is not None:
        async with asyncio.timeout(UNREAD_S):
            await response.write(event)
    last = msgspec.json.encode(EndOfStream(reader.why_ended))
    async with asyncio.timeout(UNREAD_S):
        await response.write(b"event: end\ndata: %s\n\n" % last)
        await response.write_eof()


def _abort(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()


def _limit_kernel(request: web.Request) -> None:
    sock = request.transport.get_extra_info("socket") if request.transport is not None else None
    if sock is not None:
        with suppress(OSError):  # the peer has gone
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, KERNEL_UNSENT_BYTES_MAX)
