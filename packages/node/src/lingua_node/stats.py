"""What a node has done so far, in numbers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Stats:
    """Counts since a node began to serve."""

    # Jobs started, and how they ended here.
    jobs: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    # Jobs beyond `max_jobs`, or that arrived while the node was draining.
    refused: int = 0
    # Assignments that were already running or done, or older than a known one.
    duplicates: int = 0
    # Results sent again, and those given up unacknowledged.
    resent: int = 0
    lost_results: int = 0
    # Streams heard, refused at once, and given up before their end.
    streams: int = 0
    streams_refused: int = 0
    streams_closed: int = 0
    # Registrations after the first.
    reconnects: int = 0
