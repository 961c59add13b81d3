"""What a node reports of itself: its registration on every connection, then heartbeats."""

from __future__ import annotations

import asyncio
from time import time
from typing import TYPE_CHECKING

import msgspec

from lingua_wire.from_node import NodeHeartbeat, NodeRegister

if TYPE_CHECKING:
    from lingua_node.job_runner import JobRunner
    from lingua_node.machine import MachineUsage
    from lingua_node.node_socket import Outbox
    from lingua_wire.shared import CapabilityByType


class NodeReporter:
    """Builds the registration and sends the heartbeats of one node."""

    def __init__(
        self, registration: NodeRegister, runner: JobRunner, outbox: Outbox, usage: MachineUsage
    ) -> None:
        self._registration = registration
        self._runner = runner
        self._outbox = outbox
        self._usage = usage
        # The capabilities that were last reported on this connection.
        self._reported: tuple[CapabilityByType, ...] = ()
        self._timer: asyncio.TimerHandle | None = None

    def registration_message(self, token: str | None) -> NodeRegister:
        """Return the message that registers the node on a new connection."""
        self._reported = self._registration.capability_by_type
        return msgspec.structs.replace(
            self._registration,
            node_id=self._runner.node_id,
            running=self._runner.held(),
            token=token,
        )

    def update(self, registration: NodeRegister) -> None:
        """Report changed capabilities: now, and with every registration from now on."""
        self._registration = registration
        if self._outbox.is_open:
            self._outbox.send(self._heartbeat(registration.capability_by_type))

    def start_heartbeats(self, interval_s: float) -> None:
        """Send a heartbeat now and after every interval."""
        # Changes made between the registration and its acknowledgement are reported here.
        present = self._registration.capability_by_type
        self._outbox.send(self._heartbeat(None if present == self._reported else present))
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(interval_s, self.start_heartbeats, interval_s)

    def stop_heartbeats(self) -> None:
        """Send no more heartbeats on this connection."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _heartbeat(self, capabilities: tuple[CapabilityByType, ...] | None) -> NodeHeartbeat:
        if capabilities is not None:
            self._reported = capabilities
        return NodeHeartbeat(
            node_id=self._runner.node_id,
            timestamp=int(time() * 1000),
            resource_usage=self._usage.now(self._runner.running_count),
            capability_by_type=capabilities,
            running=self._runner.running(),
        )
