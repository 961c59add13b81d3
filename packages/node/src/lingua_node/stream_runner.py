"""The streams of one node: opening them, giving them their audio, and forgetting them.

A `StreamRunner` has no socket. Nothing depends on a stream, so every difficulty has the same end:
the stream is forgotten, the scheduler is told (`stream_closed`), and jobs are not affected.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from lingua_node.stats import Stats
from lingua_node.stream import STREAM_S_MAX, Stream, StreamHandler
from lingua_wire.from_node import StreamClosed

if TYPE_CHECKING:
    from lingua_node.result_buffer import MessageSender
    from lingua_wire.to_node import StreamAudio, StreamEnd, StreamOpen

CUT: Final = "cut"
# How long a stream is kept for its job after the cut.
JOB_WAIT_S: Final = 10.0
# And after its last job ended, since those of other languages may arrive later.
OTHER_JOBS_WAIT_S: Final = 1.0
# Streams that wait for their job, for each that may be open.
WAITING_PER_OPEN: Final = 4
RATES: Final = range(8_000, 192_001)

_logger = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class HeardStream:
    """A stream, the task of its handler, and what it waits for."""

    stream: Stream
    task: asyncio.Task[None] | None = None
    # Running jobs that name it.
    jobs: int = 0
    timer: asyncio.TimerHandle | None = field(default=None, repr=False)


class StreamRunner:
    """Runs the handler for every stream, one task each; without a handler it knows no stream."""

    def __init__(
        self,
        handler: StreamHandler | None,
        outbox: MessageSender,
        *,
        max_streams: int,
    ) -> None:
        # Shared with the runner of the jobs.
        self.stats = Stats()
        self._handler = handler
        self._outbox = outbox
        self._max_streams = max_streams
        # Why no new streams are taken; None while they are.
        self._closed_for: str | None = None
        self._heard: dict[str, HeardStream] = {}
        # Tasks that were cancelled and have not ended yet.
        self._ending: set[asyncio.Task[None]] = set()

    @property
    def open_count(self) -> int:
        """Return how many streams are being spoken."""
        return sum(not heard.stream.is_cut for heard in self._heard.values())

    @property
    def kept_count(self) -> int:
        """Return how many streams are kept, with those that wait for their job."""
        return len(self._heard)

    def open(self, message: StreamOpen) -> None:
        """Start to listen, or tell that this is not possible."""
        handler = self._handler
        if message.stream_id in self._heard:
            return
        problem = self._problem_with(message)
        if handler is None or problem is not None:
            self.stats.streams_refused += 1
            self._tell_closed(message.stream_id, problem or "this node does not stream")
            return
        self.stats.streams += 1
        stream = Stream(message, self._outbox.send)
        heard = self._heard[message.stream_id] = HeardStream(stream)
        heard.task = asyncio.create_task(handler(stream))
        heard.task.add_done_callback(partial(self._ended, heard))
        self._bound_waiting()

    def hear(self, message: StreamAudio) -> None:
        """Add audio to a stream; that of an unknown one is ignored."""
        heard = self._heard.get(message.stream_id)
        if heard is not None and not heard.stream.add(message.audio):
            self._close(heard, f"longer than {STREAM_S_MAX} s")

    def end(self, message: StreamEnd) -> None:
        """End a stream: keep it for its job if it was cut, else forget it."""
        heard = self._heard.get(message.stream_id)
        if heard is None:
            return
        if message.reason == CUT:
            heard.stream.cut(message.audio_bytes)
            self._forget_later(heard, JOB_WAIT_S)
        else:
            self._forget(heard)

    def take(self, stream_id: str | None) -> Stream | None:
        """Return the stream of a job that starts now; None if there is none."""
        heard = self._heard.get(stream_id) if stream_id else None
        if heard is None:
            return None
        heard.jobs += 1
        return heard.stream

    def give_back(self, stream: Stream | None) -> None:
        """Take note that a job that had this stream has ended."""
        heard = self._heard.get(stream.stream_id) if stream is not None else None
        if heard is None:
            return
        heard.jobs -= 1
        if not heard.jobs:
            self._forget_later(heard, OTHER_JOBS_WAIT_S)

    def refuse_new(self, reason: str) -> None:
        """Refuse new streams; those that are heard continue."""
        self._closed_for = reason

    def drop_all(self) -> None:
        """Forget all streams, with their socket; those of running jobs end with these."""
        for heard in tuple(self._heard.values()):
            if heard.jobs:
                heard.stream.cut(heard.stream.audio_bytes)
            else:
                self._forget(heard)

    async def stop(self) -> None:
        """Forget all streams, and wait for their handlers."""
        for heard in tuple(self._heard.values()):
            self._forget(heard)
        if self._ending:
            await asyncio.wait(self._ending)

    def _problem_with(self, message: StreamOpen) -> str | None:
        if self._closed_for is not None:
            return self._closed_for
        if self.open_count >= self._max_streams:
            return f"{self._max_streams} streams are open"
        if message.audio_format != "pcm16" or message.sample_rate not in RATES:
            return f"cannot stream {message.audio_format} at {message.sample_rate}"
        return None

    def _ended(self, heard: HeardStream, task: asyncio.Task[None]) -> None:
        self._ending.discard(task)
        heard.task = None
        error = None if task.cancelled() else task.exception()
        if error is not None:
            _logger.error("the handler failed on %r", heard.stream, exc_info=error)
        if heard.stream.dropped:
            return
        if error is not None or task.cancelled():
            self._close(heard, "the node's handler failed")
        elif not heard.stream.is_cut:
            self._close(heard, "the node's handler gave up")

    def _close(self, heard: HeardStream, reason: str) -> None:
        self.stats.streams_closed += 1
        if not heard.stream.is_cut:
            self._tell_closed(heard.stream.stream_id, reason)
        self._forget(heard)

    def _tell_closed(self, stream_id: str, reason: str) -> None:
        self._outbox.send(StreamClosed(stream_id=stream_id, reason=reason))

    def _forget_later(self, heard: HeardStream, seconds: float) -> None:
        _stop_timer(heard)
        loop = asyncio.get_running_loop()
        heard.timer = loop.call_later(seconds, self._forget_unused, heard)

    def _forget_unused(self, heard: HeardStream) -> None:
        if not heard.jobs:
            self._forget(heard)

    def _forget(self, heard: HeardStream) -> None:
        _stop_timer(heard)
        heard.stream.dropped = True
        self._heard.pop(heard.stream.stream_id, None)
        if heard.task is not None:
            self._ending.add(heard.task)
            heard.task.cancel()

    def _bound_waiting(self) -> None:
        waiting = [one for one in self._heard.values() if one.stream.is_cut and not one.jobs]
        for heard in waiting[: max(0, len(waiting) - WAITING_PER_OPEN * self._max_streams)]:
            self._forget(heard)


def _stop_timer(heard: HeardStream) -> None:
    if heard.timer is not None:
        heard.timer.cancel()
        heard.timer = None
