"""The parts of an instance that let nodes listen while one speaks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lingua_scheduler.streams.hosted import HostedStreams
    from lingua_scheduler.streams.hub import StreamHub
    from lingua_scheduler.streams.partial_router import PartialRouter


@dataclass(frozen=True, slots=True)
class StreamParts:
    """Streams of sessions here, streams to nodes here, and where partial results go."""

    hub: StreamHub
    hosted: HostedStreams
    router: PartialRouter
