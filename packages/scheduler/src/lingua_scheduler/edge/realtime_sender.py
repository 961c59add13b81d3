"""What a realtime socket sends: outcomes and partials of the session as events, in order.

Converting speech takes time, so that everything waits in one queue. A delta cannot be taken back:
`TranscriptDeltas` decides which words are sent while somebody still speaks.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from lingua_scheduler.edge.openai import events as e
from lingua_scheduler.edge.openai.audio import at_realtime_rate, speech_of
from lingua_scheduler.edge.openai.errors import ApiError
from lingua_scheduler.edge.openai.transcript_deltas import TranscriptDeltas
from lingua_wire.codes import CloseCode
from lingua_wire.recording import UnreadableRecording
from lingua_wire.to_client import MissingResult, PartialResult, TranslationResult

if TYPE_CHECKING:
    from collections.abc import Callable

    from lingua_scheduler.edge.websocket import WebSocket

# `elapsed_ms` is rounded up to a multiple of this.
STEP_MS = 200
# One audio delta: a second of speech.
DELTA_BYTES = 2 * e.RATE
# Shorter speech is resampled in the event loop: a thread would cost more.
AT_ONCE_BYTES = 8 * 1024
# How much may wait for a client that reads slowly: events, and bytes of speech.
UNSENT_EVENTS_MAX = 256
UNSENT_SPEECH_MAX = 16 << 20
# Unsent bytes of the socket above which speech waits, and how often that is checked.
SOCKET_BYTES_MAX = 1 << 20
CHECK_S = 0.02
SILENCE = "silence_detected"
# Outcomes and partials are converted when they are sent.
Unsent = TranslationResult | MissingResult | PartialResult | e.ServerEvent


class RealtimeSender:
    """Events and outcomes that wait to be sent, and the text that was sent."""

    def __init__(self, wire: WebSocket, state: Callable[[], e.RealtimeSession]) -> None:
        self._wire = wire
        self._state = state
        # In order; None is the end.
        self._unsent: asyncio.Queue[Unsent | None] = asyncio.Queue()
        # How much speech they contain.
        self._unsent_bytes = 0
        # Set when everything was sent, or the client is disconnected.
        self.all_sent = asyncio.Event()
        # Nothing more is taken.
        self.is_over = False
        # Utterance -> where it ends in the stream, until its outcome.
        self._ends_ms: dict[int, int] = {}
        # What was sent of the transcript and of the translation.
        self._transcript, self._translation = TranscriptDeltas(), TranscriptDeltas()
        # The newest partial of speech after an utterance that has no outcome yet.
        self._early_partial: PartialResult | None = None
        # Where the last delta is in the stream.
        self._elapsed_ms = 0

    def put(self, item: Unsent) -> None:
        """Send an outcome or an event after those that wait."""
        if isinstance(item, TranslationResult):
            self._unsent_bytes += len(item.tts_audio)
        if self._unsent.qsize() >= UNSENT_EVENTS_MAX or self._unsent_bytes > UNSENT_SPEECH_MAX:
            self._wire.close(CloseCode.SLOW_READER, "slow reader")
        elif not self.is_over:
            self._unsent.put_nowait(item)

    def put_partial(self, partial: PartialResult) -> None:
        """Send a partial unless the client reads slowly: its words come with the outcome, too."""
        if self._unsent.empty() and self._wire.buffered <= SOCKET_BYTES_MAX:
            self.put(partial)

    def record_accepted(self, index: int, end_ms: int) -> None:
        """Record where an utterance ends; its outcome will follow."""
        self._ends_ms[index] = end_ms

    def stop(self) -> None:
        """Take nothing more; what waits is still sent."""
        if not self.is_over:
            self.is_over = True
            self._unsent.put_nowait(None)

    async def send_all(self) -> None:
        """Send what comes, until it is stopped."""
        try:
            while (item := await self._unsent.get()) is not None:
                if isinstance(item, TranslationResult):
                    await self._send_result(item)
                    self._unsent_bytes -= len(item.tts_audio)
                elif isinstance(item, MissingResult):
                    self._send_missing(item)
                elif isinstance(item, PartialResult):
                    self._send_partial(item)
                else:
                    self._send(item)
        finally:
            self.all_sent.set()

    async def _send_result(self, result: TranslationResult) -> None:
        index = result.utterance_index
        elapsed_ms = self._elapsed(self._ends_ms.pop(index, None))
        if self._wants_transcript:
            self._send_transcript(self._transcript.finish(index, result.text_asr), elapsed_ms)
        else:
            self._transcript.drop(index)
        delta = self._translation.finish(index, result.text_translated)
        self._send_translation(delta, elapsed_ms)
        if result.tts_audio:
            await self._send_speech(result, elapsed_ms)
        self._send_early_partial()

    def _send_missing(self, message: MissingResult) -> None:
        index = message.utterance_index
        self._ends_ms.pop(index, None)
        self._transcript.drop(index)
        self._translation.drop(index)
        if message.reason != SILENCE:
            problem = f"utterance {index} has no translation: {message.detail or message.reason}"
            self._send(error_event(ApiError(503, "utterance_missing", problem)))
        self._send_early_partial()

    def _send_partial(self, partial: PartialResult) -> None:
        """Send the words that stay; texts of one utterance never stand within another's."""
        index, target = partial.utterance_index, self._state().audio.output.language
        if any(open_index < index for open_index in self._ends_ms):
            self._early_partial = partial
            return
        self._early_partial = None
        elapsed_ms = self._elapsed(partial.upto_ms)
        if self._wants_transcript:
            self._send_transcript(self._transcript.grow(index, partial.stable), elapsed_ms)
        for one in partial.translations:
            if one.tgt_lang == target:
                self._send_translation(self._translation.grow(index, one.stable), elapsed_ms)

    def _send_early_partial(self) -> None:
        if self._early_partial is not None:
            self._send_partial(self._early_partial)

    @property
    def _wants_transcript(self) -> bool:
        return self._state().audio.input.transcription is not None

    def _send_transcript(self, delta: str, elapsed_ms: int | None) -> None:
        if delta:
            self._send(e.InputDeltaEvent(delta=delta, elapsed_ms=elapsed_ms))

    def _send_translation(self, delta: str, elapsed_ms: int | None) -> None:
        if delta:
            self._send(e.OutputDeltaEvent(delta=delta, elapsed_ms=elapsed_ms))

    def _elapsed(self, at_ms: int | None) -> int | None:
        """Return a position in the stream as deltas state it; they never go back."""
        if at_ms is None:
            return None
        self._elapsed_ms = max(self._elapsed_ms, -(-at_ms // STEP_MS) * STEP_MS)
        return self._elapsed_ms

    async def _send_speech(self, result: TranslationResult, elapsed_ms: int | None) -> None:
        try:
            if len(result.tts_audio) < AT_ONCE_BYTES and result.tts_format == "pcm16":
                pcm = speech_in(result.tts_audio, result.tts_format)
            else:
                pcm = await asyncio.to_thread(speech_in, result.tts_audio, result.tts_format)
        except UnreadableRecording:
            problem = f"speech came in a format that cannot be read: {result.tts_format[:40]!r}"
            error = e.ErrorBody(type="server_error", code="speech_unreadable", message=problem)
            self._send(e.ErrorEvent(error=error))
            return
        for at in range(0, len(pcm), DELTA_BYTES):
            await self._until_read()
            self._send(e.AudioDeltaEvent(delta=pcm[at : at + DELTA_BYTES], elapsed_ms=elapsed_ms))

    async def _until_read(self) -> None:
        wire = self._wire
        while wire.is_open and wire.buffered > SOCKET_BYTES_MAX:  # noqa: ASYNC110 it has no event
            await asyncio.sleep(CHECK_S)

    def _send(self, event: e.ServerEvent) -> None:
        self._wire.send_text(e.encode_event(event))


def error_event(problem: ApiError, event_id: object = None) -> e.ErrorEvent:
    """Return the event that reports a problem, and the client's event that caused it."""
    body = problem.body.error
    error = e.ErrorBody(
        type=body.type,
        code=problem.code,
        message=body.message,
        param=body.param,
        event_id=event_id[:128] if isinstance(event_id, str) else None,
    )
    return e.ErrorEvent(error=error)


def speech_in(audio: bytes, tts_format: str) -> bytes:
    """Return a node's speech at the sample rate of these clients."""
    return at_realtime_rate(*speech_of(audio, tts_format))
