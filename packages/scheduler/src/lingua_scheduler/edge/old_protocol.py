"""The older protocol, in one place: what its clients and nodes do not know is not sent to them.

Existing clients and nodes of the system that this one replaces work unchanged. Behind the sockets
the runtime asks for traits (`NodeTraits`, `Outlet.speaks_additions`), never for a version.

A client of the older protocol offers no subprotocol. It knows none of the additions, unless its
`session_init` uses one of them, and it always gets `ui_event`s. A node of the older protocol sends
no boot id. It does not acknowledge jobs, cannot resume, and refuses a second job of one session and
utterance, so that each language is sent to it as a session of its own. It buffers the slices of a
long speech without reporting them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from lingua_scheduler.runtime.node import NodeTraits
from lingua_wire.to_node import (
    JobAssign,
    JobResultAck,
    JobResultAcks,
    NodeRegisterAck,
    NodeStatusMessage,
    NodeTokenExpiring,
)

if TYPE_CHECKING:
    from lingua_scheduler.runtime.node import NodeOutlet
    from lingua_wire.from_client import SessionInit
    from lingua_wire.from_node import NodeRegister
    from lingua_wire.to_node import ToNode

OLD_NODE = NodeTraits(resumes=False, buffers_slices=True)
# Messages that nodes of the older protocol do not know.
UNKNOWN_TO_OLD_NODES = (JobResultAck, JobResultAcks, NodeStatusMessage, NodeTokenExpiring)


class ClientChoices(NamedTuple):
    """Which optional messages a client gets."""

    speaks_additions: bool
    wants_events: bool

    @classmethod
    def at_first(cls, subprotocol: str | None) -> ClientChoices:
        """Return what is assumed before the first message."""
        return cls(subprotocol is not None, subprotocol is None)

    def after(self, init: SessionInit) -> ClientChoices:
        """Return what a `session_init` says of its client."""
        uses_additions = bool(init.audio_format or init.tgt_langs or init.sample_rate)
        wants_events = self.wants_events if init.ui_events is None else init.ui_events
        return ClientChoices(self.speaks_additions or uses_additions, wants_events)


def outlet_for(register: NodeRegister, outlet: NodeOutlet) -> NodeOutlet:
    """Return the outlet of a node in the protocol that its registration speaks."""
    return OldNodeOutlet(outlet) if register.boot_id is None else outlet


class OldNodeOutlet:
    """The socket of a node of the older protocol."""

    traits = OLD_NODE

    def __init__(self, outlet: NodeOutlet) -> None:
        self._outlet = outlet

    def send(self, message: ToNode) -> bool:
        """Send a message as older nodes know it, or leave it out."""
        if isinstance(message, UNKNOWN_TO_OLD_NODES):
            return True
        if isinstance(message, NodeRegisterAck):
            message = msgspec.structs.replace(message, max_jobs=None, heartbeat_ms=None)
        return self._outlet.send(message)

    def assign(self, message: JobAssign, lane: str) -> bool:
        """Send a job without what older nodes do not know."""
        changes: dict[str, str] = {}
        if lane:
            changes["session_id"] = f"{message.session_id}~{lane}"
            changes["turn_id"] = f"{message.turn_id}~{lane}"
        message = msgspec.structs.replace(message, glossary=(), deadline_ms=None, **changes)
        return self._outlet.send(message)

    def close(self, code: int, reason: str) -> None:
        """Close the socket."""
        self._outlet.close(code, reason)
