"""A scripted service: clients connect, and the test answers and checks their messages.

Real sockets on 127.0.0.1. Nothing is answered automatically; a test calls `greet` and `resume`.
Waiting is bounded: `expect` fails with the messages that arrived instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from picows import (
    WSUpgradeRequest,
    WSUpgradeResponse,
    WSUpgradeResponseWithListener,
    ws_create_server,
)

from lingua_client import Event, Options, Outcome, Session, connect
from lingua_wire.codec import CLIENT_MESSAGES, SERVER_MESSAGES, form_of
from lingua_wire.from_client import AudioChunk, SessionInit, SessionResume
from lingua_wire.to_client import (
    SessionInitAck,
    SessionResumed,
    TranslationResult,
    UtteranceAccepted,
)
from node_peer import BOUND_S, PROTOCOL_HEADER, Connection, ScriptedScheduler

# 100 ms of pcm16 at 16 kHz.
CHUNK = b"\1\2" * 1600


class Caller(Connection):
    """One client's socket, as the service sees it."""

    def __init__(self, service: ScriptedService, request: WSUpgradeRequest) -> None:
        super().__init__(service, request)
        form = form_of(self.chosen)
        self.codec = CLIENT_MESSAGES[form]  # type: ignore[assignment]
        self.encode = SERVER_MESSAGES[form].encode

    def take(self, data: bytes) -> None:
        self.received.append(self.codec.decode(data))
        self._arrival.set()

    async def greet(self, **fields: Any) -> SessionInit:
        """Answer `session_init`; the session can be resumed."""
        init = await self.expect(SessionInit)
        self.send(ack(**fields))
        return init

    async def resume(self, **fields: Any) -> SessionResume:
        """Answer `session_resume`; by default from the position of the client."""
        asked = await self.expect(SessionResume)
        self.answer(asked, **fields)
        return asked

    def answer(self, asked: SessionResume, **fields: Any) -> None:
        """Accept the resumption of a session."""
        told = {
            "epoch": asked.epoch,
            "last_seq": asked.last_seq,
            "audio_ms": asked.audio_ms or 0,
            "next_audio_seq": asked.next_audio_seq,
            "next_utterance_index": 0,
            **fields,
        }
        self.send(SessionResumed(session_id=asked.session_id, **told))

    async def chunks(self, count: int) -> list[int]:
        """Return the numbers of the next `count` chunks."""
        return [(await self.expect(AudioChunk)).seq for _ in range(count)]

    def accept(self, index: int, first_seq: int, last_seq: int) -> None:
        """Report that an utterance is in the store, 100 ms for each chunk."""
        self.send(
            UtteranceAccepted(
                session_id="s1",
                utterance_index=index,
                first_seq=first_seq,
                last_seq=last_seq,
                start_ms=first_seq * 100,
                end_ms=(last_seq + 1) * 100,
            )
        )

    def outcome(self, seq: int, **fields: Any) -> None:
        """Send a translation, of the utterance before its position."""
        self.send(result(seq, **fields))


class ScriptedService(ScriptedScheduler):
    """Listens on a port of its own and keeps every connection."""

    def accept(self, request: WSUpgradeRequest) -> WSUpgradeResponseWithListener:
        if self.http_status:
            response = WSUpgradeResponse.create_error_response(self.http_status)
            return WSUpgradeResponseWithListener(response, None)
        caller = Caller(self, request)
        headers = {PROTOCOL_HEADER: caller.chosen} if caller.chosen else None
        response = WSUpgradeResponse.create_101_response(headers)
        return WSUpgradeResponseWithListener(response, caller)

    async def caller(self) -> Caller:
        """Return the next connection of a client."""
        found = await self.connection()
        assert isinstance(found, Caller)
        return found


@asynccontextmanager
async def scripted_service(*, answers_pings: bool = True) -> AsyncIterator[ScriptedService]:
    service = ScriptedService()
    server = await ws_create_server(service.accept, "127.0.0.1", 0, enable_auto_pong=answers_pings)
    port = server.sockets[0].getsockname()[1]
    service.url = f"ws://127.0.0.1:{port}/ws/session"
    try:
        yield service
    finally:
        server.close()
        for caller in service.all:
            caller.cut()
            await caller.lost.wait()


def session_at(*services: ScriptedService, **settings: Any) -> Session:
    """Make a session from English to Spanish; the settings are options."""
    options = Options(**settings)
    urls = [service.url for service in services]
    return connect(urls, source="en", targets=("es",), options=options)


@asynccontextmanager
async def opened(
    *services: ScriptedService, told: dict[str, Any] | None = None, **settings: Any
) -> AsyncIterator[tuple[Session, Caller]]:
    """A session that is open at the first service, and its connection there."""
    greeting = asyncio.create_task(_greet(services[0], told or {}))
    async with session_at(*services, **settings) as session:
        yield session, await greeting


async def _greet(service: ScriptedService, told: dict[str, Any]) -> Caller:
    caller = await service.caller()
    await caller.greet(**told)
    return caller


def ack(**fields: Any) -> SessionInitAck:
    told = {"epoch": "e1", "resume_token": "secret", "resume_ms": 60_000, **fields}
    told = {"session_id": "s1", "message": "session created", "trace_id": "t1", **told}
    return SessionInitAck(**told)


def result(seq: int, **fields: Any) -> TranslationResult:
    told = {
        "session_id": "s1",
        "utterance_index": seq - 1,
        "job_id": f"j{seq}",
        "text_asr": "hello",
        "text_translated": f"hola {seq}",
        "tts_audio": b"tts",
        "tts_format": "pcm16",
        "trace_id": "t1",
        "tgt_lang": "es",
        "epoch": "e1",
        "seq": seq,
        **fields,
    }
    return TranslationResult(**told)


async def next_of(session: Session, kind: type[Event] | type[Any]) -> Any:
    """Return the next event of a kind, skipping others."""
    async with asyncio.timeout(BOUND_S):
        async for event in session:
            if isinstance(event, kind):
                return event
    raise AssertionError(f"the session ended without {kind.__name__}")


async def texts(session: Session, count: int) -> list[str]:
    """Return the texts of the next `count` outcomes."""
    return [(await next_of(session, Outcome)).text for _ in range(count)]


async def until(condition: Callable[[], object]) -> None:
    """Wait for a condition that no event reports."""
    async with asyncio.timeout(BOUND_S):
        while not condition():  # noqa: ASYNC110 no event reports it
            await asyncio.sleep(0.005)
