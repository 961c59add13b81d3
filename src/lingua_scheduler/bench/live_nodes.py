"""The node process of `lingua bench live`: nodes that answer every job at once, in place.

The connection is the SDK's own (registering, heartbeats); its worker is replaced by one that
answers in the read callback, because a task per job would make the load dearer than what it
measures. Like the SDK's it sends `job_ack`, `job_started` and `job_result`. The text of a result
holds when the job came in and when the result went out, by the machine's monotonic clock.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from time import monotonic
from typing import TYPE_CHECKING, cast

import uvloop

from lingua_scheduler.bench.live_relay import NODE_PATH, BareNode, connect_bare
from lingua_scheduler.messages.codec import MSGPACK_PROTOCOL
from lingua_scheduler.messages.from_node import JobAck, JobResult, JobStarted
from lingua_scheduler.node import Node
from lingua_scheduler.node.link import Link
from lingua_scheduler.node.worker import Stats

if TYPE_CHECKING:
    from lingua_scheduler.messages.shared import RunningJob
    from lingua_scheduler.messages.to_node import JobAssign, JobCancel, JobResultAck
    from lingua_scheduler.node.link import Watch
    from lingua_scheduler.node.worker import Worker

READY = "ready"
# The scheduler may be busy when it is measured; nodes do not give it up for that.
SILENCE_S = 60.0
HEARTBEAT_MS = 2000


class EchoWorker:
    """Stands in for the SDK's worker: whatever it is told to do is done."""

    def __init__(self, link: Link) -> None:
        self.stats = Stats()
        self.node_id = ""
        self.running_count = 0
        self._link = link

    def assign(self, job: JobAssign) -> None:
        """Answer a job."""
        came_at = monotonic()
        send, job_id, attempt = self._link.send, job.job_id, job.attempt_id
        send(JobAck(job_id=job_id, attempt_id=attempt))
        send(JobStarted(job_id=job_id, attempt_id=attempt))
        send(
            JobResult(
                job_id=job_id, attempt_id=attempt, success=True,
                text_asr=stamp(came_at, monotonic()), text_translated="an utterance",
            )
        )  # fmt: skip
        self.stats.jobs += 1

    def cancel(self, message: JobCancel) -> None:
        """Nothing runs that could be stopped."""

    def acknowledged(self, message: JobResultAck) -> None:
        """Nothing is kept."""

    def resend(self) -> None:
        """Nothing is kept."""

    def held(self) -> tuple[RunningJob, ...]:
        """Return what runs or is kept: nothing."""
        return ()

    def running(self) -> tuple[RunningJob, ...]:
        """Return what runs: nothing."""
        return ()


def stamp(came_at: float, went_at: float) -> str:
    """Write two moments into the text of a result."""
    return f"{came_at:.6f} {went_at:.6f}"


def read_stamp(text: str) -> tuple[float, float]:
    """Return when the job came in and when its result went out."""
    came_at, _, went_at = text.partition(" ")
    return float(came_at), float(went_at)


async def serve(url: str, count: int, slots: int, relay_url: str = "") -> None:
    """Be so many nodes until told to stop, and the relay's if there is one; says `ready`."""
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
    registration = Node(url, node_id=name, max_jobs=slots).registration
    link = Link(url, (MSGPACK_PROTOCOL,), silence_s=SILENCE_S, tls=None)
    worker = cast("Worker", EchoWorker(link))
    link.attach(worker, registration, HEARTBEAT_MS, watch)
    await link.run()


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:]))
