"""One client of `lingua bench live`: a real socket that checks every outcome.

Speaks MessagePack through picows. Utterances are whole messages or ends of streamed frames. Each
must have its outcome exactly once and in order; deviations are counted in a `Tally` that all
clients of a process share. `live_clients.py` decides how many clients speak, how often and how
fast; `bench/peer_lingua.py` uses the same client.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import msgspec
from picows import WSFrame, WSListener, WSMsgType, WSTransport, ws_connect

from lingua_wire.codec import MSGPACK_PROTOCOL, encode_msgpack
from lingua_wire.errors import LinguaError
from lingua_wire.from_client import (
    AudioChunk,
    SessionClose,
    SessionInit,
    Utterance,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    # Receives the client, when the utterance was sent, and the message with its outcome.
    OnOutcome = Callable[["BenchmarkSession", float, "SpeakerMessage"], None]

SOURCE, TARGET = "en", "es"
SAMPLE_RATE: Final = 16_000
CONNECT_S: Final = 30.0
LEAVE_S: Final = 10.0
# Sockets that are opened at the same time.
OPENING_MAX: Final = 64

# It logs every connection.
_picows_logger = logging.getLogger(f"{__name__}.picows")
_picows_logger.setLevel(logging.CRITICAL)
PICOWS_LOG: Final = logging.LoggerAdapter(_picows_logger, {})


class LoadFailed(LinguaError):
    """The load could not be put on the scheduler as planned."""


class Parts(msgspec.Struct):
    """What the benchmark reads of a result's timeline."""

    place_ms: int = 0
    queue_ms: int = 0
    push_ms: int = 0
    settle_ms: int = 0


class SpeakerMessage(msgspec.Struct):
    """What the benchmark reads of any message to a client."""

    type: str
    session_id: str = ""
    utterance_index: int = -1
    text_asr: str = ""
    code: str = ""
    message: str = ""
    timeline: Parts | None = None


decode: Final = msgspec.msgpack.Decoder(SpeakerMessage).decode


@dataclass(slots=True)
class Tally:
    """The outcomes of all utterances of one process."""

    sent: int = 0
    # Outcomes by kind of message, and errors by code.
    outcomes: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    duplicates: int = 0
    inversions: int = 0
    # Texts that came while somebody spoke.
    partials: int = 0

    @property
    def lost(self) -> int:
        """Return how many utterances have no outcome (yet)."""
        return self.sent - self.outcomes.total()


class BenchmarkSession(WSListener):
    """One session: sends utterances, and checks that each outcome comes once and in order."""

    def __init__(
        self,
        tally: Tally,
        on_outcome: OnOutcome | None = None,
        *,
        wants_partials: bool = False,
        names_requests: bool = True,
    ) -> None:
        self.tally = tally
        self._wants_partials = wants_partials
        # Whole utterances have a request id, so that each could be asked for again.
        self._names_requests = names_requests
        self.on_outcome = on_outcome
        self.session_id = ""
        # Utterance index -> when it was sent, oldest first; the next index and frame number.
        self.pending: dict[int, float] = {}
        self.next_index = 0
        self.next_seq = 0
        loop = asyncio.get_running_loop()
        self._opened: asyncio.Future[None] = loop.create_future()
        self._closed: asyncio.Future[None] = loop.create_future()
        self._transport: WSTransport | None = None

    async def open(self, url: str) -> None:
        """Connect and open a session."""
        async with asyncio.timeout(CONNECT_S):
            await ws_connect(
                lambda: self,
                url,
                websocket_handshake_timeout=CONNECT_S,
                logger_name=PICOWS_LOG,
                read_buffer_init_size=4096,
                extra_headers={"Sec-WebSocket-Protocol": MSGPACK_PROTOCOL},
            )
            await self._opened

    def say(self, audio: bytes) -> int:
        """Send one whole utterance and return its index."""
        index = self.next_index
        self.next_index = index + 1
        self.tally.sent += 1
        self.pending[index] = monotonic()
        self._send(
            Utterance(
                session_id=self.session_id,
                utterance_index=index,
                src_lang=SOURCE,
                tgt_lang=TARGET,
                audio=audio,
                audio_format="pcm16",
                sample_rate=SAMPLE_RATE,
                request_id=f"r{index}" if self._names_requests else None,
                # The outcome is what it waits for.
                wants_acceptance=False,
            )
        )
        return index

    def stream(self, frame: bytes, *, is_final: bool) -> None:
        """Send one frame of speech; a final one ends an utterance, whose index is the next."""
        if is_final:
            self.tally.sent += 1
            self.pending[self.next_index] = monotonic()
            self.next_index += 1
        self._send(
            AudioChunk(
                session_id=self.session_id, seq=self.next_seq, is_final=is_final, payload=frame
            )
        )
        self.next_seq += 1

    async def leave(self) -> None:
        """Close the session and wait until the scheduler has closed the socket."""
        if not self._closed.done():
            self._send(SessionClose(session_id=self.session_id))
        async with asyncio.timeout(LEAVE_S):
            await self._closed

    def hang_up(self) -> None:
        """Drop the socket."""
        if self._transport is not None:
            self._transport.disconnect(graceful=False)

    # What picows calls.

    def on_ws_connected(self, transport: WSTransport) -> None:
        """Open the session."""
        self._transport = transport
        self._send(
            SessionInit(
                src_lang=SOURCE,
                tgt_lang=TARGET,
                audio_format="pcm16",
                sample_rate=SAMPLE_RATE,
                partials=self._wants_partials or None,
            )
        )

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        """Handle one message."""
        if frame.msg_type is WSMsgType.BINARY:
            self._take(decode(frame.get_payload_as_memoryview()))
        elif frame.msg_type is WSMsgType.CLOSE:
            transport.send_close(frame.get_close_code())
            transport.disconnect()

    def on_ws_disconnected(self, transport: WSTransport) -> None:  # noqa: ARG002
        """Note the end of the connection."""
        self._transport = None
        if not self._opened.done():
            self._opened.set_exception(LoadFailed("the scheduler closed a socket at once"))
        if not self._closed.done():
            self._closed.set_result(None)

    def _send(self, message: Any) -> None:
        if self._transport is None:
            raise LoadFailed("the scheduler closed a session's socket")
        self._transport.send(WSMsgType.BINARY, encode_msgpack(message))

    def _take(self, heard: SpeakerMessage) -> None:
        kind = heard.type
        if kind in ("translation_result", "missing_result"):
            self._take_outcome(heard)
        elif kind == "partial_result":
            self.tally.partials += 1
        elif kind == "session_init_ack":
            self.session_id = heard.session_id
            self._opened.set_result(None)
        elif kind == "error":
            self.tally.errors[heard.code] += 1
            if not self._opened.done():
                self._opened.set_exception(LoadFailed(f"{heard.code}: {heard.message}"))

    def _take_outcome(self, heard: SpeakerMessage) -> None:
        index, tally = heard.utterance_index, self.tally
        sent_at = self.pending.pop(index, None)
        if sent_at is None:
            tally.duplicates += 1
            return
        tally.outcomes[heard.type] += 1
        if next(iter(self.pending), index) < index:
            tally.inversions += 1
        if self.on_outcome is not None:
            self.on_outcome(self, sent_at, heard)


async def open_speakers(
    url: str,
    count: int,
    tally: Tally,
    on_outcome: OnOutcome | None = None,
    *,
    wants_partials: bool = False,
) -> list[BenchmarkSession]:
    """Open so many sessions, some at a time."""
    speakers = [
        BenchmarkSession(tally, on_outcome, wants_partials=wants_partials) for _ in range(count)
    ]
    gate = asyncio.Semaphore(OPENING_MAX)

    async def open_one(speaker: BenchmarkSession) -> None:
        async with gate:
            await speaker.open(url)

    await asyncio.gather(*(open_one(speaker) for speaker in speakers))
    return speakers
