"""Acknowledgements of results in batches: one message for all that one node gets within 20 ms.

A node keeps a result until it is acknowledged, and waits for nothing else. So the acknowledgement
need not be among the messages that others wait for: it costs a write, and wakes the node's process.
Nodes that declare `batches_acks` get it a little later, with those of their other results. One
timer serves all nodes of an instance. What a lost socket took with it, the node asks for again.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from lingua_wire.shared import ResultAck
from lingua_wire.to_node import JobResultAck, JobResultAcks

if TYPE_CHECKING:
    from lingua_scheduler.runtime.node import NodeOutlet, NodeTraits
    from lingua_wire.from_node import NodeRegister
    from lingua_wire.to_node import ToNode

# How long an acknowledgement may wait for others.
WAIT_S: Final = 0.02


class AckTimer:
    """Sends what has waited long enough; runs only while anything waits."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: list[BatchingOutlet] = []

    def add(self, outlet: BatchingOutlet) -> None:
        """Let this outlet send its acknowledgements soon."""
        if not self._waiting:
            asyncio.get_running_loop().call_later(WAIT_S, self._send_all)
        self._waiting.append(outlet)

    def _send_all(self) -> None:
        waiting, self._waiting = self._waiting, []
        for outlet in waiting:
            outlet.send_acks()


class BatchingOutlet:
    """The socket of a node that takes several acknowledgements in one message."""

    __slots__ = ("_acks", "_outlet", "_timer", "assign", "traits")

    def __init__(self, outlet: NodeOutlet, timer: AckTimer) -> None:
        self.traits: NodeTraits = outlet.traits
        # Every job goes here: without a step between.
        self.assign = outlet.assign
        self._outlet = outlet
        self._timer = timer
        self._acks: list[ResultAck] = []

    def send(self, message: ToNode) -> bool:
        """Send one message, or keep it for the next batch; tells whether the socket was open."""
        if message.__class__ is not JobResultAck:
            return self._outlet.send(message)
        if not self._acks:
            self._timer.add(self)
        self._acks.append(
            ResultAck(job_id=message.job_id, attempt_id=message.attempt_id, status=message.status)
        )
        return True

    def send_acks(self) -> None:
        """Send the acknowledgements that wait."""
        if self._acks:
            acks, self._acks = tuple(self._acks), []
            self._outlet.send(JobResultAcks(results=acks))

    def close(self, code: int, reason: str) -> None:
        """Close the socket; what was acknowledged before is not sent again elsewhere."""
        self.send_acks()
        self._outlet.close(code, reason)


def batching(register: NodeRegister, outlet: NodeOutlet, timer: AckTimer) -> NodeOutlet:
    """Return the outlet of a node as its registration wants acknowledgements."""
    return BatchingOutlet(outlet, timer) if register.batches_acks else outlet
