"""The scripts about streams: what a node hears of an utterance while it is being spoken.

A stream is a head start for the job that follows, nothing depends on it. Its lease is short and is
renewed as long as somebody speaks; `JobSpec.stream` ends it when the job is submitted.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from lingua_scheduler.state.packing import pack
from lingua_scheduler.state.reply import Reply

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lingua_scheduler.state.keys import Cell
    from lingua_scheduler.state.policy import FleetPolicy
    from lingua_scheduler.state.script_runner import ScriptRunner

# How long a stream is held after its opening or its last renewal.
STREAM_LEASE_MS: Final = 5000
# One call renews at most so many.
RENEWED_AT_ONCE: Final = 500


class StreamSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the store needs to place a stream: the same as for the job that follows it."""

    demand: str
    # The first language of the utterance.
    lane: str
    # Empty if the session is of another cell, which has checked it.
    session: str = ""
    # The fence of the session's owner. 0: no check.
    fence: int = 0
    turn: str = ""
    preferred: str = ""
    # No node but the preferred one.
    only: bool = False

    def elsewhere(self, preferred: str = "") -> StreamSpec:
        """Return the request to another cell: for this node only, or for any."""
        return StreamSpec(
            demand=self.demand, lane=self.lane, preferred=preferred, only=bool(preferred)
        )


class OpenedStream(NamedTuple):
    """A stream that a node hears."""

    id: str
    node: str
    # The node's cell, and the instance that has its socket.
    cell: str
    instance: str
    expires_at_ms: int

    @property
    def holder(self) -> str:
        """Return the node as `cell/node`, for `JobSpec.stream_node`."""
        return f"{self.cell}/{self.node}"


class StreamAnswer(NamedTuple):
    """The answer to an opening."""

    reply: Reply
    stream: OpenedStream | None = None
    # Why there is none.
    label: str = ""
    # `cell/node,...` of the turn's nodes in other cells, to be asked first.
    affinity: str = ""


class StreamScripts:
    """Opens, renews and closes streams."""

    def __init__(self, runner: ScriptRunner, policy: FleetPolicy) -> None:
        self._runner = runner
        # Packed once, because the policy is sent with every call that needs it.
        self._policy = pack(policy.for_jobs())

    async def open(
        self, cell: Cell, stream_id: str, spec: StreamSpec, *, park: int = 0
    ) -> StreamAnswer:
        """Let a node of this cell hear a stream; for `park` see `stream_open.lua`."""
        raw = await self._runner.run(
            "stream_open", cell, (self._policy, STREAM_LEASE_MS, stream_id, pack(spec), park)
        )
        reply = Reply(raw[0])
        if reply is not Reply.STREAM_OPENED:
            return StreamAnswer(reply, label=raw[1].decode(), affinity=raw[2].decode())
        _, node, instance, expires_at_ms = raw
        return StreamAnswer(
            reply,
            OpenedStream(stream_id, node.decode(), cell.name, instance.decode(), expires_at_ms),
        )

    async def renew(self, cell: Cell, streams: Sequence[tuple[str, str]]) -> list[str]:
        """Renew streams of this cell, each given as node and id; return the ids that are gone."""
        gone: list[str] = []
        for first in range(0, len(streams), RENEWED_AT_ONCE):
            words = [word for pair in streams[first : first + RENEWED_AT_ONCE] for word in pair]
            raw = await self._runner.run(
                "stream_renew", cell, (self._policy, STREAM_LEASE_MS, *words)
            )
            gone += [stream.decode() for stream in raw[1]]
        return gone

    async def close(self, cell: Cell, node: str, stream_id: str) -> bool:
        """Close a stream; tells whether it was open."""
        raw = await self._runner.run("stream_close", cell, (node, stream_id))
        return bool(raw[1])


def new_stream_id() -> str:
    """Return an id that no stream had."""
    return f"str-{secrets.token_hex(12)}"
