"""The messages between the processes of `lingua bench live`: one JSON object a line.

`live.py` gives an order to the load process and reads the result; the load process follows one
order at a time. Durations are seconds where they are planned and milliseconds where they were
measured.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Kind = Literal["whole", "relayed"]


class Watched(msgspec.Struct, frozen=True):
    """The processes whose usage is measured: those of the service, and of the load."""

    # Every process of `lingua serve` but the store: itself and its workers.
    schedulers: tuple[int, ...]
    store: int
    nodes: int
    relay: int = 0


class ClosedLoop(msgspec.Struct, frozen=True, kw_only=True, tag="closed", tag_field="do"):
    """Keep so many utterances in progress; `relayed` goes through the bare relay instead."""

    sessions: int
    each: int
    seconds: float
    warm_s: float = 0.5
    kind: Kind = "whole"


class OpenLoop(msgspec.Struct, frozen=True, kw_only=True, tag="open", tag_field="do"):
    """Send utterances at a fixed rate, however long they take."""

    rate: int
    seconds: float


class SpreadLoop(msgspec.Struct, frozen=True, kw_only=True, tag="spread", tag_field="do"):
    """Keep so many utterances in progress, each of them of the session that spoke longest ago."""

    sessions: int
    in_flight: int
    seconds: float
    warm_s: float = 0.5


class MemoryOrder(msgspec.Struct, frozen=True, kw_only=True, tag="memory", tag_field="do"):
    """Open idle sessions, then let some of them speak for a while without an end."""

    idle: int
    speaking: int
    # Frames of 100 ms that each speaking session has sent when memory is read.
    frames: int


class Paced(msgspec.Struct, frozen=True, kw_only=True, tag="paced", tag_field="do"):
    """Stream frames of 100 ms in real time, with an utterance every so many; 0: without end."""

    sessions: int
    seconds: float
    warm_s: float = 1.0
    final_every: int = 30
    # Nodes listen, and the sessions receive partial texts.
    streamed: bool = False
    # A file for every single result: when it came (monotonic seconds), what was added (ms).
    samples: str = ""


Order = ClosedLoop | OpenLoop | SpreadLoop | MemoryOrder | Paced


class OrderResult(msgspec.Struct, kw_only=True):
    """The result of one order, within its window; numbers that do not apply stay 0."""

    seconds: float = 0.0
    utterances: int = 0
    frames: int = 0
    # Round trip, or for paced sessions the part that the control plane adds to it.
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    # The same by the scheduler's own timeline: whole milliseconds, without waiting in sockets.
    timeline_p99_ms: float = 0.0
    # CPU seconds in the window: of all processes of the scheduler together, and of each other one.
    scheduler_cpu_s: float = 0.0
    store_cpu_s: float = 0.0
    # Of the children in which the store rewrites its file, if they ended in the window.
    rewrites_cpu_s: float = 0.0
    nodes_cpu_s: float = 0.0
    clients_cpu_s: float = 0.0
    relay_cpu_s: float = 0.0
    # Memory of the scheduler's processes per session.
    idle_kb: float = 0.0
    speaking_kb: float = 0.0
    # How late the load itself was with its frames.
    late_p99_ms: float = 0.0
    # Since the process began: utterances without an outcome, duplicated, out of order, failed.
    lost: int = 0
    duplicates: int = 0
    inversions: int = 0
    missing: int = 0
    partials: int = 0
    errors: dict[str, int] = {}


encode = msgspec.json.Encoder().encode
decode_order = msgspec.json.Decoder(Order).decode
decode_found = msgspec.json.Decoder(OrderResult).decode
