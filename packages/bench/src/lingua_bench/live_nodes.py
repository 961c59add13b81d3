"""The node process of `lingua bench live`: nodes that answer every job at once, in place.

The connection is the SDK's own (registering, heartbeats). Its worker is replaced by one that
answers in the read callback, because a task per job would cost more than what is measured. Like the
SDK's worker it sends only `job_result` for a job that ends at once, no `job_started`. The text of a
result has the times when the job arrived and when the result was sent, by the machine's monotonic
clock. Sessions that want partial texts have a stream each; every third piece of audio is answered
with some words, which is as often as the reference node does.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from time import monotonic
from typing import TYPE_CHECKING, cast

import msgspec
import uvloop

from lingua_bench.live_relay import NODE_PATH, BareNode, connect_bare
from lingua_bench.live_speaker import TARGET
from lingua_node import Node
from lingua_node.connection import SchedulerConnection
from lingua_node.node_socket import Outbox
from lingua_node.stats import Stats
from lingua_wire.from_node import JobResult, StreamPartial
from lingua_wire.shared import PartialTranslation

if TYPE_CHECKING:
    from lingua_node.job_runner import JobRunner
    from lingua_node.settings import Watch
    from lingua_wire.shared import RunningJob
    from lingua_wire.to_node import (
        JobAssign,
        JobCancel,
        JobResultAck,
        JobResultAcks,
        StreamAudio,
        StreamEnd,
        StreamOpen,
    )

READY = "ready"
# The scheduler may be busy while it is measured; nodes must not give it up for that.
SILENCE_S = 60.0
HEARTBEAT_MS = 2000
# How many pieces of audio (200 ms) the reference node hears between two passes.
PIECES_PER_PARTIAL = 3
# Words of a partial text, about as many as somebody says in three seconds.
STABLE, UNSTABLE = "as many words as somebody has said", " until now"


class EchoStreams:
    """Replaces the SDK's streams: pieces of audio are answered at once."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        # Stream -> the number of the last piece.
        self._pieces: dict[str, int] = {}

    def open(self, message: StreamOpen) -> None:
        """Begin to listen."""
        self._pieces[message.stream_id] = 0

    def hear(self, message: StreamAudio) -> None:
        """Report words, now and then."""
        heard = self._pieces.get(message.stream_id)
        if heard is None:
            return
        revision = self._pieces[message.stream_id] = heard + 1
        if revision % PIECES_PER_PARTIAL:
            return
        translated = PartialTranslation(tgt_lang=TARGET, stable=STABLE, unstable=UNSTABLE)
        self._outbox.send(
            StreamPartial(
                stream_id=message.stream_id,
                revision=revision,
                upto_ms=200 * revision,
                stable=STABLE,
                unstable=UNSTABLE,
                translations=(translated,),
            )
        )

    def end(self, message: StreamEnd) -> None:
        """Forget it."""
        self._pieces.pop(message.stream_id, None)

    def drop_all(self) -> None:
        """Forget all: the connection is lost."""
        self._pieces.clear()


class EchoWorker:
    """Replaces the SDK's worker: every job is done at once."""

    def __init__(self, outbox: Outbox, node_id: str) -> None:
        self.stats = Stats()
        self.node_id = node_id
        self.running_count = 0
        self.streams = EchoStreams(outbox)
        self._outbox = outbox

    def assign(self, job: JobAssign) -> None:
        """Answer a job."""
        came_at = monotonic()
        self._outbox.send(
            JobResult(
                job_id=job.job_id,
                attempt_id=job.attempt_id,
                success=True,
                text_asr=stamp(came_at, monotonic()),
                text_translated="an utterance",
            )
        )
        self.stats.jobs += 1

    def cancel(self, message: JobCancel) -> None:
        """Do nothing: no job can be stopped."""

    def acknowledge(self, message: JobResultAck) -> None:
        """Do nothing: no result is kept."""

    def acknowledge_all(self, message: JobResultAcks) -> None:
        """Do nothing: no result is kept."""

    def resend(self) -> None:
        """Do nothing: no result is kept."""

    def held(self) -> tuple[RunningJob, ...]:
        """Return the running or kept jobs: none."""
        return ()

    def running(self) -> tuple[RunningJob, ...]:
        """Return the running jobs: none."""
        return ()


def stamp(came_at: float, went_at: float) -> str:
    """Write both times into the text of a result."""
    return f"{came_at:.6f} {went_at:.6f}"


def read_stamp(text: str) -> tuple[float, float]:
    """Return when the job arrived and when its result was sent."""
    came_at, _, went_at = text.partition(" ")
    return float(came_at), float(went_at)


async def serve(url: str, count: int, slots: int, relay_url: str = "") -> None:
    """Run so many nodes until stopped, and the relay's if there is one; writes `ready`."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    if relay_url:
        await connect_bare(BareNode(), f"{relay_url}{NODE_PATH}")
    registered: set[str] = set()

    def watch(word: str, detail: str) -> None:
        if word == "registered" and detail not in registered:
            registered.add(detail)
            if len(registered) == count:
                print(READY, flush=True)  # noqa: T201 what the starter waits for
        elif word in {"lost", "refused"}:
            print(f"{word}: {detail}", file=sys.stderr, flush=True)  # noqa: T201 its only voice

    links = [asyncio.create_task(_link(url, f"echo-{n}", slots, watch)) for n in range(count)]
    await stopped.wait()
    for link in links:
        link.cancel()
    await asyncio.gather(*links, return_exceptions=True)


async def _link(url: str, name: str, slots: int, watch: Watch) -> None:
    node = Node(
        url,
        node_id=name,
        max_jobs=slots,
        silence_s=SILENCE_S,
        heartbeat_ms=HEARTBEAT_MS,
        watch=watch,
    )
    outbox = Outbox()
    runner = cast("JobRunner", EchoWorker(outbox, name))
    registration = msgspec.structs.replace(node.registration, max_streams=slots)
    await SchedulerConnection(node, registration, runner, outbox).run()


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:]))
