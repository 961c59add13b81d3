"""One node whose socket is on this instance: what it declared, how it is, what is sent to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from lingua_wire.to_node import JobCancel, JobResultAck, NodeStatusMessage

if TYPE_CHECKING:
    from lingua_scheduler.runtime.job import LiveJob
    from lingua_scheduler.runtime.node_declaration import NodeDeclaration
    from lingua_scheduler.state.records import Placement
    from lingua_wire.from_node import NodeHeartbeat
    from lingua_wire.to_node import JobAssign, StreamAudio, StreamEnd, StreamOpen, ToNode

# The boot id of a node that sends none: its restarts cannot be seen.
NO_BOOT = "-"
# How many streams of a socket are remembered, so that their jobs can name them.
STREAMS_KNOWN_MAX = 4096


class NodeTraits(NamedTuple):
    """What a node's protocol lets it do (see `edge/old_protocol.py`)."""

    # It brings its jobs along to another socket or instance.
    resumes: bool = True
    # It buffers the slices of a long speech without reporting them.
    buffers_slices: bool = False


class NodeOutlet(Protocol):
    """A node's socket, in the protocol that the node speaks."""

    @property
    def traits(self) -> NodeTraits:
        """Return what the node's protocol lets it do."""

    def send(self, message: ToNode) -> bool:
        """Send one message; tells whether the socket was open."""

    def assign(self, message: JobAssign, lane: str) -> bool:
        """Send a job; `lane` is set if its utterance has several languages."""

    def close(self, code: int, reason: str) -> None:
        """Close the socket."""


class LiveNode:
    """A registered node whose socket is here."""

    def __init__(
        self,
        node_id: str,
        conn: str,
        outlet: NodeOutlet,
        declaration: NodeDeclaration,
        *,
        tenant: str,
        max_jobs: int,
    ) -> None:
        self.id = node_id
        # Names this socket, so that the clean-up of an old one never touches its successor.
        self.conn = conn
        self.outlet = outlet
        self.declaration = declaration
        self.tenant = tenant
        self.max_jobs = max_jobs
        self.max_streams = 0
        self.boot = declaration.register.boot_id or NO_BOOT
        # It acknowledges jobs: it declared so, or it did so before.
        self.acks = bool(declaration.register.sends_acks)
        self.status = "registering"
        # As of its last beat: an operator stopped new work for it; its machine is too busy.
        self.is_draining = False
        self.is_over = False
        # Its last heartbeat, for a store that lost the node.
        self.last_beat: NodeHeartbeat | None = None
        # It was asked to register elsewhere: its disconnecting is no loss.
        self.is_sent_away = False
        self.assigned = 0
        # Streams that this socket heard lately, oldest first.
        self._streams: dict[str, None] = {}

    @property
    def traits(self) -> NodeTraits:
        """Return what its protocol lets it do."""
        return self.outlet.traits

    @property
    def takes_work(self) -> bool:
        """Tell whether a free slot of it can be used."""
        return self.status == "ready" and not self.is_draining and not self.is_over

    # What it reported

    def acknowledged(self) -> None:
        """Note that it acknowledges jobs."""
        self.acks = True

    def beaten(self, declaration: NodeDeclaration, beat: NodeHeartbeat) -> None:
        """Note what its last heartbeat declared."""
        self.declaration, self.last_beat = declaration, beat

    def is_now(self, *, is_draining: bool, is_over: bool) -> None:
        """Note how the store and its own load judge it."""
        self.is_draining, self.is_over = is_draining, is_over

    def drain(self, *, is_draining: bool) -> None:
        """Note that new work was stopped or resumed for it."""
        self.is_draining = is_draining

    def limit_slots(self, slots: int, streams: int) -> None:
        """Note how many jobs it may hold, and how many streams."""
        self.max_jobs, self.max_streams = slots, streams

    # What it is sent

    def assign(self, job: LiveJob, placement: Placement, left_ms: int | None = None) -> bool:
        """Send a job's attempt and how long it may take; tells whether the socket was open."""
        message = msgspec.structs.replace(
            job.assign,
            attempt_id=placement.attempt,
            audio=job.audio,
            context_reset=placement.context_reset,
            deadline_ms=left_ms,
            stream_id=job.spec.stream if job.spec.stream in self._streams else None,
        )
        self.assigned += 1
        return self.outlet.assign(message, job.spec.lane if job.lanes > 1 else "")

    def open_stream(self, message: StreamOpen) -> bool:
        """Let it listen while one speaks; tells whether the socket was open."""
        while len(self._streams) >= STREAMS_KNOWN_MAX:
            del self._streams[next(iter(self._streams))]
        self._streams[message.stream_id] = None
        return self.outlet.send(message)

    def feed_stream(self, message: StreamAudio) -> bool:
        """Send audio of a stream; tells whether the socket was open."""
        return self.outlet.send(message)

    def end_stream(self, message: StreamEnd) -> None:
        """Let it listen no longer; after a cut the job follows and names the stream."""
        if message.reason != "cut":
            self._streams.pop(message.stream_id, None)
        self.outlet.send(message)

    def cancel(self, job_id: str, attempt: int, reason: str) -> None:
        """Ask the node to drop a job."""
        self.outlet.send(JobCancel(job_id=job_id, reason=reason, attempt_id=attempt))

    def answer(self, job_id: str, attempt: int, status: str) -> None:
        """Acknowledge a report, so that it is not sent again."""
        self.outlet.send(JobResultAck(job_id=job_id, attempt_id=attempt, status=status))

    def report_status(self, status: str, timestamp: int) -> None:
        """Report the node's status to it, if that changed."""
        if status != self.status:
            self.status = status
            message = NodeStatusMessage(node_id=self.id, status=status, timestamp=timestamp)
            self.outlet.send(message)

    def send_away(self, code: int | None = None, reason: str = "") -> None:
        """Note that it is asked to register elsewhere; with a code, close its socket."""
        self.is_sent_away = True
        if code is not None:
            self.outlet.close(code, reason)
