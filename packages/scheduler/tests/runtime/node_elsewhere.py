"""A session on one instance whose job is on a node of another: what several test files share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lingua_wire.to_client import UiEvent
from lingua_wire.to_node import JobResultAck
from runtime.bare_instances import BareInstance, Speaker, Worker, until

if TYPE_CHECKING:
    from lingua_scheduler.peers.messages import PeerMessage


async def spoken(
    owner: BareInstance, host: BareInstance, **register: object
) -> tuple[Speaker, Worker, list[PeerMessage]]:
    """Let a client speak on one instance; the node is on another. Returns the host's messages."""
    worker = await host.node(**register)
    speaker = await owner.speaker()
    speaker.say()
    await until(lambda: speaker.accepted == [0], "the utterance is in the store")
    await owner.quiet()
    return speaker, worker, await host.take_messages()


def acks(worker: Worker) -> list[str]:
    """Return how the reports of a node were answered."""
    return [message.status for message in worker.of(JobResultAck)]


def events(speaker: Speaker) -> list[str]:
    """Return the steps that a client was sent."""
    return [message.event for message in speaker.of(UiEvent)]
