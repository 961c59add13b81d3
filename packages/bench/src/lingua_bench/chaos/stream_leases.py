"""Watches the leases of streams in the store while a run goes on, and checks them afterwards.

A lease may be held while its speaker speaks, and for `OUTLIVES_S` after the last sign of it: that
long an instance goes on to renew it, and that long it then lasts. A node never has more leases than
the streams that it declared.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import Counter, defaultdict
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Final

import hiredis

from lingua_bench.chaos.history import (
    CutRequested,
    NodeStarted,
    ParticipantConnected,
    ParticipantResumed,
    Recorder,
    StreamLeaseSeen,
    UtteranceAcknowledged,
    open_streams,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from lingua_bench.chaos.findings import ChaosFindings
    from lingua_bench.chaos.history import AnyLine, InjectedFault
    from lingua_bench.chaos.store import ChaosStore

LOOK_EVERY_S: Final = 0.25
# An instance takes a speaker for silent after 4 s without audio and looks every 1.5 s; the lease
# lasts 5 s from its last renewal. The rest is for a busy machine.
OUTLIVES_S: Final = 4.0 + 1.5 + 5.0 + 2.0
# How long before its end an utterance may have begun, for each chunk, and besides.
CHUNK_S, BEGINNING_S = 0.15, 3.0
EXAMPLES_MAX: Final = 5


class StreamLeaseWatch:
    """Records every lease of a stream, again and again."""

    def __init__(self, place: Path, store: ChaosStore) -> None:
        self._store = store
        self._recorder = Recorder(place / "store.leases")

    async def run(self) -> None:
        """Look until cancelled; a store that is away is looked at again."""
        try:
            while True:
                with suppress(OSError, TimeoutError, hiredis.ReplyError):
                    await self.look()
                await asyncio.sleep(LOOK_EVERY_S)
        finally:
            self._recorder.close()

    async def look(self) -> None:
        """Record the leases of this moment."""
        for stream, node in await self._store.stream_leases():
            self._recorder.note(StreamLeaseSeen(monotonic(), stream, node))


def check_stream_leases(
    seen: Sequence[StreamLeaseSeen],
    people: Iterable[AnyLine],
    nodes: Iterable[Sequence[AnyLine]],
    findings: ChaosFindings,
) -> None:
    """Count leases that outlived their speakers, and nodes with more than they declared."""
    findings.stream_leases_seen = len({line.stream for line in seen})
    signs, spans = _signs_of_life(people)
    outlived: dict[str, StreamLeaseSeen] = {}
    for line in seen:
        session = line.stream.rpartition("-h")[0]
        known = signs.get(session, [])
        at = bisect_right(known, line.at)
        is_alive = at > 0 and line.at - known[at - 1] <= OUTLIVES_S
        if not is_alive and not any(a <= line.at <= b for a, b in spans.get(session, ())):
            outlived.setdefault(line.stream, line)
    findings.streams_outlived = len(outlived)
    findings.examples += [
        f"streams_outlived: {line}" for line in list(outlived.values())[:EXAMPLES_MAX]
    ]
    most = {
        line.node: line.max_streams
        for lines in nodes
        for line in lines
        if isinstance(line, NodeStarted)
    }
    at_once = Counter((line.node, round(line.at / LOOK_EVERY_S)) for line in _once_a_look(seen))
    findings.stream_leases_over = sum(
        count > most.get(node, 0) for (node, _), count in at_once.items()
    )


def _once_a_look(seen: Sequence[StreamLeaseSeen]) -> list[StreamLeaseSeen]:
    """Return the leases, each once for every time that the store was looked at."""
    found: dict[tuple[str, int], StreamLeaseSeen] = {}
    for line in seen:
        found.setdefault((line.stream, round(line.at / LOOK_EVERY_S)), line)
    return list(found.values())


def _signs_of_life(
    people: Iterable[AnyLine],
) -> tuple[dict[str, list[float]], dict[str, list[tuple[float, float]]]]:
    """Return for each session when its speaker was surely there, and when it spoke."""
    session_of: dict[int, str] = {}
    signs: dict[str, list[float]] = defaultdict(list)
    spans: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for line in people:
        if isinstance(line, ParticipantConnected):
            session_of[line.participant] = line.session
        elif isinstance(line, CutRequested):
            session = session_of.get(line.participant, "")
            signs[session].append(line.at)
            spans[session].append((line.at - line.chunks * CHUNK_S - BEGINNING_S, line.at))
        elif isinstance(line, ParticipantResumed | UtteranceAcknowledged):
            signs[session_of.get(line.participant, "")].append(line.at)
    for times in signs.values():
        times.sort()
    return signs, spans


def killed_while_listening(
    processes: Mapping[str, Sequence[AnyLine]], faults: Iterable[InjectedFault]
) -> int:
    """Count the kills of node processes whose history ends while they listened to somebody."""
    count = 0
    for fault in faults:
        if "kill" not in fault.kind or not fault.kind.endswith("_node"):
            continue
        started = [
            (lines[0].at, lines)
            for lines in processes.values()
            if lines and isinstance(lines[0], NodeStarted) and lines[0].node == fault.target
        ]
        of_then = [(at, lines) for at, lines in started if at < fault.at]
        if of_then and open_streams(max(of_then, key=lambda one: one[0])[1]) > 0:
            count += 1
    return count
