"""One node's socket on this instance: what is pushed to it and what it holds.

Nodes without a boot id speak the older protocol: they know no acknowledgements and refuse a second
job of one session and utterance, so that each language is told to them as a session of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

from lingua_scheduler.messages.to_node import JobCancel, JobResultAck, NodeStatusMessage

if TYPE_CHECKING:
    from lingua_scheduler.live.declared import Said
    from lingua_scheduler.live.job import LiveJob
    from lingua_scheduler.messages.from_node import NodeHeartbeat
    from lingua_scheduler.messages.to_node import ToNode
    from lingua_scheduler.state.records import Placement

# The boot id of a node that gives none: whether it restarted cannot be told.
NO_BOOT = "-"


class NodeOutlet(Protocol):
    """A node's socket, as the board sees it."""

    def send(self, message: ToNode) -> bool:
        """Send one message; tells whether the socket was there to take it."""

    def close(self, code: int, reason: str) -> None:
        """Close the socket."""


class LiveNode:
    """A registered node whose socket is here."""

    def __init__(
        self, node_id: str, conn: str, outlet: NodeOutlet, said: Said, *, tenant: str, max_jobs: int
    ) -> None:
        self.id = node_id
        # Names this socket, so that the clean-up of an old one never touches its successor.
        self.conn = conn
        self.outlet = outlet
        self.said = said
        self.tenant = tenant
        self.max_jobs = max_jobs
        self.boot = said.register.boot_id or NO_BOOT
        self.is_old = said.register.boot_id is None
        # It acknowledges jobs: it said so, or it did so before.
        self.acks = bool(said.register.sends_acks)
        self.status = "registering"
        # As of its last beat: somebody stopped new work for it; its machine is too busy for any.
        self.draining = False
        self.is_over = False
        # What it said last, for a store that forgot it.
        self.last_beat: NodeHeartbeat | None = None
        # It was told to register elsewhere: its going is no loss.
        self.is_sent_away = False
        self.assigned = 0

    def assign(self, job: LiveJob, placement: Placement, left_ms: int | None = None) -> bool:
        """Push a job's attempt and how long it may take; tells whether the socket took it."""
        told: dict[str, str | tuple[()]] = {}
        if self.is_old:
            told["glossary"] = ()
        if self.is_old and job.lanes > 1:
            told["session_id"] = f"{job.assign.session_id}~{job.spec.lane}"
            told["turn_id"] = f"{job.assign.turn_id}~{job.spec.lane}"
        message = msgspec.structs.replace(
            job.assign,
            attempt_id=placement.attempt,
            audio=job.audio,
            context_reset=placement.context_reset,
            deadline_ms=None if self.is_old else left_ms,
            **told,
        )
        self.assigned += 1
        return self.outlet.send(message)

    @property
    def takes_work(self) -> bool:
        """Tell whether a free slot of it can be used."""
        return self.status == "ready" and not self.draining and not self.is_over

    def cancel(self, job_id: str, attempt: int, reason: str) -> None:
        """Tell the node to drop a job."""
        self.outlet.send(JobCancel(job_id=job_id, reason=reason, attempt_id=attempt))

    def answer(self, job_id: str, attempt: int, status: str) -> None:
        """Acknowledge a report, so that it is not sent again."""
        if not self.is_old:
            self.outlet.send(JobResultAck(job_id=job_id, attempt_id=attempt, status=status))

    def tell_status(self, status: str, timestamp: int) -> None:
        """Tell the node how it stands, if that changed and it listens."""
        if status != self.status:
            self.status = status
            if not self.is_old:
                self.outlet.send(
                    NodeStatusMessage(node_id=self.id, status=status, timestamp=timestamp)
                )
